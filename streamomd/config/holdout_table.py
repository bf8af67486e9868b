"""What ``data.holdout`` may be: an integer, a fraction, or a table {every, after}."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator

from streamomd.config import values
from streamomd.config.explain import TAGS
from streamomd.config.job_table import Table
from streamomd.core.errors import UsageError

WHOLE = "a whole number from 0 to 4,294,967,295"
EXAMPLE = '{ every = 10, after = "2026-01-01" }'


def _check_every(value: int) -> int:
    if value == 1:
        raise UsageError(
            "data.holdout = 1 would hold out every row: expected 2 or more, a fraction such as "
            "0.1, or 0 for none"
        )
    return value


def _check_after(value: str) -> str:
    if value:
        values.utc_nanoseconds(value)
    return value


def _whole(value: Any) -> Any:
    found = values.one_in(value)
    number = found if not isinstance(found, str) else values.parse_scalar(found)
    whole = isinstance(number, int) or (isinstance(number, float) and number.is_integer())
    if not whole or isinstance(number, bool) or not 0 <= number < 2**32:
        raise ValueError(f"expected {WHOLE}")
    return int(number)


OneIn = Annotated[int, BeforeValidator(_whole), AfterValidator(_check_every)]


class Holdout(Table):
    """Rows that are held out: about one in ``every``, and all whose time is ``after`` or later."""

    every: OneIn = 0
    after: Annotated[str, BeforeValidator(values.moment_text), AfterValidator(_check_after)] = ""

    @property
    def after_ns(self) -> int:
        """The time from which all rows are held out, in nanoseconds since 1970."""
        return values.utc_nanoseconds(self.after)

    def __str__(self) -> str:
        every = [f"every = {self.every}"] if self.every else []
        return f"{{ {', '.join([*every, f'after = {self.after}'])} }}"


def as_holdout(given: Any) -> Any:
    """A number as it is; a table, also as text. A table without ``after`` is its number."""
    value = values.parse_scalar(given) if isinstance(given, str) and "{" in given else given
    if not isinstance(value, Mapping | Holdout | int | float | str):
        raise ValueError(f"expected {WHOLE}, or a table such as {EXAMPLE}")
    if not isinstance(value, Mapping):
        return value
    unknown = [name for name in value if name not in Holdout.model_fields]
    if unknown:
        raise UsageError(
            f"data.holdout: unknown key {str(unknown[0])!r}; expected every and after, such as "
            f"{EXAMPLE}"
        )
    return value.get("every", 0) if value.get("after", "") == "" else dict(value)


def holdout_kind(given: Any) -> str:
    """The type that reads it: a number or a table."""
    return TAGS[isinstance(given, Mapping | Holdout)]
