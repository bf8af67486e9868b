"""Rows are learned from the bytes that were read first, or not at all: a change is exit 3."""

from __future__ import annotations

import json
import pickle
import random
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from flipping import flip
from running import Ran, everything, rows, run, train

import streamomd
from streamomd.checkpoint import open_store, read_commit, read_ledger
from streamomd.core.errors import ChangedDataError
from streamomd.shards import reader as read
from streamomd.shards.chunks import ChangedWhileReadError, ChunkFile
from streamomd.shards.shard import WINDOW, Digests

ROWS, GROUP, SHARDS = 300, 100, 3
SETS = ["checkpoint.every_rows=50", "checkpoint.every_seconds=0", "checkpoint.keep=99"]


def write(path: Path, place: int, **options: Any) -> None:
    """A shard of three row groups; without dictionaries a label is a plain number."""
    path.parent.mkdir(parents=True, exist_ok=True)
    table = rows(ROWS, first=place)
    if path.suffix == ".parquet":
        how = {"use_dictionary": False, "compression": "none", **options}
        pq.write_table(table, str(path), row_group_size=GROUP, **how)
        return
    how = pa.ipc.IpcWriteOptions(**options)
    with pa.ipc.new_file(str(path), table.schema, options=how) as writer:
        writer.write_table(table, max_chunksize=GROUP)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Parquet shards."""
    for place in range(SHARDS):
        write(tmp_path / "data" / f"{place}.parquet", place)
    return tmp_path / "data"


@pytest.fixture
def url(tmp_path: Path) -> Path:
    """A checkpoint to be."""
    return tmp_path / "run"


def words(data: Path, url: Path, *more: object) -> list[object]:
    """The words after ``train``: a commit every 50 rows, in the middle of a row group."""
    sets = [word for one in SETS for word in ("--set", one)]
    return [data, *everything(hashed="h,c"), *sets, "--checkpoint", url, *more]


def cut(url: Path, after: int) -> None:
    """Leave a run as it was when it had learned ``after`` rows."""
    for path in sorted((url / "commits").glob("*.json"), reverse=True):
        document = json.loads(path.read_text().splitlines()[0])["document"]
        if document["rows"] == after and not document["finished"]:
            return
        path.unlink()
    raise AssertionError("no such commit")


def learned(url: Path) -> int:
    """Rows of the newest commit."""
    newest = max((url / "commits").iterdir())
    return int(json.loads(newest.read_text().splitlines()[0])["document"]["rows"])


def command(*words: object) -> Ran:
    """A command in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-m", "streamomd", *map(str, words)], capture_output=True, text=True
    )
    return Ran(done.returncode, done.stdout, done.stderr)


def refused(done: Ran, shard: str, group: int) -> None:
    """Exit 3, naming the shard and the row group."""
    assert done.code == 3, done.err
    assert shard in done.err
    assert f"row group {group}" in done.err
    assert "Traceback" not in done.err


@pytest.mark.slow
def test_labels_changed_between_run_and_resume(data: Path, url: Path) -> None:
    """A row group of which a part was learned: resume learns no further row of it. A row group of
    the first epoch: the second epoch stops before it."""
    train(*words(data, url))
    kept = url.with_name("kept")
    cut(url, 150)
    shutil.copytree(url, kept)
    flip(data / "0.parquet", group=1)
    refused(command("resume", url), "0.parquet", 1)
    assert learned(url) == 150
    flip(data / "0.parquet", group=1)
    flip(data / "0.parquet", group=0)
    refused(command("resume", kept, "--epochs", "2"), "0.parquet", 0)
    assert learned(kept) <= ROWS * SHARDS
    flip(data / "0.parquet", group=0)
    again = run("resume", kept, "--epochs", "2", "--json").result
    assert (
        again["state_sha256"]
        == train(data, *words(data, url)[1:], "--epochs", "2", "--restart")["state_sha256"]
    )


CHANGING = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from flipping import flip
import streamomd

class Change:
    done = False
    def on_progress(self, figures):
        if figures["rows"] >= 512 and not self.done:
            self.done = True
            flip(Path(sys.argv[2]) / "1.parquet", group=0)

try:
    streamomd.train(sys.argv[3], quiet=True, callbacks=[Change()])
