"""Checkpoints written to do harm: refused, without a file outside touched or memory taken."""

from __future__ import annotations

import functools
import json
import os
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from checkpoint_helpers import begin, load_all, make_store

from streamomd.checkpoint import open_store
from streamomd.checkpoint.manifest import manifest_name
from streamomd.checkpoint.sealed_json import LIMIT, canonical, parse, seal, unseal
from streamomd.core.errors import CorruptionError, NoCommitError, StorageError, UsageError

Change = Callable[[dict[str, Any]], Any]
CANARY = "canary"
NAMES = [
    "../../../canary",
    "/canary",
    "..\\canary",
    "file:///canary",
    "memory://x::canary",
    "p000000000000-000000000004.safetensors\0",
    "p000000000000-000000000004.safetensors\n",
    "%2e%2e/canary",
    "p٠٠٠٠٠٠٠٠٠٠٠٠-000000000004.safetensors",
    "p000000000000-000000000005.safetensors",
    "",
    7,
    None,
]


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A checkpoint of one commit beside a canary."""
    begin(make_store("local", tmp_path))
    (tmp_path / CANARY).write_bytes(b"canary")
    return tmp_path / "run"


def change(run: Path, edit: Change) -> None:
    """Edit the manifest and seal it again, as who can compute a SHA-256 does."""
    file = run / manifest_name(0)
    fields, _ = unseal(file.read_bytes())
    edit(fields)
    file.write_bytes(seal(fields))


@functools.cache
def opened() -> list[str]:
    """Every name this process opens from now on, while it is wanted; a hook cannot be removed."""
    names: list[str] = []

    def hook(event: str, args: Any) -> None:
        if event == "open" and names:
            names.append(str(args[0]))

    sys.addaudithook(hook)
    return names


def refused(run: Path, match: str = "no usable commit") -> None:
    """Assert that loading is refused, and opens nothing outside of the checkpoint."""
    names = opened()
    names.append("from here")
    try:
        with pytest.raises(NoCommitError, match=match):
            load_all(open_store(str(run)))
        assert len(names) > 1
        assert not [name for name in names if CANARY in name]
    finally:
        names.clear()


@pytest.mark.parametrize("name", NAMES)
def test_part_names_lead_nowhere_else(run: Path, name: Any) -> None:
    """A part's name is of one pattern and agrees with its range."""
    change(run, lambda fields: fields["parts"][0].update(name=name))
    refused(run)


@pytest.mark.parametrize("name", [*NAMES, "000000000000-0000000g-00000000", "..", "."])
def test_the_directory_leads_nowhere_else(run: Path, name: Any) -> None:
    """The directory of the parts is of one pattern."""
    change(run, lambda fields: fields.update(directory=name))
    refused(run)


@pytest.mark.parametrize("value", ["../../canary", "A" * 64, "", 7, None, ["a" * 64]])
@pytest.mark.parametrize("kind", ["dataset", "names"])
def test_hashes_lead_nowhere_else(run: Path, kind: str, value: Any) -> None:
    """A shared document's hash becomes part of a name, so it is a hash or refused."""
    change(run, lambda fields: fields["document"].update({kind: value}))
    refused(run, match=f"field '{kind}' is invalid")


SEGMENTS = [*([one] for one in ("../../canary", "A" * 64, "", 7, None, ["a" * 64])), "a" * 64, 7]


@pytest.mark.parametrize("value", [*SEGMENTS, None, ["a" * 64] * 1001])
def test_segments_lead_nowhere_else(run: Path, value: Any) -> None:
    """So does each segment's of the ledger; no commit has a thousand of them."""
    change(run, lambda fields: fields["document"].update(segments=value))
    refused(run, match="field 'segments' is invalid")


EDITS: dict[str, Change] = {
    "size 2^40": lambda f: f["parts"][0].update(size=1 << 40),
    "size negative": lambda f: f["parts"][0].update(size=-1),
    "size true": lambda f: f["parts"][0].update(size=True),
    "size float": lambda f: f["parts"][0].update(size=1.5),
    "shape 2^60": lambda f: f["parts"][0]["arrays"].update(w=["F64", [1 << 60]]),
    "shape product": lambda f: f["parts"][0]["arrays"].update(w=["F64", [1 << 20] * 8]),
    "shape negative": lambda f: f["parts"][0]["arrays"].update(w=["F64", [-4, -1]]),
    "shape other": lambda f: f["parts"][0]["arrays"].update(w=["F64", [2, 2]]),
    "dtype other": lambda f: f["parts"][0]["arrays"].update(w=["I64", [4]]),
    "dtype unknown": lambda f: f["parts"][0]["arrays"].update(w=["OBJ", [4]]),
    "dtype a list": lambda f: f["parts"][0]["arrays"].update(w=[["F64"], [4]]),
    "name other": lambda f: f["parts"][0]["arrays"].update(v=f["parts"][0]["arrays"].pop("w")),
    "arrays a list": lambda f: f["parts"][0].update(arrays=[]),
    "part twice": lambda f: f["parts"].append(f["parts"][0]),
    "parts in no order": lambda f: f["parts"].reverse(),
    "part a text": lambda f: f.update(parts=["p"]),
    "parts missing": lambda f: f.pop("parts"),
    "range empty": lambda f: f["parts"][0].update(hi=0),
    "sequence other": lambda f: f.update(sequence=1),
    "sequence text": lambda f: f.update(sequence="0"),
    "writer text": lambda f: f.update(writer="me"),
    "writer pid": lambda f: f["writer"].update(pid=1 << 60),
    "nonce": lambda f: f.update(nonce="../x"),
    "run": lambda f: f.update(run=["x"]),
    "parent": lambda f: f.update(parent={"sequence": -1, "sha256": ""}),
    "document": lambda f: f.update(document=[]),
    "kind": lambda f: f.update(kind="pickle"),
    "format": lambda f: f.update(format="streamomd-checkpoint"),
    "format name": lambda f: f["format"].update(name="zarr"),
    "features": lambda f: f.update(required_features=7),
}


