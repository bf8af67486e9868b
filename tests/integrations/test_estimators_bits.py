"""fit on rows is ``streamomd train`` on Parquet shards of the same rows, to the bit."""

from __future__ import annotations

import pickle
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars
import pyarrow as pa
import pytest
import scipy.sparse
from estimating import (
    EPOCHS,
    Classifier,
    Regressor,
    bits,
    in_shards,
    lists,
    made,
    pair,
    trained,
    uncompiled,
)
from running import rows

import streamomd
from streamomd.core.errors import DivergedError

WORDS = np.array(["amber", "blue", "cyan"])
CASES: dict[str, tuple[int, dict[str, Any]]] = {
    "two classes": (2, {"rule": "nag", "loss": "logistic"}),
    "auto": (2, {"rule": "auto", "loss": "logistic"}),
    "auto, numbers": (0, {"rule": "auto", "loss": "square"}),
    "one against all": (3, {"rule": "adagrad", "loss": "hinge", "params": {"eta": 0.25}}),
    "softmax": (3, {"rule": "nag", "loss": "softmax"}),
    "softmax of two": (2, {"rule": "nag", "loss": "softmax", "dtype": "float32"}),
    "regression": (0, {"rule": "nag", "loss": "square", "bias": False}),
    "quantile": (0, {"rule": "ogd", "loss": "pinball", "loss_params": {"tau": 0.75}}),
    "two passes": (0, {"rule": "nag_projected", "loss": "square", "params": {"passes": 2}}),
}
KINDS = ("vectors", "float32", "numeric", "sparse")


@pytest.fixture(autouse=True)
def _plain(monkeypatch: pytest.MonkeyPatch) -> None:
    uncompiled(monkeypatch)


def estimator(model: dict[str, Any], **more: Any) -> Any:
    """The estimator of a job's [model]."""
    params = dict(model.get("params", {}))
    told = {key: model[key] for key in ("rule", "loss", "loss_params", "dtype") if key in model}
    told |= {"eta0": params.pop("eta", None), "params": params}
    kind = Regressor if model["loss"] in ("square", "pinball") else Classifier
    return kind(**told, fit_intercept=model.get("bias", True), **{"max_iter": EPOCHS, **more})


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("case", CASES)
@pytest.mark.sample(6)
def test_fit_is_train(tmp_path: Path, case: str, kind: str) -> None:
    """With weights, two epochs: dense, float32, as columns of numbers, sparse."""
    classes, model = CASES[case]
    X, y, weight = made(classes)
    X = X.astype(np.float32) if kind == "float32" else X
    if kind == "numeric":
        names = [f"x{at}" for at in range(X.shape[1])]
        columns, data = dict(zip(names, X.T, strict=True)), {"numeric": names}
    elif kind == "sparse":
        columns = pair(X)
        data = {"sparse": {"indices": "indices", "values": "values", "size": X.shape[1]}}
    else:
        columns, data = {"X": lists(X)}, {"vectors": ["X"]}
    shards = in_shards(tmp_path / "data", {**columns, "y": y, "w": weight})
    run = trained(shards, model, weight="w", **data)
    given = scipy.sparse.csr_array(X) if kind == "sparse" else X
    fitted = estimator(model).fit(given, y, sample_weight=weight)
    assert bits(fitted) == run.state_sha256
    assert fitted.to_model().result()["loss"] == run.result()["loss"]
    assert fitted.t_ == EPOCHS * len(y)


@pytest.mark.parametrize("case", ["auto", "auto, numbers"])
def test_max_iter_is_epochs(tmp_path: Path, case: str) -> None:
    """Three passes of the default rule, whose later passes are not as the first one."""
    classes, model = CASES[case]
    X, y, _ = made(classes)
    shards = in_shards(tmp_path / "data", {"X": lists(X), "y": y})
    run = trained(shards, model, epochs=3, vectors=["X"])
    assert bits(estimator(model, max_iter=3).fit(X, y)) == run.state_sha256
    assert bits(estimator(model).fit(X, y)) != run.state_sha256


@pytest.mark.parametrize("labels", [WORDS[:2], WORDS, np.array([-1, 1]), np.array([False, True])])
def test_labels_are_those_of_shards(tmp_path: Path, labels: np.ndarray) -> None:
    """Words, signs and booleans are the classes they are in a label column."""
    X, y, _ = made(len(labels))
    shards = in_shards(tmp_path / "data", {"X": lists(X), "y": labels[y]})
    run = trained(shards, {}, vectors=["X"])
    fitted = Classifier(max_iter=EPOCHS).fit(X, labels[y])
    assert bits(fitted) == run.state_sha256
    assert list(fitted.classes_) == list(run.plan.classes)
    assert set(fitted.predict(X)) <= set(labels)


class Speaks:
    """A frame of another library: its columns, and Arrow's C stream."""

    def __init__(self, table: pa.Table) -> None:
        self.table, self.columns, self.shape = table, table.column_names, table.shape

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        return self.table.__arrow_c_stream__(requested_schema)


