"""ONNX: onnxruntime gives of raw columns what ``streamomd predict`` gives."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from exporting import answers, batch_of, model_of, table
from later_imports import later
from running import run, train, write

from streamomd.core.errors import UnsupportedError
from streamomd.integrations.export import FORMATS
from streamomd.losses import all_losses
from streamomd.training.model import Model

later("onnx", "needs streamomd[onnx]")
onnxruntime = later("onnxruntime", "needs onnxruntime, as the tests do")

EVERYTHING = {"numeric": ["n", "f", "t"], "vectors": ["e"], "hashed": ["h", "k"], "bits": 6}
QUICKSTART = Path(__file__).parents[2] / "pipelines" / "quickstart.toml"


def session_of(model: Model) -> Any:
    file = io.BytesIO()
    FORMATS["onnx"].write(model, file)
    return onnxruntime.InferenceSession(file.getvalue(), providers=["CPUExecutionProvider"])


def fed(session: Any, rows: pa.Table) -> dict[str, Any]:
    """The columns that a session asks for, of the types that it asks for."""
    kinds = {"tensor(double)": np.float64, "tensor(string)": object, "tensor(bool)": bool,
             "tensor(int64)": np.int64}  # fmt: skip
    feeds = {}
    for one in session.get_inputs():
        column = rows[one.name].combine_chunks()
        values = column.to_pylist()
        feeds[one.name] = np.array(values, dtype=kinds[one.type]).reshape(len(values), -1)
    return feeds


def theirs(model: Model, rows: pa.Table) -> dict[str, Any]:
    """The outputs, with the names and shapes of predict."""
    session = session_of(model)
    names = [one.name for one in session.get_outputs()]
    found = dict(zip(names, session.run(None, fed(session, rows)), strict=True))
    assert [name.rstrip("_") for name in names] == [
        *(["label"] if model.plan.classes else ["variable"]),
        *(["probabilities"] if model.has_probabilities else []),
        "score",
    ]
    if "variable" in found:
        (found["prediction"],) = found.pop("variable").T
    else:
        found["prediction"] = found.pop("label")
    if "probabilities" in found:
        likely = found.pop("probabilities")
        assert likely.shape == (len(rows), len(model.plan.classes))
        np.testing.assert_allclose(likely.sum(axis=1), 1.0, rtol=1e-12)
        found["probability"] = likely[:, 1] if model.engine.layout.learners == 1 else likely
    return found


def agree(model: Model, rows: pa.Table) -> None:
    ours, found = answers(model, rows), theirs(model, rows)
    assert set(found) == set(ours)
    for name, value in ours.items():
        assert found[name].shape == value.shape
        if value.dtype.kind == "f":
            np.testing.assert_allclose(found[name], value, rtol=1e-12, atol=1e-12)
        else:
            assert found[name].tolist() == value.tolist()


@pytest.mark.parametrize("kind", ["sigmoid", "isotonic"])
@pytest.mark.parametrize("loss", ["logistic", "hinge", "softmax"])
@pytest.mark.parametrize("rows", [0, 1, 30])
def test_calibrated_probabilities(kind: str, loss: str, rows: int) -> None:
    """Of margins within those that the calibration learned from, and beyond them; of none, one and
    many points."""
    drawn = table(40, seed=3)
    model = model_of(drawn, data=EVERYTHING, model={"loss": loss, "calibrate": kind})
    batch = batch_of(model, drawn)
    margins = 0.5 * model.engine.predict(model.state, np.zeros(3), batch)[:rows]
    y = np.where(np.array(drawn["y"]) == "yes", 1.0, -1.0)[:rows]
    model.metrics.count_first(model.engine.loss, margins, y, np.ones(rows))
    agree(model, drawn)


@pytest.mark.parametrize("loss", all_losses())
@pytest.mark.parametrize("labels", ["two", "three", "numbers"])
def test_every_loss_and_task(loss: str, labels: str) -> None:
    """Score, prediction and probability, of every loss with two classes, three, and numbers."""
    if labels == "numbers" and all_losses()[loss].classifies:
        pytest.skip("a loss of classes")
    if labels != "numbers" and all_losses()[loss].least:
        pytest.skip("a loss of numbers above 0")
    rows = table(labels=labels)
    if all_losses()[loss].least is not None:
        rows = rows.set_column(0, "y", pa.array(np.abs(np.arange(len(rows)))))
    task = "regress" if labels == "numbers" else "classify"
    agree(model_of(rows, data=EVERYTHING, model={"loss": loss, "task": task}), rows)


@pytest.mark.parametrize("kind", [pa.bool_(), pa.int32(), pa.float64()])
def test_labels_of_every_type(kind: pa.DataType) -> None:
    """What is predicted is a value of the label column."""
    rows = table()
    rows = rows.set_column(0, "y", pa.array([i % 2 for i in range(len(rows))]).cast(kind))
    agree(model_of(rows, data=EVERYTHING), rows)


def test_hashing() -> None:
    """A seed, booleans that are hashed, no bias, and two columns that share a coordinate."""
    rows = table()
    data = {"numeric": ["n"], "hashed": ["h", "k", "t"], "ignore": ["f", "e"], "bits": 1}
    agree(model_of(rows, data={**data, "hash_seed": 4_000_000_000}, model={"bias": False}), rows)


def test_any_text_is_hashed_as_here() -> None:
    """Texts of every length, of letters of one to four bytes; whole numbers of any size."""
    draw = np.random.default_rng(0)
    letters = [*"aZ=^\\ \t\n\x00", "é", "ж", "漢", "\U0001f600"]
    words = ["".join(draw.choice(letters, size=size)) for size in np.arange(400) % 40]
    rows = table(len(words))
    rows = rows.set_column(4, "h", pa.array(words))
    whole = np.iinfo(np.int64)
    numbers = [whole.min, whole.max, -1, 0, *draw.integers(whole.min, whole.max, 396)]
    rows = rows.set_column(5, "k", pa.array(numbers))
    agree(model_of(rows, data={**EVERYTHING, "bits": 16}), rows)


@pytest.mark.parametrize("nulls", ["zero", "indicator"])
def test_a_missing_number_is_nan(nulls: str) -> None:
    """NaN stands for a null where the job takes nulls."""
    rows = table()
    some = [None if i % 3 == 0 else float(i) for i in range(len(rows))]
    rows = rows.set_column(1, "n", pa.array(some))
    agree(model_of(rows, data={**EVERYTHING, "nulls": nulls}), rows)


def test_a_null_word_is_reported(capsys: pytest.CaptureFixture[str]) -> None:
    """Its category has a weight that no string leads to."""
    model = model_of(table(), data=EVERYTHING)
    session_of(model)
    assert "a null in h, k has a weight" in capsys.readouterr().err
    model.state.slot("v")[...] = 0.0
    session_of(model)
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("data", "named"),
    [
        ({"text": ["h"]}, "texts: h"),
        ({"crosses": [["h", "k"]]}, "crosses: h × k"),
        ({"dates": ["d"]}, "dates: d"),
        ({"hashed": ["f"]}, "f"),
        ({"sparse": {"indices": "i", "values": "v", "size": 9}}, "sparse pairs: i, v"),
    ],
)
def test_what_onnx_cannot_say_is_refused_by_name(data: dict[str, Any], named: str) -> None:
    """Texts, crosses, dates, pairs and hashed fractions."""
    rows = table()
    rows = rows.append_column("d", pa.array([0] * len(rows), pa.date32()))
    rows = rows.append_column("i", pa.array([[1]] * len(rows), pa.list_(pa.int64())))
    rows = rows.append_column("v", pa.array([[1.0]] * len(rows), pa.list_(pa.float64())))
    used = {one for value in data.values() for one in np.ravel(list(value))} | {"y", "n", "i", "v"}
    ignore = [name for name in rows.column_names if name not in used]
    pair = [] if "sparse" in data else ["i", "v"]
    model = model_of(rows, data={"numeric": ["n"], "ignore": ignore + pair, **data})
    with pytest.raises(UnsupportedError, match=named):
        FORMATS["onnx"].write(model, io.BytesIO())


def test_a_rule_that_predicts_more_than_weights_is_refused() -> None:
    """Vovk–Azoury–Warmuth shrinks what it predicts by the row itself."""
    rows = table(labels="numbers")
    model = model_of(rows, data=EVERYTHING, model={"rule": "vaw", "loss": "square"})
    with pytest.raises(UnsupportedError, match=r"vaw.*more than weights"):
        FORMATS["onnx"].write(model, io.BytesIO())


def test_a_column_may_be_called_as_an_output() -> None:
    """A column ``score`` keeps its name; the output gives way."""
    rows = table().rename_columns(["y", "score", "f", "t", "h", "k", "e"])
    model = model_of(rows, data={**EVERYTHING, "numeric": ["score", "f", "t"]})
    found = theirs(model, rows)
    np.testing.assert_allclose(found["score_"], answers(model, rows)["score"], rtol=1e-12)


def test_quickstart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All 45,211 rows of bank marketing: probabilities to 1e-12 of those ``predict`` wrote."""
    monkeypatch.chdir(QUICKSTART.parents[1])
    kept = f"checkpoint.url={tmp_path}/run"
    assert run("train", "pipelines/quickstart.toml", "--set", kept).code == 0
    to = tmp_path / "bank.onnx"
    done = run("export", tmp_path / "run", "--as", "onnx", "--to", to, "--json").result
    assert done["outputs"] == ["label", "probabilities", "score"]
    session = onnxruntime.InferenceSession(str(to), providers=["CPUExecutionProvider"])
    run("predict", tmp_path / "run", "pipelines/data/bank", "--to", tmp_path / "told")
    for shard in sorted(Path("pipelines/data/bank").glob("*.parquet")):
        ours = pq.read_table(tmp_path / "told" / shard.name)
        label, probabilities, score = session.run(None, fed(session, pq.read_table(shard)))
        np.testing.assert_allclose(score, ours["score"], rtol=1e-12, atol=1e-12)
        np.testing.assert_allclose(probabilities[:, 1], ours["probability"], rtol=1e-12, atol=1e-12)
        assert label.tolist() == ours["prediction"].to_pylist()


@pytest.mark.slow
def test_names_with_line_ends_are_escaped_in_errors(tmp_path: Path) -> None:
    """A column cannot write lines of its own to the terminal."""
    table = {"y": [0, 1] * 20, "a\nb\x1b[31m": ["x y", "z"] * 20}
    write(tmp_path / "data/a.parquet", table)
    how = ["--label", "y", "--set", 'data.text=["a\\nb\\u001b[31m"]', "--rule", "nag"]
    train(tmp_path / "data", *how, "--checkpoint", tmp_path / "run")
    done = run("export", tmp_path / "run", "--as", "onnx", "-o", tmp_path / "m.onnx")
    assert done.code == 2
    assert "does not support texts: a\\nb\\x1b[31m;" in done.err
    assert len(done.err.splitlines()) == 1
