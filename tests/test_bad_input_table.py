"""Every kind of input that is told of in the table of what a user may expect, line by line.

REFUSED: what is said, and the exit code. ACCEPTED: learned, to the bits of the plain shards.
OTHERWISE: where streamomd does not do what the table first wanted, and why. ELSEWHERE: lines that
a test of another file proves.
"""

from __future__ import annotations

import ast
import gzip
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from running import everything, rows, run, train, with_column, write

Make = Callable[[Path], Any]
Table = pa.Table
NAN = float("nan")
COUNT = 30


def first(change: Callable[[Table], Table], **how: Any) -> Make:
    """The only shard, changed."""
    return lambda data: write(data / "a.parquet", change(rows(COUNT)), **how)


def later(change: Callable[[Table], Table]) -> Make:
    """A good shard, then a changed one."""

    def make(data: Path) -> None:
        write(data / "a.parquet", rows(COUNT))
        write(data / "b.parquet", change(rows(COUNT, first=1)))

    return make


def beside(name: str, content: bytes) -> Make:
    """A good shard, and a file of these bytes."""

    def make(data: Path) -> None:
        write(data / "a.parquet", rows(COUNT))
        (data / name).write_bytes(content)

    return make


def column(name: str, value: Any, kind: Any = None) -> Callable[[Table], Table]:
    """Every row has this value in a column."""
    return lambda table: with_column(table, name, pa.array([value] * len(table), kind))


def cell(name: str, value: Any, kind: Any = None, row: int = 7) -> Callable[[Table], Table]:
    """One row has this value in a column."""

    def change(table: Table) -> Table:
        values = table.column(name).to_pylist()
        values[row] = value
        return with_column(table, name, pa.array(values, kind or table.schema.field(name).type))

    return change


def pair(indices: Any, values: Any, kind: Any = None) -> Callable[[Table], Table]:
    """One row has these indices and values."""
    return lambda table: cell("v", values)(cell("i", indices, kind)(table))


def cast(name: str, kind: Any) -> Callable[[Table], Table]:
    return lambda table: with_column(table, name, table.column(name).combine_chunks().cast(kind))


def damaged(change: Callable[[bytes], bytes]) -> Make:
    """A good shard, then one with other bytes."""

    def make(data: Path) -> None:
        write(data / "a.parquet", rows(COUNT))
        path = write(data / "b.parquet", rows(COUNT, first=1), write_page_checksum=True)
        path.write_bytes(change(path.read_bytes()))

    return make


def flipped(data: Path) -> None:
    """A good shard, then one with the last bit of a page flipped."""
    damaged(bytes)(data)
    chunk = pq.read_metadata(data / "b.parquet").row_group(0).column(2)
    place = chunk.dictionary_page_offset + chunk.total_compressed_size - 1
    content = bytearray((data / "b.parquet").read_bytes())
    content[place] ^= 1
    (data / "b.parquet").write_bytes(content)


def forged(length: int) -> Callable[[bytes], bytes]:
    """A footer that claims another length."""
    return lambda data: data[:-8] + length.to_bytes(4, "little") + b"PAR1"


def pipe(data: Path) -> None:
    write(data / "a.parquet", rows(COUNT))
    os.mkfifo(data / "b.parquet")


def loop(data: Path) -> None:
    (data / "k=1").mkdir(parents=True)
    (data / "k=1" / "k=2").symlink_to(data)


def delta(data: Path) -> None:
    write(data / "a.parquet", rows(COUNT))
    (data / "_delta_log").mkdir()


def twice(data: Path) -> None:
    path = write(data / "a.parquet", rows(COUNT))
    (data / "b.parquet").symlink_to(path)


def nothing(data: Path) -> None:
    for name in "ab":
        write(data / f"{name}.parquet", rows(0))


