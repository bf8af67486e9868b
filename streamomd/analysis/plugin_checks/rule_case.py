"""One rule with one loss and one set of parameters, held to an oracle and to what a loop needs."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from streamomd.analysis.plugin_checks import oracle_rows
from streamomd.analysis.plugin_checks.learner import Learner, dense, doubled, sparse
from streamomd.analysis.plugin_checks.oracle_rows import (
    Oracle,
    Rows,
    Trace,
    run_oracle,
    steady_part,
)
from streamomd.core.batch import Floats
from streamomd.losses import Loss
from streamomd.rules.contract import Rule

KINDS = (*oracle_rows.KINDS, "vanishing")
SMALLEST = 1e-150
"""Below it squares underflow, and no two programs agree on a digit."""
FEWEST = 10
"""Rows of a stream that must come before a kink or divergence; else another stream is drawn."""


@dataclass(frozen=True)
class RuleCase:
    """A rule with one loss and one set of parameters."""

    rule: Rule
    loss: Loss
    params: dict[str, Any]

    def __str__(self) -> str:
        defaults = self.rule.parse_params({})
        given = {name: v for name, v in self.params.items() if v != defaults[name]}
        return f"rule {self.rule.name!r} with loss {self.loss.name!r}, params {given}"

    def learner(self, rows: Rows, *, classes: int = 2, compiled: bool = False) -> Learner:
        """A fresh learner of the form that jobs run; it has looked at the rows where it has to."""
        form, size = self.rule.reduced_for(self.params), rows.X.shape[1]
        made = Learner(
            form, self.loss, size, classes=classes, params=self.params, compiled=compiled
        )
        made.look(sparse(*rows))
        return made

    def rows(self, kind: str, seed: int, again: int = 0) -> tuple[Rows, int]:
        """A stream of this kind for this rule and loss, and its number of classes."""
        targets = ("binary", "classes") if self.loss.classifies else ("real",)
        target = targets[seed % len(targets)]
        rng = np.random.default_rng([seed, again, *self.rule.name.encode(), *kind.encode()])
        made = "dense" if kind == "vanishing" else kind
        free = scale_free(self.rule)
        if kind == "scales" and not free:  # steps of one size for all features: small ones only
            made = "sparse"
        drawn = oracle_rows.make(rng, made, target)
        X, y, h = drawn.X * 0.7**again, drawn.y, drawn.h.copy()
        if kind == "scales" and not free:
            X = X * 10.0 ** rng.uniform(-3.0, 0.0, X.shape[1])
        if kind == "vanishing":  # the first gradient is 0, the square of the second too
            h[:2] = 0.0, 1e-200
        if self.loss.least is not None:
            y = np.maximum(y, self.loss.least)
        dear = self.rule.storage.kind != "coordinates" or self.rule.constraint is not None
        n, d = (16, 4) if dear else (14, 20) if self.loss.coupled else (40, 20)
        return Rows(X[:n, :d], y[:n], h[:n]), drawn.classes

    def compare_with_oracle(self, oracle: Oracle, kind: str, seed: int) -> None:
        """Predictions and slots over one stream, up to a kink or divergence."""
        for again in range(20):
            rows, classes = self.rows(kind, seed, again)

            def traced(rows: Rows, nudge: float, classes: int = classes) -> Trace:
                return run_oracle(oracle, rows, self.loss, self.params, classes, nudge)

            first = traced(rows, 0.0)
            if not np.isfinite([first.margins[0], first.scale[0]]).all():
                why = f": it raised {first.error!r}" if first.error else ""
                raise AssertionError(f"{self}: the oracle predicts no number for row 1{why}")
            rows, trace = steady_part(traced, rows, first)
            if len(rows.y) >= FEWEST:
                break
        else:
            raise AssertionError(
                f"{self}: every stream {kind!r} meets a kink or diverges within ten rows"
                + (f"; the oracle raised {first.error!r}" if first.error else "")
            )
        where = f"{self}, stream {kind!r} {seed}"
        made = self.learner(rows, classes=classes)
        margins = learn_rows(made, rows, where)
        unit = 1e-10 * trace.scale + 1e-13 * np.maximum.accumulate(trace.scale, axis=0) + SMALLEST
        wrong = ~(np.abs(margins - trace.margins) <= unit).all(axis=1)
        if wrong.any():
            raise AssertionError(f"{where}: {_first_difference(rows, margins, trace, wrong)}")
        self._compare_slots(made, trace, where)

    def _compare_slots(self, made: Learner, trace: Trace, where: str) -> None:
        """Slots and totals that the oracle returns, by name."""
        rule = self.rule
        slots = {slot.name for slot in (*rule.shared_slots, *rule.own_slots, *rule.total_slots)}
        for name, k, expected in _returned(trace):
            array = _slot(made, name)
            if array is None and name in slots:
                continue  # these parameters do not need it
            if array is None:
                raise AssertionError(
                    f"{where}: the oracle returns {name!r}, which the rule has not"
                )
            actual = array if array.ndim == 1 and np.ndim(expected) else array[..., k]
            top = float(np.abs(expected).max(initial=0.0))
            if not np.allclose(actual, expected, rtol=1e-10, atol=1e-12 * top):
                gap = np.abs(np.asarray(actual) - expected)
                i = int(np.argmax(gap))
                raise AssertionError(
                    f"{where}: slot {name!r} ends as {np.ravel(actual)[i]!r} (coordinate {i}), the "
                    f"oracle's is {np.ravel(expected)[i]!r}; predictions agree, look at its update"
                )

    def check_splits(self, seed: int) -> None:
        """One batch, a batch a row, batches of any size, a matrix for CSR rows: the same bits."""
        rows, classes = self.rows("zeros", seed)
        n, rng = len(rows.y), np.random.default_rng(seed)
        cuts = sorted({0, n, *rng.integers(0, n, 4).tolist()})
        ways: dict[str, list[Any]] = {
            "one batch": [sparse(*rows)],
            "one batch, dense": [dense(*rows)],
            "a batch a row": [sparse(*rows).rows(row, row + 1) for row in range(n)],
            "uneven batches": [sparse(*rows).rows(*pair) for pair in itertools.pairwise(cuts)],
        }
        ends = {}
        for way, batches in ways.items():
            made = self.learner(rows, classes=classes)
            margins = b"".join(made.learn(batch).tobytes() for batch in batches)
            ends[way] = margins, made.bits()
            if ends[way] != ends["one batch"]:
                raise AssertionError(
                    f"{self}: {way} and one batch end in different bits; a rule's functions may "
                    "read nothing but their arguments"
                )

    def check_importance(self, seed: int) -> None:
        """What the rule declares: see ``streamomd.rules.contract.Importance``."""
        rows, _ = self.rows("dense", 2 * seed)
        rows, meaning, other = rows.first(30), self.rule.row.importance, self
        times = 1 + np.arange(len(rows.y)) % 3  # with one for all, nothing changes in AdaGrad
        heavy = rows._replace(h=np.where(meaning == "loss", 2.0, times).astype(np.float64))
        if self.loss.coupled or meaning not in ("copies", "loss", "presence"):
            return  # importances are in the oracle's streams
        if meaning == "loss":
            bound = self.rule.losses.lipschitz if weighted(self.rule) else ""
            more = {bound: 2.0 * self.params[bound]} if bound else {}
            other = RuleCase(self.rule, doubled(self.loss), {**self.params, **more})
        repeat = times if meaning == "copies" else 1
        alike = Rows(*(np.repeat(one, repeat, axis=0) for one in rows))
        one, two = self.learner(heavy), other.learner(alike)
        learn_rows(one, heavy, str(self))
        learn_rows(two, alike, str(self))
        actual, expected = one.weights(), two.weights()
        top = float(np.abs(expected).max(initial=0.0))
        if not np.allclose(actual, expected, rtol=1e-9, atol=1e-11 * top):
            words = {
                "copies": "h times the row",
                "loss": "h times the loss",
                "presence": "importance 1",
            }
            raise AssertionError(
                f"{self} declares importance {meaning!r}, but rows of importance h are not "
                f"{words[meaning]}: weights differ by {np.abs(actual - expected).max():.3g} of "
                f"{top:.3g}; look at row.importance in `step`"
            )

    def check_units(self, seed: int) -> None:
        """A feature times any constant: the same predictions; times a power of two, to the bit."""
        rows, classes = self.rows("sparse", seed)
        rng, d = np.random.default_rng(seed), rows.X.shape[1]
        signs = rng.choice([-1.0, 1.0], d)
        powers, any_ = (
            signs * 2.0 ** rng.integers(-20, 21, d),
            signs * 10.0 ** rng.uniform(-6, 6, d),
        )
        plain, exact, near = (
            learn_rows(self.learner(scaled, classes=classes), scaled, str(self))
            for scaled in (rows._replace(X=rows.X * by) for by in (np.ones(d), powers, any_))
        )
        if not np.array_equal(plain, exact) or not np.allclose(near, plain, rtol=1e-9, atol=1e-9):
            row = int(
                np.argmax((plain != exact).any(axis=1) | (np.abs(near - plain) > 1e-9).any(1))
            )
            raise AssertionError(
                f"{self} names a least feature value in its range, so units must not matter, but "
                f"row {row + 1} is predicted as {plain[row, 0]!r}, with features times powers of "
                f"two as {exact[row, 0]!r}, times other constants as {near[row, 0]!r}; look at the "
                "powers of the scales in `weight` and `update`, and divide before you multiply"
            )

    def check_compiled(self, seed: int) -> None:
        """Compiled loops leave the bits of plain Python."""
        rows, classes = self.rows("weights", 2 * seed)
        one, two = (self.learner(rows, classes=classes, compiled=c) for c in (False, True))
        plain, compiled = (made.learn(sparse(*rows)) for made in (one, two))
        if plain.tobytes() != compiled.tobytes() or one.bits() != two.bits():
            at = int(np.argmax(np.append((plain != compiled).any(axis=1), True)))
            raise AssertionError(
                f"{self}: compiled and uncompiled runs differ, predictions from row {at + 1} on; "
                "use module math only, no ** of floats by variables, and no sums in another order"
            )


def scale_free(rule: Rule) -> bool:
    """Whether it claims that units do not matter: only then has its range a least value."""
    return rule.row.range.float64.least > 0.0


def weighted(rule: Rule) -> bool:
    """Whether its scales bound importance * gradient."""
    return rule.observe is not None and rule.observe.weighted


def learn_rows(learner: Learner, rows: Rows, where: str) -> Floats:
    """Margins of all rows in one batch. An arithmetic error becomes one that names the row."""
    try:
        return learner.learn(sparse(*rows))
    except (ArithmeticError, ValueError) as error:
        kind = type(error).__name__
        culprit = learner.engine.layout.rule.name
        raise AssertionError(
            f"{where}: {_failing(error)} raised {kind}: {error}; {culprit!r} must define 0/0 as 0: "
            "a coordinate may be seen before its first gradient above 0, and squares underflow"
        ) from error


def _failing(error: BaseException) -> str:
    """The innermost function in which it was raised."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    if trace is None:
        return "the rule"
    return f"`{trace.tb_frame.f_code.co_name}` (line {trace.tb_lineno} of its file)"


