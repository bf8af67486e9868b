"""Prediction intervals: the recursion against a literal one, coverage, and what a run saves."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from estimating import uncompiled
from hypothesis import given, settings
from hypothesis import strategies as st
from running import run, write

import streamomd
from streamomd.core.errors import UnsupportedError, UsageError
from streamomd.training.load_model import load_model
from streamomd.training.metrics.residuals import LEVELS, Residuals

ROWS = 20_000


def drawn(kind: str, rows: int = ROWS, seed: int = 0) -> np.ndarray:
    """Residuals of a stream."""
    draw = np.random.default_rng(seed)
    noise, at = draw.normal(size=rows), np.arange(rows) / rows
    return {
        "normal": noise,
        "skewed": draw.lognormal(0.0, 1.5, rows) - 2.0,
        "heavy": draw.standard_cauchy(rows),
        "growing": noise * np.exp(4.0 * at),
        "shrinking": noise * np.exp(-4.0 * at),
        "jump": noise + 5.0 * (at > 0.5),
        "season": noise * (2.0 + np.sin(60.0 * at)),
        "two values": np.where(noise > 0.3, 1.0, -2.0),
        "tiny": 1e-30 * noise,
        "huge": 1e200 * noise,
    }[kind]


KINDS = (
    "normal", "skewed", "heavy", "growing", "shrinking", "jump", "season", "tiny", "huge",
)  # fmt: skip


def counted(residuals: np.ndarray) -> Residuals:
    found = Residuals()
    found.count(residuals)
    return found


class Literal:
    """The docstring's recursion: a list of weighted rows, whose quantiles are found by sorting.

    A value is a bin's: 32 to a doubling, in which rows lie evenly.
    """

    def __init__(self) -> None:
        self.weights: dict[tuple[int, int], float] = {}
        self.known: dict[tuple[int, int], float] = {}
        self.goals = [(1.0 - level) / 2.0 for level in LEVELS for _ in range(2)]
        self.tails, self.ends = list(self.goals), [-math.inf, math.inf] * len(LEVELS)
        self.recent, self.beyond = [0] * len(self.goals), [0] * len(self.goals)
        self.rows = 0

    @staticmethod
    def bin(r: float) -> tuple[int, int]:
        """(sign, place), by which bins are in order."""
        if r == 0.0:
            return -1, 0
        e = math.frexp(abs(r))[1] - 1
        place = 32 * e + math.floor(32 * (abs(r) / 2.0**e - 1.0))
        return (1, place) if r > 0.0 else (-1, -place)

    @staticmethod
    def limits(of: tuple[int, int]) -> tuple[float, float]:
        sign, place = of
        at = place if sign > 0 else -place
        low, high = (2.0 ** (one // 32) * (1.0 + one % 32 / 32.0) for one in (at, at + 1))
        return (low, high) if sign > 0 else (-high, -low)

    def quantile(self, mass: float, upper: bool) -> float:
        total = sum(self.known.values())
        if mass < 1.0:
            return math.inf if upper else -math.inf
        goal = total - min(mass, total) if upper else min(mass, total)
        before = 0.0
        for one in sorted(self.known):
            weight = self.known[one]
            if before + weight > goal or (not upper and before + weight >= goal):
                low, high = self.limits(one)
                return low + (goal - before) / weight * (high - low)
            before += weight
        raise AssertionError

    def count(self, r: float) -> None:
        for k, end in enumerate(self.ends):
            if (r > end) if k % 2 else (r < end):
                self.recent[k] += 1
                self.beyond[k] += 1
        self.weights[self.bin(r)] = self.weights.get(self.bin(r), 0.0) + 1.0
        self.rows += 1
        power = self.rows & (self.rows - 1) == 0
        if self.rows % 1024 == 0:
            self.weights = {one: 0.75 * w for one, w in self.weights.items()}
        if self.rows % 1024 == 0 or (self.rows < 1024 and power):
            self.known = dict(self.weights)
        if self.rows % 32 == 0:
            for k, goal in enumerate(self.goals):
                move = min(0.005, 0.1 * goal) * (32 * goal - self.recent[k])
                other = max(self.tails[k + 1 if k % 2 == 0 else k - 1], 0.0)
                self.tails[k] = min(self.tails[k] + move, 1.0 - other)
                self.recent[k] = 0
        if self.rows % 32 == 0 or (self.rows < 32 and power):
            total = sum(self.known.values())
            for k, tail in enumerate(self.tails):
                self.ends[k] = self.quantile(tail * (total + 1.0), upper=k % 2 == 1)
                if k % 2 == 1:
                    self.ends[k] = max(self.ends[k], self.ends[k - 1])


@pytest.mark.parametrize("kind", ["normal", "skewed", "jump", "season"])
def test_counting_is_the_literal_recursion(kind: str) -> None:
    """Tails, ends and rows beyond them after 3,000 rows."""
    residuals, literal = drawn(kind, 3000), Literal()
    found = counted(residuals)
    for r in residuals:
        literal.count(r)
    np.testing.assert_allclose(found.tails, literal.tails, rtol=1e-12)
    np.testing.assert_allclose(found.ends, literal.ends, rtol=1e-9)
    assert found.beyond.tolist() == literal.beyond


@given(cuts=st.lists(st.integers(0, 2500), max_size=5), saved=st.booleans())
@settings(max_examples=25, deadline=None)
def test_cuts_and_commits_change_no_bit(cuts: list[int], saved: bool) -> None:
    """However the rows are cut into batches, and saved and loaded in between."""
    residuals, found = drawn("skewed", 2500), Residuals()
    for low, high in zip([0, *sorted(cuts)], [*sorted(cuts), 2500], strict=True):
        found.count(residuals[low:high])
        if saved:
            arrays = found.arrays()
            restored = Residuals.restored(arrays)
            assert restored is not None
            found = restored
    whole = counted(residuals)
    for name, array in whole.arrays().items():
        assert array.tobytes() == found.arrays()[name].tobytes(), name
    assert whole.ends.tobytes() == found.ends.tobytes()


@pytest.mark.parametrize("kind", KINDS)
def test_progressive_coverage_is_the_level(kind: str) -> None:
    """Within .01 over the stream, whatever the residuals: also at 10^-30 and 10^200."""
    found = counted(drawn(kind))
    assert {level: abs(found.coverage(level) - level) < 0.01 for level in LEVELS} == dict.fromkeys(
        LEVELS, True
    )


@pytest.mark.parametrize("kind", ["normal", "skewed", "heavy"])
def test_intervals_of_a_saved_run_cover_the_next_rows(kind: str) -> None:
    """The next 5,000 rows are inside with the level's probability, within .06; mean of 10 seeds
    within .015."""
    inside = []
    for seed in range(10):
        residuals = drawn(kind, ROWS + 5000, seed)
        low, high = counted(residuals[:ROWS]).interval(0.9) or (0.0, 0.0)
        new = residuals[ROWS:]
        inside.append(np.mean((low <= new) & (new <= high)))
    assert abs(np.mean(inside) - 0.9) < 0.015
    assert np.abs(np.array(inside) - 0.9).max() < 0.06


@pytest.mark.parametrize("by", [2.0**-40, 8.0, 1e6])
def test_ends_scale_with_the_label(by: float) -> None:
    """To the bit by powers of two; else to a few bins, of 3 %."""
    residuals = drawn("skewed", 5000)
    one, other = counted(residuals), counted(by * residuals)
    for level in LEVELS:
        expected = by * np.array(one.interval(level))
        exact = math.log2(by).is_integer()
        np.testing.assert_allclose(other.interval(level), expected, rtol=0.0 if exact else 0.1)


def test_parts_of_a_round_join() -> None:
    """Parts of one stream, added in order, end near one run's ends; rows and misses add up."""
    residuals = drawn("normal")
    whole, joined = counted(residuals), Residuals()
    for part in np.split(residuals, 4):
        joined.add(counted(part))
    assert joined.rows == whole.rows
    for level in LEVELS:
        np.testing.assert_allclose(joined.interval(level), whole.interval(level), rtol=0.2)
        assert abs(joined.coverage(level) - level) < 0.01


