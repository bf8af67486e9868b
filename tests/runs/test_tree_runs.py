"""``model.shapes = "all"``: rows are predicted by trees that were grown on earlier rows alone, in
every way to train, continue, predict and export."""

from __future__ import annotations

import io
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import lightgbm
import numpy as np
import pyarrow as pa
import pytest
from exporting import onnx_scores
from in_memory import assert_same_scores
from running import Impatient, in_parts, write
from sweeping import plain

import streamomd
from streamomd import OMDClassifier, OMDRegressor
from streamomd.core import tree_masks
from streamomd.core.errors import MissingExtraError, StoppedError, UnsupportedError
from streamomd.features import grow_trees, name_of
from streamomd.features.grow_trees import Grower, counts_of
from streamomd.integrations.export import FORMATS, scorer_reader
from streamomd.integrations.export.to_sklearn import matrix_of, to_sklearn
from streamomd.shards.encoded_rows import encode_rows
from streamomd.shards.reader import read_batches
from streamomd.sources.find import find
from streamomd.training.model import Model

N = 600
COUNTS = [100, 160, 256, 409, 500]
SOME = {"numeric": ["a", "b"], "vectors": ["v"], "hashed": ["h"], "bits": 6}


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Growths of few rows; the last rows are after the window."""
    monkeypatch.setattr(grow_trees, "FIRST", 100)
    monkeypatch.setattr(grow_trees, "ROWS", 500)
    monkeypatch.setattr("streamomd.training.choose_shapes.ROWS", 500)
    monkeypatch.setattr(grow_trees, "MOST_TREES", 30)
    monkeypatch.setattr("streamomd.training.choose_shapes.HARM", 1e9)


@pytest.fixture
def unchecked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Trees are not checked for harm: in plain Python that takes most of these tests' time."""
    unchanged = "streamomd.training.choose_shapes.without_harm", lambda spec, plan, rows: plan
    monkeypatch.setattr(*unchanged)


def table(count: int = N, seed: int = 0, classes: int = 2) -> pa.Table:
    """A label by the product of two numbers, one with gaps, a list and a category."""
    draw = np.random.default_rng(seed)
    a, b = draw.normal(size=(2, count))
    h = draw.integers(0, 9, count)
    z = a * b + 0.5 * (h % 3) + 0.3 * draw.normal(size=count)
    y = np.digitize(z, np.quantile(z, np.linspace(0, 1, classes + 1)[1:-1]))
    lists = pa.FixedSizeListArray.from_arrays(pa.array(draw.normal(size=2 * count)), 2)
    return pa.table({
        "a": a, "b": pa.array(b, mask=draw.random(count) < 0.2), "v": lists,
        "h": [f"h{k}" for k in h], "w": draw.integers(1, 4, count) * 1.0, "y": y, "z": z,
    })  # fmt: skip


def learn(shards: Any, **more: Any) -> Model:
    """A model with trees of these shards."""
    job = {"label": "y", "weight": "w", "shapes": "all", "nulls": "indicator", "quiet": True}
    return streamomd.train(
        str(shards), **{"checkpoint": "none", "rule": "nag", **job, **SOME, **more}
    )


def margins_of(model: Model, shards: Path, *, learning: bool) -> Any:
    """The margins of trees of all rows, as they are encoded."""
    found = find(str(shards))
    plan = model.plan.learning if learning else model.plan
    pieces = read_batches(found, places=range(len(found)), columns=plan.columns, threads=1)
    low, rows = plan.tree_offset - int(plan.bias), []
    for piece in pieces:
        batch = encode_rows(plan, piece).value.batch
        values = np.zeros((len(batch), plan.size))
        for row in range(len(batch)):
            at = slice(batch.indptr[row], batch.indptr[row + 1])
            values[row, batch.indices[at]] = batch.values[at]
        rows.append(values[:, low : low + plan.margins])
    return np.concatenate(rows)


