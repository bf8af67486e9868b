"""Follow: update a run again and again, as shards arrive, without loading it again.

    finish its list → list the sources → learn what is new → commit → wait for more

A store that does not answer is tried again, with pauses that double. The state of the run stays in
memory where that is safe; else it is read from the last commit.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NoReturn

from streamomd.config.run_tables import Update
from streamomd.config.spec import Spec
from streamomd.core.errors import AlertError, InputNotFoundError, StoppedError, StorageError
from streamomd.core.http_servers import MetricsAddress
from streamomd.core.run_events import emit, name_run
from streamomd.core.urls import shown, typed
from streamomd.core.wording import counted, named_keywords
from streamomd.runs.follow_alerts import (
    Clock,
    FollowCallback,
    LagAlert,
    LagWatcher,
    Landings,
    Outage,
    watch_files,
)
from streamomd.runs.reporting import Reporting
from streamomd.runs.update_choice import choice_of, given_keys, update_table
from streamomd.runs.update_run import UpdateRun
from streamomd.shards.shard import ShardSet
from streamomd.sources.arrivals import Arrivals
from streamomd.sources.folder_watch import FileWatch
from streamomd.sources.new_files import SkippedShard
from streamomd.training.model import Model
from streamomd.training.model_data import ModelData
from streamomd.training.progress import Callback, Watcher, note, note_return, quiet_notes, show
from streamomd.training.signals import StopRequest, raise_stopped, stop_on_signals

GLANCE_SECONDS = 0.5
"""Time in which a signal is seen while nothing is learned."""
LEAST_SECONDS = 0.05
"""Between two listings."""


@dataclass(eq=False)
class Follower:
    """A run that is updated again and again.

    open: loads the run. given: keys of [update] that this process sets. waiting: called while
    nothing is learned, and while rows are. before: where the figures begin.
    """

    open: Callable[[], UpdateRun]
    given: Mapping[str, Any]
    stop: StopRequest
    watch: Callable[[Spec, Update], FileWatch]
    callbacks: Sequence[FollowCallback] = ()
    waiting: Sequence[Watcher] = ()
    clock: Clock = field(default_factory=Clock)
    new_shards: int = 0
    new_rows: int = 0
    skipped: tuple[SkippedShard, ...] = ()
    freshness: float | None = None

    def __post_init__(self) -> None:
        self._use(self.open())
        self.before, self._files = self._known().before, self.watch(self.model.spec, self.table)
        self._landings = Landings()
        self._outage, self._alert = Outage(self.clock), LagAlert()
        self._look_seconds = 0.0
        self._reported: set[str] = set()
        self._reporting: set[str] = set()

    def follow(self) -> Model:
        """Learn what arrives until nothing has for ``idle_exit`` seconds; the model.

        Raises StoppedError after a signal, AlertError, and what an update raises; not StorageError.
        """
        since = self.clock.seconds()
        while True:
            began, learned = self.clock.seconds(), 0
            try:
                learned, active = self.catch_up()
            except StorageError as error:
                self._outage.begin(error, self.model.sequence)
                self._check_lag()
                self._wait(self._outage.pause, self._sleep)
                continue
            self._outage.end()
            now = self.clock.seconds()
            since = now if active else since
            if self.table.idle_exit and now - since >= self.table.idle_exit:
                note(f"no new shard in {self.table.idle_exit:g} s")
                return self.model
            if not learned or learned != self.choice.max_shards:  # else there may be more
                self._wait_for_files(began, since)

    def catch_up(self) -> tuple[int, bool]:
        """One update: the number of shards learned, and whether any is new, learned or settling."""
        if self.run is None:
            rows = self.model.metrics.total_rows
            self._use(self.open())
            what = f"the run was read again from commit {self.model.sequence}"
            note_return(what, self.model.metrics.total_rows, rows)
        run = self._known()
        if run.learning is not None or not run.model.finished:
            self._learn(run, run.finish)
        arrivals, new = self._look(run)
        self._check_lag()
        if arrivals.touched:  # else each listing would open them again
            run.ledger.change(dict(arrivals.touched))
        self._learn(run, lambda: run.learn(arrivals))
        active = len(arrivals.shards) or new or self._settling() is not None
        return len(arrivals.shards), bool(active)

    def result(self) -> dict[str, Any]:
        """Returns the figures of all updates of this process, see ``UpdateRun.figures``, with lag
        and freshness."""
        learned = self.before.figures(self.model.metrics)
        return {
            "new_shards": self.new_shards,
            "new_rows": self.new_rows,
            "update": learned if self.new_shards else None,
            "skipped_shards": [{"url": one.url, "reason": one.reason} for one in self.skipped],
            "lag": self._landings.lag(self.clock.now_ns()),
            "freshness": self.freshness,
        }

    def end(self, state: str) -> None:
        """Close what is open, and report the state to the callbacks."""
        for callback in self.callbacks:
            callback.end(state)
        self._files.close()

    def _use(self, run: UpdateRun) -> None:
        self.run: UpdateRun | None = run
        self.model = run.model
        self.table = update_table(run.model.spec, self.given)
        self.model.fail_on_alert = self.table.fail_on_alert
        self.choice = choice_of(run.model.spec, self.given)
        run.new_renames = ()  # files with these names may come later
        run.clock, run.report = self.clock.now_ns, self._report
        run.watchers = (*self.waiting, LagWatcher(self._look_at_lag, self.clock))

    def _known(self) -> UpdateRun:
        assert self.run is not None
        return self.run

    def _look(self, run: UpdateRun) -> tuple[Arrivals, int]:
        """List the sources; the number of files that were not listed before.

        Files that were renamed count as complete, unless they were written to since.
        """
        began, self._reporting = self.clock.seconds(), set()
        while True:
            complete = self._files.complete()
            try:
                choice = self.choice._replace(complete=complete.keys())
                arrivals = run.find(choice, appends_only=self.table.appends_only)
            except InputNotFoundError as error:
                if self._landings.looked_ns is None:
                    raise
                raise StorageError(str(error)) from None  # it was there before
            taken = {shard.path for shard in arrivals.shards} & complete.keys()
            if not taken or not self._files.written(taken):
                break
        new = self._landings.look(arrivals.unlearned, self.clock.now_ns(), complete)
        self._emit_landings()
        self.skipped, self._reported = arrivals.skipped, self._reporting
        self._look_seconds = self.clock.seconds() - began
        return arrivals, new

    def _learn(self, run: UpdateRun, learn: Callable[[], None]) -> None:
        """Learn a list to its end, and report it. Raises AlertError if the lag was an alert."""
        run.learned = None
        try:
            learn()
        except StorageError:
            # In exact mode the state is that of the cursor's row, wherever the error occurred, but
            # not of both cursors of a delay.
            # Another's take-over may have succeeded nevertheless: it would stop this one.
            spec = run.model.spec
            if run.manager is None or spec.train.mode != "exact" or spec.data.delay:
                self.run = None
            raise
        if run.learned is None:
            return
        self._files.forget([shard.path for shard in run.learned])
        now = self.clock.now_ns()
        self.freshness = self._landings.learned([shard.url for shard in run.learned], now)
        if run.model.update.of_new:
            self.new_shards += len(run.learned)
            self.new_rows += run.learned.rows
        else:
            self.before = run.before
        self._emit_landings()
        self._report_update(run.model, run.learned, self._landings.lag(now))
        if self._alert.text and self.table.fail_on_alert:
            raise AlertError(f"{self._alert.text}; commit {run.model.sequence}")

    def _report_update(self, model: ModelData, shards: ShardSet, lag: float) -> None:
        now, of_update = model.metrics.figures(model.metrics.total), model.update
        learned = of_update.figures(model.metrics)
        times = {"lag": lag, "freshness": self.freshness}
        count, rows = counted(len(shards), "shard"), counted(shards.rows, "row")
        what = f"update {of_update.number}" if of_update.number else "first run"
        what = what if of_update.of_new or not of_update.number else "more epochs"
        fresh = "" if self.freshness is None else f", freshness {self.freshness:.1f} s"
        note(
            f"{what}: {count} ({rows}), loss {show(learned['loss'])}; lag {lag:.1f} s{fresh}; "
            f"commit {model.sequence}, {model.metrics.total_rows:,} rows, loss {show(now['loss'])}",
            "update",
            "info",
            number=of_update.number,
            new_shards=len(shards),
            new_rows=shards.rows,
            rows=model.metrics.total_rows,
            loss=now["loss"],
            update=learned,
            **times,
            commit=model.sequence,
        )
        for callback in self.callbacks:
            callback.end_update(**times)

    def _emit_landings(self) -> None:
        emit("landings", "", "debug", oldest_ns=min(self._landings.landed.values(), default=None))

    def _report(self, line: str) -> None:
        """Print a line of a listing, unless the listing before had it too.

        A file that is not complete has a line only if it takes longer than usual.
        """
        skipped = {shard.note: shard for shard in self._known().skipped}
        key, shard = line, skipped.get(line)
        if shard is not None and not shard.recorded:
            now = self.clock.now_ns()
            waits = (now - self._landings.landed.get(shard.url, now)) / 1e9
            if waits <= self.table.settle + self.table.every:
                return
            key = shard.url
        self._reporting.add(key)
        if key not in self._reported:
            note(line)

    def _look_at_lag(self) -> None:
        self._alert.look(self._landings, self.clock.now_ns(), self.table.max_lag)

    def _check_lag(self) -> None:
        """Report a lag that is too high. Raises AlertError if the job is to end at an alert."""
        self._look_at_lag()
        run = self.run
        if self._alert.text and self.table.fail_on_alert:
            if run is not None and run.learning is not None and run.manager is not None:
                with suppress(StorageError):  # then the commit before it stands
                    run.manager.commit()
            raise AlertError(f"{self._alert.text}; commit {self.model.sequence}")

    def _settling(self) -> float | None:
        """Seconds until the next file is old enough; None if no file waits for that."""
        now, settle = self.clock.now_ns(), self.table.settle
        waits = [settle - age for age in self._landings.ages(now) if 0.0 <= age < settle]
        return min(waits, default=None)

    def _wait_for_files(self, began: float, since: float) -> None:
        """Wait until the next listing: a file appears, is old enough, or ``every`` has passed."""
        # Listing takes at most half of the time, however many files appear.
        self._wait(max(LEAST_SECONDS, self._look_seconds), self._sleep)
        now, settling = self.clock.seconds(), self._settling()
        seconds = [began + self.table.every - now]
        if self.table.idle_exit:
            seconds.append(since + self.table.idle_exit - now)
        if settling is not None and type(self._files) is not FileWatch:
            seconds.append(settling)
        self._wait(min(seconds), self._files.wait)

    def _sleep(self, seconds: float) -> bool:
        self.clock.sleep(seconds)
        return False

    def _wait(self, seconds: float, wait: Callable[[float], bool]) -> None:
        """Wait, in parts after which a signal is seen. Raises StoppedError."""
        end = self.clock.seconds() + seconds
        while True:
            for watcher in self.waiting:
                watcher.update(self.model.metrics)
            if self.stop.signal:
                self._stop()
            left = end - self.clock.seconds()
            if left <= 0.0 or wait(min(left, GLANCE_SECONDS)):
                return

    def _stop(self) -> NoReturn:
        run, model = self.run, self.model
        if run is not None and run.learning is not None:
            raise_stopped(self.stop, model, run.manager)
        raise StoppedError(
            f"stopped after row {model.metrics.total_rows:,}: commit {model.sequence}; continue "
            f"with: streamomd follow {typed(model.url)}",
            signal=self.stop.signal,
        )


@named_keywords
def follow(
    url: str,
    *,
    every: float | str | None = None,
    settle: float | str | None = None,
    idle_exit: float | str | None = None,
    max_lag: float | str | None = None,
    fail_on_alert: bool | None = None,
    max_shards: int | None = None,
    until: str | None = None,
    ignore_rewritten: bool | None = None,
    moved: bool | None = None,
    accept_duplicates: bool | None = None,
    retry_skipped: bool | None = None,
    appends_only: bool | None = None,
    client: Any = None,
    storage_options: Mapping[str, Any] | None = None,
    checkpoint_storage_options: Mapping[str, Any] | None = None,
    sets: Mapping[str, Any] | None = None,
    log: str | None = None,
    quiet: bool = False,
    callbacks: Sequence[Callback] = (),
    metrics_port: int | None = None,
    metrics_host: str = "",
) -> Model:
    """Update a run again and again: learn shards as they arrive, each once, and commit.

    every: seconds between two listings, or "60s". idle_exit: return after that long without a new
    shard. max_lag, fail_on_alert: age of an unlearned shard that is reported, and whether it raises
    AlertError. None: as the job's table [update] has them. The other arguments are those of
    ``streamomd.update``, of which this raises the errors, too; but a store that does not answer is
    tried again. Raises StoppedError after a signal, its commit made.
    """
    model, _ = run_follow(
        url,
        given_keys(locals()),
        options=(storage_options, checkpoint_storage_options),
        sets=sets or {},
        client=client,
        reporting=Reporting(log, quiet, callbacks, MetricsAddress.of(metrics_port, metrics_host)),
    )
    return model


def run_follow(
    url: str,
    given: Mapping[str, Any],
    *,
    options: tuple[Mapping[str, Any] | None, Mapping[str, Any] | None],
    sets: Mapping[str, Any],
    client: Any,
    reporting: Reporting,
) -> tuple[Model, dict[str, Any]]:
    """Does what ``follow`` does; returns the model and the figures of all its updates."""
    with stop_on_signals() as stop, quiet_notes(reporting.quiet), reporting.opened() as opened:
        name_run(shown(url))
        callbacks = [FollowCallback(callback) for callback in reporting.callbacks]
        # An update has one line of its own; a bar goes when it ends.
        quiet = reporting.quiet or not (sys.stderr and sys.stderr.isatty())
        each = replace(opened, quiet=quiet, callbacks=callbacks)
        more = {"stop": stop, "reporting": each, "client": client}
        follower = Follower(
            partial(UpdateRun.open, url, sets, *options, given=given, **more),
            given,
            stop,
            watch_files,
            callbacks=callbacks,
        )
        return follow_to_end(follower)


def follow_to_end(follower: Follower) -> tuple[Model, dict[str, Any]]:
    """The model and the figures; what is open is closed, whatever happens."""
    state = "stopped"
    try:
        model = follower.follow()
        state = "finished"
        return model, follower.result()
    finally:
        follower.end(state)
