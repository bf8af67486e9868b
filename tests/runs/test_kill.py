"""Kill -9 at seeded instants of real training: what comes out in the end is as if undisturbed.

The instants are counted in commits, not in seconds, so a slow machine moves none of them out of the
run. Two processes are under way at once. ``pytest tests/runs/test_kill.py -s`` shows the table.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from killing import (
    BINARY,
    CLASSES,
    COMMON,
    EPOCH,
    Figures,
    Folder,
    Instant,
    Job,
    Landing,
    figures,
    finish,
    heaviest,
    newest,
    predict,
    result,
    rows,
    start,
    strike,
    with_gaps,
    write_shards,
)

import streamomd
from streamomd.checkpoint import list_commits, open_store

SEED = 20_261_121
EVERY = 2_000
JOBS = {
    "rows": (*BINARY, *COMMON, "--epochs", "3", "--set", f"checkpoint.every_rows={EVERY}"),
    "shuffled": (
        *(*CLASSES, *COMMON, "--epochs", "3", "--set", f"checkpoint.every_rows={EVERY}"),
        *("--dtype", "float32", "--set", 'data.order="shuffled"', "--set", "data.seed=5"),
    ),
    "seconds": (*BINARY, *COMMON, "--epochs", "12", "--set", "checkpoint.every_seconds=0.02"),
    "epochs": (*BINARY, *COMMON, "--epochs", "3", "--set", f"checkpoint.every_rows={EPOCH}"),
    "auto": (
        *(*BINARY, *COMMON, "--rule", "auto", "--epochs", "2"),
        *("--set", f"checkpoint.every_rows={EVERY}"),
    ),
    "means": (
        *(*BINARY, *COMMON, "--nulls", "mean", "--epochs", "2"),
        *("--set", f"checkpoint.every_rows={EVERY}"),
    ),
    "curves": (
        *(*BINARY, *COMMON, "--rule", "auto", "--shapes", "columns", "--epochs", "2"),
        *("--set", f"checkpoint.every_rows={EVERY}"),
    ),
    "means shuffled": (
        *(*CLASSES, *COMMON, "--rule", "auto", "--nulls", "a=mean,b=mean,c=indicator"),
        *("--epochs", "2", "--set", f"checkpoint.every_rows={EVERY}"),
        *("--set", 'data.order="shuffled"', "--set", "data.seed=5"),
    ),
}
GAPS = ("means", "means shuffled")
"""Jobs on rows with missing numbers, whose running means are a part of the state."""
SAME = {"epochs": "rows"}
"""Jobs that differ in when they commit alone: one undisturbed run tells what both must give."""
LOCAL = ("rows", "shuffled")
ENDS = ((2, None), (3, 1), (2, 1))
"""At which commits an epoch ends, and the prefetch of the resumption."""


@dataclass(frozen=True)
class Case:
    """A run, the instants at which it and its resumptions are killed, and their MiB ahead."""

    job: str
    instants: tuple[Instant, ...]
    prefetch: int | None = None

    def __str__(self) -> str:
        return f"{self.job}: {' then '.join(map(str, self.instants))}; prefetch {self.prefetch}"


@dataclass(frozen=True)
class Trial:
    """What came of a case."""

    case: Case
    landings: tuple[Landing, ...]
    figures: Figures
    heaviest: list[dict[str, Any]]
    whole: bool


def plan() -> list[Case]:
    """The cases, the same each time."""
    draw = random.Random(SEED)

    def somewhen(what: str = "delay", most: int = 75) -> Instant:
        return Instant(what, draw.randint(2, most), draw.uniform(0.0, 0.04))

    cases = [Case(job, (somewhen(),)) for job in LOCAL * 3]
    cases += [Case(job, (somewhen(),), draw.choice((1, 2, 7))) for job in LOCAL * 3]
    cases += [Case(job, (somewhen("parts"),)) for job in LOCAL * 2]
    cases += [Case(job, (somewhen(what),)) for what in ("manifest", "linked") for job in LOCAL]
    cases += [Case("epochs", (Instant("epoch", after),), ahead) for after, ahead in ENDS]
    cases += [Case("seconds", (Instant("delay", 3, draw.uniform(0, 0.2)),)) for _ in range(3)]
    cases += [
        Case("rows", (Instant("delay", 1),)),
        Case("rows", (somewhen(most=40), somewhen(most=40)), 1),
        Case("shuffled", (somewhen(most=40), somewhen("parts", most=40)), 3),
        Case("rows", (somewhen("parts", most=40), Instant("delay", 1))),
        Case("shuffled", (somewhen(most=60), Instant("start", 0, 0.3))),
        Case("rows", (somewhen("manifest", most=30), somewhen(most=30), somewhen(most=20)), 2),
        Case("auto", (somewhen(most=40),)),
        Case("auto", (somewhen("parts", most=40),), 2),
        Case("auto", (Instant("delay", 1), somewhen(most=30), somewhen("parts", most=20))),
    ]
    for job in (*GAPS, "curves"):
        cases += [
            Case(job, (somewhen(what, 50),)) for what in ("delay", "delay", "parts", "manifest")
        ]
        cases += [
            Case(job, (somewhen(most=50),), draw.choice((1, 2, 7))),
            Case(job, (Instant("delay", 1), somewhen(most=20), somewhen("parts", most=20)), 3),
        ]
    return cases


PLAN = plan()
QUICK = (12, 27)  # in a commit; and two kills of one run


def new_rows(job: str) -> str:
    """The file of rows that a job's model predicts."""
    return "new-gaps.parquet" if job in GAPS else "new.parquet"


