"""The description of the server's endpoints in OpenAPI 3.1, with the columns of its model."""

from __future__ import annotations

import base64
import hashlib
import html
import json
from collections.abc import Iterator
from typing import Any

from streamomd.core.installed import VERSION
from streamomd.integrations.serve.model_reloader import Snapshot
from streamomd.integrations.serve.request_rows import ARROW, JSON, LINES, Limits
from streamomd.training.scoring.description import Description, VectorColumn

_ERRORS = {
    "400": "Malformed JSON or Arrow, or text that is not UTF-8.",
    "401": "A missing or wrong token.",
    "408": "The body did not arrive in time.",
    "413": "Too many bytes or rows.",
    "415": "An unsupported content type, or a compressed body.",
    "422": "Missing columns (missing) and values of a wrong type (problems).",
    "503": "No model is loaded yet, or too many requests are waiting.",
}


def openapi_document(snapshot: Snapshot, limits: Limits, has_token: bool) -> dict[str, Any]:
    """The document at /openapi.json."""
    document: dict[str, Any] = {
        "openapi": "3.1.0",
        "info": {
            "title": f"Predictions of {snapshot.schema.label!r}",
            "version": VERSION,
            "description": "The server predicts and never learns. Every response is of one commit.",
        },
        "paths": {
            "/predict": {"post": _rows_operation("predictions", "Predict rows", limits.rows)},
            "/explain": {
                "post": _rows_operation(
                    "explanations", "Contribution of each feature to the score", limits.explained
                )
            },
            "/model": {"get": _operation("The job, the commit and the schema")},
            "/healthz": {"get": _operation("Whether the process answers", secured=False)},
            "/readyz": {
                "get": _operation("Whether a model is loaded; a refused commit", secured=False)
            },
            "/metrics": {"get": _operation("Metrics in Prometheus' text format", "text/plain")},
            "/openapi.json": {"get": _operation("This document")},
        },
        "components": {"schemas": _schemas(snapshot)},
    }
    if has_token:
        document["components"]["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
        document["security"] = [{"token": []}]
    return document


def _operation(summary: str, kind: str = JSON, *, secured: bool = True) -> dict[str, Any]:
    found: dict[str, Any] = {
        "summary": summary,
        "responses": {"200": {"description": "OK", "content": {kind: {}}}},
    }
    return found if secured else {**found, "security": []}


def _rows_operation(name: str, summary: str, most: int) -> dict[str, Any]:
    rows = {"type": "array", "items": _of("Row"), "maxItems": most}
    wrapped = {"type": "object", "properties": {"rows": rows}, "required": ["rows"]}
    error = {"application/json": {"schema": _of("Error")}}
    return {
        "summary": summary,
        "requestBody": {
            "required": True,
            "content": {
                JSON: {"schema": {"oneOf": [rows, wrapped]}},
                LINES: {"schema": {"type": "string", "description": "a row each line"}},
                ARROW: {"schema": {"type": "string", "contentEncoding": "binary"}},
            },
        },
        "responses": {
            "200": {"description": "OK", "content": {JSON: {"schema": _of(name.capitalize())}}},
            **{status: {"description": text, "content": error} for status, text in _ERRORS.items()},
        },
    }


def _of(name: str) -> dict[str, str]:
    return {"$ref": f"#/components/schemas/{name}"}


def _schemas(snapshot: Snapshot) -> dict[str, Any]:
    number = {"type": ["number", "null"]}
    several = len(snapshot.schema.classes) > 2
    numbers = {"type": "array", "items": number} if several else number
    contribution = {
        "type": "object",
        "properties": {"feature": {"type": "string"}, "value": {}, "contribution": number},
    }
    contributions: dict[str, Any] = {"type": "array", "items": contribution}
    if several:
        contributions = {"type": "array", "items": contributions}
    columns = column_schemas(snapshot.scorer.description)
    example = example_row(columns)
    return {
        "Row": {
            "type": "object",
            "properties": columns,
            "required": list(snapshot.schema.required),
            **({} if example is None else {"examples": [example]}),
        },
        "Predictions": _results(
            "predictions", {"prediction": {}, "score": numbers, "probability": numbers}
        ),
        "Explanations": _results(
            "explanations", {"score": numbers, "contributions": contributions}
        ),
        "Error": {
            "type": "object",
            "properties": {
                "error": {
                    "type": "object",
                    "properties": {
                        "code": {"type": "string"},
                        "message": {"type": "string"},
                        "missing": {"type": "array", "items": {"type": "string"}},
                        "problems": {"type": "array", "items": {"type": "object"}},
                    },
                    "required": ["code", "message"],
                }
            },
        },
    }


def _results(name: str, properties: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {
            name: {"type": "array", "items": {"type": "object", "properties": properties}},
            "commit": {"type": "integer"},
        },
    }


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
    schemas: dict[str, dict[str, Any]] = {}
    for number in columns.numbers:
        schemas[number.name] = _number(number.kind, number.nulls != "error")
    for vector in columns.vectors:
        schemas[vector.name] = _vector(vector)
    for listed in columns.lists:
        items = _category(listed.kind)
        schemas[listed.name] = {
            "type": ["array", "null"], "items": items, "examples": [items["examples"]]
        }  # fmt: skip
    for date in columns.dates:
        form, example, text = _DATES[date.kind]
        schemas[date.name] = {
            "type": ["string", "null"], "description": text, "examples": [example],
            **({"format": form} if form else {}),
        }  # fmt: skip
    for category in columns.categories:
        schemas.setdefault(category.name, _category(category.kind))
    for text_column in columns.texts:
        schemas[text_column.name] = {"type": ["string", "null"], "examples": ["some words"]}
    if pair := columns.sparse:
        index = {"type": "integer", "minimum": 0, "maximum": max(pair.size - 1, 0)}
        for name, items, examples in (
            (pair.indices, index, [0] if pair.size else []),
            (pair.values, _number(pair.kind, False), [1] if pair.size else []),
        ):
            items.pop("examples", None)
            schemas[name] = {"type": ["array", "null"], "items": items, "examples": [examples]}
    return {name: schemas[name] for name in columns.columns}


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


STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 52rem; margin: 2rem auto; padding: 0 1rem;
  color-scheme: light dark; }
