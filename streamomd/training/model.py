"""Model: a job, how its columns become coordinates, and the state learned so far."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from streamomd.checkpoint import Part, StoredParts
from streamomd.config.recorded import Recorded
from streamomd.config.spec import Spec
from streamomd.core.batch import Batch, check
from streamomd.core.errors import DivergedError, UsageError
from streamomd.core.finite import FiniteCheck, Place, finite_parts, is_finite
from streamomd.core.profiling import Stage
from streamomd.core.registry import converter
from streamomd.core.urls import shown
from streamomd.engine import Engine
from streamomd.engine.state import State
from streamomd.features import Names, Plan
from streamomd.rules.contract import fields
from streamomd.shards.cursor import Cursor
from streamomd.shards.digests import Digests
from streamomd.training.build_engine import engine_of
from streamomd.training.holdout import result, stretches_of
from streamomd.training.metrics import Counts, Metrics
from streamomd.training.predict import evaluate, predict
from streamomd.training.progress import Figure
from streamomd.training.remote_state import RemoteState
from streamomd.training.row_stream import cache_of
from streamomd.training.top_weights import heaviest, weighed


@dataclass(eq=False)
class Model:
    """What ``streamomd.train`` and ``streamomd.load`` return.

    ``spec``, ``plan``: descriptions. ``state``, ``metrics``, ``names``: data, moved by learning.
    ``digests``: of the row groups that were read. ``cursor``: the next row of the training stream.
    ``url``, ``sequence``: the commit it was read from or written to; empty and −1 if none.
    ``recorded``: the cluster and the cache that its manifest names, which are not used.
    """

    spec: Spec
    plan: Plan
    engine: Engine
    state: State
    metrics: Metrics
    names: Names = field(default_factory=Names)
    digests: Digests = field(default_factory=Digests, repr=False)
    cursor: Cursor = field(default_factory=Cursor)
    url: str = ""
    sequence: int = -1
    finished: bool = False
    seconds: float = 0.0
    rows_per_second: float = 0.0
    recorded: Recorded = field(default_factory=Recorded)
    guard: FiniteCheck = field(default_factory=FiniteCheck, repr=False)

    def __repr__(self) -> str:
        """In a line: its state may have millions of numbers."""
        told, classes = self.spec.model, len(self.plan.classes)
        parts = [f"rule={told.rule!r}", f"loss={told.loss!r}"]
        parts += [f"classes={classes}"] if classes else []
        parts += [f"coordinates={self.plan.size}", f"rows={self.metrics.total_rows}"]
        parts += [f"url={shown(self.url)!r}"] if self.url else []
        return f"Model({', '.join(parts)})"

    @classmethod
    def new(cls, spec: Spec, plan: Plan, state: State | None = None) -> Self:
        """A model that has seen nothing; or one with this state, whose figures are to be filled."""
        engine = engine_of(spec, plan)
        if state is None:
            state = State.start(engine.layout)
            engine.begin(state)
        looks = spec.rule.looks is not None and spec.rule.looks(spec.model.params)
        cursor = Cursor(epoch=-1 if looks else 0)
        held = Metrics(spec.model.classifies) if spec.data.holdout else None
        metrics = Metrics(spec.model.classifies, held=held)
        return cls(spec, plan, engine, state, metrics, cursor=cursor)

    def start_from(self, other: Model) -> None:
        """Take another model's state and names; metrics restart. The learning rate may differ.

        Raises UsageError listing what of the two descriptions does not agree.
        """
        ours, theirs = self._description(), other._description()
        differ = [key for key in ours if ours[key] != theirs[key]]
        if differ:
            lines = [f"{key}: {theirs[key]!r} there, {ours[key]!r} here" for key in differ]
            raise UsageError(f"cannot start from {shown(other.url)}: " + "; ".join(lines))
        self.state, self.names = other.state, other.names

    def _description(self) -> dict[str, Any]:
        model = self.spec.model
        known = ("rule", "loss", "loss_params", "certificate", "dtype", "bias")
        # A run that diverged goes on with a smaller one.
        params = {key: value for key, value in model.params.items() if key != "eta"}
        plan = self.plan.to_json()
        # Types may differ as they may between shards.
        plan["types"] = [(column.name, column.family) for column in self.plan.types]
        del plan["label_type"], plan["on_bad_row"]
        plan.pop("limits", None)  # as the rule and dtype say, and older versions did not save
        return {**{key: getattr(model, key) for key in known}, "params": params, **plan}

    @property
    def state_sha256(self) -> str:
        """Hash of slots, totals, clock, counters and rows consumed."""
        digest = hashlib.sha256()
        self.state.digest(digest)
        self.metrics.digest(digest)
        return digest.hexdigest()

    def document(self, **more: Any) -> dict[str, Any]:
        """What a commit says of this model beside its parts."""
        return {
            "job": self.recorded.added_to(self.spec.to_json()),
            "plan": self.plan.to_json(),
            "state_version": self.spec.rule.state_version,
            "cursor": self.cursor.to_json(),
            "rows": self.metrics.total_rows,
            "finished": self.finished,
            "finite": True,  # else its parts are not packed
            **more,
        }

    def result(self) -> dict[str, Any]:
        """What ``--json`` prints: figures of all rows learned, this process's speed, the commit."""
        return {
            **self.metrics.result(),
            **self.metrics.detailed(self.engine.loss, self.plan.classes),
            **self._holdout(),
            "seconds": self.seconds,
            "rows_per_second": self.rows_per_second,
            "compile_seconds": self.engine.compile_seconds,
            "checkpoint": {"url": self.url, "sequence": self.sequence},
            "state_sha256": self.state_sha256,
        }

    def _holdout(self) -> dict[str, Any]:
        held, done = self.metrics.held, max(self.cursor.epoch, 0)
        told = (self.engine.loss, self.plan.classes, done)
        return {
            "holdout": result(held, *told) if held is not None else None,
            "stopped_early": self.finished and done < self.spec.train.epochs,
        }

    def parts(self) -> Iterator[Part]:
        """What a commit keeps of this model."""
        return parts_of(self.state, self.metrics)

    def kept(self) -> Iterator[Part] | StoredParts:
        """What a commit is to be made of: parts, or those that are in the checkpoint already."""
        put = self.state.put if isinstance(self.state, RemoteState) else None
        return put or self.parts()

    def summary(self) -> dict[str, Any]:
        """What a model is, in a few words."""
        model = self.spec.model
        return {
            "rule": model.rule,
            "loss": model.loss,
            "params": model.params,
            "coordinates": self.plan.size,
            "classes": list(self.plan.classes),
            "rows": self.metrics.total_rows,
            **self.metrics.figures(self.metrics.total),
            "checkpoint": {"url": self.url, "sequence": self.sequence},
            "finished": self.finished,
        }

    @property
    def live(self) -> Figure | None:
        """The rule's own figure, summed over the learners, if it has one."""
        rule = self.spec.rule
        tell = rule.live
        if tell is None:
            return None

        def now() -> float:
            h, stored = rule.hyper_of(self.engine.params), len(fields(rule.totals))
            told = [rule.totals(*row[:stored].tolist()) for row in self.state.totals]
            return float(sum(tell(totals, float(self.state.clock), h) for totals in told))

        return Figure(rule.live_name, now)

    def learn(self, batch: Batch) -> NDArray[np.float64]:
        """Learn a batch made by hand; margins of before learning, (rows, learners).

        y: ±1 with two classes, the class's number with more, the value in regression.
        Raises DataError if the rows are not canonical or not of this model's coordinates,
        DivergedError if a number of the model is no longer finite.
        """
        check(batch, self.plan.size, bias=self.plan.bias)
        self.metrics.begin(self.cursor.epoch)
        return self.consume(batch)

    def consume(
        self,
        batch: Batch,
        bad: Counts | None = None,
        held: NDArray[np.bool_] | None = None,
        rows: tuple[Place, Place] | None = None,
    ) -> NDArray[np.float64]:
        """Learn a batch that the features made, counting the bad rows left out of it.

        held: (rows,), which of them are predicted when they come, and not learned. rows: where it
        begins and ends, for the error. Raises DivergedError if a number is no longer finite.
        """
        margins = self._consume(batch, bad, held)
        learned = margins if held is None else margins[~held]
        rows = rows or (("the rows given", 0), ("the rows given", len(batch)))
        self.guard.after(self.state, self.metrics.current, learned, batch.values.size, rows)
        return margins

    def _consume(
        self, batch: Batch, bad: Counts | None, held: NDArray[np.bool_] | None
    ) -> NDArray[np.float64]:
        if bad is not None:
            self.metrics.leave_out(bad, self.spec.data.max_bad_rows)
        if held is None:
            with Stage("learn"):
                margins = self.engine.learn(self.state, self.metrics.current, batch)
            self._count(self.metrics, margins, batch.y, batch.weight)
            return margins
        assert self.metrics.held is not None
        margins = np.empty((len(batch), self.engine.layout.learners))
        for low, high in stretches_of(held):
            rows, out = batch.rows(low, high), held[low]
            walk = self.engine.predict if out else self.engine.learn
            sums = self.metrics.held.current if out else self.metrics.current
            with Stage("learn"):
                margins[low:high] = walk(self.state, sums, rows)
        for metrics, which in ((self.metrics, ~held), (self.metrics.held, held)):
            self._count(metrics, margins[which], batch.y[which], batch.weight[which])
        return margins

    def look(self, batch: Batch, held: NDArray[np.bool_] | None = None) -> None:
        """Observe rows before the first is learned, but those held out."""
        for low, high in [(0, len(batch))] if held is None else stretches_of(held):
            if held is None or not held[low]:
                self.engine.look(self.state, batch.rows(low, high))

    def refuse_non_finite(self, *, weights: bool = False) -> None:
        """Raises DivergedError unless all numbers of the state are finite; weights: and all that
        are made of them, which is slower."""
        problem = self.state.problem()
        if not problem and weights:
            sound = all(is_finite(some) for _, some in weighed(self.engine, self.state))
            problem = "" if sound else "a weight is not"
        if problem:
            where = f"commit {self.sequence} of {shown(self.url)}" if self.url else "this model"
            raise DivergedError(
                f"{where} is not finite: {problem}. Use an earlier commit (streamomd checkpoint "
                "verify URL lists those that are finite; streamomd.load(URL, at=N)), or pass "
                "--allow-non-finite, in Python allow_non_finite=True"
            )

    def _refuse_weights(self) -> None:
        self.refuse_non_finite(weights=True)

    def _count(
        self,
        metrics: Metrics,
        margins: NDArray[np.float64],
        y: NDArray[np.float64],
        weight: NDArray[np.float64],
    ) -> None:
        """Tell metrics of rows whose sums they have."""
        metrics.count(len(y))
        if self.spec.train.detail:
            with Stage("metrics"):
                metrics.examine(self.engine.loss, self.engine.classes, margins, y, weight)

    def predict(
        self,
        shards: str | Sequence[str],
        to: str = "",
        *,
        keep: Sequence[str] = (),
        overwrite: bool = False,
        storage_options: Mapping[str, Any] | None = None,
        quiet: bool = True,
        allow_non_finite: bool = False,
    ) -> list[str]:
        """Write a Parquet file of predictions for each shard into directory ``to``; their paths.

        Columns: ``row`` (int64, in its shard), ``prediction`` (a value of the label column, or the
        mean), ``score`` (the margin; of three classes and more a list), ``probability`` (logistic
        and softmax: of the second class, or a list that sums to 1), and those to ``keep``. A list
        has the order of ``model.plan.classes``, which stands in the file's metadata too, as JSON
        under ``classes``. Without ``quiet`` rows and seconds are told on stderr.

        Raises UsageError for a column to keep that is not there, OutputExistsError unless
        ``overwrite``, DataError and SchemaError for shards that cannot be read as the model's,
        DivergedError for a model that is not finite, unless ``allow_non_finite``.

        Of a Dask collection: ``streamomd.predict_collection(model, ddf)``.
        """
        if not to or hasattr(shards, "__dask_graph__"):
            raise UsageError(
                "Model.predict writes files: to= says in which directory. Predictions of a Dask "
                "collection are another one: streamomd.predict_collection(model, ddf)"
            )
        if not allow_non_finite:
            self.refuse_non_finite()
        return predict(
            self.plan,
            self.engine,
            self.state,
            shards,
            to,
            keep=keep,
            overwrite=overwrite,
            storage_options=storage_options,
            quiet=quiet,
            suspect=None if allow_non_finite else self._refuse_weights,
        )

    def evaluate(
        self,
        shards: str | Sequence[str],
        *,
        by: Sequence[str] = (),
        storage_options: Mapping[str, Any] | None = None,
        quiet: bool = False,
        allow_non_finite: bool = False,
    ) -> dict[str, Any]:
        """Loss and error on labelled shards; the keys of ``result``. Nothing is learned.

        by: columns for whose values it is told too, under ``slices``; they need not be features.
        Raises DivergedError for a model that is not finite, unless ``allow_non_finite``.
        """
        if hasattr(shards, "__dask_graph__"):
            raise UsageError(
                "Model.evaluate reads shards, no Dask collection: ddf.to_parquet(URL) writes them"
            )
        if not allow_non_finite:
            self.refuse_non_finite()
        found = evaluate(
            self.plan,
            self.engine,
            self.state,
            shards,
            by=[by] if isinstance(by, str) else by,
            storage_options=storage_options,
            quiet=quiet,
            cache=cache_of(self.spec.data, there=True),
            suspect=None if allow_non_finite else self._refuse_weights,
        )
        return {**self.result(), **found}

    def to_estimator(self) -> Any:
        """This model, copied, as scikit-learn has it: an OMDClassifier or OMDRegressor.

        ``to_model()`` of it is the way back. Raises MissingExtraError without scikit-learn.
        """
        return converter("estimator")(self)

    def to_sklearn(self) -> Any:
        """A fitted linear model of scikit-learn's own, with these weights.

        See ``streamomd.to_sklearn``, which this calls.
        """
        return converter("sklearn")(self)

    def inspect(self, top: int = 20) -> list[dict[str, Any]]:
        """The ``top`` heaviest coordinates: coordinate, name, weight and slots of each learner."""
        return heaviest(self.plan, self.engine, self.state, self.names, top)


def parts_of(state: State, metrics: Metrics) -> Iterator[Part]:
    """What a commit keeps of a state and its counters, which go with the first part.

    Raises DivergedError at a part with a number that is not finite.
    """
    for low, high, arrays in finite_parts(state.parts()):
        yield low, high, arrays | (metrics.arrays() if low == 0 else {})