@pytest.mark.parametrize("first", [6e-17, 1.7e9, 1e300])
def test_the_first_residual_sets_no_unit(first: float) -> None:
    """Of whatever size the first residual is, those after it have their interval; also where it is
    of another part."""
    residuals = np.r_[first, drawn("normal")]
    found, joined = counted(residuals), counted(residuals[:4000])
    joined.add(counted(residuals[4000:]))
    for one in (found, joined):
        assert abs(one.coverage(0.9) - 0.9) < 0.01
        np.testing.assert_allclose(one.interval(0.9), [-1.645, 1.645], rtol=0.2)


@pytest.mark.parametrize("largest", [5e-324, 1.7e308])
def test_residuals_may_be_as_small_or_large_as_floats(largest: float) -> None:
    """The smallest and the largest finite residuals are counted, and the ends are finite."""
    found = counted(np.tile([largest, -largest, 0.0], 1000))
    low, high = found.interval(0.9) or (0.0, 0.0)
    assert low <= 0.0 <= high
    assert math.isfinite(high - 0.0)


def test_equal_residuals_delay_no_later_interval() -> None:
    """A machine that stands still for 100,000 rows is predicted to the digit; when it runs again,
    ends are right after 3,000 rows, and a lower end is never above its upper one."""
    found, noise = counted(np.zeros(100_000)), drawn("normal", 23_000)
    assert found.interval(0.9) == (0.0, 0.0)
    for low in range(0, 3000, 100):
        found.count(noise[low : low + 100])
        for level in LEVELS:
            lower, upper = found.interval(level) or (1.0, 0.0)
            assert lower <= upper
    before = found.coverage(0.9) * found.rows
    found.count(noise[3000:])
    assert abs((found.coverage(0.9) * found.rows - before) / 20_000 - 0.9) < 0.01


