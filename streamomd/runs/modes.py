"""Learn the remaining rows of a run in the mode of its job, with a cluster or without."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from streamomd.config.spec import Spec
from streamomd.core.errors import DataError, DivergedError, StreamomdError, TooLargeError
from streamomd.core.finite import FiniteCheck
from streamomd.core.profiling import Stage, current
from streamomd.core.run_events import emit, phase
from streamomd.core.wording import counted, worded
from streamomd.runs.connection import report_lost_scheduler
from streamomd.runs.reporting import Reporting
from streamomd.runs.streamed_rows import StreamedRows
from streamomd.runs.walk import ExactRun
from streamomd.shards.filesystem import is_local
from streamomd.shards.order import Dataset
from streamomd.shards.shard import ShardSet
from streamomd.training.checkpoint_manager import CheckpointManager
from streamomd.training.choose_shapes import advice_of_shards
from streamomd.training.drift_alerts import (
    fails_on_alert,
    raise_alert,
    refuse_many_categories,
    report_alerts,
)
from streamomd.training.holdout import with_places
from streamomd.training.metrics import Metrics
from streamomd.training.microbatch_rounds import Rounds, Share
from streamomd.training.model import Model
from streamomd.training.model_data import ModelData
from streamomd.training.model_document import RemoteState
from streamomd.training.model_figures import rule_figure
from streamomd.training.progress import Watcher, note, quiet_notes, watching
from streamomd.training.row_checks import ENOUGH, report_offsets_of
from streamomd.training.row_stream import compiling_kernels
from streamomd.training.signals import StopRequest, raise_stopped
from streamomd.training.training_threads import available_memory, classes_divided

WORTH_ADVICE = 20.0
"""Seconds of a run from which on a part of one is spent on what would help the next one."""


def learn_remaining_rows(
    model: Model,
    shards: Dataset,
    manager: CheckpointManager | None,
    stop: StopRequest,
    connection: Any,
    *,
    reporting: Reporting,
    more_watchers: Sequence[Watcher] = (),
) -> Model:
    """Learn the remaining rows, commit and report progress; the model, finished.

    Raises DivergedError if numbers are no longer finite; the last commit stands.
    """
    refuse_many_categories(model.spec, model.plan)
    data = model.spec.data
    if (data.holds_out or data.sample) and isinstance(shards, ShardSet):
        shards = with_places(shards, model.holdout_by, manager.shards if manager else ())
    expected = learned_of(shards.rows, data.held_every)
    expected = (
        model.update.rows + expected if model.update.first else expected * model.spec.train.epochs
    )
    # The rows of a collection are unknown until they are read.
    rows = expected - model.metrics.total_rows if isinstance(shards, ShardSet) else math.inf

    def watchers() -> list[Watcher]:
        all_watchers = [*reporting.watchers(model, expected, rule_figure(model)), *more_watchers]
        return [*all_watchers, manager] if manager else all_watchers

    with classes_divided(model, rows):
        return _learn(model, shards, manager, watchers, stop, connection)


def _learn(
    model: Model,
    shards: Dataset,
    manager: CheckpointManager | None,
    make_watchers: Callable[[], list[Watcher]],
    stop: StopRequest,
    connection: Any,
) -> Model:
    """Learn in the job's mode, once the loops are compiled, and make the last commit."""
    # Sharded mode has loops of its own; the rows of a collection are unknown until they are read.
    if model.spec.train.mode != "sharded" and isinstance(shards, ShardSet) and shards.rows:
        kernels = compiling_kernels(model.plan, shards)
        with Stage("compile"), phase("compiling"), kernels as empty:
            model.engine.warm(model.state, empty, learning=True)
    compiled = model.engine.compile_seconds
    rows_before, started = model.metrics.total_rows, time.perf_counter()
    watchers = make_watchers()
    try:
        with report_lost_scheduler(model, connection), watching(watchers, model.metrics):
            _learn_in_mode(model, shards, manager, watchers, stop, connection)
        if not model.metrics.total_rows:
            raise DataError(no_rows_learned(model.metrics))
        if model.spec.train.epochs < ENOUGH and (runs := model.label_runs.warning()):
            note(runs)
        if left := model.curve_ranges.warning(model.plan):
            note(left)
        model.finished = True
        if manager:
            manager.commit()
        else:
            model.guard.finish(model.state)
    except DivergedError as error:
        if manager:
            error = _first_batch(error, model, shards, manager, stop, connection)
            raise manager.diverged(error) from None
        raise
    except StreamomdError as error:
        if manager:
            manager.failed(error)
        raise
    compiled -= model.engine.compile_seconds
    model.seconds = max(time.perf_counter() - started + compiled, 1e-9)
    learned = model.metrics.total_rows - rows_before
    model.rows_per_second = learned / model.seconds
    if profile := current():
        profile.rows += learned
    if not rows_before:
        _say_what_would_help(model, shards)
    return model


