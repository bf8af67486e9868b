"""Every kind of bad input in the table of what a user may expect, line by line.

REFUSED: what is said, with exit code 2. OTHERWISE: where streamomd does not do what the table first
wanted, and why. ELSEWHERE: lines that a test of another file proves; what is unusual and accepted
is in test_accepted_table.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from changed import COUNT, Make, cast, cell, column, damaged, first, pair
from running import everything, rows, run, write

NAN = float("nan")


def forged(length: int) -> Callable[[bytes], bytes]:
    """A footer that claims another length."""
    return lambda data: data[:-8] + length.to_bytes(4, "little") + b"PAR1"


def delta(data: Path) -> None:
    write(data / "a.parquet", rows(COUNT))
    (data / "_delta_log").mkdir()


WHERE = "a.parquet, row 7, column "
REFUSED: dict[str, tuple[Make, list[str]]] = {
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
    "nan label": (
        first(lambda table: cell("y", NAN)(cast("y", pa.float64())(table))),
        [WHERE + "'y': found label nan"],
    ),
    "text as a number": (first(column("n", "x")), ["'n' is string", "name it in hashed"]),
    "struct": (first(column("n", {"a": 1})), ["'n' is struct<a: int64>", "ignore"]),
    "nested indices": (first(column("i", [[1]])), ["'i' is list<", "lists of integers"]),
    "wrong magic at the tail": (
        damaged(lambda data: data[:-4] + b"XXXX"),
        ["magic bytes not found"],
    ),
    "Delta table": (delta, ["cannot be read as a Delta table: there is no commit"]),
    "footer longer than the file": (damaged(forged(2**31 - 1)), ["claims 2147483647 bytes"]),
    "footer that is none": (damaged(forged(16)), ["its parquet footer cannot be read"]),
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
    "null, nan, inf, and values out of range": "test_bad_input::test_bad_row",
    "ragged pair, indices": "test_bad_input::test_bad_row",
    "columns, types and bytes of a later shard": (
        "test_bad_input::test_bad_shard_stops_before_the_first_row"
    ),
    "decimal label": "test_bad_input::test_labels_that_cannot_be_learned",
    "timestamp, map, nested list": "test_bad_input::test_types_that_are_no_feature",
    "bit flip in a page with a checksum": "test_bad_input::test_damaged_page",
    "same file twice": "test_bad_jobs::test_same_file_twice",
    "symlink loop": "test_shards_find::test_loops_of_links_are_refused",
    "pipe": "test_shards_find::test_pipe_and_device_are_refused",
    "encrypted footer": "test_shards_find::test_foreign_content_is_reported",
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
