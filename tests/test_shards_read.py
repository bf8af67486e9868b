"""Reading shards: every row once, in order, within bounds, and nothing left behind."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import fsspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from streamomd.errors import (
    DataError,
    InputNotFoundError,
    SchemaError,
    StorageError,
    StreamomdError,
    UsageError,
)
from streamomd.shards.ahead import LEAST_BYTES, Ahead, Run
from streamomd.shards.find import ShardSet, find
from streamomd.shards.format import decoded_bytes
from streamomd.shards.labels import distinct_labels
from streamomd.shards.read import Piece, read_units
from streamomd.shards.shard import Shard
from streamomd.shards.store import RemoteFile

Write = Callable[[str, pa.Table, int], None]


def write_parquet(path: str, table: pa.Table, rows: int) -> None:
    pq.write_table(table, path, row_group_size=rows, write_page_checksum=True)


def write_arrow(path: str, table: pa.Table, rows: int) -> None:
    with pa.ipc.new_file(path, table.schema) as writer:
        writer.write_table(table, max_chunksize=rows)


def write_compressed_arrow(path: str, table: pa.Table, rows: int) -> None:
    options = pa.ipc.IpcWriteOptions(compression="lz4")
    with pa.ipc.new_file(path, table.schema, options=options) as writer:
        writer.write_table(table, max_chunksize=rows)


FORMATS = {
    "a.parquet": write_parquet,
    "a.arrow": write_arrow,
    "a.feather": write_compressed_arrow,
}
every_format = pytest.mark.parametrize(("suffix", "write"), FORMATS.items())


def table(first: int, rows: int) -> pa.Table:
    """Rows that tell their own number, with a list and a string column."""
    ids = range(first, first + rows)
    return pa.table(
        {
            "id": pa.array(ids, pa.int64()),
            "list": pa.array([[i] * (i % 4) for i in ids], pa.list_(pa.int32())),
            "word": pa.array([f"w{i % 3}" for i in ids], pa.string()),
            "other": pa.array(ids, pa.float64()),
        }
    )


def small_set(folder: Path, suffix: str, write: Write) -> ShardSet:
    """Shards of 7, 0, 5 and 1 rows in groups of 3: 13 rows numbered in order."""
    first = 0
    for number, rows in enumerate((7, 0, 5, 1)):
        write(str(folder / f"{number}-{suffix}"), table(first, rows), 3)
        first += rows
    return find(str(folder))


def ids(batch: pa.RecordBatch, shard: Shard, row: int) -> list[int]:
    return list(batch.column("id").to_pylist())


def as_it_is(batch: pa.RecordBatch, shard: Shard, row: int) -> pa.RecordBatch:
    return batch


def read_ids(shards: ShardSet, **options: object) -> list[int]:
    options.setdefault("places", range(len(shards)))
    options.setdefault("columns", ["id"])
    return [i for piece in read_units(shards, convert=ids, **options) for i in piece.value]


def open_files() -> set[str]:
    links = (f"/proc/self/fd/{fd}" for fd in os.listdir("/proc/self/fd"))
    return {os.readlink(link) for link in links if os.path.islink(link)}


def readers() -> list[str]:
    return [t.name for t in threading.enumerate() if t.name.startswith("streamomd")]


@every_format
def test_every_start_gives_the_tail(suffix: str, write: Write, tmp_path: Path) -> None:
    """From any row of any shard come exactly the rows from there on, whatever the unit."""
    shards = small_set(tmp_path, suffix, write)
    places = [2, 0, 1, 3]
    order = [7, 8, 9, 10, 11, 0, 1, 2, 3, 4, 5, 6, 12]
    before = 0
    for position, place in enumerate(places):
        for row in range(shards.shards[place].rows + 1):
            for threads, unit_bytes in ((1, 1), (2, 20), (3, 1 << 20)):
                got = read_ids(
                    shards,
                    places=places,
                    start=(position, row),
                    threads=threads,
                    unit_bytes=unit_bytes,
                    budget_bytes=1,
                )
                assert got == order[before + row :]
        before += shards.shards[place].rows
    assert read_ids(shards, places=places, start=(4, 0)) == []


@every_format
def test_pieces_tell_where_their_rows_are(suffix: str, write: Write, tmp_path: Path) -> None:
    """Position, absolute row and number of rows are those of the value."""
    shards = small_set(tmp_path, suffix, write)
    first = {0: 0, 2: 7, 3: 12}
    for piece in read_units(shards, places=range(4), columns=["id"], convert=ids, start=(0, 2)):
        begin = first[piece.position] + piece.row
        assert piece.value == list(range(begin, begin + piece.rows))


@every_format
def test_only_the_asked_columns_come_in_the_asked_order(
    suffix: str, write: Write, tmp_path: Path
) -> None:
    """Columns are those asked for; values are those written."""
    shards = small_set(tmp_path, suffix, write)
    pieces = list(read_units(shards, places=[0], columns=["word", "list", "id"], convert=as_it_is))
    got = pa.Table.from_batches([piece.value for piece in pieces])
    assert got.equals(table(0, 7).select(["word", "list", "id"]))


def test_column_names_with_dots_are_exact(tmp_path: Path) -> None:
    """A column ``a.b`` is not the field b of a struct a."""
    both = pa.table({"a": [{"b": 1}], "a.b": [2], "a.bc": [3]})
    write_parquet(str(tmp_path / "a.parquet"), both, 9)
    pieces = read_units(find(str(tmp_path)), places=[0], columns=["a.b"], convert=as_it_is)
    assert [piece.value.to_pydict() for piece in pieces] == [{"a.b": [2]}]


def test_strings_stay_dictionaries_where_asked(tmp_path: Path) -> None:
    """A dictionary column has the values of the plain one, at any batch size."""
    words = pa.table({"word": [f"w{i % 7}" for i in range(3000)], "id": range(3000)})
    write_parquet(str(tmp_path / "a.parquet"), words, 1700)
    shards = find(str(tmp_path))
    options = {"places": [0], "columns": ["word", "id"], "convert": as_it_is, "unit_bytes": 5000}
    pieces = list(read_units(shards, dictionary=["word", "id", "none"], **options))
    assert all(pa.types.is_dictionary(piece.value.schema.field("word").type) for piece in pieces)
    assert all(pa.types.is_integer(piece.value.schema.field("id").type) for piece in pieces)
    decoded = [i for piece in pieces for i in piece.value.column("word").to_pylist()]
    assert decoded == words.column("word").to_pylist()


def test_empty_row_groups_are_passed_over(tmp_path: Path) -> None:
    """Row groups of 0, 2, 0 and 1 rows give three rows, numbered through."""
    with pq.ParquetWriter(str(tmp_path / "a.parquet"), table(0, 1).schema) as writer:
        for first, rows in ((0, 0), (0, 2), (2, 0), (2, 1)):
            writer.write_table(table(first, rows))
    shards = find(str(tmp_path))
    assert shards.shards[0].groups == (0, 2, 0, 1)
    pieces = list(read_units(shards, places=[0], columns=["id"], convert=ids))
    assert [(p.row, p.rows, p.value) for p in pieces] == [(0, 2, [0, 1]), (2, 1, [2])]


@every_format
def test_units_are_bounded(suffix: str, write: Write, tmp_path: Path) -> None:
    """No unit has over four times ``unit_bytes`` unless it is a single row, as rows widen."""
    lengths = [1] * 3000 + [400] * 300 + [30_000] * 3 + [2] * 1000
    lists = pa.array([np.zeros(n, np.float32) for n in lengths], pa.list_(pa.float32()))
    words = pa.array(["x" * (n % 1000) for n in lengths])
    wide = pa.table({"list": lists, "word": words})
    write(str(tmp_path / suffix), wide, len(lengths))
    shards = find(str(tmp_path))
    pieces = list(
        read_units(shards, places=[0], columns=["list", "word"], convert=as_it_is, unit_bytes=8192)
    )
    assert sum(piece.rows for piece in pieces) == len(lengths)
    assert all(p.rows == 1 or decoded_bytes(p.value) <= 4 * 8192 for p in pieces)
    assert len(pieces) < 600


@every_format
def test_error_in_convert_surfaces_in_its_place(suffix: str, write: Write, tmp_path: Path) -> None:
    """All before the bad row is delivered first; the error is the one that was raised."""
    shards = small_set(tmp_path, suffix, write)

    def fails(batch: pa.RecordBatch, shard: Shard, row: int) -> list[int]:
        if 9 in batch.column("id").to_pylist():
            raise ZeroDivisionError("row nine")
        return ids(batch, shard, row)

    got: list[int] = []
    with pytest.raises(ZeroDivisionError, match="row nine"):
        for piece in read_units(shards, places=range(4), columns=["id"], convert=fails, threads=3):
            got += piece.value
    assert got == list(range(7))
    assert readers() == []


def test_arrow_error_in_convert_names_the_rows(tmp_path: Path) -> None:
    """pyarrow's own errors name no row: they become DataError with shard and rows."""
    shards = small_set(tmp_path, "a.parquet", write_parquet)

    def casts(batch: pa.RecordBatch, shard: Shard, row: int) -> pa.Array:
        return batch.column("word").cast(pa.int32())

    with pytest.raises(DataError, match=r"0-a\.parquet, rows 3 to 5.*'w[0-2]'"):
        list(read_units(shards, places=[0], columns=["word"], convert=casts, start=(0, 3)))


