"""Engine against oracle: second order."""

from __future__ import annotations

import against_oracle

(
    test_rule_is_its_oracle,
    test_rule_is_its_oracle_on_many_streams,
) = against_oracle.tests_of("oracles_second_order")
