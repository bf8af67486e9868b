"""The cache's folder: nothing wrong comes from it, it keeps its bound, and it stops no run."""

from __future__ import annotations

import dataclasses
import errno
import json
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from caching import cache_in, entries, plan_of, read, settled
from moto_bucket import moto_bucket
from running import everything, rows, run, shards, train, write

from streamomd.config.spec import Spec
from streamomd.core.batch import SparseBatch
from streamomd.core.errors import ChangedDataError, UsageError
from streamomd.shards.cache import cached_reader
from streamomd.shards.cache.cached_reader import is_settled
from streamomd.shards.cache.entry import DamagedError, Draft, Entry
from streamomd.shards.order import Group
from streamomd.sources.find import find
from streamomd.training.row_stream import rows_of


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Three shards of 40 rows in groups of 10."""
    shards(tmp_path / "data")
    settled(tmp_path / "data")
    return tmp_path / "data"


def given(entry: Path, columns: int) -> list[Any]:
    """All that is in an entry."""
    opened = Entry(str(entry), entry.stem, columns)
    try:
        told = [bytes(opened.names())]
        for row, batch in opened.batches(0, 1 << 40):
            found = [getattr(batch, field.name) for field in dataclasses.fields(batch)]
            fields = [field for field in found if isinstance(field, np.ndarray)]
            told.append((row, [field.tobytes() for field in fields], batch.skipped.places.tolist()))
        return told
    finally:
        opened.close()


@pytest.mark.parametrize("step", [211, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.parametrize("kind", ["sparse", "dense"])
def test_a_flipped_bit_is_noticed(kind: str, step: int, tmp_path: Path) -> None:
    """Whatever bit of an entry is another, and wherever it is cut: it is refused, or it gives what
    was written."""
    write(tmp_path / "data" / "a.parquet", rows(3))
    settled(tmp_path / "data")
    plan = plan_of(tmp_path / "data", kind)
    read(plan, tmp_path / "data", cache_in(tmp_path / "kept"))
    (entry,) = entries(tmp_path / "kept")
    expected, whole, refused = given(entry, plan.size - 1), entry.read_bytes(), 0
    for at in range(0, len(whole), step):
        damaged = bytearray(whole)
        damaged[at] ^= 1 << at % 8
        for content in (damaged, whole[:at]):
            entry.write_bytes(content)
            try:
                assert given(entry, plan.size - 1) == expected
            except DamagedError:
                refused += 1
    assert refused > len(whole) // step


def test_values_that_are_all_one_are_not_stored(tmp_path: Path) -> None:
    """Of batches whose values are all 1 an entry has the coordinates alone; read back they have
    their values, next to batches of other values, of any type."""
    other = [2.0, 1.0, 1.0 + 1e-7, 0.0, np.nan]
    for dtype in ("float32", "float64"):
        values = [np.ones(1000, dtype) for _ in range(2 + len(other))]
        for at, value in enumerate(other):
            values[1 + at][[0, 70, 999][at % 3]] = value
        indptr, column = np.array([0, 0, 400, 1000, 1000]), np.ones(4)
        indices = np.arange(1000, dtype=np.int32)
        draft, sizes = Draft(str(tmp_path / "entry"), "key"), [0]
        for row, some in enumerate([*values, values[0][:0]]):
            edges = np.minimum(indptr, len(some))
            draft.add(4 * row, SparseBatch(edges, indices[: len(some)], some, column, column))
            sizes.append(draft._file.tell())
        draft.finish(b"", b"")
        entry = Entry(str(tmp_path / "entry"), "key", 1000)
        found = [batch for _, batch in entry.batches(0, 100)]
        entry.close()
        assert [one.values.tobytes() for one in found[:-1]] == [one.tobytes() for one in values]
        assert all(one.indices.tolist() == indices.tolist() for one in found[:-1])
        assert {one.values.dtype for one in found} == {np.dtype(dtype)}
        assert not found[-1].values.size
        stored = np.diff(sizes)[1:-1] - 4000 > values[0].nbytes
        assert stored.tolist() == [bool((one != 1).any()) for one in values[1:]]


def test_a_damaged_entry_costs_time_alone(data: Path, tmp_path: Path) -> None:
    """A damaged entry is logged once, removed and written again; the rows are those of the
    shards."""
    plan, kept = plan_of(data, "sparse"), tmp_path / "kept"
    expected = read(plan, data, cache_in(kept))
    for name, damage in {
        "empty": lambda content: b"",
        "cut": lambda content: content[: len(content) // 2],
        "other": lambda content: entries(kept)[0].read_bytes(),
        "head": lambda content: content[:600] + b"\xff" + content[601:],
    }.items():
        said: list[str] = []
        for entry in entries(kept)[3:7]:
            entry.write_bytes(damage(entry.read_bytes()))
        assert read(plan, data, cache_in(kept, said=said)) == expected
        assert ["damaged" in text for text in said] == [True], name
        read(plan, data, cache_in(kept))
        said.clear()
        assert len(entries(kept)) == 12
        assert read(plan, data, cache_in(kept, said=said)) == expected
        assert not said


def test_rows_of_another_plan_are_refused(data: Path, tmp_path: Path) -> None:
    """An entry whose rows lead outside the plan's coordinates is refused, though it is whole."""
    read(plan_of(data, "sparse"), data, cache_in(tmp_path / "kept"))
    with pytest.raises(DamagedError):
        given(entries(tmp_path / "kept")[0], 5)