FRAMES = {
    "pandas": lambda table: table.to_pandas().set_axis([*range(7, 7 + len(table))][::-1]),
    "pandas of Arrow": lambda table: table.to_pandas(types_mapper=pd.ArrowDtype),
    "polars": polars.from_arrow,
    "Arrow": lambda table: table,
    "batch": lambda table: table.combine_chunks().to_batches()[0],
    "another": Speaks,
}


@pytest.mark.parametrize("library", FRAMES)
@pytest.mark.sample(3)
def test_frames_are_encoded_as_shards(tmp_path: Path, library: str) -> None:
    """Numbers, text, categories and missing words: the bits, and the names of coordinates."""
    table = rows(90).drop_columns(["i", "v"])
    words = pa.array([None if at % 9 == 4 else f"w{at % 5}" for at in range(90)])
    table = table.append_column("lost", words)
    run = trained(in_shards(tmp_path / "data", table), {}, weight="w", bits=6)
    features = FRAMES[library](table.drop_columns(["y", "w"]))
    y, weight = table["y"].to_numpy(), table["w"].to_numpy()
    fitted = Classifier(bits=6, max_iter=EPOCHS).fit(features, y, sample_weight=weight)
    assert bits(fitted) == run.state_sha256
    # Which of two names at a coordinate comes first depends on what was decoded first.
    ours, theirs = fitted.to_model().names.seen(), run.names.seen()
    assert {at: {*names} for at, names in ours.items()} == {
        at: {*names} for at, names in theirs.items()
    }
    assert list(fitted.feature_names_in_) == ["n", "k", "h", "c", "lost"]
    files = run.predict(str(tmp_path / "data"), str(tmp_path / "out"))
    told = pa.concat_tables([pa.parquet.read_table(file) for file in files])
    assert fitted.decision_function(features).tolist() == told["score"].to_pylist()
    assert fitted.predict_proba(features)[:, 1].tolist() == told["probability"].to_pylist()
    assert fitted.predict(features).tolist() == told["prediction"].to_pylist()


def test_numbers_in_a_frame_are_those_of_its_shards(tmp_path: Path) -> None:
    """Of several types, among them integers that float32 cannot hold."""
    X, y, _ = made(2)
    frame = pd.DataFrame({"a": X[:, 0].astype(np.float32), "b": 2**24 + 1 + np.arange(len(y))})
    table = pa.Table.from_pandas(frame.assign(y=y), preserve_index=False)
    run = trained(in_shards(tmp_path / "data", table.replace_schema_metadata()), {})
    assert bits(Classifier(max_iter=EPOCHS).fit(frame, y)) == run.state_sha256


@pytest.mark.parametrize("case", [case for case in CASES if case != "two passes"])
@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.sample(2)
def test_partial_fit_is_fit_in_pieces(case: str, sparse: bool) -> None:
    """Pieces of any size, pickled and copied on the way, of any kind of matrix."""
    classes, model = CASES[case]
    X, y, weight = made(classes)
    given = scipy.sparse.csc_array(X) if sparse else X
    same = given if model["rule"] == "auto" else X  # which does not centre columns of pairs
    whole = estimator(model, max_iter=1).fit(same, y, sample_weight=weight)
    pieces = estimator(model)
    for place, low in enumerate(range(0, len(y), 13)):
        at = slice(low, low + 13)
        more = {"classes": np.unique(y)} if classes and not place else {}
        pieces.partial_fit(given[at], y[at], sample_weight=weight[at], **more)
        pieces = pickle.loads(pickle.dumps(pieces))
    assert bits(pieces) == bits(whole)
    assert pieces.t_ == len(y)


def test_shuffled_rows_are_the_rows_in_that_order() -> None:
    """Each epoch has a permutation of its own, drawn from random_state."""
    X, y, weight = made(2)
    for given in (X, scipy.sparse.csr_array(X), pd.DataFrame(X, columns=[*"abcd"])):
        shuffled = {"max_iter": EPOCHS, "shuffle": True, "random_state": 5}
        found = Classifier("nag", **shuffled).fit(given, y, weight)
        by_hand, draw = Classifier("nag", warm_start=True), np.random.RandomState(5)
        for _ in range(EPOCHS):
            order = draw.permutation(len(y))
            by_hand.fit(X[order], y[order], weight[order])
        assert bits(found) == bits(by_hand)
        assert bits(found) != bits(Classifier("nag", max_iter=EPOCHS).fit(X, y, weight))


