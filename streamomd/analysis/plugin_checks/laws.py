"""What losses and the annotations of a rule's slots must fulfil.

Two parts learn from a common start, each from its own rows; a third run learns both in one pass.
A slot that one pass leaves as the sum of what the parts have added, or as their largest or smallest
number, must be declared so; one that never falls is no mean; and merged weights are those of one
pass or the mean of the parts' weights, and do not overshoot.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from streamomd.analysis.plugin_checks.learner import Learner, others_of, sparse, straight
from streamomd.core.batch import Batch, Floats
from streamomd.engine.merge import merge
from streamomd.engine.state import State
from streamomd.losses import Loss
from streamomd.rules.contract import Rule
from streamomd.rules.params import kinds

MARGINS = (*np.linspace(-20.0, 20.0, 161), *np.random.default_rng(0).uniform(-20.0, 20.0, 100))
TAILS = (-700.0, -100.0, 100.0, 700.0)
STEP = 1e-5
RATES = (1e-3, 0.3, 5.0, 300.0)


def loss_problems(loss: Loss, params: Sequence[Mapping[str, Any]] | None) -> Iterator[str]:
    """What is wrong, in words that follow the loss's name."""
    defaults = loss.parse_params({})
    others = [
        {name: value}
        for name, kind in kinds(loss.hyper).items()
        for value in others_of(kind, defaults[name])
    ]
    for given in [{}, *others] if params is None else params:
        p = loss.numbers(loss.parse_params(given))
        name = f", params {dict(given)}" if given else ""
        laws = [_coupled] if loss.coupled else [_slopes, _tails, _means, _along, _degree]
        for law in laws:
            for problem in law(loss, p):
                yield f"{name}: {problem}"
        for problem in _mean(loss):
            yield f": {problem}"


def _targets(loss: Loss) -> tuple[float, ...]:
    if loss.classifies:
        return (-1.0, 1.0)
    return (-3.0, -0.5, 0.0, 2.5) if loss.least is None else (loss.least, loss.least + 2.5)


def _slopes(loss: Loss, p: Any) -> Iterator[str]:
    """slope lies between the derivatives of value on both sides, and never falls."""
    bound = math.inf if loss.lipschitz is None else float(loss.lipschitz(p))
    for y in _targets(loss):
        last = -math.inf
        for m in sorted(map(float, MARGINS)):
            value, slope = (float(f(m, y, p)) for f in (loss.value, loss.slope))
            left = (value - loss.value(m - STEP, y, p)) / STEP
            right = (loss.value(m + STEP, y, p) - value) / STEP
            where = f"margin {m!r}, y {y:g}"
            wide = 1e-4 * max(1.0, abs(left), abs(right), abs(value))
            if not min(left, right) - wide <= slope <= max(left, right) + wide:
                yield f"slope({where}) is {slope!r}, but the derivative is {left:.5g} … {right:.5g}"
            if slope < last - 1e-12 * max(1.0, abs(last)):
                yield f"slope({where}) is {slope!r}, below {last!r} at a smaller margin: not convex"
            if abs(slope) > bound * (1.0 + 1e-12):
                yield f"slope({where}) is {slope!r}, beyond lipschitz, {bound!r}"
            last = slope


def _tails(loss: Loss, p: Any) -> Iterator[str]:
    """Finite at large margins; NaN stays NaN."""
    for y in _targets(loss):
        for m in TAILS:
            for name, function in (("value", loss.value), ("slope", loss.slope)):
                try:
                    found = float(function(m, y, p))
                except ArithmeticError as error:
                    yield f"{name}({m:g}, y {y:g}) raised {error!r}: no large exponents in exp"
                    continue
                if not math.isfinite(found):
                    yield f"{name}({m:g}, y {y:g}) is {found!r}: no large exponents in exp"
        if not math.isnan(loss.value(math.nan, y, p)):
            yield f"value(nan, y {y:g}) is a number: a diverged model would look healthy"


def _means(loss: Loss, p: Any) -> Iterator[str]:
    """The expected slope is 0 where the target's mean is the predicted one."""
    for m in (-4.0, -0.3, 0.0, 1.0, 2.5):
        mean = float(loss.mean(m))
        if not loss.classifies and (loss.least is None or mean >= loss.least):
            expected = loss.slope(m, mean, p)
        elif loss.probabilistic:
            expected = mean * loss.slope(m, 1.0, p) + (1.0 - mean) * loss.slope(m, -1.0, p)
        else:
            continue
        if not abs(expected) <= 1e-9 * max(1.0, abs(mean)):
            yield (
                f"mean({m:g}) is {mean!r}, but then the expected slope is {expected:.3g}: "
                "mean does not invert the link"
            )


