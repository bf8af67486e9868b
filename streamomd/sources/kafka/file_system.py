"""Ranges of a topic's offsets as files, which are read from the brokers when they are opened.

A range is an Arrow file in the user's cache folder. Its footer has a digest of the messages, so a
range that is read from the brokers again is known to be the same, or not.
"""

from __future__ import annotations

import hashlib
import json
import threading
import uuid
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import fsspec
import pyarrow as pa

from streamomd.core.errors import StorageError, StreamomdError
from streamomd.core.platform_calls import replace
from streamomd.core.run_events import phase
from streamomd.core.urls import shown
from streamomd.shards.cache.folder import VARIABLE, cache_root, refuse_shared
from streamomd.sources.kafka.broker import Broker
from streamomd.sources.kafka.messages import message_rows
from streamomd.sources.kafka.offset_ranges import KAFKA, Marks, Range, Topic, parse_source

DIGEST = b"streamomd.kafka"
TYPES = "types"
"""Storage option that this program adds: the types of columns of JSON messages."""
GROUP_BYTES = 16 << 20
_TAG_LETTERS = 32
_ONE_AT_A_TIME = threading.Lock()
"""The messages of a range are in memory."""


class KafkaFileSystem(fsspec.AbstractFileSystem):  # type: ignore[misc]
    """Files ``servers/topic/range``. Options: keys of librdkafka, and types of columns."""

    protocol = KAFKA

    def __init__(self, **options: Any) -> None:
        super().__init__()
        self._types: dict[str, str] = dict(options.pop(TYPES, {}))
        self._options = options
        self._outdated: set[Path] = set()

    def marks(self, topic: Topic) -> dict[int, Marks]:
        """The offsets that each partition has."""
        return Broker(topic, self._options).marks()

    def topic_id(self, topic: Topic) -> int | None:
        """A number that the topic got when it was made, if the brokers report it."""
        return Broker(topic, self._options).topic_id()

    def forget(self, topic: Topic, offsets: Range) -> None:
        """Read a range from the brokers when it is opened next. A topic of the same name may have
        been deleted since it was last read."""
        # Not removed: another run may read it.
        self._outdated.add(self._file(topic, offsets))

    def info(self, path: str, **more: Any) -> dict[str, Any]:
        """Size and version of a range."""
        topic, offsets = parse_source(self._strip_protocol(path))
        if offsets is None:
            return {"name": path, "size": 0, "type": "directory"}
        file = self._read(topic, offsets)
        try:
            digest = _digest(file)
        except (pa.ArrowException, OSError, KeyError):  # another program damaged it
            self.forget(topic, offsets)
            file = self._read(topic, offsets)
            digest = _digest(file)
        size = file.stat().st_size
        return {"name": path, "size": size, "type": "file", "ETag": digest[:_TAG_LETTERS]}

    def cat_file(
        self, path: str, start: int | None = None, end: int | None = None, **more: Any
    ) -> bytes:
        """Bytes of a range's file."""
        topic, offsets = parse_source(self._strip_protocol(path))
        if offsets is None:
            raise IsADirectoryError(path)
        with self._read(topic, offsets).open("rb") as file:
            file.seek(start or 0)
            return file.read(-1 if end is None else end - (start or 0))

    def _file(self, topic: Topic, offsets: Range) -> Path:
        kind = hashlib.sha256(json.dumps(self._types, sort_keys=True).encode()).hexdigest()[:8]
        return _folder(topic) / f"{offsets.name}-{kind}.arrow"

    def _read(self, topic: Topic, offsets: Range) -> Path:
        """The file of a range in the cache."""
        file = self._file(topic, offsets)
        refuse_shared(file.parent)
        with _ONE_AT_A_TIME:
            if file in self._outdated or not file.exists():
                where = f"{shown(topic.url)}, partition {offsets.partition}"
                with phase(f"reading {where}, offsets {offsets.first} to {offsets.last}"):
                    self._write(topic, offsets, file)
                self._outdated.discard(file)
        return file

    def _write(self, topic: Topic, offsets: Range, file: Path) -> None:
        """Copies the messages of a range of offsets to an Arrow file in the cache folder."""
        where = f"{shown(topic.url)}, partition {offsets.partition}"
        messages = Broker(topic, self._options).messages(offsets)
        rows = message_rows(messages, self._types, where)
        table = rows.table.replace_schema_metadata({DIGEST: rows.sha256.encode()})
        step = max(1, table.num_rows * GROUP_BYTES // max(1, table.nbytes))
        scratch = file.with_name(f".{uuid.uuid4().hex}")
        try:
            for own in (cache_root(), file.parent.parent, file.parent):
                own.mkdir(mode=0o700, parents=True, exist_ok=True)
            refuse_shared(file.parent)
            with pa.OSFile(str(scratch), "wb") as to, pa.ipc.new_file(to, table.schema) as writer:
                writer.write_table(table, max_chunksize=step)
            note = {"offsets": runs_of(rows.offsets), "bad": rows.bad}
            file.with_suffix(".json").write_text(json.dumps(note), "utf-8")
            replace(scratch, file)
        except OSError as error:
            if isinstance(error, StreamomdError):
                raise
            raise StorageError(
                f"the folder of messages, {file.parent}, cannot be written: {error.strerror}; "
                f"set {VARIABLE}"
            ) from None
        finally:
            scratch.unlink(missing_ok=True)


def place_in_topic(url: str, row: int) -> str:
    """The partition and offset of a row of a range, and what is wrong with its message; "" if that
    is not known."""
    topic, offsets = parse_source(url)
    if offsets is None:
        return ""
    for file in _folder(topic).glob(f"{offsets.name}-*.json"):
        with suppress(OSError, ValueError, TypeError, KeyError, IndexError):
            note = json.loads(file.read_text("utf-8"))
            number = row + [ahead for first, ahead in note["offsets"] if first <= row][-1]
            why = note["bad"].get(str(row), "")
            where = f"{shown(topic.url)}, partition {offsets.partition}, offset {number}"
            return f"{where} ({why})" if why else where
    return ""


def runs_of(offsets: Sequence[int]) -> list[tuple[int, int]]:
    """Rows from which on offsets follow each other, and how far they are ahead of the rows.

    >>> runs_of([7, 8, 9, 15, 16])
    [(0, 7), (3, 12)]
    """
    ahead = [offset - row for row, offset in enumerate(offsets)]
    return [(row, one) for row, one in enumerate(ahead) if not row or one != ahead[row - 1]]


def _digest(file: Path) -> str:
    with pa.OSFile(str(file)) as opened, pa.ipc.open_file(opened) as found:
        return str((found.schema.metadata or {})[DIGEST].decode())


def _folder(topic: Topic) -> Path:
    return cache_root() / "kafka" / hashlib.sha256(topic.url.encode()).hexdigest()[:24]
