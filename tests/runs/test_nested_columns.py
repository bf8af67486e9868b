"""Columns of lists and structs, from files to predictions: the bits of flat columns."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from running import run, train, write

import streamomd
from streamomd.core.errors import BadRowError, SchemaError, UnsupportedError

ROWS = 150
INNER = pa.struct([("z", pa.float64()), ("tags", pa.list_(pa.string()))])
GEO = pa.struct([("city", pa.string()), ("in", INNER), ("big", pa.binary())])
SCHEMA = pa.schema(
    [("y", pa.int64()), ("n", pa.float64()), ("geo", GEO), ("words", pa.list_(pa.string())),
     ("v", pa.list_(pa.float64()))]
)  # fmt: skip
FIELDS = ("geo.city", "geo.in.z", "geo.in.tags")


def nested(first: int = 0, count: int = ROWS) -> pa.Table:
    """Rows with a struct in a struct, lists of strings, and lists of one to three numbers."""
    draw = np.random.default_rng([5, first])
    found = []
    for row in range(count):
        tags = draw.choice([None, "a", "b", "c"], draw.integers(0, 4)).tolist()
        inner = {"z": float(draw.normal()), "tags": tags if draw.random() < 0.8 else None}
        city = draw.choice(["x", "y", None])
        geo = {"city": city, "in": inner if draw.random() < 0.8 else None, "big": b"." * 50}
        words = draw.choice(["one", "two", "three"], draw.integers(0, 4)).tolist()
        numbers = draw.normal(size=1 + row % 3).tolist()
        geo_or_none = geo if draw.random() < 0.8 else None
        y = int(row % 2 if draw.random() < 0.3 else numbers[0] > 0)
        found.append([y, float(draw.normal()), geo_or_none, words, numbers])
    return pa.Table.from_pylist(
        [dict(zip(SCHEMA.names, row, strict=True)) for row in found], SCHEMA
    )


def flat(table: pa.Table) -> pa.Table:
    """The same rows with the fields as columns, and vectors of one length."""
    rows = []
    for row in table.to_pylist():
        geo = row["geo"] or {}
        inner = geo.get("in") or {}
        fields = [geo.get("city"), inner.get("z"), inner.get("tags")]
        vector = row["v"] + [0.0] * (3 - len(row["v"]))
        rows.append([row["y"], row["n"], *fields, row["words"], vector])
    kinds = [pa.string(), pa.float64(), pa.list_(pa.string())]
    schema = pa.schema(
        [("y", pa.int64()), ("n", pa.float64()), *zip(FIELDS, kinds, strict=True),
         ("words", pa.list_(pa.string())), ("v", pa.list_(pa.float64(), 3))]
    )  # fmt: skip
    return pa.Table.from_pylist([dict(zip(schema.names, row, strict=True)) for row in rows], schema)


def flags(*more: object) -> list[str]:
    roles = ["--numeric", "n,geo.in.z", "--hashed", "geo.city,geo.in.tags,words", "--vectors", "v"]
    given = ["--label", "y", *roles, "--nulls", "indicator", "--rule", "nag", "--bits", "8"]
    return [*given, *map(str, more)]


def write_arrow(path: Path, table: pa.Table) -> Path:
    with pa.ipc.new_file(str(path), table.schema) as file:
        file.write_table(table, max_chunksize=40)
    return path


@pytest.mark.parametrize("form", ["parquet", "arrow"])
def test_fields_and_lists_have_the_bits_of_flat_columns(tmp_path: Path, form: str) -> None:
    """Training, predictions of files, and rows in memory of every kind."""
    table = nested()
    if form == "parquet":
        path = write(tmp_path / "nested.parquet", table, row_group_size=40)
    else:
        path = write_arrow(tmp_path / "nested.arrow", table)
    plain = write(tmp_path / "flat.parquet", flat(table), row_group_size=40)
    one, other = tmp_path / "one", tmp_path / "other"
    found = train(path, *flags("--checkpoint", one))
    assert found["state_sha256"] == train(plain, *flags("--checkpoint", other))["state_sha256"]
    out = tmp_path / "out"
    assert run("predict", one, path, "--to", out, "--keep", "geo,geo.city").code == 0
    read = pq.read_table(out)
    assert read.column("geo").to_pylist() == table.column("geo").to_pylist()
    assert read.column("geo.city").to_pylist() == flat(table).column("geo.city").to_pylist()
    score = read.column("score").to_numpy()
    model, rows = streamomd.load(str(one)), table.to_pylist()
    scorer = model.scorer()
    for given in (table, rows, table.to_pandas(), flat(table).to_pylist()):
        assert model.decision_function(given).tobytes() == score.tobytes()
    assert np.array([scorer.score(row) for row in rows]).tobytes() == score.tobytes()


def test_a_list_of_strings_is_a_text_of_its_words(tmp_path: Path) -> None:
    """Each element has the coordinate of the word, and counts as often as it occurs."""
    table = nested().select(["y", "n", "words"])
    texts = [" ".join(words) for words in table.column("words").to_pylist()]
    write(tmp_path / "lists.parquet", table)
    write(tmp_path / "texts.parquet", table.set_column(2, "words", pa.array(texts)))
    data: dict[str, Any] = {"label": "y", "bits": 8, "shards": str(tmp_path / "lists.parquet")}
    text = [{"column": "words", "counts": "count"}]
    models = [
        streamomd.train({"data": one, "model": {"rule": "nag"}}, checkpoint="none", quiet=True)
        for one in (data, {**data, "text": text, "shards": str(tmp_path / "texts.parquet")})
    ]
    assert models[0].plan.hashed == models[0].plan.hashed_lists == ("words",)
    np.testing.assert_array_equal(models[0].state.table, models[1].state.table)
    names = {row["name"] for row in models[0].inspect(top=9)}
    assert {"words=one", "words=two", "words=three"} <= names


def test_only_fields_with_a_role_are_read(tmp_path: Path) -> None:
    """Damaged bytes of an unused field of a struct do not matter."""
    path = write(tmp_path / "a.parquet", nested(), write_page_checksum=True)
    metadata = pq.ParquetFile(path).metadata
    group = metadata.row_group(0)
    places = {group.column(at).path_in_schema: group.column(at) for at in range(group.num_columns)}
    at = places["geo.big"].data_page_offset + 20
    content = bytearray(path.read_bytes())
    content[at] ^= 0xFF
    path.write_bytes(content)
    assert run("train", path, *flags("--checkpoint", "none")).code == 0
    read = flags("--checkpoint", "none", "--set", 'data.text=["geo.big"]')
    assert run("train", path, *read).code == 2


def test_an_update_learns_later_shards(tmp_path: Path) -> None:
    """A run and its updates have the bits of one run; a shard without a field is refused."""
    data, url = tmp_path / "data", tmp_path / "run"
    write(data / "part=0.parquet", nested(0))
    write(tmp_path / "all" / "part=0.parquet", nested(0))
    write(tmp_path / "all" / "part=1.parquet", nested(1))
    train(data, *flags("--checkpoint", url))
    write(data / "part=1.parquet", nested(1))
    found = run("update", url, "--settle", "0", "--json").result
    whole = train(tmp_path / "all", *flags("--checkpoint", "none"))
    assert found["state_sha256"] == whole["state_sha256"]
    geo = nested(2).column("geo").combine_chunks()
    other = pa.StructArray.from_arrays([geo.field("big")], ["big"])
    write(data / "part=2.parquet", nested(2).set_column(2, "geo", other))
    done = run("update", url, "--settle", "0")
    assert done.code == 2
    assert "column 'geo.in.z' (double) is missing" in done.err


def test_fields_as_label_and_filter(tmp_path: Path) -> None:
    """A field may be the label, and a filter may name one; a struct in ignore is all its fields."""
    table = nested()
    path = write(tmp_path / "a.parquet", table)
    data = {"shards": str(path), "label": "geo.city", "ignore": ["geo", "v", "words"]}
    data["where"] = "geo.in.z > 0 and geo.city is not null"
    model = streamomd.train({"data": data}, checkpoint="none", quiet=True)
    rows = [row["geo"] for row in table.to_pylist() if row["geo"] and row["geo"]["in"]]
    assert model.metrics.total_rows == sum(one["in"]["z"] > 0 and one["city"] in "xy" for one in
                                           rows if one["city"])  # fmt: skip
    assert model.plan.classes == ("x", "y")
    assert model.plan.features == ("y", "n")


def test_a_list_longer_than_those_of_the_first_group(tmp_path: Path) -> None:
    """It is a bad row, by its shard, row and column; it is skipped where bad rows are."""
    table = pa.table({"y": [0, 1] * 10, "v": [[1.0, 2.0]] * 15 + [[1.0, 2.0, 3.0]] + [[0.5]] * 4})
    path = write(tmp_path / "a.parquet", table, row_group_size=10)
    job = ["--label", "y", "--vectors", "v", "--checkpoint", "none"]
    done = run("train", path, *job)
    assert done.code == 2
    assert "row 15, column 'v': found a list of 3 numbers, expected at most 2" in done.err
    assert train(path, *job, "--on-bad-row", "skip")["skipped"] == {"ragged": 1}
    model = streamomd.train(str(path), label="y", vectors="v", checkpoint="none",
                            on_bad_row="skip", quiet=True)  # fmt: skip
    with pytest.raises(BadRowError, match="expected at most 2"):
        model.predict({"v": [1.0, 2.0, 3.0]})
    empty = write(tmp_path / "b.parquet", {"y": [0, 1], "v": pa.array([[], None], SCHEMA[4].type)})
    with pytest.raises(SchemaError, match="all of its lists are empty or null"):
        streamomd.train(str(empty), label="y", vectors="v", checkpoint="none", quiet=True)


def test_exports(tmp_path: Path) -> None:
    """scikit-learn's has the model's margins; ONNX refuses lists of categories by name."""
    from streamomd.integrations.export.to_sklearn import matrix_of, to_sklearn

    path = write(tmp_path / "a.parquet", nested())
    assert run("train", path, *flags("--checkpoint", tmp_path / "run")).code == 0
    model = streamomd.load(str(tmp_path / "run"))
    margins = to_sklearn(model).decision_function(matrix_of(model, nested()))
    np.testing.assert_allclose(margins, model.decision_function(nested()), atol=1e-12)
    pytest.importorskip("onnx")
    from streamomd.integrations.export.to_onnx import graph_of

    with pytest.raises(UnsupportedError, match=r"hashed.*: geo\.in\.tags, words"):
        graph_of(model)


def test_missing_and_wrong_fields_of_a_row(tmp_path: Path) -> None:
    """A row that lacks a field is refused with its path; None stands for a struct that is null."""
    path = write(tmp_path / "a.parquet", nested())
    assert run("train", path, *flags("--checkpoint", tmp_path / "run")).code == 0
    scorer = streamomd.load(str(tmp_path / "run")).scorer()
    row = {"n": 1.0, "geo": None, "words": [], "v": [1.0]}
    assert scorer.score(row) == scorer.score(
        {**row, "geo": {"city": None, "in": {"z": float("nan"), "tags": None}}}
    )
    with pytest.raises(SchemaError, match=r"'geo.in.z', 'geo.in.tags' are missing"):
        scorer.score({**row, "geo": {"city": "x"}})
    with pytest.raises(SchemaError, match=r"column 'words': found 'a'.*expected a list"):
        scorer.score({**row, "words": "a"})
    with pytest.raises(SchemaError, match=r"column 'words': found 3.*expected text"):
        scorer.score({**row, "words": ["a", 3]})


def test_requests_to_a_server(tmp_path: Path) -> None:
    """Rows as nested JSON and as an Arrow stream have the model's scores; problems name paths."""
    pytest.importorskip("starlette")
    from streamomd.integrations.serve.model_reloader import snapshot_of
    from streamomd.integrations.serve.request_rows import Refusal
    from streamomd.integrations.serve.scored_rows import predictions_of
    from streamomd.shards.formats.arrow_footer import rows_of_stream

    table = nested()
    path = write(tmp_path / "a.parquet", table)
    assert run("train", path, *flags("--checkpoint", tmp_path / "run")).code == 0
    model = streamomd.load(str(tmp_path / "run"))
    snapshot, stream = snapshot_of(model), pa.BufferOutputStream()
    with pa.ipc.new_stream(stream, table.schema) as writer:
        writer.write_table(table)
    content = stream.getvalue().to_pybytes()
    sent = rows_of_stream(content, snapshot.schema.required, most_rows=999, most_bytes=1 << 20)
    for rows in (sent, json.loads(json.dumps(table.drop_columns("geo").to_pylist()))):
        if rows is not sent:  # bytes are no JSON
            fields = [{"city": one["geo.city"], "in": {"z": one["geo.in.z"],
                       "tags": one["geo.in.tags"]}} for one in sent]  # fmt: skip
            rows = [{**row, "geo": geo} for row, geo in zip(rows, fields, strict=True)]
        found = json.loads(predictions_of(snapshot, rows))["predictions"]
        assert [one["score"] for one in found] == model.decision_function(table).tolist()
    with pytest.raises(Refusal, match=r"missing columns: 'geo\.in\.z', 'geo\.in\.tags'"):
        predictions_of(snapshot, [{"n": 1.0, "geo": {"city": "x"}, "words": ["a"], "v": [1.0]}])
