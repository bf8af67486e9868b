"""Damaged, replaced or unreachable shards are reported by name, at their position."""

from __future__ import annotations

import errno
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from s3fs.utils import FileExpired
from shard_rows import (
    FORMATS,
    Write,
    every_format,
    ids,
    read_ids,
    read_pieces,
    readers,
    small_set,
    table,
    whole,
    write_arrow,
    write_parquet,
)

from streamomd.core.errors import (
    ChangedDataError,
    DataError,
    InputNotFoundError,
    SchemaError,
    StorageError,
    StreamomdError,
    UsageError,
)
from streamomd.sources.find import find


@every_format
def test_error_in_convert_surfaces_in_its_place(suffix: str, write: Write, tmp_path: Path) -> None:
    """All before the bad row is delivered first; the error is the one that was raised."""
    shards = small_set(tmp_path, suffix, write)

    def fails(batch: pa.RecordBatch) -> list[int]:
        if 9 in batch.column("id").to_pylist():
            raise ZeroDivisionError("row nine")
        return ids(batch)

    got: list[int] = []
    with pytest.raises(ZeroDivisionError, match="row nine"):
        for piece in read_pieces(
            shards, places=range(4), columns=["id"], threads=3, function=fails
        ):
            got += piece.value
    assert got == list(range(7))
    assert readers() == []


def test_arrow_error_in_convert_names_the_rows(tmp_path: Path) -> None:
    """pyarrow's own errors name no row: they become DataError with shard and rows."""
    shards = small_set(tmp_path, "a.parquet", write_parquet)

    def casts(batch: pa.RecordBatch) -> pa.Array:
        return batch.column("word").cast(pa.int32())

    with pytest.raises(DataError, match=r"0-a\.parquet, rows 3 to 5.*'w[0-2]'"):
        list(read_pieces(shards, places=[0], columns=["word"], function=casts, start=(0, 3)))


def test_damaged_page_is_reported_with_its_rows(tmp_path: Path) -> None:
    """A flipped bit in a page with a checksum is DataError; the groups before it are read."""
    path = tmp_path / "a.parquet"
    write_parquet(str(path), table(0, 9), 3)
    chunk = pq.read_metadata(str(path)).row_group(1).column(0)
    at = chunk.dictionary_page_offset + chunk.total_compressed_size - 2
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)
    got: list[int] = []
    with pytest.raises(DataError, match=r"a\.parquet, rows 3 to 5 cannot be decoded"):
        for piece in read_pieces(find(str(path)), places=[0], columns=["id"]):
            got += piece.value
    assert got == [0, 1, 2]


def test_forged_arrow_offsets_are_refused(tmp_path: Path) -> None:
    """List offsets that lead outside are DataError before anyone follows them."""
    path = tmp_path / "a.arrow"
    write_arrow(
        str(path), pa.table({"list": pa.array([[1], [2], [3, 4]], pa.list_(pa.int32()))}), 9
    )
    offsets = np.array([0, 1, 2, 4], np.int32).tobytes()
    forged = np.array([0, 1, 2, 0x01020304], np.int32).tobytes()
    assert path.read_bytes().count(offsets) == 1
    path.write_bytes(path.read_bytes().replace(offsets, forged))
    with pytest.raises(DataError, match=r"a\.arrow, rows 0 to 2 cannot be decoded"):
        list(read_pieces(find(str(path)), places=[0], columns=["list"], function=whole))


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.slow
def test_every_flipped_byte_is_survived(name: str, tmp_path: Path) -> None:
    """Whatever byte of a shard is damaged: rows, or an error of ours; never another, no hang."""
    path = tmp_path / name
    FORMATS[name](str(path), table(0, 5), 3)
    whole = path.read_bytes()
    for at in range(0, len(whole), 5):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 0xFF]) + whole[at + 1 :])
        try:
            columns = ["id", "list", "word"]
            shards = find(str(path))
            read = [p.rows for p in read_pieces(shards, places=[0], columns=columns)]
            assert sum(read) == shards.rows
        except StreamomdError:
            continue
    assert readers() == []