@pytest.mark.parametrize("name", EDITS)
def test_edited_manifests_are_refused(run: Path, name: str) -> None:
    """A sealed manifest whose fields do not agree is refused, and by no other error."""
    change(run, EDITS[name])
    refused(run)


def test_arrays_larger_than_their_part_are_refused_by_the_manifest(run: Path) -> None:
    """Shapes are compared with the declared size before the part is looked at."""
    change(run, EDITS["shape product"])
    refused(run, match="a part: field 'arrays' is invalid")


@pytest.mark.parametrize(
    "line",
    [
        b'{"a":1,"a":1}',
        b'{"a":{"b":1,"b":2}}',
        b'{"a":NaN}',
        b"[Infinity]",
        b"[1e999]",
        b"[18446744073709551617]",
        b"[" + b"9" * 5000 + b"]",
        b"[" * 65 + b"]" * 65,
        b"[" * 200_000,
        b'{"a":' * 100_000,
        b"",
        b"nonsense",
        b'"\xff"',
        '"é"'.encode(),
        b'{"a":1}garbage',
        b"[1,]",
    ],
    ids=range(16),
)
def test_json_is_read_strictly(line: bytes) -> None:
    """Duplicate keys, NaN, huge integers, deep nesting and other bytes than ASCII are refused."""
    with pytest.raises(CorruptionError):
        parse(line)


def test_json_that_is_legal_is_read() -> None:
    """What the strict reader accepts is what was written: depth 64, 64-bit integers, floats."""
    value: Any = [2**64, -(2**63), 0.1, -0.0, "é\n\ud800", None, True, {"a": {}}]
    for _ in range(60):
        value = [value]
    assert parse(canonical(value)) == json.loads(json.dumps(value))
    with pytest.raises(UsageError, match="nested deeper"):
        seal([[[[value]]]])


def test_a_huge_manifest_is_not_read(run: Path) -> None:
    """A manifest beyond 4 MiB is refused by its size, though it were 1 TiB."""
    os.truncate(run / manifest_name(0), 1 << 40)
    refused(run, match=f"more than the {LIMIT:,}")


def test_a_huge_part_is_not_read(run: Path) -> None:
    """A part of another size than declared is refused before a byte of it is read."""
    os.truncate(next(run.glob("data/*/p000000000000*")), 1 << 40)
    refused(run, match="bytes, not")


def test_sizes_are_checked_before_memory_is_taken(run: Path) -> None:
    """Loading a manifest that declares 1 GiB for a small part needs no such memory."""
    change(run, lambda f: f["parts"][0].update(size=1 << 30))
    change(run, lambda f: f["parts"][0]["arrays"].update(w=["F64", [(1 << 27) - 64]]))
    code = (
        "import sys; sys.path.insert(0, 'tests/support')\n"
        "from checkpoint_helpers import load_all\n"
        "from streamomd.checkpoint import open_store\n"
        "import resource; limit = resource.getrlimit(resource.RLIMIT_AS)[1]\n"
        "used = int(open('/proc/self/statm').read().split()[0]) * resource.getpagesize()\n"
        "resource.setrlimit(resource.RLIMIT_AS, (used + (256 << 20), limit))\n"
        f"try: load_all(open_store({str(run)!r}))\n"
        "except Exception as error: print(type(error).__name__)\n"
    )
    assert resource.getrlimit(resource.RLIMIT_AS)[1] != 0
    root = Path(__file__).parents[2]
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=root)
    assert done.stdout.strip() == "NoCommitError", done.stderr


@pytest.mark.parametrize("place", ["part", "directory", "data", "manifest", "commits"])
def test_symbolic_links_are_not_followed(run: Path, tmp_path: Path, place: str) -> None:
    """A link anywhere below the checkpoint is refused, wherever it leads."""
    part = next(run.glob("data/*/p*"))
    link = {
        "part": part,
        "directory": part.parent,
        "data": run / "data",
        "manifest": run / manifest_name(0),
        "commits": run / "commits",
    }[place]
    link.rename(tmp_path / "moved")
    link.symlink_to(tmp_path / "moved")
    with pytest.raises(StorageError, match="cannot be used"):
        load_all(open_store(str(run)))


def test_a_pipe_does_not_hang(run: Path) -> None:
    """A named pipe in the place of a part is refused."""
    part = next(run.glob("data/*/p*"))
    part.unlink()
    os.mkfifo(part)
    with pytest.raises(StorageError, match="not a regular file"):
        load_all(open_store(str(run)))


def test_other_files_in_commits_are_no_commits(run: Path) -> None:
    """Names of another pattern are ignored."""
    for name in (".tmp-1", "7.json", "000000000009.json.bak", "00000000000x.json", "٠" * 12):
        (run / "commits" / name).write_bytes(b"x")
    assert load_all(open_store(str(run)))[0].newest == 0


def test_hostile_text_is_printed_escaped(run: Path) -> None:
    """A version that holds terminal codes does not reach the terminal as such."""
    change(run, lambda f: f.update(format=f["format"] | {"major": 2}))
    change(run, lambda f: f["versions"].update(streamomd="\x1b[31m2\u202e"))
    refused(run, match=r"newer streamomd \\x1b\[31m2\\u202e")
