"""Sweeps whose learners are divided into groups: bit-identical to a sweep of one process.

The groups run in this process here, as the tasks of a cluster would; tests/distributed has those.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from sweeping import bits, job, plain, shards

import streamomd
from streamomd.checkpoint import Writer, list_commits, open_store
from streamomd.core.errors import ConcurrentWriterError, CorruptionError, UsageError
from streamomd.distributed import diagnose, remote_learner, worker_monitor
from streamomd.runs import session as sessions
from streamomd.runs import sweep as sweeps
from streamomd.runs.sweep import group_run, grouped_sweep
from streamomd.runs.sweep.division import Division, divide
from streamomd.runs.sweep.group_run import SentGroup, group_result, run_group
from streamomd.runs.sweep.learners import Sweep
from streamomd.runs.sweep.loop import SweepLoop
from streamomd.runs.sweep.sweep_checkpoint import load_sweep
from streamomd.training.model import Model

GRID = {"eta": [0.01, 0.1, 0.5, 1.0, 4.0, 9.0]}
SIZES = (40, 0, 33)
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

            def opened(lead: Model, stop: Any = task.stop) -> sessions.Session:
                return sessions.Session.of(lead.spec, running=lead, stop=stop)

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
        patch.setattr(diagnose, "refuse_unfit", lambda *given: None)
        yield made


def told(folder: Path, url: Path | str = "none", **checkpoint: Any) -> dict[str, Any]:
    """Two epochs of three shards, one of them empty."""
    rows = folder / "rows"
    if not rows.exists():
        shards(rows, *SIZES)
    saved = {"url": str(url), "every_seconds": 0, "every_rows": 17, "keep": 1, **checkpoint}
    return job(str(rows), checkpoint=saved, train={"epochs": 2})


def everything(models: Sweep) -> list[Any]:
    """What must be equal of two sweeps."""
    dropped = [one.dropped for one in models.learners]
    return [dropped, models.best_learner.name, models.finished, [bits(model) for model in models]]


def resumed(url: Path, count: int) -> Sweep:
    """The sweep at a place, resumed on so many workers, or in this process."""
    if not count:
        with plain():
            return streamomd.resume_sweep(str(url), quiet=True)
    with workers(count):
        sets = {"cluster.scheduler": "tcp://workers:1"}
        return streamomd.resume_sweep(str(url), sets=sets, quiet=True)


@pytest.mark.parametrize("halve", [0, HALVE])
@pytest.mark.parametrize("count", [1, 4, 9])
def test_any_number_of_workers_has_the_same_bits(count: int, halve: int, tmp_path: Path) -> None:
    """Of every learner, the dropped ones too; the checkpoint is that of a sweep of one process."""
    url = tmp_path / "run"
    with workers(count) as cluster:
        found = streamomd.sweep(told(tmp_path, url), grid=GRID, halve=halve, quiet=True)
    with plain():
        whole = streamomd.sweep(told(tmp_path), grid=GRID, halve=halve, quiet=True)
        assert everything(found) == everything(whole)
        assert everything(streamomd.resume_sweep(str(url), quiet=True)) == everything(whole)
        assert bits(streamomd.load(f"{url}/best")) == bits(whole.best)
    groups = [len(one.names) for one in cluster.tasks]
    assert sum(groups[: min(count, 6)]) == 6
    if halve:  # 6 learners, then 3, 2, 1
        assert len(groups) == sum(min(count, left) for left in (6, 3, 2, 1))
    assert not [one for one in (url / "groups").rglob("*") if one.is_file()]


def test_the_result_is_that_of_one_process(tmp_path: Path) -> None:
    """The same keys and figures; times and commit numbers aside."""

    def figures(models: Sweep) -> dict[str, Any]:
        found = models.result()
        for one in (found, *found["learners"], found["best"]):
            del one["checkpoint"]
        timed = ("seconds", "rows_per_second", "compile_seconds")
        return {key: value for key, value in found.items() if key not in timed}

    with workers(2):
        there = streamomd.sweep(told(tmp_path, tmp_path / "a"), grid=GRID, halve=9, quiet=True)
    with plain():
        here = streamomd.sweep(told(tmp_path, tmp_path / "b"), grid=GRID, halve=9, quiet=True)
    assert figures(there) == figures(here)
    assert there.result()["checkpoint"]["url"] == str(tmp_path / "a")


DEATHS: dict[str, tuple[Any, str]] = {
    "a commit of a learner, a group or the sweep": (Writer, "commit"),
    "a piece of rows": (SweepLoop, "_after_rows"),
    "a group that begins": (group_run, "resume_sweep_checkpoint"),
    "the halving": (grouped_sweep, "join_groups"),
    "the publication of a manifest": (Writer, "_publish"),
}


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
        quick = halve and seed == 0
        yield pytest.param(what, halve, seed, marks=() if quick else pytest.mark.slow)


@pytest.mark.parametrize("what, halve, seed", [*deaths()])
def test_killed_it_resumes_to_the_same_bits(
    what: str, halve: int, seed: int, tmp_path: Path
) -> None:
    """With a cluster and without, several times in a row."""
    draw, url = random.Random(f"{what}-{halve}-{seed}"), tmp_path / "run"
    most = {"the halving": 3, "a group that begins": 6}.get(what, 40)
    with plain():
        whole = everything(streamomd.sweep(told(tmp_path), grid=GRID, halve=halve, quiet=True))

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
    assert everything(run()) == whole


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


@pytest.mark.parametrize("count", [0, 2])
@pytest.mark.parametrize("ends", [(9, 3, 30), (1, 1, 1), (999, 2, 999)])
def test_groups_at_other_rows_are_brought_together(
    ends: tuple[int, ...], count: int, tmp_path: Path
) -> None:
    """Of a sweep whose groups were lost at different rows, one of them finished."""
    stopped(tmp_path, tmp_path / "run", dict(enumerate(ends)))
    with plain():
        whole = streamomd.sweep(told(tmp_path), grid=GRID, quiet=True)
    assert everything(resumed(tmp_path / "run", count)) == everything(whole)


def test_without_a_cluster_groups_that_are_behind_catch_up_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To the foremost; from there on all learners share one reading."""
    stopped(tmp_path, tmp_path / "run", {0: 9, 1: 3, 2: 30})
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
    assert loops[-1] == (6, float("inf"))


def test_a_task_that_was_replaced_commits_nothing(tmp_path: Path) -> None:
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
    with plain():
        whole = streamomd.sweep(told(tmp_path), grid=GRID, quiet=True)
    assert everything(resumed(url, 2)) == everything(whole)


def opened(lead: Model) -> sessions.Session:
    """The session of a group, as its task opens it."""
    return sessions.Session.of(lead.spec, running=lead)


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
        assert group.rows >= 17
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
    grid = {"eta": [0.001, 0.01, 1e80, 1e100]}
    here = {**base, "checkpoint": {"url": "none"}}
    for url in (str(tmp_path / "run"), str(tmp_path / "again")):
        base["checkpoint"]["url"] = url
        with workers(2):
            found = streamomd.sweep(base, grid=grid, quiet=True)
        with plain():
            whole = streamomd.sweep(here, grid=grid, quiet=True)
        assert [bool(one.diverged) for one in found.learners] == [False, False, True, True]
        assert [bits(one.model) for one in found.active] == [
            bits(one.model) for one in whole.active
        ]


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
    with plain(), pytest.raises((CorruptionError, streamomd.errors.NoCommitError)):
        streamomd.resume_sweep(str(url), quiet=True)


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