def _mean(loss: Loss) -> Iterator[str]:
    """mean never falls, and is finite."""
    found = [float(loss.mean(m)) for m in sorted((*map(float, MARGINS), *TAILS))]
    if not all(map(math.isfinite, found)) or any(a > b for a, b in itertools.pairwise(found)):
        yield "mean falls somewhere, or is not finite at ±700"
    if loss.probabilistic and not all(0.0 <= one <= 1.0 for one in found):
        yield "mean is no probability, but the loss is declared probabilistic"


def _along(loss: Loss, p: Any) -> Iterator[str]:
    """The factor of an implicit step is in [0, 1], and two half steps are one."""
    if loss.along is None:
        return
    for y in _targets(loss):
        for m in (-8.0, -1.0, 0.25, 3.0):
            for rate in RATES:
                slope = loss.slope(m, y, p)
                if slope == 0.0:
                    continue
                factor = loss.along(m, y, -rate * slope, p)
                half = m
                for _ in range(2):
                    g = loss.slope(half, y, p)
                    half += (
                        loss.along(half, y, -0.5 * rate * g, p) * (-0.5 * rate * g) if g else 0.0
                    )
                once = m - factor * rate * slope
                if not 0.0 <= factor <= 1.0 or abs(once - half) > 1e-6 * max(1.0, abs(half)):
                    yield (
                        f"along(margin {m:g}, y {y:g}, change {-rate * slope:.3g}) is {factor!r}, "
                        f"which ends at {once!r}, two half steps at {half!r}: not the flow"
                    )


def _degree(loss: Loss, p: Any) -> Iterator[str]:
    """Yields problems of a loss of a target with a unit, unless a change of unit multiplies value
    and slope by its powers."""
    if not loss.degree:
        return
    for a, y, m in itertools.product((0.01, 250.0), _targets(loss), (-8.0, -0.25, 0.0, 3.0)):
        larger = p._replace(**{name: a * getattr(p, name) for name in loss.lengths})
        for name, power in (("value", loss.degree), ("slope", loss.degree - 1)):
            function = getattr(loss, name)
            found, expected = function(a * m, a * y, larger), a**power * function(m, y, p)
            if not abs(found - expected) <= 1e-9 * max(abs(found), abs(expected)):
                yield (
                    f"{name}(margin {m:g}, y {y:g}) in a unit {a:g} times as small is {found!r}, "
                    f"but of degree {power} it is {expected!r}: wrong degree or lengths"
                )


def _coupled(loss: Loss, p: Any) -> Iterator[str]:
    """couple writes the gradient of what it returns, and is finite in the tails."""
    rng = np.random.default_rng(0)
    assert loss.couple is not None
    for classes in (2, 3, 6):
        for scale in (0.1, 1.0, 5.0):
            margins = scale * rng.standard_normal((1, classes))
            y, slopes, other = int(rng.integers(classes)), np.zeros(classes), np.zeros(classes)
            value = float(loss.couple(margins, 0, y, slopes))
            for k in range(classes):
                moved = margins + STEP * np.eye(classes)[k]
                change = (loss.couple(moved, 0, y, other) - value) / STEP
                if abs(change - slopes[k]) > 1e-4 * max(1.0, abs(change)):
                    yield (
                        f"couple writes the slope {slopes[k]!r} for class {k} of {classes}; "
                        f"its value has the derivative {change:.6g}"
                    )
        for y, tail in ((0, 700.0), (1, -700.0), (1, 700.0)):
            margins, slopes = np.zeros((1, classes)), np.zeros(classes)
            margins[0, :2] = tail, -tail
            try:
                value = float(loss.couple(margins, 0, y, slopes))
            except ArithmeticError as error:
                yield f"couple raised {error!r} at a margin of {tail:g}"
                continue
            if not (math.isfinite(value) and np.isfinite(slopes).all()):
                yield f"couple is {value!r}, slopes {slopes}, at a margin of {tail:g}"


