"""Progress: what a person sees on a terminal, in a file and in a pipe that nobody reads."""

from __future__ import annotations

import io
import re
import subprocess
import sys
import threading
import types
from pathlib import Path

import pytest
from running import everything, rows, run, write
from terminal import MODULE, on_a_terminal, plain

import streamomd
from streamomd.core import run_events
from streamomd.training import progress as progress_module
from streamomd.training import progress_bars
from streamomd.training.metrics import Metrics
from streamomd.training.progress_bars import ProgressBar

HEAD = ["rows", "done", "loss", "since", "last", "error", "rows/s"]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Five shards of unlike size, 300 rows in all, in row groups of 7."""
    sizes = [1, 59, 140, 0, 100]
    for place, size in enumerate(sizes):
        shard = rows(size, first=place)
        write(tmp_path / "data" / f"{place}.parquet", shard, row_group_size=7)
    return tmp_path / "data"


def command(data: Path, *more: object) -> list[str]:
    words = ["train", data, *everything(), "--checkpoint", "none", *more]
    return [*MODULE, *map(str, words)]


def table(err: str) -> list[list[str]]:
    """The words of each line of figures."""
    lines = [line.split() for line in err.splitlines()]
    return lines[lines.index(HEAD) + 1 :]


def doubling(last: int, first: int = 0) -> list[int]:
    counts = [1 << power for power in range(40) if first < 1 << power < last]
    return [*counts, last]


@pytest.mark.parametrize("prefetch", [1, 160])
@pytest.mark.parametrize("every", [0, 13])
@pytest.mark.sample(2)
def test_lines_at_doubling_rows(every: int, prefetch: int, data: Path) -> None:
    """Off a terminal: a line at exactly 1, 2, 4, … rows over all epochs, and one at the end."""
    sets = ["--set", f"train.prefetch={prefetch}", "--set", f"checkpoint.every_rows={every}"]
    kept = ["--checkpoint", data.parent / "kept"]
    done = run("train", data, *everything(), "--epochs", "2", *sets, *kept, "--verbose")
    lines = table(done.err)
    assert [line[0] for line in lines] == [str(count) for count in doubling(600)]
    assert [len(line) for line in lines] == [6] * len(lines)
    assert lines[-1][1] == "100%"
    assert float(lines[-1][2]) == pytest.approx(
        run("resume", data.parent / "kept", "--json").result["loss"], abs=1e-6
    )
    assert float(lines[0][2]) == float(lines[0][3]) == pytest.approx(0.693147)


def test_a_last_line_is_not_told_twice(data: Path) -> None:
    """Where the rows end at a power of two there is one line of them."""
    shard = write(data.parent / "b" / "b.parquet", rows(64))
    lines = table(run("train", shard, *everything(), "--checkpoint", "none", "-v").err)
    assert [line[0] for line in lines] == [str(count) for count in doubling(64)]


def test_lines_go_on_after_a_resume(data: Path) -> None:
    """A resumed run tells at the powers of two above the rows it begins with."""
    run("train", data, *everything(), "--checkpoint", data.parent / "kept")
    done = run("resume", data.parent / "kept", "--set", "train.epochs=5", "--verbose")
    assert [line[0] for line in table(done.err)] == ["512", "1,024", "1,500"]


def test_evaluate_tells_its_progress(data: Path) -> None:
    """Evaluation tells the rows it has seen, ending with all of them."""
    run("train", data, *everything(), "--checkpoint", data.parent / "kept")
    done = run("evaluate", data.parent / "kept", data, "--verbose")
    assert [line[0] for line in table(done.err)][-1] == "300"


def test_bar_on_a_terminal(data: Path) -> None:
    """On a terminal: a bar with rows, share, loss so far and since last, rows/s and time left."""
    code, out, seen = on_a_terminal(command(data, "--json"))
    assert code == 0
    assert len(out.splitlines()) == 1
    last = plain(seen).strip().splitlines()[-1]
    assert re.search(
        r"━+ 100% ETA \d+:\d\d:\d\d 300 rows, loss \d\.\d{6}, last \d\.\d{6}, [\d,]+ rows/s", last
    )
    assert "\x1b[?25l" in seen
    assert seen.rindex("\x1b[?25h") > seen.rindex("\x1b[?25l")


@pytest.mark.parametrize("held", [0, 1000])
def test_a_narrow_bar_is_a_line(held: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """In 80 columns: bar, share, time left, rows, loss and speed in a line; more is cut off."""
    monkeypatch.setenv("COLUMNS", "80")
    metrics = Metrics(classifies=True)
    if held:
        metrics.held = Metrics(classifies=True)
    metrics.begin(0)
    if metrics.held is not None:
        metrics.held.count(held)
    bar = ProgressBar(metrics, 20_000_000, (out := io.StringIO()))
    metrics.count(1_400_000)
    metrics.current[:] = 1.0, 0.25, 0.0
    bar.update(metrics)
    bar.close()
    line = plain(out.getvalue()).rstrip().splitlines()[-1]
    assert len(line) <= 80
    assert re.match(
        r"[━╸ ]{12} +7% ETA [-\d]+:[-\d]+:[-\d]+ 1,400,000 rows, loss 0\.250000, [\d,]+", line
    )
    assert line.endswith("…") or not held


def test_a_bar_that_ends_without_new_rows_keeps_its_last_loss(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Where the last look fell on the last row there are no rows since; what was told stands."""
    monkeypatch.setenv("COLUMNS", "100")
    metrics = Metrics(classifies=True)
    metrics.begin(0)
    bar = ProgressBar(metrics, 1, (out := io.StringIO()))
    metrics.count(1)
    metrics.current[:] = 1.0, 0.25, 0.0
    bar.update(metrics)
    bar.finish(metrics)
    bar.close()
    assert re.search(r"loss 0\.250000, last 0\.250000,", out.getvalue())