def test_damaged_page_is_told_with_its_rows(tmp_path: Path) -> None:
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
        for piece in read_units(find(str(path)), places=[0], columns=["id"], convert=ids):
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
        list(read_units(find(str(path)), places=[0], columns=["list"], convert=as_it_is))


@pytest.mark.parametrize("name", FORMATS)
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
            read = [p.rows for p in read_units(shards, places=[0], columns=columns, convert=ids)]
            assert sum(read) == shards.rows
        except StreamomdError:
            continue
    assert readers() == []


@every_format
def test_replaced_shard_is_noticed(suffix: str, write: Write, tmp_path: Path) -> None:
    """A shard written anew between finding and reading is refused by name, a lost one too."""
    shards = small_set(tmp_path, suffix, write)
    write(shards.shards[2].path, table(7, 4), 3)
    got: list[int] = []
    with pytest.raises(DataError, match=f"2-{suffix} was replaced"):
        for piece in read_units(shards, places=range(4), columns=["id"], convert=ids):
            got += piece.value
    assert got == list(range(7))
    os.remove(shards.shards[2].path)
    with pytest.raises(InputNotFoundError, match=f"2-{suffix}"):
        read_ids(shards, places=[2])


@every_format
def test_early_close_leaves_nothing(suffix: str, write: Write, tmp_path: Path) -> None:
    """Closing, dropping or never starting the iterator leaves no thread and no open file."""
    shards = small_set(tmp_path, suffix, write)
    before = open_files()
    for budget in (1, 1 << 30):
        pieces = read_units(
            shards, places=range(4), columns=["id"], convert=ids, budget_bytes=budget, threads=3
        )
        next(pieces)
        assert readers() or budget > 1
        pieces.close()
        assert readers() == []
        assert open_files() == before
    dropped = read_units(shards, places=range(4), columns=["id"], convert=ids)
    next(dropped)
    del dropped
    never = read_units(shards, places=range(4), columns=["id"], convert=ids)
    never.close()
    assert readers() == []
    assert open_files() == before


