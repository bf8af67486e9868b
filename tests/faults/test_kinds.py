"""The promise, under every kind of fault: same bits, or a named error and the last good commit."""

from __future__ import annotations

import pytest
from kinds import KINDS, Unavailable, every_kind
from tally import Tally, run_kind

every_kind()


def run(name: str, *, quick: bool) -> Tally:
    try:
        return run_kind(KINDS[name], quick=quick)
    except Unavailable as why:
        pytest.skip(str(why))


@pytest.mark.parametrize("name", sorted(name for name in KINDS if KINDS[name].quick))
def test_some_cases_keep_the_promise(name: str) -> None:
    """Cases spread over the whole kind."""
    tally = run(name, quick=True)
    assert tally.kept, "\n".join(tally.bad)


@pytest.mark.slow
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("name", sorted(KINDS))
def test_all_cases_keep_the_promise(name: str) -> None:
    """Every case of the kind."""
    tally = run(name, quick=False)
    assert tally.kept, "\n".join(tally.bad)
