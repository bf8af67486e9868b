"""The name of a run that gets no checkpoint URL."""

from __future__ import annotations

import re
from collections.abc import Sequence

from streamomd.core.urls import local_name, redact

SUFFIXES = re.compile(r"(\.(parquet|parq|pq|arrow|feather|ipc))+$", re.IGNORECASE)
MAX_LENGTH = 60
_PATTERN = re.compile(r"[*?\[\]{}]")
_UNSAFE = re.compile(r"[^\w.=-]+")


def run_name(job: str, shards: Sequence[str], time: str) -> str:
    """The job file's name, that of the data, and the time. job: "" if there is no file.

    >>> run_name("", ["/data/bank/*.parquet"], "20260102-030405")
    'bank-20260102-030405'
    >>> run_name("nightly", ["s3://bucket/clicks.parquet"], "20260102-030405")
    'nightly-clicks-20260102-030405'
    """
    names = dict.fromkeys(name for name in (job, data_name(shards)) if name)
    return "-".join([*names, time]) if names else f"run-{time}"


def data_name(shards: Sequence[str]) -> str:
    """What the first shard's URL calls the data: its last part that is no pattern, "" if none.

    >>> data_name(["a/train.parquet", "a/test.parquet"]), data_name(["s3://b/year=2026/x y/"])
    ('train', 'x_y')
    """
    for part in reversed(local_name(redact(shards[0])).split("/")) if shards else ():
        name = _UNSAFE.sub("_", SUFFIXES.sub("", part)).strip("._")
        if name and not _PATTERN.search(part):
            return name[:MAX_LENGTH]
    return ""
