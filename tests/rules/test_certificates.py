"""Every rule's certificate on made-up streams and on real data: never below what was measured."""

from __future__ import annotations

import numpy as np
import pytest
from certified import Tally, certificate, examine, planted

from streamomd.rules import all_rules

STREAMS, MANY = 14, 1000
CERTIFIED = [name for name, rule in all_rules().items() if certificate(rule)]

# A run with a step too long overflows; such streams are drawn again with a shorter one.
pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")


def check(name: str, tally: Tally, streams: int, record) -> None:
    assert not tally.failures, "\n".join(tally.failures[:10])
    assert tally.count["streams"] == streams, tally.outside.most_common(5)
    for claim, ratios in sorted(tally.ratios.items()):
        median = float(np.median(ratios))
        record("certificate", f"{name:30} {median:12.4g}  of {len(ratios):5} runs  {claim}")


@pytest.mark.parametrize(
    "name",
    # Ten seconds in plain Python; the long run has a thousand streams of it.
    [pytest.param(n, marks=pytest.mark.slow if n == "adagrad_full" else ()) for n in CERTIFIED],
)
@pytest.mark.sample(6)
def test_no_bound_is_below_what_was_measured(name: str, record_property) -> None:
    """On streams of every kind, for comparators good and bad; every bound is a finite number."""
    check(name, examine(all_rules()[name], STREAMS), STREAMS, record_property)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", CERTIFIED)
def test_no_bound_is_below_what_was_measured_long(name: str, record_property) -> None:
    """The same on a thousand streams a rule."""
    check(name, examine(all_rules()[name], MANY), MANY, record_property)


@pytest.mark.parametrize(
    "name",
    # Plain Python takes ten seconds for the planted stream's multipliers.
    [pytest.param(n, marks=pytest.mark.slow if n == "online_svm" else ()) for n in CERTIFIED],
)
@pytest.mark.sample(5)
def test_bounds_say_something(name: str) -> None:
    """On one planted stream the bound is below the loss of always predicting 0."""
    ratio, which = planted(all_rules()[name])
    assert ratio < 1.0, which


def test_a_rule_without_a_certificate_says_why() -> None:
    """Either a certificate or a reason, not both."""
    for rule in all_rules().values():
        reason = rule.certificate.reason
        assert certificate(rule) or (reason and len(reason.split()) > 3), rule.name
