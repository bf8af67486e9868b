"""Loads the newest commit, and newer ones as they appear; a commit that is refused changes
nothing. Of a commit the server has a ``Snapshot``.

The current snapshot is one attribute, replaced in one assignment: a request that has read it goes
to its end with that commit.
"""

from __future__ import annotations

import re
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Self

from streamomd.checkpoint import open_store
from streamomd.checkpoint.commit_reader import sequences
from streamomd.core.errors import DivergedError, NoCommitError, UsageError
from streamomd.core.finite import NOT_FINITE
from streamomd.core.urls import absolute, printable, scrub, shown
from streamomd.core.wording import counted
from streamomd.training.load_model import load_model
from streamomd.training.model import Model
from streamomd.training.progress import note

PUBLISHED: Mapping[str, tuple[str, ...]] = {
    "data": (
        "label", "weight", "numeric", "hashed", "vectors", "text", "dates", "sparse", "crosses",
        "nulls", "standardize", "bits", "hash_seed",
    ),
    "model": ("rule", "loss", "loss_params", "task", "classes", "bias", "dtype", "params"),
    "train": ("mode", "epochs"),
}  # fmt: skip
"""Keys of a job that /model shows; no other one is, nor what is nested in it."""
_FREE = ("loss_params", "params")
"""Keys whose own keys are a rule's or a loss's."""
_PLACE = re.compile(r"[/\\@:]")


@dataclass(frozen=True)
class Schema:
    """What a client relies on: two commits with equal ones answer the same requests.

    columns: kind by name. required: names that each row has to have. probabilities: whether there
    are any.
    """

    label: str
    columns: Mapping[str, str]
    required: tuple[str, ...]
    classes: tuple[Any, ...]
    probabilities: bool

    def to_json(self) -> dict[str, Any]:
        """For /model."""
        return {
            "label": self.label,
            "columns": dict(self.columns),
            "required": list(self.required),
            "task": "classify" if self.classes else "regress",
            "classes": list(self.classes),
            "probabilities": self.probabilities,
        }

    def changes(self, other: Schema) -> str:
        """How another schema differs, in words; empty if it does not."""
        mine, its = self.to_json(), other.to_json()
        gone = [f"-{name}" for name in mine["columns"] if its["columns"].get(name) is None]
        more = [f"+{name}" for name in its["columns"] if mine["columns"].get(name) is None]
        rest = [key for key in mine if key not in ("columns", "required") and mine[key] != its[key]]
        kinds = [
            name for name, kind in mine["columns"].items() if its["columns"].get(name, kind) != kind
        ]
        parts = [f"columns {', '.join([*gone, *more][:10])}"] if gone or more else []
        parts += [f"the kind of {', '.join(kinds[:10])}"] if kinds else []
        parts += [", ".join(rest)] if rest else []
        if not parts and self != other:
            parts = ["the required columns"]
        return "; ".join(parts)


@dataclass(frozen=True)
class Snapshot:
    """One commit, immutable. A request uses one snapshot from its first row to its last."""

    scorer: Any
    commit: int
    rows: int
    schema: Schema
    job: Mapping[str, Any]
    trained: bool = True

    def to_json(self) -> dict[str, Any]:
        """What /model answers."""
        return {
            "job": self.job,
            "commit": self.commit,
            "rows": self.rows,
            "schema": self.schema.to_json(),
        }


def snapshot_of(model: Model) -> Snapshot:
    """A model of a commit. The state of the model is not needed any more."""
    scorer = model.scorer()
    schema = Schema(
        label=model.plan.label,
        columns=dict(scorer.columns),
        required=tuple(scorer.required),
        classes=tuple(scorer.classes),
        probabilities=model.has_probabilities,
    )
    job = published_job(model.spec.to_json())
    rows, trained = model.metrics.total_rows, not model.is_untrained
    return Snapshot(scorer, model.sequence, rows, schema, job, trained)


def published_job(job: Mapping[str, Any]) -> dict[str, Any]:
    """The keys of a job that say what is learned; none that say where it comes from.

    >>> published_job({"data": {"shards": ["s3://b/k"], "label": "y"}, "checkpoint": {"url": "r"}})
    {'data': {'label': 'y'}}
    """
    tables = {
        table: {
            key: _without_places(value) if key in _FREE else value
            for key, value in job[table].items()
            if key in keys
        }
        for table, keys in PUBLISHED.items()
        if table in job
    }
    return {table: values for table, values in tables.items() if values}


