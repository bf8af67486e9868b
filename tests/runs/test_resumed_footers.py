"""A run that is resumed reads the footers of changed shards alone, before its first row."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from found_footers import note_footers
from killing import Folder, newest
from running import everything, rows, run, train, write

from streamomd.checkpoint import Ledger, segments
from streamomd.checkpoint.segments import TYPES

SHARDS, ROWS = 4, 200
FIGURES = ("rows", "loss", "error", "epochs", "skipped", "state_sha256")


@pytest.fixture
def footers(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    return note_footers(monkeypatch)


def fill(folder: Path, first: int = 0, shards: int = SHARDS) -> Path:
    for place in range(first, first + shards):
        write(folder / f"{place}.parquet", rows(ROWS, first=place), row_group_size=30)
    return folder


def words(shards: object, url: Path, *more: str) -> list[str]:
    keys = ["checkpoint.every_rows=100", "checkpoint.every_seconds=0", "checkpoint.keep=99"]
    sets = [word for key in keys for word in ("--set", key)]
    return [str(shards), *everything(), *sets, "--checkpoint", str(url), *more]


def figures(found: dict[str, Any]) -> dict[str, Any]:
    return {key: found[key] for key in FIGURES}


def cut(url: Path, after: int) -> None:
    """Leave a run as it was when it had learned ``after`` rows."""
    for path in sorted((url / "commits").glob("*.json"), reverse=True):
        if document(path)["rows"] == after:
            return
        path.unlink()
    raise AssertionError("no such commit")


def document(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(path.read_text().splitlines()[0])["document"]
    return found


def last_document(url: Path) -> dict[str, Any]:
    return document(max((url / "commits").iterdir()))


def test_an_unchanged_run_reads_none(
    tmp_path: Path, footers: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """To the same bits; and its ledger has no new fact of a shard."""
    url = tmp_path / "run"
    undisturbed = figures(train(*words(fill(tmp_path / "data"), url)))
    assert sorted(footers) == [f"{at}.parquet" for at in range(SHARDS)]
    cut(url, 300)
    changed: list[Any] = []
    monkeypatch.setattr(Ledger, "change", lambda self, facts: changed.append(facts))
    footers.clear()
    assert figures(run("resume", url, "--json").result) == undisturbed
    assert footers == []
    assert changed == [{}]


def test_the_footer_of_a_touched_shard_is_read_and_compared(
    tmp_path: Path, footers: list[str]
) -> None:
    url = tmp_path / "run"
    undisturbed = figures(train(*words(fill(tmp_path / "data"), url)))
    cut(url, 300)
    os.utime(tmp_path / "data/2.parquet", ns=(7, 7))
    footers.clear()
    done = run("resume", url, "--json")
    assert figures(done.result) == undisturbed
    assert footers == ["2.parquet"]
    assert "2.parquet: copied or touched" in done.err
    cut(url, 700)  # which has the new time
    footers.clear()
    assert figures(run("resume", url, "--json").result) == undisturbed
    assert footers == []


@pytest.mark.parametrize("learned", [0, 3])
def test_a_changed_shard_is_refused_before_the_first_row(
    learned: int, tmp_path: Path, footers: list[str]
) -> None:
    """Exit 3 names it, whether its rows were learned or come later; nothing is committed."""
    url = tmp_path / "run"
    train(*words(fill(tmp_path / "data"), url))
    cut(url, 300)
    write(tmp_path / f"data/{learned}.parquet", rows(ROWS, first=50), row_group_size=30)
    last = newest(Folder(str(url)))
    footers.clear()
    refused = run("resume", url, "--json")
    assert refused.code == 3
    assert f"{learned}.parquet: " in refused.err
    assert footers == [f"{learned}.parquet"]
    assert newest(Folder(str(url))) == last


def test_equal_size_and_time_do_not_hide_a_change(tmp_path: Path, footers: list[str]) -> None:
    """A shard of other rows is refused when it is opened; no commit has one of them."""
    url, path = tmp_path / "run", tmp_path / "data/3.parquet"
    undisturbed = figures(train(*words(fill(tmp_path / "data"), url)))
    cut(url, 300)
    data, before = path.read_bytes(), os.stat(path)
    changed = bytearray(data)
    changed[-20] ^= 1  # a byte of the footer
    path.write_bytes(changed)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    footers.clear()
    refused = run("resume", url, "--json")
    assert refused.code == 3
    assert "3.parquet was replaced since this run recorded it" in refused.err
    assert footers == []
    assert last_document(url)["rows"] <= 3 * ROWS
    path.write_bytes(data)
    assert figures(run("resume", url, "--json").result) == undisturbed


def test_a_run_of_an_earlier_version_reads_them_once(
    tmp_path: Path, footers: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its ledger has no types and three row groups; the first commit has the rest."""
    url = tmp_path / "run"
    with monkeypatch.context() as earlier:
        own = segments.shorten_facts

        def without(facts: Any) -> Any:
            return {
                key: one for key, one in own(facts).items() if key not in (TYPES, segments.LATER)
            }

        earlier.setattr("streamomd.checkpoint.ledger.shorten_facts", without)
        undisturbed = figures(train(*words(fill(tmp_path / "data"), url)))
    for after in (300, 500):
        cut(url, after)
        footers.clear()
        assert figures(run("resume", url, "--json").result) == undisturbed
        assert len(footers) == (SHARDS if after == 300 else 0)


def test_an_unfinished_update_reads_none(tmp_path: Path, footers: list[str]) -> None:
    """Nor do more epochs over all lists."""
    url, data = tmp_path / "run", fill(tmp_path / "data")
    train(*words(data, url))
    fill(data, SHARDS, 2)
    undisturbed = figures(run("update", url, "--settle", "0", "--json").result)
    cut(url, SHARDS * ROWS + 100)
    footers.clear()
    assert figures(run("resume", url, "--json").result) == undisturbed
    assert footers == []
    cut(url, SHARDS * ROWS + 100)
    assert figures(run("update", url, "--settle", "0", "--json").result) == undisturbed
    assert footers == []
    assert run("resume", url, "--epochs", "2", "--json").result["rows"] == 2 * (SHARDS + 2) * ROWS
    assert footers == []


def test_a_resumed_sweep_reads_none(tmp_path: Path, footers: list[str]) -> None:
    url = tmp_path / "sweep"
    grid = ["--grid", "eta=0.1,1"]
    sweep = ["sweep", *words(fill(tmp_path / "data"), url), *grid]
    undisturbed = run(*sweep, "--json").result
    cut(url, 300)
    footers.clear()
    resumed = run("resume", url, "--json").result
    for was, now in zip(undisturbed["learners"], resumed["learners"], strict=True):
        assert now["state_sha256"] == was["state_sha256"]
    assert footers == []


@pytest.mark.parametrize(("where", "count"), [("day >= 1", 0), ("day >= 1 and k > 0", 2 * SHARDS)])
def test_a_filter_of_directories_needs_none(
    where: str, count: int, tmp_path: Path, footers: list[str]
) -> None:
    """Bounds of stored columns are in footers alone."""
    url = tmp_path / "run"
    for day in range(2):
        fill(tmp_path / f"data/day={day}")
    given = words(tmp_path / "data", url, "--set", f'data.where="{where}"')
    undisturbed = train(*given)
    found = sorted(document(one)["rows"] for one in (url / "commits").iterdir())
    cut(url, found[len(found) // 2])
    footers.clear()
    again = run("resume", url, "--json").result
    assert figures(again) == figures(undisturbed)
    assert again["filtered"] == undisturbed["filtered"]
    assert len(footers) == count
