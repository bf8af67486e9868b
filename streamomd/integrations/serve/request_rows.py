"""Rows of a request's body: JSON, JSON lines, or an Arrow IPC stream."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from streamomd.core.errors import DataError
from streamomd.core.urls import printable
from streamomd.integrations.serve.serve_limits import Limits, Refusal
from streamomd.shards.arrow_request import TooManyRowsError, rows_of_stream

JSON = "application/json"
LINES = "application/x-ndjson"
ARROW = "application/vnd.apache.arrow.stream"
SAME = {"application/jsonl": LINES, "application/x-jsonlines": LINES, "application/ndjson": LINES}
"""Other names in use for JSON lines."""
Row = dict[str, Any]


class _JsonError(ValueError):
    """What Python's parser would accept, and no other one."""


_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")


def content_type_of(text: str) -> str:
    """JSON, LINES or ARROW. Raises Refusal (415) for another one, or another character set.

    >>> content_type_of("application/json; charset=UTF-8")
    'application/json'
    """
    kind, *parameters = (part.strip().lower() for part in text.split(";"))
    kind = SAME.get(kind, kind)
    known = kind in (JSON, LINES, ARROW)
    charsets = [one for one in parameters if one.startswith("charset=")]
    if not known or any(one.partition("=")[2].strip('"') != "utf-8" for one in charsets):
        raise Refusal(
            415, "content_type", f"expected a Content-Type of {JSON}, {LINES} or {ARROW}, in UTF-8"
        )
    return kind


def rows_of_body(
    data: bytes, kind: str, columns: Sequence[str], most: int, limits: Limits
) -> list[Row]:
    """The rows of a body, at most ``most``. columns: those that are needed of an Arrow stream.

    Raises Refusal: 400 for what cannot be parsed, 413 for too many rows.
    """
    if kind == ARROW:
        return _of_arrow(data, columns, most, limits)
    text = _decoded(data)
    rows = _of_lines(text, most) if kind == LINES else _of_json(text)
    if len(rows) > most:
        _refuse_rows(most)
    wrong = [number for number, row in enumerate(rows) if not isinstance(row, dict)]
    if wrong:
        places = ", ".join(map(str, wrong[:10])) + (", …" if len(wrong) > 10 else "")
        raise Refusal(400, "rows", f"rows {places}: expected an object of column names and values")
    if _SURROGATE.search(text):
        _refuse_surrogates(rows)
    return rows


def _of_arrow(data: bytes, columns: Sequence[str], most: int, limits: Limits) -> list[Row]:
    try:
        return rows_of_stream(data, columns, most_rows=most, most_bytes=4 * limits.body)
    except TooManyRowsError:
        _refuse_rows(most)
    except DataError as error:
        raise Refusal(400, "arrow", str(error)) from None


def _refuse_rows(most: int) -> NoReturn:
    raise Refusal(413, "too_many_rows", f"a request may have {most:,} rows: send fewer")


def _decoded(data: bytes) -> str:
    try:
        return data.decode("utf-8").removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        raise Refusal(400, "encoding", f"byte {error.start:,} is not UTF-8") from None


def _of_json(text: str) -> list[Any]:
    found = _parsed(text, "")
    if isinstance(found, dict) and list(found) == ["rows"]:
        found = found["rows"]
    if not isinstance(found, list):
        raise Refusal(
            400, "rows", 'expected a list of rows, [{"column": value, …}, …], or {"rows": […]}'
        )
    return found


def _of_lines(text: str, most: int) -> list[Any]:
    filled = ((at, line) for at, line in enumerate(text.split("\n"), 1) if line.strip())
    lines = list(itertools.islice(filled, most + 1))
    if len(lines) > most:
        _refuse_rows(most)
    return [_parsed(line, f"line {at}: ") for at, line in lines]


def _parsed(text: str, where: str) -> Any:
    try:
        return _DECODER(text)
    except json.JSONDecodeError as error:
        place = f"line {error.lineno}, column {error.colno}" if not where else f"at {error.colno}"
        raise Refusal(400, "json", f"{where}no valid JSON: {error.msg}, {place}") from None
    except RecursionError:
        raise Refusal(400, "json", f"{where}the JSON is nested too deeply") from None
    except _JsonError as error:
        raise Refusal(400, "json", f"{where}{printable(str(error))}") from None
    except ValueError:  # Python converts no more than 4,300 digits
        raise Refusal(400, "json", f"{where}a number has too many digits") from None


def _object(pairs: list[tuple[str, Any]]) -> Row:
    made = dict(pairs)
    if len(made) != len(pairs):
        seen: set[str] = set()
        twice = next(name for name, _ in pairs if name in seen or seen.add(name))  # type: ignore[func-returns-value]
        raise _JsonError(f"an object has the key {twice[:100]!r} twice")
    return made


def _constant(name: str) -> NoReturn:
    raise _JsonError(f"{name} is not JSON: send null for a missing value")


def _decoder() -> Callable[[str], Any]:
    return json.JSONDecoder(object_pairs_hook=_object, parse_constant=_constant).decode


_DECODER = _decoder()


def _refuse_surrogates(rows: list[Row]) -> None:
    """A half of a surrogate pair is valid JSON, and no character: it has no UTF-8 to hash."""
    for at, row in enumerate(rows):
        try:
            json.dumps(row, ensure_ascii=False).encode()
        except UnicodeEncodeError:
            raise Refusal(400, "encoding", f"row {at} has half of a surrogate pair") from None
