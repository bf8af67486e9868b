"""Reading shards: every row once, in order, from any start, and nothing left behind."""

from __future__ import annotations

import errno
from pathlib import Path

import fsspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from shard_rows import (
    Write,
    every_format,
    open_files,
    read_ids,
    read_pieces,
    readers,
    small_set,
    table,
    whole,
    write_parquet,
)

from streamomd.core.errors import ChangedDataError, DataError
from streamomd.shards.formats import footer, parquet
from streamomd.shards.formats.contract import decoded_bytes
from streamomd.shards.formats.footer import read_footer
from streamomd.shards.open_shard import explain
from streamomd.sources.find import find

pytestmark = pytest.mark.smoke


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
def test_pieces_have_the_position_of_their_rows(suffix: str, write: Write, tmp_path: Path) -> None:
    """Position, absolute row and number of rows are those of the value."""
    shards = small_set(tmp_path, suffix, write)
    first = {0: 0, 2: 7, 3: 12}
    for piece in read_pieces(shards, places=range(4), columns=["id"], start=(0, 2)):
        begin = first[piece.position] + piece.row
        assert piece.value == list(range(begin, begin + piece.rows))


@every_format
def test_only_the_asked_columns_come_in_the_asked_order(
    suffix: str, write: Write, tmp_path: Path
) -> None:
    """Columns are those asked for; values are those written."""
    shards = small_set(tmp_path, suffix, write)
    pieces = list(read_pieces(shards, places=[0], columns=["word", "list", "id"], function=whole))
    got = pa.Table.from_batches([piece.value for piece in pieces])
    assert got.equals(table(0, 7).select(["word", "list", "id"]))


def test_column_names_with_dots_are_exact(tmp_path: Path) -> None:
    """A column ``a.b`` is not the field b of a struct a."""
    both = pa.table({"a": [{"b": 1}], "a.b": [2], "a.bc": [3]})
    write_parquet(str(tmp_path / "a.parquet"), both, 9)
    pieces = read_pieces(find(str(tmp_path)), places=[0], columns=["a.b"], function=whole)
    assert [piece.value.to_pydict() for piece in pieces] == [{"a.b": [2]}]


def test_strings_stay_dictionaries_where_asked(tmp_path: Path) -> None:
    """A dictionary column has the values of the plain one, at any batch size."""
    words = pa.table({"word": [f"w{i % 7}" for i in range(3000)], "id": range(3000)})
    write_parquet(str(tmp_path / "a.parquet"), words, 1700)
    shards = find(str(tmp_path))
    options = {"places": [0], "columns": ["word", "id"], "function": whole, "unit_bytes": 5000}
    pieces = list(read_pieces(shards, dictionary=["word", "id", "none"], **options))
    assert all(pa.types.is_dictionary(piece.value.schema.field("word").type) for piece in pieces)
    assert all(pa.types.is_integer(piece.value.schema.field("id").type) for piece in pieces)
    decoded = [i for piece in pieces for i in piece.value.column("word").to_pylist()]
    assert decoded == words.column("word").to_pylist()


def words_of(path: Path, **options) -> list[str]:
    """All of the column ``word``, which is asked for as dictionaries."""
    options = {"columns": ["word"], "dictionary": ["word"], "unit_bytes": 5000, **options}
    pieces = read_pieces(find(str(path)), places=[0], function=whole, **options)
    return [word for piece in pieces for word in piece.value.column("word").to_pylist()]


@pytest.mark.parametrize("encoding", ["PLAIN", "DELTA_LENGTH_BYTE_ARRAY", "DELTA_BYTE_ARRAY"])
def test_strings_are_read_however_they_are_stored(encoding: str, tmp_path: Path) -> None:
    """Arrow makes no dictionaries of some encodings: then the strings come as they are."""
    words = [f"w{i % 7}" for i in range(3000)]
    path = tmp_path / "a.parquet"
    kept = {"use_dictionary": False, "column_encoding": {"word": encoding}}
    pq.write_table(pa.table({"word": words}), path, row_group_size=1700, **kept)
    assert words_of(path) == words
    assert words_of(path, start=(0, 1699)) == words[1699:]


@pytest.mark.parametrize("read", [0, 1, 127, 128, 129, 1699, 1700])
def test_an_encoding_may_change_within_a_group(read: int, tmp_path: Path, monkeypatch) -> None:
    """Wherever Arrow stops making dictionaries, each string is there once."""
    words = [f"w{i}" for i in range(1700)]
    path = tmp_path / "a.parquet"
    write_parquet(str(path), pa.table({"word": words}), len(words))
    opened = parquet._opened

    class Stops:
        """A Parquet file that makes dictionaries of its first rows alone."""

        def __init__(self, file):
            self.file, self.reader, self.metadata = file, file.reader, file.metadata

        def iter_batches(self, **options):
            left = read
            for batch in self.file.iter_batches(**options):
                yield batch.slice(0, left)
                left -= min(left, len(batch))
                if not left:
                    raise OSError("Not yet implemented: DecodeArrow of DictAccumulator")

    def stops(source, metadata, dictionaries, buffer_bytes):
        file = opened(source, metadata, dictionaries, buffer_bytes)
        return Stops(file) if dictionaries else file

    monkeypatch.setattr(parquet, "_opened", stops)
    assert words_of(path) == words


