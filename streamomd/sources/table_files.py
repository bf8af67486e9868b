"""Tables of rows that a program makes, as Arrow files of a file system."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from threading import Lock
from typing import Any

import fsspec

MOST_HELD = 2
"""Files whose bytes are held: one is read, and the next is read ahead."""
TAG_LETTERS = 32


class TableFiles(fsspec.AbstractFileSystem):  # type: ignore[misc]
    """A file system each of whose files is a table. A subclass has ``protocol``, its scheme, and
    ``read_table``. Options are the storage options; an instance is pickled by them.

    A file is made when its footer is read and when its rows are, and its ETag is a digest of its
    bytes, so that a file that is made of other rows is noticed.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._held: OrderedDict[str, bytes] = OrderedDict()
        self._lock = Lock()

    def read_table(self, path: str) -> Any:
        """The rows of a file, a pyarrow Table; the same at each call.

        Raises FileNotFoundError for a file that does not exist.
        """
        raise NotImplementedError

    def invalidate_cache(self, path: str | None = None) -> None:
        """Make files again."""
        with self._lock:
            self._held.clear()

    def info(self, path: str, **more: Any) -> dict[str, Any]:
        """Size and ETag of a file."""
        data = self._bytes(path)
        # Of the bytes, since a table in memory has no time at which it was written.
        tag = hashlib.sha256(data).hexdigest()[:TAG_LETTERS]
        return {"name": path, "size": len(data), "type": "file", "ETag": tag}

    def cat_file(
        self, path: str, start: int | None = None, end: int | None = None, **more: Any
    ) -> bytes:
        """Bytes of a file."""
        return self._bytes(path)[start:end]

    def _bytes(self, path: str) -> bytes:
        import pyarrow as pa

        path = self._strip_protocol(path)
        with self._lock:
            if path not in self._held:
                table, to = self.read_table(path), pa.BufferOutputStream()
                with pa.ipc.new_file(to, table.schema) as writer:
                    writer.write_table(table)
                self._held[path] = to.getvalue().to_pybytes()
                # The oldest: rows are read in order, so it is not read again in this epoch.
                if len(self._held) > MOST_HELD:
                    self._held.popitem(last=False)
            return self._held[path]
