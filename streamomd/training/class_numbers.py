"""Numbers that a job gives for classes by name, in the order of the classes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamomd.config.spec import Spec
from streamomd.core.errors import UnsupportedError, UsageError
from streamomd.core.nearest import suggestion
from streamomd.core.urls import printable
from streamomd.features import Plan

Floats = NDArray[np.float64]


def numbers_of_classes(given: Mapping[str, float], classes: Sequence[Any], key: str) -> Floats:
    """A number for each class, 1 for those that are not named. key: that gives them.

    Names are texts in TOML: a boolean is true or false, a number is compared as a number. Raises
    UsageError for a name that is not a class.

    >>> numbers_of_classes({"1": 5.0}, (0, 1), "model.class_weight")
    array([1., 5.])
    """
    found = np.ones(len(classes))
    for name, number in given.items():
        places = [at for at, label in enumerate(classes) if _is_name(name, label)]
        if not places:
            names = [_name(label) for label in classes]
            raise UsageError(
                f"{key} names {printable(repr(name))}, which is not a class of the label: "
                f"{suggestion(name, names)}"
            )
        found[places[0]] = number
    return found


def refuse_unknown_classes(spec: Spec, plan: Plan) -> None:
    """Raise UsageError for a class that a key of the job names and the label does not have, and
    UnsupportedError for classes that cannot be calibrated."""
    given = {"model.class_weight": spec.model.class_weight, "data.sample": spec.data.sample}
    for key, table in given.items():
        if isinstance(table, Mapping):
            numbers_of_classes(table, plan.classes, key)
    if spec.model.calibrate != "none" and len(plan.classes) != 2:
        raise UnsupportedError(
            f"model.calibrate = {spec.model.calibrate!r} is for two classes, and the label has "
            f"{len(plan.classes)}: leave it out"
        )


def places_of_labels(y: Floats, classes: int) -> NDArray[np.int64]:
    """The class's number of each label, as a batch holds it."""
    return (y > 0.0).astype(np.int64) if classes == 2 else y.astype(np.int64)


def _name(label: Any) -> str:
    return str(label).lower() if isinstance(label, bool) else str(label)


def _is_name(name: str, label: Any) -> bool:
    if isinstance(label, str):
        return bool(name == label)
    if isinstance(label, bool):
        return name.lower() == _name(label)
    try:
        return bool(float(name) == label)
    except ValueError:
        return False