def _without_places(value: Any) -> Any:
    """A parameter without texts that may be a path or a URL, at any depth."""
    if isinstance(value, Mapping):
        values = {key: _without_places(one) for key, one in value.items()}
        return {key: one for key, one in values.items() if one is not None}
    if isinstance(value, list | tuple):
        return [_without_places(one) for one in value]
    return None if isinstance(value, str) and _PLACE.search(value) else value


_BOUND = re.compile(r"\s*(loss|error|rmse)\s*<=\s*([0-9.]+(?:[eE][+-]?[0-9]+)?)\s*")


class GatedError(Exception):
    """A commit that is worse than the bound."""


@dataclass(frozen=True)
class Gate:
    """metric: loss, error or rmse. most: its largest value. shards: labelled rows that a commit is
    evaluated on; without them, the progressive figure of the rows of its last update, each
    predicted before it was learned.
    """

    metric: str
    most: float
    shards: tuple[str, ...] = ()
    storage_options: Mapping[str, Any] = field(default_factory=dict, repr=False)

    @classmethod
    def parse(
        cls, text: str, shards: tuple[str, ...] = (), options: Mapping[str, Any] | None = None
    ) -> Self:
        """The gate of ``loss<=0.3``. Raises UsageError for another text."""
        try:
            found = _BOUND.fullmatch(text)
            if found is None:
                raise ValueError(text)
            return cls(found[1], float(found[2]), shards, options or {})
        except ValueError:
            raise UsageError(
                f"--gate {printable(text)!r}: expected loss, error or rmse and its largest value, "
                "such as 'loss<=0.3'"
            ) from None

    def check(self, model: Model) -> None:
        """Raise GatedError for a model that is worse; UsageError if it has no such figure."""
        if self.metric == ("rmse" if model.spec.model.classifies else "error"):
            raise UsageError(f"--gate: this model has no {self.metric}; use loss")
        if self.shards:
            of = "the rows of --gate-rows"
            figures = model.evaluate(self.shards, storage_options=self.storage_options, quiet=True)
        else:
            of = f"the rows of update {model.update.number}" if model.update.number else "all rows"
            figures = model.update.figures(model.metrics)
        value = figures[self.metric]
        if value is None or not value <= self.most:
            shown = "undefined" if value is None else f"{value:.6g}"
            raise GatedError(f"its {self.metric} on {of} is {shown}, over {self.most:g} of --gate")


NON_FINITE, SCHEMA, UNREADABLE = "non_finite", "schema", "unreadable"
UNTRAINED, GATE = "untrained", "gate"


@dataclass(frozen=True)
class Refused:
    """A commit that is not served. reason: NON_FINITE, SCHEMA, UNTRAINED, GATE or UNREADABLE (it is
    tried again)."""

    commit: int
    reason: str


class CheckpointSource:
    """Commits at a URL. No URL that a checkpoint names is opened."""

    def __init__(
        self, url: str, storage_options: Mapping[str, Any] | None = None, gate: Gate | None = None
    ) -> None:
        self.url, self._options, self._gate = url, storage_options, gate

    def newest(self) -> int:
        """The number of the newest commit. Raises NoCommitError if there is none."""
        found = sequences(open_store(absolute(self.url), self._options))
        if not found:
            raise NoCommitError(f"{shown(self.url)} has no commit yet")
        return found[-1]

    def load(self, at: int) -> Snapshot:
        """A commit; only a whole one. Raises DivergedError if it is not finite, GatedError."""
        model, _ = load_model(self.url, storage_options=self._options, at=at, needs=())
        return self._checked(model)

    def load_first(self) -> tuple[Snapshot, Refused | None]:
        """The newest commit that is whole, finite and passes the gate, and the newest one if it is
        another. Raises NoCommitError if there is none."""
        # Names of a model of words are megabytes of JSON, which keeps requests waiting.
        given: Any = {"storage_options": self._options, "needs": ()}
        model, loaded = load_model(self.url, finite=True, **given)
        for sequence, reason in loaded.rejected:
            note(f"commit {sequence} rejected: {reason}; serving {model.sequence}")
        refused = None
        if loaded.rejected:
            sequence, reason = max(loaded.rejected)
            finite = not str(reason).startswith(NOT_FINITE)
            refused = Refused(sequence, UNREADABLE if finite else NON_FINITE)
        try:
            return self._checked(model), refused
        except GatedError as error:
            note(f"commit {model.sequence} refused: {error}")
            newest = refused or Refused(model.sequence, GATE)
        for number in reversed(sequences(open_store(absolute(self.url), self._options))):
            if number < model.sequence:
                try:
                    return self.load(number), newest
                except (GatedError, NoCommitError, DivergedError) as error:
                    note(f"commit {number} refused: {error}")
        raise NoCommitError(f"{shown(self.url)} has no commit that passes --gate")

    def _checked(self, model: Model) -> Snapshot:
        model.refuse_non_finite(weights=True)
        if self._gate is not None:
            self._gate.check(model)
        return snapshot_of(model)


