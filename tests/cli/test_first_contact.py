"""Errors of a first hour: each names what to do."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from running import run

from streamomd.core.errors import UsageError
from streamomd.core.wording import EXTRAS
from streamomd.shards.filesystem import connect
from streamomd.training import progress
from streamomd.training.metrics import Metrics


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        (("train", "a.csv", "--label", "y", "--lr", "0.1"), "Did you mean '--eta'?"),
        (("sweep", "a.csv", "--label", "y", "--grid", "rules=nag,ogd"), "did you mean 'rule'?"),
        (("train", "b.xlsx", "--label", "y"), "an Excel workbook: save the sheet as CSV"),
        (("init", "b.xlsx"), "an Excel workbook: save the sheet as CSV"),
        (("convert", "b.xlsx", "--to", "rows"), "an Excel workbook: save the sheet as CSV"),
    ],
)
def test_what_is_called_otherwise(
    command: tuple[str, ...], expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a.csv").write_text("x,y\n1,0\n2,1\n")
    Path("b.xlsx").write_bytes(b"PK\x03\x04" + bytes(200))
    more = ["--checkpoint", "run"] if command[0] in ("train", "sweep") else []
    done = run(*command, *more)
    assert done.code == 2
    assert expected in done.err


@pytest.mark.parametrize("scheme", sorted(EXTRAS))
def test_a_missing_file_system_names_its_extra(
    scheme: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for package in ("s3fs", "gcsfs", "adlfs", "huggingface_hub"):
        monkeypatch.setitem(sys.modules, package, None)
    monkeypatch.setattr("fsspec.get_filesystem_class", _missing)
    with pytest.raises(UsageError, match=rf"pip install 'streamomd\[{EXTRAS[scheme]}\]'"):
        connect(f"{scheme}://bucket/rows", {})


def _missing(scheme: str) -> None:
    raise ImportError(f"Install what {scheme} needs")


def test_a_long_run_prints_few_lines_to_a_log(monkeypatch: pytest.MonkeyPatch) -> None:
    """Six hours at 100,000 rows a second: at most 8 lines after the head."""
    lines: list[int] = []

    def show(self: Any, metrics: Any) -> None:
        lines.append(metrics.total_rows)
        self._shown = metrics.total_rows
        self._at(metrics.total_rows)

    monkeypatch.setattr(progress.LineProgress, "_print", show)
    clock = [0.0]
    monkeypatch.setattr("time.monotonic", lambda: clock[0])
    shown = progress.LineProgress(Metrics(classifies=False), 0, None)
    for second in range(1, 6 * 3600):
        clock[0] += 1.0
        shown.update(SimpleNamespace(total_rows=100_000 * second))
    shown.finish(SimpleNamespace(total_rows=100_000 * 6 * 3600))
    assert 4 <= len(lines) <= 8
    assert lines[-1] == 100_000 * 6 * 3600
