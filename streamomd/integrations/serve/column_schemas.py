"""JSON Schema and an example value of each column that a model reads."""

from __future__ import annotations

from typing import Any

from streamomd.training.scoring.description import Description, VectorColumn

WIDEST = 4096
"""Elements of a list that is written out as an example."""
_TYPES = {"integer": "integer", "boolean": "boolean", "text": "string", "bytes": "string"}
_VALUES: dict[str, Any] = {"integer": 1, "boolean": True, "text": "a", "bytes": "a"}
_DATES = {
    "date": ("date", "2026-01-31", "ISO 8601"),
    "timestamp": ("", "2026-01-31T12:00:00", "ISO 8601, without a time zone"),
    "timestamp with a zone": ("date-time", "2026-01-31T12:00:00Z", "ISO 8601, with a time zone"),
}


def column_schemas(columns: Description) -> dict[str, dict[str, Any]]:
    """The schema of each column by name, with an example that the model takes.

    Null is among the types where a missing value is not an error. A list of more than 4,096
    elements has no example.
    """
    found: dict[str, dict[str, Any]] = {}
    for number in columns.numbers:
        found[number.name] = _number(number.kind, number.nulls != "error")
    for vector in columns.vectors:
        found[vector.name] = _vector(vector)
    for listed in columns.lists:
        items = _category(listed.kind)
        found[listed.name] = {
            "type": ["array", "null"], "items": items, "examples": [items["examples"]]
        }  # fmt: skip
    for date in columns.dates:
        form, example, text = _DATES[date.kind]
        found[date.name] = {
            "type": ["string", "null"], "description": text, "examples": [example],
            **({"format": form} if form else {}),
        }  # fmt: skip
    for category in columns.categories:
        found.setdefault(category.name, _category(category.kind))
    for text_column in columns.texts:
        found[text_column.name] = {"type": ["string", "null"], "examples": ["some words"]}
    if pair := columns.sparse:
        index = {"type": "integer", "minimum": 0, "maximum": max(pair.size - 1, 0)}
        for name, items, examples in (
            (pair.indices, index, [0] if pair.size else []),
            (pair.values, _number(pair.kind, False), [1] if pair.size else []),
        ):
            items.pop("examples", None)
            found[name] = {"type": ["array", "null"], "items": items, "examples": [examples]}
    return {name: found[name] for name in columns.columns}


def example_row(schemas: dict[str, dict[str, Any]]) -> dict[str, Any] | None:
    """A row that the model takes; None if a list is too long to write out."""
    if not all("examples" in one for one in schemas.values()):
        return None
    return {name: one["examples"][0] for name, one in schemas.items()}


def _number(kind: str, nullable: bool) -> dict[str, Any]:
    boolean = kind == "boolean"
    name, example = ("boolean", True) if boolean else ("number", 1 if kind == "integer" else 1.5)
    return {"type": [name, "null"] if nullable else [name], "examples": [example]}


def _vector(column: VectorColumn) -> dict[str, Any]:
    nullable, width = column.nulls != "error", column.width
    items = _number(column.kind, nullable)
    (element,) = items.pop("examples")
    found: dict[str, Any] = {
        "type": ["array", "null"] if nullable else ["array"],
        "items": items,
        "maxItems": width,
    }
    if not column.ragged:
        found["minItems"] = width
    return found if width > WIDEST else {**found, "examples": [[element] * width]}


def _category(kind: str) -> dict[str, Any]:
    """Missing is a category of its own, so null is always taken."""
    return {"type": [_TYPES.get(kind, "number"), "null"], "examples": [_VALUES.get(kind, 1.5)]}
