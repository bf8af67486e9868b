"""A scorer gives the bits of ``streamomd predict``: every rule, every loss, every kind of column."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from helpers import pairs, some_pairs
from in_memory import assert_same_scores, learned

from streamomd.losses import all_losses
from streamomd.rules import all_rules

ROWS = 24


def rows(classes: int, seed: int = 1) -> pa.Table:
    """Numbers, categories with few values and a constant column; y: classes, or numbers if 0."""
    draw = np.random.default_rng(seed)
    a, b = draw.uniform(0.25, 1.0, ROWS), draw.uniform(0.0, 1.0, ROWS)
    b[draw.random(ROWS) < 0.3] = 0.0
    score = a - b + 0.2 * draw.standard_normal(ROWS)
    y: Any = score if not classes else np.digitize(score, [0.0, 0.4])
    y = y if classes != 2 else np.minimum(y, 1)
    return pa.table(
        {
            "a": a,
            "b": b,
            "c": draw.choice(["x", "y", "z"], ROWS),
            "k": draw.integers(0, 3, ROWS),
            "one": np.ones(ROWS),
            "y": np.maximum(y, 0.01) if not classes else y,
        }
    )


def cases() -> list[Any]:
    """Every rule with every loss it learns with, of two and three classes or numbers."""
    quick, found = set(some_pairs()), []
    for pair in pairs():
        of = (2, 3) if all_losses()[pair[1]].classifies else (0,)
        marks = () if pair in quick else pytest.mark.slow
        found += [pytest.param(*pair, n, marks=marks, id="-".join((*pair, str(n)))) for n in of]
    return found


def job(rule: str, loss: str, classes: int) -> dict[str, Any]:
    bound = all_rules()[rule].losses.lipschitz
    unbounded = bool(bound) and all_losses()[loss].lipschitz is None
    data = {"numeric": ["a", "b", "one"], "hashed": ["c", "k"], "bits": 3}
    return {
        "data": data,
        "model": {"rule": rule, "loss": loss},
        "params": {bound: 100.0} if unbounded else {},
    }


@pytest.mark.parametrize(("rule", "loss", "classes"), cases())
def test_every_rule_and_loss(rule: str, loss: str, classes: int) -> None:
    """The scores of a rule are bit-identical for each loss it learns with."""
    table = rows(classes)
    assert_same_scores(learned(table, **job(rule, loss, classes)), table)


@pytest.mark.slow
@pytest.mark.parametrize(("rule", "loss", "classes"), cases())
def test_every_rule_and_loss_compiled(rule: str, loss: str, classes: int) -> None:
    """The same of the compiled loops, which ``streamomd predict`` runs."""
    table = rows(classes)
    assert_same_scores(learned(table, compiled=True, **job(rule, loss, classes)), table)
