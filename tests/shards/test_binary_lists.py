"""Lists of numbers stored as binary columns: the bits of ordinary lists; malformed bytes."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from running import ROWS, everything, rows, run, train, write

from streamomd.features.lists import (
    ELEMENTS,
    METADATA_KEY,
    declared,
    decoded,
    encoded,
    list_of,
    stored_as_binary,
    with_lists,
)
from streamomd.sources.find import find

FIGURES = ("rows", "loss", "state_sha256")
NONE = ["--checkpoint", "none"]


def as_binary(table: pa.Table) -> pa.Table:
    """The table with its lists as binary columns."""
    schema = stored_as_binary(table.schema)
    return pa.Table.from_batches([encoded(one, schema) for one in table.to_batches()], schema)


def with_cells(table: pa.Table, cells: dict[str, Any], row: int) -> pa.Table:
    """A binary table with other cells in a row."""
    for name, cell in cells.items():
        column = table.column(name).to_pylist()
        column[row] = cell
        place = table.schema.get_field_index(name)
        array = pa.array(column, table.schema.field(name).type)
        table = table.set_column(place, table.schema.field(name), array)
    return table


@settings(deadline=None, max_examples=50)
@given(
    st.sampled_from(sorted(ELEMENTS)),
    st.lists(st.lists(st.integers(-9, 9), max_size=4), max_size=6),
    st.sampled_from([pa.binary(), pa.large_binary(), pa.binary_view()]),
    st.integers(0, 3),
)
def test_every_list_returns(name: str, lists: list[Any], stored: pa.DataType, skip: int) -> None:
    """Any lists of each type, from each binary type and from slices; a null cell is a null list."""
    kind = list_of(ELEMENTS[name])
    batch = pa.record_batch({"v": pa.array(lists, kind)}).slice(skip)
    schema = stored_as_binary(batch.schema)
    binary = encoded(batch, schema)
    expected = [struct.pack(f"<{len(one)}{'iqfd'[[*ELEMENTS].index(name)]}", *one) for one in lists]
    assert binary.column(0).to_pylist() == expected[skip:]
    cells = pa.array([None, *expected], stored).slice(min(skip, 1))
    found, conflicts = decoded(pa.record_batch({"v": cells}), declared(schema))
    assert found.column(0).to_pylist() == [None, *lists][min(skip, 1) :]
    assert found.schema.field("v").type == with_lists(schema).field("v").type == kind
    assert not conflicts
    found.column(0).validate(full=True)


def test_fixed_size_binary_cells_are_lists_of_one_length() -> None:
    """Four bytes each, also in a slice."""
    cells = pa.array([struct.pack("<i", k) for k in range(5)], pa.binary(4)).slice(2)
    found, _ = decoded(pa.record_batch({"i": cells}), {"i": pa.int32()})
    assert found.column(0).to_pylist() == [[2], [3], [4]]


@pytest.mark.parametrize(
    "text",
    ["", "no JSON", "[]", "{}", '{"i": 3}', '{"i": "int8"}', '{"j": "int32"}', "[" * 100_000, '"i"',
     '{"y": "int32"}', '{"i": ["int32"]}'],
)  # fmt: skip
def test_other_metadata_declares_nothing(text: str) -> None:
    """The schema is as it was."""
    schema = pa.schema([("y", pa.int64()), ("i", pa.binary())], {METADATA_KEY: text})
    assert declared(schema) == {}
    assert with_lists(schema) is schema


def test_both_forms_learn_the_same_bits(tmp_path: Path) -> None:
    """Parquet and Arrow, shards of either form in one run, and below key=value directories."""
    lists, binary = tmp_path / "lists", tmp_path / "binary"
    for name, first in (("a", 0), ("b", 1)):
        table = rows(ROWS, first=first)
        write(lists / f"{name}.parquet", table, row_group_size=10)
        write(binary / "d=1" / f"{name}.parquet", as_binary(table), row_group_size=10)
    expected = train(lists, *everything(), *NONE)
    assert pq.read_schema(binary / "d=1/a.parquet").field("i").type == pa.binary()
    arrow, mixed = tmp_path / "b.arrow", tmp_path / "mixed"
    table = as_binary(rows(ROWS, first=1))
    with pa.ipc.new_file(str(arrow), table.schema) as out:
        out.write_table(table)
    write(mixed / "a.parquet", rows(ROWS, first=0))
    (mixed / "b.arrow").write_bytes(arrow.read_bytes())
    for data in (binary, mixed):
        found = train(data, *everything(), *NONE)
        assert {key: found[key] for key in FIGURES} == {key: expected[key] for key in FIGURES}
    some = [train(data, *everything(), *NONE, "--where", "n > 0") for data in (lists, binary)]
    assert some[0]["state_sha256"] == some[1]["state_sha256"]


def test_a_run_resumes_updates_and_predicts(tmp_path: Path) -> None:
    """A ledger's record of a shard still says what its lists are; predict passes lists through."""
    for form, change in (("lists", lambda table: table), ("binary", as_binary)):
        data = tmp_path / form
        write(data / "a.parquet", change(rows(ROWS, first=0)))
        train(data, *everything(), "--checkpoint", tmp_path / f"{form}-run")
        write(data / "b.parquet", change(rows(ROWS, first=1)))
        words = ("update", tmp_path / f"{form}-run", "--settle", "0s", "--json")
        assert run(*words).result["new_rows"] == ROWS
        done = run("predict", tmp_path / f"{form}-run", data, "--keep", "i,v", "-o",
                   tmp_path / f"{form}-out")  # fmt: skip
        assert done.code == 0, done.err
    one, two = (pq.read_table(tmp_path / f"{form}-out") for form in ("lists", "binary"))
    assert one.to_pylist() == two.to_pylist()
    found = [
        run("resume", tmp_path / f"{form}-run", "--json").result for form in ("lists", "binary")
    ]
    assert found[0]["state_sha256"] == found[1]["state_sha256"]