LISTS = pa.list_(pa.int64())
WHERE = "a.parquet, row 7, column "
REFUSED: dict[str, tuple[Make, list[str]]] = {
    "type differs between shards": (
        later(cast("k", pa.float64())),
        ["b.parquet: column 'k' is double, the first shard had int64"],
    ),
    "column missing in a later shard": (
        later(lambda table: table.drop_columns(["n"])),
        ["b.parquet: column 'n' (double) is missing"],
    ),
    "duplicate column names": (
        later(lambda table: table.append_column("n", table.column("n"))),
        ["b.parquet: more than one column is named 'n'"],
    ),
    "null label": (first(cell("y", None)), [WHERE + "'y': found label null"]),
    "null weight": (first(cell("w", None)), [WHERE + "'w': found null"]),
    "null feature value": (first(cell("n", None)), [WHERE + "'n': found null", 'nulls = "zero"']),
    "null element inside a list": (
        first(pair([None], [1.0])),
        [WHERE + "'i': found null at place 0 of the list"],
    ),
    "nan": (first(cell("n", NAN)), [WHERE + "'n': found nan, expected a finite number"]),
    "inf": (first(pair([1], [float("inf")])), [WHERE + "'v': found inf"]),
    "negative index": (first(pair([-1], [1.0])), [WHERE + "'i': found index -1"]),
    "index beyond the size": (first(pair([100], [1.0])), [WHERE + "'i': found index 100", "size"]),
    "index beyond 2^63": (
        first(pair([2**64 - 1], [1.0], pa.list_(pa.uint64()))),
        [WHERE + "'i': found index 18446744073709551615"],
    ),
    "float indices": (
        first(cast("i", pa.list_(pa.float64()))),
        ["'i' is list<element: double>", "list<int32>"],
    ),
    "string indices": (
        first(cast("i", pa.list_(pa.string()))),
        ["'i' is list<element: string>", "belongs in hashed"],
    ),
    "ragged pair": (first(pair([1, 2], [1.0])), [WHERE + "'i': found 2 indices and 1 values"]),
    "all shards empty": (nothing, ["no rows: all 2 shards are empty"]),
    "0-byte file": (beside("b.parquet", b""), ["b.parquet is a file of 0 bytes"]),
    "label outside the classes": (
        later(cell("y", 2)),
        ["b.parquet, row 7, column 'y': found label 2, expected one of the classes [0, 1]"],
    ),
    "decimal label": (
        first(column("y", 1, pa.decimal128(20, 2))),
        ["'y' is decimal128(20, 2)", "cast it to double"],
    ),
    "nan label": (
        first(lambda table: cell("y", NAN)(cast("y", pa.float64())(table))),
        [WHERE + "'y': found label nan"],
    ),
    "negative weight": (
        first(cell("w", -1.0)),
        [WHERE + "'w': found -1.0, expected a weight of 0"],
    ),
    "infinite weight": (first(cell("w", float("inf"))), [WHERE + "'w': found inf"]),
    "text as a number": (first(column("n", "x")), ["'n' is string", "name it in hashed"]),
    "timestamp": (first(column("n", 0, pa.timestamp("us"))), ["'n' is timestamp[us]", "ignore"]),
    "decimal": (first(column("n", 0, pa.decimal128(9, 2))), ["'n' is decimal128(9, 2)", "cast"]),
    "struct": (first(column("n", {"a": 1})), ["'n' is struct<a: int64>", "ignore"]),
    "map": (
        first(column("n", [], pa.map_(pa.string(), pa.int32()))),
        ["'n' is map<string, int32", "ignore"],
    ),
    "nested list": (first(column("n", [[1]])), ["'n' is list<", "ignore"]),
    "nested indices": (first(column("i", [[1]])), ["'i' is list<", "lists of integers"]),
    "truncated": (damaged(lambda data: data[:-9]), ["b.parquet", "truncated?"]),
    "wrong magic at the tail": (
        damaged(lambda data: data[:-4] + b"XXXX"),
        ["magic bytes not found"],
    ),
    "wrong magic at the head": (
        damaged(lambda data: b"XXXX" + data[4:]),
        ["the first bytes", "58"],
    ),
    "bit flip in a page with a checksum": (
        flipped,
        ["b.parquet, rows 0 to 29 cannot be decoded", "CRC"],
    ),
    "gzip named parquet": (beside("b.parquet", gzip.compress(b"y\n1\n")), ["gzip (magic 1f8b)"]),
    "text named parquet": (beside("b.parquet", b"y,n\n1,2\n"), ["use `streamomd convert`"]),
    "encrypted footer": (
        beside("b.parquet", b"PARE" + bytes(99) + b"PARE"),
        ["encrypted Parquet, which is not supported"],
    ),
    "foreign file": (beside("README.txt", b"x"), ["README.txt", "what is no shard"]),
    "Delta table": (delta, ["is a Delta table: pass its file list"]),
    "symlink loop": (loop, ["is a loop of symbolic links"]),
    "pipe": (pipe, ["b.parquet is not a regular file"]),
    "footer longer than the file": (damaged(forged(2**31 - 1)), ["claims 2147483647 bytes"]),
    "footer that is none": (damaged(forged(16)), ["its parquet footer cannot be read"]),
    "same file twice": (twice, ["the same file is named twice"]),
}


