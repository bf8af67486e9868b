"""New days whose footers equal those of learned ones are learned; copies alone are refused."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from moto_bucket import moto_bucket
from running import run, write
from scripted import Script
from test_follow import followed

import streamomd
from streamomd.core.errors import ResumeRefusedError
from streamomd.sources.find import find

ROWS = 1000
PLAIN = {"compression": "none", "use_dictionary": False}
"""With runs in dictionaries and with compression, the sizes would be equal by chance alone."""
BY_DIGESTS = "the digests of their row groups are equal"


def day(number: int) -> pa.Table:
    """1,000 rows that have the statistics and the sizes of those of any other day."""
    draw = np.random.default_rng(number)
    values = np.arange(ROWS)
    return pa.table(
        {
            "k": draw.permutation(values % 50),
            "letter": draw.permutation(np.array([*"abcd"])[values % 4]),
            "y": draw.permutation(values % 2),
        }
    )


def add(folder: Path, number: int) -> Path:
    return write(folder / f"day={number}.parquet", day(number), **PLAIN)


def train(folder: Path, url: Path, **more: Any) -> None:
    options = {"shards": str(folder), "label": "y", "rule": "nag", "checkpoint": str(url)}
    sets = {"update.settle": 0.0}
    streamomd.train(**options, sets=sets, quiet=True, **more)


def update(url: Path, **given: Any) -> int:
    """The rows that the run has after an update."""
    return streamomd.update(str(url), quiet=True, **given).metrics.total_rows


def refused(url: Path, **given: Any) -> str:
    with pytest.raises(ResumeRefusedError) as caught:
        update(url, **given)
    return str(caught.value)


def test_days_with_equal_footers_are_learned_and_copies_refused(tmp_path: Path) -> None:
    """Also two that are new; a copy is refused with what proves it; a moved one is renamed."""
    folder, url = tmp_path / "days", tmp_path / "run"
    add(folder, 1)
    train(folder, url)
    add(folder, 2), add(folder, 3)
    assert len({(one.footer_sha256, one.size, one.rows) for one in find(str(folder))}) == 1
    assert update(url) == 3 * ROWS
    shutil.copy(folder / "day=2.parquet", folder / "day=4.parquet")
    message = refused(url)
    assert "1 new file with the stored bytes of another shard" in message
    assert f"day=2.parquet, which is learned: {BY_DIGESTS}" in message
    (folder / "day=2.parquet").unlink()
    assert f"day=2.parquet, which is no longer listed: {BY_DIGESTS}" in refused(url)
    add(folder, 5)  # with --moved a new day is a new day all the same
    assert update(url, moved=True) == 4 * ROWS
    assert update(url) == 4 * ROWS


def test_a_learned_day_with_new_rows_and_its_old_footer_is_rewritten(tmp_path: Path) -> None:
    """A touched one is not."""
    folder, url = tmp_path / "days", tmp_path / "run"
    path = add(folder, 1)
    train(folder, url)
    path.touch()
    assert update(url) == ROWS
    write(path, day(2), **PLAIN)
    assert "changed since the run read it" in (message := refused(url))
    assert "the digests of their row groups are different, with the same footer" in message


def test_follow_learns_days_with_equal_footers(tmp_path: Path) -> None:
    folder, url = tmp_path / "days", tmp_path / "run"
    add(folder, 1)
    train(folder, url)
    script = Script()
    for number in (2, 3):

        def arrive(number: int = number) -> None:
            script.touched(add(folder, number))

        script.actions.append((100.0 * number, arrive))
    told, _ = followed(script.follower(url, idle_exit=400.0))
    assert told["rows"] == 3 * ROWS


def as_parquet(folder: Path, name: str, table: pa.Table) -> None:
    write(folder / f"{name}.parquet", table, row_group_size=4, **PLAIN)


def as_arrow(folder: Path, name: str, table: pa.Table) -> None:
    folder.mkdir(exist_ok=True)
    with pa.ipc.new_file(str(folder / f"{name}.arrow"), table.schema) as file:
        file.write_table(table, max_chunksize=4)


TABLES = st.lists(st.permutations([0, 1, 0, 1, 0, 1]), min_size=3, max_size=3)


@pytest.mark.parametrize("write_table", [as_parquet, as_arrow])
@given(labels=TABLES, columns=st.lists(st.permutations(range(6)), min_size=3, max_size=3))
@settings(max_examples=6, deadline=None, suppress_health_check=[HealthCheck.differing_executors])
def test_random_tables_with_equal_footers_are_learned_unless_they_are_equal(
    write_table: Callable[[Path, str, pa.Table], None],
    labels: list[list[int]],
    columns: list[list[int]],
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """Each table that differs is learned; one with the rows of an earlier one is a copy."""
    root = tmp_path_factory.mktemp("tables")
    folder, url, seen = root / "in", root / "run", list[Any]()
    for at, (y, x) in enumerate(zip(labels, columns, strict=True)):
        write_table(folder, str(at), pa.table({"x": x, "y": y}))
        if not seen:
            train(folder, url)
        elif (x, y) in seen:
            assert BY_DIGESTS in refused(url)
            assert update(url, accept_duplicates=True) == 6 * (at + 1)
        else:
            assert update(url) == 6 * (at + 1)
        seen.append((x, y))
    first = next(folder.iterdir())
    shutil.copy(first, first.with_stem("copy"))
    assert BY_DIGESTS in refused(url)


@pytest.mark.slow
def test_csv_days_with_equal_footers_are_learned(tmp_path: Path) -> None:
    """Text is converted to a directory of its own, as the refusal of text advises."""
    folder, url = tmp_path / "rows", tmp_path / "run"
    for number in (1, 2, 3):
        same = 2 if number == 3 else number
        lines = (",".join(map(str, row.values())) for row in day(same).to_pylist())
        text = tmp_path / f"{number}.csv"
        text.write_text("\n".join(["k,letter,y", *lines]))
        assert run("convert", text, "-o", folder / str(number)).code == 0
        if number == 1:
            train(folder / "*" / "*.parquet", url)
        elif number == 2:
            assert update(url) == 2 * ROWS
    assert BY_DIGESTS in refused(url)


@pytest.mark.slow
def test_a_bucket_of_days_with_equal_footers(tmp_path: Path) -> None:
    """S3's ETags prove a copy, and other ETags of equal bytes disprove none."""
    with moto_bucket() as options:
        import s3fs

        fs, url = s3fs.S3FileSystem(**options), tmp_path / "run"
        given: dict[str, Any] = {"storage_options": options}
        for number in (1, 2, 3):
            path = add(tmp_path / "days", number)
            fs.put_file(str(path), f"bucket/days/{path.name}")
            if number == 1:
                train("s3://bucket/days/", url, storage_options=options)
            else:
                assert update(url, **given) == number * ROWS
        data = path.read_bytes()
        fs.pipe_file("bucket/days/copy.parquet", data)
        assert "day=3.parquet, which is learned: their ETags are equal" in refused(url, **given)
        made = fs.call_s3("create_multipart_upload", Bucket="bucket", Key="days/copy.parquet")
        key = {"Bucket": "bucket", "Key": "days/copy.parquet", "UploadId": made["UploadId"]}
        part = fs.call_s3("upload_part", **key, PartNumber=1, Body=data)
        parts = {"Parts": [{"PartNumber": 1, "ETag": part["ETag"]}]}
        fs.call_s3("complete_multipart_upload", **key, MultipartUpload=parts)
        assert f"day=3.parquet, which is learned: {BY_DIGESTS}" in refused(url, **given)
