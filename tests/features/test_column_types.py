"""Every Arrow type in every role: it is learned, or refused by name together with all others."""

from __future__ import annotations

import datetime
import decimal
import itertools
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from running import run, write

import streamomd
from streamomd.config.data_table import Data
from streamomd.config.model_table import Model
from streamomd.core.errors import SchemaError
from streamomd.features.arrow_types import family, with_fields
from streamomd.features.infer_plan import make_plan
from streamomd.features.numeric import BadRows, CheckedValues, numbers

N = 12
TYPES = (
    pa.int8(), pa.uint64(), pa.float16(), pa.float64(), pa.bool_(), pa.string(), pa.large_string(),
    pa.string_view(), pa.binary(), pa.decimal128(9, 2), pa.decimal256(40, 3), pa.duration("ms"),
    pa.time32("s"), pa.time64("ns"), pa.date32(), pa.date64(), pa.timestamp("us"),
    pa.timestamp("ns", "Asia/Tokyo"), pa.dictionary(pa.int32(), pa.string()),
    pa.dictionary(pa.int8(), pa.int64()), pa.list_(pa.string()), pa.list_(pa.float64()),
    pa.large_list(pa.int64()), pa.list_(pa.float32(), 2), pa.list_(pa.string(), 2),
    pa.struct([("a", pa.int64())]), pa.map_(pa.string(), pa.int64()), pa.null(), pa.binary(4),
    pa.list_(pa.binary()), pa.large_list(pa.string()), pa.list_(pa.bool_()), pa.list_(pa.date32()),
    pa.list_(pa.list_(pa.string())), pa.list_(pa.dictionary(pa.int32(), pa.string())),
    pa.list_(pa.struct([("a", pa.int64())])), pa.struct([]), pa.list_view(pa.string()),
    pa.struct([("a", pa.struct([("b", pa.list_(pa.string())), ("c", pa.bool_())]))]),
)  # fmt: skip
LISTS = {"list<string>", "vector<string>[2]"}
NUMBERS = {"list<float>", "list<integer>", "vector<float>[2]"}
ROLES = {
    "": {"integer", "float", "boolean", "string", "decimal", "duration", "time", *LISTS},
    "numeric": {"integer", "float", "boolean", "decimal", "duration", "time"},
    "hashed": {
        "integer", "float", "boolean", "string", "binary", "list<binary>", "list<boolean>",
        *LISTS, *NUMBERS,
    },
    "text": {"string", "binary"},
    "dates": {"date", "timestamp", "timestamp with a zone"},
    "vectors": NUMBERS,
}  # fmt: skip
"""Families that a role takes."""


def takes(role: str, kind: pa.DataType) -> bool:
    """Whether a type may have a role; without one, the fields of a struct are columns."""
    if role == "" and pa.types.is_struct(kind) and kind.num_fields:
        return all(takes(role, field.type) for field in kind)
    return family(kind) in ROLES[role]


def plan_of(roles: dict[str, tuple[str, pa.DataType]]) -> Any:
    """The plan of columns by name with their role and type, and a number."""
    named: dict[str, list[str]] = {}
    for name, (role, _) in roles.items():
        named.setdefault(role, []).append(name)
    named.pop("", None)
    kinds = [(name, kind) for name, (_, kind) in roles.items()]
    data = Data(label="y", **named)
    schema = with_fields(pa.schema([("y", pa.bool_()), *kinds]))
    return make_plan(data, Model(), schema, list, longest_list=lambda _: 3)


@pytest.mark.parametrize("role", ROLES)
def test_a_type_in_a_role(role: str) -> None:
    """It has coordinates, or the message names the column, its type and what to do."""
    wrong: list[tuple[pa.DataType, Any]] = []
    for kind in TYPES:
        try:
            features = {name.partition(".")[0] for name in plan_of({"c": (role, kind)}).features}
        except SchemaError as error:
            named = f"column 'c' is {kind}: " in str(error) and "add it to ignore" in str(error)
            wrong += [] if named and not takes(role, kind) else [(kind, error)]
        else:
            wrong += [] if takes(role, kind) and features == {"c"} else [(kind, features)]
    assert not wrong


