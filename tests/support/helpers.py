"""Rules with their losses, and the makers of batches and learners that tests share."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from streamomd.analysis.plugin_checks.learner import Learner, dense, legal, sparse
from streamomd.losses import all_losses
from streamomd.rules import all_rules

__all__ = ["Learner", "dense", "legal", "marked_pairs", "pairs", "some_pairs", "sparse"]


def pairs() -> Iterator[tuple[str, str]]:
    """Every rule with every loss it learns with."""
    for rule in all_rules().values():
        for loss in rule.losses.names or all_losses():
            yield rule.name, loss


def some_pairs() -> Iterator[tuple[str, str]]:
    """Every rule with its first loss, and every loss with NAG: what a quick run compiles."""
    for rule in all_rules().values():
        yield rule.name, rule.losses.default
    for loss in all_losses():
        if loss != "logistic":
            yield "nag", loss


def marked_pairs() -> list[Any]:
    """Every pair; those that are not among ``some_pairs`` are for the long run."""
    quick = set(some_pairs())
    return [
        pytest.param(*pair, marks=() if pair in quick else pytest.mark.slow) for pair in pairs()
    ]