SIZE = 7
OVERSHOOT = 1.75
"""A state merged with a copy of itself has weights at most this many times as large: twice the
squares divide twice the gradients, which leaves sqrt(2); without squares it would be 2."""


class Experiment(NamedTuple):
    """States: the common start, two parts of it, and one pass over the rows of both.

    history: the slots after each row of that pass.
    """

    learner: Learner
    start: State
    parts: tuple[State, State]
    whole: State
    history: list[dict[str, Floats]]
    examples: tuple[int, int]


def merge_problems(rule: Rule, loss: Loss, params: Mapping[str, Any]) -> Iterator[str]:
    """What contradicts the annotations, in words; nothing where they are right."""
    free = loss if rule.losses.names or loss.coupled else straight(loss)
    weights: list[set[str]] = []
    for name, draw in EXPERIMENTS.items():
        runs = [_run(rule, free, params, draw(np.random.default_rng(seed), loss)) for seed in SEEDS]
        # Numbers that depend on weights, as counts of mistakes do, may fit another kind by chance.
        for problem in set.intersection(*({*_slot_problems(rule, run)} for run in runs)):
            yield f"{problem} (experiment: {name})"
        weights.append({*_weight_problems(rule, runs[0])})
    if all(weights):  # one experiment that is fulfilled is enough: others depend on the weights
        yield from weights[0]
    rng = np.random.default_rng(SEEDS[0])
    yield from _overshoot(rule, _run(rule, loss, params, _random_rows(rng, loss, 1.0)))


def _run(rule: Rule, loss: Loss, params: Mapping[str, Any], batches: list[Batch]) -> Experiment:
    learner = Learner(rule, loss, SIZE, params=dict(params), compiled=False)
    engine, history = learner.engine, []
    learner.learn(batches[0])
    start, parts = learner.state, []
    for batch in batches[1:]:
        learner.state = start.copy()
        learner.learn(batch)
        parts.append(learner.state)
    learner.state = start.copy()
    for batch in batches[1:]:
        for row in range(len(batch)):
            learner.learn(batch.rows(row, row + 1))
            history.append({name: array.copy() for name, array in _numbers(learner.state)})
    for state in (start, *parts, learner.state):
        engine.renew(state)
    pair = (parts[0], parts[1])
    counts = (len(batches[1]), len(batches[2]))
    return Experiment(learner, start, pair, learner.state, history, counts)


def _numbers(state: State) -> Iterator[tuple[str, Floats]]:
    """Slots and totals by name, but for sums over all coordinates, which the engine makes."""
    rule = state.layout.rule
    for slot in (*rule.shared_slots, *rule.own_slots):
        yield slot.name, np.asarray(state.slot(slot.name), dtype=np.float64)
    for at, slot in enumerate(rule.total_slots):
        if slot.merge != "coords":
            yield slot.name, state.totals[:, at]


def _slot_problems(rule: Rule, done: Experiment) -> Iterator[str]:
    """Yields slots that merge as another kind than their values show."""
    states = (done.start, *done.parts, done.whole)
    slots = (*rule.shared_slots, *rule.own_slots, *rule.total_slots)
    declared = {slot.name: slot.merge for slot in slots}
    own = {slot.name for slot in rule.own_slots}
    totals = {slot.name for slot in rule.total_slots}
    for (name, start), (_, a), (_, b), (_, whole) in zip(*map(_numbers, states), strict=True):
        if float(whole.max()) == done.whole.clock or (rule.masses and name in totals):
            continue  # the row a coordinate last occurred in; functions of all coordinates
        kinds = {"sum": a + b - start, "max": np.maximum(a, b), "min": np.minimum(a, b)}
        fits = {kind for kind, merged in kinds.items() if _near(merged, whole, start, a, b)}
        kind, path = declared[name], [start, *(row[name] for row in done.history)]
        steps = np.diff(np.array(path), axis=0)
        unit = 1e-12 * max(float(np.abs(path).max()), 1e-300)
        rises, falls = bool((steps > unit).any()), bool((steps < -unit).any())
        if kind in kinds and fits and kind not in fits:
            right = " or ".join(sorted(fits))
            yield f"slot {name!r} merges by {kind!r}, but one pass over both gives the {right}"
        elif kind == "mean" and fits < kinds.keys() and fits and rises != falls:
            grows = "rises" if rises else "falls"
            yield f"slot {name!r} merges by 'mean', but it only ever {grows}: a sum or a bound"
        elif (kind == "max" and falls and not rises) or (kind == "min" and rises and not falls):
            yield f"slot {name!r} merges by {kind!r}, but it only ever moves the other way"
        elif kind in ("max", "min") and rises and falls and not fits and name in own:
            yield f"slot {name!r} merges by {kind!r}, but it rises and falls: 'mean' or 'sum'?"


