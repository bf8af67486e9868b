"""Checkpoints that nothing bad happens to: what is committed is what is loaded, to the bit."""

from __future__ import annotations

import base64
import hashlib
import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy
from checkpoint_helpers import KINDS, a_run, begin, holds, load_all, make_store, numbers, plain

from streamomd.checkpoint import (
    Part,
    Store,
    Writer,
    list_commits,
    open_store,
    read_document,
    write_document,
)
from streamomd.checkpoint.manifest import manifest_name
from streamomd.checkpoint.parts import ZSTD, pack, parse_entry, unpack
from streamomd.checkpoint.sealed_json import unseal
from streamomd.core.errors import CorruptionError, NoCommitError, OutputExistsError, UsageError

pytestmark = pytest.mark.smoke


@pytest.fixture(params=KINDS)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    return make_store(request.param, tmp_path)


def odd_arrays() -> dict[str, np.ndarray]:
    bits64 = np.array([0x7FF8000000000001, 0xFFF0000000000123, 1 << 63, 1], dtype="<u8")
    bits32 = np.array([0x7FC00001, 0xFF800123, 1 << 31, 1], dtype="<u4")
    return {
        "nan64": bits64.view("<f8"),
        "nan32": bits32.view("<f4"),
        "i64": np.array([-(2**63), 2**63 - 1], dtype=np.int64),
        "u64": np.array([0, 2**64 - 1], dtype=np.uint64),
        "scalar": np.array(-0.0),
        "empty": np.zeros((0, 3)),
        "matrix": np.asfortranarray(np.arange(6.0).reshape(2, 3)),
        "big": np.arange(3, dtype=">f8"),
        "strided": np.arange(10.0)[::3],
    }


def test_every_bit_of_every_dtype_returns(store: Store) -> None:
    """NaN payloads, signed zeros, 0-d, empty, transposed and strided arrays return to the bit."""
    Writer.begin(store, {"rows": 0}, [(0, 1, odd_arrays())])
    _, [(_, _, found)] = load_all(store)
    for name, array in odd_arrays().items():
        little = array.astype(array.dtype.newbyteorder("<"))
        assert found[name] == (little.dtype.str, little.shape, little.tobytes("C"))


def test_parts_are_plain_safetensors() -> None:
    """A part is what the safetensors library writes, and the other way round."""
    entry, data = pack((3, 7, {"w": np.arange(4.0)}))
    assert entry.name == "p000000000003-000000000007.safetensors"
    assert safetensors.numpy.load(data)["w"].tolist() == [0.0, 1.0, 2.0, 3.0]
    assert unpack(entry, safetensors.numpy.save({"w": np.arange(4.0)}))[:2] == (3, 7)


