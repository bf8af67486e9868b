"""Table, a validated table of a job, the description of its keys, and messages about invalid ones.

Other names of losses are in the losses, those of rules in ``streamomd.rules``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import UnionType
from typing import Any, Union, get_args, get_origin

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)
from pydantic.fields import FieldInfo
from pydantic_core import PydanticKnownError

from streamomd.core.errors import UsageError
from streamomd.core.message import Key, Message, invalid_value, joined
from streamomd.core.urls import scrub
from streamomd.core.wording import nearest, suggestion

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


KINDS = {
    "bool": "true or false",
    "dict": "a table of names and values",
    "list": "a list",
    "model": "a table of names and values",
    "string": "a text",
    "tuple": "a list",
}
"""What was expected, by the start of pydantic's name for the problem."""
TAGS = ("<number>", "<table>")
"""Tags of the types that a key may have, which pydantic names in a problem's place."""
MAX_SHOWN = 200  # characters of a value; longer ones are cut


def explain(error: ValidationError, job: type[BaseModel]) -> Message:
    """What pydantic found in a job: a problem, or a line for each of several."""
    lines = [_line(problem, job) for problem in error.errors()]
    if len(lines) == 1:
        return lines[0]
    return replace(lines[0], form="{found}", found=joined(lines, "\n"))


def brief(given: Any) -> str:
    """A value in a message, without secrets of URLs, cut if it is long."""
    text = scrub(repr(given))
    return text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}…"


def _line(found: Any, job: type[BaseModel]) -> Message:
    problem = {**found, "loc": tuple(step for step in found["loc"] if step not in TAGS)}
    place = [str(step) for step in problem["loc"]]
    key, cause = ".".join(place), problem.get("ctx", {}).get("error")
    if isinstance(cause, UsageError):
        return cause.message
    if problem["type"] == "extra_forbidden":
        remedy = _table_of(place, job) or suggestion(place[-1], _known_keys(place, job))
        return Message("unknown_key", "unknown key {key!r}; {remedy}", key=Key(key), remedy=remedy)
    # A value given as storage options may be a secret.
    given = "…" if "storage_options" in place else brief(problem.get("input"))
    wanted = f"{_expected(problem, job)}{_nearest_choice(problem, job)}" if cause is None else cause
    return invalid_value(key, given, str(wanted))


def _expected(problem: Any, job: type[BaseModel]) -> str:
    """What the value of a key should have been."""
    kind = str(problem["type"])
    if kind == "missing":
        return "missing; set it"
    if kind == "literal_error":
        return f"expected {problem['ctx']['expected']}"
    field = _field(problem["loc"], job)
    kinds = {field.annotation, *get_args(field.annotation)} if field else set()
    number = "a whole number" if int in kinds else "a number" if float in kinds else ""
    if field and number and kind.startswith(("int", "float", "great", "less", "finite")):
        return f"expected {number}{_range(field)}"
    known = [text for name, text in KINDS.items() if kind.startswith(name)]
    return f"expected {known[0]}" if known else str(problem["msg"]).lower()


def _range(field: FieldInfo) -> str:
    """The values that a number may have.

    >>> from annotated_types import Ge, Gt, Le
    >>> low, both, open_one = FieldInfo(), FieldInfo(), FieldInfo()
    >>> low.metadata, both.metadata, open_one.metadata = [Ge(1)], [Ge(1), Le(30)], [Gt(0), Le(1)]
    >>> _range(low), _range(both), _range(open_one)
    (' of 1 or more', ' from 1 to 30', ' above 0, at most 1')
    """
    above = next((one.gt for one in field.metadata if hasattr(one, "gt")), None)
    low = next((one.ge for one in field.metadata if hasattr(one, "ge")), None)
    high = next((one.le for one in field.metadata if hasattr(one, "le")), None)
    if above is not None:
        return f" above {above:,.15g}" + ("" if high is None else f", at most {high:,.15g}")
    if low is None:
        return "" if high is None else f" of {high:,.15g} or less"
    return f" of {low:,.15g} or more" if high is None else f" from {low:,.15g} to {high:,.15g}"


def _field(place: Sequence[Any], job: type[BaseModel]) -> FieldInfo | None:
    """The description of a key; None for an item of a list."""
    return _table(place, job).model_fields.get(str(place[-1]))


def _nearest_choice(problem: Any, job: type[BaseModel]) -> str:
    """The nearest of a few words, where one of them was expected."""
    if problem["type"] != "literal_error":
        return ""
    words = [word for word in _choices(problem["loc"], job) if isinstance(word, str)]
    found = nearest(str(problem["input"]), words)
    return f"; did you mean {found!r}?" if found else ""


def _choices(place: Sequence[Any], job: type[BaseModel]) -> tuple[Any, ...]:
    table = _table(place, job)
    return get_args(table.model_fields[str(place[-1])].annotation)


def _known_keys(place: Sequence[str], job: type[BaseModel]) -> list[str]:
    """The keys that are known where this one is."""
    others = KEYS.get(place[0], {}) if len(place) == 2 else {}
    return [*_table(place, job).model_fields, *others]


def _table_of(place: Sequence[str], job: type[BaseModel]) -> str:
    """The table that a key belongs to, where it is outside of every table; "" if unknown."""
    if len(place) > 1:
        return ""
    for name in job.model_fields:
        known = _table([name, ""], job).model_fields if _is_table(name, job) else {}
        if place[0] in known or place[0] in KEYS.get(name, {}):
            return f"it belongs in the table [{name}]: write it below a line [{name}]"
    return ""


def _is_table(name: str, job: type[BaseModel]) -> bool:
    return _model_in(job.model_fields[name].annotation) is not None


def _table(place: Sequence[Any], job: type[BaseModel]) -> type[BaseModel]:
    """The table that holds a key: of the job, or below one of its tables."""
    table = job
    for step in place[:-1]:
        if isinstance(step, str) and step in table.model_fields:
            table = _model_in(table.model_fields[step].annotation) or table
    return table


def _model_in(annotation: Any) -> type[BaseModel] | None:
    """The table that a type is or contains."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    found = (_model_in(part) for part in get_args(annotation))
    return next((one for one in found if one is not None), None)
