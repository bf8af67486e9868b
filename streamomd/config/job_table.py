"""Table, a validated table of a job, and the description of its keys."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, model_validator

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
    """Frozen; an unknown key, NaN and infinity are errors."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    @model_validator(mode="before")
    @classmethod
    def _own_values(cls, given: Any) -> Any:
        if not isinstance(given, Mapping):
            return given
        return {name: canonical_value(name, value) for name, value in given.items()}