def raw(rows: pa.Table) -> tuple[Any, Any, Any]:
    """Numbers, NaN where one is missing, lists, and the number of each category; labels, weights"""
    b = rows["b"].to_numpy(zero_copy_only=False)
    h = [int(one[1:]) for one in rows["h"].to_pylist()]
    x = np.column_stack([rows["a"], b, np.array(rows["v"].to_pylist()), np.array(h, float)])
    return x, rows["y"].to_numpy().astype(float), rows["w"].to_numpy()


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("classes", [2, 4])
def test_a_row_has_the_margin_of_trees_of_earlier_rows(tmp_path: Path, classes: int) -> None:
    """That of LightGBM's own prediction, grown on the first t rows; later rows, and all rows of
    predictions, have that of the last trees."""
    rows = table(classes=classes)
    shards = in_parts(tmp_path, rows, 230, 70)
    model = learn(shards, loss="softmax" if classes > 2 else "logistic")
    assert counts_of(N) == COUNTS
    x, y, w = raw(rows)
    boosters = []
    train = lightgbm.train

    def kept(*given: Any, **more: Any) -> Any:
        boosters.append(train(*given, **more))
        return boosters[-1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lightgbm, "train", kept)
        signs = y if classes > 2 else 2 * y - 1
        loss = model.spec.loss.name
        grower = Grower(x, signs, w, 1, classes, loss, {})
        bare = [grower.grown(count) for count in COUNTS]
    expected = np.zeros((len(COUNTS) + 1, N, model.plan.margins))
    for at, (booster, growth) in enumerate(zip(boosters, bare, strict=True)):
        best = booster.best_iteration or None
        found = booster.predict(growth.coded(x), raw_score=True, num_iteration=best)
        expected[at + 1] = found.reshape(N, -1)
    which = np.searchsorted(COUNTS, np.arange(N), side="right")
    honest = margins_of(model, shards, learning=True)
    assert np.abs(honest - expected[which, np.arange(N)]).max() <= 1e-9
    last = margins_of(model, shards, learning=False)
    assert np.abs(last - expected[-1]).max() <= 1e-9
    assert np.abs(last).max() > 0.1
    assert not honest[:100].any()


def test_margins_of_a_row_depend_on_no_later_label(tmp_path: Path) -> None:
    """With other labels from row 256 on, the rows up to 409 have the same margins."""
    rows = table()
    first = learn(write(tmp_path / "1.parquet", rows))
    labels = rows["y"].to_numpy().copy()
    labels[256:] = 1 - labels[256:]
    other = rows.set_column(rows.schema.get_field_index("y"), "y", pa.array(labels))
    second = learn(write(tmp_path / "2.parquet", other))
    a = margins_of(first, tmp_path / "1.parquet", learning=True)
    b = margins_of(second, tmp_path / "2.parquet", learning=True)
    assert np.array_equal(a[:409], b[:409])
    assert not np.array_equal(a[409:], b[409:])


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("delay", [60, 250, 450])
def test_trees_wait_for_labels(delay: int, tmp_path: Path) -> None:
    """Of a run with ``data.delay`` the rows that arrive before the labels of the first t rows have
    earlier trees; so it is after an interruption. Growths whose labels arrive in no row are none.
    """
    draw = np.random.default_rng(3)
    times = np.cumsum(draw.integers(0, 3, N))
    times[[120, 300]] -= 90  # late rows
    rows = table().append_column("t", pa.array(times, pa.timestamp("s")))
    shards = in_parts(tmp_path / "data", rows, 230, 70)
    more = {"time": "t", "delay": delay, "sets": {"checkpoint.every_rows": 40}}
    with plain():
        model = learn(shards, **more)
        with pytest.MonkeyPatch.context() as patch, pytest.raises(StoppedError):
            patch.setattr("streamomd.runs.reporting.progress", lambda *_: Impatient(200))
            learn(shards, checkpoint=str(tmp_path / "run"), quiet=False, **more)
        resumed = streamomd.resume(str(tmp_path / "run"), quiet=True)
    assert resumed.state_sha256 == model.state_sha256
    assert resumed.plan == model.plan
    stream = np.maximum.accumulate(times)
    ready = {count: np.flatnonzero(stream >= stream[count - 1] + delay) for count in COUNTS}
    starts = [int(found[0]) for found in ready.values() if len(found)]
    assert len(model.plan.trees.growths) == len(starts)
    assert len(starts) < len(COUNTS) or delay == 60
    for k, (_, begins) in enumerate(model.plan.trees.window):
        assert [min(max(start - 230 * k, 0), 230) for start in starts] == [
            min(b, 230) for b in begins
        ]
    labels = rows["y"].to_numpy().copy()
    unknown = stream + delay > stream[starts[-1] - 1]  # before the last growth begins
    labels[unknown] = 1 - labels[unknown]
    other = rows.set_column(rows.schema.get_field_index("y"), "y", pa.array(labels))
    with plain():
        changed = learn(in_parts(tmp_path / "other", other, 230, 70), **more)
    a = margins_of(model, shards, learning=True)
    b = margins_of(changed, tmp_path / "other", learning=True)
    assert np.array_equal(a[: starts[-1]], b[: starts[-1]])
    assert not a[: starts[0]].any()
    assert a[starts[0] : starts[0] + 20].any()
    assert learn(shards, **{**more, "delay": 10_000}).plan.trees is None


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("rule", [pytest.param("auto", marks=pytest.mark.slow), "nag"])
def test_cuts_and_interruptions_change_no_bit(rule: str, tmp_path: Path) -> None:
    """Shards, row groups, commits, a cache and a stop that is resumed leave the state as it is."""
    with plain():
        whole = learn(in_parts(tmp_path / "one", table(), N, N), rule=rule, epochs=2)
        cut = learn(in_parts(tmp_path / "many", table(), 70, 11), rule=rule, epochs=2)
        assert whole.state_sha256 == cut.state_sha256
        assert whole.plan.trees.packed == cut.plan.trees.packed
        url, often = str(tmp_path / "run"), {"checkpoint.every_rows": 40}
        often["data.cache"] = str(tmp_path / "cache")
        with pytest.MonkeyPatch.context() as patch, pytest.raises(StoppedError):
            patch.setattr("streamomd.runs.reporting.progress", lambda *_: Impatient(200))
            learn(tmp_path / "many", rule=rule, epochs=2, checkpoint=url, sets=often, quiet=False)
        with pytest.MonkeyPatch.context() as patch:
            patch.setitem(sys.modules, "lightgbm", None)  # a resumed run needs none
            assert streamomd.load(url).plan == cut.plan
            assert streamomd.resume(url, quiet=True).state_sha256 == whole.state_sha256
        evaluated = streamomd.load(url).evaluate(str(tmp_path / "many"), quiet=True)
    assert evaluated["loss"] == pytest.approx(whole.evaluate(str(tmp_path / "one"))["loss"])


