"""Fields of structs by path: tables, stored rows and mappings agree, whatever is null."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from running import run, write

import streamomd
from streamomd.core.errors import SchemaError
from streamomd.features.arrow_types import roots, selected, table_with_fields, with_fields
from streamomd.training.scoring.row_values import flat_row

NAMES = ("a", "b", "a.b", "c")
LEAVES = st.sampled_from([pa.int64(), pa.string(), pa.list_(pa.string())])
KINDS = st.recursive(
    LEAVES,
    lambda inner: st.lists(st.tuples(st.sampled_from(NAMES), inner), max_size=3, unique_by=lambda
                           one: one[0]).map(pa.struct),
    max_leaves=6,
)  # fmt: skip


def values(kind: pa.DataType) -> st.SearchStrategy[Any]:
    """Values of a type, null at any depth."""
    if pa.types.is_struct(kind):
        return st.none() | st.fixed_dictionaries({field.name: values(field.type) for field in kind})
    if pa.types.is_list(kind):
        return st.none() | st.lists(st.sampled_from("xy"), max_size=2)
    return st.none() | (st.integers(0, 9) if pa.types.is_integer(kind) else st.sampled_from("xy"))


def inside(value: Any, path: tuple[str, ...]) -> Any:
    """What is at a path of names; None inside None."""
    for name in path:
        value = None if value is None else value[name]
    return value


def paths(kind: pa.DataType) -> list[tuple[str, ...]]:
    """The names that lead to each field of a type, and none to itself."""
    found: list[tuple[str, ...]] = [()]
    if pa.types.is_struct(kind):
        found += [(field.name, *rest) for field in kind for rest in paths(field.type)]
    return found


@settings(max_examples=100, deadline=None)
@given(data=st.data(), kinds=st.lists(KINDS, min_size=1, max_size=3))
def test_each_field_is_a_column(data: Any, kinds: list[pa.DataType]) -> None:
    """Every way to a field gives what is at its path; a stored column of that name comes first."""
    fields = [pa.field(name, kind) for name, kind in zip("abc", kinds, strict=False)]
    if data.draw(st.booleans()):
        fields.append(pa.field("a.b", pa.int64()))
    stored = pa.schema(fields)
    rows = [{one.name: data.draw(values(one.type)) for one in stored} for _ in range(3)]
    table = pa.Table.from_pylist(rows, stored).slice(1)
    flat = table_with_fields(table)
    schema = with_fields(stored)
    assert flat.schema.names == schema.names
    assert flat.schema.types == schema.types
    where = {
        ".".join((field.name, *path)): (field.name, path)
        for field in reversed(stored)
        for path in reversed(paths(field.type))
    } | {name: (name, ()) for name in stored.names}
    once = [name for name in schema.names if schema.names.count(name) == 1]
    (batch,) = table.combine_chunks().to_batches()
    chosen = data.draw(st.lists(st.sampled_from(once), unique=True))
    assert {*roots(stored, chosen)} == {where[name][0] for name in chosen}
    for name, column in zip(chosen, selected(batch, chosen).columns, strict=True):
        first, path = where[name]
        expected = [inside(row[first], path) for row in rows[1:]]
        assert column.to_pylist() == flat.column(name).to_pylist() == expected
        assert [flat_row(row, [name])[name] for row in rows[1:]] == expected


def test_strings_with_a_value_each_get_a_hint(tmp_path: Path) -> None:
    """The hint names identifiers and texts apart; none of columns that the job names, of few rows,
    or of repeated values."""
    count = 200
    columns = {
        "y": np.arange(count) % 2,
        "user": [f"u{row}" for row in range(count)],
        "note, long": [f"the note of row {row}" for row in range(count)],
        "city": [f"c{row % 90}" for row in range(count)],
    }
    path = write(tmp_path / "a.parquet", columns)
    line = (
        "hint: nearly every row has its own value in 'user', 'note, long', hashed as categories: "
        "pass --text '\"note, long\"' to split texts into words, --ignore user for identifiers"
    )
    job = [path, "--label", "y", "--checkpoint", "none"]
    done = run("train", *job)
    assert line in done.err.splitlines()
    assert line in run("plan", *job[:3]).out.splitlines()
    named = run("train", *job, "--hashed", "user,city")
    used = run("train", *job, "--text", '"note, long"', "--ignore", "user")
    assert named.code == used.code == 0
    assert "hint" not in named.err + used.err
    few = write(tmp_path / "b.parquet", {name: values[:99] for name, values in columns.items()})
    assert "hint" not in run("train", few, *job[1:]).err


def test_nulls_of_labels_and_weights(tmp_path: Path) -> None:
    """The message says which filter leaves such rows out, and the filter does."""
    for name, values in {"y": [0, 1, None] * 4, "my label": [0.5, 1.25, None] * 4}.items():
        path = write(tmp_path / f"{name}.parquet", {name: values, "n": range(12), "w": [1.0] * 12})
        job = [path, "--label", name, "--weight", "w", "--checkpoint", "none"]
        done = run("train", *job)
        shown = f'"{name}" is not null' if " " in name else f"{name} is not null"
        assert done.code == 2
        assert f"(--where '{shown}')" in done.err
        assert "data.nulls" not in done.err
        assert run("train", *job, "--where", shown).code == 0
    path = write(tmp_path / "w.parquet", {"y": [0, 1] * 6, "n": range(12), "w": [1.0, None] * 6})
    done = run("train", path, "--label", "y", "--weight", "w", "--checkpoint", "none")
    assert "column 'w': found null" in done.err
    assert "--where 'w is not null'" in done.err


def test_the_printed_flags_make_it_a_run(tmp_path: Path) -> None:
    """The flags at the end of the message, given to the command, train."""
    columns = {
        "y": [0, 1] * 6, "n": range(12), "a,b": pa.array(range(12), pa.date32()),
        "e f": [[1.0]] * 12, "id": [str(row) for row in range(12)],
    }  # fmt: skip
    path = write(tmp_path / "a.parquet", columns)
    job = [path, "--label", "y", "--checkpoint", "none"]
    done = run("train", *job, "--ignore", "id")
    line = next(one for one in done.err.splitlines() if one.startswith("as flags: "))
    assert line == "as flags: --dates '\"a,b\"' --ignore 'id,e f'"
    assert run("train", *job, "--dates", '"a,b"', "--ignore", "id,e f").code == 0


def test_frames_of_estimators_and_of_dask(tmp_path: Path) -> None:
    """Fields of structs are features of a frame, whose columns are its own."""
    from streamomd.integrations.sklearn import OMDClassifier

    rows = [{"city": "xyz"[row % 3], "z": row / 9.0} for row in range(60)]
    tags = [["a", "b"][: row % 3] for row in range(60)]
    X = pd.DataFrame({"geo": rows, "tags": tags})
    y = np.arange(60) % 3 == 0
    fitted = OMDClassifier(nulls="zero", shuffle=False, early_stopping=False).fit(X, y)
    assert [*fitted.feature_names_in_] == ["geo", "tags"]
    path = write(tmp_path / "a.parquet", pa.Table.from_pandas(X.assign(y=y)))
    model = streamomd.train(str(path), label="y", nulls="zero", checkpoint="none", quiet=True)
    assert (fitted.decision_function(X) == model.decision_function(X)).all()
    nothing = X.assign(geo=None)[:2]
    assert (model.decision_function(nothing) == model.decision_function(
        [{"geo": None, "tags": one} for one in tags[:2]])).all()  # fmt: skip
    with pytest.raises(SchemaError) as error:
        OMDClassifier().fit(X.assign(e=[[1.0]] * 60, d=[pd.Timestamp("2026-01-01").date()] * 60), y)
    assert str(error.value).endswith('\nas parameters:\n  ignore = ["e"]')  # d: a date
    dd = pytest.importorskip("dask.dataframe")
    import dask

    with dask.config.set({"dataframe.convert-string": False}):  # of objects, before we see them
        frame = dd.from_pandas(X.assign(y=y), npartitions=2)
        spread = streamomd.train(frame, label="y", nulls="zero", checkpoint="none", quiet=True)
        assert (spread.decision_function(X) == model.decision_function(X)).all()
        found = streamomd.predict_collection(spread, frame).compute()
        assert (found["score"].to_numpy() == model.decision_function(X)).all()
