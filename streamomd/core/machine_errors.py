"""Errors of the machine, not of streamomd or its input, as one line: disk, memory, descriptors.

A traceback would show where in the program the machine failed, which does not help to free a disk.
"""

from __future__ import annotations

import errno

MACHINE = (OSError, MemoryError, ImportError)
NO_MEMORY = ("cannot allocate memory", "failed to map segment", "out of memory", "can't start new")
"""What loaders, threads and allocators say; an ImportError has no errno."""
ADVICE = {
    errno.ENOSPC: "free space there, or write elsewhere",
    errno.EDQUOT: "free space there, or write elsewhere",
    errno.EMFILE: "raise the limit of open files (ulimit -n)",
    errno.ENFILE: "raise the limit of open files (ulimit -n)",
    errno.EIO: "the device failed: copy what is readable and check it",
    errno.EROFS: "write elsewhere",
    errno.EACCES: "check its permissions",
}


def is_of_the_machine(error: BaseException) -> bool:
    """Whether the machine is to blame, so that one line is enough."""
    return isinstance(error, MACHINE) or _lack_of_memory(error) is not None


def one_line(error: BaseException) -> str:
    """What failed, where, and what to do."""
    if lacking := _lack_of_memory(error):
        return f"not enough memory{_allowed()}: {_first(lacking)}"
    if isinstance(error, OSError) and error.errno and error.strerror:
        advice = ADVICE.get(error.errno, "")
        where = f"{error.filename!s}: " if error.filename is not None else ""
        return f"{where}{error.strerror}{f'; {advice}' if advice else ''}"
    return f"{type(error).__name__}: {_first(error)}"


def _lack_of_memory(error: BaseException | None) -> BaseException | None:
    """The error, or the one that caused it, that says that memory is short."""
    while error is not None:
        short = isinstance(error, MemoryError) or getattr(error, "errno", 0) == errno.ENOMEM
        if short or any(words in str(error).lower() for words in NO_MEMORY):
            return error
        error = error.__cause__ or error.__context__
    return None


def _allowed() -> str:
    """The limit of address space, if there is one."""
    try:
        import resource
    except ImportError:  # on Windows; or where not even that is left
        return ""
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    if limit == resource.RLIM_INFINITY:
        return ""
    return f" (ulimit -v allows {limit / 2**20:,.0f} MiB; streamomd maps about 2,000)"


def _first(error: BaseException) -> str:
    return next(iter(str(error).strip().splitlines()), type(error).__name__)
