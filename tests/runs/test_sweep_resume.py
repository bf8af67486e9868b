"""Sweeps that stop and go on, and learners that are dropped: the same bits as undisturbed."""

from __future__ import annotations

import signal
from collections.abc import Iterator, Mapping
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from running import with_column, write
from sweeping import alone, bits, chosen, job, plain, shards, table

import streamomd
from streamomd.checkpoint import Writer
from streamomd.core.errors import NoCommitError, ResumeRefusedError, StoppedError
from streamomd.runs import session
from streamomd.runs.sweep import loop as sweep_walk
from streamomd.runs.sweep import sweep_checkpoint
from streamomd.runs.sweep.learners import Sweep
from streamomd.training.model import Model

GRID = {"eta": [0.01, 0.1, 0.5, 1.0, 4.0, 9.0]}
SIZES = (40, 0, 33)
HALVE = 10


class Lost(BaseException):
    """The process is gone: nothing may catch it."""


def told(folder: Path, url: Path | str = "none", **checkpoint: Any) -> dict[str, Any]:
    """Two epochs of two shards."""
    rows = str(folder / "rows")
    if not Path(rows).exists():
        shards(folder / "rows", *SIZES)
        write(Path(rows) / "0.parquet", turned())
    kept = {"url": str(url), "every_seconds": 0, "every_rows": 17, "keep": 1, **checkpoint}
    return job(rows, checkpoint=kept, train={"epochs": 2})


def everything(models: Sweep) -> list[Any]:
    """What must be equal of two sweeps."""
    dropped = [one.dropped for one in models.learners]
    best = [one.dropped or one.model is models.best for one in models.learners]
    return [dropped, best, [bits(model) for model in models]]


