"""Shards without page checksums: one line of plan, and of a verbose train."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from running import rows, run, write

from streamomd.sources.find import find

FLAGS = ("--label", "y", "--numeric", "n", "--set", 'data.ignore=["w","k","h","c","i","v"]')
LINE = "no page checksums"


def said(*words: object) -> list[str]:
    """Lines about checksums, of a command that ends well."""
    done = run(*words)
    assert done.code == 0, done.err
    return [line for line in (done.out + done.err).splitlines() if LINE in line]


@pytest.mark.parametrize("command", ["train", "plan"])
def test_one_line_a_run(command: str, tmp_path: Path) -> None:
    """Of five shards three have none: reported once; nothing where all have them."""
    data = tmp_path / "data"
    for at in range(3):
        write(data / f"{at}.parquet", rows(20, first=at))
    for at in range(3, 5):
        write(data / f"{at}.parquet", rows(20, first=at), write_page_checksum=True)
    more = {
        "train": ("--checkpoint", "none", "--verbose"),
        "plan": (),
    }[command]
    [line] = said(command, data, *FLAGS, *more)
    assert line.lstrip(" *-").startswith(f"3 of 5 shards have {LINE}")
    assert "write_page_checksum=True" in line
    for path in sorted(data.iterdir())[:3]:
        path.unlink()
    assert said(command, data, *FLAGS, *more) == []


def test_arrow_shards_have_none(tmp_path: Path) -> None:
    """The format has no checksums: the line names the one that has."""
    table = rows(20)
    with pa.ipc.new_file(str(tmp_path / "a.arrow"), table.schema) as writer:
        writer.write_table(table)
    [line] = said("train", tmp_path / "a.arrow", *FLAGS, "--checkpoint", "none", "-v")
    assert line.startswith("the shard has no")
    assert "streamomd convert" in line
    assert "Arrow files never have any" in line


def test_an_ordinary_export_is_trained_without_a_line(tmp_path: Path) -> None:
    """Spark, pandas and BigQuery write no checksums: a train that is not verbose is silent."""
    write(tmp_path / "a.parquet", rows(20))
    assert said("train", tmp_path / "a.parquet", *FLAGS, "--checkpoint", "none") == []


def test_what_convert_writes_has_them(tmp_path: Path) -> None:
    """Parquet of `convert` needs no line."""
    (tmp_path / "a.csv").write_text("x,y\n" + "1.5,0\n2.5,1\n" * 50)
    words = ("convert", tmp_path / "a.csv", "--from", "csv", "--to", tmp_path / "out")
    assert run(*words).code == 0
    [shard] = find(str(tmp_path / "out")).shards
    assert shard.checksums is True
    assert said("train", tmp_path / "out", "--label", "y", "--checkpoint", "none") == []


@pytest.mark.parametrize("written", [False, True])
@pytest.mark.parametrize("version", ["1.0", "2.0"])
def test_the_first_page_decides(written: bool, version: str, tmp_path: Path) -> None:
    """Dictionary and data pages, small files and files longer than what is read at the end."""
    path = str(tmp_path / "a.parquet")
    for count in (10, 50_000):
        table = pa.table({"x": pa.array(range(count)), "s": [str(at) for at in range(count)]})
        for coded in (False, True):
            pq.write_table(
                table, path, write_page_checksum=written, data_page_version=version,
                use_dictionary=coded,
            )  # fmt: skip
            assert find(path).shards[0].checksums is written


def test_unsupported_features_are_not_exported(tmp_path: Path) -> None:
    """Bytes at the beginning that are no page header: unknown, and found nevertheless."""
    path = write(tmp_path / "a.parquet", rows(20))
    data = path.read_bytes()
    path.write_bytes(data[:4] + b"\xff" * 8 + data[12:])
    assert find(str(path)).shards[0].checksums is None
