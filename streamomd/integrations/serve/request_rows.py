"""What a client may ask for: limits, the bearer token, and the rows of a request's body."""

from __future__ import annotations

import hashlib
import hmac
import itertools
import json
import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from streamomd.core.errors import DataError, InputNotFoundError, UsageError
from streamomd.core.http_servers import is_loopback, names_this_machine
from streamomd.core.urls import printable, scrub, shown
from streamomd.shards.formats.arrow_footer import TooManyRowsError, rows_of_stream
from streamomd.training.progress import note

MIB = 1 << 20


@dataclass(frozen=True)
class Limits:
    """body, rows: bytes and rows of a request. explained_body, explained: of one to /explain, whose
    response has an entry for each word of a text.
    buffered: bytes of all bodies that are being received or waiting. head_seconds: to send a
    request's headers, body_seconds: its body. request_seconds: from the headers to the last byte
    of the response that the client took. connections: open at a time.
    """

    body: int = 4 * MIB
    rows: int = 10_000
    explained_body: int = 128 << 10
    explained: int = 100
    buffered: int = 256 * MIB
    head_seconds: float = 10.0
    body_seconds: float = 20.0
    request_seconds: float = 60.0
    idle_seconds: float = 60.0
    connections: int = 1000


class Refusal(Exception):
    """A request that is answered with an error: status, a code for programs, and a message."""

    def __init__(self, status: int, code: str, message: str, **more: object) -> None:
        super().__init__(message)
        self.status, self.code, self.more = status, code, more


VARIABLE = "STREAMOMD_SERVE_TOKEN"
LEAST = 16
"""Characters of a token; ``openssl rand -hex 32`` makes 64."""
Headers = Sequence[tuple[bytes, bytes]]


def find_token(path: str | None, host: str) -> str:
    """The token of a file or of the environment; empty without one, on a loopback address.

    Raises UsageError for a token that is too short, or none where one is needed.
    """
    text = _read(path) if path else os.environ.get(VARIABLE, "").strip()
    source = f"token file {shown(path)}" if path else VARIABLE
    if not text and not path:
        if is_loopback(host):
            return ""
        raise UsageError(
            f"--host {host} can be reached from other machines: set {VARIABLE}, or pass "
            "--token-file FILE, and send the token as 'Authorization: Bearer …'; or leave out "
            "--host to serve this machine only"
        )
    if len(text) < LEAST or not text.isascii() or not text.isprintable() or " " in text:
        raise UsageError(
            f"{source}: expected one line of at least {LEAST} ASCII characters without spaces, "
            "such as openssl rand -hex 32 prints"
        )
    return text


def _read(path: str) -> str:
    try:
        text = Path(path).read_text("utf-8").strip()
        mode = Path(path).stat().st_mode
    except FileNotFoundError:
        raise InputNotFoundError(f"no token file {shown(path)!r}") from None
    except (OSError, ValueError) as error:
        raise UsageError(f"token file {shown(path)!r}: {scrub(str(error))}") from None
    if mode & 0o022:
        raise UsageError(
            f"token file {shown(path)!r}: other users can write it, and so choose the token: run "
            "chmod 600 on it"
        )
    if mode & 0o044:  # not refused: secrets that Docker and Kubernetes mount have mode 0444
        note(f"others may read the token in {shown(path)}: run chmod 600 on it")
    return text


def is_authorized(headers: Headers, token: str) -> bool:
    """Whether a request has the token, as its only Authorization header. In constant time."""
    found = [value for name, value in headers if name == b"authorization"]
    scheme, _, given = (found[0] if len(found) == 1 else b"").partition(b" ")
    same = hmac.compare_digest(_digest(given.strip()), _digest(token.encode()))
    return same and scheme.lower() == b"bearer"


def _digest(text: bytes) -> bytes:
    return hashlib.sha256(text).digest()


def is_local_name(headers: Headers) -> bool:
    """Whether a request names a loopback address as its host."""
    return names_this_machine(
        [value.decode("latin-1") for name, value in headers if name == b"host"]
    )


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
