"""Text files, plain or compressed, one after the other, as bytes and as blocks of whole lines."""

from __future__ import annotations

import bz2
import codecs
import gzip
import io
import lzma
import os
import sys
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO, Protocol, Self, cast

import pyarrow as pa

from streamomd.core.errors import DataError, StorageError, UsageError
from streamomd.core.run_events import count_request
from streamomd.core.urls import absolute, printable, protocol, shown
from streamomd.core.wording import workbook
from streamomd.shards.filesystem import FileSystem, connect, is_local, stat_entry, store_errors

STANDARD_INPUT = "-"
BLOCK = 2 << 20
LONGEST_LINE = 64 << 20
_READ = {True: 1 << 20, False: 8 << 20}
_BOM = b"\xef\xbb\xbf"
_OPENERS: dict[bytes, Callable[[Any], Any]] = {
    b"\x1f\x8b": lambda raw: gzip.GzipFile(fileobj=raw, mode="rb"),
    b"BZh": bz2.BZ2File,
    b"\xfd7zXZ\x00": lzma.LZMAFile,
}
_REFUSED = {
    b"PK\x03\x04": "a zip archive: unpack it, and pass the files inside",
    b"\x28\xb5\x2f\xfd": "compressed with zstd: unpack it, or pack it as .gz, .bz2 or .xz",
    b"PAR1": "Parquet already: train on it as it is",
    b"ARROW1": "Arrow already: train on it as it is",
}
_UTF16 = (b"\xff\xfe", b"\xfe\xff")


@dataclass(frozen=True)
class Source:
    """One text file, by its exact name."""

    url: str
    path: str
    fs: FileSystem
    size: int

    @property
    def name(self) -> str:
        """Its name in messages."""
        return shown(self.url)

    def opened(self, encoding: str) -> Text:
        """Its unpacked bytes."""
        return Text(self, encoding)


class TextReader(Protocol):
    """Makes record batches of one text file after another."""

    schema: pa.Schema
    """The schema of every batch; csv knows it from the first one on."""
    size: int | None
    """Coordinates of the sparse pair so far; None where there is no such pair."""
    size_is_final: bool
    """Whether no row can change the size."""

    def batches(self, text: Text) -> Iterator[pa.RecordBatch]:
        """The rows of one file, in order."""


def locate(names: Sequence[str], options: Mapping[str, Any] | None) -> tuple[Source, ...]:
    """The files that ``names`` name exactly; options are for those that are not local.

    Raises `InputNotFoundError`, `UsageError` for names that are not files, `StorageError`.
    """
    if isinstance(names, str | os.PathLike):
        names = [os.fspath(names)]
    if not names:
        raise UsageError("no source: name at least one text file or URL")
    return tuple(_locate(os.fspath(name), options or {}) for name in names)


def _locate(name: str, options: Mapping[str, Any]) -> Source:
    if name == STANDARD_INPUT:
        return Source(name, name, connect("/", {}), 0)
    url = absolute(name)
    fs = connect(url, options if protocol(url) else {})
    path = str(fs._strip_protocol(url)) if protocol(url) else url
    entry = stat_entry(fs, path, url)
    if entry.kind != "file":
        raise UsageError(f"{shown(url)} is not a file: pass the text files themselves")
    return Source(url, path, fs, max(entry.size, 0))


class Text:
    """The unpacked bytes of a source; ``done`` of its (packed) bytes have been read."""

    def __init__(self, source: Source, encoding: str = "") -> None:
        """encoding: a name of Python's, unless a mark says UTF-8; "": UTF-8, or UTF-16 by mark."""
        self.name = source.name
        with store_errors(source.url):
            self._raw = _open(source)
        try:
            self._file, self._pending = self._unpacked(source.url), b""
            start = self.read(8)
            encoding = encoding or ("utf-16" if start[:2] in _UTF16 else "")
            if start.startswith(_BOM):  # which says more than an option for all files
                encoding = ""
            if encoding:
                self._file = _Recoded(start, self._file, encoding, self.name)
                start = self.read(8)
            self._refuse(start)
            self._pending = start.removeprefix(_BOM)
        except BaseException:
            self._raw.close()
            raise

    def _unpacked(self, url: str) -> Any:
        with store_errors(url):
            start = self._raw.read(8)
            self._raw.seek(0)
        self._refuse(start)
        # By its first bytes, not by its name, which may lack the suffix or have a wrong one.
        opener = next((_OPENERS[magic] for magic in _OPENERS if start.startswith(magic)), None)
        return opener(self._raw) if opener else self._raw

    @property
    def done(self) -> int:
        """Bytes of the source, as it is stored, that were read so far."""
        return int(self._raw.tell())

    def read(self, size: int) -> bytes:
        """The next ``size`` bytes; fewer only at the end. DataError if the packing is damaged."""
        parts, wanted = [self._pending[:size]], size - len(self._pending)
        self._pending = self._pending[size:]
        while wanted > 0 and (part := self._read(wanted)):
            parts.append(part)
            wanted -= len(part)
        return b"".join(parts)

    def _read(self, size: int) -> bytes:
        try:
            return bytes(self._file.read(size))
        except EOFError:
            raise DataError(
                f"{self.name} is truncated: its compressed stream has no end; copy it again"
            ) from None
        except (zlib.error, lzma.LZMAError) as error:
            raise self._damaged(error) from None
        except StorageError:
            raise
        except OSError as error:
            # The unpackers raise it without a number for bad bytes.
            if error.errno is None:
                raise self._damaged(error) from None
            raise StorageError(f"{self.name} cannot be read: {error.strerror}") from None

    def _damaged(self, error: Exception) -> DataError:
        return DataError(
            f"{self.name} is damaged and cannot be decompressed ({error}); copy it again"
        )

    def _refuse(self, start: bytes) -> None:
        for magic, what in _REFUSED.items():
            if start.startswith(magic):
                found = workbook(self.name) or what
                raise DataError(f"{self.name} is not plain text but {found}")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._raw.close()


