"""Bad input, end to end: what is said, with which exit code, and what the checkpoint holds then."""

from __future__ import annotations

import functools
import gzip
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from running import ROWS, everything, rows, run, shards, with_column, write

import streamomd
from streamomd.core.errors import StreamomdError

NAN, INF = float("nan"), float("inf")
BAD_ROW = 23  # of the second of three shards
BEFORE = ROWS + BAD_ROW
KEPT = ["--set", "checkpoint.every_rows=16", "--set", "checkpoint.every_seconds=0"]


def with_cell(table: pa.Table, name: str, value: Any, kind: Any = None) -> pa.Table:
    values = table.column(name).to_pylist()
    values[BAD_ROW] = value
    return with_column(table, name, pa.array(values, kind or table.schema.field(name).type))


@functools.cache
def after(count: int) -> str:
    """``state_sha256`` of a model that has learned the first ``count`` good rows and no more."""
    flags: dict[str, Any] = {"label": "y", "weight": "w", "numeric": ["n", "k"], "hashed": ["h"]}
    flags |= {"bits": 10, "rule": "nag"}
    sets = {"data.sparse": {"indices": "i", "values": "v", "size": 100}}
    with tempfile.TemporaryDirectory() as folder:
        table = pa.concat_tables([rows(ROWS, first=place) for place in range(3)])
        path = write(Path(folder) / "some.parquet", table.slice(0, count))
        model = streamomd.train(str(path), checkpoint="none", quiet=True, sets=sets, **flags)
    return model.state_sha256


BAD_ROWS = {
    "numeric null": ("n", None, None, ["found null", "expected a number", "--nulls mean"]),
    "numeric nan": ("n", NAN, None, ["found nan", "expected a finite number", "drop the row"]),
    "numeric inf": ("n", INF, None, ["found inf", "expected a finite number"]),
    "numeric -inf": ("n", -INF, None, ["found -inf", "expected a finite number"]),
    "integer beyond 2^53": (
        "k",
        2**53 + 1,
        None,
        ["9007199254740993", "an integer float64", "double"],
    ),
    "label null": (
        "y",
        None,
        None,
        ["label null", "one of the classes [0, 1]", "--where 'y is not null'"],
    ),
    "label outside": ("y", 2, None, ["label 2", "one of the classes [0, 1]", "model.classes"]),
    "weight null": ("w", None, None, ["found null"]),
    "weight nan": ("w", NAN, None, ["found nan"]),
    "weight inf": ("w", INF, None, ["found inf"]),
    "weight negative": ("w", -0.5, None, ["-0.5", "a weight of 0 or more", "drop the row"]),
    "index negative": ("i", [-1], None, ["index -1", "0 … 99", "drop the row"]),
    "index too large": ("i", [100], None, ["index 100", "0 … 99", "data.sparse.size"]),
    "index null": ("i", [None], None, ["null at place 0"]),
    "value null": ("v", [None], None, ["null at place 0"]),
    "value nan": ("v", [NAN], None, ["found nan"]),
    "value inf": ("v", [INF], None, ["found inf"]),
    "ragged": ("i", [1, 2], None, ["2 indices and 1 values", "as many values as indices"]),
    "indices without values": ("i", None, None, ["0 indices and 1 values"]),
}


@pytest.mark.parametrize("case", BAD_ROWS)
def test_bad_row(case: str, tmp_path: Path) -> None:
    """Exit 2, told by shard, absolute row, column, found, expected, remedy; commits stay whole."""
    column, value, kind, words = BAD_ROWS[case]
    data, kept = tmp_path / "data", tmp_path / "run"
    table = shards(data)[1]
    if column in "iv":
        table = with_cell(with_cell(table, "i", [1]), "v", [1.0])
    write(data / "b.parquet", with_cell(table, column, value, kind), row_group_size=10)
    # A job that names no classes finds this one in the footer.
    given = ["--set", "model.classes=[0, 1]"] if case == "label outside" else []
    done = run("train", data, *everything(), *given, "--checkpoint", kept, *KEPT)
    assert done.code == 2
    assert done.out == ""
    place = f"shard {data}/b.parquet, row {BAD_ROW}, column {column!r}: found "
    for word in (place, ", expected ", "; ", *words):
        assert word in done.err
    assert "Traceback" not in done.err
    assert_whole(kept)


def assert_whole(kept: Path) -> None:
    """The last commit holds whole rows before the bad one, each learned once, and nothing else."""
    model = streamomd.load(str(kept))
    count = model.metrics.total_rows
    assert ROWS - 16 < count <= BEFORE
    assert not model.finished
    assert model.state_sha256 == after(count)
    listed = run("checkpoint", "verify", kept, "--json").result["commits"]
    assert [commit["ok"] for commit in listed] == [True] * len(listed)


TOO_LARGE = {
    "number": ("n", 1e39, "1e+39"),
    "negative number": ("n", -1e39, "-1e+39"),
    "value of a pair": ("v", [1e100], "1e+100"),
    "sum of equal indices": ("v", [3e38, 3e38], "equal indices"),
}