@every_format
def test_replaced_shard_is_noticed(suffix: str, write: Write, tmp_path: Path) -> None:
    """A shard written anew between finding and reading is refused by name; a removed one, too: as
    changed where this process has read it, else as missing."""
    shards = small_set(tmp_path, suffix, write)
    write(shards.shards[2].path, table(7, 4), 3)
    got: list[int] = []
    with pytest.raises(ChangedDataError, match=f"2-{suffix} was replaced"):
        for piece in read_pieces(shards, places=range(4), columns=["id"]):
            got += piece.value
    assert got == list(range(7))
    os.remove(shards.shards[0].path)
    with pytest.raises(ChangedDataError, match=f"0-{suffix}.* it was removed"):
        read_ids(shards, places=[0])
    os.remove(shards.shards[3].path)
    with pytest.raises(InputNotFoundError, match=f"3-{suffix}"):
        read_ids(replace(shards, versions={}), places=[3])


@pytest.mark.parametrize(
    ("error", "kind", "words"),
    [
        (FileExpired("a.parquet", "etag"), ChangedDataError, "was replaced"),
        (OSError(errno.EBUSY, "Service Unavailable"), StorageError, "Service Unavailable"),
        (OSError(errno.EIO, "see https://h/x?sig=CANARY"), StorageError, "cannot be read"),
        (RuntimeError("client closed"), StorageError, "client closed"),
    ],
)
@pytest.mark.parametrize("most_whole", [8 << 20, 0])
def test_a_failing_store_is_distinguished_from_damage(
    most_whole: int,
    error: Exception,
    kind: type[StreamomdError],
    words: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What a store raises names the URL and keeps its kind, whether a shard is one request or the
    error comes in the middle of it."""
    fs = fsspec.filesystem("memory")
    fs.store.clear()
    write_parquet(str(tmp_path / "a.parquet"), table(0, 9), 3)
    fs.pipe_file("/fails/a.parquet", (tmp_path / "a.parquet").read_bytes())
    shards = find("memory://fails")
    for module in ("open_shard", "io_costs"):
        monkeypatch.setattr(f"streamomd.shards.{module}.WHOLE_BYTES", most_whole)
    for name in ("TAIL", "CELL_BYTES"):
        monkeypatch.setattr(f"streamomd.shards.formats.footer.{name}", 64)
    inner, size = type(fs).cat_file, shards.shards[0].size

    def cat_file(fs: Any, path: str, start: int, end: int) -> bytes:
        if most_whole or end < size:
            raise error
        return inner(fs, path, start, end)

    monkeypatch.setattr(type(fs), "cat_file", cat_file)
    with pytest.raises(kind, match=words) as caught:
        read_ids(shards, columns=["word"])
    assert "memory://fails/a.parquet" in str(caught.value)
    assert "CANARY" not in str(caught.value)


def test_illegal_start_is_refused_immediately(tmp_path: Path) -> None:
    """A start outside the order or its shard is a usage error before anything is read."""
    shards = small_set(tmp_path, "a.parquet", write_parquet)
    for start in ((5, 0), (4, 1), (-1, 0), (0, 8), (1, 1), (0, -1)):
        with pytest.raises(UsageError):
            read_pieces(shards, places=range(4), columns=["id"], start=start)


def test_missing_and_doubled_columns_are_refused(tmp_path: Path) -> None:
    """A misspelt column is answered with the nearest names, a doubled one by its count."""
    shards = small_set(tmp_path, "a.parquet", write_parquet)
    with pytest.raises(SchemaError, match=r"no column 'words'; did you mean 'word'"):
        read_ids(shards, columns=["words"])
    twice = pa.table([[1], [2]], names=["x", "x"])
    write_arrow(str(tmp_path / "9.arrow"), twice, 9)
    with pytest.raises(SchemaError, match="2 columns named 'x'"):
        read_ids(find(str(tmp_path / "9.arrow")), columns=["x"])
