"""What a person sees of a sweep: lines at doubling rows, or a table with the best marked."""

from __future__ import annotations

import io
import re
from pathlib import Path

import pytest
from rich.console import Console
from running import run
from sweeping import job, plain, shards

import streamomd
from streamomd.runs.sweep import leaderboard
from streamomd.runs.sweep.leaderboard import MOST, board, standings
from streamomd.training.progress import verbose_output


def shown(models: streamomd.runs.sweep.Sweep, title: str = "") -> list[str]:
    """The lines of a table, as wide as they like."""
    out = io.StringIO()
    Console(file=out, width=200).print(board(models, title))
    return out.getvalue().splitlines()


def test_lines_at_doubling_rows(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With how many learn, the best, median and worst of them, and who is best."""
    told = job(shards(tmp_path / "rows", 70))
    with plain(), verbose_output():
        models = streamomd.sweep(told, grid={"eta": [0.01, 0.5, 9.0, 1.0]}, halve=40)
    lines = [line.split() for line in capsys.readouterr().err.splitlines()]
    rows = [line for line in lines if len(line) > 6 and line[1].endswith("%")]
    assert [int(line[0]) for line in rows] == [1, 2, 4, 8, 16, 32, 64]
    assert [line[2] for line in rows] == ["4"] * 6 + ["2"]
    for line in rows:
        assert float(line[3]) <= float(line[4]) <= float(line[5])
        assert re.fullmatch(r"eta=[\d.]+", line[7])
    assert ["dropped", "after", "row", "40:", "2", "learners"] in lines
    assert len(models.active) == 2


def test_the_table_has_the_best_first(tmp_path: Path) -> None:
    """Marked, those that were dropped last; of very many, the best."""
    told = job(shards(tmp_path / "rows", 70))
    with plain():
        models = streamomd.sweep(
            told, grid={"eta": [0.01, 0.5, 9.0, 1.0, 0.1]}, halve=20, quiet=True
        )
        many = streamomd.sweep(told, grid={"eta": f"0.1..1:{MOST + 3}"}, quiet=True)
    lines = [line for line in shown(models, "70 rows") if "eta=" in line]
    order = [re.search(r"eta=[\d.]+", line)[0] for line in lines]  # type: ignore[index]
    assert order == [f"eta={one.chosen['eta']}" for one in standings(models)]
    assert [("best" in line, "dropped" in line) for line in lines] == [
        (True, False), (False, False), *([(False, True)] * 3)
    ]  # fmt: skip
    assert models.best is standings(models)[0].model
    assert sum("eta=" in line for line in shown(many)) == MOST
    assert any("and 3 more" in line for line in shown(many))


def test_a_terminal_gets_the_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Made anew while rows are learned, and left there at the end."""

    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    terminal = Terminal()
    with plain(), monkeypatch.context() as patch:
        patch.setattr("sys.stderr", terminal)
        patch.setattr(leaderboard, "EVERY", 0.0)
        told = job(shards(tmp_path / "rows", 70))
        streamomd.sweep(told, grid={"eta": [0.01, 0.5]})
    text = terminal.getvalue()
    assert "70 rows of 70 (100%)" in text
    assert "best" in text
    assert text.count("eta=0.5") > 3


def test_help_teaches() -> None:
    """On one screen, with four examples."""
    told = run("sweep", "--help").out
    assert len(re.findall(r"^ +streamomd sweep ", told, re.M)) == 4
    for word in ("--grid", "--halve", "a..b:n", "URL/learners", "URL/best"):
        assert word in told
