"""Format, and what every format gets: a model's weights and slots in chunks of some megabytes."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamomd.core.batch import Floats
from streamomd.core.errors import TooLargeError, UnsupportedError
from streamomd.engine.state import State
from streamomd.rules.contract import Coordinates, Matrix, Rule
from streamomd.training.model_data import ModelData
from streamomd.training.model_document import RemoteState
from streamomd.training.progress import COPY_SECONDS, note


@dataclass(frozen=True)
class Format:
    """An export format.

    ``write(model, file)`` writes bytes and returns fields for ``--json``; it raises
    UnsupportedError naming what the format cannot represent, before it writes a byte.
    ``to_read``: how to read the file; ``{file}`` is replaced by its name. A field ``to_read`` of
    ``write`` takes its place.
    """

    name: str
    what: str
    extra: str
    to_read: str
    write: Callable[[ModelData, Any], dict[str, Any]]


HUGE = 1e300


class WeightChunk(NamedTuple):
    """Coordinates low … low + n − 1: their weights, (n, learners), as used by the next row.

    slots: each slot by name, (n, 1) if learners share it, else (n, learners).
    """

    low: int
    weights: Floats
    slots: dict[str, NDArray[Any]]


def pieces(model: ModelData) -> Iterator[WeightChunk]:
    """All coordinates in order; logs its progress every two seconds.

    A state that is still in its checkpoint is read part by part.
    """
    state = model.state
    if isinstance(state, RemoteState) and state.layout.standardized:
        state = state.load()  # raw weights depend on the reference
    # For weights only, the rule's arrays other than slots are not read.
    plain = replace(state.layout.rule, storage=Coordinates())
    reported, size = time.monotonic(), state.layout.size
    shared = state.extra if state.layout.block else {}
    totals = {"totals": state.totals, "clock": np.array([state.clock], dtype=np.int64)}
    for low, high, arrays in state.parts():
        slots = {slot.name: arrays[f"slot.{slot.name}"] for slot, _ in state.layout.columns()}
        if state.layout.referred:
            weights = model.engine.weights(state, low, high)
        else:
            layout = replace(state.layout, rule=plain, size=high - low, means=())
            block = State.start(layout)
            block.fill(0, high - low, arrays | totals)
            block.extra = shared
            weights = model.engine.weights(block, 0, high - low, first=low)
        yield WeightChunk(low, weights, slots)
        if time.monotonic() - reported > COPY_SECONDS:
            reported = time.monotonic()
            note(f"{high:,} of {size:,} coordinates")


def weights_of(model: ModelData) -> Floats:
    """All weights in one array, (learners, coordinates). Raises TooLargeError naming the GiB."""
    shape = (model.engine.layout.learners, model.plan.size)
    try:
        found = np.empty(shape)
    except MemoryError:
        size = shape[0] * shape[1] * 8 / 2**30
        raise TooLargeError(
            f"the weights of {shape[1]:,} coordinates need {size:.1f} GiB, more than the available "
            "memory: --as parquet streams them"
        ) from None
    for piece in pieces(model):
        found[:, piece.low : piece.low + len(piece.weights)] = piece.weights.T
    return found


def refuse_calibration(model: ModelData, name: str) -> None:
    """Raise UnsupportedError for a calibrated model, in a format that has no place for it."""
    if model.spec.model.calibrate != "none":
        raise UnsupportedError(
            f"--as {name} has no calibration, and model.calibrate is "
            f"{model.spec.model.calibrate!r}: --as onnx exports calibrated probabilities, --as "
            "parquet the weights alone"
        )


def refuse_more_than_weights(model: ModelData) -> None:
    """Raise UnsupportedError if predictions are not weights times values."""
    rule = model.engine.layout.rule
    foresees = isinstance(rule.storage, Matrix) and rule.storage.foresee is not None
    if rule.row.part is None and not foresees and not _clamps(model, rule):
        return
    raise UnsupportedError(
        f"rule {rule.name!r} with {model.spec.model.params} predicts more than weights times "
        "values, which the export cannot represent: use streamomd predict; --as parquet exports "
        "the weights only"
    )


def _clamps(model: ModelData, rule: Rule) -> bool:
    if rule.row.clamp is None:
        return False
    h = model.engine.h
    return any(bool(rule.row.clamp(margin, None, h) != margin) for margin in (-HUGE, HUGE))
