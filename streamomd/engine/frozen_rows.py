"""What a saved ``auto`` predicts with, chosen by frozen predictions: see ``loops.frozen``.

Weights are copied at rows that the rows alone fix, and the rows after a copy are scored by it
before they are learned, up to the next copy. Rows of later passes are not scored, for they have
been learned, nor are those of a part of a round, whose state is not the model's.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from streamomd.core.batch import Batch, DenseBatch
from streamomd.engine.compile import work_of
from streamomd.engine.layout import Layout
from streamomd.engine.loops.frozen import (
    FIELDS,
    LENGTH,
    Chain,
    copy_weights,
    frequencies,
    next_copy,
    scratch,
)
from streamomd.engine.loops.rebase import AT, G, W
from streamomd.engine.loops.reference import C, S
from streamomd.engine.operations import copy_signature
from streamomd.engine.state import State
from streamomd.losses import Loss
from streamomd.rules.common.pooled import DECIDED, REST_B, REST_G, REST_NONE, SETTLED, UNUSED, WORSE
from streamomd.rules.common.standardized import AUTO

Floats = NDArray[np.float64]
LEAST = 128.0
"""Mass scored below which a saved model is the mixture that predicts the next row."""
SCORED = 0.25
"""The share of the rows' importance below which it is that mixture, too. Averaged mode scores the
rows alone that it learns exactly, which come before the rounds, when weights are other ones, and
right after merges, before weights are corrected."""


class EngineOf(Protocol):
    """What is used of an engine."""

    layout: Layout
    loss: Loss
    classes: int

    @property
    def h(self) -> Any:
        """The rule's parsed hyper-parameters."""

    def loop(
        self, operation: str, dense: bool = False, value: str = "float64", work: float = math.inf
    ) -> Any:
        """The loop of an operation."""

    def function(self, function: Any, signature: Any, work: float = math.inf) -> Any:
        """A function that serves every rule and loss."""


def is_scored(engine: EngineOf, state: State, *, part: bool) -> bool:
    """Whether rows are scored before they are learned."""
    layout = engine.layout
    return (
        bool(layout.frozen)
        and engine.h.prefer == AUTO
        and not part
        and state.totals[0, AT["horizon"]] == 0.0
    )


def segments(engine: EngineOf, state: State, batch: Batch) -> Iterator[Batch]:
    """The batch in parts between copies. Each has been scored, and is to be learned before the next
    one is asked for."""
    if not len(batch):
        yield batch
    chain, low = state.extra["chain"], 0
    learned = np.cumsum(batch.weight > 0.0)
    while low < len(batch):
        t, due = int(state.totals[0, AT["t"]]), FIELDS["due"]
        if t >= chain[due]:
            take_copy(engine, state)
            chain[due] = next_copy(t)
            chain[FIELDS["rests"]] = unused(engine, state)
        before = int(learned[low - 1]) if low else 0
        high = int(np.searchsorted(learned, before + int(chain[due]) - t, side="left")) + 1
        high = min(high, len(batch))
        some = batch if low == 0 and high == len(batch) else batch.rows(low, high)
        score(engine, state, some)
        yield some
        low = high


def score(engine: EngineOf, state: State, batch: Batch) -> None:
    """Score rows by the copy; before the first one, count classes only, which needs no loop that
    would have to be compiled before the first row."""
    if not len(state.extra["copies"]):
        if engine.loss.classifies:
            numbers = batch.y.astype(np.int64) if engine.classes > 2 else (batch.y > 0.0) * 1
            np.add.at(state.extra["chain"], LENGTH + numbers, batch.weight)
        return
    rows = batch.arrays
    work = work_of(len(batch), batch.values.size, state.layout.learners, ())
    loop = engine.loop("score", isinstance(batch, DenseBatch), rows[2].dtype.name, work)
    copied = (state.extra["copies"].reshape(-1), state.extra["front"], state.extra["chain"])
    numeric = state.layout.numeric
    given = (*rows, batch.y, batch.weight, scratch(state.layout.learners))
    loop(state.cells, state.totals.reshape(-1), *copied, numeric, *given)


def take_copy(engine: EngineOf, state: State) -> None:
    """Copy the weights of B and G in raw units, and the range of predicted numbers. Of the square
    loss rows are scored by the copy before this one."""
    layout, chain, extra = state.layout, state.extra["chain"], state.extra
    name = "next_" if engine.loss.quadratic else ""
    if name and len(extra["next_copies"]):
        for one in ("copies", "front"):
            extra[one], extra[f"next_{one}"] = extra[f"next_{one}"], extra[one]
        for one in ("low", "high"):
            chain[FIELDS[one]] = chain[FIELDS[f"next_{one}"]]
    block, first = raw_parts(state)
    places = state.extra["places"]
    used = np.flatnonzero(places > layout.numeric)
    if not len(extra[f"{name}copies"]):
        extra[f"{name}copies"] = np.zeros((layout.size, layout.learners, 2), layout.dtype)
    copies, front = extra[f"{name}copies"], extra[f"{name}front"]
    most = np.finfo(layout.dtype).max
    columns = {slot.name: at.start for slot, at in layout.columns()}
    copy = engine.function(copy_weights, copy_signature(layout.dtype), copies.size)
    copy(state.cells, layout.width, columns["w"], columns["g"], copies)
    copies[places[used], :, 0] = np.clip(block[:, used].T, -most, most)
    front[:, 0], front[:, 1] = block[:, : 1 + layout.numeric], first
    totals = state.totals[0]
    far = totals[AT["y_max"]] - totals[AT["y_min"]]
    chain[FIELDS[f"{name}low"]] = totals[AT["y_min"]] - far
    chain[FIELDS[f"{name}high"]] = totals[AT["y_max"]] + far


