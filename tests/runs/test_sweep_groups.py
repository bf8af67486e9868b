"""Sweeps whose learners are divided into groups: bit-identical to a sweep of one process.

The groups run in this process here, as the tasks of a cluster would; tests/distributed has those.
"""

from __future__ import annotations

import functools
import itertools
import os
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from running import with_column, write
from sweeping import alone, bits, job, plain, shards, table

import streamomd
from streamomd.checkpoint import Writer, list_commits, open_store
from streamomd.cli.sweep_command import format_sweep
from streamomd.core.errors import (
    BadRowError,
    ConcurrentWriterError,
    CorruptionError,
    NoCommitError,
    OutputExistsError,
    UsageError,
)
from streamomd.distributed import diagnose, remote_learner, worker_monitor
from streamomd.runs import sweep as sweeps
from streamomd.runs.sweep import group_run, grouped_sweep
from streamomd.runs.sweep.group_run import SentGroup, group_result, open_sent, run_group
from streamomd.runs.sweep.grouped_sweep import divide
from streamomd.runs.sweep.learners import Division, Sweep
from streamomd.runs.sweep.loop import SweepLoop
from streamomd.runs.sweep.sweep_checkpoint import load_sweep
from streamomd.training.signals import StopRequest

pytestmark = pytest.mark.filterwarnings("ignore:.* encountered in scalar")
GRID = {"eta": [0.01, 0.5, 1.0, 9.0]}
SIZES = (24, 0, 17)
HALVE = 10


class LostError(BaseException):
    """The process is gone: nothing may catch it."""


class Workers:
    """A cluster of this process: it runs tasks one after the other, and may lose one."""

    status = "running"
    scheduler = None

    def __init__(self, count: int) -> None:
        self.addresses = [f"worker{at}" for at in range(count)]
        self.tasks: list[SentGroup] = []

    def wait_for_usable(self, *_: Any) -> Sequence[str]:
        """As the monitor of a client."""
        return self.addresses

    def results(
        self, _: Any, tasks: Sequence[Any], waiting: Callable[[], object]
    ) -> list[dict[str, Any]]:
        """As ``learner_results``."""
        found = []
        for task in tasks:
            sent: SentGroup = task.arguments
            self.tasks.append(sent)

            opened = functools.partial(open_sent, stop=task.stop)
            found.append(group_result(run_group(task.url, sent, opened)))
            task.take(found[-1])
            waiting()
        return found


@contextmanager
def workers(count: int) -> Iterator[Workers]:
    """Sweeps run on such a cluster while inside, and nothing is compiled."""
    made = Workers(count)

    @contextmanager
    def connected(session: Any) -> Iterator[Any]:
        yield made

    with plain(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(sweeps, "_connected", connected)
        patch.setattr(worker_monitor, "monitor_of", lambda client: made)
        patch.setattr(remote_learner, "learner_results", made.results)
        patch.setattr(diagnose, "refuse_too_small", lambda *given, **more: None)
        yield made


def told(folder: Path, url: Path | str = "none", **checkpoint: Any) -> dict[str, Any]:
    """Two epochs of three shards, one of them empty."""
    rows = folder / "rows"
    if not rows.exists():
        shards(rows, *SIZES)
    saved = {"url": str(url), "every_seconds": 0, "every_rows": 19, "keep": 1, **checkpoint}
    return job(str(rows), checkpoint=saved, train={"epochs": 2})


def everything(models: Sweep) -> list[Any]:
    """What must be equal of two sweeps."""
    dropped = [one.dropped for one in models.learners]
    return [dropped, models.best_learner.name, models.finished, [bits(model) for model in models]]


def figures(models: Sweep) -> dict[str, Any]:
    """What ``--json`` prints; times and commit numbers aside."""
    found = models.result()
    for one in (found, *found["learners"], found["best"]):
        del one["checkpoint"]
    timed = ("seconds", "rows_per_second", "compile_seconds")
    return {key: value for key, value in found.items() if key not in timed}


def resumed(url: Path, count: int) -> Sweep:
    """The sweep at a place, resumed on so many workers, or in this process."""
    if not count:
        with plain():
            return streamomd.resume_sweep(str(url), quiet=True)
    with workers(count):
        sets = {"cluster.scheduler": "tcp://workers:1"}
        return streamomd.resume_sweep(str(url), sets=sets, quiet=True)


@pytest.fixture(autouse=True)
def nothing_is_synced(monkeypatch: pytest.MonkeyPatch) -> None:
    """No test here is about durability, and a disk takes milliseconds for it."""
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)