def _weight_problems(rule: Rule, done: Experiment) -> Iterator[str]:
    """Merged weights are those of one pass, or the mean of the parts'."""
    if rule.masses or done.start.extra:
        return  # weights are an image of all coordinates; matrices average in the dual
    engine, size = done.learner.engine, done.start.layout.size
    merged = engine.weights(merge(engine, done.parts, done.start, done.examples), 0, size)
    one_pass, a, b = (engine.weights(state, 0, size) for state in (done.whole, *done.parts))
    share = done.examples[0] / sum(done.examples)
    mean = share * a + (1.0 - share) * b
    if not (_near(merged, one_pass, a, b) or _near(merged, mean, a, b)):
        i = int(np.abs(merged - one_pass).max(axis=1).argmax())
        yield (
            f"weight {i} of the merged state is {merged[i, 0]:.17g}: neither that of one pass over "
            f"both parts, {one_pass[i, 0]:.17g}, nor the mean of the parts', {mean[i, 0]:.17g}; "
            "look at the annotations of the slots that `weight` reads"
        )


def _overshoot(rule: Rule, done: Experiment) -> Iterator[str]:
    """A state merged with a copy of itself has weights like its own, not twice as large."""
    if rule.masses or done.start.extra:
        return
    engine, part = done.learner.engine, done.parts[1]
    fresh = State.start(part.layout)
    engine.begin(fresh)
    double = merge(engine, (part, part), fresh, (1, 1))
    now, before = (np.abs(engine.weights(one, 0, part.layout.size)) for one in (double, part))
    ratios = now[before > 0.0] / before[before > 0.0]
    if len(ratios) and np.median(ratios) > OVERSHOOT:
        yield (
            f"a state merged with a copy of itself has weights {np.median(ratios):.3g} times as "
            "large: a slot that `weight` reads is a mean, not a sum"
        )


def _near(found: Floats, expected: Floats, *terms: Floats) -> bool:
    unit = max(float(np.abs(one).max(initial=0.0)) for one in (expected, *terms))
    return bool(np.allclose(found, expected, rtol=1e-9, atol=1e-11 * unit))


def _random_rows(rng: np.random.Generator, loss: Loss, first: float) -> list[Batch]:
    """A start of rows ``first`` times as large, and two parts of 12 and 19 rows."""
    made = list[Batch]()
    for count, scale in ((4, first), (12, 1.0), (19, 1.5)):
        X = rng.uniform(0.3, 1.0, (count, SIZE)) * rng.choice([-1.0, 1.0], (count, SIZE)) * scale
        X[:, 1] *= rng.random(count) < 0.5
        made.append(sparse(X, _labels(rng, X, loss)))
    return made


def _labels(rng: np.random.Generator, X: Floats, loss: Loss) -> Floats:
    y = X @ np.arange(-3.0, 4.0) / SIZE + 0.5 * rng.standard_normal(len(X))
    signs: Floats = np.where(y > 0.0, 1.0, -1.0)
    return signs if loss.classifies else np.maximum(y, y if loss.least is None else loss.least)


def _twins(rng: np.random.Generator, loss: Loss) -> list[Batch]:
    """No start, and a row a part: the same signs with another label, so that both cause updates."""
    x = rng.uniform(0.3, 3.0, (1, SIZE)) * rng.choice([-1.0, 1.0], (1, SIZE))
    other = x * rng.uniform(0.3, 3.0, (1, SIZE))
    low = -1.0 if loss.classifies or loss.least is None else 1.0
    empty = sparse(np.zeros((0, SIZE)), np.zeros(0))
    return [empty, sparse(x, np.array([1.0])), sparse(other, np.array([low]))]


EXPERIMENTS: dict[str, Callable[[np.random.Generator, Loss], list[Batch]]] = {
    "both parts inside the start's scales": partial(_random_rows, first=20.0),
    "each part beyond the start's scales": partial(_random_rows, first=0.1),
    "one row a part, with opposite labels": _twins,
}
SEEDS = (5, 6, 7)
