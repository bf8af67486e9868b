"""``--log-format json``: every line of stderr is one JSON object, whatever prints it."""

from __future__ import annotations

import ast
import io
import json
import logging
import re
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest
from running import Ran, everything, rows, run, write

from streamomd.cli import main
from streamomd.core.errors import StorageError
from streamomd.core.run_events import LEVELS, Event, JsonLog, emit, json_line, name_run, one_run
from streamomd.training.checkpoint_manager import CheckpointManager
from streamomd.training.progress import json_messages, note, quiet_notes

DOCS = Path(__file__).parents[2] / "docs" / "monitoring.md"
HEAD = ["time", "level", "event", "run"]


def lines(done: Ran) -> list[dict[str, Any]]:
    """The events of stderr, each with its head."""
    found = [json.loads(line) for line in done.err.splitlines()]
    for line in found:
        assert [*line][:4] == HEAD
        assert line["level"] in LEVELS[1:]
    return found


@pytest.fixture
def data(tmp_path: Path) -> Path:
    write(tmp_path / "data" / "a.parquet", rows(120))
    return tmp_path / "data"


def commands(group: click.Group) -> list[click.Command]:
    found = [commands(one) if isinstance(one, click.Group) else [one]
             for one in group.commands.values()]  # fmt: skip
    return [one for some in found for one in some]


def test_every_command_has_the_option() -> None:
    """Those that print a result, and the server; completion scripts are of click."""
    without = {
        one.name for one in commands(main) if "log_format" not in {p.name for p in one.params}
    }
    assert without <= {"completion"}


def test_a_run_reports_progress_commits_and_messages(data: Path, tmp_path: Path) -> None:
    """The same numbers as the result; stdout is as without the option; the run has its URL."""
    url = tmp_path / "run"
    words = ["train", data, *everything(), "--checkpoint", url, "--set", "checkpoint.every_rows=40"]
    done = run(*words, "--json", "--log-format", "json")
    result, found = done.result, lines(done)
    plain = run(*words, "--json", "--restart")
    assert plain.result["state_sha256"] == result["state_sha256"]
    progress = [line for line in found if line["event"] == "progress"]
    assert [line["rows"] for line in progress] == [1, 2, 4, 8, 16, 32, 64, 120]
    assert progress[-1]["loss"] == result["loss"]
    commits = [line for line in found if line["event"] == "commit"]
    assert [line["sequence"] for line in commits] == [*range(result["checkpoint"]["sequence"] + 1)]
    assert commits[-1]["rows"] == 120
    assert {line["run"] for line in commits} == {str(url)}
    assert any("label" in line.get("message", "") for line in found)
    resumed = lines(run("resume", url, "--epochs", 2, "--log-format=json"))
    (line,) = [line for line in resumed if line["event"] == "resumed"]
    assert (line["rows"], line["level"]) == (120, "info")


def test_errors_are_lines_too(data: Path, tmp_path: Path) -> None:
    """Of the job, of the arguments before and after a command, and defects with their traceback."""
    for words, code in (
        (["train", data, "--label", "z"], 2),
        (["train", data, "--lable", "y"], 2),
        (["train"], 2),
        (["trian", data], 2),
        (["resume", tmp_path / "none"], 4),
        (["evaluate", tmp_path / "none", data], 4),
    ):
        done = run(*words, "--log-format", "json")
        assert (done.code, done.out) == (code, ""), words
        (*_, last) = lines(done)
        assert (last["level"], last["event"], last["exit_code"]) == ("error", "error", code)
        assert last["message"]
    (*_, last) = lines(run("train", data, "--label", "z", "--log-format", "json"))
    assert (last["code"], last["column"]) == ("missing_column", "z")
    assert run("train", data, "--log-format", "xml").code == 2


def test_a_defect_is_a_line_with_its_traceback(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object, **__: object) -> None:
        raise ZeroDivisionError("a defect")

    monkeypatch.setattr("streamomd.runs.train.train", fails)
    done = run("train", data, "--log-format", "json")
    (line,) = lines(done)
    assert (done.code, line["exit_code"]) == (1, 1)
    assert "ZeroDivisionError: a defect" in line["message"]