def test_what_is_not_finite_is_left_out() -> None:
    """NaN and infinities have no place among residuals."""
    residuals = drawn("normal", 3000)
    spoilt = np.insert(residuals, [5, 700, 2000], [np.nan, np.inf, -np.inf])
    for name, array in counted(residuals).arrays().items():
        assert array.tobytes() == counted(spoilt).arrays()[name].tobytes(), name


@pytest.mark.parametrize("level", LEVELS)
def test_few_rows_have_no_interval(level: float) -> None:
    """Both ends are quantiles from 2 / (1 - level) rows on."""
    least = round(2.0 / (1.0 - level))
    assert counted(drawn("normal", least - 1)).interval(level) is None
    low, high = counted(drawn("normal", least)).interval(level) or (0.0, 0.0)
    assert low < high


# Runs


@pytest.fixture(autouse=True)
def _plain(monkeypatch: pytest.MonkeyPatch) -> None:
    uncompiled(monkeypatch)


def day(folder: Path, number: int, rows: int = 300, **more: Any) -> Path:
    draw = np.random.default_rng(number)
    x = draw.normal(size=(rows, 2))
    y = x @ [2.0, -1.0] + draw.normal(size=rows) + 10.0
    table = pa.table({"a": x[:, 0], "b": x[:, 1], "y": y, **more})
    return write(folder / f"{number}.parquet", table, row_group_size=100)


def learn(data: Path, url: Path, *more: object) -> Any:
    return run("train", data, "--label", "y", "--checkpoint", url, *more, "--json").result


def arrays_of(url: Path) -> dict[str, bytes]:
    residuals = load_model(str(url))[0].metrics.residuals
    assert residuals is not None
    return {name: array.tobytes() for name, array in residuals.arrays().items()}


def test_an_update_and_a_resumed_run_save_what_one_run_saves(tmp_path: Path) -> None:
    """Bit for bit: two days in one run; one day, then the other by update; and resumed."""
    for number in range(2):
        day(tmp_path / "all", number)
    learn(tmp_path / "all", tmp_path / "one")
    day(tmp_path / "days", 0)
    learn(tmp_path / "days", tmp_path / "two")
    day(tmp_path / "days", 1)
    run("update", tmp_path / "two", "--settle", "0")
    assert arrays_of(tmp_path / "two") == arrays_of(tmp_path / "one")
    sets = ["checkpoint.every_rows=100", "checkpoint.every_seconds=0", "checkpoint.keep=99"]
    learn(tmp_path / "all", tmp_path / "three", *(word for key in sets for word in ("--set", key)))
    run("checkpoint", "restore", tmp_path / "three", "--at", 2)
    run("resume", tmp_path / "three")
    assert arrays_of(tmp_path / "three") == arrays_of(tmp_path / "one")


def test_only_first_passes_count(tmp_path: Path) -> None:
    """Residuals of rows that were learned before are too small: three epochs save those of one."""
    day(tmp_path / "data", 0)
    learn(tmp_path / "data", tmp_path / "one")
    learn(tmp_path / "data", tmp_path / "three", "--epochs", "3")
    assert arrays_of(tmp_path / "three") == arrays_of(tmp_path / "one")


