"""Row groups decoded from their pages: the rows and the errors of pyarrow's readers."""

from __future__ import annotations

import datetime
import itertools
import json
import os
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from streamomd.core.jit import ItemCount, recording
from streamomd.features.kernels import page_values
from streamomd.features.kernels.lz4_blocks import MALFORMED, unfold, unfolder
from streamomd.features.kernels.page_headers import find_pages
from streamomd.features.lists import METADATA_KEY
from streamomd.shards.formats import column_pages, flat_groups, parquet, parquet_pages
from streamomd.shards.formats.column_pages import snappy_size, zstd_size
from streamomd.shards.formats.contract import ReadRequest
from streamomd.shards.formats.footer import read_at, read_footer
from streamomd.shards.shard_file import open_file

CODECS = ("none", "snappy", "lz4", "zstd")
KINDS = (
    pa.int8(), pa.uint16(), pa.int32(), pa.uint32(), pa.int64(), pa.uint64(), pa.float32(),
    pa.float64(), pa.date32(),
)  # fmt: skip


class Local:
    """A file system on this disk."""

    protocol = "file"


class Checked(np.ndarray):  # type: ignore[type-arg]
    """An array that refuses negative indices: numpy, and numba where it checks bounds, count them
    from the end."""

    def __getitem__(self, at: Any) -> Any:
        refuse_negative(at)
        return super().__getitem__(at)

    def __setitem__(self, at: Any, value: Any) -> None:
        refuse_negative(at)
        super().__setitem__(at, value)


def refuse_negative(at: Any) -> None:
    """Raise IndexError for an index, or an end of a slice, that is negative."""
    places = (at.start or 0, at.stop or 0) if isinstance(at, slice) else (at,)
    if min(places) < 0:
        raise IndexError(f"negative index {at}")


def checked(kernel: Any) -> Any:
    """A kernel as plain Python that compares every place with both ends of its array."""

    def run(*given: Any) -> Any:
        return kernel(*(x.view(Checked) if isinstance(x, np.ndarray) else x for x in given))

    return run


def test_a_negative_index_is_refused() -> None:
    """By the arrays that the tests below use."""
    room = np.arange(3).view(Checked)
    assert int(room[1]) == 1
    for at in (-1, slice(-2, None), slice(0, -1)):
        with pytest.raises(IndexError, match="negative"):
            room[at]
        with pytest.raises(IndexError, match="negative"):
            room[at] = 0


