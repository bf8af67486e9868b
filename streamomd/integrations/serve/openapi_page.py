"""The description of the endpoints as a page: no script, and nothing that is loaded."""

from __future__ import annotations

import base64
import hashlib
import html
import json
from collections.abc import Iterator
from typing import Any

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
    for status, one in responses.items():
        yield f"<tr><td>{status}<td>{html.escape(one['description'])}</tr>"
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
