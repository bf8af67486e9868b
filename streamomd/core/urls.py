"""Names of files and URLs: made absolute, stripped of secrets, safe to print."""

from __future__ import annotations

import os
import re
import shlex

from streamomd.core.errors import UsageError
from streamomd.core.platform_calls import to_slashes

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")
_USERINFO = re.compile(r"^([A-Za-z][A-Za-z0-9+.-]*://)([^/?#]*)@")
_URL_IN_TEXT = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://[^\s'\"<>]+")
_CONTAINER = re.compile(r"^(abfss?|adl|wasbs?)://[^/?#:@]+@[^/?#@]+")
"""Azure writes container@account: an address, not a secret."""
_SLASHED = r"[^\s/?#@:\[]+:(?!:|\d{1,5}(?:[/?#\s]|$))[^\s@]*/[^\s@]*"
"""A user and a password with a slash that is not escaped; what follows a host is a port."""
_CREDENTIALS = re.compile(
    rf"((?:[A-Za-z][A-Za-z0-9+.-]*:/|::[A-Za-z][A-Za-z0-9+.-]*:)/+)({_SLASHED}|[^\s/?#]*)@"
)
_BAD_CREDENTIALS = re.compile(rf"[A-Za-z][A-Za-z0-9+.-]*://{_SLASHED}@")
_CHAINED = re.compile(r"::[A-Za-z][A-Za-z0-9+.-]*:/")
_ADDRESS = re.compile(r"\[[0-9A-Fa-f:.]*\]")
_LOCAL = ("file", "local")
MARK = "delta+"
"""Before a URL or path: it is that of a table. A scheme would take the place of the store's own."""
_LOOPBACK = re.compile(r"(localhost|127(\.\d{1,3}){3}|\[::1\])([:/?#]|$)", re.IGNORECASE)


def is_marked(url: str) -> bool:
    """Whether ``MARK`` is before a URL or path."""
    return url[: len(MARK)].lower() == MARK


def location(url: str) -> str:
    """A URL or path without ``MARK`` before it."""
    return url[len(MARK) :] if is_marked(url) else url


def protocol(url: str) -> str:
    """``"s3"`` for ``s3://bucket/key``; ``""`` for local paths."""
    match = _SCHEME.match(location(url))
    scheme = match[1].lower() if match else ""
    return "" if scheme in _LOCAL else scheme


def local_name(url: str) -> str:
    """A local name without a ``file://`` before it."""
    url = location(url)
    match = _SCHEME.match(url)
    return url[match.end() :] if match else url


def absolute(url: str) -> str:
    """A local name as an absolute path (without unquoting); any other URL unchanged.

    >>> absolute("delta+/a/./b"), absolute("delta+s3://b/k")
    ('delta+/a/b', 'delta+s3://b/k')
    """
    if protocol(url):
        return url
    if is_marked(url):
        return MARK + absolute(location(url))
    path = os.path.join(os.getcwd(), local_name(url))
    if ".." not in to_slashes(path).split("/"):
        return to_slashes(os.path.normpath(path))
    # After a symbolic link ".." is not the textual parent: resolve it in the file system.
    parent, name = os.path.split(path.rstrip("/"))
    if name == "..":
        return to_slashes(os.path.realpath(path))
    return to_slashes(os.path.join(os.path.realpath(parent), name))


def is_inside(url: str, folder: str) -> bool:
    """Whether a URL is a folder or below it; local symbolic links are followed."""
    place, outer = (
        without_secrets(location(one)) if protocol(one) else os.path.realpath(local_name(one))
        for one in (url, folder)
    )
    return f"{place.rstrip('/')}/".startswith(f"{outer.rstrip('/')}/")


def typed(url: str) -> str:
    """A file or URL to type in a shell: relative if it is below the current directory.

    A name that does not print on one line is quoted for the shell.
    """
    here = to_slashes(os.path.join(os.getcwd(), ""))
    name = url.removeprefix(here) if not protocol(url) else without_secrets(url)
    if name.isprintable():
        return shlex.quote(name)
    return "$'" + printable(name.replace("\\", "\\\\").replace("'", "\\'")) + "'"


def is_unencrypted(url: str) -> bool:
    """Whether connections to a URL or address of another machine are unencrypted.

    >>> [is_unencrypted(url) for url in ("http://10.0.0.5:90", "https://h/x", "tcp://127.0.0.1:87")]
    [True, False, False]
    """
    url = location(url)
    match = _SCHEME.match(url)
    if not match or match[1].lower() not in ("http", "tcp", "ws"):
        return False
    host = without_userinfo(url)[match.end() :]
    return not _LOOPBACK.match(host)


def without_userinfo(url: str) -> str:
    """The URL without ``user:password@``; a local path is unchanged."""
    if is_marked(url):
        return MARK + without_userinfo(location(url))
    if not protocol(url) or _CONTAINER.match(url):
        return url
    return _USERINFO.sub(r"\1", url)


def without_secrets(url: str) -> str:
    """The URL as it may be saved: without userinfo, and for http(s) without query and fragment.

    In other schemes ``?`` and ``#`` may be part of a name.
    """
    return redact(url) if protocol(url) in ("http", "https") else without_userinfo(url)


def userinfo(url: str) -> str:
    """``user:password`` of a URL, else ``""``."""
    match = _USERINFO.match(url)
    return match[2] if match and without_userinfo(url) != url else ""


def refuse_ambiguous(url: str) -> None:
    """Raise UsageError for a chained URL, which would be a local name, and for credentials that
    no program finds the end of."""
    if _CHAINED.search(url):
        raise UsageError(f"{shown(url)}: chained URLs (a::b) are not supported: pass the inner URL")
    if _BAD_CREDENTIALS.match(location(url)):
        raise UsageError(
            f"{shown(url)} was given with credentials that have a '/': pass them with "
            "--storage-options or --checkpoint-storage-options"
        )


def refuse_output_url(url: str) -> None:
    """Raises what ``refuse_ambiguous`` does, and UsageError for any other ``::`` in an output's
    name."""
    refuse_ambiguous(url)
    if "::" in _ADDRESS.sub("", url):
        raise UsageError(f"{shown(url)}: the name of an output must not have '::': choose another")


def redact(url: str) -> str:
    """The URL without userinfo, query and fragment; a local path is unchanged."""
    if not protocol(url):
        return url
    return re.split(r"[?#]", without_userinfo(url), maxsplit=1)[0]


def printable(text: str) -> str:
    """The text with line ends, terminal codes and direction marks escaped."""
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


def without_credentials(text: str) -> str:
    """The text without ``user:password@`` in any URL, also one inside another one.

    >>> without_credentials("no zip://a::s3://me:a/b@c/d, abfss://box@account/x or http://h:80/@")
    'no zip://a::s3://c/d, abfss://box@account/x or http://h:80/@'
    """
    if "@" not in text:
        return text

    def replaced(match: re.Match[str]) -> str:
        is_container = _CONTAINER.match(location(match.string[match.start() :]))
        return match[0] if is_container else match[1]

    return _CREDENTIALS.sub(replaced, text)


def harmless(text: str) -> str:
    """A message without credentials; unprintable characters except line ends are escaped."""
    return "\n".join(map(printable, without_credentials(text).split("\n")))


def shown(url: str) -> str:
    """A file or URL for messages: redacted and printable."""
    return printable(redact(without_credentials(url)))


def scrub(text: str) -> str:
    """Another library's message, printable and with every URL redacted."""
    return printable(_URL_IN_TEXT.sub(lambda match: redact(match[0]), without_credentials(text)))