@pytest.mark.parametrize("line", REFUSED)
def test_refused(line: str, tmp_path: Path) -> None:
    """Exit 2; shard, row or column, what was found and what to do, in one message; nothing else."""
    make, words = REFUSED[line]
    make(tmp_path / "data")
    done = run("train", tmp_path / "data", *everything(), "--checkpoint", "none")
    assert (done.code, done.out) == (2, "")
    for word in words:
        assert word in done.err
    assert "Traceback" not in done.err


def spread(change: Callable[[Table], Table]) -> Make:
    """All rows in two shards, of which the second one is changed."""

    def make(data: Path) -> None:
        write(data / "a.parquet", rows(COUNT).slice(0, 10))
        write(data / "b.parquet", change(rows(COUNT).slice(10)))

    return make


def written(path: str, **how: Any) -> Make:
    return lambda data: write(data / path, rows(COUNT), **how)


def awkward(data: Path) -> None:
    for place, name in enumerate(("a[1] %20#?*,{}=é.parquet", "b::c\n.parquet", "é.parquet")):
        write(data / name, rows(COUNT).slice(10 * place, 10))


def hidden(data: Path) -> None:
    write(data / "a.parquet", rows(COUNT))
    for name in ("_SUCCESS", ".a.parquet.crc", "_metadata", "._a.parquet", ".tmp"):
        (data / name).write_bytes(b"x")


def empties(data: Path) -> None:
    write(data / "b.parquet", rows(COUNT), row_group_size=7)
    write(data / "a.parquet", rows(0))
    with pq.ParquetWriter(data / "c.parquet", rows(0).schema) as writer:
        writer.write_table(rows(0))
    with pq.ParquetWriter(data / "d.parquet", rows(0).schema):
        pass


def coded(data: Path) -> None:
    """The text column in dictionaries that change from shard to shard and from group to group."""
    table = rows(COUNT)
    for place, name in enumerate("abc"):
        some = cast("h", pa.dictionary(pa.int32(), pa.string()))(table.slice(10 * place, 10))
        write(data / f"{name}.parquet", some, row_group_size=3)


def large_lists(table: Table) -> Table:
    return cast("v", pa.large_list(pa.float64()))(cast("i", pa.large_list(pa.int64()))(table))


