"""Engine against oracle: AdaGrad in full."""

from __future__ import annotations

import against_oracle
import pytest

CASES = against_oracle.cases("oracles_adagrad_full")


@pytest.mark.parametrize("case", CASES, ids="-".join)
def test_engine_is_the_oracle(case) -> None:
    """Predictions agree to 1e-10 of their terms, slots to 1e-10."""
    against_oracle.quick_case(case)


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids="-".join)
def test_engine_is_the_oracle_on_many_streams(case) -> None:
    """The same on 200 streams a rule."""
    against_oracle.long_case(case)


def test_few_streams_are_redrawn() -> None:
    """Less than 1 % of the streams above stood near a kink."""
    against_oracle.few_redrawn()
