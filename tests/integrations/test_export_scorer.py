"""A scorer's readers, in numpy alone and in JavaScript, give what ``streamomd predict`` gives."""

from __future__ import annotations

import base64
import datetime
import decimal
import io
import json
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from any_columns import worlds
from exporting import answers, batch_of, model_of, table
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from in_memory import learned, predicted

import streamomd
from streamomd.core.errors import UnsupportedError
from streamomd.features import grow_trees
from streamomd.integrations.export import FORMATS, export, scorer_reader
from streamomd.losses import all_losses
from streamomd.training.model import Model

READER = Path(scorer_reader.__file__).with_suffix(".mjs")
EVERYTHING = {"numeric": ["n", "f", "t"], "vectors": ["e"], "hashed": ["h", "k"], "bits": 6}
DRIVER = f"""
import {{ load }} from {json.dumps(READER.as_uri())};
import {{ createInterface }} from "node:readline";
const bytes = (text) => Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
const given = (_, v) => (v?.$bytes !== undefined ? bytes(v.$bytes) : v?.$big ? BigInt(v.$big) : v);
for await (const line of createInterface({{ input: process.stdin }})) {{
  const {{ file, rows }} = JSON.parse(line, given);
  try {{
    const predict = await load(file);
    console.log(JSON.stringify(rows.map(predict)));
  }} catch (error) {{
    console.log(JSON.stringify(`${{error}}`));
  }}
}}
"""
Reads = Callable[[bytes, list[dict[str, Any]]], Any]


def python(file: bytes, rows: list[dict[str, Any]]) -> Any:
    predict = scorer_reader.load(io.BytesIO(file))
    return [predict(row) for row in rows]


def sent(value: Any) -> Any:
    """A value as JSON has it; what JavaScript has of its own is marked."""
    if isinstance(value, dict | list):
        pairs = value.items() if isinstance(value, dict) else ((None, one) for one in value)
        read = [(name, sent(one)) for name, one in pairs]
        return dict(read) if isinstance(value, dict) else [one for _, one in read]
    if isinstance(value, bytes):
        return {"$bytes": base64.b64encode(value).decode()}
    if type(value) is int and abs(value) > 2**53:
        return {"$big": str(value)}
    if isinstance(value, datetime.timedelta):
        return value.total_seconds()
    if isinstance(value, datetime.time):
        return datetime.timedelta(
            hours=value.hour, minutes=value.minute, seconds=value.second,
            microseconds=value.microsecond,
        ).total_seconds()  # fmt: skip
    if isinstance(value, datetime.date):
        return value.isoformat()
    return float(value) if isinstance(value, decimal.Decimal) else value


@pytest.fixture(scope="module")
def javascript() -> Iterator[Reads]:
    """The reader in node, which stays for all tests of this file."""
    node = shutil.which("node")
    if node is None:
        pytest.skip("node is not installed")
    command = [node, "--input-type=module", "-e", DRIVER]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin
        assert process.stdout

        def read(file: bytes, rows: list[dict[str, Any]]) -> Any:
            line = json.dumps({"file": sent(file), "rows": sent(rows)}) + "\n"
            process.stdin.write(line.encode())
            process.stdin.flush()
            return json.loads(process.stdout.readline())

        yield read
        process.stdin.close()


@pytest.fixture(params=["python", "javascript"])
def reader(request: pytest.FixtureRequest) -> Reads:
    return python if request.param == "python" else request.getfixturevalue("javascript")


def written(model: Model) -> bytes:
    file = io.BytesIO()
    FORMATS["scorer"].write(model, file)
    return file.getvalue()


def agree(reader: Reads, model: Model, rows: pa.Table, expected: dict[str, Any]) -> None:
    found = reader(written(model), rows.drop_columns(["y"]).to_pylist())
    assert isinstance(found, list), found
    for name, values in expected.items():
        read = [row[name] for row in found]
        if name == "prediction" and model.plan.classes:
            assert read == list(values)
        else:
            np.testing.assert_allclose(read, np.asarray(values), rtol=1e-9, atol=1e-9)
    assert all(set(row) == set(expected) for row in found)


@pytest.mark.parametrize("model", [{"rule": "auto"}, {"rule": "nag", "bias": False}])
@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(world=worlds(), curves=st.booleans())
@pytest.mark.sample(2)
def test_every_kind_of_column(
    reader: Reads, model: dict[str, Any], world: Any, curves: bool
) -> None:
    """Numbers, nulls, categories, lists, dates, texts, crosses, vectors, pairs and curves."""
    rows, data = world
    job = {"data": data, "model": {**model, "classes": [0, 1]}, "curves": curves}
    trained = learned(rows, **job)
    agree(reader, trained, rows, predicted(trained, rows))