class _Recoded:
    """The bytes of a file in another encoding, as UTF-8."""

    def __init__(self, start: bytes, file: Any, encoding: str, name: str) -> None:
        try:
            io.TextIOWrapper(io.BytesIO(), encoding)  # refuses codecs that are not of text
            self._decoder = codecs.getincrementaldecoder(encoding)()
        except LookupError:
            raise UsageError(
                f"encoding {encoding!r} is unknown; known are utf-8, latin-1, cp1252, utf-16 and "
                "Python's other names"
            ) from None
        self._start, self._file, self._encoding, self._name = start, file, encoding, name
        self._ready, self._ended = b"", False

    def read(self, size: int) -> bytes:
        """Up to ``size`` bytes; none at the end only."""
        while not self._ready and not self._ended:
            raw, self._start = self._start or self._file.read(max(size, 1)), b""
            self._ended = not raw
            try:
                self._ready = self._decoder.decode(raw, final=self._ended).encode()
            except UnicodeError as error:
                raise DataError(
                    f"{self._name} is not {self._encoding} text: {error}; pass another --encoding"
                ) from None
        part, self._ready = self._ready[:size], self._ready[size:]
        return part


def _open(source: Source) -> BinaryIO:
    if source.url == STANDARD_INPUT:
        return cast(BinaryIO, _StandardInput())
    if is_local(source.fs):
        return open(source.path, "rb", buffering=_READ[True])
    block = _READ[False]
    file = source.fs.open(source.path, "rb", block_size=block, cache_type="readahead")
    return cast(BinaryIO, io.BufferedReader(_RemoteFile(file, source.url), block))


class _StandardInput:
    """Standard input, of which the first bytes can be read again."""

    def __init__(self) -> None:
        self._done, self._first, self._again = 0, b"", b""

    def read(self, size: int) -> bytes:
        """The next bytes, fewer only at the end."""
        data, self._again = self._again[:size], self._again[size:]
        if len(data) < size:
            data += sys.stdin.buffer.read(size - len(data))
        # Only the first bytes can be read again, which tell how it is packed.
        self._first = self._first if self._done else data
        self._done += len(data)
        return data

    def seek(self, offset: int) -> int:
        """Back to the first byte, after the first read alone."""
        self._again, self._done = self._first, offset
        return offset

    def tell(self) -> int:
        """Bytes read so far."""
        return self._done

    def close(self) -> None:
        """It is the process's own."""


class _RemoteFile(io.RawIOBase):
    """A file of a store whose errors are converted by `store_errors`."""

    def __init__(self, file: Any, url: str) -> None:
        super().__init__()
        self._file, self._url = file, url

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = 0) -> int:
        with store_errors(self._url):
            return int(self._file.seek(offset, whence))

    def tell(self) -> int:
        return int(self._file.tell())

    def readinto(self, buffer: Any) -> int:
        # Before the request: one that fails was made, too.
        count_request("read")
        with store_errors(self._url):
            data = self._file.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def close(self) -> None:
        if not self.closed:
            self._file.close()
        super().close()


def blocks(text: Text, size: int = BLOCK) -> Iterator[tuple[int, bytes]]:
    """Blocks of whole lines, each ending in a newline, with the number of the first line."""
    line, parts, held = 1, [b""], 0
    while data := text.read(size):
        cut = data.rfind(b"\n") + 1
        if cut:
            block = b"".join([*parts, data[:cut]])
            yield line, block
            line += block.count(b"\n")
            parts, held = [], 0
        # Joined with the next block: a line may be cut anywhere.
        parts.append(data[cut:])
        held += len(data) - cut
        if held > LONGEST_LINE:
            raise DataError(
                f"{text.name}, line {line} is longer than {LONGEST_LINE >> 20} MiB: "
                "is it text, with lines that end in a newline?"
            )
    if held:
        yield line, b"".join([*parts, b"\n"])


def line_of(text: Text, record: int, *, quotes: bool) -> int:
    """The line, from 1, where a record, from 0, begins; 0 if there are fewer records.

    quotes: whether a record may have line ends in double quotes. Blank lines are no records.
    """
    line, seen, inside = 1, 0, False
    for _, block in blocks(text):
        for found in block.split(b"\n")[:-1]:
            if not inside and found not in (b"", b"\r"):
                if seen == record:
                    return line
                seen += 1
            # A doubled quote inside a value counts as two and changes nothing.
            if quotes and found.count(b'"') % 2:
                inside = not inside
            line += 1
    return 0


def arrow_type(column: str, kind: str) -> pa.DataType:
    """Arrow's type of that name. Raises UsageError."""
    try:
        return pa.type_for_alias(kind)
    except (ValueError, TypeError):
        raise UsageError(
            f"types: {column!r} is {kind!r}, an unknown type; known are string, int64, float64, "
            "float32, bool and Arrow's other names"
        ) from None


def check_same_columns(own: pa.Schema, first: pa.Schema, name: str) -> None:
    """Raises DataError for a file whose columns are not those of the first."""
    if sorted(own.names) != sorted(first.names):
        other = set(own.names) ^ set(first.names)
        raise DataError(
            f"{name} has other columns than the first file ({len(own.names)} and "
            f"{len(first.names)}; only one has {shorts(sorted(other)[:5])})"
        )


def short(value: str) -> str:
    """A value of a file, for a message."""
    return repr(printable(value[:60]))


def shorts(values: Sequence[str]) -> str:
    """Values of a file, for a message."""
    return ", ".join(map(short, values))