def raw_parts(state: State) -> tuple[Floats, Floats]:
    """Weights in raw units of B's block, (learners, block), and of G's bias and numeric columns,
    (learners, 1 + columns)."""
    reference, vectors = state.extra["reference"], state.extra["vectors"]
    front = 1 + state.layout.numeric
    c, s = reference[C], reference[S]
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        inverse = np.where(s > 0.0, 1.0 / s, 0.0)
    block, first = vectors[:, W] * inverse, vectors[:, G, :front] * inverse[:front]
    c_y = state.totals[0, AT["c_y"]]
    block[:, 0] += c_y - block[:, 1:] @ c[1:]
    first[:, 0] += c_y - first[:, 1:] @ c[1:front]
    return block, first


def is_fitted(engine: EngineOf, state: State) -> bool:
    """Whether a saved model is that of frozen predictions, not the mixture of the next row, which
    from the second pass on is B alone: frozen predictions know nothing of what later passes bring.
    """
    layout = engine.layout  # a state's own may be that of a range of its coordinates
    if not layout.frozen or engine.h.prefer != AUTO:
        return False
    enough = state.extra["chain"][FIELDS["mass"]] >= LEAST and _scores_enough(state)
    return bool(state.totals[0, AT["horizon"]] == 0.0 and enough)


def _scores_enough(state: State) -> bool:
    """Whether rows of ``SCORED`` of the importance were scored."""
    return bool(state.extra["chain"][FIELDS["weights"]] >= SCORED * state.totals[0, AT["n"]])


def unused(engine: EngineOf, state: State) -> int:
    """Which predictor the next row's prediction does not use, and a saved model little; only with a
    log loss, for regression comes back to it."""
    totals = state.totals[0]
    settled = engine.loss.probabilistic and totals[AT["t"]] >= SETTLED
    if not settled or not is_fitted(engine, state):
        return REST_NONE
    lead, of_B, of_G = (float(totals[AT[name]]) for name in ("lead", "mse", "v"))
    mix = saved_mix(engine, state)
    if lead >= DECIDED and of_B > WORSE * of_G and mix[:2].max() < UNUSED:
        return REST_B
    used = lead > -DECIDED or of_G <= WORSE * of_B or mix[2] >= UNUSED
    return REST_NONE if used else REST_G


def resting(engine: EngineOf, state: State, *, part: bool) -> int:
    """Which predictor learns from few rows only, see ``rules.common.pooled``."""
    if not is_scored(engine, state, part=part):
        return REST_NONE
    return int(state.extra["chain"][FIELDS["rests"]])


def saved_mix(engine: EngineOf, state: State) -> Floats:
    """B's block, the rest of B and G as they are weighted in a saved model, and what is added to
    each learner's bias."""
    layout, rule = state.layout, engine.layout.rule
    storage: Any = rule.storage
    found = np.zeros(3 + layout.learners)
    if not (storage.first and storage.second):
        found[:3] = storage.second, storage.second, storage.first
        return found
    if not is_fitted(engine, state):
        share = float(storage.share(float(state.totals[0, AT["lead"]]), engine.h))
        found[:3] = share, share, 1.0 - share
        return found
    chain = Chain(*state.extra["chain"][:LENGTH].tolist())
    if engine.loss.quadratic:
        found[:3] = chain.w, chain.w, 1.0 - chain.w
        return found
    of_B, of_block, of_rest = chain.u * chain.w, scale_now(chain.th0), scale_now(chain.th1)
    found[:3] = of_B * of_block, of_B * of_rest, chain.u * (1.0 - chain.w)
    totals = state.totals[0]
    mean = totals[AT["n"]] / totals[AT["t"]]
    given = layout.learners, engine.classes, engine.loss.coupled, mean
    frequencies(state.extra["chain"], *given, found[3:])
    found[3:] *= 1.0 - chain.u
    return found


def scale_now(fitted: float) -> float:
    """The scale of the weights of now, by the one that was fitted on copies. A copy of t rows needs
    1 - c / t, for what it has learned too much or too little falls as 1 / t. Rows weigh as t, so
    1 - 2 c / T was fitted, T being the rows up to now."""
    return 0.5 * (1.0 + fitted)


def saved_loss(engine: EngineOf, state: State) -> float | None:
    """Mean loss of rows predicted by weights from before: what a saved model's rows to come will
    have, as far as they resemble these. None where few of the rows are so predicted, as in averaged
    mode, and of other rules."""
    if "chain" not in state.extra or not _scores_enough(state):
        return None
    chain = Chain(*state.extra["chain"][:LENGTH].tolist())
    return chain.losses / chain.weights if chain.weights > 0.0 else None
