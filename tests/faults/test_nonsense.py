"""A manifest whose hash is right and whose words make no sense: refused by name, nothing else."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from running import everything, rows, run, train, write

import streamomd
from streamomd.checkpoint.sealed_json import seal, unseal
from streamomd.core.errors import NoCommitError, StreamomdError

NONSENSE = (None, -1, 2**62, "x", [], {}, ...)  # ...: the key is left out


@pytest.fixture
def manifest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only manifest of a run."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("streamomd.engine.state.CHUNK_BYTES", 1 << 13)
    write(tmp_path / "data" / "a.parquet", rows(20))
    train("data", *everything(), "--checkpoint", "kept", "--set", "checkpoint.keep=1")
    [found] = (tmp_path / "kept" / "commits").iterdir()
    return found


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Every key of nested JSON; of a list the first item alone."""
    inner = value.items() if isinstance(value, dict) else enumerate(value[:1])
    for key, child in inner if isinstance(value, dict | list) else ():
        yield (*path, key)
        yield from places(child, (*path, key)) if isinstance(child, dict | list) else ()


def test_nonsense_in_any_place_is_refused_by_name(manifest: Path) -> None:
    """Each key of the model's document, of each wrong kind or left out: loads, or a named error."""
    fields, _ = unseal(manifest.read_bytes())
    refused: list[int] = []
    for place in places(fields["document"]):
        for nonsense in NONSENSE:
            edited = copy.deepcopy(fields)
            inner = edited["document"]
            for key in place[:-1]:
                inner = inner[key]
            if nonsense is ...:
                del inner[place[-1]]
            else:
                inner[place[-1]] = nonsense
            manifest.write_bytes(seal(edited))
            try:
                streamomd.load("kept")
            except StreamomdError as error:
                refused.append(error.exit_code)
    assert len(refused) > 100
    assert set(refused) <= {2, 4}


@pytest.mark.parametrize("key", ["job", "plan", "cursor", "finished", "names"])
def test_a_document_without_a_word_it_needs_is_no_usable_commit(manifest: Path, key: str) -> None:
    """It is exit 4 on the command line, in one line."""
    fields, _ = unseal(manifest.read_bytes())
    del fields["document"][key]
    manifest.write_bytes(seal(fields))
    done = run("inspect", "kept")
    assert done.code == 4
    assert len(done.err.splitlines()) == 1


def test_parts_that_leave_coordinates_out_are_refused(manifest: Path) -> None:
    """A model is never filled up with zeros for a part that its manifest does not name."""
    fields, _ = unseal(manifest.read_bytes())
    parts = fields["parts"]
    assert len(parts) > 2
    for gone in range(len(parts)):
        manifest.write_bytes(seal({**fields, "parts": parts[:gone] + parts[gone + 1 :]}))
        with pytest.raises(NoCommitError, match="in order"):
            streamomd.load("kept")
