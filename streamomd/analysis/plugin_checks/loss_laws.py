"""What a loss must fulfil: a convex value, its slope, the link's inverse, finite in both tails."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from streamomd.analysis.plugin_checks.learner import others_of
from streamomd.losses import Loss
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