def test_an_update_continues_the_same_trees(tmp_path: Path) -> None:
    """A warm start has them, too, and parts of averaged mode share them."""
    folder, url = tmp_path / "data", str(tmp_path / "run")
    write(folder / "0.parquet", table())
    first = learn(folder, checkpoint=url)
    write(folder / "1.parquet", table(seed=1))
    both = streamomd.update(url, settle=0, quiet=True)
    assert both.plan == first.plan
    assert both.metrics.total_rows == 2 * N
    assert learn(folder / "1.parquet", start=url).plan.trees == first.plan.trees
    one, parts = str(tmp_path / "averaged"), {"train.parts": 2}
    averaged = learn(folder / "0.parquet", mode="averaged", checkpoint=one, sets=parts)
    assert averaged.plan == first.plan


@pytest.mark.parametrize("classes", [2, 3])
def test_a_scorer_predicts_as_the_model(classes: int, tmp_path: Path) -> None:
    """With missing numbers and unseen categories; saved and loaded, too."""
    model = learn(write(tmp_path / "0.parquet", table(classes=classes)))
    given = table(40, 7, classes).drop_columns(["z", "w"])
    rows = given.to_pylist()
    rows[0]["h"], rows[1]["h"], rows[2]["a"] = "unseen", None, None
    rows[3]["v"] = None
    assert_same_scores(model, pa.Table.from_pylist(rows, given.schema))
    scorer = model.scorer()
    scorer.save(tmp_path / "scorer")
    loaded = type(scorer).load(tmp_path / "scorer")
    assert [loaded.score(row) for row in rows] == [scorer.score(row) for row in rows]
    explained = scorer.explain(rows[0])
    one = explained.contributions if classes == 2 else explained.contributions[0]
    total = explained.margin if classes == 2 else explained.margin[0]
    assert sum(adds for _, _, adds in one) == pytest.approx(total)
    assert ("trees" if classes == 2 else "trees[0]") in [name for name, _, _ in one]


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("walked", ["plain", "compiled"])
@pytest.mark.parametrize("nulls", ["zero", "mean", "indicator"])
@pytest.mark.parametrize("classes", [2, 3])
def test_the_fast_form_predicts_as_the_model(
    classes: int, nulls: str, walked: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of numbers, categories, dates and crosses; by the loop that is compiled and without it."""
    days = (np.arange(N) * 37 % 1000).astype("datetime64[D]")
    rows = table(classes=classes).append_column("d", pa.array(days)).drop_columns(["v", "z"])
    sets = {"data.crosses": [["h", "d.month"]]}
    more = {"vectors": [], "dates": ["d"], "nulls": nulls, "sets": sets}
    model = learn(write(tmp_path / "0.parquet", rows), **more)
    assert model.plan.trees
    assert model.plan.curves
    assert model.scorer()._fast is not None
    made = tree_masks.add_margins if walked == "compiled" else None
    adder = SimpleNamespace(ready=made, compiled_after=lambda _: made)
    monkeypatch.setattr(tree_masks, "margin_adder", lambda: adder)
    some = rows.drop_columns(["w"]).slice(0, 30).to_pylist()
    for name, row in zip(["a", "b", "h", "d"], some, strict=False):
        row[name] = None
    some[4]["h"] = "unseen"
    schema = rows.drop_columns(["w"]).schema
    assert_same_scores(model, pa.Table.from_pylist(some, schema))


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(("nulls", "classes"), [("zero", 0), ("indicator", 2), ("mean", 3)])
def test_onnx_has_them(nulls: str, classes: int, tmp_path: Path) -> None:
    """The graph's scores are those of ``predict``, with missing numbers and new categories."""
    rows = table(classes=classes or 2)
    label = "y" if classes else "z"
    more = {} if classes else {"loss": "square"}
    model = learn(write(tmp_path / "0.parquet", rows), nulls=nulls, label=label, **more)
    assert model.plan.trees.margins == (3 if classes > 2 else 1)
    rows = table(seed=3)
    rows = rows.set_column(3, "h", pa.array([f"h{k % 12}" for k in range(N)]))
    found = onnx_scores(model, rows)
    np.testing.assert_allclose(found, model.decision_function(rows), rtol=1e-9, atol=1e-9)


def test_exports(tmp_path: Path) -> None:
    """scikit-learn's estimator takes the margins as columns, a scorer has trees; VW refuses by
    name."""
    rows = table()
    model = learn(write(tmp_path / "0.parquet", rows))
    frame = rows.drop_columns(["y", "z", "w"])
    fitted = to_sklearn(model)
    found = fitted.decision_function(matrix_of(model, frame))
    assert np.allclose(found, [model.scorer().score(one) for one in frame.to_pylist()])
    place = model.plan.tree_offset
    assert name_of(model.plan, model.names, place) == "trees"
    with pytest.raises(UnsupportedError, match=r"VW has no (boosted trees|curves)"):
        FORMATS["vw"].write(model, io.BytesIO())
    scorer = io.BytesIO()
    FORMATS["scorer"].write(model, scorer)
    predict = scorer_reader.load(scorer)
    rows_to_score = [
        {**one, "h": "new"} if k == 3 else one for k, one in enumerate(frame.to_pylist())
    ]
    expected = [model.scorer().score(one) for one in rows_to_score]
    np.testing.assert_allclose(
        [predict(one)["score"] for one in rows_to_score], expected, 1e-9, 1e-9
    )
    with (tmp_path / "w.parquet").open("wb") as file:
        FORMATS["parquet"].write(model, file)
    assert learn(tmp_path / "0.parquet", start=str(tmp_path / "w.parquet")).plan == model.plan


def test_estimators_have_them(tmp_path: Path) -> None:
    """In fit, by position; a copy predicts the same, and so does the model."""
    rows = table()
    x, y, _ = raw(rows)
    x = np.nan_to_num(x)
    plainly = OMDClassifier(max_iter=1).fit(x, y)
    made = OMDClassifier(shapes="all", max_iter=1).fit(x, y)
    assert made._model.plan.trees.window == (("X", tuple(COUNTS)),)
    other = table(400, 9)
    x2, y2, _ = raw(other)
    x2 = np.nan_to_num(x2)
    assert made.score(x2, y2) > plainly.score(x2, y2) + 0.1
    copied = OMDClassifier.from_model(made.to_model())
    assert np.array_equal(copied.decision_function(x2), made.decision_function(x2))
    frame = rows.drop_columns(["y", "z", "w"]).to_pandas().drop(columns="v")
    fitted = OMDRegressor(shapes="all", nulls="indicator").fit(frame, rows["z"].to_numpy())
    assert fitted._model.plan.trees.columns == 3


LOSSES = ["square", "absolute", "huber", "pinball", "poisson", "gamma", "tweedie"]


@pytest.mark.parametrize("loss", LOSSES)
def test_losses_of_regression(loss: str, tmp_path: Path) -> None:
    """Each is lower than without trees; a target in another unit has the same margins."""
    rows = table()
    z = np.exp(rows["z"].to_numpy())
    place = rows.schema.get_field_index("y")
    shard = write(tmp_path / "0.parquet", rows.set_column(place, "y", pa.array(z)))
    losses = [learn(shard, loss=loss, shapes=shapes) for shapes in ("none", "all")]
    bare, grown = (one.evaluate(str(shard), quiet=True)["loss"] for one in losses)
    assert grown < bare
    if loss == "square":
        far = rows.set_column(place, "y", pa.array(1e6 + 1e3 * z))
        other = learn(write(tmp_path / "1.parquet", far), loss=loss)
        a = margins_of(losses[1], shard, learning=False)
        assert np.allclose(a, margins_of(other, tmp_path / "1.parquet", learning=False), atol=0.05)


def test_what_has_no_trees(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Few rows, equal labels, and losses, modes and options that cannot have them."""
    shard = write(tmp_path / "0.parquet", table(99))
    assert learn(shard, quiet=False).plan.trees is None
    assert "no trees are grown (model.shapes): there are 99 rows" in capsys.readouterr().err
    with pytest.raises(UnsupportedError, match="no trees are grown for loss 'log_square'"):
        learn(shard, label="z", loss="log_square", task="regress")
    with pytest.raises(UnsupportedError, match="sharded mode"):
        learn(shard, mode="sharded")


def test_hold_out_rows_grow_no_tree(tmp_path: Path) -> None:
    """Other labels of these rows change no margin."""
    rows = table()
    plans = []
    for k in range(2):
        shard = write(tmp_path / f"{k}/0.parquet", rows)
        model = learn(shard, holdout=3)
        plans.append(model.plan.trees.packed)
        from streamomd.training.holdout import held_out, number_of

        held = held_out(3, 0, number_of("0.parquet"), np.arange(N))
        labels = rows["y"].to_numpy().copy()
        labels[held] = 1 - labels[held]
        rows = rows.set_column(rows.schema.get_field_index("y"), "y", pa.array(labels))
    assert plans[0] == plans[1]


def test_lightgbm_is_an_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The message names it."""
    monkeypatch.setitem(sys.modules, "lightgbm", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'streamomd\[trees\]'"):
        learn(write(tmp_path / "0.parquet", table()))


def test_rows_that_are_dropped_have_no_place(tmp_path: Path) -> None:
    """Bad rows, and those of a filter: the others have the margins that they have alone."""
    rows = table(2 * N)
    good = np.arange(len(rows)) % 2 == 0
    few = rows.filter(pa.array(good))
    c = np.where(good, 0.0, 1.0)
    c[5::20] = np.nan  # of bad rows, which the filter does not drop
    mixed = rows.append_column("c", pa.array(c)).append_column("keep", pa.array((c != 1.0) * 1))
    alone = few.append_column("c", pa.array(np.zeros(N)))
    more = {"numeric": ["a", "b", "c"], "nulls": "a=indicator,b=indicator,v=indicator,c=error"}
    first = learn(write(tmp_path / "1/0.parquet", alone), **more)
    some = {**more, "where": "keep = 1", "on_bad_row": "skip"}
    second = learn(write(tmp_path / "2/0.parquet", mixed, row_group_size=90), **some)
    assert first.plan.trees.packed == second.plan.trees.packed
    assert first.state_sha256 == second.state_sha256
    assert second.metrics.total_rows == N


@pytest.mark.usefixtures("unchecked")
def test_learners_of_a_sweep_share_them(tmp_path: Path) -> None:
    """Each ends with the bits of one trained alone."""
    shard = write(tmp_path / "0.parquet", table())
    job = {"label": "y", "weight": "w", "nulls": "indicator", "quiet": True, "checkpoint": "none"}
    with plain():
        given = {**job, **SOME, "shapes": "all", "rule": "nag"}
        found = streamomd.sweep(str(shard), grid={"eta": [0.1, 1.0]}, **given)
        alone = [learn(shard, eta=eta) for eta in (0.1, 1.0)]
    assert [one.state_sha256 for one in found] == [one.state_sha256 for one in alone]


@pytest.mark.parametrize("unit", [1e-300, 1e-200, 1e200, 1e300])
@pytest.mark.parametrize("loss", ["square", "poisson", "gamma", "tweedie"])
def test_labels_beyond_the_range_of_lightgbm_grow_no_trees(loss: str, unit: float) -> None:
    """Nor do weights of which one class has almost all; LightGBM reads labels in 32 bits."""
    draw = np.random.default_rng(0)
    x = draw.normal(size=(400, 2))
    params = {"power": 1.5} if loss == "tweedie" else {}
    y = np.exp(x[:, 0]) * unit
    grown = Grower(x, y, np.ones(400), 0, 0, loss, params).grown(400)
    assert np.isfinite(grown.value).all()
    assert loss == "square" or not len(grown.feature)
    weight = np.where(x[:, 0] > 0.0, 1e6, 1e-20)
    assert not len(Grower(x, x[:, 0], weight, 0, 2, "logistic", {}).grown(400).feature)


@pytest.mark.parametrize("nulls", ["zero", "mean", "indicator"])
@pytest.mark.parametrize("rule", ["auto", "nag"])
def test_columns_of_all_kinds(nulls: str, rule: str, tmp_path: Path) -> None:
    """Dates' parts are read; lists of categories, texts and crosses are not."""
    rows = table()
    days = (np.arange(N) * 37 % 1000).astype("datetime64[D]")
    texts = [f"word{k % 5} more" for k in range(N)]
    lists = pa.array([[f"t{k % 4}", f"t{k % 3}"] for k in range(N)])
    rows = rows.append_column("d", pa.array(days)).append_column("s", pa.array(texts))
    rows = rows.append_column("l", lists)
    more = {"hashed": ["h", "l"], "dates": ["d"], "text": ["s"], "nulls": nulls, "rule": rule}
    shard = write(tmp_path / "0.parquet", rows)
    model = learn(shard, **more, sets={"data.crosses": [["h", "d.month"]]})
    assert model.plan.single[:1] == ("h",)
    assert model.plan.trees.columns == 4 + len(model.plan.single)
    assert not {"l", "s"} & {*model.plan.single}
    some = rows.drop_columns(["z", "w"]).slice(0, 30).to_pylist()
    for name, row in zip(["a", "b", "v", "h", "d", "l"], some, strict=False):
        row[name] = None
    schema = rows.drop_columns(["z", "w"]).schema
    assert_same_scores(model, pa.Table.from_pylist(some, schema))


@pytest.mark.parametrize("kind", ["files", "frame"])
@pytest.mark.parametrize("change", [False, True])
def test_trees_that_harm_later_rows_are_left_out(
    change: bool,
    kind: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of a relation that turns around in the middle of the first rows; a line says so. The model is
    that of shapes="columns", to the bit."""
    monkeypatch.setattr("streamomd.training.choose_shapes.HARM", 0.005)
    rows = table().select(["a", "b", "z"])
    if change:
        turned = np.where(np.arange(N) < 256, 1.0, -1.0) * np.array(rows["z"])
        rows = rows.set_column(2, "z", pa.array(turned))
    given = {"shuffle": False, "early_stopping": False, "nulls": "mean"}
    X, y = rows.drop_columns(["z"]), rows["z"].to_numpy()
    shard = str(in_parts(tmp_path, rows, 230, 70))
    found, others = (
        streamomd.train(
            shard, label="z", shapes=shapes, nulls="mean", checkpoint="none", rule="nag"
        ).decision_function(rows) if kind == "files"
        else OMDRegressor(shapes=shapes, **given).fit(X, y).predict(X)
        for shapes in ("all", "columns")
    )  # fmt: skip
    assert (found.tobytes() == others.tobytes()) == change
    if kind == "files":
        line = "no trees are used (model.shapes): they add "
        assert (line in capsys.readouterr().err) == change


def test_the_first_growths_alone(tmp_path: Path) -> None:
    """Predict as they did; the last of them predicts all later rows."""
    model = learn(write(tmp_path / "0.parquet", table()))
    trees = model.plan.trees
    assert trees is not None
    assert trees.until(0) is None
    assert trees.until(-1) is None
    early = trees.until(2)
    assert early is not None
    assert [one.tolist() for one in early.growths[1]] == [one.tolist() for one in trees.growths[1]]
    (shard,) = trees.of_shards
    rows = np.arange(N)
    now, before = early.growth_of(shard, rows), trees.growth_of(shard, rows)
    assert now is not None
    assert before is not None
    assert (now == np.minimum(before, 1)).all()


def test_the_first_rows_are_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By trees, curves and the check of both."""
    shards, calls = write(tmp_path / "0.parquet", table()), []

    def counted(*args: Any, **more: Any) -> Any:
        calls.append(1)
        return read_batches(*args, **more)

    monkeypatch.setattr("streamomd.training.curved_columns.read_batches", counted)
    monkeypatch.setattr("streamomd.training.choose_shapes.HARM", 0.005)
    assert learn(shards).plan.trees is not None
    assert len(calls) == 1
