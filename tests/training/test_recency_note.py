"""A model that follows recent rows is reported at the end of its run."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from streamomd.training import model_figures
from streamomd.training.model_figures import recency_note


@pytest.mark.parametrize(
    ("mixture", "reported"), [(None, False), ((0.9, 5), False), ((0.1, 5), True)]
)
def test_a_model_of_recent_rows_is_reported(
    mixture: Any, reported: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where AdaGrad has the larger share at the end; rules with one predictor have no line."""
    monkeypatch.setattr(model_figures, "mixture", lambda engine, state: mixture)
    model: Any = SimpleNamespace(engine=None, state=None)
    assert bool(recency_note(model)) == reported
    assert not reported or "--rule auto --set prefer=whole" in recency_note(model)