def sparse_arrays(rows: int = 4096) -> dict[str, np.ndarray]:
    """Mostly the start, with odd bits in between."""
    odd = np.zeros((rows, 8))
    odd[:: rows // 4, 3] = np.array([0x7FF8000000000001, 1 << 63, 1, 7], dtype="<u8").view("<f8")
    return {"slot.w": odd, "slot.g": np.full((rows, 1), 0.25, np.float32)}


def test_a_part_that_becomes_smaller_is_compressed(store: Store) -> None:
    """Every bit returns; the manifest says that readers need zstd."""
    arrays = sparse_arrays()
    writer = Writer.begin(store, {"rows": 0}, [(0, 4096, arrays)])
    loaded, [(_, _, found)] = load_all(store)
    (entry,) = loaded.commit.parts
    assert entry.name.endswith(".safetensors.zst")
    assert entry.size < 0.02 * entry.unpacked
    for name, array in arrays.items():
        assert found[name] == (array.dtype.str, array.shape, array.tobytes())
    fields, _ = unseal(store.read(manifest_name(0)))
    assert fields["required_features"] == [ZSTD]
    dense = {"slot.w": np.random.default_rng(0).normal(size=(4096, 8))}
    writer.commit({"rows": 1}, [(0, 4096, dense)])
    (entry,) = load_all(store)[0].commit.parts
    assert (entry.unpacked, entry.name.endswith(".safetensors")) == (0, True)
    fields, _ = unseal(store.read(manifest_name(1)))
    assert fields["required_features"] == []


WRITTEN = (
    "KLUv/WBIf/UCANQEQAB7InciOnsiZHR5cGUiOiJGNjQiLCJzaGFwZSI6WzQwOTZdLCJkYXRhX29mZnNl"
    "dHMiOlswLDMyNzY4XX19ICAgAIAAAAAABEAAAAAEALIg2PW/g16DAXkYXBs="
)
"""A compressed part as the first version wrote it that compressed any."""


def test_a_part_of_the_first_version_that_compressed_is_read() -> None:
    data, w = base64.b64decode(WRITTEN), np.zeros(4096)
    w[7], w[1000] = -0.0, 2.5
    entry, _ = pack((0, 4096, {"w": w}))
    sizes = {"size": len(data), "zstd": entry.unpacked, "sha256": hashlib.sha256(data).hexdigest()}
    _, _, arrays = unpack(parse_entry({**entry.to_json(), **sizes}), data)
    assert arrays["w"].tobytes() == w.tobytes()


def test_small_parts_are_not_compressed() -> None:
    entry, data = pack((0, 9, {"w": np.zeros(9)}))
    assert (entry.unpacked, entry.size) == (0, len(data))


@pytest.mark.parametrize("damage", ["cut", "garbage", "longer", "shorter", "arrays"])
def test_what_zstd_has_not_written_is_refused(damage: str) -> None:
    """By whoever can compute a SHA-256, too; nothing is read of memory that was not written."""
    entry, data = pack((0, 4096, sparse_arrays()))
    if damage == "cut":
        data = data[:-9]
    elif damage == "garbage":
        data = np.random.default_rng(1).bytes(len(data))
    elif damage in ("longer", "shorter"):
        entry = entry._replace(unpacked=entry.unpacked + (8 if damage == "longer" else -8))
    else:
        _, data = pack((0, 4096, {"slot.w": np.zeros((4096, 8))}))
    entry = entry._replace(size=len(data), sha256=hashlib.sha256(data).hexdigest())
    with pytest.raises(CorruptionError):
        unpack(entry, data)


@pytest.mark.parametrize(
    ("key", "value"), [("zstd", 0), ("zstd", 1 << 31), ("zstd", 12), ("zstd", "9"), ("size", 1e9)]
)
def test_sizes_of_compressed_parts_agree(key: str, value: object) -> None:
    """With the arrays, before anything is unpacked."""
    entry, _ = pack((0, 4096, sparse_arrays()))
    fields = entry.to_json()
    assert parse_entry(fields) == entry
    with pytest.raises(CorruptionError):
        parse_entry({**fields, key: value})


@pytest.mark.parametrize("dtype", ["float16", "int32", "bool", "complex128"])
def test_other_dtypes_are_refused(dtype: str) -> None:
    """A part accepts four dtypes and refuses the rest by name."""
    with pytest.raises(UsageError, match=f"'w' is {dtype}"):
        pack((0, 1, {"w": np.zeros(2, dtype=dtype)}))


def test_commits_follow_each_other(store: Store) -> None:
    """Each commit is loaded by its number, and the newest without one."""
    a_run(store, 3, keep=9)
    holds(store, 3)
    for at in range(4):
        loaded, parts = load_all(store, at)
        assert (loaded.commit.sequence, parts) == (at, plain(numbers(at)))
    assert [one["rows"] for one in list_commits(store, deep=True)] == [0, 10, 20, 30]
    assert all(one["ok"] and one["parts"] == 2 for one in list_commits(store))


def test_a_commit_that_is_not_there_is_refused(store: Store) -> None:
    """``at`` loads that commit or nothing."""
    a_run(store, 1)
    with pytest.raises(NoCommitError, match=r"no commit 7 .* there are 0 to 1"):
        load_all(store, 7)


def test_an_empty_store_is_reported(store: Store) -> None:
    """An empty place is no corrupt checkpoint: the message asks for the URL."""
    for look in (load_all, list_commits):
        with pytest.raises(NoCommitError, match="nothing was saved there"):
            look(store)


def test_a_run_is_not_overwritten(store: Store) -> None:
    """If there are commits, a run begins with ``restart`` only, and continues the sequence."""
    first = a_run(store, 1)
    with pytest.raises(OutputExistsError, match=r"streamomd resume .* --restart"):
        begin(store)
    second = begin(store, restart=True)
    loaded = holds(store, 0)
    assert (loaded.commit.sequence, loaded.commit.parent) == (2, 1)
    assert loaded.commit.run == second.run != first.run
    assert [one["sequence"] for one in list_commits(store)] == [0, 1, 2]


def test_taking_over_repeats_the_commit(store: Store) -> None:
    """Resuming commits the loaded commit again, with its parts where they are, then continues."""
    a_run(store, 1)
    loaded = holds(store, 1)
    writer = Writer.take_over(store, loaded)
    again = holds(store, 1).commit
    assert (again.sequence, again.kind, again.directory) == (2, "open", loaded.commit.directory)
    writer.commit({"rows": 20}, numbers(2))
    assert holds(store, 2).commit.run == loaded.commit.run


def test_half_a_first_commit_is_no_obstacle(store: Store) -> None:
    """A run that died inside commit 0 leaves what the next run ignores."""

    def dies() -> Iterator[Part]:
        yield numbers(0)[0]
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Writer.begin(store, {"rows": 0}, dies())
    assert store.size("FORMAT.json") is not None
    with pytest.raises(NoCommitError):
        load_all(store)
    begin(store)
    holds(store, 0)


def test_something_else_is_not_taken_for_a_checkpoint(store: Store) -> None:
    """A place whose FORMAT.json is not ours is left alone."""
    store.put("FORMAT.json", b'{"format": "zarr"}')
    with pytest.raises(OutputExistsError, match="choose another URL"):
        begin(store)
    assert store.read("FORMAT.json") == b'{"format": "zarr"}'


def test_parts_are_asked_for_one_by_one(store: Store) -> None:
    """A part is stored before the next is asked for, so memory holds one."""
    stored: list[int] = []

    def parts() -> Iterator[Part]:
        for lo in range(3):
            stored.append(sum(size(store, lo) for lo in range(3)))
            yield lo, lo + 1, {"w": np.zeros(1)}

    def size(store: Store, lo: int) -> int:
        directory = next(iter(writer._abandoned))
        name = f"data/{directory}/p{lo:012d}-{lo + 1:012d}.safetensors"
        return store.size(name) is not None

    writer = begin(store)
    writer.commit({"rows": 10}, parts())
    assert stored == [0, 1, 2]


def test_documents_are_shared_and_proven(store: Store) -> None:
    """A shared document is named by its hash, saved in two copies, and refused when both are
    damaged."""
    document = [{"url": "a", "rows": 3, "nan": None}]
    sha256 = write_document(store, "dataset", document)
    assert write_document(store, "dataset", document) == sha256
    assert read_document(store, "dataset", sha256) == document
    store.put(f"dataset/{sha256}.json", b"[]")
    assert read_document(store, "dataset", sha256) == document
    store.put(f"copies/dataset/{sha256}.json", b"[]")
    with pytest.raises(CorruptionError, match="SHA-256"):
        read_document(store, "dataset", sha256)
    write_document(store, "dataset", document)
    assert read_document(store, "dataset", sha256) == document


def test_a_document_must_be_plain_json(store: Store) -> None:
    """NaN, objects and documents beyond 4 MiB are refused before anything is committed."""
    writer = begin(store)
    for value in (float("nan"), object(), "x" * (5 << 20), 2**70):
        with pytest.raises(UsageError):
            writer.commit({"rows": 10, "value": value}, numbers(1))
    holds(store, 0)


def test_a_path_is_a_file_url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A relative path, an absolute one and a file:// URL are the same store."""
    monkeypatch.chdir(tmp_path)
    begin(open_store("runs/a b%20#1"))
    folder = tmp_path / "runs" / "a b%20#1"
    assert sorted(os.listdir(folder)) == ["FORMAT.json", "commits", "data"]
    for url in (str(folder), f"file://{folder}"):
        assert open_store(url).url == str(folder)
        holds(open_store(url), 0)


def test_looking_writes_nothing(tmp_path: Path) -> None:
    """Opening, listing and loading make no file."""
    store = make_store("local", tmp_path)
    with pytest.raises(NoCommitError):
        load_all(store)
    assert not list(tmp_path.iterdir())


def test_files_have_the_modes_of_the_umask(tmp_path: Path) -> None:
    """Files are 0666 without the umask's bits, and no temporary stays."""
    before = os.umask(0o027)
    try:
        begin(make_store("local", tmp_path))
    finally:
        os.umask(before)
    files = [file for file in tmp_path.rglob("*") if file.is_file()]
    assert len(files) == 4
    assert {oct(file.stat().st_mode & 0o777) for file in files} == {"0o640"}
