"""SIGTERM, SIGINT, and a writer that sleeps while another takes over."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from killing import (
    BINARY,
    COMMON,
    EPOCH,
    PATIENCE,
    Figures,
    Folder,
    Job,
    document,
    figures,
    finish,
    newest,
    pause,
    predict,
    result,
    rows,
    start,
    wait_until,
    write_shards,
)

from streamomd.checkpoint import list_commits, open_store

EPOCHS = 8
CODES = {signal.SIGTERM: 143, signal.SIGINT: 130}
WORDS = (*BINARY, *COMMON, "--epochs", str(EPOCHS))
RARELY = ("--set", f"checkpoint.every_rows={EPOCH}")
OFTEN = ("--set", "checkpoint.every_rows=5000")


class Ground:
    """Shards, rows to predict, and what the run gives that nobody disturbs."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.job = Job(str(write_shards(folder / "shards")), WORDS)
        self.new = str(folder / "new.parquet")
        pq.write_table(rows(1_000, seed=99), self.new)
        told = result(finish(self.job.train(str(folder / "undisturbed"), *RARELY)))
        self.undisturbed = self.figures(folder / "undisturbed", told)

    def figures(self, run: Path, told: dict[str, object]) -> Figures:
        """What a finished run tells and predicts."""
        return figures(told, predict(str(run), self.new, run.parent / f"{run.name}-out"))

    def resumed(self, run: Path) -> Figures:
        """What it tells after ``resume``, its commits proven whole."""
        told = result(finish(["resume", str(run), "--json"]))
        assert told["rows"] == EPOCHS * EPOCH
        assert all(one["ok"] for one in list_commits(open_store(str(run)), deep=True))
        return self.figures(run, told)


@pytest.fixture(scope="module")
def ground(tmp_path_factory: pytest.TempPathFactory) -> Ground:
    """The data and the undisturbed run."""
    return Ground(tmp_path_factory.mktemp("signals"))


@contextmanager
def running(words: list[str], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process that does not outlive the test."""
    process = start(words, log)
    try:
        yield process
    finally:
        process.kill()
        process.wait(PATIENCE)


def catches(process: subprocess.Popen[bytes], number: int) -> bool:
    """Whether a process has a handler for a signal."""
    lines = Path(f"/proc/{process.pid}/status").read_text().splitlines()
    caught = next(int(line.split()[1], 16) for line in lines if line.startswith("SigCgt"))
    return bool(caught >> (number - 1) & 1)


def manifests(place: Folder) -> set[str]:
    """Names of the commits; one that is being written has another ending."""
    return {name for name in place.list("commits") if name.endswith(".json")}


@pytest.mark.parametrize(
    "number",
    [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.slow)],
    ids=lambda number: number.name,
)
@pytest.mark.slow
def test_a_signal_is_followed_by_a_commit(
    number: signal.Signals, ground: Ground, tmp_path: Path
) -> None:
    """Exit 143 or 130 after a commit newer than before; resume ends as if undisturbed."""
    place, log = Folder(str(tmp_path / "run")), tmp_path / "log"
    with running(ground.job.train(place.url, *RARELY), log) as process:
        wait_until(lambda: newest(place) >= 1, process)
        pause(process)
        before = newest(place)
        process.send_signal(number)
        process.send_signal(signal.SIGCONT)
        assert process.wait(PATIENCE) == CODES[number], log.read_text()
    last = document(place, newest(place))
    assert newest(place) > before
    assert last["rows"] >= document(place, before)["rows"]
    assert not last["finished"]
    assert f"stopped after row {last['rows']:,}: commit {newest(place)}" in log.read_text()
    assert ground.resumed(tmp_path / "run") == ground.undisturbed


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="tells from /proc that a handler is there")
@pytest.mark.parametrize("after_commit_0", [False, True])
def test_a_signal_before_the_first_row(
    after_commit_0: bool, ground: Ground, tmp_path: Path
) -> None:
    """It is obeyed after the first batch, however early it came; nothing is lost."""
    place, log = Folder(str(tmp_path / "run")), tmp_path / "log"
    with running(ground.job.train(place.url, *RARELY), log) as process:
        if after_commit_0:
            wait_until(lambda: newest(place) >= 0, process)
        else:
            wait_until(lambda: catches(process, signal.SIGTERM), process)
        pause(process)
        assert newest(place) == (0 if after_commit_0 else -1)
        process.send_signal(signal.SIGTERM)
        process.send_signal(signal.SIGCONT)
        assert process.wait(PATIENCE) == 143, log.read_text()
    assert newest(place) >= 1
    assert ground.resumed(tmp_path / "run") == ground.undisturbed


@pytest.mark.slow
def test_a_second_signal_ends_it_immediately(ground: Ground, tmp_path: Path) -> None:
    """No last commit is made or told of; the one before stands."""
    place, log = Folder(str(tmp_path / "run")), tmp_path / "log"
    with running(ground.job.train(place.url, *RARELY), log) as process:
        wait_until(lambda: newest(place) >= 1, process)
        pause(process)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGCONT):
            process.send_signal(number)
        assert process.wait(PATIENCE) in CODES.values()
    said = log.read_text()
    assert "once more to leave immediately" in said
    assert "stopped after row" not in said
    assert document(place, newest(place))["rows"] % EPOCH == 0
    assert ground.resumed(tmp_path / "run") == ground.undisturbed


@pytest.mark.parametrize(
    "wakes",
    [
        pytest.param("while the other runs", marks=pytest.mark.slow),
        pytest.param("when the other has finished", marks=pytest.mark.slow),
    ],
)
def test_a_writer_that_slept_while_another_took_over(
    wakes: str, ground: Ground, tmp_path: Path
) -> None:
    """It exits 5, naming who took over; the other's commits and result are as if undisturbed.

    When the other has finished, even the commit with which it took over is long deleted.
    """
    place, log = Folder(str(tmp_path / "run")), tmp_path / "log"
    again = ["resume", place.url, "--json"]
    with running(ground.job.train(place.url, *OFTEN), log) as sleeper:
        wait_until(lambda: newest(place) >= 5, sleeper)
        pause(sleeper)
        asleep_at = newest(place)
        if wakes == "while the other runs":
            with running(again, tmp_path / "other") as other:
                wait_until(lambda: newest(place) > asleep_at, other)
                pause(other)
                sleeper.send_signal(signal.SIGCONT)
                assert sleeper.wait(PATIENCE) == 5, log.read_text()
                other.send_signal(signal.SIGCONT)
                assert other.wait(PATIENCE) == 0, (tmp_path / "other").read_text()
        else:
            finish(again)
            assert f"{asleep_at + 1:012d}.json" not in place.list("commits")
            held = manifests(place)
            sleeper.send_signal(signal.SIGCONT)
            assert sleeper.wait(PATIENCE) == 5, log.read_text()
            assert manifests(place) == held
    assert "took over" in log.read_text()
    assert ground.resumed(tmp_path / "run") == ground.undisturbed
