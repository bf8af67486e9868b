"""How a run reports: on stderr, in a log of JSON lines, to callbacks, as metrics of a port."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Self

from streamomd.core.http_servers import MetricsAddress
from streamomd.core.run_events import JsonLog, check_log, is_json, one_run, receiving
from streamomd.core.urls import redact, shown
from streamomd.training.model_data import ModelData
from streamomd.training.model_figures import rule_figure
from streamomd.training.progress import (
    Callback,
    CallbackWatcher,
    Figure,
    ProgressEvents,
    Watcher,
    note,
    refuse_illegal,
)
from streamomd.training.progress_bars import progress

if TYPE_CHECKING:
    from streamomd.runs.run_metrics import RunMetrics


@dataclass(frozen=True)
class Reporting:
    """log: file for JSON lines. quiet: nothing on stderr. callbacks: see
    ``training.progress.Callback``. metrics: where they are served; exported:
    those that are, while the run is ``opened``.

    Raises UsageError for a log that cannot be written and for an object that is no callback.
    """

    log: str | None = None
    quiet: bool = False
    callbacks: Sequence[Callback] = ()
    metrics: MetricsAddress | None = None
    exported: RunMetrics | None = None

    def __post_init__(self) -> None:
        check_log(self.log)
        refuse_illegal(self.callbacks)

    @contextmanager
    def counting(self) -> Iterator[Self]:
        """Inside: events are counted before it is known whether this process serves metrics."""
        if self.metrics is None or self.exported is not None:
            yield self
            return
        from streamomd.runs.run_metrics import RunMetrics

        exported = RunMetrics()
        with receiving(exported.receive):
            yield replace(self, exported=exported)

    @contextmanager
    def opened(self, *, serving: bool = True) -> Iterator[Self]:
        """Inside: events go to the log, and metrics are served if this process learns.

        Raises UsageError for an address that cannot be used, MissingExtraError.
        """
        with ExitStack() as stack:
            stack.enter_context(one_run())
            exported = None
            if self.log:
                stack.enter_context(log_events(self.log))
            if self.metrics and serving:
                exported = stack.enter_context(self.counting()).exported
                assert exported is not None
                from streamomd.runs.run_metrics import serve_metrics  # late: Python's server

                stack.enter_context(serve_metrics(self.metrics, exported.families))
            yield replace(self, exported=exported)

    def watchers(self, model: ModelData, expected: int, figure: Figure | None) -> list[Watcher]:
        """The watchers of a run of ``expected`` rows. figure: the rule's own, on stderr."""
        found: list[Watcher] = []
        if self.log or (is_json() and not self.quiet):
            found.append(ProgressEvents(model.metrics))
        if not self.quiet and not is_json():
            found.append(progress(model.metrics, expected, figure))
        if self.callbacks:
            about = {"job": model.spec.to_json(), "checkpoint": redact(model.url)}
            given = (self.callbacks, model.metrics, about, expected, rule_figure(model))
            found.append(CallbackWatcher(*given))
        if self.exported:
            found.append(self.exported.begin(model, expected))
        return found


@contextmanager
def log_events(path: str) -> Iterator[None]:
    """Append the events of this context to a file of JSON lines while inside."""
    log = JsonLog(path)
    try:
        with receiving(log.receive):
            yield
    finally:
        log.close()
        if log.problem:
            note(f"the log {shown(path)} is incomplete: {log.problem}", "log", "warning")
