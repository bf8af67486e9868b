"""The description of the server's endpoints in OpenAPI 3.1, with the columns of its model."""

from __future__ import annotations

from typing import Any

from streamomd.core.own_version import VERSION
from streamomd.integrations.serve.column_schemas import column_schemas, example_row
from streamomd.integrations.serve.model_snapshot import Snapshot
from streamomd.integrations.serve.request_rows import ARROW, JSON, LINES
from streamomd.integrations.serve.serve_limits import Limits

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