@pytest.mark.slow
def test_a_terminal_of_80_columns(data: Path) -> None:
    """The bar is there, no line is longer, and phases are shown until it is."""
    code, _, seen = on_a_terminal(command(data, "--epochs", "3"), columns=80)
    assert code == 0
    turns = plain(seen).splitlines()
    bars = [turn for turn in turns if "━" in turn]
    assert bars
    assert all(len(turn) <= 80 for turn in bars)
    assert re.match(r"━{12} 100% ETA \d:\d\d:\d\d 900 rows, loss", bars[-1].strip())
    names = [turn for turn in turns if turn.endswith(" …")]
    assert list(dict.fromkeys(names)) == [
        "starting …", "listing files …", "listing 5 files …", "compiling …",
    ]  # fmt: skip
    assert not any(" …" in turn and not turn.endswith("…") for turn in turns)


def test_a_short_run_in_a_pipe_has_eight_lines(tmp_path: Path) -> None:
    """Off a terminal: the columns, the rule and the result; no table of progress."""
    write(tmp_path / "data" / "a.parquet", rows(90), write_page_checksum=True)
    ignored = 'data.ignore=["c", "k", "i", "v"]'
    flags = ["--label", "y", "--weight", "w", "--numeric", "n", "--hashed", "h", "--set", ignored]
    words = [*MODULE, "train", str(tmp_path / "data"), *flags, "--checkpoint", str(tmp_path / "r")]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    assert len(done.stderr.splitlines()) + len(done.stdout.splitlines()) <= 8
    assert len(done.stdout.splitlines()) <= 5
    assert done.stdout.splitlines()[-1].startswith("next: streamomd report")
    assert "since last" not in done.stderr


