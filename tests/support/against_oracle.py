"""Rules against their oracles. Each file of oracles has a file of tests: they run side by side."""

from __future__ import annotations

from collections.abc import Callable

import oracles
import pytest

from streamomd.rules import all_rules
from streamomd.testing import check_rule

oracles.families()


def check(name: str, *, streams: int, seed: int) -> None:
    """All losses and parameters in plain Python; tests/engine/test_compiled.py compiles them."""
    check_rule(
        all_rules()[name], oracles.oracle_of(name), params=oracles.variants(name),
        streams=streams, seed=seed, compiled=False,
    )  # fmt: skip


def tests_of(family: str) -> tuple[Callable[..., None], ...]:
    """The tests of a file of oracles."""
    names = sorted(oracles.FAMILIES[family])

    @pytest.mark.parametrize("name", names)
    def test_rule_is_its_oracle(name: str) -> None:
        """Predictions agree to 1e-10 of their terms, slots to 1e-10; and the laws of check_rule."""
        check(name, streams=2, seed=0)

    @pytest.mark.slow
    @pytest.mark.parametrize("name", names)
    def test_rule_is_its_oracle_on_many_streams(name: str) -> None:
        """The same on 24 streams for each loss and parameters, three of each kind."""
        check(name, streams=24, seed=1000)

    return test_rule_is_its_oracle, test_rule_is_its_oracle_on_many_streams
