"""Table, a validated table of a job; the description of its keys, and other names that are
accepted.

Other names of losses are in the losses, those of rules in ``streamomd.rules``.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import UnionType
from typing import Any, Union, get_args, get_origin

from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, field_validator, model_validator
from pydantic_core import PydanticKnownError

from streamomd.core.errors import UsageError

KEYS: dict[str, dict[str, str]] = {
    "data": {
        "target": "label",
        "sample_weight": "weight",
        "numerical": "numeric",
        "categorical": "hashed",
        "random_state": "seed",
    },
    "train": {"max_iter": "epochs"},
}
"""Other names of keys, by table."""
PARAMETERS = {"learning_rate": "eta"}
"""Other names of the flags of parameters; tables of parameters have the rule's own names."""
VALUES: dict[str, dict[str, str]] = {
    "task": {"classification": "classify", "regression": "regress"},
    "dtype": {"double": "float64", "single": "float32"},
    "order": {"shuffle": "shuffled"},
    "counts": {"binary": "presence"},
}
"""Other values of keys that are one of a few words."""


def canonical_value(key: str, value: Any) -> Any:
    """The value under its own name."""
    return VALUES.get(key, {}).get(value, value) if isinstance(value, str) else value


def canonical_keys(tables: Mapping[str, Any]) -> dict[str, Any]:
    """The tables of a job with keys under their own names. Raises UsageError for one given twice.

    >>> canonical_keys({"data": {"categorical": ["job"]}})
    {'data': {'hashed': ['job']}}
    """
    return {name: _renamed(name, table) for name, table in tables.items()}


def names_of(table: str, key: str) -> tuple[str, ...]:
    """The other names of a key.

    >>> names_of("data", "hashed")
    ('categorical',)
    """
    return tuple(other for other, own in KEYS.get(table, {}).items() if own == key)


def _renamed(name: str, table: Any) -> Any:
    """A table with its keys under their own names."""
    others = KEYS.get(name, {})
    if not isinstance(table, Mapping) or not others.keys() & table.keys():
        return table
    found: dict[Any, Any] = {}
    given: dict[Any, Any] = {}
    for key, value in table.items():
        own = others.get(key, key)
        if own in found:
            raise UsageError(
                f"{name}.{own} is given twice, as {given[own]!r} and {key!r}: remove one"
            )
        found[own], given[own] = value, key
    return found


def key(
    default: Any,
    text: str,
    *,
    flag: str | None,
    metavar: str = "",
    shown_default: str = "",
    option: bool = True,
    parameters: Mapping[str, str] | None = None,
    **limits: Any,
) -> Any:
    """A key of a table.

    text: what it sets, a sentence for the help. flag: its name on the command line and in Python;
    None: it has no flag, only ``--set`` sets it. metavar: what the help calls the value.
    shown_default: instead of the default. option: False if only Python has the flag. parameters:
    flags of entries of this table, with their help.
    """
    on_command_line: dict[str, Any] = {
        "flag": flag,
        "metavar": metavar,
        "shown_default": shown_default,
        "option": option,
        "parameters": dict(parameters or {}),
    }
    return Field(default, description=text, json_schema_extra=on_command_line, **limits)


class Table(BaseModel):
    """Frozen; an unknown key, NaN, infinity, and a boolean where a number belongs are errors."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    @model_validator(mode="before")
    @classmethod
    def _own_values(cls, given: Any) -> Any:
        if not isinstance(given, Mapping):
            return given
        return {name: canonical_value(name, value) for name, value in given.items()}

    @field_validator("*", mode="before")
    @classmethod
    def _no_boolean_as_number(cls, value: Any, info: ValidationInfo) -> Any:
        """Pydantic takes true, and numpy's, for 1."""
        is_boolean = type(value).__name__ in ("bool", "bool_")
        if is_boolean and is_number(cls.model_fields[str(info.field_name)].annotation):
            raise PydanticKnownError("float_type")
        return value


def is_number(annotation: Any) -> bool:
    """Whether a key of this type holds a number.

    >>> is_number(int), is_number(float | None), is_number(bool | None), is_number(dict[str, float])
    (True, True, False, False)
    """
    of_union = get_args(annotation) if get_origin(annotation) in (Union, UnionType) else ()
    return bool({int, float} & {annotation, *of_union})
