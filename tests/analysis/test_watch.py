"""Watching a run from another process: its output, its end, and that nothing is written."""

from __future__ import annotations

import re
import shutil
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from running import everything, run, shards, train
from terminal import MODULE, on_a_terminal, plain

import streamomd
from streamomd.analysis import watch
from streamomd.analysis.history import Commit, speeds
from streamomd.core.errors import StorageError


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Three shards of 40 rows."""
    shards(tmp_path / "data")
    return tmp_path / "data"


def kept(data: Path, url: Path, epochs: int) -> dict[str, Any]:
    """The result of a run that commits after every 40 rows, and keeps all of it."""
    often = ["--set", "checkpoint.every_rows=40", "--set", "checkpoint.keep=100"]
    return train(data, *everything(), "--epochs", epochs, *often, "--checkpoint", url)


def untouched(folder: Path) -> list[tuple[str, int]]:
    return sorted((str(path), path.stat().st_mtime_ns) for path in folder.rglob("*"))


def test_once(data: Path, tmp_path: Path) -> None:
    """A finished run in some lines, and as JSON: the figures of its result. Nothing is written."""
    result = kept(data, tmp_path / "run", 2)
    before = untouched(tmp_path)
    done = run("watch", tmp_path / "run", "--once", "--json")
    assert untouched(tmp_path) == before
    found = done.result
    for key in ("rows", "loss", "error", "skipped"):
        assert found[key] == result[key]
    assert (found["expected"], found["finished"]) == (240, True)
    assert found["commit"]["sequence"] == result["checkpoint"]["sequence"]
    assert found["rows_per_second"] > 0.0
    top = streamomd.load(str(tmp_path / "run")).inspect(10)
    assert [one["name"] for one in found["top"]] == [one["name"] for one in top]
    assert re.search(r"run: commit \d+, .*, finished\nrows 240 of 240 \(100%\)", done.out)
    assert run("watch", tmp_path / "run", "--once", "--json", "--top", 0).result["top"] == []


def test_it_waits_and_continues_to_the_end(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before the first commit it says so; then it reports each commit and the change, and ends."""
    monkeypatch.setattr(watch.time, "sleep", lambda _: None)
    result = kept(data, tmp_path / "whole", 2)
    shutil.copytree(tmp_path / "whole", tmp_path / "run")
    commits = sorted((tmp_path / "run" / "commits").iterdir())
    written = [(path, path.read_bytes()) for path in commits]
    for path in commits:
        path.unlink()
    views = watch.views(str(tmp_path / "run"))
    first = next(views)
    assert first.problem.startswith("waiting: no commit")
    before, seen = 0, []
    for path, manifest in written:
        path.write_bytes(manifest)
        view = next(views)
        assert view.problem == ""
        if view.sums[0] > before:  # else what came last still is what came last
            assert view.since[0] == pytest.approx(view.sums[0] - before)
        before = view.sums[0]
        seen.append(view.rows)
        if not view.finished:
            assert next(views).figures() == view.figures()
    assert seen == [0, 40, 80, 120, 160, 200, 240, 240][: len(seen)]
    assert view.figures()["loss"] == pytest.approx(result["loss"])
    assert list(views) == []


