"""The harness sees what is wrong: every mutant of the checkpoint is killed, by a kind by name.

``python -m tests.faults --mutants`` lists which case of which kind killed it, and why.
"""

from __future__ import annotations

import pytest
from kinds import Verdict
from mutants import MUTANTS, Mutant, killed

QUICK = {"a part's hash is not compared", "a short write is the whole", "manifest before parts"}


@pytest.mark.parametrize(
    "mutant",
    [
        pytest.param(one, marks=() if one.name in QUICK else pytest.mark.slow, id=one.name)
        for one in MUTANTS
    ],
)
def test_a_mutant_is_killed(mutant: Mutant) -> None:
    """Some case of the kind breaks the promise, and not by an error of the mutation itself."""
    tally = killed(mutant)
    assert not tally.kept, f"{mutant.name} lives through {tally.cases} cases of {mutant.killer}"
    assert not tally.counts[Verdict.CRASH], tally.bad


def test_there_are_enough() -> None:
    """At least twelve, each of another name, and by at least six kinds."""
    assert len({one.name for one in MUTANTS}) == len(MUTANTS) >= 12
    assert len({one.killer for one in MUTANTS}) >= 6