@pytest.mark.parametrize("loss", ["square", "absolute", "huber", "quantile"])
def test_files_of_predictions_have_the_interval(tmp_path: Path, loss: str) -> None:
    """new_lower and new_upper are the prediction plus the ends, of every loss of numbers."""
    day(tmp_path / "data", 0)
    learn(tmp_path / "data", tmp_path / "run", "--loss", loss)
    more = ["--with", "prediction-interval", "--level", "0.8", "--keep", "y"]
    run("predict", tmp_path / "run", tmp_path / "data", "--to", tmp_path / "out", *more)
    found = pq.read_table(tmp_path / "out")
    residuals = load_model(str(tmp_path / "run"))[0].metrics.residuals
    assert residuals is not None
    low, high = residuals.interval(0.8) or (0.0, 0.0)
    predicted = found["prediction"].to_numpy()
    assert found["new_lower"].to_numpy().tolist() == (predicted + low).tolist()
    assert found["new_upper"].to_numpy().tolist() == (predicted + high).tolist()


def test_importances_have_no_unit(tmp_path: Path) -> None:
    """All importances times 100: the same ends. Rows of importance 0 are not counted."""
    for name, h in (("one", 1.0), ("hundred", 100.0)):
        day(tmp_path / name / "data", 0, h=np.full(300, h))
        learn(tmp_path / name / "data", tmp_path / name / "run", "--weight", "h")
    first, second = (
        load_model(str(tmp_path / name / "run"))[0].metrics.residuals for name in ("one", "hundred")
    )
    assert first is not None
    assert second is not None
    np.testing.assert_allclose(second.interval(0.9), first.interval(0.9), rtol=1e-6)
    day(tmp_path / "zero" / "data", 0, h=np.repeat([1.0, 0.0], 150))
    learn(tmp_path / "zero" / "data", tmp_path / "zero" / "run", "--weight", "h")
    zero = load_model(str(tmp_path / "zero" / "run"))[0].metrics.residuals
    assert zero is not None
    assert zero.rows == 150


def test_what_has_no_prediction_interval(tmp_path: Path) -> None:
    """Classes, unknown levels, few rows, and --level alone: each with its reason."""
    day(tmp_path / "data", 0, 12)
    learn(tmp_path / "data", tmp_path / "run")
    to = ["--to", tmp_path / "out"]
    given = ("predict", tmp_path / "run", tmp_path / "data", *to)
    few = run(*given, "--with", "prediction-interval")
    assert few.code == 2
    assert "at least 20 rows" in few.err
    unknown = run(*given, "--with", "prediction-interval", "--level", "0.7")
    assert "0.5, 0.8, 0.9, 0.95, 0.99" in unknown.err
    alone = run(*given, "--level", "0.9")
    assert (unknown.code, alone.code) == (2, 2)
    assert "--with prediction-interval" in alone.err
    labels = pa.table({"x": np.arange(60.0), "y": np.arange(60) % 2})
    write(tmp_path / "classes" / "a.parquet", labels)
    model = streamomd.train(str(tmp_path / "classes"), label="y", quiet=True)
    with pytest.raises(UnsupportedError, match="predicts classes"):
        model.predict(str(tmp_path / "classes"), str(tmp_path / "out"), level=0.9)
    number = streamomd.train(str(tmp_path / "data"), label="y", quiet=True)
    with pytest.raises(UsageError, match="follows the levels"):
        number.predict(str(tmp_path / "data"), str(tmp_path / "out"), level=1.0)


@pytest.mark.parametrize(
    "name, value",
    [
        ("of", []), ("of", [-1]), ("ends", np.zeros((2, 10))), ("at", [3, 2]),
        ("at", [-70_000, 2]), ("value", np.full((2, 2), np.nan)),
    ],
)  # fmt: skip
def test_spoilt_arrays_are_refused(name: str, value: Any) -> None:
    """A commit with other arrays than a run writes, by ValueError, which rejects the commit."""
    arrays = counted(np.array([1.0, -2.0])).arrays()
    arrays[f"metrics.residuals.{name}"] = np.array(value)
    with pytest.raises(ValueError, match="residuals"):
        Residuals.restored(arrays)