@pytest.mark.parametrize("case", TOO_LARGE)
def test_numbers_beyond_float32(case: str, tmp_path: Path) -> None:
    """With float32 slots a number they cannot hold is a bad row; with float64 it is learned."""
    column, value, found = TOO_LARGE[case]
    table = rows(ROWS)
    if column == "v":
        table = with_cell(table, "i", [7] * len(value))
    path = write(tmp_path / "a.parquet", with_cell(table, column, value))
    flags = [*everything(), "--checkpoint", "none", "--rule", "adagrad"]  # which has no range
    done = run("train", path, *flags, "--dtype", "float32")
    assert done.code == 2
    for word in (f"row {BAD_ROW}, column {column!r}: found {found}", "expected a", "; "):
        assert word in done.err
    assert run("train", path, *flags).code == 0


def test_mended_shard_is_another_shard(tmp_path: Path) -> None:
    """After a bad row was mended, resume refuses (3), field by field, and says how to go on."""
    data, kept = tmp_path / "data", tmp_path / "run"
    good = shards(data)[1]
    write(data / "b.parquet", with_cell(good, "n", NAN), row_group_size=10)
    assert run("train", data, *everything(), "--checkpoint", kept, *KEPT).code == 2
    before = streamomd.load(str(kept)).state_sha256
    write(data / "b.parquet", good, row_group_size=10)
    done = run("resume", kept)
    assert done.code == 3
    for word in (f"{data}/b.parquet", "train --start", "--restart"):
        assert word in done.err
    assert streamomd.load(str(kept)).state_sha256 == before
    again = run("train", data, *everything(), "--checkpoint", kept, *KEPT, "--restart", "--json")
    assert again.result["state_sha256"] == after(3 * ROWS)


def b_is(change: Callable[[pa.Table], pa.Table]) -> Callable[[Path], None]:
    """Shard b with its columns changed."""

    def make(data: Path) -> None:
        write(data / "b.parquet", change(pq.read_table(data / "b.parquet")))

    return make


def bytes_of_b(change: Callable[[bytes], bytes], name: str = "b.parquet") -> Callable[[Path], None]:
    def make(data: Path) -> None:
        (data / name).write_bytes(change((data / "b.parquet").read_bytes()))

    return make


def twice_named(table: pa.Table) -> pa.Table:
    return table.append_column("n", table.column("n"))