@pytest.mark.parametrize("loss", all_losses())
@pytest.mark.parametrize("labels", ["two", "three", "numbers"])
def test_every_loss_and_task(reader: Reads, loss: str, labels: str) -> None:
    """Score, prediction and probability, of every loss with two classes, three, and numbers."""
    made = all_losses()[loss]
    if made.classifies if labels == "numbers" else made.least:
        pytest.skip("a loss of another task")
    rows = table(labels=labels)
    if made.least is not None:
        rows = rows.set_column(0, "y", pa.array(np.abs(np.arange(len(rows)))))
    task = "regress" if labels == "numbers" else "classify"
    model = model_of(rows, data=EVERYTHING, model={"loss": loss, "task": task})
    model.state.table[...] *= 1e-3  # exp of a margin is a number
    agree(reader, model, rows, answers(model, rows))


@pytest.mark.parametrize("kind", ["sigmoid", "isotonic"])
@pytest.mark.parametrize("loss", ["logistic", "hinge", "softmax"])
@pytest.mark.parametrize("count", [0, 1, 30])
def test_calibrated_probabilities(reader: Reads, kind: str, loss: str, count: int) -> None:
    """Of margins within those that the calibration learned from, and beyond them."""
    drawn = table(40, seed=3)
    model = model_of(drawn, data=EVERYTHING, model={"loss": loss, "calibrate": kind})
    margins = 0.5 * model.engine.predict(model.state, np.zeros(3), batch_of(model, drawn))[:count]
    y = np.where(np.array(drawn["y"]) == "yes", 1.0, -1.0)[:count]
    model.metrics.count_first(model.engine.loss, margins, y, np.ones(count))
    agree(reader, model, drawn, answers(model, drawn))


@pytest.mark.parametrize("standardize", ["none", "running"])
def test_units_of_inputs_and_target(reader: Reads, standardize: str) -> None:
    rows = table(labels="numbers")
    job = {"rule": "nag", "loss": "square", "scale_target": True}
    trained = learned(rows, data={**EVERYTHING, "standardize": standardize}, model=job)
    agree(reader, trained, rows, predicted(trained, rows))


@pytest.mark.parametrize(
    "number", [0.1, 1e16, 123456789.0, 1e-5, -2.5e-7, 5e-324, 1.7e308, 9007199254740993.0, -0.0]
)
def test_floats_are_hashed_as_python_writes_them(reader: Reads, number: float) -> None:
    rows = table().append_column("z", pa.array(30 * [number]))
    model = model_of(rows, data={"hashed": ["z"], "ignore": ["n", "f", "t", "e", "h", "k"]})
    agree(reader, model, rows, answers(model, rows))


@pytest.mark.parametrize(
    "change",
    [{"n": "7"}, {"n": None}, {"t": 1}, {"n": True}, {"e": [1.0, 2.0]}, {"h": 7}, {"k": 0.5}],
)
def test_a_bad_value_is_refused(reader: Reads, change: dict[str, Any]) -> None:
    file, (row,) = written(model_of(table(), data=EVERYTHING)), table(1).to_pylist()
    try:
        found = reader(file, [{**row, **change}])
    except ValueError as error:
        found = str(error)
    assert isinstance(found, str)
    assert f"'{next(iter(change))}'" in found or change == {"k": 0.5}, found


def test_a_missing_column_is_refused(reader: Reads) -> None:
    file = written(model_of(table(), data=EVERYTHING))
    try:
        found = reader(file, [{"n": 1.0}])
    except KeyError as error:
        found = str(error)
    assert "'f'" in found


def test_the_file_is_all_that_it_takes(tmp_path: Path) -> None:
    """It has its reader, which needs numpy alone; and ``Scorer.load`` reads it too."""
    rows = table()
    model = model_of(rows, data=EVERYTHING)
    done = export(model, "scorer", str(tmp_path / "m.scorer"))
    assert done["readers"] == ["scorer_reader.py", "scorer_reader.mjs"]
    with zipfile.ZipFile(tmp_path / "m.scorer") as archive:
        archive.extract("scorer_reader.py", tmp_path)
    program = (
        "import json, sys, scorer_reader; row = json.loads(sys.argv[1]);"
        "print(json.dumps(scorer_reader.load('m.scorer')(row)));"
        "assert not {'streamomd', 'pyarrow', 'mmh3', 'numba'} & {*sys.modules}"
    )
    (row, *_) = rows.to_pylist()
    command = [sys.executable, "-c", program, json.dumps(row)]
    read = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    from streamomd import Scorer

    score = Scorer.load(tmp_path / "m.scorer").score(row)
    assert json.loads(read.stdout)["score"] == pytest.approx(score, rel=1e-12)


