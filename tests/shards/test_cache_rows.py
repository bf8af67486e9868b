"""Rows from the cache are those of the shards, to the bit: in every mode, from every row on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from caching import Row, cache_in, entries, plan_of, read, rows_in, settled
from running import Impatient, everything, rows, run, shards, train, with_column, write

from streamomd.features import Names
from streamomd.shards import encoded_rows
from streamomd.shards.cache.cached_reader import SCHEMA, WRONG, add_names, cached_rows
from streamomd.shards.order import Group
from streamomd.sources.find import find
from streamomd.training.row_stream import rows_of, rows_of_group

FLAGS = [*everything(), "--checkpoint", "none"]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three shards of 40 rows in groups of 10."""
    folder = tmp_path_factory.mktemp("rows") / "data"
    shards(folder)
    settled(folder)
    return folder


@pytest.fixture
def decoded(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """First rows of what is decoded from now on."""
    seen: list[int] = []
    encode = encoded_rows.encode

    def told(*given: Any, **more: Any) -> Any:
        if given[1].num_rows:
            seen.append(more["row"])
        return encode(*given, **more)

    monkeypatch.setattr(encoded_rows, "encode", told)
    return seen


@pytest.mark.parametrize("order", ["shuffled", pytest.param("sorted", marks=pytest.mark.slow)])
def test_same_bits(order: str, data: Path, tmp_path: Path, decoded: list[int]) -> None:
    """Cold, warm and partly evicted, in several epochs of any order: the bits of no cache."""
    flags = [*FLAGS, "--epochs", 3, "--set", f"data.order={order}", "--set", "data.holdout=7"]
    expected, kept = train(data, *flags), tmp_path / "kept"
    assert len(set(decoded)) * 3 < len(decoded)
    for missing in (12, 0, 5):
        for path in entries(kept)[:missing]:
            path.unlink()
        decoded.clear()
        found = train(data, *flags, "--cache", kept)
        for key in ("state_sha256", "loss", "error", "rows", "epochs", "skipped", "holdout"):
            assert found[key] == expected[key]
        assert len(entries(kept)) == 12
        assert len({row // 10 for row in decoded}) <= missing
        assert bool(decoded) == bool(missing)


def with_bad(table: pa.Table) -> pa.Table:
    """Rows of which some are bad, and all of a group."""
    n = table["n"].to_numpy().copy()
    n[[0, 3, 4, 9, 12, 20, 29, *range(30, 40)]] = np.nan
    return with_column(table, "n", n)


@pytest.mark.parametrize("kind", ["sparse", "dense"])
@pytest.mark.parametrize("bad", [False, True])
@pytest.mark.sample(2)
def test_every_start(kind: str, bad: bool, tmp_path: Path, decoded: list[int]) -> None:
    """From any row on, bad ones among them: what the shards give, and none is decoded."""
    data, kept = tmp_path / "data", tmp_path / "kept"
    table = rows(40)
    for place, one in enumerate([with_bad(table) if bad else table, table.slice(0, 3)]):
        write(data / f"{place}.parquet", one, row_group_size=10)
    settled(data)
    plan = plan_of(data, kind, on_bad_row="skip" if bad else "error")
    expected = read(plan, data, None)
    assert read(plan, data, cache_in(kept)) == expected
    decoded.clear()
    for row in range(43):
        start = (0, row) if row <= 40 else (1, row - 40)
        assert read(plan, data, cache_in(kept), start) == expected[row:]
    assert not decoded


def test_every_stretch(data: Path, tmp_path: Path) -> None:
    """Any rows of a group, as a part of averaged mode reads them, cold and warm: the shard's; and
    only who reads all of them keeps them."""
    plan, kept = plan_of(data, "sparse"), tmp_path / "kept"
    group, expected = Group(find(str(data)).shards[1], 2, 20, 10), read(plan, data, None)[60:70]

    def stretch(low: int, high: int) -> list[Row]:
        cached = cached_rows(cache_in(kept), [group.shard], plan, None)
        pieces = rows_of_group(plan, group, low, high, options={}, cached=cached)
        return [row for one in pieces for row in rows_in(one.value.batch, one.row, 1)]

    spans = [(low, high) for low in range(20, 30) for high in range(low + 1, 31)]
    part = [span for span in spans if span != (20, 30)]
    for cold, (low, high) in enumerate([*part, (20, 30), *spans]):
        assert stretch(low, high) == expected[low - 20 : high - 20]
        assert len(entries(kept)) == (cold >= len(part))


def test_only_complete_groups_are_cached(data: Path, tmp_path: Path) -> None:
    """A group read from its middle makes no entry, nor do rows without labels or with columns kept
    beside them; who stops early leaves no draft."""
    plan, found, kept = plan_of(data, "sparse"), find(str(data)), tmp_path / "kept"
    assert len(read(plan, data, cache_in(kept), (2, 35))) == 5
    for options in ({"labelled": False}, {"keep": ["c"]}):
        assert len(read(plan, data, cache_in(kept), **options)) == 120
    assert not entries(kept)
    pieces = rows_of(plan, found, range(3), cache=cache_in(kept), ahead_bytes=1)
    next(pieces)
    pieces.close()
    assert len(entries(kept)) < 12


@pytest.mark.parametrize("kind", ["sparse", "dense"])
def test_an_entry_is_an_arrow_file(kind: str, data: Path, tmp_path: Path) -> None:
    """Any Arrow library reads the rows of an entry."""
    plan = plan_of(data, kind)
    batches = rows_of(plan, find(str(data)), range(3), cache=cache_in(tmp_path / "kept"))
    y = sorted(np.concatenate([piece.value.batch.y for piece in batches]))
    found = [pa.ipc.open_file(path).read_all() for path in entries(tmp_path / "kept")]
    assert {table.num_rows for table in found} == {10}
    assert sorted(np.concatenate([table["y"].to_numpy() for table in found])) == y


def test_names(data: Path, tmp_path: Path) -> None:
    """A run from the cache has the same names as one without it, regardless of the entries'
    writer."""
    plan, expected = plan_of(data, "sparse"), Names()
    read(plan, data, None, names=expected)
    read(plan, data, cache_in(tmp_path / "kept"))  # one that asked for no names
    for missing in [slice(0), slice(5), slice(12), *(slice(at, at + 1) for at in range(12))]:
        for path in entries(tmp_path / "kept")[missing]:
            path.unlink()
        names, cache = Names(), cache_in(tmp_path / "kept")
        for _ in range(2):
            read(plan, data, cache, names=names)
            assert names.to_json() == expected.to_json()


@pytest.mark.parametrize(
    ("coordinates", "texts"), [([-1], [b"c=a"]), ([1], [None]), ([1], [b"c=\xff"])]
)
def test_names_that_are_none(coordinates: list[int], texts: list[bytes | None]) -> None:
    """A checksum can be forged: an invalid name is added to no table."""
    columns = [pa.array(coordinates, pa.int32()), pa.array(texts, pa.large_binary())]
    packed = pa.RecordBatch.from_arrays(columns, schema=SCHEMA).serialize()
    names = Names()
    with pytest.raises(WRONG):
        add_names(packed, names)
    assert not len(names)


def test_a_full_table_looks_at_some_names(monkeypatch: pytest.MonkeyPatch) -> None:
    """One in eight, as of rows that are decoded: others could only be second names."""
    texts = [b"c=%d" % at for at in range(17)]
    columns = [pa.array(range(17), pa.int32()), pa.array(texts, pa.large_binary())]
    packed, names = pa.RecordBatch.from_arrays(columns, schema=SCHEMA).serialize(), Names()
    monkeypatch.setattr(Names, "is_full", True)
    add_names(packed, names)
    assert names.to_json() == {str(at): (f"c={at}",) for at in (0, 8, 16)}


def test_resume_within_a_group(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    """Stopped within a group and gone on with from a cache that is warm, new, or none at all: the
    bits of a run that was never stopped."""
    job = [data / "a.parquet", *everything(), "--epochs", 2, "--cache", tmp_path / "kept"]
    expected = train(*job, "--checkpoint", "none")["state_sha256"]
    for number, cache in enumerate(["kept", "new", ""]):
        url, moved = tmp_path / f"run{number}", tmp_path / cache if cache else ""
        with monkeypatch.context() as patch:
            patch.setattr("streamomd.runs.reporting.progress", lambda *_: Impatient(53))
            assert run("train", *job, "--checkpoint", url).code == 143
        ended = run("resume", url, "--set", f"data.cache={moved}", "--json").result
        assert ended["state_sha256"] == expected


def test_sweeps_evaluation_and_certificates(data: Path, tmp_path: Path, decoded: list[int]) -> None:
    """What else reads labelled rows reads those of the cache, with the figures of the shards."""
    url, kept = tmp_path / "run", tmp_path / "kept"
    train(data, *everything(), "--checkpoint", url, "--cache", kept)
    decoded.clear()
    grid = ["--grid", "eta=0.1,0.5", "--json"]
    swept = run("sweep", data, *FLAGS, *grid, "--cache", kept).result
    found = [
        run("evaluate", url, data, "--cache", kept, "--json").result,
        run("certify", url, data, "--cache", kept, "--json").result,
    ]
    assert not decoded
    for path in entries(kept):
        path.unlink()
    kept.rmdir()
    assert run("sweep", data, *FLAGS, *grid).result["learners"] == swept["learners"]
    again = [
        run("evaluate", url, data, "--cache", kept, "--json").result,
        run("certify", url, data, "--cache", kept, "--json").result,
    ]
    assert not kept.exists()  # only what is there is read
    assert found[1]["learners"] == again[1]["learners"]
    assert found[0]["loss"] == again[0]["loss"]
