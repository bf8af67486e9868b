"""A boolean where a key of a job holds something else is refused: every key, rule and loss."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, get_args

import numpy as np
import pytest
from pydantic import BaseModel

from streamomd.config.spec import Spec
from streamomd.core.errors import UsageError
from streamomd.losses import all_losses
from streamomd.rules import all_rules
from streamomd.rules.params import Switch, kinds

pytestmark = pytest.mark.smoke

INSIDE: dict[str, dict[str, Any]] = {
    "sparse": {"indices": "i", "values": "v"},
    "text": {"column": "a"},
    "holdout": {"after": "2026-01-01"},
}
"""What else tables below a key need."""


def parts(annotation: Any) -> Iterator[Any]:
    """The types that a type is made of, and itself."""
    yield annotation
    for part in get_args(annotation):
        yield from parts(part)


def keys(table: type[BaseModel], place: tuple[str, ...] = ()) -> Iterator[tuple[Any, bool]]:
    """Each key of a job below a table, dotted, and whether it is true or false."""
    for name, field in table.model_fields.items():
        found = list(parts(field.annotation))
        below = [one for one in found if isinstance(one, type) and issubclass(one, BaseModel)]
        for one in below:
            yield from keys(one, (*place, name))
        if not below or len(found) > 1:
            yield ".".join((*place, name)), field.annotation in (bool, bool | None)


def job_with(key: str, value: Any) -> dict[str, Any]:
    """The tables of a job that has this key."""
    table, name, *below = key.split(".")
    if below:
        value = {**INSIDE.get(name, {}), below[0]: value}
    found = {name: [value] if below and name == "text" else value}
    return {table: {"rule": "ogd", **found} if name == "certificate" else found}


KEYS = dict(keys(Spec))


def test_booleans_are_no_numbers() -> None:
    """Every key takes true and false, numpy's too, if and only if it is true or false; the message
    names the key and what was expected."""
    assert {"alert.mean", "data.holdout.every", "data.sparse.size", "data.bits"} <= {*KEYS}
    for key, is_switch in KEYS.items():
        for value in (True, False, np.True_):
            if is_switch and value is not np.True_:
                given = job_with(key, value)
                table, name = key.rsplit(".", 1)
                found: Any = Spec._validated(given)
                for step in table.split("."):
                    found = getattr(found, step)
                assert getattr(found, name) is value
            elif not is_switch:
                with pytest.raises(UsageError) as error:
                    pytest.fail(f"{key} = {value}: {Spec.parse(job_with(key, value))}")
                words = ("unknown",) if key in ("model.rule", "model.loss") else (key, "expected")
                assert all(word.split(".")[-1] in str(error.value) for word in words), error


def test_booleans_are_no_parameters() -> None:
    """Parameters of rules and losses take true and false if and only if they are a switch."""
    for owner in (*all_rules().values(), *all_losses().values()):
        for name, kind in kinds(owner.hyper).items():
            for value in (True, False):
                if isinstance(kind, Switch):
                    assert owner.parse_params({name: value})[name] is value
                else:
                    with pytest.raises(UsageError, match=rf"{name}.* expected"):
                        owner.parse_params({name: value})