pre { overflow-x: auto; padding: .75rem; border: 1px solid #8888; border-radius: 4px; }
table { border-collapse: collapse; display: block; overflow-x: auto; }
th, td { text-align: left; padding: .2rem 1rem .2rem 0; border-bottom: 1px solid #8884; }
"""
_DIGEST = base64.b64encode(hashlib.sha256(STYLE.encode()).digest()).decode()
CONTENT_SECURITY_POLICY = (
    f"default-src 'none'; style-src 'sha256-{_DIGEST}'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'"
)


def openapi_page(document: dict[str, Any], host: str) -> str:
    """The page of an OpenAPI document of this server. host: that of its requests."""
    return "\n".join(_lines(document, host)) + "\n"


def _lines(document: dict[str, Any], host: str) -> Iterator[str]:
    title = html.escape(document["info"]["title"])
    yield f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
    yield '<meta name="viewport" content="width=device-width, initial-scale=1">'
    yield f"<style>{STYLE}</style></head><body>"
    yield f"<h1>{title}</h1><p>{html.escape(document['info']['description'])}</p>"
    row = document["components"]["schemas"]["Row"]
    token = ' -H "Authorization: Bearer $(cat token)"' if "security" in document else ""
    examples = row.get("examples")  # none if a list is too long to write out
    body = json.dumps(examples, ensure_ascii=False) if examples else "@rows.json"
    body = body.replace("'", "'\\''")
    yield "<h2>Predict</h2>"
    command = f"curl{token} -H 'Content-Type: application/json' \\\n  -d '{body}' {host}/predict"
    yield f"<pre>{html.escape(command)}</pre>"
    yield "<h2>Endpoints</h2><table><tr><th>method<th>path<th>what it does</tr>"
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            text = html.escape(operation["summary"])
            yield f"<tr><td>{method.upper()}<td><code>{path}</code><td>{text}</tr>"
    yield "</table><h2>Columns</h2><table><tr><th>column<th>type<th>required</tr>"
    for name, kind in row["properties"].items():
        types = _worded(kind)
        needed = "yes" if name in row["required"] else ""
        yield f"<tr><td><code>{html.escape(name)}</code><td>{types}<td>{needed}</tr>"
    yield "</table><h2>Errors</h2><table>"
    responses = document["paths"]["/predict"]["post"]["responses"]
    for status, response in responses.items():
        yield f"<tr><td>{status}<td>{html.escape(response['description'])}</tr>"
    yield '</table><p>As a document: <a href="openapi.json">openapi.json</a></p></body></html>'


def _worded(kind: dict[str, Any]) -> str:
    """The types of a column, and what a list has."""
    types = ", ".join(kind["type"])
    if kind["type"][0] != "array":
        return types
    if isinstance(kind["items"]["type"], str):
        return f"{types}; indices from 0 to {kind['items']['maximum']:,}"
    least, most = kind.get("minItems"), kind.get("maxItems")
    length = "" if most is None else f"{most:,} " if least == most else f"up to {most:,} "
    return f"{types}; {length}elements: {', '.join(kind['items']['type'])}"
