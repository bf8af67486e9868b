"""How convert stores columns: what reads fast, and the same rows as ever."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from streamomd.config.data_table import Data
from streamomd.config.model_table import Model
from streamomd.core.errors import DataError, UsageError
from streamomd.features import make_plan
from streamomd.sources.find import find
from streamomd.sources.text.convert import convert
from streamomd.sources.text.output_formats import SAMPLE, stored
from streamomd.training.row_stream import rows_of

ROWS = 600
LINES = "few,many,n,s,text\n" + "".join(
    f"{i % 2}.5,{i * 1.7},{i},t{i % 9},{i} is {'written in words ' * 5}\n" for i in range(ROWS)
)


def pairs(seed: int, size: int = 5000) -> str:
    """svmlight text of rows of 0 … 9 pairs, distinct and ascending."""
    draw = np.random.default_rng(seed)
    lines = []
    for _ in range(ROWS):
        places = np.sort(draw.choice(size, draw.integers(0, 10), replace=False))
        values = draw.standard_normal(len(places)).round(6)
        found = [f"{i}:{v}" for i, v in zip(places, values, strict=True)]
        lines.append(" ".join([str(draw.choice([-1, 1])), *found]))
    return "\n".join(lines)


def written(tmp_path: Path, text: str, source_format: str) -> str:
    """The only shard that convert makes of a text."""
    source = tmp_path / "rows.txt"
    source.write_text(text)
    options = {"size": 5000} if source_format == "svmlight" else {}
    done = convert([str(source)], source_format=source_format, to=str(tmp_path / "out"), **options)
    assert len(done.shards) == 1
    return done.shards[0]


def chunks(path: str) -> dict[str, tuple[str, set[str]]]:
    """Codec and encodings of each column."""
    group = pq.read_metadata(path).row_group(0)
    columns = [group.column(at) for at in range(group.num_columns)]
    return {c.path_in_schema: (c.compression, {*c.encodings} - {"RLE"}) for c in columns}


def test_columns_are_stored_by_what_they_hold(tmp_path):
    """Of csv: dictionaries, but for numbers that vary and texts."""
    assert chunks(written(tmp_path, LINES, "csv")) == {
        "few": ("LZ4", {"PLAIN", "RLE_DICTIONARY"}),
        "many": ("LZ4", {"PLAIN"}),
        "n": ("LZ4", {"PLAIN", "RLE_DICTIONARY"}),
        "s": ("LZ4", {"PLAIN", "RLE_DICTIONARY"}),
        "text": ("LZ4", {"PLAIN"}),
    }


@pytest.mark.parametrize("form, codec", [("zstd", "ZSTD"), ("none", None)])
def test_compression_of_all_columns_is_chosen(tmp_path, form, codec):
    """The rows are the same; of Arrow files nothing is compressed."""
    source = tmp_path / "rows.csv"
    source.write_text(LINES)
    tables, sizes = [], []
    for number, given in enumerate([{}, {"compression": form}]):
        to = str(tmp_path / f"out-{number}")
        (path,) = convert([str(source)], source_format="csv", to=to, **given).shards
        tables.append(pq.read_table(path))
        sizes.append(Path(path).stat().st_size)
    assert {found for found, _ in chunks(path).values()} == {codec or "UNCOMPRESSED"}
    assert tables[0].equals(tables[1])
    assert (sizes[1] > sizes[0]) == (form != "zstd")
    with pytest.raises(UsageError, match="compression is for Parquet"):
        convert([str(source)], source_format="csv", to=to + "-", form="arrow", compression=form)


def test_fields_of_structs_are_compressed(tmp_path):
    """Each leaf of a nested column is stored as a column of its type is."""
    rows = [{"a": {"b": f"t{at % 9}", "c": ["x", "y"], "d": at}, "n": [[at]]} for at in range(99)]
    batch, path = pa.RecordBatch.from_pylist(rows), str(tmp_path / "a.parquet")
    pq.write_table(pa.Table.from_batches([batch]), path, **stored(batch, "zstd"))
    found = chunks(path)
    assert found.keys() == {"a.b", "a.c.list.element", "a.d", "n.list.element.list.element"}
    assert {codec for codec, _ in found.values()} == {"ZSTD"}
    assert pq.read_table(path).to_pylist() == rows


def test_unknown_compression_is_refused(tmp_path):
    """With the nearest name."""
    with pytest.raises(UsageError, match=r"unknown compression 'zst'.*zstd"):
        convert(["rows.csv"], source_format="csv", to=str(tmp_path), compression="zst")


@pytest.mark.parametrize(
    "values, plain",
    [
        ([f"{at} {'word ' * 20}" for at in range(100)], True),
        ([f"{at % 9} {'word ' * 20}" for at in range(100)], False),
        ([f"{at} short" for at in range(100)], False),
        ([None] * 100, False),
        ([], False),
    ],
)
def test_texts_are_plain(values, plain):
    """Strings that are long on average and differ; others are dictionaries."""
    for kind in (pa.string(), pa.large_string()):
        found = stored(pa.record_batch({"x": pa.array(values, kind)}))
        assert found["column_encoding"] == ({"x": "PLAIN"} if plain else {})


def test_pairs_are_stored_by_what_they_hold(tmp_path):
    """Of svmlight: indices that vary by their differences, values as they are; all by LZ4."""
    assert chunks(written(tmp_path, pairs(0), "svmlight")) == {
        "label": ("LZ4", {"PLAIN", "RLE_DICTIONARY"}),
        "indices.list.element": ("LZ4", {"DELTA_BINARY_PACKED"}),
        "values.list.element": ("LZ4", {"PLAIN"}),
    }


def test_pairs_of_few_kinds_are_dictionaries(tmp_path):
    """Indices and values that are few are said once each."""
    path = written(tmp_path, "\n".join(["1 3:1 7:1"] * ROWS), "svmlight")
    assert all(one == ("LZ4", {"PLAIN", "RLE_DICTIONARY"}) for one in chunks(path).values())


@pytest.mark.parametrize(
    "text, source_format", [(pairs(1), "svmlight"), ("1 |a x:2 y\n-1 0.5 |b z\n1 |\n", "vw")]
)
def test_pairs_hold_no_nulls(tmp_path, text, source_format):
    """Labels, weights, lists and what is in them are required: a reader need not look."""
    schema = pq.read_schema(written(tmp_path, text, source_format))
    assert not any(field.nullable for field in schema)
    assert not any(kind.value_field.nullable for kind in schema.types[-2:])


def encoded(path: str) -> list[np.ndarray]:
    """The rows of a shard of pairs as the engine takes them."""
    shards = find(path)
    data = {"label": "label", "sparse": {"indices": "indices", "values": "values", "size": 5000}}
    spec = Data.model_validate(data), Model.model_validate({"loss": "logistic"})
    plan = make_plan(*spec, shards.shards[0].schema, lambda: [-1, 1])
    batches = [piece.value.batch for piece in rows_of(plan, shards, [0])]
    parts = [(np.diff(b.indptr), b.indices, b.values, b.y) for b in batches]
    return [np.concatenate(part) for part in zip(*parts, strict=True)]


def test_the_layout_changes_no_bit(tmp_path):
    """The rows as the engine takes them are those of the layout that convert once wrote."""
    path = written(tmp_path, pairs(2), "svmlight")
    table = pq.read_table(path)
    lists = {"indices": pa.list_(pa.int32()), "values": pa.list_(pa.float64())}
    once = pa.schema([(name, lists.get(name, pa.float64())) for name in table.schema.names])
    before = str(tmp_path / "before.parquet")
    pq.write_table(table.cast(once), before, compression="zstd")
    for one, two in zip(encoded(path), encoded(before), strict=True):
        assert one.dtype == two.dtype
        assert one.tobytes() == two.tobytes()


def test_no_damage_goes_unnoticed(tmp_path):
    """LZ4 and plain numbers do not detect a flipped bit: pages have a checksum."""
    path = Path(written(tmp_path, pairs(3), "svmlight"))
    whole, group = path.read_bytes(), pq.read_metadata(path).row_group(0)
    for chunk in (group.column(1), group.column(2)):
        assert chunk.total_compressed_size > 1000
        end = chunk.data_page_offset + chunk.total_compressed_size
        for at in range(chunk.data_page_offset + 200, end, chunk.total_compressed_size // 9):
            path.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
            with pytest.raises(DataError, match=r"cannot be decoded"):
                encoded(str(path))
    path.write_bytes(whole)
    assert len(encoded(str(path))[3]) == ROWS


@pytest.mark.parametrize(
    "values, encoding",
    [
        (np.arange(SAMPLE) % 100 * 0.1, None),
        (np.arange(SAMPLE) * 0.1, "PLAIN"),
        (np.zeros(0), None),
        (np.full(10, np.nan), None),
    ],
)
def test_numbers_of_few_values_are_dictionaries(values, encoding):
    """The first values of a column decide whether it has few distinct values."""
    found = stored(pa.record_batch({"x": pa.array(values)}))
    assert found["column_encoding"].get("x") == encoding
    assert found["use_dictionary"] == ([] if encoding else ["x"])


@pytest.mark.parametrize("name", ["a.b", "ä b", "x.list.element", "`", ""])
def test_names_are_paths(tmp_path, name):
    """A column is stored alike whatever its name."""
    batch = pa.record_batch({name: np.arange(100) * 0.1, "other": np.arange(100) % 2})
    path = str(tmp_path / "a.parquet")
    pq.write_table(pa.Table.from_batches([batch]), path, **stored(batch))
    assert next(iter(chunks(path).values())) == ("LZ4", {"PLAIN"})
    assert pq.read_table(path).to_batches()[0].equals(batch)
