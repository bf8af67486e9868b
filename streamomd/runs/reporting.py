"""How a run reports its progress: on stderr, in a log of JSON lines, to callbacks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from streamomd.core.urls import redact
from streamomd.training.callbacks import Callback, CallbackWatcher, refuse_illegal
from streamomd.training.model import Model
from streamomd.training.model_figures import rule_figure
from streamomd.training.progress import Figure, Log, Watcher, check_log, progress


@dataclass(frozen=True)
class Reporting:
    """log: file for JSON lines. quiet: nothing on stderr. callbacks: see ``training.callbacks``.

    Raises UsageError for a log that cannot be written and for an object that is no callback.
    """

    log: str | None = None
    quiet: bool = False
    callbacks: Sequence[Callback] = ()

    def __post_init__(self) -> None:
        check_log(self.log)
        refuse_illegal(self.callbacks)

    def watchers(self, model: Model, expected: int, figure: Figure | None) -> list[Watcher]:
        """The watchers of a run of ``expected`` rows. figure: the rule's own, on stderr."""
        found: list[Watcher] = [Log(self.log, model.metrics)] if self.log else []
        if not self.quiet:
            found.append(progress(model.metrics, expected, figure))
        if self.callbacks:
            about = {"job": model.spec.to_json(), "checkpoint": redact(model.url)}
            given = (self.callbacks, model.metrics, about, expected, rule_figure(model))
            found.append(CallbackWatcher(*given))
        return found
