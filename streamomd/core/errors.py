"""Every error streamomd raises on purpose: one base, each child also a builtin.

A message says what was expected, what came, where, and what to do. ``exit_code`` is what the
command line returns for it (docs/job-file.md, "Exit codes").
"""

from __future__ import annotations

import functools
from typing import Any


class StreamomdError(Exception):
    """Base of all errors raised on purpose."""

    exit_code = 1


class UsageError(StreamomdError, ValueError):
    """A job, flag or argument that cannot be meant."""

    exit_code = 2


class UnsupportedError(UsageError, NotImplementedError):
    """A combination that is known by name but not offered."""


class MissingExtraError(UsageError, ImportError):
    """An optional package that is not installed, or too old."""


class SweepError(UsageError):
    """The checkpoint of a sweep, where that of one model is wanted."""


class TooLargeError(MemoryError, StreamomdError):
    """A model that does not fit in memory."""

    # MemoryError first: it has a __new__ of its own, which Dask's unpickling asks for.

    exit_code = 2


class InputNotFoundError(StreamomdError, FileNotFoundError):
    """A file, directory, glob or URL that holds nothing to read."""

    exit_code = 2


class DataError(StreamomdError, ValueError):
    """A shard or text file that cannot be read as it is."""

    exit_code = 2


class SchemaError(DataError):
    """A column that is missing, twice there, or of another type than expected."""


class ChangedDataError(DataError):
    """A shard that changed after it was found: rewritten, truncated, removed or other bytes."""

    exit_code = 3


class BadRowError(DataError):
    """A row that cannot be learned from; ``reason`` is the short word it is counted under."""

    def __init__(self, message: str, *, reason: str) -> None:
        super().__init__(message)
        self.reason = reason

    def __reduce__(self) -> Any:
        """For other processes: pickle alone would call __init__ without the reason."""
        return functools.partial(BadRowError, reason=self.reason), (str(self),)


class TooManyBadRowsError(DataError):
    """More bad rows than the job allows to skip; the last commit stands."""


class OutputExistsError(StreamomdError, FileExistsError):
    """Something is already there and was not to be overwritten."""

    exit_code = 2


class StorageError(StreamomdError, OSError):
    """Storage that cannot be reached or does not do what is needed."""


class ClusterError(StreamomdError, ConnectionError):
    """A cluster that cannot be reached, has no workers, or loses them again and again."""


class SchedulerLostError(ClusterError):
    """A scheduler that no longer answers; the last commit is intact."""


class CorruptionError(StreamomdError, ValueError):
    """Bytes that are proven not to be the bytes that were committed."""

    exit_code = 4


class ResumeRefusedError(StreamomdError, ValueError):
    """The data or the job is not the one the checkpoint was made with."""

    exit_code = 3


class NoCommitError(StreamomdError, LookupError):
    """No commit that can be used."""

    exit_code = 4


class ConcurrentWriterError(StreamomdError, RuntimeError):
    """Another writer has taken this checkpoint over."""

    exit_code = 5


class DivergedError(StreamomdError, ArithmeticError):
    """A model with numbers that are not finite: learning stops, and no such state is committed."""

    exit_code = 6


class StoppedError(StreamomdError, InterruptedError):
    """A signal asked the run to stop; its last commit stands."""

    def __init__(self, message: str, *, signal: int) -> None:
        super().__init__(message)
        self.exit_code = 128 + signal

    def __reduce__(self) -> Any:
        """As BadRowError's."""
        return functools.partial(StoppedError, signal=self.exit_code - 128), (str(self),)
