"""Jobs whose rows are a stream in Python: written to a folder, which the job then names."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from streamomd.shards.memory.row_streams import RowFolder, is_row_stream, one_stream
from streamomd.training.progress import note


@contextmanager
def written_rows(
    job: Any, flags: Mapping[str, Any]
) -> Iterator[tuple[Any, dict[str, Any], Callable[[str], None]]]:
    """The job and flags with a folder in the place of a stream of rows, if there is one; and what
    to call with the checkpoint's URL when the run has begun: then the folder stays, unless there is
    no checkpoint to resume from."""
    flags = dict(flags)
    tables = dict(job) if isinstance(job, Mapping) else {}
    data = dict(tables.get("data") or {})
    stream = one_stream((flags.get("shards"), job, data.get("shards")))
    if stream is None:
        yield job, flags, lambda url: None
        return
    folder = RowFolder(stream)
    note(folder.note)
    if is_row_stream(flags.get("shards")):
        flags["shards"] = str(folder.path)
    elif stream is job:
        job = str(folder.path)
    else:
        job = {**tables, "data": {**data, "shards": str(folder.path)}}
    try:
        yield job, flags, lambda url: None if url == "none" else folder.retain()
    finally:
        folder.remove()
