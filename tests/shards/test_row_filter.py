"""Filters: the rows that they take, and the row groups that cannot have any."""

from __future__ import annotations

import io
import random
from typing import Any, NoReturn

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from filtering import VALUES, literally, random_filter, random_table, written

from streamomd.config.filter_text import parse_filter
from streamomd.shards.formats.parquet_footer import Bounds, group_statistics
from streamomd.shards.row_filter import bind, columns_of, outcomes, satisfied

pytestmark = pytest.mark.smoke


def refuse(at: int, problem: str) -> NoReturn:
    raise AssertionError(f"{at}: {problem}")


def footer_of(table: pa.Table, **options: Any) -> tuple[bytes, pa.Schema]:
    """The footer of a Parquet file of the table, and its schema."""
    sink = io.BytesIO()
    pq.write_table(table, sink, **options)
    data = sink.getvalue()
    length = int.from_bytes(data[-8:-4], "little")
    return data[-8 - length : -8], pq.read_schema(io.BytesIO(data))


@pytest.mark.parametrize("seed", range(60))
@pytest.mark.sample(2)
def test_a_filter_takes_the_rows_that_it_says(seed: int) -> None:
    """Read literally, row by row, in the logic of SQL; its text says the same."""
    draw = random.Random(seed)
    table = random_table(draw, 20)
    [batch] = table.to_batches()
    for _ in range(20):
        condition = random_filter(draw)
        row_filter = bind(condition, table.schema, refuse)
        found = satisfied(row_filter, batch).tolist()
        expected = [literally(condition, row) is True for row in table.to_pylist()]
        assert found == expected, written(condition)
        again = bind(parse_filter(written(condition)), table.schema, refuse)
        assert satisfied(again, batch).tolist() == expected, written(condition)


OPTIONS: list[dict[str, Any]] = [
    {},
    {"use_dictionary": False, "version": "1.0"},
    {"data_page_version": "2.0", "version": "2.4"},
    {"write_statistics": ["i8", "text", "f"]},
    {"write_statistics": False},
    {"coerce_timestamps": "ms", "allow_truncated_timestamps": True},
    {"store_schema": False},
]


@pytest.mark.parametrize("seed", range(35))
@pytest.mark.sample(2)
def test_no_row_is_lost_by_statistics(seed: int) -> None:
    """A group is dropped only if none of its rows satisfies the filter."""
    draw = random.Random(seed)
    table = random_table(draw, 24)
    options = OPTIONS[seed % len(OPTIONS)]
    if "coerce_timestamps" in options:
        table = table.drop(["us"])
    footer, schema = footer_of(table, row_group_size=4, **options)
    names = tuple(name for name in table.column_names if name in schema.names)
    groups = group_statistics(footer, schema, names)
    assert len(groups) == 6
    for _ in range(40):
        condition = random_filter(draw, 2, names)
        row_filter = bind(condition, table.schema, refuse)
        for number, group in enumerate(groups):
            rows = table.slice(4 * number, 4).to_pylist()
            possible = outcomes(row_filter, group.columns, 4)
            assert {literally(condition, row) for row in rows} <= possible, written(condition)


def test_statistics_do_leave_groups_out() -> None:
    """Of sorted columns, of every kind that is compared."""
    for name, (kind, values) in VALUES.items():
        known = [value for value in values if value == value]
        table = pa.table({name: pa.array(sorted(known), kind)})
        footer, schema = footer_of(table, row_group_size=1)
        groups = group_statistics(footer, schema, [name])
        last = pa.scalar(sorted(known)[-1], kind).as_py()
        text = f"{name} = {_literal(last)}" if abs_is_finite(last) else f"{name} > 1e308"
        row_filter = bind(parse_filter(text), table.schema, refuse)
        taken = [True in outcomes(row_filter, group.columns, 1) for group in groups]
        assert taken == [False] * (len(known) - 1) + [True], (name, groups)
        assert all(group.nbytes > 0 for group in groups)


def abs_is_finite(value: Any) -> bool:
    return not isinstance(value, float) or abs(value) < float("inf")


def _literal(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return "'" + value + "'"
    return repr(value) if isinstance(value, int | float) else value.isoformat()


def test_null_and_nan_are_in_no_bounds() -> None:
    """A group of nulls satisfies no comparison; NaN is not equal to anything."""
    table = pa.table({"x": pa.array([1.0, 1.0, None, None]), "k": [1, 1, 2, 2]})
    footer, schema = footer_of(table, row_group_size=2)
    groups = group_statistics(footer, schema, ["x", "k"])

    def taken(text: str) -> list[bool]:
        row_filter = bind(parse_filter(text), table.schema, refuse)
        return [True in outcomes(row_filter, group.columns, 2) for group in groups]

    assert taken("x = 1") == [True, False]
    assert taken("x is null") == [False, True]
    assert taken("x is not null") == [True, False]
    assert taken("x != 1") == [True, False]  # NaN may be among the values
    assert taken("k != 1") == [False, True]
    assert taken("not (k = 1 and x is not null)") == [False, True]


def test_a_footer_that_lies_ends_nothing() -> None:
    """Every byte changed in turn: an answer, or none; only forged bounds are believed."""
    table = pa.table({"x": list(range(8)), "t": [f"w{n}" for n in range(8)]})
    footer, schema = footer_of(table, row_group_size=4)
    for at in range(len(footer)):
        for value in (0, 255, footer[at] ^ 1):
            forged = footer[:at] + bytes([value]) + footer[at + 1 :]
            for group in group_statistics(forged, schema, ["x", "t"]):
                assert set(group.columns) <= {"x", "t"}
    assert group_statistics(b"", schema, ["x"]) == ()


def test_bounds_of_other_orders_are_unknown() -> None:
    """Without a column order (field 7), and of columns inside lists and structs."""
    table = pa.table({"x": [1, 2], "s": [{"x": 5}, {"x": 6}], "l": [[1], [2]]})
    footer, schema = footer_of(table)
    [group] = group_statistics(footer, schema, ["x", "s", "l", "s.x"])
    assert set(group.columns) == {"x"}
    assert group.columns["x"][:3] == (1, 2, 0)


def test_unknown_columns_may_have_any_value() -> None:
    """Nothing is dropped where nothing is known."""
    schema = pa.schema({"x": pa.int64()})
    for text in ("x = 1", "x != 1", "not x < 1", "x is null", "x in (1, 2)"):
        row_filter = bind(parse_filter(text), schema, refuse)
        assert True in outcomes(row_filter, {}, 5)
        assert columns_of(row_filter) == ["x"]
    row_filter = bind(parse_filter("x = 1"), schema, refuse)
    assert outcomes(row_filter, {"x": Bounds(nulls=5)}, 5) == {None}
