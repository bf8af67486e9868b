"""Other names that are accepted for keys and values of a job; the saved job has ours.

Other names of losses are in the losses, those of rules in ``streamomd.rules``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

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
