"""Write one output file atomically, on a disk or in a store: complete or not at all."""

from __future__ import annotations

import io
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

from streamomd.core.errors import OutputExistsError
from streamomd.core.urls import absolute, local_name, protocol, shown
from streamomd.shards.filesystem import connect_output, output_errors


class OutputFile(io.RawIOBase):
    """An open file of a store, to write to: any error of the store's client is a StorageError that
    names the URL, and errors of what is written are not."""

    def __init__(self, file: Any, url: str) -> None:
        self._file, self._url = file, url

    def writable(self) -> bool:
        """Whether the file can be written: always."""
        return True

    def write(self, data: Any) -> int:
        """Write bytes."""
        with output_errors(self._url):
            return int(self._file.write(data))

    def tell(self) -> int:
        """The bytes that were written."""
        return int(self._file.tell())

    def close(self) -> None:
        """Close the file; a store may receive all of it only now."""
        if not self.closed:
            super().close()
            with output_errors(self._url):
                self._file.close()


@contextmanager
def open_atomic(
    to: str, *, overwrite: bool, storage_options: Mapping[str, Any] | None = None
) -> Iterator[OutputFile]:
    """A file to write bytes to. Raises OutputExistsError and StorageError naming the URL."""
    url = absolute(to)
    fs = connect_output(url, storage_options)
    path = str(fs._strip_protocol(url)) if protocol(url) else local_name(url)
    temporary = f"{path}.tmp-{uuid.uuid4().hex}"
    try:
        with output_errors(url):
            if fs.exists(path) and not overwrite:
                raise OutputExistsError(f"{shown(url)} already exists; --overwrite replaces it")
            fs.makedirs(path.rpartition("/")[0], exist_ok=True)
            file = OutputFile(fs.open(temporary, "wb"), url)
        try:
            yield file
        except BaseException:
            with suppress(Exception):  # the error before it is the one to report
                file.close()
            raise
        file.close()
        with output_errors(url):
            fs.mv(temporary, path)
    finally:
        with suppress(Exception):  # a store that failed may do so again
            if fs.exists(temporary):
                fs.rm(temporary)