def test_a_replaced_shard_has_other_entries(tmp_path: Path) -> None:
    """A file of the same size and footer under the same name, with other rows, is read anew; and
    one replaced while it is in use is an error, though every row of it is in the cache."""
    data, kept = tmp_path / "data", tmp_path / "kept"
    data.mkdir()

    def put(seed: int, age: float) -> None:
        table = pa.table({"y": [0, 1] * 20, "n": np.random.default_rng(seed).normal(size=40)})
        with pa.ipc.new_file(str(data / "a.arrow"), table.schema) as file:
            file.write_table(table, max_chunksize=10)
        os.utime(data / "a.arrow", (time.time() - age,) * 2)

    put(1, 20)
    plan = plan_of(data, "dense", numeric=["n"])
    first, before = read(plan, data, cache_in(kept)), find(str(data))
    put(2, 10)
    assert find(str(data)).shards[0].footer_sha256 == before.shards[0].footer_sha256
    second = read(plan, data, cache_in(kept))
    assert second == read(plan, data, None) != first
    assert read(plan, data, cache_in(kept)) == second
    with pytest.raises(ChangedDataError, match="replaced"):
        next(rows_of(plan, before, [0], cache=cache_in(kept)))


def test_a_young_shard_has_no_entries(tmp_path: Path) -> None:
    """Of a shard that was written just now nothing is kept: it may be written again and look the
    same. Nor of one without a tag or a time."""
    write(tmp_path / "data" / "a.parquet", rows(40))
    plan = plan_of(tmp_path / "data", "sparse")
    read(plan, tmp_path / "data", cache_in(tmp_path / "kept"))
    assert not entries(tmp_path / "kept")
    shard = find(str(tmp_path / "data")).shards[0]
    tagged, bare = (dataclasses.replace(shard, etag=tag, mtime_ns=None) for tag in ("x", None))
    cases = [(tagged, None), (bare, "x"), (shard, (1, 0)), (bare, None), (shard, (1, 2**63))]
    assert [is_settled(*case) for case in cases] == [True, True, True, False, False]