def attempt(case: Case, job: Job, folder: Path) -> Trial:
    """Train, kill, resume, kill … and resume to the end."""
    place = Folder(str(folder / "run"))
    ahead = ["--set", f"train.prefetch={case.prefetch}"] if case.prefetch else []
    again = ["resume", place.url, *ahead, "--json"]
    words, landings = job.train(place.url), []
    for instant in case.instants:
        base = newest(place)
        process = start(words, folder / "log")
        landings.append(strike(process, place, instant, base))
        words = again
    told = result(finish(again))
    whole = all(one["ok"] for one in list_commits(open_store(place.url), deep=True))
    new = str(folder.parent / new_rows(case.job))
    found = figures(told, streamomd.load(place.url).predict(new, str(folder / "out")))
    return Trial(case, tuple(landings), found, heaviest(place.url), whole)


@pytest.fixture(scope="module")
def ground(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the shards, and new rows to predict."""
    folder = tmp_path_factory.mktemp("kill")
    write_shards(folder / "shards")
    write_shards(folder / "gaps", gaps=True)
    pq.write_table(rows(2_000, seed=99), str(folder / "new.parquet"))
    pq.write_table(with_gaps(rows(2_000, seed=99), seed=99), str(folder / "new-gaps.parquet"))
    return folder


@pytest.fixture(scope="module")
def jobs(ground: Path) -> dict[str, Job]:
    """The jobs, by name."""
    folders = {name: "gaps" if name in GAPS else "shards" for name in JOBS}
    return {name: Job(str(ground / folders[name]), words) for name, words in JOBS.items()}


@pytest.fixture(scope="module")
def undisturbed(ground: Path, jobs: dict[str, Job]) -> dict[str, Figures]:
    """What each job gives that nobody kills; this compiles the loops, too."""

    class Undisturbed(dict[str, Figures]):
        """Each is run when it is first asked for."""

        def __missing__(self, name: str) -> Figures:
            folder = ground / f"undisturbed-{name}"
            told = result(finish(jobs[name].train(str(folder))))
            written = predict(str(folder), str(ground / new_rows(name)), ground / f"out-{name}")
            self[name] = figures(told, written)
            return self[name]

    found = Undisturbed()
    found["rows"]  # compiles most of the loops, before many need them at once
    return found


@pytest.fixture(scope="module")
def trials(
    ground: Path, jobs: dict[str, Job], undisturbed: dict[str, Figures]
) -> Iterator[dict[int, Future[Trial]]]:
    """Cases, two at once; a failure is raised by the test of its own case."""

    class Trials(dict[int, Future[Trial]]):
        """Each is begun when it is first asked for."""

        def __missing__(self, number: int) -> Future[Trial]:
            folder = ground / str(number)
            folder.mkdir()
            case = PLAN[number]
            self[number] = pool.submit(attempt, case, jobs[case.job], folder)
            return self[number]

    with ThreadPoolExecutor(2) as pool:
        begun = Trials()
        for number in QUICK:
            begun[number]
        yield begun


def slow_unless_quick() -> list[Any]:
    """Cases of the long run, but for some."""
    marks = [() if number in QUICK else pytest.mark.slow for number in range(len(PLAN))]
    return [pytest.param(n, marks=some, id=str(PLAN[n])) for n, some in enumerate(marks)]


@pytest.mark.parametrize("number", slow_unless_quick())
def test_a_killed_run_ends_as_one_that_nobody_killed(
    number: int, trials: dict[int, Future[Trial]], undisturbed: dict[str, Figures], ground: Path
) -> None:
    """State, loss of each epoch, predictions and names are equal to the bit; commits are whole."""
    trial = trials[number].result()
    name = SAME.get(trial.case.job, trial.case.job)
    assert trial.figures == undisturbed[name]
    assert trial.heaviest == heaviest(str(ground / f"undisturbed-{name}"))
    assert trial.whole


@pytest.mark.slow
def test_the_kills_landed_where_they_are_said_to(
    trials: dict[int, Future[Trial]], capsys: pytest.CaptureFixture[str]
) -> None:
    """25 kills at least: 20 between first and last data commit, 5 inside one, 3 at epochs' ends."""
    running = [trials[number] for number in range(len(PLAN))]
    done = [one.result() for one in running]
    kills = [landing for trial in done for landing in trial.landings if landing.killed]
    between = sum(landing.between for landing in kills)
    inside = sum(landing.inside for landing in kills)
    ends = sum(landing.at_epoch_end for landing in kills)
    twice = sum(sum(one.killed for one in trial.landings) > 1 for trial in done)
    ahead = sum(trial.case.prefetch is not None and trial.landings[-1].killed for trial in done)
    with capsys.disabled():
        print(f"\n{len(kills)} kills: {between} after the first data commit and before the last,")
        print(f"{inside} inside a commit, {ends} at an epoch's end; {twice} runs killed twice or")
        print(f"more, {ahead} resumed with another prefetch")
        for trial in done:
            for landing in trial.landings:
                print(f"  {trial.case.job:<9} {landing}")
    assert len(kills) >= 25
    assert between >= 20
    assert inside >= 5
    assert ends >= 3
    assert twice >= 3
    assert ahead >= 5


@pytest.mark.slow
def test_the_comparison_tells_runs_apart(undisturbed: dict[str, Figures]) -> None:
    """One that is always content would pass everything above."""
    one, other = undisturbed["rows"], undisturbed["seconds"]
    assert one.predictions != other.predictions
    assert one.told["state_sha256"] != other.told["state_sha256"]
    assert one.told["epochs"] == other.told["epochs"][: len(one.told["epochs"])]
