"""A run that starts from given weights predicts with them; what cannot be meant is refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from exporting import answers, batch_of, model_of, table
from running import run, write

import streamomd
from streamomd.config.spec import Spec
from streamomd.core.batch import DenseBatch
from streamomd.core.errors import DataError, UnsupportedError, UsageError
from streamomd.features import make_plan
from streamomd.integrations.export import export
from streamomd.rules import all_rules
from streamomd.rules.contract import Matrix
from streamomd.shards.output_files import KEY
from streamomd.training.model import Model
from streamomd.training.warm_start import is_weights, start_from_weights
from streamomd.training.warm_start.weights import (
    StartWeights,
    rules_with_start_weights,
    scales_of,
    set_start_weights,
    weight_slot,
)

NUMBERS = {"numeric": ["n", "f"], "ignore": ["t", "h", "k", "e"]}
EVERYTHING = {"numeric": ["n", "f", "t"], "vectors": ["e"], "hashed": ["h", "k"], "bits": 6}
ABLE = {
    "adagrad", "aggressive_second_order", "arow", "arow_diag", "cw", "cw_diag", "nag_projected",
    "ogd", "ons", "ons_diag", "pa", "pa1", "pa2", "perceptron", "rls", "snag", "sop", "vaw",
}  # fmt: skip
SCALED = {"nag", "ng"}


def fresh(rule: str, rows: pa.Table, **data: Any) -> Model:
    """A model that has seen nothing."""
    rules = all_rules()[rule].losses.names
    loss = rules[0] if rules else "logistic"
    params = {"L": 50.0} if "L" in all_rules()[rule].parse_params({}) else {}
    job = {"rule": rule, "loss": loss, "task": "classify", "params": params}
    return model_of(rows, data=data or NUMBERS, model=job)


def slot(model: Model) -> str | None:
    return weight_slot(model.engine.layout.rule)


@pytest.mark.parametrize("rule", all_rules())
def test_every_rule_begins_at_given_weights_or_says_that_it_cannot(rule: str) -> None:
    """The weights are those given, and the row's margin is <w, x>, at the first row as before it.

    A rule that lacks scales sees them vanish; one that makes weights of other slots is refused by
    name, with those that are able.
    """
    known = all_rules()[rule]
    params = known.parse_params({})
    plain = known.reduced_for(params)
    found = weight_slot(plain)
    assert (found is not None) == (rule in able())
    assert rules_with_start_weights().count(rule) or found is None
    if found is None:
        return
    if rule in ABLE | SCALED:
        assert bool(scales_of(plain, params, found)) == (rule in SCALED)


def test_rules_of_the_papers_begin_at_weights() -> None:
    """Those that name a weight slot; a new rule needs no line here."""
    assert able() >= ABLE | SCALED


def able() -> set[str]:
    """Rules whose simplest form names a weight slot."""
    known = all_rules().values()
    return {one.name for one in known if one.reduced_for(one.parse_params({})).state.weight}


def marked(rule: str) -> Any:
    """Sums over all coordinates are compiled when a model is made: those are for the long run."""
    known = all_rules()[rule]
    slow = known.reduced_for(known.parse_params({})).masses > 0
    return pytest.param(rule, marks=pytest.mark.slow if slow else ())


@pytest.mark.parametrize("rule", [marked(rule) for rule in sorted(able())])
def test_margins_are_those_of_the_given_weights(rule: str) -> None:
    """<w, x> in float64, by a plain sum, whatever row is met first; and what a row does not touch
    is as it was after it."""
    rows = table(12, labels="two")
    model = fresh(rule, rows)
    known = model.engine.layout.rule
    model.state.slot(slot(model) or "")[...] = 0.0
    weights = np.array([[0.5], [-0.25], [3.0]])
    named = scales_of(known, model.engine.params, slot(model) or "")
    scales = {name: np.array([1.0, 5000.0, 9.0]) for name in named}
    set_start_weights(model, [StartWeights(np.arange(3), weights, scales, "here")])
    np.testing.assert_array_equal(model.engine.weights(model.state, 0, 3), weights)
    foresees = isinstance(known.storage, Matrix) and known.storage.foresee
    if foresees or known.row.part or known.row.clamp:
        return
    batch = batch_of(model, rows)
    assert isinstance(batch, DenseBatch)
    told = [0.5 + float(n) * -0.25 + float(f) * 3.0 for n, f in batch.values]
    margins = model.engine.predict(model.state, np.zeros(3), batch)
    np.testing.assert_allclose(margins[:, 0], told, rtol=1e-12)
    one = DenseBatch(np.array([[1.0, 0.0]]), np.array([1.0]), np.array([1.0]))
    assert model.engine.learn(model.state, np.zeros(3), one)[0, 0] == pytest.approx(0.25)
    assert model.engine.weights(model.state, 2, 3).tolist() == [[3.0]]


def test_a_rule_that_cannot_is_refused_with_those_that_can() -> None:
    """Dual averaging computes its weights from sums of gradients."""
    rows = table()
    spec = {"rule": "da"}
    with pytest.raises(UnsupportedError, match=r"'da'.*use adagrad, .*ogd, .*nag, ng") as error:
        set_start_weights(_empty(rows, spec), [])
    assert "winnow" not in str(error.value)


def _empty(rows: pa.Table, spec: dict[str, Any], **data: Any) -> Model:
    told = {"data": {"shards": "none", "label": "y", **(data or NUMBERS)}, "model": spec}
    parsed = Spec.parse(told)
    labels = sorted(set(rows["y"].to_pylist()))
    model = Model.new(parsed, make_plan(parsed.data, parsed.model, rows.schema, lambda: labels))
    model.engine = replace(model.engine, compiled=False)
    return model


@pytest.mark.parametrize("labels", ["two", "three"])
@pytest.mark.parametrize("rule", ["ogd", "ng"])
def test_an_export_is_read_back(tmp_path: Path, labels: str, rule: str) -> None:
    """Weights of every kind of column come back to the bit, with the scales that they need."""
    rows = table(labels=labels)
    model = model_of(rows, data=EVERYTHING, model={"rule": rule})
    for scale in ("s",) if rule == "ng" else ():
        model.state.slot(scale)[...] = 7.0
    to = str(tmp_path / "w.parquet")
    told = export(model, "parquet", to)
    assert told["rows"] == model.plan.size
    again = _at(to, rows, {"rule": rule}, **EVERYTHING)
    ours, theirs = (m.engine.weights(m.state, 0, m.plan.size) for m in (model, again))
    np.testing.assert_array_equal(theirs, ours)
    assert answers(again, rows)["score"].tolist() == answers(model, rows)["score"].tolist()


def _at(start: Any, rows: pa.Table, spec: dict[str, Any], **data: Any) -> Model:
    given = start if not isinstance(start, str) else None
    url = start if isinstance(start, str) else "weights://x"
    model = _empty(rows, {**spec, "start": url}, **data)
    start_from_weights(model, None, given)
    return model


OGD = {"rule": "ogd"}


def test_features_by_name(tmp_path: Path) -> None:
    """Names as ``inspect`` tells them, in any order; what is not there has weight 0."""
    rows = table()
    names = ["h=Zürich", "f", "bias", "k=-3", "e[2]", "h=", "h is null", "t"]
    file = write(tmp_path / "w.parquet", {"feature": names, "weight": np.arange(1.0, 9.0)})
    model = _at(str(file), rows, OGD, **EVERYTHING)
    told = {one["name"]: one["weight"][0] for one in model.inspect(20)}
    dense = {name: told[name] for name in ("f", "bias", "e[2]", "t")}
    assert dense == {"f": 2.0, "bias": 3.0, "e[2]": 5.0, "t": 8.0}
    assert sorted(told.values()) == list(np.arange(1.0, 9.0))
    vector = pa.array([[0.0] * 3], rows.schema.field("e").type)
    numbers = {"y": ["no"], "n": [0.0], "f": [0.0], "t": [False]}
    one = pa.table({**numbers, "h": ["Zürich"], "k": [-3], "e": vector})
    assert answers(model, one)["score"].tolist() == [3.0 + 1.0 + 4.0]


BAD = {
    "no such feature": ({"feature": ["age"], "weight": [1.0]}, "no feature 'age'.*'n', 'f'"),
    "a null for a name": ({"feature": ["f", None], "weight": [1.0, 2.0]}, "expected names"),
    "twice": ({"feature": ["f", "f"], "weight": [1.0, 2.0]}, "given twice"),
    "NaN": ({"feature": ["f"], "weight": [np.nan]}, "weight of coordinate 2 is .*finite"),
    "a null for a weight": ({"feature": ["f"], "weight": [None]}, "holds object|finite"),
    "infinite": ({"coordinate": [0], "weight": [np.inf]}, "finite"),
    "outside": ({"coordinate": [3], "weight": [1.0]}, "coordinate 3 is not in 0 … 2"),
    "negative": ({"coordinate": [-1], "weight": [1.0]}, "coordinate -1"),
    "fractions": ({"coordinate": [0.5], "weight": [1.0]}, "whole numbers"),
    "texts": ({"feature": ["f"], "weight": ["1"]}, "expected numbers"),
    "no weight": ({"feature": ["f"], "w": [1.0]}, "expected coordinate or feature, and weight"),
    "no name": ({"weight": [1.0]}, "expected coordinate or feature"),
    "learners": ({"feature": ["f"], "weight": [1.0], "weight[a]": [1.0]}, "one weight for each"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_weights_are_refused(tmp_path: Path, case: str) -> None:
    """What came, what was expected, and where."""
    columns, message = BAD[case]
    file = write(tmp_path / "w.parquet", columns)
    with pytest.raises((UsageError, DataError), match=message) as error:
        _at(str(file), table(), OGD)
    assert "w.parquet" in str(error.value)


def test_weights_without_scales_are_refused_where_they_would_vanish(tmp_path: Path) -> None:
    """NAG needs slot.s, above 0 where there is a weight."""
    file = write(tmp_path / "w.parquet", {"feature": ["f"], "weight": [1.0]})
    with pytest.raises(UsageError, match=r"slot\.s.*squashes"):
        _at(str(file), table(), {"rule": "nag"})
    file = write(tmp_path / "w.parquet", {"feature": ["f"], "weight": [1.0], "slot.s": [0.0]})
    with pytest.raises(DataError, match=r"slot\.s of coordinate 2.*above 0"):
        _at(str(file), table(), {"rule": "nag"})


def test_coordinates_of_other_columns_are_refused(tmp_path: Path) -> None:
    """An exported file tells what its coordinates are; without that column names are matched."""
    rows = table()
    to = str(tmp_path / "w.parquet")
    export(model_of(rows, data=NUMBERS), "parquet", to)
    other = {"numeric": ["f", "n"], "ignore": ["t", "h", "k", "e"]}
    with pytest.raises(UsageError, match=r"numeric: \['n', 'f'\] there.*leave out"):
        _at(to, rows, OGD, **other)


@pytest.mark.parametrize("told", [b"x", b"[1]", b"{" * 9, b"[" * 100_000])
def test_metadata_that_nobody_wrote_is_refused(tmp_path: Path, told: bytes) -> None:
    """A file from elsewhere may say anything of itself."""
    columns = pa.table({"coordinate": [0], "weight": [1.0]})
    file = write(tmp_path / "w.parquet", columns.replace_schema_metadata({KEY: told}))
    with pytest.raises(DataError, match="not a JSON object"):
        _at(str(file), table(), OGD)


@pytest.mark.parametrize("name", ["m.pkl", "m.joblib", "m.skops", "m.pickle"])
def test_nothing_executable_is_read(name: str) -> None:
    """A pickle is refused by its name, with what to do."""
    with pytest.raises(UsageError, match="Load it in Python"):
        is_weights(f"runs/{name}")
    assert is_weights("runs/w.parquet")
    assert not is_weights("runs/bank")


def linear(coef: Any, intercept: Any = 0.0, **more: Any) -> Any:
    return SimpleNamespace(coef_=np.array(coef), intercept_=np.array(intercept), **more)


@pytest.mark.parametrize("swapped", [False, True])
def test_a_fitted_model_in_memory(swapped: bool) -> None:
    """By place or by name; classes in another order turn the sign."""
    rows = table()
    classes = np.array(["yes", "no"] if swapped else ["no", "yes"])
    fitted = linear([[2.0, -3.0]], [0.5], classes_=classes)
    sign = -1.0 if swapped else 1.0
    model = _at(fitted, rows, OGD)
    found = model.engine.weights(model.state, 0, 3)[:, 0]
    assert found.tolist() == [sign * 0.5, sign * 2.0, sign * -3.0]
    fitted.feature_names_in_ = np.array(["f", "n"], dtype=object)
    model = _at(fitted, rows, OGD)
    found = model.engine.weights(model.state, 0, 3)[:, 0]
    assert found.tolist() == [sign * 0.5, sign * -3.0, sign * 2.0]


def test_a_fitted_model_of_classes() -> None:
    """A row of weights for each class, by the class."""
    rows = table(labels="three")
    fitted = linear([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]], [7.0, 8.0, 9.0])
    fitted.classes_ = np.array(["c", "a", "b"])
    model = _at(fitted, rows, OGD)
    found = model.engine.weights(model.state, 0, 3)
    assert found.T.tolist() == [[8.0, 3.0, 4.0], [9.0, 5.0, 6.0], [7.0, 1.0, 2.0]]


YES = {"classes_": np.array(["no", "yes"])}
UNFIT = {
    "other labels": (linear([[1.0, 2.0]], classes_=np.array([0, 1])), OGD, "predicts .0, 1., and"),
    "numbers": (linear([1.0, 2.0]), OGD, "predicts numbers"),
    "learners": (linear(np.ones((3, 2)), [0.0] * 3, **YES), OGD, "3 learners, and the job 1"),
    "width": (linear([[1.0]], **YES), OGD, "1 weights without names"),
    "names": (
        linear([[1.0]], feature_names_in_=np.array(["age"]), **YES), OGD, "no feature 'age'",
    ),
    "intercept": (linear([[1.0, 2.0]], 1.0, **YES), {**OGD, "bias": False}, "intercept"),
    "scales": (linear([[1.0, 2.0]], **YES), {"rule": "nag"}, "squashes"),
    "not linear": (object(), OGD, "is a object, expected a checkpoint's URL"),
}  # fmt: skip


@pytest.mark.parametrize("case", UNFIT)
def test_a_model_that_does_not_fit_is_refused(case: str) -> None:
    """Other labels, learners, features, an intercept without a bias, no linear model at all."""
    fitted, spec, message = UNFIT[case]
    with pytest.raises(UsageError, match=message):
        _at(fitted, table(), spec)


def test_train_starts_from_weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a file and of an object: the first row's loss is that of the given weights; then certify
    says that its theorems start at 0."""
    monkeypatch.chdir(tmp_path)
    sklearn = pytest.importorskip("sklearn.linear_model", reason="needs scikit-learn")
    rows = table(200)
    write(tmp_path / "data" / "a.parquet", rows)
    X = np.column_stack([rows["n"], rows["f"]])
    fitted = sklearn.SGDClassifier(loss="log_loss", random_state=0).fit(X, rows["y"])
    flags = {"label": "y", "rule": "ogd", "sets": {"data.ignore": NUMBERS["ignore"]}}
    flags |= {"numeric": ["n", "f"], "quiet": True}
    model = streamomd.train("data", start=fitted, checkpoint="runs/a", **flags)
    assert model.spec.model.start.startswith("weights://sklearn.linear_model")
    first = {"feature": ["bias", "n", "f"], "weight": [*fitted.intercept_, *fitted.coef_[0]]}
    write(tmp_path / "w.parquet", first)
    other = streamomd.train("data", start="w.parquet", checkpoint="runs/b", **flags)
    assert other.state_sha256 == model.state_sha256
    write(tmp_path / "one" / "a.parquet", rows.slice(0, 1))
    sets = {"data.ignore": NUMBERS["ignore"], "model.classes": ["no", "yes"]}
    one = streamomd.train("one", start=fitted, checkpoint="none", **{**flags, "sets": sets})
    margin = float(fitted.decision_function(X[:1])[0])
    signed = margin if rows["y"][0].as_py() == "yes" else -margin
    assert one.result()["loss"] == pytest.approx(np.logaddexp(0.0, -signed), rel=1e-12)
    assert "theorems start at 0" in run("certify", "runs/b", "data").out
    assert streamomd.resume("runs/a", quiet=True).state_sha256 == model.state_sha256
    flags = ["--label", "y", "--numeric", "n", "--set", "data.ignore=['f','t','h','k','e']"]
    done = run("train", "data", *flags, "--start", "m.pkl", "--checkpoint", "none")
    assert done.code == 2
    assert "Load it in Python" in done.err