def test_each_group_begins_with_few_rows(tmp_path: Path) -> None:
    """However narrow the rows before were, those of the next group may be of any length."""
    words = pa.table({"word": [f"w{i % 7}" for i in range(6000)]})
    write_parquet(str(tmp_path / "a.parquet"), words, 2000)
    pieces = read_pieces(
        find(str(tmp_path)), places=[0], columns=["word"], function=whole, threads=1
    )
    assert [piece.rows for piece in pieces] == [128, 1024, 848] * 3


def test_empty_row_groups_are_passed_over(tmp_path: Path) -> None:
    """Row groups of 0, 2, 0 and 1 rows give three rows, numbered through."""
    with pq.ParquetWriter(str(tmp_path / "a.parquet"), table(0, 1).schema) as writer:
        for first, rows in ((0, 0), (0, 2), (2, 0), (2, 1)):
            writer.write_table(table(first, rows))
    shards = find(str(tmp_path))
    assert shards.shards[0].groups == (0, 2, 0, 1)
    pieces = list(read_pieces(shards, places=[0], columns=["id"]))
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
        read_pieces(shards, places=[0], columns=["list", "word"], function=whole, unit_bytes=8192)
    )
    assert sum(piece.rows for piece in pieces) == len(lengths)
    assert all(p.rows == 1 or decoded_bytes(p.value.columns) <= 4 * 8192 for p in pieces)
    assert len(pieces) < 600


@every_format
def test_early_close_leaves_nothing(suffix: str, write: Write, tmp_path: Path) -> None:
    """Closing, dropping or never starting the iterator leaves no thread and no open file."""
    shards = small_set(tmp_path, suffix, write)
    before = open_files()
    for budget in (1, 1 << 30):
        pieces = read_pieces(
            shards, places=range(4), columns=["id"], budget_bytes=budget, threads=3
        )
        next(pieces)
        assert readers() or budget > 1
        pieces.close()
        assert readers() == []
        assert open_files() == before
    dropped = read_pieces(shards, places=range(4), columns=["id"])
    next(dropped)
    del dropped
    never = read_pieces(shards, places=range(4), columns=["id"])
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


def test_a_system_that_takes_no_advice_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That a file is read in sequence is advice: a file system may refuse it, or have none."""

    def refuse(*_: int) -> None:
        raise OSError(errno.EINVAL, "Invalid argument")

    shards = small_set(tmp_path, "a.parquet", write_parquet)
    monkeypatch.setattr("os.posix_fadvise", refuse)
    assert read_ids(shards) == list(range(13))
    monkeypatch.delattr("os.posix_fadvise")
    assert read_ids(shards) == list(range(13))


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
    with pytest.raises(ChangedDataError, match="was replaced"):
        read_ids(shards)


@every_format
def test_a_shard_that_is_damaged_as_it_is_opened_was_replaced(
    suffix: str, write: Write, tmp_path: Path, monkeypatch
) -> None:
    """Its first bytes were right when it was found: other ones are a change, not damaged input,
    even if they are written between the look at its time and the reading of its footer."""
    shards = small_set(tmp_path, suffix, write)

    def overwritten(file, size: int, url: str):
        with Path(shards.shards[0].path).open("r+b") as other:
            other.write(b"\x7f" * 8)
        return read_footer(file, size, url)

    monkeypatch.setattr("streamomd.shards.open_shard.read_footer", overwritten)
    # One thread: a second one would open the shard after it was overwritten, and see its new time.
    with pytest.raises(ChangedDataError, match="was replaced while it was in use: its first bytes"):
        list(read_pieces(shards, places=range(4), columns=["id"], threads=1))


@every_format
def test_a_shard_that_is_damaged_after_its_footer_was_read_was_replaced(
    suffix: str, write: Write, tmp_path: Path, monkeypatch
) -> None:
    """What follows from a change is not an error of the data."""
    shards = small_set(tmp_path, suffix, write)

    def overwritten(file, url: str):
        with Path(shards.shards[0].path).open("r+b") as other:
            other.write(b"\x7f" * 8)
        raise DataError("the bytes that are read now say something else")

    monkeypatch.setattr("streamomd.shards.open_shard.read_at", overwritten)
    with pytest.raises(ChangedDataError, match="it was written to as it was opened"):
        list(read_pieces(shards, places=range(4), columns=["id"], threads=1))


def test_a_mistake_in_the_program_is_not_the_datas(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A version of a library that lacks an attribute: the error stays what it is."""
    pq.write_table(pa.table({"y": [1, 2]}), tmp_path / "a.parquet")

    def lacks(*given: object, **named: object) -> None:
        raise AttributeError("'OSFile' object has no attribute 'handle'")

    monkeypatch.setattr(footer, "FORMATS", [parquet.FORMAT._replace(describe=lacks)])
    with pytest.raises(AttributeError, match="handle"):
        find(str(tmp_path / "a.parquet"))
    monkeypatch.undo()
    (shard,) = find(str(tmp_path / "a.parquet"))
    with pytest.raises(TypeError, match="argument"):
        explain(TypeError("an unexpected keyword argument"), shard, 0, 2)
    assert isinstance(explain(pa.ArrowTypeError("x"), shard, 0, 2), DataError)
