"""Rules that need the loss's Lipschitz constant get it here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from streamomd.core.errors import UsageError
from streamomd.core.message import Key, Message, PerReader
from streamomd.losses.contract import Loss
from streamomd.rules.contract import Rule


def with_lipschitz(
    rule: Rule, loss: Loss, params: Mapping[str, Any], loss_params: Mapping[str, Any]
) -> dict[str, Any]:
    """The rule's parameters, a bound of 0 on the slope replaced by the loss's constant.

    Raises UsageError if the rule needs one and the loss has none.
    """
    name = rule.losses.lipschitz
    if not name or params[name] != 0.0:
        return dict(params)
    if loss.lipschitz is None:
        found = (
            f"rule {rule.name!r} needs a bound on the slope of the loss, and {loss.name!r} has none"
        )
        how = PerReader(f"--set {name}=…", f"{name}=…, or params={{'{name}': …}}")
        remedy = ("give one (", how, "), larger than any slope the run will meet")
        key = Key(f"model.params.{name}")
        form = "{found}: {remedy}"
        raise UsageError(Message("missing_value", form, key=key, found=found, remedy=remedy))
    return {**params, name: float(loss.lipschitz(loss.numbers(loss_params)))}
