"""Detect the type of a file from its first and last bytes."""

from __future__ import annotations

from streamomd.core.errors import DataError, IncompleteShardError
from streamomd.core.urls import printable, shown
from streamomd.shards.formats.contract import Format

_KNOWN = {
    b"\x1f\x8b": "gzip (magic 1f8b): use `streamomd convert` if it is text, else decompress it",
    b"BZh": "bzip2: use `streamomd convert` if it is text, else decompress it",
    b"\x28\xb5\x2f\xfd": "zstd: decompress it",
    b"\xfd7zXZ": "xz: use `streamomd convert` if it is text, else decompress it",
    b"\x04\x22\x4d\x18": "lz4: decompress it",
    b"PK\x03\x04": "a zip archive: unpack it",
    b"PARE": "encrypted Parquet, which is not supported",
    b"ORC": "ORC: write it as Parquet",
    b"Obj\x01": "Avro: write it as Parquet",
    b"FEA1": "Feather version 1: write it as version 2",
    b"\x89HDF": "HDF5: write it as Parquet",
    b"\x93NUMPY": "a numpy array: write it as Parquet",
    b"\xff\xff\xff\xff": "an Arrow stream: write it in the file format (pyarrow.ipc.new_file)",
}
UNKNOWN = "unknown"
SMALLEST = 12
"""Bytes of the smallest shard, two magics and a length: of fewer, any may be the first of one."""


def describe_bytes(head: bytes) -> str:
    """A few words on what a file that starts like this is, and what to do."""
    for magic, words in _KNOWN.items():
        if head.startswith(magic):
            return words
    text = head.decode("utf-8", "replace")
    if head and all(c.isprintable() or c in "\r\n\t" for c in text) and "\ufffd" not in text:
        return f'text ("{printable(text)}…"): use `streamomd convert FILE --from csv --to DIR`'
    return f"{UNKNOWN} (it starts with the bytes {head.hex(' ')})"


def format_of(head: bytes, trailer: bytes, size: int, formats: list[Format], url: str) -> Format:
    """The format whose magic stands at head and tail; raises DataError with the reason.

    IncompleteShardError without magic at the tail, unless the head is that of another file type.
    """
    for form in formats:
        # The first magic alone is at both ends of a file that has nothing else yet.
        if size >= SMALLEST and head.startswith(form.magic) and trailer.endswith(form.magic):
            return form
        if head.startswith(form.magic):
            _refuse_tail(form, trailer, size, url)
        if trailer.endswith(form.magic):
            raise DataError(
                f"shard {shown(url)}: the first bytes of this {form.name} file are damaged "
                f"(found {head[: len(form.magic)].hex(' ')}): write it again"
            )
    what = describe_bytes(head)
    kind = IncompleteShardError if size < SMALLEST or what.startswith(UNKNOWN) else DataError
    raise kind(f"shard {shown(url)} is not Parquet or Arrow, but {what}")


def _refuse_tail(form: Format, trailer: bytes, size: int, url: str) -> None:
    if trailer.endswith(b"PARE"):
        raise DataError(f"shard {shown(url)}: encrypted Parquet is not supported")
    raise IncompleteShardError(
        f"shard {shown(url)}: {form.name} magic bytes not found at the end of its {size} bytes; "
        "is the file truncated? Copy or write it again"
    )