except streamomd.core.errors.StreamomdError as error:
    print(error, file=sys.stderr)
    sys.exit(error.exit_code)
"""


@pytest.mark.slow
def test_labels_changed_while_a_run_learns(data: Path, url: Path, tmp_path: Path) -> None:
    """A row group that was learned is changed in the middle of an epoch: the next epoch stops
    before it, and no commit has a row of it."""
    job = tmp_path / "job.toml"
    job.write_text(
        f'[data]\nshards = "{data}"\nlabel = "y"\nweight = "w"\nnumeric = ["n", "k"]\n'
        f'hashed = ["h", "c"]\nignore = ["i", "v"]\n'
        f'[train]\nepochs = 3\n[checkpoint]\nurl = "{url}"\nevery_rows = 50\nevery_seconds = 0\n'
    )
    here = str(Path(__file__).parents[1] / "support")
    done = subprocess.run(
        [sys.executable, "-c", CHANGING, here, str(data), str(job)], capture_output=True, text=True
    )
    refused(Ran(done.returncode, done.stdout, done.stderr), "1.parquet", 0)
    assert learned(url) <= ROWS * SHARDS + ROWS


def test_certify_of_changed_labels(data: Path, url: Path) -> None:
    """certify walks the rows that were learned: other labels are exit 3, not another bound."""
    train(*words(data, url))
    assert run("certify", url, data).code == 0
    flip(data / "2.parquet", group=2)
    refused(run("certify", url, data), "2.parquet", 2)


def test_a_copy_elsewhere_is_certified_by_its_bytes(data: Path, url: Path, tmp_path: Path) -> None:
    """What is compared is the place in the order, not the URL."""
    train(*words(data, url))
    there = Path(shutil.copytree(data, tmp_path / "copy"))
    assert run("certify", url, there).code == 0
    flip(there / "2.parquet", group=2)
    refused(run("certify", url, there), "2.parquet", 2)


def test_a_cache_hides_no_change(data: Path, url: Path, tmp_path: Path) -> None:
    """An entry made before its shard was changed in place is not used, although the file has its
    old time: resume is exit 3, and a new run learns what the file has now."""
    cache = ["--set", f"data.cache={tmp_path}/cache"]
    expected = train(*words(data, tmp_path / "other"), "--epochs", "2")["state_sha256"]
    settled(data)
    train(*words(data, url), *cache)
    assert list((tmp_path / "cache").iterdir())
    flip(data / "1.parquet", group=1, column="n")
    cut(url, 450)
    refused(run("resume", url, "--epochs", "2", *cache), "1.parquet", 1)
    plain, cached = (words(data, tmp_path / name) for name in ("plain", "cached"))
    assert train(*cached, *cache)["state_sha256"] == train(*plain)["state_sha256"]
    flip(data / "1.parquet", group=1, column="n")
    done = run("resume", url, "--epochs", "2", *cache, "--json")
    assert done.result["state_sha256"] == expected


def test_a_cache_filled_from_other_bytes_is_not_used(data: Path, url: Path, tmp_path: Path) -> None:
    """Entries that another run made of the changed shard: exit 3; once the old bytes are back,
    they are decoded again and the result is bit-identical."""
    expected = train(*words(data, tmp_path / "other"), "--epochs", "2")["state_sha256"]
    settled(data)
    train(*words(data, url))
    flip(data / "1.parquet", group=1, column="n")
    cache = ["--set", f"data.cache={tmp_path}/cache"]
    train(*words(data, tmp_path / "second"), *cache)
    refused(run("resume", url, "--epochs", "2", *cache), "1.parquet", 1)
    train(*words(data, tmp_path / "third"), *cache)
    flip(data / "1.parquet", group=1, column="n")
    done = run("resume", url, "--epochs", "2", *cache, "--json")
    assert done.result["state_sha256"] == expected


def settled(data: Path) -> None:
    """Older than the time within which a shard has no cache entry."""
    import os

    for path in data.iterdir():
        os.utime(path, ns=(1, path.stat().st_mtime_ns - 10**10))


ENCODINGS: dict[str, dict[str, Any]] = {
    "plain": {},
    "dictionary": {"use_dictionary": True},
    "delta": {"column_encoding": {"y": "DELTA_BINARY_PACKED", "h": "DELTA_BYTE_ARRAY"}},
    "lengths": {"column_encoding": {"h": "DELTA_LENGTH_BYTE_ARRAY"}},
    "split": {"column_encoding": {"n": "BYTE_STREAM_SPLIT"}},
    "pages 2.0": {"data_page_version": "2.0"},
    "checksums": {"write_page_checksum": True},
    **{name: {"compression": name} for name in ("snappy", "gzip", "zstd", "lz4", "brotli")},
}


STRINGS = ("plain", "dictionary", "delta", "lengths")
"""Encodings that strings have of their own."""


@pytest.mark.parametrize(
    "name, column",
    [
        *((name, "y") for name in ENCODINGS),
        *((name, "h") for name in STRINGS),
        *(
            pytest.param(name, "h", marks=pytest.mark.slow)  # alike for strings and numbers
            for name in (
                "split",
                "pages 2.0",
                "checksums",
                "snappy",
                "gzip",
                "zstd",
                "lz4",
                "brotli",
            )
        ),
    ],
)
@pytest.mark.sample(6)
def test_every_encoding(name: str, column: str, url: Path, tmp_path: Path) -> None:
    """Whatever the changed byte means, it is found before a page is decoded."""
    for place in range(SHARDS):
        write(tmp_path / "data" / f"{place}.parquet", place, **ENCODINGS[name])
    train(*words(tmp_path / "data", url))
    flip(tmp_path / "data" / "1.parquet", group=2, column=column)
    refused(run("resume", url, "--epochs", "2"), "1.parquet", 2)
    flip(tmp_path / "data" / "1.parquet", group=2, column=column)
    assert run("resume", url, "--epochs", "2").code == 0


@pytest.mark.parametrize("mode", ["exact", "sharded"])
@pytest.mark.parametrize("suffix", ["parquet", "arrow"])
def test_modes_of_one_process(mode: str, suffix: str, url: Path, tmp_path: Path) -> None:
    """Parquet and Arrow, one learner and partitions: the second epoch stops, and no commit has a
    row of the changed row group twice."""
    for place in range(SHARDS):
        write(tmp_path / "data" / f"{place}.{suffix}", place)
    train(*words(tmp_path / "data", url, "--mode", mode))
    flip(tmp_path / "data" / f"0.{suffix}", group=1)
    refused(run("resume", url, "--epochs", "2"), f"0.{suffix}", 1)
    assert learned(url) <= ROWS * SHARDS + GROUP


def test_other_columns_may_change(data: Path, url: Path) -> None:
    """Only what is read is in a digest."""
    flags = ["--label", "y", "--numeric", "n,k", "--set", 'data.ignore=["h","c","i","v","w"]']
    train(data, *flags, "--checkpoint", url)
    flip(data / "0.parquet", column="h")
    assert run("resume", url, "--epochs", "2").code == 0


def test_a_sweep_verifies(data: Path, tmp_path: Path) -> None:
    """A sweep reads each row once for all learners, and its checkpoints have the digests."""
    grid = {"eta": [0.1, 1.0, 10.0]}
    columns: Any = {"label": "y", "numeric": ["n", "k"], "hashed": ["h"], "ignore": list("wciv")}
    job = {
        "data": {"shards": str(data), **columns},
        "model": {"rule": "nag"},
        "checkpoint": {"url": str(tmp_path / "s")},
    }
    found = streamomd.sweep(job, grid=grid, quiet=True)
    flip(data / "0.parquet", group=1)
    with pytest.raises(ChangedDataError, match="row group 1"):
        streamomd.resume_sweep(found.url, sets={"train.epochs": 2}, quiet=True)
    for name in ("best", "learners/000", "learners/002"):
        with pytest.raises(ChangedDataError, match="row group 1"):
            streamomd.resume(f"{found.url}/{name}", sets={"train.epochs": 2}, quiet=True)
    flip(data / "0.parquet", group=1)
    again = streamomd.resume_sweep(found.url, sets={"train.epochs": 2}, quiet=True)
    assert again.rows == 2 * ROWS * SHARDS


def test_each_row_group_that_was_learned_has_its_digest(data: Path, url: Path) -> None:
    """In every commit, also in the middle of a row group."""
    train(*words(data, url))
    store = open_store(str(url))
    for sequence in range(len(list((url / "commits").iterdir()))):
        commit = read_commit(store, sequence)
        found = {
            (name.rpartition("/")[2], group)
            for name, group, _ in read_ledger(store, commit).digests()
        }
        done = -(-int(commit.document["rows"]) // GROUP)
        wanted = [(f"{number // 3}.parquet", number % 3) for number in range(done)]
        assert found >= set(wanted)


def chunked(data: bytearray, block: int, held: int) -> ChunkFile:
    def read_into(offset: int, view: memoryview) -> None:
        view[:] = data[offset : offset + len(view)]

    return ChunkFile(len(data), read_into, block, held)


@pytest.mark.parametrize("windows", [0, 1, 4, 7, 10])
@pytest.mark.parametrize("block", [1, 3])
def test_a_digest_does_not_depend_on_how_much_is_in_memory(windows: int, block: int) -> None:
    """Neither do the bytes that are decoded, wherever they begin and end."""
    data = bytearray(random.Random(1).randbytes(9 * WINDOW)) + bytearray(b"end")
    ranges = [(10, 1000), (1010, 3 * WINDOW), (1500 + 3 * WINDOW, 5 * WINDOW)]
    whole = chunked(data, 4 * WINDOW, len(data))
    file = chunked(data, block * WINDOW, windows * WINDOW)
    assert file.load(ranges) == whole.load(ranges)
    assert (whole.is_held, file.is_held) == (True, windows == 10)
    for low, length in ranges:
        for begin, end in [(0, length), (0, 1), (length // 3, length - 1), (length, length)]:
            for one in (file, whole):
                one.seek(low + begin)
                assert bytes(one.read(end - begin)) == data[low + begin : low + end]


@pytest.mark.parametrize("held", [0, 3 * WINDOW])
def test_what_is_decoded_is_what_was_hashed(held: int) -> None:
    """A byte that changes between the two readings of a large row group is found."""
    data = bytearray(8 * WINDOW)
    file = chunked(data, WINDOW, held)
    file.load([(0, len(data))])
    assert file.read(10) == bytes(10)
    data[7] = data[5 * WINDOW + 7] = 1
    file.seek(0)
    assert bytes(file.read(10)) == bytes(10)
    file.seek(5 * WINDOW)
    with pytest.raises(ChangedWhileReadError):
        file.read(10)


def test_nothing_but_the_chunks_is_read() -> None:
    """What is in no digest cannot be decoded."""
    file = chunked(bytearray(100), WINDOW, 0)
    file.load([(10, 20)])
    for offset, length in [(0, 1), (9, 2), (29, 2), (99, 1)]:
        file.seek(offset)
        with pytest.raises(OSError, match="in no column chunk"):
            file.read(length)


@pytest.mark.parametrize("held", [0, 1 << 20])
def test_a_large_row_group_is_read_twice_and_learned_once(
    held: int, tmp_path: Path, url: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More than stays in memory: the bits of small row groups, and a change is found."""
    monkeypatch.setattr(read, "LOCAL_HELD", held)
    table = pa.concat_tables([rows(20_000, first=place) for place in range(2)])
    hashes = []
    for name, size in (("large", 40_000), ("small", 10_000)):
        (tmp_path / name).mkdir()
        how: Any = {"use_dictionary": False, "compression": "none", "row_group_size": size}
        pq.write_table(table, str(tmp_path / name / "a.parquet"), **how)
        place = ["--checkpoint", url.with_name(f"run-{name}")]
        hashes.append(train(tmp_path / name, *everything(), *place)["state_sha256"])
    assert hashes[0] == hashes[1]
    assert (tmp_path / "large" / "a.parquet").stat().st_size > 3 << 20
    flip(tmp_path / "large" / "a.parquet")
    refused(run("resume", url.with_name("run-large"), "--epochs", "2"), "a.parquet", 0)


def test_digests_of_two_processes_are_compared() -> None:
    """Workers that read the same row group must have read the same bytes."""
    digests = Digests([("a", 3, b"a" * 16)])
    digests.check_all([("a", 3, b"a" * 16), ("b", 0, b"b" * 16)])
    assert digests.found() == [("b", 0, b"b" * 16)]
    assert sorted(pickle.loads(pickle.dumps(digests))) == sorted(digests)
    with pytest.raises(ChangedDataError, match="row group 0"):
        digests.check_all([("b", 0, b"c" * 16)])
