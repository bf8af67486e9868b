"""Learners side by side: each has the bits it has alone, for every rule that may stand so."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import oracles
import pytest
from helpers import Learner, dense, legal, sparse

from streamomd.core.batch import Batch
from streamomd.engine import Engine
from streamomd.engine.divided import extract_learner, join_states
from streamomd.losses import all_losses
from streamomd.rules import all_rules
from streamomd.runs.sweep.batched import observes_with_hyper

oracles.families()
ROWS, COLUMNS = 40, 7
SIZES = (2, 3, 4)
OBSERVE_WITH_HYPER = {"aggressive", "dual_step", "pnorm_lms", "snag"}


def rows(seed: int, *, number: bool) -> tuple[Any, Any, Any]:
    """Numbers on several scales, a third of them absent; labels or targets; importances."""
    draw = np.random.default_rng(seed)
    X = draw.normal(size=(ROWS, COLUMNS)) * 10.0 ** np.arange(-1, COLUMNS - 1)
    X[draw.random(X.shape) < 0.3] = 0.0
    y = np.abs(draw.normal(size=ROWS)) if number else draw.choice([-1.0, 1.0], ROWS)
    return X / 10.0**COLUMNS, y, draw.choice([0.0, 0.5, 1.0, 3.0], ROWS)


def cases() -> Iterator[tuple[str, str]]:
    """Every rule that may stand side by side with its first loss, and every loss with NAG."""
    for rule in all_rules().values():
        if rule.storage.kind == "coordinates":
            yield rule.name, rule.losses.default
    yield from (("nag", loss.name) for loss in all_losses().values() if not loss.coupled)


def learners(rule: str, loss: str, *, compiled: bool, dtype: str, count: int) -> list[Learner]:
    """Alone, each with parameters of its own where the rule has some that may differ."""
    found = all_rules()[rule]
    told = [] if observes_with_hyper(found) else oracles.VARIANTS.get(rule, [])
    told = (told or [{}]) * count
    return [
        Learner(
            found, loss, COLUMNS + 1, bias=True, dtype=dtype, compiled=compiled,
            classes=2 if all_losses()[loss].classifies else 1,
            params=legal(found, all_losses()[loss], params),
        )
        for params in told[:count]
    ]  # fmt: skip


def learned(ones: list[Learner], batches: list[Batch]) -> list[tuple[Any, ...]]:
    """What each holds after the batches, learned side by side."""
    engine = Engine.side_by_side([one.engine for one in ones])
    state = join_states([one.state for one in ones], engine.layout)
    sums = np.concatenate([one.sums for one in ones])
    margins = np.vstack([engine.learn(state, sums, batch) for batch in batches])
    for k, one in enumerate(ones):
        one.state, one.sums = extract_learner(state, k), sums[3 * k : 3 * k + 3]
    return [(*one.bits(), margins[:, k].tobytes()) for k, one in enumerate(ones)]


def compare(
    rule: str,
    loss: str,
    *,
    compiled: bool,
    dtype: str,
    count: int,
    seed: int = 0,
    short: bool = False,
) -> None:
    """The bits of all that is left, and of every margin, against each learner alone."""
    X, y, h = rows(seed, number=not all_losses()[loss].classifies)
    half = ROWS // 2
    batches: list[Batch] = [sparse(X[:half], y[:half], h[:half])]
    batches += [] if short else [dense(X[half:], y[half:], h[half:])]
    told = {"compiled": compiled, "dtype": dtype, "count": count}
    one_by_one = []
    for one in learners(rule, loss, **told):
        margins = np.vstack([one.learn(batch) for batch in batches])
        one_by_one.append((*one.bits(), margins[:, 0].tobytes()))
    assert learned(learners(rule, loss, **told), batches) == one_by_one


@pytest.mark.parametrize("rule, loss", sorted(set(cases())))
@pytest.mark.sample(3)
def test_side_by_side_is_alone(rule: str, loss: str) -> None:
    """In plain Python: slots, totals, clock, sums and margins, bit by bit, in both dtypes."""
    for seed, dtype in enumerate(("float64", "float32")):
        compare(rule, loss, compiled=False, dtype=dtype, count=SIZES[seed], seed=seed)


def test_side_by_side_is_alone_compiled() -> None:
    """The same of the compiled loops."""
    compare("nag", "logistic", compiled=True, dtype="float64", count=4, short=True)


@pytest.mark.slow
@pytest.mark.parametrize("rule, loss", sorted(set(cases())))
def test_side_by_side_is_alone_all_compiled(rule: str, loss: str) -> None:
    """Of all rules, in both dtypes and as many as a loop has at most."""
    for dtype in ("float64", "float32"):
        compare(rule, loss, compiled=True, dtype=dtype, count=8)


def test_who_observes_with_hyperparameters() -> None:
    """A row is observed once for all: those rules that do it with their parameters stand alone."""
    found = {name for name, rule in all_rules().items() if observes_with_hyper(rule)}
    assert found == OBSERVE_WITH_HYPER
