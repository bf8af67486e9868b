"""Runs of adaptive FTRL for its test files."""

from __future__ import annotations

from typing import Any

import numpy as np
from helpers import Learner, legal

from streamomd.analysis.plugin_checks.oracle_rows import Floats, Stream, make
from streamomd.losses import find_loss
from streamomd.rules import find_rule
from streamomd.rules.contract import Rule


def learner(rule: str | Rule, loss: str, d: int, params: dict[str, Any]) -> Learner:
    found = find_rule(rule) if isinstance(rule, str) else rule
    return Learner(found, loss, d, params=legal(found, find_loss(loss), params), compiled=False)


def weights(run: Learner) -> Floats:
    return run.engine.weights(run.state, 0, run.state.layout.size)[:, 0]


def drawn(seed: int, kind: str = "sparse", target: str = "binary") -> Stream:
    return make(np.random.default_rng(seed), kind, target)
