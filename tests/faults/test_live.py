"""Loading from a run that goes on: old commits vanish while they are read."""

from __future__ import annotations

from pathlib import Path

import pytest
from checkpoint_helpers import KINDS, a_run, load_all, make_store, numbers, plain

from streamomd.checkpoint import Store, load
from streamomd.core.errors import NoCommitError


@pytest.fixture(params=KINDS)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    return make_store(request.param, tmp_path)


@pytest.mark.parametrize("keep", [1, 2])
@pytest.mark.parametrize("moment", ["before", "between"])
def test_a_newer_commit_is_loaded_instead(store: Store, keep: int, moment: str) -> None:
    """The commit is retired before its parts are read, or between them: a newer one is loaded."""
    writer = a_run(store, 1, keep=keep)
    taken: list[list] = []

    def go_on() -> None:
        for at in range(2, 2 + keep) if len(taken) == 1 else ():
            writer.commit({"rows": 10 * at}, numbers(at))

    def receive(commit):
        taken.append([])
        if moment == "before":
            go_on()

        def take(part):
            taken[-1].append(part)
            if moment == "between" and part[0] == 0:
                go_on()

        return take

    loaded = load(store, receive)
    assert loaded.commit.sequence == 1 + keep
    assert loaded.rejected == ()
    assert plain(taken[-1]) == plain(numbers(1 + keep))


def test_a_commit_that_was_asked_for_is_not_replaced(store: Store) -> None:
    """``at`` gives that commit or an error, whatever is newer by then."""
    writer = a_run(store, 1, keep=1)

    def receive(commit):
        writer.commit({"rows": 20}, numbers(2))
        return lambda part: None

    with pytest.raises(NoCommitError, match=r"commit 1: .*missing"):
        load(store, receive, at=1)
    assert load_all(store)[1] == plain(numbers(2))