def _say_what_would_help(model: Model, shards: Dataset) -> None:
    """A line on curves, if the run took some seconds and its first rows are on this machine."""
    if model.seconds >= WORTH_ADVICE and isinstance(shards, ShardSet) and is_local(shards.fs):
        for line in advice_of_shards(model.spec, model.plan, shards):
            note(line)


def _first_batch(
    error: DivergedError,
    model: Model,
    shards: Dataset,
    manager: CheckpointManager,
    stop: StopRequest,
    connection: Any,
) -> DivergedError:
    """The error that names the first batch after which a number was not finite.

    Slots of a large state are looked at rarely. Then the rows since the last commit are learned
    again, with a look at every slot after every batch. Where that fails, the error as it is.
    """
    mode, options = model.spec.train.mode, model.spec.checkpoint.storage_options
    once = isinstance(shards, StreamedRows) or mode == "averaged"
    if model.guard.exact or once or (mode == "sharded" and connection is not None):
        return error
    rows = max(0, model.metrics.total_rows - manager.rows)
    note(
        f"{error}; looking for the first batch since commit {manager.sequence}: "
        f"{counted(rows, 'row')} again",
        "diverged",
        "warning",
        rows_again=rows,
    )
    from streamomd.training.load_model import load_model

    try:
        with quiet_notes(True):
            again, _ = load_model(model.url, storage_options=options, at=manager.sequence)
            again.spec, again.plan, again.guard = model.spec, model.plan, FiniteCheck(always=True)
            _learn_in_mode(again, shards, None, [], stop, connection, manager)
    except DivergedError as first:
        return first
    except StreamomdError as problem:
        note(f"the first batch is not known: {problem}", "diverged", "warning")
    return error


def no_rows_learned(metrics: Metrics) -> str:
    """Why a run learned no row."""
    if bad := metrics.skipped:
        return f"every row is bad ({worded(bad)})"
    if metrics.held is not None and metrics.held.total_rows:
        return f"every row is held out (data.holdout): {counted(metrics.held.total_rows, 'row')}"
    if metrics.filtered:
        return f"no row satisfies where: it dropped {counted(metrics.filtered, 'row')}"
    if metrics.sampled_out:
        return f"no row is sampled: data.sample dropped {counted(metrics.sampled_out, 'row')}"
    return "no rows were read"


def learned_of(rows: int, holdout: int) -> int:
    """About how many of these rows are learned."""
    return rows - rows // holdout if holdout else rows


def has_remote_state(spec: Spec) -> bool:
    """Whether workers may own a job's state: then its model is loaded without it."""
    return spec.train.mode == "sharded"


def read_state(model: ModelData) -> None:
    """Read a state that was left in its checkpoint into the memory of this process.

    Raises TooLargeError with the bytes needed and available.
    """
    if not isinstance(model.state, RemoteState):
        return
    needed, available = model.state.layout.nbytes, available_memory()
    if needed > available:
        raise TooLargeError(
            f"{model.spec.train.mode} mode without a cluster keeps the whole state in this "
            f"process: it needs {needed:,} bytes, and {available:,.0f} bytes of memory are "
            "available here. Give --scheduler ADDRESS of a cluster whose workers share it, or "
            "resume on a machine with more memory"
        )
    model.state = model.state.load()


