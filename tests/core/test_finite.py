"""Looking for numbers that are not finite."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as drawn

from streamomd.core import finite
from streamomd.core.errors import DivergedError
from streamomd.core.finite import FiniteCheck, finite_parts, is_finite, part_problem
from streamomd.engine.layout import Layout
from streamomd.engine.state import State
from streamomd.rules import find_rule

SIZES = drawn.array_shapes(max_dims=3, max_side=6)
NUMBERS = st.one_of(st.floats(), st.sampled_from([1.7e308, -1.7e308, np.inf, -np.inf, np.nan]))


@given(drawn.arrays(np.float64, SIZES, elements=NUMBERS))
def test_it_is_what_numpy_says(numbers: Any) -> None:
    """Of any array, one whose sum overflows among them, in any order of memory and block size."""
    before = finite.BLOCK
    for block in (1, 3, before):
        finite.BLOCK = block
        try:
            assert is_finite(numbers) == np.isfinite(numbers).all()
            assert is_finite(numbers.T) == np.isfinite(numbers).all()
        finally:
            finite.BLOCK = before


def test_integers_and_float32() -> None:
    """Integers are finite; of float32 a sum may overflow where no number does."""
    assert is_finite(np.array([1, 2]))
    assert is_finite(np.full(100, 3e38, np.float32))
    assert not is_finite(np.array([3e38, np.nan], np.float32))


def state() -> State:
    return State.start(Layout(find_rule("nag"), 300_000, 1, "float64"))


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("at", [0, 150_001, 299_999])
def test_one_number_among_many(value: float, at: int) -> None:
    """It is found, named, and its part is not packed."""
    one = state()
    assert one.problem() == ""
    one.slot("G")[at] = value
    assert one.problem() == f"slot 'G' of coordinate {at:,} is {value}"
    with pytest.raises(DivergedError, match="slot 'G'"):
        list(finite_parts(one.parts()))


def test_padding_and_figures_are_not_looked_at() -> None:
    """What a part holds of metrics may be infinite: the loss of held-out rows."""
    assert not part_problem(0, {"held.metrics.sums": np.array([np.inf])})
    assert part_problem(0, {"totals": np.array([[np.inf]])})
    assert part_problem(0, {"extra.matrix": np.array([[[np.nan]]])})


def test_a_guard_names_the_rows_since_it_looked() -> None:
    """Figures are of the batch that was learned; slots, of all rows since they were looked at."""
    one, sums = SimpleNamespace(totals=np.zeros((1, 0)), nbytes=8 * 100, found=""), np.zeros(3)
    one.problem = lambda: one.found
    guard, margins, enough = FiniteCheck(), np.zeros((10, 1)), finite.LEAST

    def learn(batch: int, values: int) -> None:
        rows = ("a", 10 * batch), ("a", 10 * batch + 10)
        guard.after(one, sums, margins, values, rows)

    learn(0, enough)
    one.found = "slot 'w' of coordinate 3 is nan"
    learn(1, 1)
    learn(2, 1)
    with pytest.raises(DivergedError, match=r"slot 'w' .* after rows 10 to 39 of a"):
        learn(3, enough)
    assert not guard.exact
    guard, one.found = FiniteCheck(), ""
    learn(3, 1)
    sums[1] = np.inf
    with pytest.raises(DivergedError, match="the loss is inf after rows 40 to 49 of a"):
        learn(4, 1)
    assert not guard.exact
    guard, sums[1] = FiniteCheck(), 0.0
    margins = np.full((finite.ROWS, 1), np.nan)
    with pytest.raises(DivergedError, match="a prediction is nan after rows 40 to 49 of a"):
        learn(4, 1)
    guard, margins, one.totals = FiniteCheck(), np.zeros((10, 1)), np.full((1, 2), -np.inf)
    with pytest.raises(DivergedError, match="after rows 50 to 59"):
        learn(5, 1)
    assert guard.exact
