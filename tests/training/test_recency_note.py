"""A model that follows recent rows is reported at the end of its run."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from streamomd.training import model_figures
from streamomd.training.model_figures import mixture_of, recency_note


@pytest.mark.parametrize(
    ("mixture", "reported"), [(None, False), ((0.9, 5), False), ((0.1, 5), True), ((0.1, 0), False)]
)
def test_a_model_of_recent_rows_is_reported(
    mixture: Any, reported: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where AdaGrad has the larger share at the end, by the next rows and not by frozen
    predictions; rules with one predictor have no line."""
    monkeypatch.setattr(model_figures, "mixture", lambda engine, state: mixture)
    model: Any = SimpleNamespace(engine=None, state=None)
    assert bool(recency_note(model)) == reported
    assert not reported or "--rule auto --set prefer=whole" in recency_note(model)


@pytest.mark.parametrize(
    ("mixture", "text"),
    [
        ((0.848, 0), "Laplace steps 84.8%, chosen by frozen predictions"),
        ((0.1, 2500), "AdaGrad, which follows recent rows, 90.0%, since row 2,500"),
    ],
)
def test_what_decides_a_mixture_is_shown(
    mixture: Any, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Row numbers are those of the mixture of the next row alone."""
    monkeypatch.setattr(model_figures, "mixture", lambda engine, state: mixture)
    model: Any = SimpleNamespace(engine=None, state=None)
    assert mixture_of(model) == text