def test_a_long_run_has_lines(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once the first seconds have passed: from the next doubling row on, with the head before."""
    monkeypatch.setattr(progress_module, "LINE_SECONDS", 0.0)
    done = run("train", data, *everything(), "--checkpoint", "none")
    assert table(done.err)[-1][0] == "300"


def test_phases_off_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that lasts is reported on a line; a short one is not, and none outside a command."""
    written = threading.Event()

    class Noticed(io.StringIO):
        def write(self, text: str) -> int:
            written.set()
            return super().write(text)

    out = Noticed()
    monkeypatch.setattr("sys.stderr", out)
    monkeypatch.setattr(run_events, "PATIENCE", 0.01)
    with run_events.phase("silent"):
        assert not written.wait(0.05)
    with run_events.showing_phases(), run_events.phase("compiling"):
        assert written.wait(30)
    monkeypatch.setattr(run_events, "PATIENCE", 60.0)
    with run_events.showing_phases(), run_events.phase("short"):
        pass
    assert out.getvalue() == "compiling …\n"


def test_a_note_replaces_a_phase(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a terminal the phase stands below what is reported while it lasts, then is gone."""
    out = io.StringIO()
    monkeypatch.setattr(out, "isatty", lambda: True)
    monkeypatch.setattr("sys.stderr", out)
    with run_events.showing_phases(), run_events.phase("compiling"):
        progress_module.note("column 'a' is constant")
    clear = run_events.CLEAR
    assert out.getvalue() == (
        f"{clear}compiling …{clear}column 'a' is constant\ncompiling …{clear}"
    )


def test_the_terminal_is_given_back_after_an_error(data: Path) -> None:
    """After a bad row the cursor is shown again, and the error stands on a line of its own."""
    write(data / "9.parquet", rows(40).set_column(2, "n", [[float("nan")] * 40]))
    code, _, seen = on_a_terminal(command(data))
    assert code == 2
    assert seen.rindex("\x1b[?25h") > seen.rindex("\x1b[?25l")
    assert re.search(r"(?m)^streamomd: shard .*9.parquet, row 0, column 'n'", plain(seen))


def shell(words: list[str], redirect: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", "-c", f'set -o pipefail; "$@" {redirect}', "bash", *words],
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.slow
def test_a_pipe_that_nobody_reads(data: Path) -> None:
    """When the reader of stdout or of both outputs has left, the run ends well and is kept."""
    for place, redirect in enumerate(["| true", "2>&1 | true", "2>&1 | head -1", "2> >(true)"]):
        kept = data.parent / f"kept{place}"
        words = [*command(data, "--epochs", "3"), "--checkpoint", str(kept)]
        done = shell(words, redirect)
        assert done.returncode == 0, done.stderr
        assert "Traceback" not in done.stderr
        assert "Exception" not in done.stderr
        assert run("checkpoint", "list", kept, "--json").result["commits"][-1]["rows"] == 900


SELDOM = [pytest.param(closed, marks=pytest.mark.slow) for closed in (">&-", ">&- 2>&-")]


@pytest.mark.parametrize("closed", ["2>&-", "<&- >&- 2>&-", *SELDOM])
def test_closed_outputs(closed: str, data: Path) -> None:
    """With stdout, stderr or both closed the run ends well; nothing is told in another's place."""
    kept = data.parent / "kept"
    done = shell([*command(data), "--json", "--checkpoint", str(kept)], closed)
    assert done.returncode == 0
    assert len(done.stdout.splitlines()) == (closed == "2>&-")
    listed = run("checkpoint", "verify", kept, "--json").result["commits"]
    assert listed[-1]["rows"] == 300
    for path in kept.rglob("*.json"):
        assert "loss since last" not in path.read_text()


def test_a_bar_with_skipped_rows_ends_at_its_end() -> None:
    """Rows that were expected and not learned are no part of the whole."""
    metrics = Metrics(classifies=True)
    metrics.begin(0)
    bar = ProgressBar(metrics, 1000, (out := io.StringIO()))
    metrics.count(970)
    bar.finish(metrics)
    bar.close()
    assert " 100% " in plain(out.getvalue()).rstrip().splitlines()[-1]


class Output:
    """What a cell shows: each state of it, as ``IPython.display`` gives it to a notebook."""

    def __init__(self) -> None:
        self.states: list[str] = []

    def display(self, shown: str, *, display_id: bool) -> Output:
        assert display_id
        self.states.append(shown)
        return self

    def update(self, shown: str) -> None:
        self.states.append(shown)


@pytest.mark.parametrize("kernel", [object(), None])
def test_bar_in_a_notebook(
    kernel: object, data: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One output of the cell, replaced as rows are learned; IPython on a terminal has lines."""
    shell, output = types.SimpleNamespace(kernel=kernel), Output()
    ipython, display = types.ModuleType("IPython"), types.ModuleType("IPython.display")
    vars(ipython).update(get_ipython=lambda: shell, display=display)
    vars(display).update(display=output.display, HTML=str)
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    monkeypatch.setitem(sys.modules, "IPython.display", display)
    monkeypatch.setattr(progress_bars.BarText, "is_due", True)
    streamomd.train(shards=str(data), label="y", ignore=["i", "v"], checkpoint="none")
    if kernel is None:
        assert output.states == []
        return
    first, *between, last = output.states
    assert first == '<progress value="0" max="300"></progress> 0 rows'
    assert any(re.search(r"</progress> \d+% ETA \d:\d\d:\d\d \d+ rows", one) for one in between)
    assert re.search(r'value="300" max="300"></progress> 300 rows, loss \d\.\d{6}, last', last)
    assert "since last" not in capsys.readouterr().err