@pytest.fixture
def interpreted(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernels as plain Python, which compares every place with both ends of its array."""
    monkeypatch.setattr(parquet, "FLAT_VALUES", 0)
    monkeypatch.setattr(flat_groups, "is_worth_compiling", lambda values, lists: True)
    monkeypatch.setattr(column_pages, "page_finder", lambda: checked(find_pages))
    monkeypatch.setattr(column_pages, "unfolder", lambda: checked(unfold))
    for name, made in {
        "code_reader": page_values.read_codes,
        "level_reader": page_values.read_levels,
        "cell_copier": page_values.copy_cells,
    }.items():
        monkeypatch.setattr(flat_groups, name, lambda made=made: checked(made))
    monkeypatch.setattr(flat_groups, "value_taker", lambda kind: checked(page_values.take_values))
    monkeypatch.setattr(
        flat_groups, "value_spreader", lambda kind: checked(page_values.spread_values)
    )


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernels compiled, also for few rows."""
    monkeypatch.setattr(parquet, "FLAT_VALUES", 0)
    monkeypatch.setattr(flat_groups, "is_worth_compiling", lambda values, lists: True)


def batches(path: Path, texts: list[str], unit: int, *, flat: bool) -> Iterator[pa.RecordBatch]:
    """A file's rows as training reads them."""
    name, size = str(path), os.path.getsize(path)
    with open_file(Local(), name, name) as file:
        form, footer = read_footer(file, size, name)
        columns = tuple(pq.read_schema(path).names)
        request = ReadRequest(columns, tuple(texts), unit, 1 << 20)
        groups: Any = form.open_groups(
            file, footer, read_at(file, name), request, lambda group, digest: None
        )
        if not flat:
            groups._flat_group = lambda group: None
        for group in range(pq.read_metadata(path).num_row_groups):
            yield from groups(group)
            groups.release()


def plain(made: list[pa.RecordBatch]) -> pa.Table:
    """Rows without dictionaries, texts as bytes: those of spoilt pages need not be UTF-8."""
    tables = []
    for batch in made:
        columns = []
        for column in batch:
            if pa.types.is_dictionary(column.type):
                texts = column.dictionary.cast(pa.binary())
                column = pa.DictionaryArray.from_arrays(column.indices, texts, safe=False)
                column.validate(full=True)
                column = column.dictionary_decode()
            columns.append(column.cast(pa.binary()) if column.type == pa.string() else column)
            columns[-1].validate(full=True)
        tables.append(pa.table(columns, names=batch.schema.names))
    return pa.concat_tables(tables)


def as_bytes(table: pa.Table) -> pa.Table:
    """A table whose texts are bytes."""
    kinds = [pa.binary() if f.type == pa.string() else f.type for f in table.schema]
    names = table.schema.names
    return table.cast(pa.schema(zip(names, kinds, strict=True)))


def drawn(rows: int, nulls: float, *, seed: int = 0, texts: bool = False) -> pa.Table:
    """A column of each type; of text also one of few values, and one that has to be plain."""
    draw = random.Random(seed)

    def column(values: list[Any], kind: pa.DataType) -> pa.Array:
        return pa.array([None if draw.random() < nulls else value for value in values], kind)

    found = {}
    for at, kind in enumerate(KINDS):
        some = [draw.randrange(1 << draw.choice((3, 7))) for _ in range(rows)]
        day = datetime.date(2026, 1, 1)
        days = [day + datetime.timedelta(one) for one in some]
        found[f"n{at}"] = column(days if kind == pa.date32() else some, kind)
    found["few"] = column([f"v{draw.randrange(9)}é" for _ in range(rows)], pa.string())
    found["many"] = column([f"{draw.random()}" for _ in range(rows)], pa.string())
    found["same"] = column(["x"] * rows, pa.string())
    if texts:
        found["text"] = column(["a" * draw.randrange(30) for _ in range(rows)], pa.string())
    return pa.table(found)


def write(path: Path, table: pa.Table, **how: Any) -> None:
    """With checksums, as `convert` writes."""
    pq.write_table(table, path, **{"write_page_checksum": True, **how})


def test_packed_numbers() -> None:
    """Of each width, from any bit on, with no byte behind the last one."""
    draw = np.random.default_rng(1)
    for width, bit, count in itertools.product(range(25), (0, 3, 13), (1, 9, 41)):
        data = draw.integers(0, 256, (bit + count * width + 7) // 8).astype(np.uint8)
        out = np.zeros(count + 2, np.uint32)
        checked(page_values.unpack)(data, bit, width, count, out, 2)
        whole = int.from_bytes(data.tobytes(), "little")
        expected = [(whole >> (bit + k * width)) % (1 << width) for k in range(count)]
        assert out.tolist() == [0, 0, *expected]


FORMS = [*itertools.product(CODECS, ("1.0", "2.0"), (0.0, 0.3, 1.0), (True, False, "falls back"))]


@pytest.mark.usefixtures("interpreted")
@pytest.mark.parametrize("at", range(0, len(FORMS), 5))
def test_some_forms(at: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As the next test: a fifth of the forms, of few rows."""
    check_form(FORMS[at], tmp_path, monkeypatch, [(70, 70, 1 << 20)])


@pytest.mark.slow
@pytest.mark.usefixtures("compiled")
@pytest.mark.parametrize("codec, version, nulls, dictionary", FORMS)
def test_forms(
    codec: str, version: str, nulls: float, dictionary: Any, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """Codecs, page versions, nulls, encodings, row groups, pages and slices: all rows as written,
    and none of them read by pyarrow."""
    sizes = itertools.product((1, 8, 1_000, 5_000), (1_000, 3_001), (1, 900, 40_000, 1 << 22))
    form = codec, version, nulls, dictionary
    check_form(form, tmp_path, monkeypatch, [(r, g, u) for r, g, u in sizes if u > 1 or r < 9])


def check_form(
    form: tuple[Any, ...], folder: Path, monkeypatch: pytest.MonkeyPatch,
    sizes: list[tuple[int, int, int]],
) -> None:  # fmt: skip
    """Compare a form's rows with those written, for each number of rows, of rows in a group, and
    of bytes in a slice."""
    codec, version, nulls, dictionary = form
    how: dict[str, Any] = {"data_page_version": version, "compression": codec}
    how["use_dictionary"] = bool(dictionary)
    if dictionary == "falls back":
        how |= {"dictionary_pagesize_limit": 200, "data_page_size": 300, "write_batch_size": 16}
    monkeypatch.setattr(parquet, "_next_rows", read_by_pyarrow)
    for rows, group, unit in sizes:
        table = drawn(rows, nulls, seed=rows, texts=not dictionary)
        write(folder / "a.parquet", table, row_group_size=group, **how)
        made = [*batches(folder / "a.parquet", TEXTS, unit, flat=True)]
        assert plain(made).equals(as_bytes(table))
        if dictionary is True and nulls < 1:
            assert all(pa.types.is_dictionary(batch.schema.field("few").type) for batch in made)


def read_by_pyarrow(*given: Any) -> Any:
    """In place of pyarrow's readers."""
    raise AssertionError("pyarrow reads")


def listed(rows: int, nulls: float, *, seed: int = 0) -> pa.Table:
    """Lists stored as binary columns, of any length, and a label."""
    draw = random.Random(seed)

    def cells(width: int) -> list[Any]:
        sizes = [draw.choice((0, 1, 9)) * width for _ in range(rows)]
        return [None if draw.random() < nulls else draw.randbytes(size) for size in sizes]

    kinds = {METADATA_KEY: json.dumps({"i": "int32", "v": "float64"})}
    fields = [pa.field(name, pa.binary(), nullable=nulls > 0) for name in "iv"]
    fields.append(pa.field("y", pa.int8(), nullable=False))
    return pa.table([cells(4), cells(8), [*range(rows)]], pa.schema(fields, kinds))


@pytest.mark.usefixtures("interpreted")
@pytest.mark.parametrize(
    "codec, version, nulls",
    [("none", "1.0", 0.0), ("none", "2.0", 0.3), ("zstd", "1.0", 0.3), ("lz4", "2.0", 0.0)],
)
def test_lists_in_binary_columns(
    codec: str, version: str, nulls: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All rows as written, of one and of many pages, slices and row groups, none read by pyarrow;
    a slice's cells lie one after another, so that elements need no copy."""
    monkeypatch.setattr(parquet, "_next_rows", read_by_pyarrow)
    table = listed(90, nulls)
    how: dict[str, Any] = {"data_page_version": version, "compression": codec}
    how |= {"data_page_size": 300, "write_batch_size": 8, "use_dictionary": False}
    for group, unit in ((90, 1 << 20), (40, 700), (90, 60)):
        write(tmp_path / "a.parquet", table, row_group_size=group, **how)
        made = [*batches(tmp_path / "a.parquet", [], unit, flat=True)]
        assert plain(made).to_pydict() == table.to_pydict()
        for column in (column for batch in made for column in batch.columns[:2]):
            sizes = [len(cell or b"") for cell in column.to_pylist()]
            ends = np.frombuffer(column.buffers()[1], np.int32)[: len(column) + 1]
            assert ends.tolist() == [0, *itertools.accumulate(sizes)]
            assert len(column) < 2 or column.buffers()[2].address % 8 == 0


@pytest.mark.usefixtures("interpreted")
def test_lists_that_are_too_long_for_one_buffer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """pyarrow reads them, and the rows after those that were read here."""
    table = listed(90, 0.0)
    how: dict[str, Any] = {"data_page_size": 300, "write_batch_size": 8, "use_dictionary": False}
    write(tmp_path / "a.parquet", table, **how)
    for most in (0, 150):
        monkeypatch.setattr(flat_groups, "_MOST_CELLS", most)
        made = [*batches(tmp_path / "a.parquet", [], 700, flat=True)]
        assert plain(made).to_pydict() == table.to_pydict()


@pytest.mark.usefixtures("interpreted")
def test_slices_share_a_dictionary(tmp_path: Path) -> None:
    """So that its values are hashed once."""
    write(tmp_path / "a.parquet", drawn(500, 0.0))
    made = [*batches(tmp_path / "a.parquet", TEXTS, 9_000, flat=True)]
    assert len(made) > 2
    places = {batch.column("few").dictionary.buffers()[2].address for batch in made}
    assert len(places) == 1


def test_few_values_compile_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the disk cache has no kernels, a process compiles them after some values only;
    where it has them, and while ``warm`` compiles for later processes, they are used at once."""
    groups: list[int] = []
    monkeypatch.setattr(parquet, "FLAT_VALUES", 0)
    monkeypatch.setattr(flat_groups, "FlatGroup", lambda *given: groups.append(1))
    rows = drawn(600, 0.0)
    write(tmp_path / "a.parquet", rows, row_group_size=100)
    for at_hand, left, expected in (
        (False, 10**9, 0),
        (False, 250 * rows.num_columns, 4),
        (True, 10**9, 6),
    ):
        monkeypatch.setattr(flat_groups, "is_code_reader_at_hand", lambda value=at_hand: value)
        count = ItemCount(left)
        monkeypatch.setattr(flat_groups, "values_by_pyarrow", lambda count=count: count)
        groups.clear()
        read = [*batches(tmp_path / "a.parquet", TEXTS, 9_000, flat=True)]
        assert sum(map(len, read)) == 600
        assert len(groups) == expected
    monkeypatch.setattr(flat_groups, "is_code_reader_at_hand", lambda: False)
    with recording():
        assert flat_groups.is_worth_compiling(1)


def packed(values: Any, codec: str) -> bytes:
    """Compressed as in a page."""
    name = "lz4_raw" if codec == "lz4" else codec
    return bytes(pa.compress(values.tobytes(), name, asbytes=True))


def without_gain(codec: str, rows: int) -> np.ndarray[Any, Any]:
    """Numbers that a codec compresses to as many bytes as they have."""
    draw = np.random.default_rng(1).integers(0, 256, (rows, 8)).astype(np.uint8)
    for at in range(draw.size - 40):
        values = draw.copy().reshape(-1)
        values[40 : 40 + at] = values[:at]
        if len(packed(values, codec)) == values.size:
            return values.view(np.int64)
    raise AssertionError(codec)


def as_arrow_before_3(path: Path, table: pa.Table, pages: dict[bytes, bytes], codec: str) -> None:
    """Write a file whose pages of these bytes are compressed, although their headers deny it."""
    how: dict[str, Any] = {"data_page_version": "2.0", "compression": codec}
    pq.write_table(table, path, use_dictionary=["few"], **how)
    data, by = path.read_bytes(), pq.read_metadata(path).created_by.encode()
    for page, packed in pages.items():
        assert data.count(page) == 1
        assert len(page) == len(packed)
        data = data.replace(page, packed)
    path.write_bytes(data.replace(by, b"parquet-cpp version 1.5.1-".ljust(len(by), b"0")))


@pytest.mark.usefixtures("interpreted")
@pytest.mark.parametrize("small", [True, False])
@pytest.mark.parametrize("codec", ["snappy", "lz4"])
@pytest.mark.parametrize("lists", [False, True])
def test_pages_of_arrow_before_3(
    codec: str, lists: bool, small: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its second version says of compressed pages that they are not: what it wrote is read, also
    where a page has as many bytes as it unfolds to, and in a file whose headers are checked."""
    monkeypatch.setattr(parquet_pages, "SMALL_BYTES", 1 << 22 if small else 0)
    path, values = tmp_path / "a.parquet", without_gain(codec, 200)
    pages = {values.tobytes(): packed(values, codec)}
    fields = [pa.field("n", pa.int64(), nullable=False), pa.field("few", pa.string())]
    made: list[Any] = [values, ["x", "y"] * 100]
    if lists:
        kinds = {METADATA_KEY: json.dumps({"i": "int32"})}
        cells = [bytes([*range(4 * (k % 4))]) for k in range(200)]
        schema = pa.schema([fields[0], pa.field("i", pa.binary(), nullable=False)], kinds)
        table = pa.table([values, cells], schema)
    else:
        table = pa.table(made, pa.schema(fields))
    as_arrow_before_3(path, table, pages, codec)
    assert pq.read_table(path).column("n").equals(table.column("n"))
    read = plain([*batches(path, ["few"] * (not lists), 1 << 20, flat=True)])
    assert read.to_pydict() == as_bytes(table).to_pydict()


OTHERS = {
    "lists": pa.table({"a": [[1, 2], [3]]}),
    "booleans": pa.table({"a": [True, None]}),
    "structs": pa.table({"a": [{"b": 1}, {"b": 2}]}),
    "times": pa.table({"a": pa.array([1, 2], pa.timestamp("us"))}),
    "large texts": pa.table({"a": pa.array(["x", "y"], pa.large_string())}),
    "binary": pa.table({"a": [b"x", b"y"]}),
    "half": pa.table({"a": pa.array([1.0, 2.0], pa.float16())}),
    "decimals": pa.table({"a": pa.array([1, 2], pa.decimal128(9, 2))}),
}


@pytest.mark.usefixtures("interpreted")
@pytest.mark.parametrize("name", OTHERS)
def test_other_types(name: str, tmp_path: Path) -> None:
    """pyarrow reads them, and what is next to them."""
    table = OTHERS[name].append_column("few", pa.array(["x", "y"]))
    write(tmp_path / "a.parquet", table)
    assert plain([*batches(tmp_path / "a.parquet", ["few"], 1 << 20, flat=True)]).equals(
        as_bytes(table)
    )


@pytest.mark.usefixtures("interpreted")
@pytest.mark.parametrize(
    "how",
    [
        {"compression": "gzip"}, {"compression": "brotli"},
        {"use_dictionary": False, "column_encoding": "DELTA_BYTE_ARRAY"},
        {"use_dictionary": False, "column_encoding": "DELTA_LENGTH_BYTE_ARRAY"},
    ],
)  # fmt: skip
def test_other_forms(how: Any, tmp_path: Path) -> None:
    """pyarrow reads codecs and encodings that are not read here."""
    table = pa.table({"few": ["x", "y", "x"] * 5})
    write(tmp_path / "a.parquet", table, **how)
    assert plain([*batches(tmp_path / "a.parquet", ["few"], 1 << 20, flat=True)]).equals(
        as_bytes(table)
    )


TEXTS = ["few", "many", "same"]


def outcome(path: Path, texts: list[str], *, flat: bool) -> Any:
    """The rows, or the error's type and text."""
    texts = [name for name in texts if name in pq.read_schema(path).names]
    try:
        return plain([*batches(path, texts, 700, flat=flat)])
    except Exception as error:  # of any kind: `OpenShard` explains it
        return type(error), str(error)


def spoilt(table: pa.Table, folder: Path, seed: int) -> None:
    """A file of which a few bytes of its pages are changed."""
    draw = random.Random(seed)
    how: dict[str, Any] = {"compression": draw.choice(CODECS)}
    how["data_page_version"] = draw.choice(("1.0", "2.0"))
    how["write_page_checksum"] = draw.random() < 0.2
    how["use_dictionary"] = draw.random() < 0.7
    how["dictionary_pagesize_limit"] = draw.choice((60, 1 << 20))
    how["data_page_size"] = draw.choice((100, 1 << 20))
    how["write_batch_size"] = 8
    path = folder / "a.parquet"
    write(path, table, **how)
    data = bytearray(path.read_bytes())
    end = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    for _ in range(draw.choice((1, 1, 2, 5))):
        at = draw.randrange(4, end)
        data[at] = draw.choice((draw.randrange(256), data[at] ^ (1 << draw.randrange(8)), 0, 255))
    path.write_bytes(data)


def check_spoilt(folder: Path, seeds: range) -> dict[str, int]:
    """Compare what is read of spoilt files: how many were rows and errors."""
    found = {"rows": 0, "error": 0}
    for seed in seeds:
        table = drawn(40, (0.0, 0.3)[seed % 2], seed=seed % 7, texts=seed % 3 == 0)
        table = table.select(["n0", "n4", *table.schema.names[9:]])
        if seed % 4 == 3:
            table = listed(40, (0.0, 0.3)[seed % 8 == 3], seed=seed)
        spoilt(table, folder, seed)
        ours = outcome(folder / "a.parquet", TEXTS, flat=True)
        theirs = outcome(folder / "a.parquet", TEXTS, flat=False)
        if ours != theirs:
            # Where a spoilt dictionary has a value twice, pyarrow reads other codes than there are,
            # unless it decodes plain texts.
            theirs = outcome(folder / "a.parquet", [], flat=False)
        assert ours == theirs, f"seed {seed}"
        found["rows" if isinstance(theirs, pa.Table) else "error"] += 1
    return found


@pytest.mark.usefixtures("interpreted")
def test_spoilt_pages(tmp_path: Path) -> None:
    """Rows or errors are those of pyarrow."""
    found = check_spoilt(tmp_path, range(60))
    assert min(found.values()) > 5


@pytest.mark.slow
@pytest.mark.timeout(3_600)
@pytest.mark.usefixtures("interpreted")
def test_many_spoilt_pages(tmp_path: Path) -> None:
    """As before, of thousands of files, every place in an array checked."""
    assert min(check_spoilt(tmp_path, range(100, 4_000)).values()) > 500


@pytest.mark.slow
@pytest.mark.timeout(3_600)
@pytest.mark.usefixtures("compiled")
def test_many_spoilt_pages_compiled(tmp_path: Path) -> None:
    """As before, as the code runs."""
    assert min(check_spoilt(tmp_path, range(4_000, 14_000)).values()) > 1_000


@pytest.mark.usefixtures("interpreted")
@pytest.mark.parametrize("flat", [True, False])
def test_codes_outside_of_a_dictionary(flat: bool, tmp_path: Path) -> None:
    """pyarrow's readers do not compare them: hashing would write outside of its table."""
    path = tmp_path / "a.parquet"
    how: dict[str, Any] = {"write_page_checksum": False, "compression": "none"}
    write(path, pa.table({"few": ["x", "y", "z"] * 8}), **how)
    chunk = pq.read_metadata(path).row_group(0).column(0)
    end, data = chunk.dictionary_page_offset + chunk.total_compressed_size, path.read_bytes()
    path.write_bytes(data[: end - 6] + b"\xff" * 6 + data[end:])  # 24 codes of 2 bits
    with pytest.raises(pa.ArrowInvalid, match="not in its dictionary"):
        [*batches(path, TEXTS, 1 << 20, flat=flat)]


@pytest.mark.parametrize("codec", ["snappy", "zstd"])
def test_sizes(codec: str) -> None:
    """A compressed page says how many bytes it unfolds to."""
    size = {"snappy": snappy_size, "zstd": zstd_size}[codec]
    for data in blocks():
        assert size(bytes(pa.compress(data, codec, asbytes=True))) == len(data)
    assert zstd_size(b"") == snappy_size(b"") == -1


def blocks() -> Iterator[bytes]:
    """Bytes of which nothing, some, or nearly all repeats, at short and long distances."""
    draw = np.random.default_rng(0)
    for length in (1, 12, 13, 14, 15, 16, 40, 63, 64, 65, 255, 300, 70_000):
        yield from (bytes(length), draw.bytes(length), b"ab" * length)
        yield b"".join(b"\x08\0\0\0%08x" % draw.integers(1 << 32) for _ in range(length // 12 + 1))
        for far in (3, 7, 8, 9, 15, 16, 17):
            yield (draw.bytes(far) * length)[:length] + draw.bytes(9)


IN_PYTHON = checked(unfold)


def unfolded(packed: bytes, size: int, run: Any = IN_PYTHON) -> bytes | int:
    """What an LZ4 block unfolds to in a buffer of a size, or MALFORMED; it writes nowhere else."""
    room = np.full(size + 64, 7, np.uint8)
    done = int((run() if run is unfolder else run)(np.frombuffer(packed, np.uint8), room[:size]))
    assert (room[size:] == 7).all()
    return room[:done].tobytes() if done >= 0 else MALFORMED


def by_pyarrow(packed: bytes, size: int) -> bytes | None:
    """What pyarrow's codec writes to a buffer of a size, if it accepts the block."""
    try:
        return bytes(pa.Codec("lz4_raw").decompress(packed, size, asbytes=True))
    except OSError:
        return None


def test_lz4_blocks() -> None:
    """Blocks of LZ4's own encoder; cut off, or in a buffer that is too small, they are refused."""
    for data in blocks():
        packed = bytes(pa.compress(data, "lz4_raw", asbytes=True))
        assert unfolded(packed, len(data), unfolder) == data
        assert unfolded(packed, len(data) - 1, unfolder) == MALFORMED
        if len(data) < 400:
            assert unfolded(packed, len(data)) == data
            assert unfolded(packed, len(data) - 1) == MALFORMED
            assert all(unfolded(packed[:k], len(data)) != data for k in range(len(packed)))
    assert unfolded(b"", 0) == unfolded(b"\xf0\xff", 300) == MALFORMED


def check_spoilt_blocks(seeds: range, run: Any) -> int:
    """Compare spoilt LZ4 blocks with pyarrow: how many are accepted, all with the same bytes."""
    accepted = 0
    data = [one for one in blocks() if 10 < len(one) < 400]
    for seed in seeds:
        draw = random.Random(seed)
        whole = draw.choice(data)
        packed = bytearray(bytes(pa.compress(whole, "lz4_raw", asbytes=True)))
        for _ in range(draw.choice((1, 1, 2, 5))):
            at = draw.randrange(len(packed))
            packed[at] = draw.choice((draw.randrange(256), 0, 255, packed[at] ^ 16, packed[at] ^ 1))
        size = len(whole) + draw.choice((0, 0, 1, -1))
        found = unfolded(bytes(packed), size, run)
        if not isinstance(found, int) and len(found) == size:
            assert found == by_pyarrow(bytes(packed), size), f"seed {seed}"
            accepted += 1
    return accepted


def test_spoilt_lz4_blocks() -> None:
    """What is accepted is what pyarrow decompresses, byte by byte."""
    assert check_spoilt_blocks(range(150), IN_PYTHON) > 10
    assert check_spoilt_blocks(range(150, 2_000), unfolder) > 100


@pytest.mark.slow
def test_many_spoilt_lz4_blocks() -> None:
    """As before, of more blocks."""
    assert check_spoilt_blocks(range(2_000, 20_000), IN_PYTHON) > 500
    assert check_spoilt_blocks(range(20_000, 300_000), unfolder) > 10_000
