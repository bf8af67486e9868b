"""A manifest whose hash is right and whose words make no sense: refused by name, nothing else."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from running import everything, rows, run, shards, train, write

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


@pytest.fixture(scope="module")
def small_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with shards and the checkpoint of a run on them, of one commit."""
    folder = tmp_path_factory.mktemp("small")
    shards(folder / "data")
    assert run("train", folder / "data", *everything(), "--checkpoint", folder / "run").code == 0
    first, _ = sorted((folder / "run/commits").iterdir())
    first.unlink()
    return folder


OF_COMMANDS: dict[str, Any] = {
    "rows is text": (("rows",), "x"),
    "rows is nothing": (("rows",), None),
    "rows is missing": (("rows",), ...),
    "rows is too large": (("rows",), 1e300),
    "types without a column": (("plan", "types", 4), ["z", "string", "string"]),
    "an unhashable family": (("plan", "types", 2, 2), [[]]),
    "a family that is a number": (("plan", "types", 4, 2), 1),
    "a cross of nothing": (("plan", "crosses"), [[]]),
    "limits that are text": (("plan", "limits", 1), "x"),
    "a least label that is no number": (("plan", "least_label"), []),
    "a seed that is too large": (("plan", "hash_seed"), 1 << 40),
    "an unhashable class": (("plan", "classes", 0), []),
    "classes of two kinds": (("plan", "classes", 0), "x"),
    "a text of no runs": (("plan", "text"), [["h", [], "count"]]),
    "a date of unknown parts": (("plan", "dates"), [["h", ["century"]]]),
    "no classes": (("plan", "classes"), []),
    "a label type that is no text": (("plan", "label_type"), None),
    "no shards": (("job", "data", "shards"), []),
}


@pytest.mark.parametrize("case", OF_COMMANDS)
def test_a_manifest_that_makes_no_sense(case: str, small_run: Path) -> None:
    """Its hash is right, its document is not: every command that reads it ends with an error of
    streamomd's, or reads what is right of it."""
    place, value = OF_COMMANDS[case]
    (manifest,) = (small_run / "run/commits").iterdir()
    before = manifest.read_bytes()
    fields, _ = unseal(before)
    at = fields["document"]
    for key in place[:-1]:
        at = at[key]
    if value is ...:
        del at[place[-1]]
    else:
        at[place[-1]] = value
    manifest.write_bytes(seal(fields))
    url, data = small_run / "run", small_run / "data"
    try:
        for words in (
            ("checkpoint", "list", url),
            ("watch", url, "--once"),
            ("predict", url, data, "--to", small_run / "to", "--overwrite"),
            ("evaluate", url, data),
            ("report", url, "-o", small_run / "r.html", "--overwrite"),
            ("export", url, "--as", "parquet", "-o", small_run / "w.parquet", "--overwrite"),
        ):
            done = run(*words)
            assert done.code in {0, 2, 4}
            assert "inf" not in done.out.split()
    finally:
        manifest.write_bytes(before)


@pytest.mark.parametrize("words", [("predict", "run", "data"), ("convert", "data")])
def test_a_web_server_is_no_output(words: tuple[str, ...], small_run: Path) -> None:
    """It can only be read: the error says so before anything is done."""
    verb, *rest = words
    done = run(verb, *(small_run / one for one in rest), "--to", "http://127.0.0.1:1/x")
    assert done.code == 2
    assert "on a web server, which can only be read" in done.err
