"""Write one output file atomically, on a disk or in a store: complete or not at all."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from streamomd.core.errors import OutputExistsError, StorageError
from streamomd.core.urls import absolute, local_name, protocol, scrub, shown
from streamomd.shards.filesystem import connect_output


@contextmanager
def open_atomic(
    to: str, *, overwrite: bool, storage_options: Mapping[str, Any] | None = None
) -> Iterator[Any]:
    """A file to write bytes to. Raises OutputExistsError and StorageError naming the URL."""
    url = absolute(to)
    fs = connect_output(url, storage_options)
    path = str(fs._strip_protocol(url)) if protocol(url) else local_name(url)
    temporary = f"{path}.tmp-{uuid.uuid4().hex}"
    try:
        if fs.exists(path) and not overwrite:
            raise OutputExistsError(f"{shown(url)} already exists; --overwrite replaces it")
        fs.makedirs(path.rpartition("/")[0], exist_ok=True)
        try:
            with fs.open(temporary, "wb") as file:
                yield file
            fs.mv(temporary, path)
        finally:
            if fs.exists(temporary):
                fs.rm(temporary)
    except OutputExistsError:
        raise
    except OSError as error:
        # Not chained: a store's text may hold credentials.
        raise StorageError(f"{shown(url)} cannot be written: {scrub(str(error))}") from None
