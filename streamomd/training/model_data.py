"""The data of a model: a job, how its columns become coordinates, and the state learned so far."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Self

import numpy as np

from streamomd.config.recorded import Recorded
from streamomd.config.spec import Spec
from streamomd.core.batch import Floats
from streamomd.core.errors import DivergedError, TooLargeError
from streamomd.core.finite import FiniteCheck, is_finite
from streamomd.core.message import Key, Message, PerReader
from streamomd.core.urls import shown
from streamomd.engine import Engine
from streamomd.engine.layout import Layout
from streamomd.engine.standard_errors import has_errors, weight_errors
from streamomd.engine.state import State
from streamomd.features import Names, Plan, name_of
from streamomd.losses.contract import with_lipschitz
from streamomd.rules.contract import Block
from streamomd.shards.filtered_shards import Unread
from streamomd.shards.order import Cursor
from streamomd.shards.shard import Digests
from streamomd.training.class_weights import ClassWeights, class_weights_of, refuse_unknown_classes
from streamomd.training.metrics import Metrics
from streamomd.training.metrics.ranking import fit_calibration
from streamomd.training.row_checks import CurveRanges, LabelRuns
from streamomd.training.run_records import Teaching, TriedPass, UpdateRecord
from streamomd.training.scoring.link import Calibration

ROWS = 1 << 20  # coordinates whose weights are computed at a time


def weight_blocks(engine: Engine, state: State) -> Iterator[tuple[int, Floats]]:
    """All weights, a stretch of coordinates at a time: where it begins, (coordinates, learners)."""
    size = state.layout.size
    for low in range(0, size, ROWS):
        yield low, engine.weights(state, low, min(low + ROWS, size))


def heaviest(
    plan: Plan, engine: Engine, state: State, names: Names, top: int
) -> list[dict[str, Any]]:
    """The ``top`` with the largest absolute weight that is not 0, the heaviest first, and of equals
    the first: coordinate, name, weight and slots of each learner. Of rules with a covariance of the
    weights also error, their standard errors, and z, weight over error; None where it is unknown.
    """
    heavy: list[tuple[float, int, list[float]]] = []
    for low, weights in weight_blocks(engine, state):
        size = np.nan_to_num(np.abs(weights).max(axis=1), nan=np.inf, posinf=np.inf)
        some = [int(at) for at in np.argsort(-size, kind="stable")[:top] if size[at] > 0.0]
        heavy += [(-float(size[at]), low + at, weights[at].tolist()) for at in some]
        heavy = sorted(heavy)[:top]
    return [
        {
            "coordinate": at,
            "name": name_of(plan, names, at),
            "weight": weight,
            **_errors(engine, state, at, weight),
            "slots": _slots(state, at),
        }
        for _, at, weight in heavy
    ]


def _errors(engine: Engine, state: State, at: int, weight: list[float]) -> dict[str, Any]:
    if not has_errors(engine):
        return {}
    errors = weight_errors(engine, state, at, at + 1)[0].tolist()
    known = [error if math.isfinite(error) and error > 0.0 else None for error in errors]
    z = [w / error if error else None for w, error in zip(weight, known, strict=True)]
    return {"error": known, "z": z}


def _slots(state: State, at: int) -> dict[str, list[float]]:
    return {
        slot.name: np.atleast_1d(state.slot(slot.name)[at]).tolist()
        for slot, _ in state.layout.columns()
    }


def engine_of(spec: Spec, plan: Plan) -> Engine:
    """The engine of a job whose columns become coordinates by this plan."""
    model, loss = spec.model, spec.loss
    layout = layout_of(spec, plan)
    _refuse_too_many(layout, model.params)
    params = with_lipschitz(spec.rule, loss, model.params, model.loss_params)
    classes = _classes(spec, plan)
    return Engine(layout, loss, classes, model.bias, params, model.loss_params, late=True)


def layout_of(spec: Spec, plan: Plan) -> Layout:
    """How the state of a job lies in memory and in parts; nothing is allocated."""
    classes = _classes(spec, plan)
    learners = classes if classes > 2 or spec.loss.coupled else 1
    sizes = plan.numbers, _most(spec, plan)
    references = spec.data.standardize == "running", spec.refers_target
    return Layout(spec.rule, plan.size, learners, spec.model.dtype, *sizes, *references, plan.means)


def _most(spec: Spec, plan: Plan) -> int:
    """Coordinates of the block of a rule that has one: the bias, all numbers and their hats fit."""
    storage = spec.rule.storage
    if not isinstance(storage, Block):
        return 0
    return max(1 + plan.numbers, min(storage.most(spec.model.params) + plan.made, plan.size))


def _classes(spec: Spec, plan: Plan) -> int:
    return len(plan.classes) if spec.model.classifies else 1


def _refuse_too_many(layout: Layout, params: Mapping[str, Any]) -> None:
    rule = layout.rule
    most = rule.largest(params)
    if most is not None and layout.size > most:
        found = (
            f"rule {rule.name!r} works on at most {most:,} coordinates with these parameters, and "
            f"there are {layout.size:,}"
        )
        which = PerReader("streamomd list rules", "docs/rules")
        remedy = ("or choose a rule whose cost is a row's non-zeros (", which, ")")
        form, key = "{found}: lower {key}, {remedy}", Key("data.bits")
        raise TooLargeError(Message("too_many", form, key=key, found=found, remedy=remedy))


@dataclass(eq=False)
class ModelData:
    """What training, checkpoints and reports work on; ``Model`` adds what is public.

    ``spec``, ``plan``: descriptions. ``state``, ``metrics``, ``names``: data, moved by learning.
    ``digests``: of the row groups that were read. ``cursor``: the next row of the list of shards
    that is learned; ``update``: which list that is. ``teaching``: with data.delay, the next row to
    learn, while ``cursor`` is the next one to predict. ``tried``: the pass under way, if the model
    before it may be restored.
    ``url``, ``sequence``: the commit it was read from or written to; empty and −1 if none.
    ``label_runs``, ``curve_ranges``: of the rows of this process. ``unread``: what its filter does
    not read.
    ``holdout_by``: what hold-out rows depend on, a shard's name or its position.
    ``table_versions``: of the Delta tables that were read, by URL.
    ``ordered_by``: a column of dates or times in whose order the rows were found; "": none is
    known.
    ``alert``: the last one of this process, in words, unless it has ended the run.
    ``fail_on_alert``: whether an alert ends it; None: as the job says.
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
    teaching: Teaching = field(default_factory=Teaching, repr=False)
    tried: TriedPass | None = field(default=None, repr=False)
    update: UpdateRecord = field(default_factory=UpdateRecord)
    url: str = ""
    sequence: int = -1
    finished: bool = False
    unread: Unread = field(default_factory=Unread, repr=False)
    seconds: float = 0.0
    rows_per_second: float = 0.0
    recorded: Recorded = field(default_factory=Recorded)
    holdout_by: str = "name"
    guard: FiniteCheck = field(default_factory=FiniteCheck, repr=False)
    label_runs: LabelRuns = field(default_factory=LabelRuns, repr=False)
    curve_ranges: CurveRanges = field(default_factory=CurveRanges, repr=False)
    table_versions: dict[str, int] = field(default_factory=dict)
    ordered_by: str = ""
    alert: str = field(default="", repr=False)
    fail_on_alert: bool | None = None
    _fitted: tuple[Any, Calibration] | None = field(default=None, init=False, repr=False)

    def __repr__(self) -> str:
        """In a line: its state may have millions of numbers."""
        model, classes = self.spec.model, len(self.plan.classes)
        parts = [f"rule={model.rule!r}", f"loss={model.loss!r}"]
        parts += [f"classes={classes}"] if classes else []
        parts += [f"coordinates={self.plan.size}", f"rows={self.metrics.total_rows}"]
        parts += [f"url={shown(self.url)!r}"] if self.url else []
        return f"Model({', '.join(parts)})"

    @classmethod
    def new(cls, spec: Spec, plan: Plan, state: State | None = None) -> Self:
        """A model that has seen nothing; or one with this state, whose figures are to be filled."""
        spec = spec.of_classes(len(plan.classes))
        refuse_unknown_classes(spec, plan)
        engine = engine_of(spec, plan)
        if state is None:
            state = State.start(engine.layout)
            engine.begin(state)
        looks = spec.rule.looks(spec.model.params)
        cursor = Cursor(epoch=-1 if looks else 0)
        held = Metrics(spec.model.classifies) if spec.data.holds_out else None
        metrics = Metrics(spec.model.classifies, held=held)
        return cls(spec, plan, engine, state, metrics, cursor=cursor)

    @cached_property
    def class_weights(self) -> ClassWeights | None:
        """What rows count for by their class, if the job says so. Raises UsageError for an unknown
        class."""
        return class_weights_of(self.spec, self.plan)

    @property
    def calibration(self) -> Calibration | None:
        """The calibration of ``model.calibrate`` by the rows learned so far; None without one."""
        kind, margins = self.spec.model.calibrate, self.metrics.margins
        if kind == "none":
            return None
        at = (kind, self.metrics.total_rows, self.teaching.rows, id(margins))
        if self._fitted is None or self._fitted[0] != at:
            self._fitted = at, fit_calibration(kind, margins)
        return self._fitted[1]

    @property
    def teaches_later(self) -> bool:
        """Whether rows are learned later than they are predicted, by a second cursor."""
        return self.spec.data.delay > 0.0 or self.metrics.backtest is not None

    @property
    def has_probabilities(self) -> bool:
        """Whether its predictions have probabilities: by its loss, or calibrated ones."""
        likely = self.engine.loss.probabilistic or self.spec.model.calibrate != "none"
        return likely and bool(self.plan.classes)

    @property
    def state_sha256(self) -> str:
        """Hash of slots, totals, clock, counters and rows consumed."""
        digest = hashlib.sha256()
        self.state.digest(digest)
        self.metrics.digest(digest)
        return digest.hexdigest()

    @property
    def begins_pass(self) -> bool:
        """Whether the next row is the first of another pass over all rows."""
        at = self.cursor
        return at.epoch > 0 and at == Cursor(at.epoch) and not self.update.first

    @property
    def is_untrained(self) -> bool:
        """Whether it predicts the same for every row: it learned none, and was given no weights."""
        if self.metrics.total_rows:
            return False
        return not any(some.any() for _, some in weight_blocks(self.engine, self.state))

    def refuse_non_finite(self, *, weights: bool = False) -> None:
        """Raises DivergedError unless all numbers of the state are finite; weights: and all that
        are made of them, which is slower."""
        problem = self.state.problem()
        if not problem and weights:
            sound = all(is_finite(some) for _, some in weight_blocks(self.engine, self.state))
            problem = "" if sound else "a weight is not"
        if problem:
            where = f"commit {self.sequence} of {shown(self.url)}" if self.url else "this model"
            remedy = (
                ". Use an earlier commit (streamomd checkpoint verify URL lists those that are "
                "finite; streamomd.load(URL, at=N)), or pass --allow-non-finite, in Python "
                "allow_non_finite=True"
            )
            found = f"{where} is not finite: {problem}"
            form = PerReader("{found}{remedy}", "{found}")
            raise DivergedError(Message("not_finite", form, found=found, remedy=remedy))
