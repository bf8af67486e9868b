"""Small Parquet files whose pages claim very much: refused or read, in little memory."""

from __future__ import annotations

import itertools
import json
import random
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import page_bombs
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import thrift_compact as thrift
from page_bombs import CODECS, ENCODINGS, ROWS, column, whole

from streamomd.shards.reader import read_batches
from streamomd.sources.find import find

SUPPORT = Path(__file__).parents[1] / "support"
MOST = 400 << 20
TRAIN = """
import json, sys, time
from collections.abc import Sequence
from pathlib import Path
import streamomd
from streamomd.core.errors import StreamomdError
code = 0
pair = {"indices": "i", "values": "v", "size": 100}
try:
    job = {"data": {"shards": [sys.argv[1]], "label": "y", "sparse": pair}}
    streamomd.train({**job, "checkpoint": {"url": "none"}}, quiet=True)
except StreamomdError as error:
    code = error.exit_code
peak = 1024 * int(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0])
print(json.dumps([code, peak]))
"""


def fuzzed(encodings: Sequence[str], seed: int, cases: int, capsys: Any) -> None:
    program = [sys.executable, str(SUPPORT / "page_bombs.py")]
    words = [*program, ",".join(encodings), str(seed), str(cases)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=3_000)
    assert done.returncode == 0, done.stderr[-3000:]
    for encoding, line in zip(encodings, done.stdout.splitlines(), strict=True):
        found = json.loads(line)
        with capsys.disabled():
            print(f"\n  {encoding}: {found}")
        assert set(found["ended"]) <= {"read", "refused"}
        assert sum(found["ended"].values()) == cases
        assert found["peak"] <= MOST, f"python tests/support/page_bombs.py {found['worst']}"


@pytest.mark.slow
def test_some_claims(capsys: Any) -> None:
    """Headers, levels and values spoilt, of each encoding, codec and version: at most 400 MB
    each."""
    fuzzed(ENCODINGS, 1, 30, capsys)


@pytest.mark.slow
@pytest.mark.timeout(3_600)
@pytest.mark.parametrize("encoding", ENCODINGS)
def test_claims(encoding: str, capsys: Any) -> None:
    """2,000 files of each encoding: at most 400 MB each."""
    fuzzed([encoding], 2, 2_000, capsys)


def bomb(path: Path, elements: int) -> None:
    """A shard of lists, the first page of whose values is one run of elements of one row."""
    draw = [list(range(at % 4)) for at in range(ROWS)]
    table = pa.table({
        "y": pa.array([at % 2 for at in range(ROWS)]),
        "i": pa.array(draw, pa.list_(pa.int32())),
        "v": pa.array([[0.5] * len(one) for one in draw]),
    })  # fmt: skip
    pq.write_table(table, str(path), compression="none", store_schema=False)
    data = path.read_bytes()
    length = int.from_bytes(data[-8:-4], "little")
    footer, _ = thrift.struct(data[-8 - length : -8])
    columns = footer[4][1][1][0][1][1][1]
    meta = columns[-1][3][1]  # nothing after it moves
    at = meta[9][1]
    header, start = thrift.struct(data, at)
    body = page_bombs.long_run(random.Random(0), data[start : start + header[3][1]], "1.0")
    header = page_bombs.changed(header, (5, 1), elements)
    for size in ((2,), (3,)):
        header = page_bombs.changed(header, size, len(body))
    page = thrift.written(header) + body
    meta[7] = thrift.I64, at - meta.get(11, meta[9])[1] + len(page)
    tail = thrift.written(footer)
    path.write_bytes(data[:at] + page + tail + len(tail).to_bytes(4, "little") + b"PAR1")


@pytest.mark.slow
def test_training_on_a_bomb(tmp_path: Path) -> None:
    """A file of kilobytes, a page header of which claims 2^28 elements where the footer knows of
    some hundred: exit 2, and at most 400 MB in a whole training."""
    path = tmp_path / "a.parquet"
    bomb(path, 1 << 28)
    assert path.stat().st_size < 8_000
    done = subprocess.run(
        [sys.executable, "-c", TRAIN, str(path)], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    code, peak = json.loads(done.stdout)
    assert code == 2
    assert peak <= MOST


def rows_read(path: Path, columns: list[str]) -> int:
    found = find(str(path))
    batches = read_batches(found, places=[0], columns=columns, dictionary=columns, threads=1)
    return sum(rows.batch.num_rows for rows in batches)


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_honest_files_are_read(encoding: str, tmp_path: Path) -> None:
    """Each encoding, codec and version, of values and of nulls alone, in lists or not, in many
    pages: nothing is refused that is true."""
    path = tmp_path / "a.parquet"
    for codec, version, nested in itertools.product(CODECS, ("1.0", "2.0"), (False, True)):
        values = column(encoding, nested)
        for rows in (values, pa.nulls(50, values.type), values[:0]):
            coded, name = encoding == "RLE_DICTIONARY", "x.list.element" if nested else "x"
            pq.write_table(
                pa.table({"x": rows}), str(path), compression=codec, use_dictionary=coded,
                column_encoding=None if coded else {name: encoding}, data_page_version=version,
                data_page_size=100, row_group_size=40,
            )  # fmt: skip
            assert rows_read(path, ["x"]) == len(rows)


def test_deep_lists_are_read(tmp_path: Path) -> None:
    """Lists of lists, of structs, of nothing: in pages that end within a row's levels."""
    path = tmp_path / "a.parquet"
    deep = pa.table({
        "deep": pa.array([[[1, 2], [3]], [[]], None, [[4] * 9]] * 500),
        "structs": pa.array([{"l": [{"q": 1.0}] * 3}] * 2_000),
        "empty": pa.array([[]] * 2_000, pa.list_(pa.int8())),
    })  # fmt: skip
    for codec, version in itertools.product(("snappy", "zstd", "none", "brotli"), ("1.0", "2.0")):
        pq.write_table(
            deep, str(path), compression=codec, data_page_version=version, data_page_size=500
        )
        for name in deep.column_names:
            assert rows_read(path, [name]) == 2_000


def test_what_is_taken_apart_is_put_together(tmp_path: Path) -> None:
    """The fuzz begins with files that are right: unspoilt, they are read."""
    path = tmp_path / "a.parquet"
    every = itertools.product(ENCODINGS, CODECS, ("1.0", "2.0"), (False, True))
    for encoding, codec, version, nested in every:
        path.write_bytes(page_bombs.assembled(whole(encoding, codec, version, nested), {}))
        assert rows_read(path, ["x"]) == ROWS
