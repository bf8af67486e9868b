"""Which errors are the machine's or a store's, reported as one line, and which are ours.

A traceback would only show where in the program the machine failed.
"""

from __future__ import annotations

import errno
import re
from types import NoneType

from streamomd.core.platform_calls import address_space_limit
from streamomd.core.urls import scrub

PROGRAMMING = (TypeError, AttributeError, NameError)
"""Errors of the program, or of a library whose version does not fit."""
_VALUES = (NoneType, bool, int, float, str, bytes, list, tuple, dict)
_CALL = re.compile(
    r"unexpected keyword|required (positional|keyword-only) argument|takes .*argument|"
    r"multiple values for"
)
"""What Python says of a call that does not fit a function."""


def is_mistake(error: BaseException, parser: str = "") -> bool:
    """Whether it is a programming error, among errors that a library raises of the data it parses.

    parser: the package that may raise any type of error of data; empty: any package but this one.
    A call that does not fit, or an attribute that no module or class has, is a mistake there, too.
    """
    if not isinstance(error, PROGRAMMING):
        return False
    at = error.__traceback__
    while at is not None and at.tb_next is not None:
        at = at.tb_next
    package = str(at.tb_frame.f_globals.get("__name__", "")).split(".")[0] if at else ""
    if package == __package__.split(".")[0] or (parser and package != parser):
        return True
    if isinstance(error, AttributeError):
        return error.name is None or not isinstance(error.obj, _VALUES)
    return isinstance(error, NameError) or _CALL.search(str(error)) is not None


MACHINE = (OSError, MemoryError, ImportError)
NO_MEMORY = ("cannot allocate memory", "failed to map segment", "out of memory", "can't start new")
"""Messages of loaders, threads and allocators; an ImportError has no errno."""
ADVICE = {
    errno.ENOSPC: "free space there, or write elsewhere",
    errno.EDQUOT: "free space there, or write elsewhere",
    errno.EMFILE: "raise the limit of open files (ulimit -n)",
    errno.ENFILE: "raise the limit of open files (ulimit -n)",
    errno.EIO: "the device failed: copy what is readable and check it",
    errno.EROFS: "write elsewhere",
    errno.EACCES: "check its permissions",
}

_CREDENTIALS = re.compile(r"""(?<=["'])[^"'\s/@]*:[^"'\s/@]*@""")
"""user:password@ at the start of what is quoted."""
NO_CREDENTIALS = ("Credential", "Authentication")
"""In the names of the errors of S3, Google and Azure clients that found none."""


def store_error(error: BaseException) -> str:
    """An error of a store's client without secrets, and what to do about missing credentials.

    >>> store_error(TimeoutError("s3://me:secret@bucket/x"))
    'TimeoutError: s3://bucket/x'
    >>> store_error(ValueError('Invalid bucket name "me:secret@bucket"'))
    'ValueError: Invalid bucket name "bucket"'
    """
    name = type(error).__name__
    advice = (
        "; set the store's environment variables or profile, or pass --storage-options FILE for "
        "shards, --checkpoint-storage-options FILE for a checkpoint (docs/cloud.md)"
        if any(word in name for word in NO_CREDENTIALS)
        else ""
    )
    # Clients take what comes before the @ for a part of the bucket's name.
    text = _CREDENTIALS.sub("", scrub(str(error)))
    return f"{name}: {text}{advice}"


def is_of_the_machine(error: BaseException) -> bool:
    """Whether the machine caused the error, so that one line is enough."""
    return isinstance(error, MACHINE) or _lack_of_memory(error) is not None


def one_line(error: BaseException) -> str:
    """The error, its location, and what to do."""
    if lacking := _lack_of_memory(error):
        return f"not enough memory{_allowed()}: {_first(lacking)}"
    if isinstance(error, OSError) and error.errno and error.strerror:
        advice = ADVICE.get(error.errno, "")
        where = f"{error.filename!s}: " if error.filename is not None else ""
        return f"{where}{error.strerror}{f'; {advice}' if advice else ''}"
    return f"{type(error).__name__}: {_first(error)}"


def _lack_of_memory(error: BaseException | None) -> BaseException | None:
    """The error, or its cause, that reports a lack of memory."""
    while error is not None:
        short = isinstance(error, MemoryError) or getattr(error, "errno", 0) == errno.ENOMEM
        if short or any(words in str(error).lower() for words in NO_MEMORY):
            return error
        error = error.__cause__ or error.__context__
    return None


def _allowed() -> str:
    """The limit of address space, if there is one."""
    limit = address_space_limit()
    if limit is None:
        return ""
    return f" (ulimit -v allows {limit / 2**20:,.0f} MiB; streamomd maps about 2,000)"


def _first(error: BaseException) -> str:
    return next(iter(str(error).strip().splitlines()), type(error).__name__)
