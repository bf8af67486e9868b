"""Learners side by side: those that differ in hyper-parameters alone share a loop and a state.

A row's entries and the slots that it alone moves (scales) are then read once for all of them. The
bits are those of each learner alone, for nothing of one enters the numbers of another.
"""

from __future__ import annotations

import dis
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamomd.core.batch import Batch
from streamomd.core.errors import DivergedError
from streamomd.core.finite import LEAST, RATIO, batch_problem
from streamomd.engine import Engine
from streamomd.engine.divided import DividedState, Threads, extract_learner, join_states
from streamomd.engine.state import State
from streamomd.rules.contract import Rule
from streamomd.training.model_data import ModelData
from streamomd.training.training_step import (
    Mask,
    Predict,
    counts_first,
    learn_counted,
    observe_rows,
)
from streamomd.training.training_threads import class_threads

WIDEST = 8


@dataclass(eq=False)
class LearnerGroup:
    """Models that one loop updates. ``state`` holds their states, but while ``each`` yields one."""

    models: list[ModelData]
    engine: Engine
    state: State
    _values: int = 0

    @classmethod
    def of(cls, models: Sequence[ModelData]) -> LearnerGroup:
        """One model as it is, or several in a state of their own."""
        engine, state = models[0].engine, models[0].state
        if len(models) > 1:
            engine = Engine.side_by_side([model.engine for model in models])
            state = join_states([model.state for model in models], engine.layout)
            for model in models:
                model.state = state
        return cls([*models], engine, state)

    def observe(self, batch: Batch, held: Mask | None = None) -> None:
        """Observe rows except hold-out rows, and learn nothing."""
        observe_rows(self.models[0], batch, held)

    def learn(
        self, batch: Batch, held: Mask | None = None, predict: Predict | None = None
    ) -> dict[ModelData, str]:
        """Learn rows; each model's figures grow as they would alone. What is not finite of which
        models: of their figures; and of their slots, when enough rows were learned to look.

        held: hold-out rows, which a group of one model predicts. predict: in place of learning, of
        a group of one model whose labels come later.
        """
        if held is not None or _learns_alone(self.models[0]):
            try:
                return self._learn_alone(batch, held, predict)
            except DivergedError as error:  # of rows that were learned before these are predicted
                return {self.models[0]: str(error).removeprefix("the model diverged: ")}
        sums = np.concatenate([model.metrics.current for model in self.models])
        margins = self.engine.learn(self.state, sums, batch)
        for model, own in zip(self.models, sums.reshape(-1, 3), strict=True):
            model.metrics.current[:] = own
            model.metrics.count(len(batch))
        self._values += batch.values.size * len(self.models)
        return self._diverged(margins) or self._slots_diverged()

    def _learn_alone(
        self, batch: Batch, held: Mask | None, predict: Predict | None
    ) -> dict[ModelData, str]:
        [model] = self.models
        detail, weights = model.spec.train.detail and held is not None, model.class_weights
        given = (self.engine, self.state, model.metrics, batch, held)
        first = counts_first(model) and predict is None
        more: Any = {"weights": weights, "first": first, "predict": predict}
        margins = learn_counted(*given, detail=detail, **more)
        self._values += batch.values.size
        learned = margins if held is None else margins[~held]
        return self._diverged(learned) or self._slots_diverged()

    def _diverged(self, margins: NDArray[np.float64]) -> dict[ModelData, str]:
        sums = np.array([model.metrics.current for model in self.models])
        if not batch_problem(sums.sum(axis=0), self.state.totals, margins):
            return {}
        width = margins.shape[1] // len(self.models)
        found = {}
        for k, model in enumerate(self.models):
            own = slice(k * width, (k + 1) * width)
            problem = batch_problem(model.metrics.current, self.state.totals[own], margins[:, own])
            if problem:
                found[model] = problem
        return found

    def _slots_diverged(self) -> dict[ModelData, str]:
        if self._values < max(LEAST, RATIO * self.state.nbytes // 8):
            return {}
        self._values = 0
        if not self.state.problem():
            return {}
        return {m: problem for m in self.each() if (problem := m.state.problem())}

    def each(self) -> Iterator[ModelData]:
        """Every model, one after the other, with its state as that of a model alone."""
        if len(self.models) == 1:
            yield self.models[0]
            return
        for k, model in enumerate(self.models):
            model.state = extract_learner(self.state, k)
            yield model
            model.state = self.state

    def divide(self, rows: int, threads: int) -> None:
        """Let threads learn the classes of a single model, where that is faster."""
        model = self.models[0]
        count = class_threads(model, rows, threads) if len(self.models) == 1 else 1
        if count > 1:
            self.state = model.state = DividedState.of(self.state, Threads(count))

    def split(self) -> None:
        """Give every model its own state again."""
        if isinstance(self.state, DividedState):
            self.state.threads.close()
            self.models[0].state = self.state = self.state.joined()
        for k, model in enumerate(self.models if len(self.models) > 1 else ()):
            model.state = extract_learner(self.state, k)


def group_learners(models: Sequence[ModelData], threads: int) -> list[LearnerGroup]:
    """The models in as few loops as may be, but enough of them for the threads.

    A loop has a power of two of learners, so that few are ever compiled.
    """
    kinds: list[list[ModelData]] = []
    for model in models:
        alike = [kind for kind in kinds if _alike(kind[0], model)]
        if alike:
            alike[0].append(model)
        else:
            kinds.append([model])
    made = []
    for kind in kinds:
        most = min(WIDEST, max(1, -(-len(models) // threads)))
        while kind:
            width = 1 << (min(most, len(kind)).bit_length() - 1)
            made.append(LearnerGroup.of(kind[:width]))
            del kind[:width]
    return made


def _learns_alone(model: ModelData) -> bool:
    """Whether more is done with its rows than to learn them."""
    job = model.spec.model
    return bool(job.class_weight) or job.calibrate != "none" or model.spec.data.delay > 0.0


def _alike(one: ModelData, other: ModelData) -> bool:
    """Whether two models may be side by side."""
    ours, theirs = one.engine, other.engine
    rule, loss = ours.layout.rule, ours.loss
    return (
        rule.storage.kind == "coordinates"
        and not ours.layout.referred
        and ours.layout == theirs.layout
        and ours.layout.learners == 1
        and not loss.coupled
        and loss == theirs.loss
        and one.cursor == other.cursor
        and not one.spec.data.holds_out  # one loop learns for all, and predicts for one
        and not any(_learns_alone(model) for model in (one, other))
        and (ours.params == theirs.params or not observes_with_hyper(rule))
    )


def observes_with_hyper(rule: Rule) -> bool:
    """Whether what a rule observes of a row depends on hyper-parameters: it is observed once for
    all learners, with those of the first.

    Read from the code: a rule that should have said so and did not would be silently wrong.
    """
    if rule.observe is None:
        return False
    h = rule.observe.function.__code__.co_varnames[3]
    used = [one.argval for one in dis.get_instructions(rule.observe.function)]
    return any(h == one or (isinstance(one, tuple) and h in one) for one in used)