def test_reading_to_the_end_leaves_nothing(tmp_path: Path) -> None:
    """After the last row no thread and no file is left."""
    shards = small_set(tmp_path, "a.parquet", write_parquet)
    before = open_files()
    assert read_ids(shards, threads=5) == list(range(13))
    assert readers() == []
    assert open_files() == before


@every_format
def test_memory_file_system_is_read(suffix: str, write: Write, tmp_path: Path) -> None:
    """A store that is not the local disk gives the same rows."""
    fs = fsspec.filesystem("memory")
    fs.store.clear()
    small_set(tmp_path, suffix, write)
    for path in tmp_path.iterdir():
        fs.pipe_file(f"/read/{path.name}", path.read_bytes())
    shards = find("memory://read")
    assert read_ids(shards, start=(0, 5), columns=["id", "list"]) == list(range(5, 13))
    fs.pipe_file(f"/read/0-{suffix}", (tmp_path / f"2-{suffix}").read_bytes())
    with pytest.raises(DataError, match="was replaced"):
        read_ids(shards)


@pytest.mark.parametrize(
    ("error", "kind", "words"),
    [
        (OSError(errno.EBUSY, "expired"), DataError, "was replaced"),
        (OSError(errno.EIO, "see https://h/x?sig=CANARY"), StorageError, "cannot be read"),
        (RuntimeError("client closed"), StorageError, "client closed"),
    ],
)
def test_store_that_fails_is_told_from_damage(
    error: Exception,
    kind: type[StreamomdError],
    words: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What a store raises in the middle of a shard names the URL, and keeps its kind."""
    fs = fsspec.filesystem("memory")
    fs.store.clear()
    write_parquet(str(tmp_path / "a.parquet"), table(0, 9), 3)
    fs.pipe_file("/fails/a.parquet", (tmp_path / "a.parquet").read_bytes())
    shards = find("memory://fails")
    inner = RemoteFile.seek
    end = pq.read_metadata(str(tmp_path / "a.parquet")).row_group(1).column(0).data_page_offset

    def seek(file: RemoteFile, offset: int, whence: int = 0) -> int:
        if 4 < offset < end:
            monkeypatch.setattr(file._file, "read", raising)
        return inner(file, offset, whence)

    def raising(size: int) -> bytes:
        raise error

    monkeypatch.setattr(RemoteFile, "seek", seek)
    with pytest.raises(kind, match=words) as caught:
        read_ids(shards, columns=["word"])
    assert "memory://fails/a.parquet" in str(caught.value)
    assert "CANARY" not in str(caught.value)


def test_illegal_start_is_refused_at_once(tmp_path: Path) -> None:
    """A start outside the order or its shard is a usage error before anything is read."""
    shards = small_set(tmp_path, "a.parquet", write_parquet)
    for start in ((5, 0), (4, 1), (-1, 0), (0, 8), (1, 1), (0, -1)):
        with pytest.raises(UsageError):
            read_units(shards, places=range(4), columns=["id"], convert=ids, start=start)


def test_missing_and_doubled_columns_are_refused(tmp_path: Path) -> None:
    """A misspelt column is answered with the nearest names, a doubled one by its count."""
    shards = small_set(tmp_path, "a.parquet", write_parquet)
    with pytest.raises(SchemaError, match=r"no column 'words'; it has word"):
        read_ids(shards, columns=["words"])
    twice = pa.table([[1], [2]], names=["x", "x"])
    write_arrow(str(tmp_path / "9.arrow"), twice, 9)
    with pytest.raises(SchemaError, match="2 columns named 'x'"):
        read_ids(find(str(tmp_path / "9.arrow")), columns=["x"])


def test_labels_are_of_the_first_shard_that_has_two(tmp_path: Path) -> None:
    """Sorted Python values, without null and NaN; following shards only while there is one."""
    for number, labels in enumerate(([None, 2.0, float("nan")], [1.0, 2.0], [7.0])):
        write_parquet(str(tmp_path / f"{number}.parquet"), pa.table({"y": labels}), 2)
    assert distinct_labels(find(str(tmp_path)), "y") == [1.0, 2.0]
    write_arrow(str(tmp_path / "3.arrow"), pa.table({"y": pa.array(["b", "a", "b", None])}), 2)
    text = find(str(tmp_path / "3.arrow"))
    assert distinct_labels(text, "y") == ["a", "b"]
    with pytest.raises(DataError, match="more than 1 distinct"):
        distinct_labels(text, "y", limit=1)


def test_labels_of_a_wrong_column_are_refused(tmp_path: Path) -> None:
    """A list is no label, and a missing column is told with its neighbours."""
    shards = small_set(tmp_path, "a.parquet", write_parquet)
    with pytest.raises(SchemaError, match="list"):
        distinct_labels(shards, "list")
    with pytest.raises(SchemaError, match="it has word"):
        distinct_labels(shards, "wrod")
    assert readers() == []


def numbers(jobs: int, each: int, size: int) -> Ahead[int, int]:
    """Jobs that each give the next ``each`` numbers."""

    def run(job: int) -> Iterator[tuple[int, int]]:
        return ((job * each + i, size) for i in range(each))

    @contextmanager
    def session() -> Iterator[Run[int, int]]:
        yield run

    return Ahead(iter(range(jobs)), session, threads=3, budget=3 * size)


def test_waiting_bytes_stay_within_the_budget() -> None:
    """At most one result a thread waits beyond the budget, and the order holds."""
    size = 4 * LEAST_BYTES
    ahead = numbers(50, 7, size)
    assert list(ahead.results()) == list(range(350))
    assert size <= ahead.most_waiting <= 3 * size + 2 * size
    assert ahead.waiting == 0


def test_budget_counts_decoded_batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What waits while nobody takes is bounded by the batches' bytes, not by their number."""
    many = pa.table({"id": pa.array(range(60_000), pa.int64())})
    write_parquet(str(tmp_path / "a.parquet"), many, 20_000)
    made: list[Ahead[object, object]] = []

    class Watched(Ahead):  # type: ignore[type-arg]
        def __init__(self, *args: object, **options: object) -> None:
            super().__init__(*args, **options)  # type: ignore[arg-type]
            made.append(self)

    monkeypatch.setattr("streamomd.shards.read.Ahead", Watched)
    shards = find(str(tmp_path))
    got = read_ids(shards, budget_bytes=50_000, unit_bytes=10_000)
    assert got == list(range(60_000))
    assert 0 < made[0].most_waiting <= 50_000 + 2 * 40_000


def test_delivered_batches_are_let_go(tmp_path: Path) -> None:
    """Reading a shard of many units leaves no more Arrow memory than its last pieces."""
    lists = pa.FixedSizeListArray.from_arrays(np.zeros(4_000_000, np.float32), 100)
    write_parquet(str(tmp_path / "a.parquet"), pa.table({"x": lists}), 40_000)
    shards = find(str(tmp_path))
    del lists
    before = pa.total_allocated_bytes()
    options = {"columns": ["x"], "convert": as_it_is, "unit_bytes": 1 << 20, "threads": 1}
    most = 0
    for piece in read_units(shards, places=[0], budget_bytes=2 << 20, **options):
        assert isinstance(piece, Piece)
        most = max(most, pa.total_allocated_bytes() - before)
        del piece
    assert most < 12 << 20
    assert pa.total_allocated_bytes() - before < 1 << 20
