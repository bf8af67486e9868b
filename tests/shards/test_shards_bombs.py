"""Small files that decompress to a large size: memory stays small."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

MIB = 1 << 20
HELD = 200 * MIB
READ = """
import json, sys
from pathlib import Path
from streamomd.sources.find import find
from streamomd.shards.reader import read_batches

def peak():
    text = Path("/proc/self/status").read_text()
    return 1024 * int(text.split("VmHWM:")[1].split()[0])

path, column = sys.argv[1:]
shards = find(path)
before, passed, rows = peak(), 0, 0
batches = read_batches(
    shards, places=[0], columns=[column], unit_bytes=4 << 20, budget_bytes=32 << 20
)
for nbytes, count in batches.map(lambda rows: (rows.nbytes, rows.batch.num_rows)):
    passed, rows = passed + nbytes, rows + count
print(json.dumps([rows, passed, peak() - before]))
"""


def numbers(path: Path, rows: int) -> None:
    """One value, said once and repeated."""
    schema = pa.schema([("x", pa.float64())])
    with pq.ParquetWriter(str(path), schema) as writer:
        value = pa.repeat(pa.scalar(0.5), rows)
        writer.write_table(pa.table({"x": value}), row_group_size=rows)


def texts(path: Path, rows: int) -> None:
    """One text of 1,000 letters, said once and repeated."""
    word = pa.DictionaryArray.from_arrays(pa.repeat(pa.scalar(0, pa.int32()), rows), ["a" * 1000])
    pq.write_table(pa.table({"x": word}), str(path), row_group_size=rows, store_schema=False)


@pytest.mark.parametrize(
    "make, rows, unfolded",
    [
        (numbers, 50_000_000, 400 * MIB),
        (texts, 500_000, 500 * MIB),
        pytest.param(texts, 5_000_000, 5000 * MIB, marks=pytest.mark.slow),
    ],
)
def test_little_is_held_of_a_bomb(make, rows: int, unfolded: int, tmp_path: Path) -> None:
    """A row group of hundreds of MiB in a file of kilobytes is read in pieces of a few."""
    path = tmp_path / "a.parquet"
    make(path, rows)
    assert path.stat().st_size < unfolded / 300
    words = [sys.executable, "-c", READ, str(path), "x"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    found, passed, held = json.loads(done.stdout)
    assert found == rows
    assert passed > 0.9 * unfolded
    assert held < HELD