def _first_difference(rows: Rows, margins: Floats, trace: Trace, wrong: Any) -> str:
    row = int(np.argmax(wrong))
    k = int(np.argmax(~(np.abs(margins[row] - trace.margins[row]) <= 0.0)))
    predicted, expected = float(margins[row, k]), float(trace.margins[row, k])
    before = np.flatnonzero(rows.h[:row] != 1.0)
    hint = "look at `weight`, and at `update` in the rows before"
    if not math.isfinite(predicted):
        hint = "is 0/0 defined as 0 where a coordinate has had no gradient yet?"
    elif len(before):
        hint += f"; row {before[-1] + 1} has importance {rows.h[before[-1]]:.3g}: is it in `step`?"
    if row == 0:
        hint = "look at `observe`, `weight` and the starts of the slots: nothing was learned yet"
    present = np.flatnonzero(rows.X[row])[:6].tolist()
    return (
        f"row {row + 1} of {len(rows.y)} is predicted as {predicted!r}, by the oracle as "
        f"{expected!r} (difference {predicted - expected:.3g}, terms of size "
        f"{trace.scale[row, k]:.3g}); {hint}. The row: y {rows.y[row]:g}, "
        f"importance {rows.h[row]:g}, features {present} …"
    )


def _returned(trace: Trace) -> Iterator[tuple[str, int, Floats]]:
    for k, slots in enumerate(trace.slots):
        for name, expected in slots.items():
            yield name, k, np.asarray(expected, dtype=np.float64)


def _slot(made: Learner, name: str) -> Floats | None:
    rule, state = made.engine.layout.rule, made.state
    if name in {slot.name for slot in (*rule.shared_slots, *rule.own_slots)}:
        return np.asarray(state.slot(name), dtype=np.float64)
    names = [slot.name for slot in rule.total_slots]
    return state.totals[:, names.index(name)] if name in names else None