def test_a_store_that_fails_is_asked_again(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its error is reported together with the last known state."""
    kept(data, tmp_path / "run", 1)
    monkeypatch.setattr(watch.time, "sleep", lambda _: None)
    real, broken = watch.open_store, iter([True, False])

    def opened(url: str, options: Any) -> Any:
        if next(broken):
            raise StorageError("the store is away")
        return real(url, options)

    monkeypatch.setattr(watch, "open_store", opened)
    problem = [view.problem for view in watch.views(str(tmp_path / "run"))]
    assert problem == ["retrying: the store is away", ""]


def test_once_reports_errors(tmp_path: Path) -> None:
    """Where there is nothing: exit code 4; an id without a scheduler: 2."""
    assert run("watch", tmp_path / "none", "--once").code == 4
    done = run("watch", "omd-job-1a2b3c4d", "--once")
    assert done.code == 2
    assert "--scheduler" in done.err


def test_ctrl_c_leaves_the_run_alone(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Exit code 130, and a message that the run continues."""

    def pressed(_: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(watch.time, "sleep", pressed)
    done = run("watch", tmp_path / "none")
    assert done.code == 130
    assert "waiting: no commit" in done.out
    assert "the run continues" in done.err


@pytest.mark.slow
def test_on_a_terminal_it_stays_in_place(data: Path, tmp_path: Path) -> None:
    """One block, drawn over itself; names cannot send codes to the terminal."""
    kept(data, tmp_path / "run", 1)
    words = [*MODULE, "watch", str(tmp_path / "run")]
    shell = ["bash", "-c", '"$@" >&2', "bash", *words]  # the terminal is on stderr
    code, _, seen = on_a_terminal(shell)
    assert code == 0
    assert "rows 120 of 120 (100%)" in plain(seen)
    assert "\x1b[?25h" in seen


def test_a_block_is_reported_once(capsys: pytest.CaptureFixture[str]) -> None:
    """Without a terminal, an unchanged view is not printed again."""
    first = watch.View("run", rows=1)
    last = watch.View("run", rows=2)
    assert watch.show_views(iter([first, first, last, last])) is last
    assert capsys.readouterr().out.count("rows ") == 2


def test_speed_between_commits() -> None:
    """Rows by seconds, where both have passed."""
    start = datetime(2026, 11, 22, 4, 0, 0, 500_000, tzinfo=UTC)
    seconds, rows = (0.0, 0.25, 2.25, 2.25, 3.25), (0, 100, 1100, 1200, 1200)
    commits = tuple(
        Commit(at, count, start + timedelta(seconds=later), 0)
        for at, (later, count) in enumerate(zip(seconds, rows, strict=True))
    )
    assert [(one.sequence, pace) for one, pace in speeds(commits)] == [(1, 400.0), (2, 500.0)]


def test_before_the_first_rows_it_says_when_they_are_due(data: Path, tmp_path: Path) -> None:
    """By the job's intervals, while the newest commit has no rows."""
    kept(data, tmp_path / "run", 1)
    for path in (tmp_path / "run" / "commits").iterdir():
        if path.name != "000000000000.json":
            path.unlink()
    done = run("watch", tmp_path / "run", "--once")
    assert re.search(
        r"no rows committed yet; the next commit is due after row 40 or about \d\d:\d\d:\d\d UTC "
        r"\(checkpoint.every_seconds = 60\), or at the end",
        done.out,
    )


def test_a_log_is_newer_than_the_commits(data: Path, tmp_path: Path) -> None:
    """Figures of its last line, unless a commit has more rows; other lines are ignored."""
    log = tmp_path / "run.jsonl"
    result = train(data, *everything(), "--checkpoint", tmp_path / "run", "--log", log)
    with log.open("a") as file:
        file.write('{"event": "progress", "rows": 900, "loss": "x", "error": 0, "rate": 1}\n')
        file.write('{"event": "commit"}\n[]\n7\n\x00\n{"event": "prog')
    for path in (tmp_path / "run" / "commits").iterdir():
        if path.name != "000000000000.json":
            path.unlink()
    words = ["watch", tmp_path / "run", "--once", "--log", log]
    found = run(*words, "--json").result
    assert found["rows"] == result["rows"]
    assert found["loss"] == pytest.approx(result["loss"])
    assert found["error"] == pytest.approx(result["error"])
    text = run(*words).out
    assert "rows 120 of 120" in text
    assert "no rows committed yet" not in text
    view = replace(watch.View("run"), rows=500)
    assert watch.with_log(view, str(log)) is view
    (tmp_path / "empty").write_text("")
    assert watch.with_log(view, str(tmp_path / "empty")) is view
    assert run("watch", tmp_path / "run", "--once", "--log", tmp_path / "none").code == 2
