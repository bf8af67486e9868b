"""Every kind of bad input in the table of what a user may expect, line by line.

REFUSED: what is said, with exit code 2. OTHERWISE: where streamomd does not do what the table first
wanted, and why. ELSEWHERE: lines that a test of another file proves; what is unusual and accepted
is in test_accepted_table.
"""

from __future__ import annotations

import ast
import gzip
import os
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from changed import COUNT, Make, beside, cast, cell, column, damaged, first, later, pair
from running import everything, rows, run, write

NAN = float("nan")


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
        later(cast("k", pa.string())),
        ["b.parquet: column 'k' is string, the first shard had int64"],
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
    "null feature value": (first(cell("n", None)), [WHERE + "'n': found null", "--nulls mean"]),
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
    "text named parquet": (
        beside("b.parquet", b"y,n\n1,2\n"),
        ["use `streamomd convert FILE --from csv --to DIR`"],
    ),
    "encrypted footer": (
        beside("b.parquet", b"PARE" + bytes(99) + b"PARE"),
        ["encrypted Parquet, which is not supported"],
    ),
    "foreign file": (beside("README.txt", b"x"), ["README.txt", "files that are not shards"]),
    "Delta table": (delta, ["cannot be read as a Delta table: there is no commit"]),
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
    # A job that names no classes finds this one in the footer.
    given = ["--set", "model.classes=[0, 1]"] if line == "label outside the classes" else []
    done = run("train", tmp_path / "data", *everything(), *given, "--checkpoint", "none")
    assert (done.code, done.out) == (2, "")
    for word in words:
        assert word in done.err
    assert "Traceback" not in done.err


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


ELSEWHERE = {
    "finite double beyond float32": "test_bad_input::test_numbers_beyond_float32",
    "equal indices": "test_accepted_input::test_equal_and_unsorted_indices",
    "unsorted indices": "test_accepted_input::test_equal_and_unsorted_indices",
    "weight 0": "test_accepted_input::test_weight_zero_counts_as_a_row",
    "not UTF-8": "test_features_encode::test_bytes_that_are_not_utf8_are_hashed_as_bytes",
    "text not UTF-8": "test_features_text_modes::test_bad_texts",
    "text null, huge, with line ends": (
        "test_features_text_modes::test_texts_that_are_unusual_and_good"
    ),
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
        (path,) = Path(__file__).parents[1].rglob(f"{file}.py")
        tree = ast.parse(path.read_text("utf-8"))
        known = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
        assert test in known, line