STRINGS = pa.array(["1"] * ROWS)
BAD_SHARDS: dict[str, tuple[Callable[[Path], None], list[str]]] = {
    "column missing": (
        b_is(lambda t: t.drop_columns(["k"])),
        ["b.parquet", "'k'", "missing", "int64"],
    ),
    "column renamed": (
        b_is(lambda t: t.rename_columns({"h": "hh"})),
        ["b.parquet", "'h'", "missing", "did you mean 'hh'?"],
    ),
    "number became text": (
        b_is(lambda t: with_column(t, "n", STRINGS)),
        ["'n'", "string", "first shard had double"],
    ),
    "integer became boolean": (
        b_is(lambda t: with_column(t, "k", pa.array([True] * ROWS))),
        ["b.parquet", "'k'", "bool", "first shard had int64", "same type"],
    ),
    "label became text": (
        b_is(lambda t: with_column(t, "y", STRINGS)),
        ["'y'", "string", "first shard had int64"],
    ),
    "label missing": (b_is(lambda t: t.drop_columns(["y"])), ["b.parquet", "'y'", "missing"]),
    "column twice": (b_is(twice_named), ["b.parquet", "more than one column", "'n'", "rename"]),
    "truncated": (bytes_of_b(lambda data: data[:-100]), ["b.parquet", "truncated"]),
    "truncated to its middle": (bytes_of_b(lambda data: data[: len(data) // 2]), ["b.parquet"]),
    "0 bytes": (bytes_of_b(lambda data: b""), ["b.parquet", "0 bytes", "remove it"]),
    "text": (
        bytes_of_b(lambda data: b"y,n\n1,2\n"),
        [
            "b.parquet",
            "is not Parquet or Arrow",
            "use `streamomd convert FILE --from csv --to DIR`",
        ],
    ),
    "gzip": (bytes_of_b(gzip.compress), ["b.parquet", "gzip (magic 1f8b)", "decompress"]),
    "head damaged": (
        bytes_of_b(lambda data: b"XXXX" + data[4:]),
        ["b.parquet", "the first bytes", "58"],
    ),
    "foreign file": (
        bytes_of_b(lambda data: b"read me", "README.txt"),
        ["README.txt", "are not shards", "move them"],
    ),
    "all empty": (
        lambda data: [write(data / f"{name}.parquet", rows(0)) for name in "abc"] and None,
        ["no rows", "all 3 shards are empty"],
    ),
}


@pytest.mark.parametrize("case", BAD_SHARDS)
def test_bad_shard_stops_before_the_first_row(case: str, tmp_path: Path) -> None:
    """Exit 2 naming the shard and what is wrong, before anything is learned or kept."""
    make, words = BAD_SHARDS[case]
    data, kept = tmp_path / "data", tmp_path / "run"
    shards(data)
    make(data)
    done = run("train", data, *everything(), "--checkpoint", kept)
    assert done.code == 2
    assert done.out == ""
    for word in words:
        assert word in done.err
    assert not kept.exists()
    with pytest.raises(StreamomdError) as caught:
        streamomd.train(
            str(data), label="y", numeric=["n", "k"], hashed=["h"], checkpoint="none", quiet=True
        )
    assert isinstance(caught.value, ValueError)


def test_damaged_page(tmp_path: Path) -> None:
    """A page that no longer decodes is told by shard and rows; the commits before it are whole."""
    data, kept = tmp_path / "data", tmp_path / "run"
    shards(data)
    path = data / "b.parquet"
    group = pq.ParquetFile(path).metadata.row_group(2)
    column = next(group.column(at) for at in range(9) if group.column(at).path_in_schema == "n")
    damaged = bytearray(path.read_bytes())
    low = column.dictionary_page_offset or column.data_page_offset
    damaged[low : low + column.total_compressed_size] = b"\xff" * column.total_compressed_size
    path.write_bytes(damaged)
    done = run("train", data, *everything(), "--checkpoint", kept, *KEPT)
    assert done.code == 2
    for word in (f"shard {path}, rows ", "cannot be decoded", "write the shard again"):
        assert word in done.err
    assert_whole(kept)


def test_one_shard_with_a_column_twice(tmp_path: Path) -> None:
    """The first shard, too, may not have two columns of one name."""
    write(tmp_path / "a.parquet", twice_named(rows(9)))
    done = run("train", tmp_path / "a.parquet", *everything(), "--checkpoint", "none")
    assert done.code == 2
    assert "more than one column is named 'n'" in done.err


def train_bare(path: Path, *flags: str) -> Any:
    return run("train", path, "--label", "y", "--checkpoint", "none", *flags)


DECIMAL = pa.array([None] * 9, pa.decimal128(10, 2))
TIMES = pa.array([0] * 9, pa.timestamp("us"))
MAPS = pa.array([[("a", 1)]] * 9, pa.map_(pa.string(), pa.int64()))
REFUSED_TYPES = {
    "timestamp": (TIMES, "timestamp[us]", "add it to ignore"),
    "map": (MAPS, "map<string, int64", "add it to ignore"),
    "nested list": (pa.array([[[1]]] * 9), "list<", "add it to ignore"),
    "list of numbers": (pa.array([[1.0]] * 9), "list<", "add it to ignore"),
}


@pytest.mark.parametrize("case", REFUSED_TYPES)
def test_types_that_are_no_feature(case: str, tmp_path: Path) -> None:
    """A column of such a type is refused by name, type and remedy, chosen or named as numeric."""
    array, kind, remedy = REFUSED_TYPES[case]
    table = rows(9).select(["y", "n"]).append_column("extra", array)
    path = write(tmp_path / "a.parquet", table)
    for flags in ([], ["--numeric", "n,extra"]):
        done = train_bare(path, *flags)
        assert done.code == 2
        for word in ("'extra'", kind, remedy):
            assert word in done.err
    assert train_bare(path, "--set", 'data.ignore=["extra"]').code == 0


LABELS = {
    "decimal label": (DECIMAL, "logistic", ["'y'", "decimal128", "cast"]),
    "timestamp label": (TIMES, "logistic", ["'y'", "timestamp"]),
    "one string": (
        pa.array(["no"] * 9),
        "logistic",
        ["'y'", "1 distinct values", "'no'", "model.classes"],
    ),
    "strings in regression": (
        pa.array(["a", "b", "c"] * 3),
        "square",
        ["'y'", "string", "for classes choose --loss logistic"],
    ),
    "nothing but null": (
        pa.array([None] * 9, pa.int64()),
        "logistic",
        ["'y'", "0 distinct values"],
    ),
    "nothing but nan": (pa.array([NAN] * 9), "logistic", ["'y'", "0 distinct values"]),
}


@pytest.mark.parametrize("case", LABELS)
def test_labels_that_cannot_be_learned(case: str, tmp_path: Path) -> None:
    """A label column that cannot be one is refused by name with what there is and what to do."""
    array, loss, words = LABELS[case]
    path = write(tmp_path / "a.parquet", with_column(rows(9).select(["y", "n"]), "y", array))
    done = train_bare(path, "--loss", loss)
    assert done.code == 2
    for word in words:
        assert word in done.err


def test_more_labels_than_classes(tmp_path: Path) -> None:
    """A label of 2,000 values has too many classes."""
    path = write(tmp_path / "a.parquet", {"y": np.arange(2000), "n": np.arange(2000.0)})
    done = train_bare(path, "--task", "classify")
    assert done.code == 2
    for word in ("'y'", "1000", "regression"):
        assert word in done.err