ACCEPTED: dict[str, Make] = {
    "safe widening": spread(cast("k", pa.int8())),
    "extra column": spread(lambda table: table.append_column("more", table.column("n"))),
    "another order of columns": spread(lambda table: table.select(table.schema.names[::-1])),
    "empty shards and row groups": empties,
    "boolean label": first(cast("y", pa.bool_())),
    "int8 label": first(cast("y", pa.int8())),
    "decoded dictionaries that change": coded,
    "large lists": spread(large_lists),
    "names of other programs": hidden,
    "awkward names": awkward,
    "a directory named like a shard": written("x.parquet/part-0.parquet"),
    "hive directories": written("k=a%2Fb/part-0.parquet"),
    "Parquet pages of version 2, small": written(
        "a.parquet", data_page_version="2.0", data_page_size=64
    ),
    "compressed": written("a.parquet", compression="zstd"),
}


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The state after the plain rows."""
    path = write(tmp_path_factory.mktemp("plain") / "a.parquet", rows(COUNT))
    return str(train(path, *everything(), "--checkpoint", "none")["state_sha256"])


@pytest.mark.parametrize("line", ACCEPTED)
def test_accepted(line: str, plain: str, tmp_path: Path) -> None:
    """Learned, to the bits of one plain shard."""
    ACCEPTED[line](tmp_path / "data")
    done = train(tmp_path / "data", *everything(), "--checkpoint", "none")
    assert done["state_sha256"] == plain


def bits(table: Table, folder: Path, *flags: str) -> str:
    path = write(folder / "a.parquet", table)
    return str(train(path, *everything(), "--checkpoint", "none", *flags)["state_sha256"])


def test_subnormals_and_minus_zero_are_taken_as_they_are(tmp_path: Path) -> None:
    """Neither is a bad row, and a subnormal is not taken for 0."""
    given = [column("n", value)(rows(COUNT)) for value in (5e-324, -0.0, 0.0)]
    found = [bits(table, tmp_path / str(at)) for at, table in enumerate(given)]
    assert found[0] != found[1] == found[2]


def test_a_row_without_features_is_a_row(tmp_path: Path) -> None:
    """A null pair and an empty one are the same row, learned by its other columns and the bias."""
    found = [
        bits(pair(*lists)(rows(COUNT)), tmp_path / str(at))
        for at, lists in enumerate((([], []), (None, None), (None, [])))
    ]
    assert len(set(found)) == 1


def test_a_null_is_zero_where_asked(tmp_path: Path) -> None:
    """With nulls = "zero" a null number is 0, and a null label still a bad row."""
    zero = ["--set", 'data.nulls="zero"']
    table = rows(COUNT)
    found = bits(cell("n", None)(table), tmp_path / "null", *zero)
    assert found == bits(cell("n", 0.0)(table), tmp_path / "zero")
    path = write(tmp_path / "y" / "a.parquet", cell("y", None)(table))
    assert run("train", path, *everything(), "--checkpoint", "none", *zero).code == 2


def test_one_class_is_told(tmp_path: Path) -> None:
    """Labels that are all alike are learned, and it is said."""
    path = write(tmp_path / "a.parquet", column("y", 1)(rows(COUNT)))
    done = run("train", path, *everything(), "--checkpoint", "none")
    assert done.code == 0
    assert "every label of column 'y' is 1" in done.err


def test_a_table_of_labels_alone(tmp_path: Path) -> None:
    """Without a feature column there is nothing to learn from: refused, also with a bias."""
    path = write(tmp_path / "a.parquet", rows(COUNT).select(["y"]))
    done = run("train", path, "--label", "y", "--checkpoint", "none")
    assert done.code == 2
    assert "no feature column is left" in done.err


def test_list_views_are_refused(tmp_path: Path) -> None:
    """They come from Arrow files only, and the remedy is named."""
    views = pa.array([[1.0]] * COUNT, pa.list_view(pa.float64()))
    table = with_column(rows(COUNT), "v", views)
    with pa.ipc.new_file(str(tmp_path / "a.arrow"), table.schema) as file:
        file.write_table(table)
    done = run("train", tmp_path / "a.arrow", *everything(), "--checkpoint", "none")
    assert done.code == 2
    assert "column 'v' is list_view<item: double>" in done.err
    assert "write values as list<float>" in done.err


@pytest.mark.parametrize("columns", [4_000, pytest.param(100_000, marks=pytest.mark.slow)])
def test_many_columns(columns: int, tmp_path: Path) -> None:
    """Of a table of very many columns two are read, kept and found again."""
    extra = {f"x{at}": pa.array([0.0, 1.0]) for at in range(columns)}
    path = write(tmp_path / "a.parquet", {"y": pa.array([0, 1]), **extra})
    flags = ["--label", "y", "--numeric", f"x0,x{columns - 1}"]
    assert train(path, *flags, "--checkpoint", tmp_path / "kept")["rows"] == 2
    assert run("resume", tmp_path / "kept", "--epochs", "2", "--json").result["rows"] == 4


OTHERWISE = {
    "row longer than a limit": "its length is known once it is decoded, and then it is in memory: "
    "a limit would bound nothing; one row alone may go beyond a unit's bytes",
    "{0, -1} as labels": "classes are the sorted values, printed and saved, whatever they are",
    "--hash-indices": "an index beyond the size is a bad row; hashed columns are for what has none",
    "--skip-bad-shards": "a damaged shard always stops the run: its rows are unknown, not bad",
    "--allow-duplicates": "the same file twice is refused: rows to be learned twice are epochs",
    "hive partition columns": "never made of paths: the directories are read, their names are not",
    "zero features in the whole data set": "rows without features are rows; the bias learns",
    "label map": "cast labels where shards are written; strings are labels",
}


def test_a_long_row_is_learned(tmp_path: Path) -> None:
    """A row of 200,000 indices among short ones, of which most are equal: it is their sum."""
    long = np.arange(200_000) % 100
    given = pair(long.tolist(), [1.0] * len(long))(rows(COUNT))
    summed = pair(list(range(100)), [2000.0] * 100)(rows(COUNT))
    assert bits(given, tmp_path / "long") == bits(summed, tmp_path / "summed")


def test_labels_of_minus_one_and_zero_are_two_classes(tmp_path: Path) -> None:
    """Sorted: −1 is negative, 0 positive; it is said before the first row."""
    table = with_column(rows(COUNT), "y", pa.array([0, -1] * (COUNT // 2)))
    path = write(tmp_path / "a.parquet", table)
    done = run("train", path, *everything(), "--checkpoint", "none")
    assert done.code == 0
    assert "negative -1, positive 0" in done.err


ELSEWHERE = {
    "finite double beyond float32": "test_bad_input::test_numbers_beyond_float32",
    "equal indices": "test_accepted_input::test_equal_and_unsorted_indices",
    "unsorted indices": "test_accepted_input::test_equal_and_unsorted_indices",
    "weight 0": "test_accepted_input::test_weight_zero_counts_as_a_row",
    "not UTF-8": "test_features_encode::test_bytes_that_are_not_utf8_are_hashed_as_bytes",
    "names, one by one": "test_accepted_input::test_awkward_names",
    "NFC and NFD are two files": "test_shards_find::test_awkward_name_is_found_exactly",
    "line ends in names": "test_features_plan::test_names_of_shards_cannot_forge_lines",
    "fixed-size lists": "test_features_encode::test_every_kind_in_one_row",
    "truncated anywhere": "test_shards_find::test_truncated_and_damaged_ends_are_refused",
    "forged footer": "test_fuzz::test_bytes_of_a_shard",
    "one huge row group": "test_shards_bombs::test_little_is_held_of_a_bomb",
    "mixed stores": "test_shards_find::test_two_file_systems_are_refused",
    "order of shards": "test_shards_find::test_order_is_bytewise_or_as_given",
    "http 403, 404": "test_bad_jobs::test_http_refusals",
    "checkpoint inside the data": "test_bad_jobs::test_usage",
    "resume with another job": "test_resume::test_what_may_not_change",
    "bad rows left out": "test_skip::test_bits_are_those_of_the_rows_that_are_left",
}


def test_the_tests_that_are_named_are_there() -> None:
    """Each line that is proven elsewhere names a test there is."""
    for line, name in ELSEWHERE.items():
        file, test = name.split("::")
        tree = ast.parse((Path(__file__).parent / f"{file}.py").read_text("utf-8"))
        known = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
        assert test in known, line
