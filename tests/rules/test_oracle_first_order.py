"""Engine against oracle: first-order rules."""

from __future__ import annotations

import against_oracle
import pytest

pytestmark = pytest.mark.smoke

(
    test_rule_is_its_oracle,
    test_rule_is_its_oracle_on_many_streams,
) = against_oracle.tests_of("oracles_first_order")