def _learn_in_mode(
    model: Model,
    shards: Dataset,
    manager: CheckpointManager | None,
    watchers: list[Watcher],
    stop: StopRequest,
    connection: Any,
    recorded: CheckpointManager | None = None,
) -> None:
    """Learn every remaining row in the job's mode. recorded: see ``ExactRun``."""
    train = model.spec.train
    if train.mode == "exact":
        kind = _exact_run(model)
        run = kind(model, shards, manager, watchers, stop, connection, recorded)
        run.learn_epochs(train.epochs)
        return
    assert isinstance(shards, ShardSet)
    if not model.metrics.total_rows and not train.exact_epochs:
        report_offsets_of(model.spec, model.plan, shards)
    if train.mode == "sharded":
        Sharded(model, shards, manager, watchers, stop, connection).learn_epochs()
        return
    assert manager is not None
    start = model.cursor
    ExactRun(model, shards, manager, watchers, stop, connection).learn_epochs(train.exact_epochs)
    if model.cursor != start:  # the first round starts from a commit
        manager.commit()
    from streamomd.distributed.averaged import Averaged

    others = [watcher for watcher in watchers if watcher is not manager]
    Averaged(model, shards, manager, others, stop, connection).run()


def _exact_run(model: ModelData) -> type[ExactRun]:
    """The class of a run in exact mode: another one where labels arrive late."""
    if not model.teaches_later:
        return ExactRun
    from streamomd.runs.delayed import BacktestRun, DelayedRun

    return DelayedRun if model.metrics.backtest is None else BacktestRun


REPORT_SECONDS = 0.05


@dataclass(eq=False)
class Sharded:
    """The rounds of a model over its shards, from its cursor to the end of its last epoch.

    connection: a cluster whose workers each own some of the partitions; None: this process owns
    them all. The bits are the same.
    """

    model: Model
    shards: ShardSet
    manager: CheckpointManager | None
    watchers: list[Watcher]
    stop: StopRequest
    connection: Any = None
    _report_time: float = field(default=0.0, init=False)
    _reported: int = field(default=0, init=False)

    def learn_epochs(self) -> None:
        """Learn the remaining rows of all epochs.

        Raises StoppedError after a signal, its commit made.
        """
        if self.connection is not None:
            from streamomd.distributed.sharded import PartitionOwners

            PartitionOwners(
                self.model, self.shards, self.manager, self.watchers, self.stop, self.connection
            ).run()
        else:
            self._learn_alone()

    def _learn_alone(self) -> None:
        model, train = self.model, self.model.spec.train
        share = Share.whole(model.engine, model.state, train.parts)
        described = (model.spec, model.plan, self.shards, share, model.metrics, model.cursor)
        more: Any = {"guard": model.guard, "of_new": model.update.of_new}
        more["alerted"] = partial(report_alerts, model)
        rounds = Rounds(*described, model.names, model.digests, **more)
        model.engine.compile_seconds += rounds.warm()
        for _ in rounds:
            model.cursor = rounds.cursor
            self._report(rounds)
            if model.alert and fails_on_alert(model):
                rounds.examine()
                raise_alert(model, self.manager)
            if self.stop.signal:
                rounds.examine()
                raise_stopped(self.stop, self.model, self.manager)
        model.cursor = rounds.cursor
        self._emit_rounds(rounds.done)

    def _emit_rounds(self, done: int) -> None:
        emit("rounds", "", "debug", rounds=done - self._reported)
        self._reported = done

    def _report(self, rounds: Rounds) -> None:
        """Update the watchers at their next rows, and after a while."""
        rows, now = self.model.metrics.total_rows, time.monotonic()
        due = any(watcher.next_row <= rows for watcher in self.watchers)
        if due or now - self._report_time > REPORT_SECONDS:
            self._report_time = now
            self._emit_rounds(rounds.done)
            rounds.examine()
            for watcher in self.watchers:
                watcher.update(self.model.metrics)
