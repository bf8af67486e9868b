"""Table, a validated table of a job, and the description of its keys."""

from __future__ import annotations

from collections.abc import Mapping
from types import UnionType
from typing import Any, Union, get_args, get_origin

from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, field_validator, model_validator
from pydantic_core import PydanticKnownError

from streamomd.config.aliases import canonical_value


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
