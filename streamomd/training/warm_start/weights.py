"""Given weights into a state that has seen nothing: which rules can, and what is refused.

Only a rule whose weight is a slot can begin at given weights, with its other slots and its clock as
they start. Where scales squash the weights of a coordinate that grows (``align``), the file must
have the scales too: at scale 0 the first row would squash every weight to 0.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamomd.core.batch import Floats
from streamomd.core.errors import DataError, UnsupportedError, UsageError
from streamomd.features.hashed import UNKNOWN, coordinates_of
from streamomd.rules import all_rules
from streamomd.rules.contract import Rule
from streamomd.training.model_data import ModelData

_PROBE = 0.375


class StartWeights(NamedTuple):
    """Weights (n, learners) of coordinates (n,), and scales (n,) by slot; where they came from."""

    coordinates: NDArray[np.int64]
    weights: Floats
    scales: dict[str, Floats]
    where: str


def set_start_weights(model: ModelData, given: Iterable[StartWeights]) -> None:
    """Set weights, and the scales they need; coordinates that are not given keep weight 0.

    Raises UnsupportedError (the rule), DataError (what is given twice, outside, or not finite).
    """
    slot, scales = slots_of(model)
    seen = np.zeros(model.plan.size, dtype=bool)
    for one in given:
        _refuse_illegal(one, seen, model.plan.largest)
        seen[one.coordinates] = True
        model.state.slot(slot)[one.coordinates] = one.weights
        for name in scales:
            model.state.slot(name)[one.coordinates] = one.scales[name]
    model.engine.renew(model.state)


def slots_of(model: ModelData) -> tuple[str, tuple[str, ...]]:
    """The slot that is the weight, and the slots of scales without which it would not last.

    Raises UnsupportedError listing the rules that have such a slot.
    """
    rule, job = model.engine.layout.rule, model.spec.model
    layout = model.engine.layout
    if layout.referred:
        key = "data.standardize" if layout.standardize else "model.scale_target"
        raise UnsupportedError(
            f"given weights are for raw columns and targets, and {key} has no reference yet: start "
            f"from a checkpoint of a run with the same keys, or leave {key} out"
        )
    slot = weight_slot(rule)
    if slot is None:
        raise UnsupportedError(
            f"rule {job.rule!r} with {job.params} computes its weights from other slots and cannot "
            f"start from given weights: use {rules_with_start_weights()}, or start from a "
            f"checkpoint of {job.rule!r} (--start URL)"
        )
    return slot, scales_of(rule, model.engine.params, slot)


def rules_with_start_weights() -> str:
    """The rules that can start from given weights, for a message."""
    alone: list[str] = []
    scaled: list[str] = []
    for rule in all_rules().values():
        params = rule.parse_params({})
        plain = rule.reduced_for(params)
        slot = weight_slot(plain)
        if slot is not None:
            (scaled if scales_of(plain, params, slot) else alone).append(rule.name)
    return f"{', '.join(alone)}; or, of a file with scales (slot.s), {', '.join(scaled)}"


def weight_slot(rule: Rule) -> str | None:
    """The slot that is the weight before the first row, if one is.

    A slot that is a sum of gradients is not a weight; from slots of rows or roots the weights are
    recomputed; and of two means one is computed from the other.

    >>> from streamomd.rules import find_rule
    >>> [weight_slot(find_rule(name)) for name in ("ogd", "da")]
    ['v', None]
    """
    return rule.state.weight or None


def scales_of(rule: Rule, params: Mapping[str, Any], slot: str) -> tuple[str, ...]:
    """The shared slots whose growth changes a weight that is in ``slot``."""
    if rule.align is None or rule.observe is None:
        return ()
    h, before = rule.hyper_of(params), rule.state.shared()
    after, _ = rule.observe.function(before, 1.0, 1.0, h)
    moved = rule.align(_own(rule, slot), before, after, _totals(rule, h), 1.0, h)
    if getattr(moved, slot) == _PROBE:
        return ()
    return tuple(shared.name for shared in rule.shared_slots)


def _own(rule: Rule, slot: str) -> Any:
    return rule.state.own()._replace(**{slot: _PROBE})  # type: ignore[attr-defined]


def _totals(rule: Rule, h: Any) -> Any:
    return rule.state.begin(1.0, h) if rule.state.begin else rule.state.totals()


def column_of(model: ModelData, name: str, learner: int | None) -> str:
    """What a column of learner k is called in a file of weights; None: there is one learner."""
    return name if learner is None else f"{name}[{model.plan.classes[learner]}]"


def columns_of(model: ModelData) -> list[str]:
    """The columns of weights, one a learner."""
    learners = model.engine.layout.learners
    if learners == 1:
        return ["weight"]
    return [column_of(model, "weight", k) for k in range(learners)]


def places_of(model: ModelData, names: Sequence[Any], where: str) -> NDArray[np.int64]:
    """The coordinates of features by name. Raises DataError for no text, UsageError for others'."""
    if any(not isinstance(name, str) for name in names):
        raise DataError(f"{where}: column feature holds nulls or no text, expected names")
    places = coordinates_of(model.plan, names)
    unknown = [name for name, place in zip(names, places, strict=True) if place == UNKNOWN]
    if unknown:
        some, has = (", ".join(map(repr, some[:10])) for some in (unknown, model.plan.features))
        raise UsageError(
            f"{where}: the job has no feature {some}; its columns are {has}. What is hashed is "
            "called column=value"
        )
    return np.array(places, dtype=np.int64)


def why_scales(model: ModelData, scales: Sequence[str]) -> str:
    """Why a rule needs scales, to be added to an error; empty if it does not."""
    if not scales:
        return ""
    return (
        f", and its scale, for rule {model.spec.model.rule!r} squashes a weight whose scale it "
        "does not know: streamomd export --as parquet writes both, and other rules need none"
    )


def _refuse_illegal(given: StartWeights, seen: NDArray[np.bool_], largest: float) -> None:
    at, where = given.coordinates, given.where
    outside = at[(at < 0) | (at >= len(seen))]
    if len(outside):
        raise DataError(f"{where}: coordinate {outside[0]} is not in 0 … {len(seen) - 1}")
    places, counts = np.unique(at, return_counts=True)
    twice = places[(counts > 1) | seen[places]]
    if len(twice):
        raise DataError(
            f"{where}: coordinate {twice[0]} is given twice: leave one row; two names that are "
            "hashed to one coordinate need more data.bits"
        )
    for name, numbers in {"weight": given.weights, **given.scales}.items():
        found = np.abs(numbers).reshape(len(at), -1).max(axis=1, initial=0.0)
        bad = np.flatnonzero(~(found <= min(largest, np.finfo(np.float64).max)))
        if len(bad):
            raise DataError(
                f"{where}: {name} of coordinate {at[bad[0]]} is {numbers[bad[0]]}, expected a "
                "finite number"
            )
    for name, scale in given.scales.items():
        lost = np.flatnonzero((scale <= 0.0) & (given.weights != 0.0).any(axis=1))
        if len(lost):
            raise DataError(
                f"{where}: slot.{name} of coordinate {at[lost[0]]} is {scale[lost[0]]}, and its "
                "weight is not 0: expected a scale above 0, or the first row would make it 0"
            )
