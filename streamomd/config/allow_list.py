"""Allow-lists of the URLs that a checkpoint or the log of a table may name.

An allow-list is a list of prefixes: scheme, host, and whole path segments. The environment variable
STREAMOMD_ALLOWED_URLS has one, with commas between, and Dask's configuration (``allowed-urls`` in
the section ``streamomd``) may have another. A URL must be inside every list that is set.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple
from urllib.parse import unquote

from streamomd.core.errors import UsageError
from streamomd.core.urls import (
    absolute,
    local_name,
    location,
    protocol,
    redact,
    shown,
    without_userinfo,
)

VARIABLE, KEY = "STREAMOMD_ALLOWED_URLS", "allowed-urls"
MOST_LINES = 20
"""URLs outside a list that are named."""
_PORTS = {"http": "80", "https": "443", "ftp": "21", "sftp": "22"}
"""Schemes whose hosts are DNS names, where case means nothing, and their ports."""
_DECODED = ("http", "https")
"""Schemes whose paths may be percent-encoded."""
_CONTROLS = re.compile(r"[\x00-\x1f\x7f\\]")


class Place(NamedTuple):
    """A URL in comparable form: scheme ("file" on the local disk), host, and path segments."""

    scheme: str
    host: str
    segments: tuple[str, ...]

    def is_inside(self, prefix: Place) -> bool:
        """Whether this is the prefix or below it."""
        same = self.scheme == prefix.scheme and prefix.host in ("", self.host)
        return same and self.segments[: len(prefix.segments)] == prefix.segments


def readings(url: str) -> list[Place]:
    """Every place that a URL may mean to who opens it; none where that cannot be known.

    A server resolves ``..``, a bucket takes it for a name: there a URL has two meanings.

    >>> readings("HTTP://Example.com:80//a/./b%2e/../c?x")
    [Place(scheme='http', host='example.com', segments=('a', 'c'))]
    >>> [place.segments for place in readings("s3://bucket/a/../b")]
    [('b',), ('a', '..', 'b')]
    """
    url, scheme = location(url), protocol(url)
    if not scheme:
        return _local(url)
    path = redact(url) if scheme in _DECODED else without_userinfo(url)
    host, _, path = path.split("://", 1)[1].partition("/")
    if scheme in _PORTS:
        host = host.lower().removesuffix(f":{_PORTS[scheme]}")
    names = path.split("/")
    if scheme in _DECODED:
        names = [unquote(name, errors="surrogateescape") for name in names]
        # An encoded separator is one to some servers, and control characters vanish on the way.
        if any("/" in name for name in names) or any(map(_CONTROLS.search, (url, *names))):
            return []
    # Whether "//" is one separator or has an empty name inside is for the server to say.
    meanings = [_resolved([name for name in names if name]), _filled(_resolved(names))]
    if scheme not in _DECODED:
        meanings.append(_filled(names))
    return [Place(scheme, host, segments) for segments in dict.fromkeys(meanings)]


def _local(url: str) -> list[Place]:
    try:
        path = os.path.realpath(absolute(url))
    except (OSError, ValueError):  # no file name, as with a NUL in it
        return []
    return [Place("file", "", _filled(path.split("/")))]


def _resolved(names: Sequence[str]) -> tuple[str, ...]:
    """Path segments without "." and ".."."""
    found: list[str] = []
    for name in names:
        if name == "..":
            del found[-1:]
        elif name != ".":
            found.append(name)
    return tuple(found)


def _filled(names: Sequence[str]) -> tuple[str, ...]:
    return tuple(name for name in names if name)


@dataclass(frozen=True)
class AllowList:
    """Prefixes, and where they were set."""

    source: str
    prefixes: tuple[str, ...]

    def __post_init__(self) -> None:
        for prefix in self.prefixes:
            is_path = not protocol(prefix) and os.path.isabs(local_name(prefix))
            if not (is_path or protocol(prefix)) or len(readings(prefix)) != 1:
                raise UsageError(
                    f"{self.source} holds {shown(prefix)!r}: expected a prefix of a URL or an "
                    "absolute path, without '..', e.g. s3://bucket/rows,/data"
                )

    def __contains__(self, url: str) -> bool:
        """Whether every meaning of a URL is inside a prefix."""
        prefixes = [place for prefix in self.prefixes for place in readings(prefix)]
        found = readings(url)
        return bool(found) and all(
            any(place.is_inside(prefix) for prefix in prefixes) for place in found
        )

    def __str__(self) -> str:
        return f"{self.source} ({', '.join(map(shown, self.prefixes))})"


def allow_lists(environment: Mapping[str, str] = os.environ) -> tuple[AllowList, ...]:
    """The lists that are set, those of the environment and of Dask's configuration.

    An empty one restricts nothing. Raises UsageError for one that cannot be read.
    """
    # Dask takes as long to import as the rest: only what opens URLs that others name imports it.
    from streamomd.config.settings import configured

    source = f"streamomd.{KEY} of Dask's configuration"
    given = {VARIABLE: environment.get(VARIABLE), source: configured(KEY)}
    found = [(name, _listed(name, value)) for name, value in given.items()]
    return tuple(AllowList(name, prefixes) for name, prefixes in found if prefixes)


def _listed(source: str, value: Any) -> tuple[str, ...]:
    texts = value.split(",") if isinstance(value, str) else value or ()
    if not isinstance(texts, list | tuple) or not all(isinstance(text, str) for text in texts):
        raise UsageError(
            f"{source} is {value!r}: expected prefixes of URLs, as a list or with commas"
        )
    found = tuple(text.strip() for text in texts if text.strip())
    if isinstance(value, str) and value.strip() and not found:
        raise UsageError(f"{source} is {value!r}: expected prefixes of URLs, with commas between")
    return found


def refuse_outside(
    urls: Sequence[str], lists: Sequence[AllowList], who: str = "the checkpoint"
) -> None:
    """Raise UsageError naming every URL that is outside one of the lists, and what to do."""
    for one in lists:
        outside = [url for url in urls if url not in one]
        if outside:
            some = [f"  {_resolved_name(url)}" for url in outside[:MOST_LINES]]
            some += [f"  and {len(outside) - MOST_LINES} more"] * (len(outside) > MOST_LINES)
            lines = "\n".join(some)
            raise UsageError(
                f"{who} names URLs outside {one}:\n{lines}\n"
                f"no row was read from them; to allow them, add a prefix of each to {one.source}"
            )


def _resolved_name(url: str) -> str:
    if protocol(url):
        return shown(url)
    path = absolute(url)
    real = next((f"/{'/'.join(place.segments)}" for place in _local(url)), path)
    return shown(path) if real == path else f"{shown(path)}, which is {shown(real)}"
