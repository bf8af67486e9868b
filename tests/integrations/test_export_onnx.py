"""ONNX: onnxruntime gives of raw columns what ``streamomd predict`` gives."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from exporting import answers, batch_of, fed, model_of, session_of, table
from later_imports import later
from running import run, train, write

from streamomd.core.errors import UnsupportedError
from streamomd.core.scalars import Bins, Curve
from streamomd.core.trees import Growth, Trees
from streamomd.integrations.export import FORMATS
from streamomd.losses import all_losses
from streamomd.training.model import Model

later("onnx", "needs streamomd[onnx]")
onnxruntime = later("onnxruntime", "needs onnxruntime, as the tests do")

EVERYTHING = {"numeric": ["n", "f", "t"], "vectors": ["e"], "hashed": ["h", "k"], "bits": 6}
QUICKSTART = Path(__file__).parents[2] / "pipelines" / "quickstart.toml"


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


THRESHOLDS = [-800.0, -1.0, -1e-30, 0.0, 0.1, 250.0]


def grown(columns: int, categories: int, margins: int) -> Trees:
    """Trees of two leaves more than they have inner nodes of random columns, and trees of one."""
    draw = np.random.default_rng(1)
    nodes: list[tuple[int, float, int, int]] = []
    roots = [0]

    def grow(depth: int) -> None:
        if depth == 0:
            nodes.append((-1, draw.normal(), 0, 0))
            return
        at, feature = len(nodes), int(draw.integers(columns))
        numbers = feature < columns - categories
        nodes.append((0, 0.0, 0, 0))
        grow(depth - 1)
        threshold = float(draw.choice(THRESHOLDS if numbers else [-0.5, 0.5, 1.5]))
        nodes[at] = feature, threshold, len(nodes), int(draw.integers(2))
        grow(int(draw.integers(depth)))

    for tree in range(3 * margins):
        grow(tree % 5)
        roots.append(len(nodes))
    kinds = np.int32, np.float64, np.int32, np.int8
    columns_of_nodes = zip(zip(*nodes, strict=True), kinds, strict=True)
    flat = [np.array(values, kind) for values, kind in columns_of_nodes]
    # The last category has no value with a code of its own.
    places = [np.sort(draw.choice(1 << 6, 30, replace=False)) for _ in range(categories - 1)]
    coded = [draw.permutation(np.arange(30.0)) for _ in places]
    ends = np.minimum(30 * np.arange(1, categories + 1), 30 * len(places))
    growth = Growth(
        *flat, np.array(roots), np.concatenate(places), np.concatenate(coded), ends,
        np.arange(categories) - 0.5,
    )  # fmt: skip
    made = Trees.of("drawn", margins, columns, {}, [growth])
    growth.check(columns)
    return made


def leaves(trees: int) -> Trees:
    """Trees of one leaf, of two margins; none as of a growth of labels that are all equal."""
    codes = grown(8, 3, 1).growths[0]
    growth = codes._replace(
        feature=np.full(trees, -1, np.int32), value=np.arange(1.0 * trees),
        right=np.zeros(trees, np.int32), nan_left=np.zeros(trees, np.int8),
        roots=np.arange(trees + 1),
    )  # fmt: skip
    return Trees.of("drawn", 2, 8, {}, [growth])


CURVES = Curve(0, -9.0, 9.0, (-800.0, 0.0, 250.0)), Curve(4, -2.0, 2.0, (-1.0, -0.1, 0.5, 1.0))
BINS = Bins(0, (-800.0, 0.0, 0.1, 250.0)), Bins(2, (0.0,))
PAIRS = ("n", "e[0]"), ("n", "h"), ("k", "h"), ("t", "e[0]")
SHAPES: dict[str, dict[str, Any]] = {
    "none": {},
    "columns": {"curves": CURVES},
    "pairs": {"curves": CURVES, "bins": BINS, "pairs": PAIRS},
    "all": {"curves": CURVES, "trees": grown(8, 3, 1)},
    "all, three": {"curves": CURVES, "trees": grown(8, 3, 3)},
    "leaves alone": {"trees": leaves(3)},
    "no trees": {"trees": leaves(0)},
}  # fmt: skip


@pytest.mark.parametrize("shapes", SHAPES)
@pytest.mark.parametrize("nulls", ["error", "zero", "indicator", "mean"])
@pytest.mark.parametrize("labels", ["two", "three", "numbers"])
def test_shapes_of_every_kind(shapes: str, nulls: str, labels: str) -> None:
    """Curves, pairs, trees, and crosses of a job: numbers that are missing, on knots, edges and
    thresholds, next to and far beyond them; words that no row had, and those with letters that
    crosses escape."""
    rows = table(400, labels=labels)
    some = [*THRESHOLDS, *np.nextafter(THRESHOLDS, 9e9), *np.nextafter(THRESHOLDS, -9e9), 1e9, -1e9]
    for at, name in ((1, "n"), (2, "f")):
        values = np.array([*some, *rows[name].to_numpy()[len(some) :]])
        gone = np.arange(len(rows)) % 5 == at if nulls != "error" else np.zeros(len(rows), bool)
        rows = rows.set_column(
            at, name, pa.array(values.astype(rows[name].type.to_pandas_dtype()), mask=gone)
        )
    lists = [[*some[i % 20 :], 0.0, 0.0, 0.0][:3] for i in range(len(rows))]
    if nulls != "error":
        for i in range(0, len(rows), 7):
            lists[i][i % 3] = None
    rows = rows.set_column(6, "e", pa.array(lists, pa.list_(pa.float64(), 3)))
    letters = np.array([*"^\\Na", "é"])
    draw = np.random.default_rng(2)
    words = ["".join(draw.choice(letters, size)) for size in draw.integers(0, 6, len(rows))]
    rows = rows.set_column(4, "h", pa.array(words))
    task = {"task": "regress", "loss": "square"} if labels == "numbers" else {"loss": "logistic"}
    data = {
        "numeric": ["n", "f"], "vectors": ["e"], "hashed": ["h", "k", "t"], "bits": 6,
        "crosses": [["h", "k"], ["t", "h", "k"]], "nulls": nulls,
    }  # fmt: skip
    model = model_of(rows, data=data, model=task, shapes=SHAPES[shapes])
    agree(model, rows)


def test_a_crossed_column_need_not_be_a_feature_of_its_own() -> None:
    """It is an input."""
    rows = table()
    data = {"numeric": ["n"], "hashed": [], "crosses": [["h", "k"]], "ignore": ["f", "e", "t"]}
    model = model_of(rows, data={**data, "bits": 6})
    agree(model, rows)
    agree(model, rows.set_column(4, "h", pa.array([""] * len(rows))))


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
        ({"dates": ["d"]}, "dates: d"),
        ({"text": ["h"], "dates": ["d"]}, "texts: h; dates: d; --as scorer"),
        ({"hashed": ["f"]}, "f"),
        ({"sparse": {"indices": "i", "values": "v", "size": 9}}, "sparse pairs: i, v"),
    ],
)
def test_what_onnx_cannot_say_is_refused_by_name(data: dict[str, Any], named: str) -> None:
    """Texts, dates, sparse pairs and hashed fractions, all in one message."""
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
