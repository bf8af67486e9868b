"""A scorer reads every kind of column as ``streamomd predict`` does, to the bit."""

from __future__ import annotations

from typing import Any

import pytest
from any_columns import worlds
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from in_memory import assert_same_scores, learned

MODELS = [
    {"rule": "auto"},
    {"rule": "nag"},
    {"rule": "nag", "bias": False},
    {"rule": "sop_diag", "loss": "hinge"},
    {"rule": "nag", "loss": "softmax", "dtype": "float32"},
    {"rule": "laplace", "dtype": "float32"},
]


@pytest.mark.parametrize("model", MODELS, ids=lambda model: "-".join(map(str, model.values())))
@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(world=worlds(), curves=st.booleans())
@pytest.mark.sample(3)
def test_every_kind_of_column(model: dict[str, Any], world: Any, curves: bool) -> None:
    """Scores of rows with any columns, and of their curves, are bit-identical, and their
    explanations sum to them."""
    table, data = world
    job = {"data": data, "model": {**model, "classes": [0, 1]}, "curves": curves}
    assert_same_scores(learned(table, **job), table)
