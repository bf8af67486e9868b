"""Arrow shards are copied, never mapped: every type, whole or in slices, in bounded memory."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from running import run

from streamomd.core.errors import ChangedDataError, DataError
from streamomd.shards.formats import arrow, arrow_stored
from streamomd.shards.formats.contract import ReadRequest
from streamomd.shards.formats.footer import read_at, read_footer
from streamomd.shards.open_shard import OpenShard
from streamomd.shards.reader import read_batches
from streamomd.sources.find import find

MIB = 1 << 20
ROWS, BATCH = 1_003, 400


def table() -> pa.Table:
    """Columns of every kind that features are made of, and of kinds that none are; with nulls."""
    draw = np.random.default_rng(0)

    def some(values: list[Any], kind: pa.DataType) -> pa.Array:
        return pa.array([None if draw.random() < 0.1 else one for one in values], kind)

    lists = [list(map(int, draw.integers(0, 9, draw.integers(0, 6)))) for _ in range(ROWS)]
    texts = [f"w{at % 77}" * (at % 5) for at in range(ROWS)]
    codes = pa.array(texts).dictionary_encode()
    return pa.table(
        {
            "code": codes,
            "float": some(list(draw.normal(size=ROWS)), pa.float64()),
            "single": pa.array(draw.normal(size=ROWS), pa.float32()),
            "flag": some(list(draw.random(ROWS) < 0.5), pa.bool_()),
            "text": some(texts, pa.string()),
            "long": pa.array(texts, pa.large_string()),
            "number code": pa.array(np.arange(ROWS) % 7).dictionary_encode(),
            "list": some(lists, pa.list_(pa.int32())),
            "large": pa.array(lists, pa.large_list(pa.float32())),
            "fixed": some(draw.normal(size=(ROWS, 3)).tolist(), pa.list_(pa.float64(), 3)),
            "words": pa.array([[f"a{at}" for at in one] for one in lists]),
            "deep": pa.array([[one, one] for one in lists]),
            "none": pa.nulls(ROWS),
            "struct": pa.array([{"a": 1, "b": "x"}] * ROWS),
            "map": pa.array([[("a", 1)]] * ROWS, pa.map_(pa.string(), pa.int32())),
            "view": pa.array(["x" * 20] * ROWS, pa.string_view()),
        }
    )


CHOSEN = (("float",), ("code", "single"), ("single", "list", "text"), ("number code", "words"),
          ("large", "fixed", "flag", "long"), ("deep", "float"))  # fmt: skip


def write(path: Path, rows: pa.Table, codec: str | None = None, most: int = BATCH) -> Path:
    options = pa.ipc.IpcWriteOptions(compression=codec)
    with pa.ipc.new_file(str(path), rows.schema, options=options) as writer:
        writer.write_table(rows.combine_chunks(), max_chunksize=most)
    return path


@pytest.mark.parametrize("codec", [None, "lz4", "zstd"])
@pytest.mark.parametrize("known", [False, True])
@pytest.mark.parametrize("copied", [arrow.MOST_COPIED, 0])
@pytest.mark.sample(3)
def test_every_type(
    codec: str | None, known: bool, copied: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Columns of any type, next to others whose buffers can be skipped or not: the rows written;
    and above a size, in slices that pyarrow did not cut."""
    monkeypatch.setattr(arrow, "MOST_COPIED", copied)
    rows = table().drop_columns(["map", "view"]) if known else table()
    path = write(tmp_path / "a.arrow", rows, codec)
    for columns in (*CHOSEN, tuple(rows.column_names)):
        with pa.OSFile(str(path)) as file:
            _, footer = read_footer(file, file.size(), str(path))
            asked = ReadRequest(columns, (), 1 << 10, MIB)
            read = arrow.open_groups(file, footer, read_at(file, str(path)), asked)
            found = [batch for group in range(3) for batch in read(group)]
        expected = rows.select(list(columns))
        assert pa.Table.from_batches(found).equals(expected.cast(found[0].schema))
        assert len(found) > 3


def test_only_what_is_wanted_is_read(tmp_path: Path) -> None:
    """Of a wide record batch, the metadata and the buffers of the column asked for."""
    wide = {f"x{at}": np.arange(100_000.0) for at in range(10)}
    path = write(tmp_path / "a.arrow", pa.table(wide), most=100_000)
    with pa.OSFile(str(path)) as file:
        _, footer = read_footer(file, file.size(), str(path))
        batches = arrow_stored.StoredBatches(file, pa.table(wide).schema, footer, ("x7",))
        stored = batches.stored(batches.begin(0))
        read = sum(high - low for low, high in stored.spans)
        assert 800_000 <= read < 900_000
        assert batches.decode(stored).column("x7").to_pylist() == list(range(100_000))