class ModelReloader:
    """``snapshot``: what is served, None before the first load. ``refused``: the newest commit, if
    it is not served. ``results``: commits looked at, by result.

    Only one thread calls ``load_first`` and ``check``; any may read.
    """

    def __init__(self, source: Any) -> None:
        self.source = source
        self.snapshot: Snapshot | None = None
        self.refused: Refused | None = None
        self.results: Counter[str] = Counter()
        self._logged: tuple[int, str] | None = None

    def load_first(self) -> None:
        """Load the first snapshot. Raises what ``streamomd.load`` raises, DivergedError."""
        snapshot, self.refused = self.source.load_first()
        self.snapshot = snapshot
        self.results["loaded"] += 1
        if not snapshot.trained:
            note(f"commit {snapshot.commit} has learned no rows: it predicts the same for each row")
        if self.refused:
            self.results["refused"] += 1

    def check(self) -> None:
        """Load the newest commit if it is another one; raises nothing."""
        newest = -1
        try:
            newest = self.source.newest()
            self._load(newest)
        except Exception as error:  # a server continues with the model it has
            self.results["failed"] += 1
            self.refused = Refused(newest, UNREADABLE)
            name = f"commit {newest}" if newest >= 0 else "the newest commit"
            self._log(newest, f"{name} cannot be read: {type(error).__name__}: {scrub(str(error))}")

    def _load(self, newest: int) -> None:
        current = self.snapshot
        if current is not None and newest == current.commit:
            self.refused = None
            return
        if self.refused and self.refused.commit == newest and self.refused.reason != UNREADABLE:
            return
        try:
            loaded = self.source.load(newest)
        except DivergedError as error:
            self._refuse(newest, NON_FINITE, str(error))
            return
        except GatedError as error:
            self._refuse(newest, GATE, str(error))
            return
        changes = current.schema.changes(loaded.schema) if current else ""
        if changes:
            text = f"its schema is another one ({changes}): start the server again to serve it"
            self._refuse(newest, SCHEMA, text)
            return
        if current and current.trained and not loaded.trained:
            self._refuse(newest, UNTRAINED, "a run was started over here and has learned no rows")
            return
        self.snapshot, self.refused = loaded, None
        self.results["loaded"] += 1
        self._logged = None
        note(f"serving commit {loaded.commit}, {counted(loaded.rows, 'row')}")

    def _refuse(self, commit: int, reason: str, text: str) -> None:
        self.results["refused"] += 1
        self.refused = Refused(commit, reason)
        self._log(commit, f"commit {commit} refused: {text}")

    def _log(self, commit: int, text: str) -> None:
        """A problem once, although it is found at every check."""
        if self._logged != (commit, text):
            self._logged = commit, text
            still = f"; still serving commit {self.snapshot.commit}" if self.snapshot else ""
            note(f"{text}{still}")


SWITCH_SECONDS = 1e-4
"""Python's own 5 ms make 1 % of the answers during a reload wait 1.3 ms, these 0.5 ms."""


@contextmanager
def short_switches() -> Iterator[None]:
    """While inside, a thread that asks for the interpreter gets it from another one sooner."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(min(before, SWITCH_SECONDS))
    try:
        yield
    finally:
        sys.setswitchinterval(before)


class ReloadThread(threading.Thread):
    """Loads first, then checks every ``seconds``; 0: never. ``error``: of the first load."""

    def __init__(self, reloader: ModelReloader, seconds: float, loaded: Callable[[], None]) -> None:
        super().__init__(name="streamomd-reload", daemon=True)
        self.error: BaseException | None = None
        self._reloader, self._seconds, self._loaded = reloader, seconds, loaded
        self._stopped = threading.Event()

    def run(self) -> None:
        """Called by ``start``."""
        try:
            self._reloader.load_first()
        except BaseException as error:
            self.error = error
            return
        self._loaded()
        while self._seconds > 0.0 and not self._stopped.wait(self._seconds):
            with short_switches():
                self._reloader.check()

    def stop(self) -> None:
        """End after the current check."""
        self._stopped.set()