def test_equal_and_unordered_places_of_a_matrix_are_summed() -> None:
    """What scipy allows in a row is made canonical, and the matrix given stays as it is."""
    rough = scipy.sparse.csr_array(
        (np.array([1.0, 2.0, 4.0, -1.0]), np.array([2, 0, 2, 1]), np.array([0, 3, 4])), (2, 3)
    )
    found = Regressor("nag").fit(rough, [1.0, -1.0])
    plain = [[2.0, 0.0, 5.0], [0.0, -1.0, 0.0]]
    assert bits(found) == bits(Regressor("nag").fit(plain, [1.0, -1.0]))
    assert rough.indices.tolist() == [2, 0, 2, 1]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of what Dask calls in pandas
def test_dask_is_train_on_the_collection(tmp_path: Path) -> None:
    """A DataFrame with its labels and weights, and arrays: the bits; predictions are lazy."""
    import dask.array as da
    import dask.dataframe as dd

    table = rows(90).drop_columns(["i", "v"])
    run = trained(in_shards(tmp_path / "data", table), {}, weight="w", bits=6)
    whole = dd.read_parquet(tmp_path / "data")
    X = whole[["n", "k", "h", "c"]]
    fitted = Classifier(bits=6, max_iter=EPOCHS).fit(X, whole["y"], sample_weight=whole["w"])
    assert bits(fitted) == run.state_sha256
    assert fitted.predict(X).compute().tolist() == fitted.predict(X.compute()).tolist()
    assert fitted.predict_proba(X).compute().tolist() == (
        fitted.predict_proba(X.compute())[:, 1].tolist()
    )
    numbers, y, weight = made(0)
    chunks = [da.from_array(one, chunks=(40, *one.shape[1:])) for one in (numbers, y, weight)]
    lazy = Regressor(max_iter=EPOCHS).fit(chunks[0], chunks[1], sample_weight=chunks[2])
    near = Regressor(max_iter=EPOCHS).fit(numbers, y, sample_weight=weight)
    assert bits(lazy) == bits(near)
    assert lazy.predict(chunks[0]).compute().tolist() == near.predict(numbers).tolist()
    assert streamomd.Spec.parse(lazy.to_model().spec.to_json())


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of what Dask calls in pandas
@pytest.mark.parametrize("words", [pytest.param(False, marks=pytest.mark.slow), True])
def test_dask_weights_classes_as_memory_does(words: bool) -> None:
    """Balanced and a dict, with weights of rows and without, of labels as text and as numbers, in
    a frame and in arrays: the bits of the same rows in one process."""
    import dask.array as da
    import dask.dataframe as dd

    X, y, weight = (one[:60] for one in made(3))
    named = np.array(WORDS)[y.astype(int)] if words else y.astype(int)
    frame = pd.DataFrame(X).rename(columns=str)
    labels, own = pd.Series(named, name="label"), pd.Series(weight)
    lazy = [dd.from_pandas(one, npartitions=3) for one in (frame, labels, own)]
    given = {name: 0.5 + place for place, name in enumerate(np.unique(named).tolist()[:2])}
    for told in ("balanced", given):
        model = Classifier(class_weight=told, max_iter=EPOCHS)
        for some in (None, own):
            near = bits(model.fit(frame, labels, some))
            found = model.fit(lazy[0], lazy[1], lazy[2] if some is not None else None)
            assert bits(found) == near
            assert bits(found) != bits(Classifier(max_iter=EPOCHS).fit(frame, labels, some))
        if not words:
            chunks = [da.from_array(one, chunks=(25, *one.shape[1:])) for one in (X, named)]
            assert bits(model.fit(*chunks)) == bits(model.fit(X, named))


@pytest.mark.parametrize(
    "told, message",
    [
        ("balance", "balance"),
        ({7: 1}, "not in class_weight"),
        ({0: -1}, "expected 0 or more"),
        ([1], "class_weight"),
    ],
)
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_dask_refuses_the_class_weights_that_memory_refuses(told: Any, message: str) -> None:
    """Unknown words and classes, weights below 0, and other types, with the same kind of error."""
    import dask.array as da

    X, y, _ = made(2)
    chunks = [da.from_array(one, chunks=(40, *one.shape[1:])) for one in (X, (y > 0).astype(int))]
    with pytest.raises(ValueError, match=message):
        Classifier(class_weight=told).fit(*chunks)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_rows_that_come_later_are_checked_as_the_first(value):
    """A CSR matrix is looked at once, and refused as scikit-learn refuses it. Finite values whose
    sum is not are accepted, and the model that diverges on them says so."""
    X = scipy.sparse.csr_matrix(np.arange(12.0).reshape(4, 3))
    y = np.array([0, 1, 0, 1])
    estimator = Classifier().partial_fit(X, y, classes=[0, 1])
    bad = X.copy()
    bad.data[2] = value
    for wrong in (bad, X[:, :2], X[:0]):
        with pytest.raises(ValueError):
            estimator.partial_fit(wrong, y[: wrong.shape[0]])
    estimator = Classifier("ogd").partial_fit(X, y, classes=[0, 1])  # takes any finite number
    large = X.copy()
    large.data[:] = 1e308  # finite, and their sum is not
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(DivergedError):
            estimator.partial_fit(large, y)
