"""Compiled loops are the plain Python ones, to the bit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from helpers import Learner, dense, marked_pairs, sparse

from streamomd.analysis.plugin_checks import oracle_rows as streams
from streamomd.losses import find_loss
from streamomd.rules import all_rules

LAYOUTS = [  # classes, bias, dense, dtype
    (2, True, False, "float64"),
    (3, True, True, "float32"),
]


def stream(kind: str, classes: int, seed: int) -> streams.Stream:
    """A stream of a kind, with two classes or with three."""
    target = "binary" if classes == 2 else "classes"
    return streams.make(np.random.default_rng(seed), kind, target)


def cases() -> list[Any]:
    """Every pair in every layout. The quick run has a sixteenth of the rules with their own losses,
    every other in the second layout, whose loops take twice as long to compile: every rule's
    example runs compiled, too."""
    made = []
    for n, pair in enumerate(marked_pairs()):
        for at, layout in enumerate(LAYOUTS):
            quick = n % 16 == 0 and (n % 32 == 0) == at
            marks = [*pair.marks] if quick else [pytest.mark.slow]
            made.append(pytest.param(*pair.values, *layout, marks=marks))
    return made


@pytest.mark.parametrize("rule, loss, classes, bias, is_dense, dtype", cases())
def test_compiled_is_uncompiled(rule, loss, classes, bias, is_dense, dtype) -> None:
    """Margins, slots, totals and sums agree to the bit, whatever the layout."""
    positive = find_loss(loss).least is not None
    classes = 2 if positive else classes  # of more, each learner has targets −1
    rows = stream("weights", classes, 7)
    if all_rules()[rule].storage.kind in ("root", "recent"):  # many steps a row, for plain Python
        rows = rows._replace(X=rows.X[:24, :6], y=rows.y[:24], h=rows.h[:24])
    if positive:
        rows = rows._replace(y=np.abs(rows.y))
    size = rows.X.shape[1] + int(bias)
    make = dense(rows.X, rows.y, rows.h) if is_dense else sparse(rows.X, rows.y, rows.h)
    count = rows.classes if classes > 2 else 2
    told = {"classes": count, "bias": bias, "dtype": dtype}
    one = Learner(rule, loss, size, **told, compiled=True)
    other = Learner(rule, loss, size, **told, compiled=False)

    assert one.learn(make).tobytes() == other.learn(make).tobytes()
    assert one.bits() == other.bits()
    assert one.sums[0] > 0.0