READ = """
import json, sys
from pathlib import Path
from streamomd.sources.find import find
from streamomd.shards.reader import read_batches

def peak():
    return 1024 * int(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0])

shards, rows = find(sys.argv[1]), 0
before = peak()
batches = read_batches(
    shards, places=[0], columns=["x", "list"], unit_bytes=4 << 20, budget_bytes=32 << 20,
)
for one in batches.map(lambda one: (one.batch.num_rows, one.batch.column("x").to_numpy().sum())):
    rows += one[0]
print(json.dumps([rows, peak() - before]))
"""


def test_a_file_of_one_large_record_batch(tmp_path: Path) -> None:
    """200 MB in one record batch are read in less than a third of its memory."""
    count = 3_200_000
    lists = pa.FixedSizeListArray.from_arrays(pa.array(np.zeros(count * 7)), 7)
    rows = pa.table({"x": np.ones(count), "list": lists})
    path = write(tmp_path / "a.arrow", rows, most=count)
    assert path.stat().st_size > 200e6
    done = subprocess.run(
        [sys.executable, "-c", READ, str(path)], capture_output=True, text=True, timeout=300
    )
    path.unlink()
    assert done.returncode == 0, done.stderr
    found, held = json.loads(done.stdout)
    assert found == count
    assert held < 64 * MIB


def test_a_compressed_bomb_is_refused(tmp_path: Path) -> None:
    """320 MB of zeros in a record batch of kilobytes: before it is unfolded."""
    count = 40_000_000
    path = write(tmp_path / "a.arrow", pa.table({"x": np.zeros(count)}), "zstd", most=count)
    assert path.stat().st_size < MIB
    shards = find(str(path))
    with pytest.raises(DataError, match="unfolds to 320000000"):
        list(read_batches(shards, places=[0], columns=["x"]))


def test_what_happens_to_the_file_changes_no_copy(tmp_path: Path) -> None:
    """A piece holds the rows that were there when it was read; the next one is refused."""
    path = write(tmp_path / "a.arrow", pa.table({"x": np.arange(9_000.0)}), most=3_000)
    shards = find(str(path))
    opened = OpenShard(shards.fs, shards.shards[0], ReadRequest(("x",), (), MIB, MIB))
    [first] = opened.read(0)
    path.write_bytes(bytes(path.stat().st_size))
    with pytest.raises(
        ChangedDataError, match=r"rows 3000 to 5999 \(row group or record batch 1\)"
    ):
        list(opened.read(1))
    opened.close()
    assert first.column("x").to_pylist() == list(range(3_000))


COMMANDS = ("train", "resume", "evaluate", "predict", "certify", "report", "sweep")


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("suffix", ["arrow", "parquet"])
@pytest.mark.sample(3)
def test_a_truncated_shard_is_exit_3(
    suffix: str, command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In every command that reads rows: a message that names the shard, its rows and what to do."""
    import pyarrow.parquet as pq

    draw = np.random.default_rng(0)
    rows = pa.table({"x": draw.normal(size=6_000), "y": draw.integers(0, 2, 6_000)})
    path, kept = tmp_path / f"a.{suffix}", tmp_path / "kept"
    if suffix == "arrow":
        write(path, rows, most=100)
    else:
        pq.write_table(rows, str(path), row_group_size=100)
    flags = (path, "--label", "y", "--rule", "ogd")
    if command not in ("train", "sweep"):
        assert run("train", *flags, "--checkpoint", kept).code == 0
    read, times = OpenShard.read, itertools.count()

    def cut(opened: OpenShard, group: int) -> Any:
        for batch in read(opened, group):
            if next(times) == 0:  # long before the last of 60 groups, whichever thread reads
                path.write_bytes(path.read_bytes()[:5_000])
            yield batch

    monkeypatch.setattr(OpenShard, "read", cut)
    words: dict[str, tuple[object, ...]] = {
        "train": (*flags, "--checkpoint", "none"),
        "resume": (kept, "--epochs", 2),
        "evaluate": (kept, path),
        "predict": (kept, path, "--to", tmp_path / "out"),
        "certify": (kept, path),
        "report": (kept, path, "-o", tmp_path / "report.html"),
        "sweep": (*flags, "--grid", "eta=0.1..1:2", "--checkpoint", tmp_path / "swept"),
    }
    done = run(command, *words[command])
    assert next(times) > 0
    assert done.code == 3, done.err
    assert f"a.{suffix}" in done.err
    assert "Restore the old file" in done.err