def test_the_key_holds_all(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another plan, shard, version of it, place in it, or source of streamomd has another key."""
    found = find(str(data)).shards[0]
    plan = plan_of(data, "sparse")

    def key(plan: Any = plan, shard: Any = found, number: int = 0, version: Any = (1, 2)) -> str:
        made = cached_reader.CachedRows(cache_in(data), plan, None)
        return made._key(Group(shard, number, 0, 10), version)

    other = {"url": "x", "size": 1, "footer_sha256": "x", "etag": "x", "mtime_ns": 1}
    keys = [key(), key(number=1), key(version="x"), key(plan=plan_of(data, "dense"))]
    keys += [key(shard=dataclasses.replace(found, **{name: to})) for name, to in other.items()]
    for name, value in {"bits": 11, "hash_seed": 1, "nulls": "zero", "on_bad_row": "skip"}.items():
        keys.append(key(plan=plan_of(data, "sparse", **{name: value})))
    monkeypatch.setattr(cached_reader, "_sources", lambda: "other")
    keys.append(key())
    assert len(set(keys)) == len(keys)


def test_the_bound(data: Path, tmp_path: Path) -> None:
    """The folder never holds more than its bound; a run whose rows do not fit keeps those it has,
    and says so; the least recently used of others make room."""
    plan, kept = plan_of(data, "sparse"), tmp_path / "kept"
    expected = read(plan, data, cache_in(kept))
    sizes = [path.stat().st_size for path in entries(kept)]
    bound = sum(sizes) // 2
    for path in entries(kept):
        os.utime(path, (1e9, 1e9))
    other, said = plan_of(data, "dense"), []
    read(other, data, cache_in(kept, bound=bound))
    assert sum(path.stat().st_size for path in entries(kept)) <= bound
    assert read(plan, data, cache_in(kept, bound=bound, said=said)) == expected
    assert ["full of this run's rows" in text for text in said] == [True]
    held = entries(kept)
    assert 0.7 * bound < sum(path.stat().st_size for path in held) <= bound
    assert read(plan, data, cache_in(kept, bound=bound)) == expected
    assert entries(kept) == held  # those it has, not now these and now those
    assert read(plan, data, cache_in(tmp_path / "none", bound=1)) == expected
    assert not entries(tmp_path / "none")


@pytest.mark.parametrize("step", ["add", "finish", "begin"])
def test_a_full_disk_stops_nothing(
    step: str, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where nothing can be written a note says so, once, and nothing is left behind."""
    plan, said = plan_of(data, "sparse"), []

    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    if step == "begin":
        (tmp_path / "kept").write_text("a file")
    else:
        monkeypatch.setattr(Draft, step, full)
    cache = cache_in(tmp_path / "kept", said=said)
    assert read(plan, data, cache) == read(plan, data, cache) == read(plan, data, None)
    assert ["cannot be written" in text for text in said] == [True]
    assert step == "begin" or not entries(tmp_path / "kept")


def test_drafts_of_the_dead_are_removed(data: Path, tmp_path: Path) -> None:
    """A draft goes when its process has ended, or after a day; a young or living one stays."""
    kept, old = tmp_path / "kept", time.time() - 100_000
    kept.mkdir()
    with subprocess.Popen([sys.executable, "-c", ""]) as ended:
        pass
    drafts = {
        "dead": (ended.pid, time.time() - 100, False),
        "just dead": (ended.pid, time.time(), True),
        "alive": (os.getpid(), time.time() - 100, True),
        "a day old": (os.getpid(), old, False),
    }
    paths = {}
    for number, (name, (pid, age, _)) in enumerate(drafts.items()):
        path = paths[name] = kept / f"{number:064x}.{pid}.{number:08x}.part"
        path.write_bytes(b"x")
        os.utime(path, (age, age))
    for name in ("mine.txt", "mine.part", f"{0:064x}.part", "film.1.abc.part"):
        (kept / name).write_text("not ours")
        os.utime(kept / name, (old, old))
    read(plan_of(data, "sparse"), data, cache_in(kept, bound=1 << 30))
    assert {name: path.exists() for name, path in paths.items()} == {
        name: stays for name, (_, _, stays) in drafts.items()
    }
    assert len([*kept.iterdir()]) == 12 + 2 + 4


def test_several_concurrently(data: Path, tmp_path: Path) -> None:
    """Runs that fill, read, damage and empty one folder at the same time all read the shards'
    rows."""
    plan, kept = plan_of(data, "sparse"), tmp_path / "kept"
    expected = read(plan, data, None)

    def disturb(_: int) -> bool:
        for path in [*kept.glob("*.arrow")][::2]:
            path.unlink(missing_ok=True)
        return True

    def go(bound: int) -> bool:
        return read(plan, data, cache_in(kept, bound=bound)) == expected

    with ThreadPoolExecutor(4) as pool:
        done = [pool.submit(disturb if at % 5 == 4 else go, at % 3 * 9000) for at in range(20)]
    assert all(one.result() for one in done)
    entries(kept)  # and no draft is left


def test_where(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A folder of the local disk: relative to the current directory, or to the home; no URL."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", "/home/x")
    for given_, found in {"": "", "kept": f"{tmp_path}/kept", "~/c": "/home/x/c",
                          "file:///c": "/c"}.items():  # fmt: skip
        assert Spec.parse({"data": {"cache": given_}}).data.cache == found
    with pytest.raises(UsageError, match=r"data\.cache.*s3://bucket/rows"):
        Spec.parse({"data": {"cache": "s3://bucket/rows"}})
    for among in ("data", "data/kept"):
        for shards_ in ("data", "data/*", "data/**/*.arrow"):
            refused = run("train", shards_, "--label", "y", "--cache", among)
            assert (refused.code, "taken for shards" in refused.err) == (2, True)
    refused = run("train", "x.parquet", "--label", "y", "--cache", "gs://b/c")
    assert (refused.code, "local disk" in refused.err) == (2, True)


@pytest.mark.slow
def test_concurrent_processes(tmp_path: Path) -> None:
    """Processes that share a folder, one of them killed in the midst of it, end with the bits of
    none; what the killed one left makes no difference, and goes."""
    data, kept = tmp_path / "data", tmp_path / "kept"
    for name in "abc":
        write(data / f"{name}.parquet", rows(20_000, seed=ord(name)), row_group_size=2_000)
    settled(data)
    job = [data, *everything(), "--checkpoint", "none", "--epochs", 3]
    expected = train(*job)["state_sha256"]
    words = [sys.executable, "-m", "streamomd", "train", *job, "--json", "--cache", kept]
    for attempt in range(3):
        processes = [
            subprocess.Popen([*map(str, words)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
            for _ in range(3)
        ]
        while not kept.exists() or not [*kept.iterdir()]:
            time.sleep(0.001)
        time.sleep(0.01 * attempt)
        processes[0].kill()
        for process in processes[1:]:
            out, _ = process.communicate(timeout=120)
            assert json.loads(out.splitlines()[-1])["state_sha256"] == expected
        processes[0].communicate()
        for path in [*kept.glob("*.part")]:
            os.utime(path, (time.time() - 100,) * 2)
        assert train(*job, "--cache", kept)["state_sha256"] == expected
        assert len(entries(kept)) == 30
        for path in entries(kept):
            path.unlink()
        kept.rmdir()


@pytest.mark.slow
def test_a_replaced_object_of_a_store(tmp_path: Path) -> None:
    """In a bucket the ETag distinguishes shards of the same size and footer."""
    with moto_bucket() as options:
        store = pytest.importorskip("s3fs").S3FileSystem(**options)
        local = tmp_path / "rows"
        local.mkdir()
        said = []
        for seed in (1, 2, 1):
            table = pa.table({"y": [0, 1] * 20, "n": np.random.default_rng(seed).normal(size=40)})
            with pa.ipc.new_file(str(local / "a.arrow"), table.schema) as file:
                file.write_table(table, max_chunksize=10)
            store.put(str(local / "a.arrow"), "bucket/rows/a.arrow")
            found = find("s3://bucket/rows", storage_options=options)
            settled(local)
            plan = plan_of(local, "dense", numeric=["n"])
            pieces = rows_of(plan, found, [0], cache=cache_in(tmp_path / "kept"))
            said.append(b"".join(piece.value.batch.values.tobytes() for piece in pieces))
            assert said[-1] == table["n"].to_numpy().tobytes()
        assert said[0] == said[2] != said[1]


def test_a_pipe_as_an_entry_is_removed(data: Path, tmp_path: Path) -> None:
    """Its rows are decoded from their shards: to open it must not wait for a writer."""
    plan, kept, said = plan_of(data, "sparse"), tmp_path / "kept", list[str]()
    expected = read(plan, data, cache_in(kept))
    first, *_ = entries(kept)
    first.unlink()
    os.mkfifo(first)
    assert read(plan, data, cache_in(kept, said=said)) == expected
    assert any("is not a regular file" in line for line in said)
    assert first.is_file()


@pytest.mark.parametrize("mode", [0o777, 0o770, 0o700])
def test_a_folder_that_others_can_write_is_reported(mode: int, data: Path, tmp_path: Path) -> None:
    """They could exchange the rows that are learned."""
    kept, said = tmp_path / "kept", list[str]()
    kept.mkdir()
    kept.chmod(mode)
    read(plan_of(data, "sparse"), data, cache_in(kept, said=said))
    assert any("other users can write to" in line for line in said) == (mode != 0o700)
