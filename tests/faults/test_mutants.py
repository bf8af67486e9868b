"""The harness sees what is wrong: every mutant of the checkpoint is killed, by a kind by name."""

from __future__ import annotations

import pytest
from kinds import KINDS, every_kind
from mutants import MUTANTS, Mutant, applied
from tally import run_kind

every_kind()
QUICK = {"a part's hash is not compared", "a short write is the whole", "manifest before parts"}


@pytest.mark.parametrize(
    "mutant",
    [
        pytest.param(one, marks=() if one.name in QUICK else pytest.mark.slow, id=one.name)
        for one in MUTANTS
    ],
)
def test_a_mutant_is_killed(mutant: Mutant, record_property: pytest.RecordProperty) -> None:
    """Some case of the kind breaks the promise; without the mutation, it keeps it."""
    kind = KINDS[mutant.killer]
    with applied(mutant):
        tally = run_kind(kind, until_bad=True)
    assert not tally.kept, f"{mutant.name} lives through {tally.cases} cases of {kind.name}"
    record_property("killed", f"{mutant.name}: {tally.bad[0].splitlines()[0]}")


def test_there_are_enough() -> None:
    """At least twelve, each of another name, and by at least six kinds."""
    assert len({one.name for one in MUTANTS}) == len(MUTANTS) >= 12
    assert len({one.killer for one in MUTANTS}) >= 6