@settings(max_examples=60, deadline=None)
@given(chosen=st.lists(st.tuples(st.sampled_from(["", "dates", "text"]), st.sampled_from(TYPES))))
def test_all_columns_are_refused_together(chosen: list[tuple[str, pa.DataType]]) -> None:
    """One message has a line for each column that does not fit, and none for the others."""
    roles = {f"c{at}": one for at, one in enumerate(chosen)} | {"n": ("", pa.float64())}
    wrong = [name for name, (role, kind) in roles.items() if not takes(role, kind)]
    if not wrong:
        assert plan_of(roles).numeric
        return
    with pytest.raises(SchemaError) as error:
        plan_of(roles)
    text = str(error.value)
    assert [name for name in roles if f"column {name!r} is " in text] == wrong


def test_the_printed_keys_make_it_a_job(tmp_path: Path) -> None:
    """The table at the end of the message, put into a job, trains."""
    columns = {
        "y": np.arange(N) % 2, "n": np.arange(N) * 1.0, 'a "day"': pa.array(range(N), pa.date32()),
        "tags": [[1.0]] * N, "geo": pa.array([[("a", 1)]] * N, pa.map_(pa.string(), pa.int64())),
        "id": np.arange(N),
    }  # fmt: skip
    path = write(tmp_path / "a.parquet", columns)
    base: dict[str, Any] = {"shards": str(path), "label": "y", "ignore": ["id"]}
    with pytest.raises(SchemaError) as error:
        streamomd.train({"data": base}, checkpoint="none", quiet=True)
    printed = tomllib.loads(str(error.value).partition("[data]\n")[2])
    assert printed == {"dates": ['a "day"'], "ignore": ["id", "tags", "geo"]}
    model = streamomd.train({"data": base | printed}, checkpoint="none", quiet=True)
    assert model.plan.features == ("n", 'a "day"')


def test_all_missing_columns_are_named(tmp_path: Path) -> None:
    """One run reports each name that the shard lacks."""
    path = write(tmp_path / "a.parquet", {"y": np.arange(N) % 2, "age": np.arange(N)})
    done = run("train", path, "--label", "y", "--numeric", "aeg,agee", "--ignore", "id")
    assert done.code == 2
    assert all(f"no column {name!r}" in done.err for name in ("aeg", "agee", "id"))


MEASURED: dict[str, tuple[pa.Array, list[float | None]]] = {
    "decimal": (
        pa.array([decimal.Decimal("1.25"), None], pa.decimal128(9, 2)), [1.25, None]
    ),
    "duration": (pa.array([1500, None], pa.duration("ms")), [1.5, None]),
    "negative": (pa.array([datetime.timedelta(days=-1), None]), [-86400.0, None]),
    "time32": (pa.array([61_001, None], pa.time32("ms")), [61.001, None]),
    "time64": (pa.array([datetime.time(1, 2, 3, 500_000), None]), [3723.5, None]),
}  # fmt: skip


@pytest.mark.parametrize("name", MEASURED)
def test_measures_are_numbers(name: str) -> None:
    """Decimals are the nearest float64, durations and times seconds; null follows data.nulls."""
    array, expected = MEASURED[name]
    for nulls, gone in (("zero", 0.0), ("mean", np.nan)):
        flaws = BadRows(2)
        found = numbers(array, CheckedValues(flaws, "c"), nulls)
        want = [gone if value is None else value for value in expected]
        np.testing.assert_array_equal(found, want)
        assert not flaws
    flaws = BadRows(2)
    numbers(array, CheckedValues(flaws, "c"), "error")
    assert flaws


def test_numbers_differ_in_type_from_file_to_file(tmp_path: Path) -> None:
    """Whole numbers, floats (a null among whole numbers in pandas) and decimals: one run."""
    values = {"int": np.arange(N), "float": np.arange(N) * 1.0, "decimal": [decimal.Decimal(3)] * N}
    for at, order in enumerate(itertools.permutations(values)):
        for place, kind in enumerate(order):
            columns = {"y": np.arange(N) % 2, "c": values[kind]}
            write(tmp_path / f"{at}" / f"{place}.parquet", columns)
        assert run("train", tmp_path / f"{at}", "--label", "y", "--checkpoint", "none").code == 0
