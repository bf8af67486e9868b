"""All errors of streamomd: one base class; each subclass is also a builtin error.

A message says what is wrong, where, what was expected and what to do: ``message`` has it as data.
``exit_code`` is the command's exit code (docs/job-file.md, "Exit codes").
"""

from __future__ import annotations

import functools
import re
from typing import Any

from streamomd.core.message import Message


class StreamomdError(Exception):
    """Base of all errors raised on purpose."""

    exit_code = 1

    @property
    def message(self) -> Message:
        """The error as data. Of one raised with a text alone the class is the code.

        >>> NoCommitError("nothing in {run}").message.fields()
        {'code': 'no_commit'}
        """
        said = self.args[0] if self.args else ""
        if isinstance(said, Message):
            return said
        words = re.findall("[A-Z][a-z]*", type(self).__name__.removesuffix("Error"))
        form = str(said).replace("{", "{{").replace("}", "}}")
        return Message("_".join(words).lower(), form)


class UsageError(StreamomdError, ValueError):
    """An invalid job, flag or argument."""

    exit_code = 2


class UnsupportedError(UsageError, NotImplementedError):
    """A known combination that is not supported."""


class MissingExtraError(UsageError, ImportError):
    """An optional package that is not installed, or too old."""


class SweepError(UsageError):
    """The checkpoint of a sweep where that of one model is expected."""


class TooLargeError(MemoryError, StreamomdError):
    """What does not fit in memory: a model, the rows of a range of messages."""

    # MemoryError first: Dask's unpickling needs its own __new__.

    exit_code = 2


class InputNotFoundError(StreamomdError, FileNotFoundError):
    """A file, directory, glob or URL without data to read."""

    exit_code = 2


class DataError(StreamomdError, ValueError):
    """A shard or text file that cannot be read."""

    exit_code = 2


class IncompleteShardError(DataError):
    """A shard without its end: of 0 bytes, truncated, or still being written."""


class SchemaError(DataError):
    """A column that is missing, duplicated, or of an unexpected type."""


class ChangedDataError(DataError):
    """A shard that changed after it was found: rewritten, truncated, removed or other bytes."""

    exit_code = 3


class BadRowError(DataError):
    """A row that cannot be learned; ``reason`` is the word it is counted under."""

    @property
    def reason(self) -> str:
        """The reason, one of ``core.batch.REASONS``."""
        return self.message.code


class TooManyBadRowsError(DataError):
    """More bad rows than the maximum; the last commit is intact."""


class OutputExistsError(StreamomdError, FileExistsError):
    """The output already exists and may not be overwritten."""

    exit_code = 2


class StorageError(StreamomdError, OSError):
    """Storage that cannot be reached or lacks a required feature."""


class ClusterError(StreamomdError, ConnectionError):
    """A cluster that cannot be reached, has no workers, or repeatedly loses them."""


class SchedulerLostError(ClusterError):
    """A scheduler that no longer answers; the last commit is intact."""


class CorruptionError(StreamomdError, ValueError):
    """Data that differ from what was committed."""

    exit_code = 4


class ResumeRefusedError(StreamomdError, ValueError):
    """The data or the job differs from that of the checkpoint."""

    exit_code = 3


class NoCommitError(StreamomdError, LookupError):
    """No usable commit."""

    exit_code = 4


class ConcurrentWriterError(StreamomdError, RuntimeError):
    """Another writer has taken over this checkpoint."""

    exit_code = 5


class DivergedError(StreamomdError, ArithmeticError):
    """A model with numbers that are not finite: training stops, and this state is not committed."""

    exit_code = 6


class AlertError(StreamomdError, RuntimeError):
    """An alert, where the command was to fail at one; the last commit is intact."""

    exit_code = 7


class StoppedError(StreamomdError, InterruptedError):
    """A signal stopped the run; its last commit is intact."""

    def __init__(self, message: str, *, signal: int) -> None:
        super().__init__(message)
        self.exit_code = 128 + signal

    def __reduce__(self) -> Any:
        """For other processes: pickle alone would call __init__ without the signal."""
        return functools.partial(StoppedError, signal=self.exit_code - 128), (str(self),)


def refuse_rows_in_memory(given: Any) -> None:
    """Raises UsageError for a frame or an array, or several, where names of files are expected."""
    several = isinstance(given, list | tuple)
    for one in given if several else (given,):
        if hasattr(one, "shape") or (several and isinstance(one, dict)):
            raise UsageError(
                f"expected names of files, got rows in memory ({type(one).__name__}): write them "
                "to Parquet, or use an estimator (OMDClassifier, OMDRegressor, "
                "Model.to_estimator); train also takes one frame"
            )