def slow(*cases: Any) -> list[Any]:
    """Cases of the long run; a tuple is one of several parameters."""
    return [
        pytest.param(*(case if isinstance(case, tuple) else (case,)), marks=pytest.mark.slow)
        for case in cases
    ]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Callable[[int], Sweep]:
    """The sweep of one process, by rows to halve after."""
    folder = tmp_path_factory.mktemp("whole")

    @functools.cache
    def of(halve: int) -> Sweep:
        with plain():
            return streamomd.sweep(told(folder), grid=GRID, halve=halve, quiet=True)

    return of


@pytest.mark.parametrize(
    "count, halve", [(3, HALVE), *slow((1, 0), (1, HALVE), (3, 0), (9, 0), (9, HALVE))]
)
def test_any_number_of_workers_has_the_same_bits(
    count: int, halve: int, whole: Callable[[int], Sweep], tmp_path: Path
) -> None:
    """Of every learner, the dropped ones too; the checkpoint is that of a sweep of one process."""
    url = tmp_path / "run"
    with workers(count) as cluster:
        found = streamomd.sweep(told(tmp_path, url), grid=GRID, halve=halve, quiet=True)
    with plain():
        assert everything(found) == everything(whole(halve))
        assert everything(streamomd.resume_sweep(str(url), quiet=True)) == everything(whole(halve))
        assert bits(streamomd.load(f"{url}/best")) == bits(whole(halve).best)
    assert figures(found) == figures(whole(halve))
    assert found.result()["checkpoint"]["url"] == str(url)
    groups = [len(one.names) for one in cluster.tasks]
    assert sum(groups[: min(count, 4)]) == 4
    if halve:  # 4 learners, then 2, 1
        assert len(groups) == sum(min(count, left) for left in (4, 2, 1))
    assert not [one for one in (url / "groups").rglob("*") if one.is_file()]


DEATHS: dict[str, tuple[Any, str]] = {
    "a commit of a learner, a group or the sweep": (Writer, "commit"),
    "a piece of rows": (SweepLoop, "_after_rows"),
    "a group that begins": (group_run, "resume_sweep_checkpoint"),
    "the halving": (grouped_sweep, "join_groups"),
    "the publication of a manifest": (Writer, "_publish"),
}


QUICK = ("a piece of rows", "the halving")


def dying(patch: pytest.MonkeyPatch, owner: Any, name: str, at: int) -> None:
    """Have a function die instead, at its ``at``-th call."""
    calls, works = itertools.count(1), getattr(owner, name)

    def dies(*given: Any, **more: Any) -> Any:
        if next(calls) == at:
            raise LostError
        return works(*given, **more)

    patch.setattr(owner, name, dies)


def deaths() -> Iterator[Any]:
    """Every kind; at drawn instants, then resumed on drawn numbers of workers, 0: without any."""
    for what, halve, seed in itertools.product(DEATHS, (HALVE, 0), range(8)):
        quick = halve and seed == 0 and what in QUICK
        yield pytest.param(what, halve, seed, marks=() if quick else pytest.mark.slow)


@pytest.mark.parametrize("what, halve, seed", [*deaths()])
def test_killed_it_resumes_to_the_same_bits(
    what: str, halve: int, seed: int, whole: Callable[[int], Sweep], tmp_path: Path
) -> None:
    """With a cluster and without, several times in a row."""
    draw, url = random.Random(f"{what}-{halve}-{seed}"), tmp_path / "run"
    most = {"the halving": 2, "a group that begins": 5}.get(what, 25)

    def run() -> Sweep:
        if (url / "commits").exists() and any((url / "commits").iterdir()):
            return resumed(url, draw.choice([0, 1, 2, 3]))
        with workers(3):
            return streamomd.sweep(told(tmp_path, url), grid=GRID, halve=halve, quiet=True)

    for _ in range(4):
        with pytest.MonkeyPatch.context() as patch:
            dying(patch, *DEATHS[what], draw.randint(1, most))
            try:
                run()
            except LostError:
                continue
    assert everything(run()) == everything(whole(halve))


def stopped(folder: Path, url: Path, groups: Mapping[int, int], count: int = 3) -> Division:
    """A sweep that died with its groups after so many calls of the loop; how it was divided."""
    with workers(count), pytest.MonkeyPatch.context() as patch:

        def die(self: Workers, _: Any, tasks: Sequence[Any], waiting: Any) -> Any:
            for at, task in enumerate(tasks):
                with pytest.MonkeyPatch.context() as inner:
                    dying(inner, SweepLoop, "_after_rows", groups[at])
                    try:
                        self.results(None, [task], waiting)
                    except LostError:
                        continue
            raise LostError

        patch.setattr(remote_learner, "learner_results", lambda *given: die(Workers(3), *given))
        with pytest.raises(LostError):
            streamomd.sweep(told(folder, url), grid=GRID, quiet=True)
        division = load_sweep(str(url), None)[0].division
    assert division is not None
    return division


