"""The engine of a job: its rule, loss and sizes, once its columns are coordinates."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from streamomd.config.spec import Spec
from streamomd.core.errors import TooLargeError
from streamomd.core.message import Key, Message, PerReader
from streamomd.engine import Engine
from streamomd.engine.layout import Layout
from streamomd.features import Plan
from streamomd.losses.derived import with_lipschitz
from streamomd.rules.contract import Block


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
    return max(1 + plan.numbers, min(storage.most(spec.model.params) + plan.hats, plan.size))


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
