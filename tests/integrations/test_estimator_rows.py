"""Predictions of small frames take a way without Arrow, with the bits of the way through Arrow."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pandas as pd
import pytest
from estimating import Classifier, Regressor, made, uncompiled

from streamomd import OMDClassifier
from streamomd.core.errors import BadRowError, DataError, SchemaError
from streamomd.integrations.sklearn import inputs
from streamomd.integrations.sklearn.inputs import PreparedScores

X, Y, _ = made(2)
N = len(Y)
TEXT = np.array(["amber", "blue", "cyan", "", "ä|=b"])[np.arange(N) % 5]
DRAW = np.random.default_rng(5)


@pytest.fixture(autouse=True)
def _plain(monkeypatch: pytest.MonkeyPatch) -> None:
    uncompiled(monkeypatch)
    monkeypatch.setattr(inputs, "FIRST", 1)
    monkeypatch.setattr(inputs, "COORDINATES", 1 << 30)


def with_nulls(values: Any) -> pd.Series:
    """Every fifth value is missing."""
    return pd.Series(values).mask(np.arange(N) % 5 == 2)


COLUMNS: dict[str, Any] = {
    "float64": X[:, 0], "float32": X[:, 1].astype(np.float32), "float16": TEXT == "blue",
    "int64": DRAW.integers(-5, 5, N), "int8": DRAW.integers(-5, 5, N).astype(np.int8),
    "uint64": DRAW.integers(0, 2**40, N).astype(np.uint64), "bool": X[:, 2] > 0,
    "missing": with_nulls(X[:, 3]), "nullable": with_nulls(np.arange(N) % 7).astype("Int64"),
    "text": TEXT, "object": TEXT.astype(object), "gaps": with_nulls(TEXT.astype(object)),
    "category": pd.Categorical(TEXT), "codes": pd.Categorical(np.arange(N) % 4),
    "gone": pd.Categorical.from_codes(np.arange(N) % 3 - 1, ["x", "y"]),
    "zip": np.arange(N) % 4, "whole": with_nulls(np.arange(N) % 4), "flag": np.arange(N) % 2 == 1,
    "arrow": pd.Series(TEXT, dtype="string[pyarrow]"), "day": pd.date_range("2026", periods=N),
    "sentences": [f"{a} {b}" for a, b in zip(TEXT, TEXT[::-1], strict=True)],
}  # fmt: skip
COLUMNS["float16"] = COLUMNS["float16"].astype(np.float16)
ROLES = {"categorical": ["zip", "whole", "flag"], "dates": ["day"], "text": ["sentences"]}


def both(fitted: Any, frame: pd.DataFrame, rows: int) -> None:
    """Each part of the frame has the margins of the whole frame, which Arrow converts."""
    fitted._held.scores = PreparedScores()
    whole = fitted._margins(frame)
    for at in range(0, len(frame), rows):
        part = fitted._margins(frame.iloc[at : at + rows])
        assert part.tobytes() == whole[at : at + rows].tobytes()


def worlds(count: int) -> list[tuple[list[str], str, str]]:
    """Some columns, how missing numbers are replaced, and a rule."""
    draw = np.random.default_rng(11)
    names, rules = list(COLUMNS), ("auto", "nag", "arow_diag", "ftrl_proximal", "ons")
    return [
        ([*draw.permutation(names)[: draw.integers(1, 8)]], draw.choice(["mean", "zero"]),
         rules[at % len(rules)])
        for at in range(count)
    ]  # fmt: skip


@pytest.mark.parametrize(("names", "nulls", "rule"), [
    *(pytest.param(*world, marks=[pytest.mark.slow] * (at > 4))
      for at, world in enumerate(worlds(60))),
    *(([name], "mean", "nag") for name in COLUMNS), (["float64", "int64"], "error", "auto"),
    (["float32"], "error", "nag"), (["float64", "text"], "error", "nag"),
    (["float64", "missing"], "indicator", "auto"), (["object", "missing"], "indicator", "nag"),
])  # fmt: skip
@pytest.mark.sample(2)
def test_few_rows_have_the_bits_of_many(names: list[str], nulls: str, rule: str) -> None:
    """Whatever the types of the columns and the values that are missing."""
    frame = pd.DataFrame({name: COLUMNS[name] for name in names})
    roles = {key: [name for name in given if name in names] for key, given in ROLES.items()}
    fitted = Classifier(rule, nulls=nulls, bits=4, **roles).fit(frame, Y)
    both(fitted, frame[:20], 1)
    both(fitted, frame, 30)


@pytest.mark.parametrize("loss", ["softmax", "logistic"])
def test_every_method_has_its_bits(loss: str) -> None:
    """Of three classes, and of regression."""
    frame = pd.DataFrame({"n": X[:, 0], "k": TEXT})
    y = np.arange(N) % 3
    fitted = Classifier("nag", loss, bits=4).fit(frame, y)
    whole = [fitted.predict(frame), fitted.predict_proba(frame), fitted.decision_function(frame)]
    for at in range(20):
        row = frame[at : at + 1]
        parts = fitted.predict(row), fitted.predict_proba(row), fitted.decision_function(row)
        assert [part.tobytes() for part in parts] == [one[at : at + 1].tobytes() for one in whole]
    assert fitted._held.scores._scorer is not None
    number = Regressor("nag", bits=4).fit(frame, X[:, 1])
    expected = number.predict(frame)
    assert [number.predict(frame[at : at + 1])[0] for at in range(20)] == expected[:20].tolist()


def test_a_state_that_learned_has_other_scores() -> None:
    """After partial_fit, a warm fit, set_params and fit, from a pickle, and for a copy."""
    frame = pd.DataFrame({"n": X[:, 0], "k": TEXT})
    fitted = Classifier("nag", bits=4).partial_fit(frame, Y, [0, 1])
    for _ in range(3):
        both(fitted, frame[:9], 1)
        assert fitted._held.scores._scorer is not None
        copied = pickle.loads(pickle.dumps(fitted))
        assert copied._held.scores._scorer is None
        before = fitted.decision_function(frame[:1])
        fitted.partial_fit(frame, Y)
        assert fitted._held.scores._scorer is None
        assert fitted.decision_function(frame[:1]) != before
        assert copied.decision_function(frame[:1]) == before
    fitted.set_params(warm_start=True).fit(frame, Y)
    both(fitted, frame[:9], 1)
    fitted.set_params(warm_start=False).fit(frame[["k"]], Y)
    both(fitted, frame[["k"]], 1)


def test_a_scorer_is_made_for_many_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    """Predictions between calls of partial_fit make none; it takes longer than they do."""
    monkeypatch.undo()
    uncompiled(monkeypatch)
    frame = pd.DataFrame({"n": X[:, 0], "k": TEXT})
    fitted = Classifier("nag", bits=14).partial_fit(frame, Y, [0, 1])
    calls = inputs.FIRST + 2**14 // inputs.COORDINATES + 1
    for at in range(calls + 1):
        assert (fitted._held.scores._scorer is None) == (at < calls)
        fitted.predict(frame[:1])


def test_bad_values_of_few_rows_are_refused_as_of_many() -> None:
    """The same errors, with the row and column, though earlier rows took the short way."""
    frame = pd.DataFrame({"n": X[:, 0], "k": TEXT.astype(object)})
    numbers = pd.DataFrame(X, columns=[*"abcd"])
    fitted, plain = OMDClassifier(max_iter=1, bits=4).fit(frame, Y), Classifier().fit(numbers, Y)
    for _ in range(3):
        fitted.predict(frame[:3])
        plain.predict(numbers)
    for value in (np.nan, np.inf):
        with pytest.raises(BadRowError, match="row 1, column 'n'"):
            fitted.predict(frame[:3].assign(n=[0.0, value, 0.0]))
        with pytest.raises(BadRowError, match="row 1, column 'b'"):
            plain.predict(numbers.assign(b=[0.0, value] * (N // 2)))
    with pytest.raises(SchemaError, match="'n'"):
        fitted.predict(frame[:3].assign(n="x"))
    with pytest.raises(SchemaError, match="'k'"):
        fitted.predict(frame[:1].assign(k=[5]))
    with pytest.raises(SchemaError, match="'k'"):
        fitted.predict(frame[:1].assign(k=pd.Series([b"x"], dtype=object)))
    with pytest.raises(DataError, match="text that UTF-8 can encode"):
        fitted.predict(frame[:1].assign(k=pd.Series(["\ud800"], dtype=object)))
    with pytest.raises(ValueError, match="same order"):
        fitted.predict(frame[["k", "n"]][:1])
    with pytest.raises(ValueError, match="no rows"):
        fitted.predict(frame[:0])


def test_whole_numbers_beyond_floats_are_refused() -> None:
    """They would be rounded in an array."""
    frame = pd.DataFrame({"a": np.arange(N), "b": X[:, 0]})
    fitted = Classifier("nag").fit(frame, Y)
    both(fitted, frame, 7)
    with pytest.raises(BadRowError, match="row 0, column 'a': found 9007199254740993"):
        fitted.predict(frame.assign(a=2**53 + 1)[:2])