@pytest.mark.parametrize("change", ["rule", "trees", "loss", "version"])
def test_what_a_reader_does_not_know_is_refused(reader: Reads, change: str) -> None:
    """A file that Scorer.save or a later version wrote."""
    if change == "trees" and reader is python:
        pytest.skip("it reads trees")
    rows = table(labels="numbers")
    rows = rows.set_column(0, "y", pa.array(np.abs(np.arange(len(rows)))))
    model = model_of(rows, data=EVERYTHING, model={"loss": "poisson", "task": "regress"})
    changed = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(written(model))) as old, zipfile.ZipFile(changed, "w") as new:
        for name in old.namelist():
            content = old.read(name)
            if name == "scorer.json":
                head = json.loads(content)
                table_of = {"rule": "margins", "trees": "columns", "loss": "link"}.get(change)
                (head[table_of] if table_of else head)[change] = 2 if change == "version" else "new"
                content = json.dumps(head).encode()
            new.writestr(name, content, zipfile.ZIP_DEFLATED)
    try:
        found = reader(changed.getvalue(), rows.to_pylist())
    except ValueError as error:
        found = str(error)
    assert isinstance(found, str), found


@pytest.mark.parametrize("nulls", ["zero", "mean", "indicator"])
@pytest.mark.parametrize("classes", [2, 3])
def test_boosted_trees(
    reader: Reads, classes: int, nulls: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of numbers with gaps, lists, categories and dates; the archive has the module that reads
    them."""
    monkeypatch.setattr(grow_trees, "FIRST", 200)
    monkeypatch.setattr(grow_trees, "MOST_TREES", 20)
    draw = np.random.default_rng(classes)
    a, b = draw.normal(size=(2, 400))
    h = draw.integers(0, 9, 400)
    z = a * b + 0.5 * (h % 3)
    rows = pa.table({
        "y": np.digitize(z, np.quantile(z, np.linspace(0, 1, classes + 1)[1:-1])), "a": a,
        "b": pa.array(b, mask=draw.random(400) < 0.2), "h": [f"h{k}" for k in h],
        "v": [None if k % 17 == 0 else [x, -x] for k, x in enumerate(a.tolist())],
        "d": pa.array(np.arange(400) * 37 % 1000, pa.int32()).cast(pa.date32()),
    })  # fmt: skip
    pq.write_table(rows, tmp_path / "0.parquet")
    columns = {"numeric": ["a", "b"], "vectors": ["v"], "hashed": ["h"], "dates": ["d"]}
    job = {"label": "y", "shapes": "all", "nulls": nulls, "checkpoint": "none", "quiet": True}
    sets = {"data.crosses": [["h", "d.month"]]}
    model = streamomd.train(str(tmp_path / "0.parquet"), **job, **columns, rule="nag", sets=sets)
    assert model.plan.trees
    with zipfile.ZipFile(io.BytesIO(written(model))) as archive:
        assert "scorer_trees.mjs" in archive.namelist()
    some = rows.slice(0, 60).to_pylist()
    some[0]["h"], some[1]["h"] = "unseen", None
    rows = pa.Table.from_pylist(some, rows.schema)
    agree(reader, model, rows, predicted(model, rows))


def test_the_javascript_reader_is_short() -> None:
    lines = [line.strip() for line in READER.read_text().splitlines()]
    assert len([line for line in lines if line and not line.startswith("//")]) <= 150


def test_what_a_scorer_does_not_have() -> None:
    rows = table(labels="numbers")
    model = model_of(rows, data=EVERYTHING, model={"rule": "vaw", "loss": "square"})
    with pytest.raises(UnsupportedError, match="more than weights times values"):
        written(model)


def test_onnx_names_the_scorer() -> None:
    rows = table()
    data = {"text": [{"column": "h"}], "ignore": ["n", "f", "t", "e", "k"]}
    with pytest.raises(UnsupportedError, match="--as scorer does"):
        FORMATS["onnx"].write(model_of(rows, data=data), io.BytesIO())


@pytest.mark.parametrize("nulls", ["zero", "mean", "indicator"])
def test_pairs_of_columns(reader: Reads, nulls: str, tmp_path: Path) -> None:
    """Of numbers with gaps, float32, elements of lists and categories."""
    draw = np.random.default_rng(0)
    a, b, c = draw.normal(size=(3, 1200))
    h = draw.integers(0, 3, 1200)
    z = 2.0 * a * b + np.where(h == 0, 2.0, -1.0) * c
    rows = pa.table({
        "y": (z > 0.0).astype(int), "b": pa.array(b, mask=draw.random(1200) < 0.1),
        "c": c.astype(np.float32), "h": [f"h{k}" for k in h],
        "v": [None if k % 17 == 0 else [x, -x] for k, x in enumerate(a.tolist())],
    })  # fmt: skip
    pq.write_table(rows, tmp_path / "0.parquet")
    job = {"label": "y", "shapes": "pairs", "nulls": nulls, "checkpoint": "none", "quiet": True}
    columns = {"numeric": ["b", "c"], "vectors": ["v"], "hashed": ["h"]}
    model = streamomd.train(str(tmp_path / "0.parquet"), **job, **columns, rule="nag")
    assert {("b", "v[0]"), ("c", "h")} <= {*model.plan.pairs}
    rows = rows.slice(0, 60)
    agree(reader, model, rows, predicted(model, rows))