def test_what_other_libraries_print_is_a_line(
    data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Warnings, logging and prints, whole lines or not; afterwards stderr is what it was."""
    before = sys.stderr
    with json_messages():
        print("two\nlines", file=sys.stderr)
        print("s3://key:CANARY@bucket/x?sig=CANARY", file=sys.stderr)
        sys.stderr.write(warnings.formatwarning("watch out", UserWarning, "f.py", 1))
        handler = logging.StreamHandler(sys.stderr)
        handler.emit(logging.LogRecord("x", 30, "f", 1, "logged", (), None))
        sys.stderr.write("no line end")
        assert not sys.stderr.isatty()
    assert sys.stderr is before
    found = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert {(line["event"], line["level"]) for line in found} == {("output", "warning")}
    text = " ".join(line["message"] for line in found)
    assert "CANARY" not in text
    for word in ("two", "lines", "watch out", "logged", "no line end"):
        assert word in text


def test_quiet_is_quiet(capsys: pytest.CaptureFixture[str]) -> None:
    with json_messages(), quiet_notes(True):
        note("nothing")
        emit("commit", sequence=1)
    assert capsys.readouterr().err == ""


def test_lines_are_legal_json_for_any_value() -> None:
    """Numbers that are not finite, control characters, surrogates, nested figures."""
    fields = {"loss": float("nan"), "update": {"loss": float("inf"), "rows": [1.0, -float("inf")]}}
    with one_run():
        name_run("none")
        event = Event("progress", "info", "", "a\x1b[31m\nb\udc80", fields)
    line = json.loads(json_line(event), parse_constant=lambda name: pytest.fail(name))
    assert line["loss"] is None
    assert line["update"] == {"loss": None, "rows": [1.0, None]}
    assert "\x1b" not in line["message"]
    assert line["run"] is None
    assert "\n" not in json_line(event)


def test_a_log_that_becomes_full_ends_no_run(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The end of the run reports it."""

    class Full(io.StringIO):
        def write(self, text: str) -> int:
            raise OSError(28, "No space left on device")

    init = JsonLog.__init__

    def full(self: JsonLog, path: str) -> None:
        init(self, path)
        self._file.close()
        self._file = Full()

    monkeypatch.setattr(JsonLog, "__init__", full)
    done = run("train", data, *everything(), "--checkpoint", "none", "--log", tmp_path / "log")
    assert done.code == 0
    assert "is incomplete: No space left on device" in done.err


def test_a_failed_commit_is_a_warning(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the log of --log as on stderr, with the last good commit."""
    write_commit, count = CheckpointManager._write, [0]

    def fails(self: CheckpointManager, *given: Any) -> Any:
        count[0] += 1
        if count[0] == 1:
            raise StorageError("the disk does not answer")
        return write_commit(self, *given)

    monkeypatch.setattr(CheckpointManager, "_write", fails)
    log = tmp_path / "log"
    words = ["train", data, *everything(), "--checkpoint", tmp_path / "run", "--log", log,
             "--set", "checkpoint.every_rows=40", "--log-format", "json"]  # fmt: skip
    done = run(*words)
    assert done.code == 0
    logged = [json.loads(line) for line in log.read_text().splitlines()]
    for found in (lines(done), logged):
        (line,) = [line for line in found if line["event"] == "commit_failed"]
        assert (line["level"], line["last"]) == ("warning", 0)
    assert "message" not in {line["event"] for line in logged}


def test_every_event_of_the_source_is_documented() -> None:
    """The table of docs/monitoring.md has each name, and no other."""
    text = DOCS.read_text("utf-8").split("## JSON lines")[1].split("## What a recovery")[0]
    table = text.split("| event | level |")[1]
    listed = {
        name for row in re.findall(r"^\| (`.*?) \| ", table, re.M)
        for name in re.findall(r"`(\w+)`", row)
    }  # fmt: skip
    names = {"message", "worker_lost", "worker_left", "stopping", "stopped", "error", "output"}
    for file in (DOCS.parents[1] / "streamomd").rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            names |= {*event_name(node)}
    assert listed == names


def event_name(node: ast.AST) -> Iterator[str]:
    """The event of a call of ``note`` or ``emit`` that names one; those of debug are in no log."""
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
        return
    place = {"note": 1, "emit": 0}.get(node.func.id)
    words = [one.value if isinstance(one, ast.Constant) else "" for one in node.args]
    if place is not None and len(words) > place and "debug" not in words and words[place]:
        yield str(words[place])
