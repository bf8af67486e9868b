"""Engine against oracle: first-order rules."""

from __future__ import annotations

import against_oracle
import pytest

pytestmark = pytest.mark.smoke

(
    test_engine_is_the_oracle,
    test_engine_is_the_oracle_on_many_streams,
    test_few_streams_are_redrawn,
) = against_oracle.tests_of("oracles_first_order")