@pytest.mark.parametrize(
    "count, ends",
    [
        (0, (999, 2, 12)),
        *slow((2, (999, 2, 12)), (0, (1, 1, 1)), (2, (1, 1, 1)), (0, (999, 2, 999))),
    ],
)
def test_groups_at_other_rows_are_brought_together(
    count: int, ends: tuple[int, ...], whole: Callable[[int], Sweep], tmp_path: Path
) -> None:
    """Of a sweep whose groups were lost at different rows, one of them finished."""
    stopped(tmp_path, tmp_path / "run", dict(enumerate(ends)))
    assert everything(resumed(tmp_path / "run", count)) == everything(whole(0))


def test_without_a_cluster_groups_that_are_behind_catch_up_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To the foremost; from there on all learners share one reading."""
    stopped(tmp_path, tmp_path / "run", {0: 9, 1: 3, 2: 16})
    loops: list[tuple[int, float]] = []
    learn = SweepLoop.learn

    def counted(self: SweepLoop, *given: Any, **more: Any) -> Sweep:
        loops.append((len(self.sweep.active), self.until))
        return learn(self, *given, **more)

    monkeypatch.setattr(SweepLoop, "learn", counted)
    resumed(tmp_path / "run", 0)
    behind = [until for learners, until in loops[:-1]]
    assert len(behind) == 2
    assert len({*behind}) == 1
    assert loops[-1] == (4, float("inf"))


def test_a_task_that_was_replaced_commits_nothing(
    whole: Callable[[int], Sweep], tmp_path: Path
) -> None:
    """Exit code 5: another task of the same group has taken over its learners."""
    url = tmp_path / "run"
    division = stopped(tmp_path, url, {0: 3, 1: 3, 2: 3})
    sent = grouped_sweep.sent_groups(division, settings(url))[0]
    after, calls = SweepLoop._after_rows, itertools.count(1)

    def replaced(self: SweepLoop, *given: Any, **more: Any) -> None:
        if next(calls) == 3:
            run_group(str(url), sent, opened)
        after(self, *given, **more)

    with plain(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(SweepLoop, "_after_rows", replaced)
        with pytest.raises(ConcurrentWriterError) as caught:
            run_group(str(url), sent, opened)
    assert caught.value.exit_code == 5
    assert everything(resumed(url, 2)) == everything(whole(0))


opened = functools.partial(open_sent, stop=StopRequest())


def settings(url: Path) -> Any:
    """What the tasks of a sweep get."""
    with plain():
        return sweeps.SentSettings.of(load_sweep(str(url), None)[0].lead.spec)


def test_a_task_run_again_never_restarts_from_the_first_row(tmp_path: Path) -> None:
    """If its group has a commit after some rows."""
    url = tmp_path / "run"
    division = stopped(tmp_path, url, {0: 9, 1: 9, 2: 9})
    sent = grouped_sweep.sent_groups(division, settings(url))[1]
    with plain():
        group, _, _ = sent.load(str(url))
        assert group.rows >= 19
        begins: list[int] = []
        with pytest.MonkeyPatch.context() as patch:
            rows_of = sweeps.SweepLoop._epochs

            def noted(self: SweepLoop, *given: Any) -> bool:
                begins.append(self.sweep.rows)
                return rows_of(self, *given)

            patch.setattr(SweepLoop, "_epochs", noted)
            run_group(str(url), sent, opened)
        assert begins == [group.rows]


def test_groups_are_even_and_learners_of_a_rule_are_together(tmp_path: Path) -> None:
    """So that they share loops."""
    with plain():
        models = streamomd.sweep(
            told(tmp_path), grid={"eta": [0.1, 0.5, 1.0], "rule": ["nag", "ogd"]}, quiet=True
        )
    names = [one.name for one in models.learners]
    for count in range(1, 9):
        groups = divide(models.learners, count)
        assert sorted(itertools.chain(*groups)) == names
        sizes = [len(group) for group in groups]
        assert len(groups) == min(count, 6)
        assert max(sizes) - min(sizes) <= 1
    rules = {one.name: one.model.spec.model.rule for one in models.learners}
    assert [{rules[name] for name in group} for group in divide(models.learners, 2)] == [
        {"nag"}, {"ogd"}
    ]  # fmt: skip


def test_a_group_of_another_folder_is_refused() -> None:
    """A manifest names no folder outside its checkpoint."""
    for stage in ("../../x", "", "ABCDEF01", "abcdef012"):
        with pytest.raises(ValueError, match="no groups are called"):
            Division.from_json({"stage": stage, "until": 0, "learners": [["000"]]})


def test_learners_that_diverge_are_dropped_in_their_group(tmp_path: Path) -> None:
    """All of a group too; the others are bit-identical."""
    base = told(tmp_path, tmp_path / "run")
    base["model"] |= {"rule": "ogd", "loss": "square", "task": "regress"}
    base["data"] |= {"label": "a", "numeric": ["b", "c", "d"], "ignore": ["y"]}
    grid = {"eta": [0.001, 0.01, 1e200, 1e308]}
    here = {**base, "checkpoint": {"url": "none"}}
    with workers(2) as cluster:
        found = streamomd.sweep(base, grid=grid, quiet=True)
    with plain():
        whole = streamomd.sweep(here, grid=grid, quiet=True)
    assert [one.names for one in cluster.tasks] == [("000", "001"), ("002", "003")]
    assert [bool(one.diverged) for one in found.learners] == [False, False, True, True]
    assert figures(found) == figures(whole)


def test_hold_out_rows_are_those_of_a_learner_trained_alone(tmp_path: Path) -> None:
    """Held-out metrics too, with AUC and calibration; in one process and in groups."""
    base = told(tmp_path, tmp_path / "run")
    base["data"]["holdout"] = 4
    here = {**base, "checkpoint": {"url": "none"}}
    with workers(2):
        there = streamomd.sweep(base, grid=GRID, halve=8, quiet=True)
    with plain():
        models = streamomd.sweep(here, grid=GRID, halve=8, quiet=True)
        lone = alone(here, models.best_learner.chosen)
    assert figures(there) == figures(models)
    assert bits(models.best) == bits(lone)
    found, expected = models.result()["best"]["holdout"], lone.result()["holdout"]
    assert found == expected
    assert found["rows"]
    assert found["calibration"]
    assert "held-out loss" in format_sweep(there.result(), [])


def test_a_cluster_needs_a_checkpoint(tmp_path: Path) -> None:
    """Workers commit; reported before a cluster is asked."""
    with pytest.raises(UsageError, match="needs a checkpoint at a URL that its workers reach"):
        streamomd.sweep(told(tmp_path), grid=GRID, scheduler="tcp://127.0.0.1:1", quiet=True)


def test_lost_commits_of_a_group_are_an_error(tmp_path: Path) -> None:
    """Not a start from row 1."""
    url = tmp_path / "run"
    division = stopped(tmp_path, url, {0: 9, 1: 9, 2: 9})
    for commit in (url / division.directory(1) / "commits").iterdir():
        commit.unlink()
    with plain(), pytest.raises((CorruptionError, NoCommitError)):
        streamomd.resume_sweep(str(url), quiet=True)


@pytest.mark.parametrize("bad, replaced", [(3, True), (38, False)])
def test_a_failed_sweep_is_replaced_only_if_no_group_saved_rows(
    bad: int, replaced: bool, tmp_path: Path
) -> None:
    """A bad row ends all groups; --restart is needed once rows are saved, as after ``train``."""
    url, rows = tmp_path / "run", table(50)
    values = rows["a"].to_pylist()
    values[bad] = float("nan")
    write(tmp_path / "rows" / "0.parquet", with_column(rows, "a", values), row_group_size=16)
    for attempt in range(2):
        error = OutputExistsError if attempt and not replaced else BadRowError
        with workers(2), pytest.raises(error) as caught:
            streamomd.sweep(told(tmp_path, url), grid=GRID, quiet=True)
    assert "saved no rows" not in str(caught.value)


def test_credentials_are_in_no_manifest(tmp_path: Path) -> None:
    """Storage options travel with the tasks, which do not show them."""
    url, secret = tmp_path / "run", "s3cr3t"
    base = told(tmp_path, url)
    options = {"storage_options": {"secret": secret}}
    with workers(2) as cluster:
        streamomd.sweep(base, grid=GRID, quiet=True, **options)
    assert all(secret not in repr(task) for task in cluster.tasks)
    assert cluster.tasks[0].settings.options[0] == {"secret": secret}
    assert all(secret.encode() not in one.read_bytes() for one in url.rglob("*") if one.is_file())
    assert list_commits(open_store(str(url)))