def dying(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, at: int) -> None:
    """Have a function die instead, at its ``at``-th call."""
    calls, works = 0, getattr(owner, name)

    def dies(*given: Any, **more: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == at:
            raise Lost
        return works(*given, **more)

    monkeypatch.setattr(owner, name, dies)


DEATHS: dict[str, tuple[Any, str]] = {
    "a commit of a learner or the sweep": (Writer, "commit"),
    "the naming of a sweep's commit": (sweep_checkpoint.SweepCheckpoint, "_name_them"),
    "a piece of rows": (sweep_walk.SweepLoop, "_after_rows"),
    "the taking over of a learner": (session, "resume_checkpoint"),
    "the publication of a manifest": (Writer, "_publish"),
}


def cases() -> Iterator[Any]:
    """Each kind of death while half are dropped, in the middle; early, late, and without: slow."""
    for what, halve, at in product(DEATHS, (HALVE, 0), (23, 9, 40)):
        quick = (halve, at) == (HALVE, 23)
        yield pytest.param(what, halve, at, marks=() if quick else pytest.mark.slow)


@pytest.mark.parametrize("what, halve, at", [*cases()])
def test_whatever_dies_it_goes_on_to_the_same_bits(
    what: str, halve: int, at: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And dies twice more while it goes on."""
    with plain():
        whole = everything(streamomd.sweep(told(tmp_path), grid=GRID, halve=halve, quiet=True))
        for times in (at, 7, 4):
            with monkeypatch.context() as patch:
                dying(patch, *DEATHS[what], times)
                try:
                    go_on(tmp_path, tmp_path / "run", GRID, halve)
                except Lost:
                    continue
        assert everything(go_on(tmp_path, tmp_path / "run", GRID, halve)) == whole


def go_on(folder: Path, url: Path, grid: dict[str, Any], halve: int) -> Sweep:
    """The sweep at a place, begun or resumed."""
    if (url / "commits").exists() and any((url / "commits").iterdir()):
        return streamomd.resume_sweep(str(url), quiet=True)
    return streamomd.sweep(told(folder, url), grid=grid, halve=halve, quiet=True)


@pytest.mark.parametrize(
    "rules, deaths",
    [
        (["nag", "nag_projected"], [1]),
        pytest.param(
            ["nag", "nag_projected", "arow", "online_svm"], [1, 3, 6], marks=pytest.mark.slow
        ),
    ],
)
def test_mixed_rules_go_on(
    rules: list[str], deaths: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that looks at all rows first, one with a matrix, one that keeps rows."""
    base = told(tmp_path, tmp_path / "run", every_rows=20, every_seconds=1e-9)
    base["train"]["epochs"] = 1
    base["model"] |= {"loss": "hinge"}
    grid = {"rule": rules}
    with plain():
        whole = streamomd.sweep({**base, "checkpoint": {"url": "none"}}, grid=grid, quiet=True)
        for at in deaths:
            url = str(tmp_path / f"run{at}")
            base["checkpoint"]["url"] = url
            with monkeypatch.context() as patch, pytest.raises(Lost):
                dying(patch, sweep_walk.SweepLoop, "_after_rows", at)
                streamomd.sweep(base, grid=grid, quiet=True)
            assert everything(streamomd.resume_sweep(url, quiet=True)) == everything(whole)


def test_halving_keeps_the_better_half_since(tmp_path: Path) -> None:
    """After 10, 20, 40 rows: recomputed here from trains alone. Who was dropped has the bits of a
    train that ends there, and goes on alone to those of one that does not."""
    base = told(tmp_path, tmp_path / "run")
    differs = False
    with plain():
        models = streamomd.sweep(base, grid=GRID, halve=HALVE, quiet=True)
        left, rows, before = {*range(len(models))}, HALVE, np.zeros((len(models), 3))
        while len(left) > 1:
            short = {at: first(tmp_path, rows, chosen(models)[at]) for at in left}
            sums = {at: model.metrics.total - before[at] for at, model in short.items()}
            ranked = sorted(left, key=lambda at: (sums[at][1] / sums[at][0], at))
            worse = {*ranked[(len(ranked) + 1) // 2 :]}
            assert {at for at in left if models.learners[at].dropped == rows} == worse
            whole = sorted(left, key=lambda at: short[at].result()["loss"])
            differs = differs or {*whole[(len(whole) + 1) // 2 :]} != worse
            for at in worse:
                assert models[at].state_sha256 == short[at].state_sha256
            for at, model in short.items():
                before[at] = model.metrics.total
            left, rows = left - worse, 2 * rows
        assert [at for at, one in enumerate(models.learners) if not one.dropped] == [*left]
        assert differs  # from what the loss of all rows would have dropped
        for one in models.learners:
            again = streamomd.resume(f"{tmp_path}/run/learners/{one.name}", quiet=True)
            assert bits(again) == bits(alone(base, one.chosen))


def turned() -> pa.Table:
    """The first shard, where labels turn after some heavy rows: who did well does badly."""
    rows, early = table(SIZES[0]), np.arange(SIZES[0]) < HALVE
    y = rows["y"].to_numpy() * np.where(early, 1, -1)
    rows = with_column(rows, "y", pa.array(y))
    return with_column(rows, "w", pa.array(np.where(early, 20.0, 1.0)))


def first(folder: Path, rows: int, one: Mapping[str, Any]) -> Model:
    """A train alone on the first rows of all."""
    place = folder / f"first{rows}"
    if not place.exists():
        tables = [turned(), *(table(size, at) for at, size in enumerate(SIZES) if at)]
        write(place / "0.parquet", pa.concat_tables(tables).slice(0, rows))
    return alone(job(str(place)), one)


def test_more_epochs(tmp_path: Path) -> None:
    """A finished sweep goes on to what it would be with so many from the start; else it is told
    again, and nothing is written."""
    base = told(tmp_path, tmp_path / "run")
    with plain():
        url = str(tmp_path / "run")
        before = streamomd.sweep(base, grid=GRID, halve=50, quiet=True)
        again = streamomd.resume_sweep(url, quiet=True)
        assert (everything(again), again.sequence) == (everything(before), before.sequence)
        with pytest.raises(ResumeRefusedError, match="may only grow"):
            streamomd.resume_sweep(url, sets={"train.epochs": 1}, quiet=True)
        more = streamomd.resume_sweep(url, sets={"train.epochs": 3}, quiet=True)
        base["checkpoint"]["url"], base["train"]["epochs"] = "none", 3
        whole = streamomd.sweep(base, grid=GRID, halve=50, quiet=True)
        assert everything(more) == everything(whole)
        assert bits(streamomd.load(f"{url}/best")) == bits(whole.best)


def stopped(folder: Path, url: Path, at: int = 9, **checkpoint: Any) -> None:
    """A sweep that died at its ``at``-th edge of rows."""
    with pytest.MonkeyPatch.context() as patch, pytest.raises(Lost):
        dying(patch, sweep_walk.SweepLoop, "_after_rows", at)
        streamomd.sweep(told(folder, url, **checkpoint), grid=GRID, quiet=True)


def test_other_shards_are_refused(tmp_path: Path) -> None:
    """As of any run; the shards put back, it goes on."""
    with plain():
        stopped(tmp_path, tmp_path / "run")
        kept = (tmp_path / "rows" / "2.parquet").read_bytes()
        write(tmp_path / "rows" / "2.parquet", table(33, seed=9))
        with pytest.raises(ResumeRefusedError, match="differ from those this run started with"):
            streamomd.resume_sweep(str(tmp_path / "run"), quiet=True)
        (tmp_path / "rows" / "2.parquet").write_bytes(kept)
        whole = streamomd.sweep(told(tmp_path), grid=GRID, quiet=True)
        assert everything(go_on(tmp_path, tmp_path / "run", GRID, 0)) == everything(whole)


@pytest.mark.parametrize("place", ["commits", "learners/002/commits"])
def test_a_damaged_commit_leads_to_the_one_before(place: str, tmp_path: Path) -> None:
    """Of the sweep, or of a learner that it names: all go back to one row."""
    with plain():
        stopped(tmp_path, tmp_path / "run", 12, keep=3)
        newest = max((tmp_path / "run" / place).iterdir())
        newest.write_bytes(newest.read_bytes()[:-9])
        whole = streamomd.sweep(told(tmp_path), grid=GRID, quiet=True)
        assert everything(go_on(tmp_path, tmp_path / "run", GRID, 0)) == everything(whole)


def test_a_learner_that_went_on_alone(tmp_path: Path) -> None:
    """Ends as if trained alone; its sweep, if it was not finished, misses the commit it names, and
    says so."""
    with plain():
        stopped(tmp_path, tmp_path / "run")
        one = streamomd.resume(f"{tmp_path}/run/learners/001", quiet=True)
        assert bits(one) == bits(alone(told(tmp_path), {"eta": GRID["eta"][1]}))
        with pytest.raises(
            NoCommitError, match=r"was resumed alone: no commit . in .*learners/001"
        ):
            go_on(tmp_path, tmp_path / "run", GRID, 0)


def test_a_signal_stops_it_after_a_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Which says how to go on."""
    after = sweep_walk.SweepLoop._after_rows

    def rows_and_signal(walk: Any, *given: Any, **more: Any) -> None:
        walk.session.stop.signal = signal.SIGTERM if walk.sweep.rows >= 51 else 0
        after(walk, *given, **more)

    with plain(), monkeypatch.context() as patch:
        patch.setattr(sweep_walk.SweepLoop, "_after_rows", rows_and_signal)
        base = told(tmp_path, tmp_path / "run", every_rows=0)
        with pytest.raises(StoppedError, match="streamomd resume") as stop:
            streamomd.sweep(base, grid=GRID, quiet=True)
    assert stop.value.exit_code == 128 + signal.SIGTERM
    with plain():
        assert streamomd.load(f"{tmp_path}/run/learners/000").metrics.total_rows >= 51
        whole = streamomd.sweep(told(tmp_path), grid=GRID, quiet=True)
        assert everything(go_on(tmp_path, tmp_path / "run", GRID, 0)) == everything(whole)