def ints(*found: int) -> bytes:
    return struct.pack(f"<{len(found)}q", *found)


def doubles(*found: float) -> bytes:
    return struct.pack(f"<{len(found)}d", *found)


HOSTILE = {
    "truncated": ({"i": ints(3)[:-1], "v": doubles(1.0)}, "binary_list", ["'i'", "7 bytes"]),
    "one byte": ({"i": ints(), "v": b"\0"}, "binary_list", ["'v'", "1 bytes", "multiple of 8"]),
    "overlong": ({"i": ints(3), "v": doubles(1.0) + b"\0" * 3}, "binary_list", ["'v'", "11 bytes"]),
    "both": ({"i": b"x", "v": b"y"}, "binary_list", ["'i'", "1 bytes"]),
    "two values": ({"i": ints(3), "v": doubles(1.0, 2.0)}, "ragged", ["'i'", "1 indices and 2"]),
    "no values": ({"i": ints(3), "v": b""}, "ragged", ["'i'", "1 indices and 0 values"]),
    "null": ({"i": None, "v": doubles(1.0)}, "ragged", ["0 indices and 1 values"]),
    "too large": ({"i": ints(100), "v": doubles(1.0)}, "index", ["'i'", "index 100", "size 100"]),
    "far": ({"i": ints(2**62), "v": doubles(1.0)}, "index", ["'i'", "index 4611686018427387904"]),
    "negative": ({"i": ints(-1), "v": doubles(1.0)}, "negative_index", ["'i'", "index -1"]),
    "NaN": ({"i": ints(3), "v": doubles(float("nan"))}, "nan", ["'v'", "nan"]),
    "infinite": ({"i": ints(3), "v": doubles(float("inf"))}, "inf", ["'v'", "inf"]),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_bytes_that_are_no_row_are_bad_rows(name: str, tmp_path: Path) -> None:
    """Shard, row and column are named; with skip the row is counted, and the others are learned."""
    cells, reason, words = HOSTILE[name]
    table = rows(ROWS)
    bad = write(tmp_path / "bad/a.parquet", with_cells(as_binary(table), cells, 17),
                row_group_size=10)  # fmt: skip
    refused = run("train", bad.parent, *everything(), *NONE)
    assert refused.code == 2
    for word in ("a.parquet, row 17, column", *words):
        assert word in refused.err
    found = train(bad.parent, *everything(), *NONE, "--on-bad-row", "skip")
    assert found["skipped"] == {reason: 1}
    good = write(tmp_path / "good/a.parquet", table.take([k for k in range(ROWS) if k != 17]))
    assert found["state_sha256"] == train(good.parent, *everything(), *NONE)["state_sha256"]


def test_unsorted_and_equal_indices_are_as_in_lists(tmp_path: Path) -> None:
    """They are sorted, equal ones summed."""
    table = rows(ROWS).set_column(6, "i", pa.array([[7, 3, 7]] * ROWS))
    table = table.set_column(7, "v", pa.array([[1.0, 2.0, 0.5]] * ROWS))
    for name, form in (("lists", table), ("binary", as_binary(table))):
        write(tmp_path / name / "a.parquet", form)
    one, two = (train(tmp_path / name, *everything(), *NONE) for name in ("lists", "binary"))
    assert one["state_sha256"] == two["state_sha256"]


def test_undeclared_binary_columns_are_refused(tmp_path: Path) -> None:
    """The error names the key of the metadata."""
    table = as_binary(rows(ROWS)).replace_schema_metadata(None)
    write(tmp_path / "data/a.parquet", table)
    refused = run("train", tmp_path / "data", *everything(), *NONE)
    assert refused.code == 2
    assert "sparse.indices takes lists of integers" in refused.err
    assert METADATA_KEY.decode() in refused.err


@pytest.mark.parametrize("form", ["parquet", "arrow"])
@pytest.mark.parametrize("size", [[], ["--shards", "2"], ["--size", "50"]])
def test_convert_writes_them(form: str, size: list[str], tmp_path: Path) -> None:
    """The rows of ordinary lists; the metadata says of which numbers, and the size."""
    text = "".join(f"{k % 2} {k % 7}:{k}.5 {10 + k % 9}:-1\n" for k in range(30))
    source = tmp_path / "rows.svm"
    source.write_text(text + "1\n")
    kinds = {"lists": [], "binary": ["--lists-as", "binary"]}
    for name, words in kinds.items():
        done = run("convert", source, "--from", "svmlight", "-o", tmp_path / name, "--as", form,
                   *size, *words)  # fmt: skip
        assert done.code == 0, done.err
    shards = find(str(tmp_path / "binary")).shards
    metadata = shards[0].stored_schema.metadata
    assert json.loads(metadata[METADATA_KEY]) == {"indices": "int32", "values": "float64"}
    assert metadata[b"streamomd.size"] == (b"50" if "--size" in size else b"19")
    assert {str(kind) for kind in shards[0].stored_schema.types} == {"double", "binary"}
    assert shards[0].schema.types == find(str(tmp_path / "lists")).shards[0].schema.types
    if form == "parquet":
        table = pq.read_table(shards[0].path)
        cell = table["values"][3].as_py()
        assert np.frombuffer(cell, "<f8").tolist() == [3.5, -1.0]


def test_convert_refuses_lists_that_may_have_nulls(tmp_path: Path) -> None:
    """csv and jsonl are refused before a row is read."""
    source = tmp_path / "rows.jsonl"
    source.write_text('{"y": 1, "v": [1, null]}\n')
    refused = run("convert", source, "-o", tmp_path / "out", "--lists-as", "binary")
    assert refused.code == 2
    assert "svmlight and vw" in refused.err
