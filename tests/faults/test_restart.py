"""A run that is begun anew where another is: the two are never taken for each other."""

from __future__ import annotations

from pathlib import Path

import pytest
from checkpoint_helpers import (
    KINDS,
    a_run,
    begin,
    load_all,
    make_store,
    numbers,
    overwrite,
    plain,
)

from streamomd.checkpoint import Store, Writer, list_commits
from streamomd.checkpoint.commit_reader import mark_restart
from streamomd.checkpoint.manifest import manifest_name
from streamomd.core.errors import ConcurrentWriterError, NoCommitError


@pytest.fixture(params=KINDS)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    return make_store(request.param, tmp_path)


@pytest.mark.parametrize("damage", [b"", b"{}\n", None])
def test_no_damage_leads_into_the_run_before(store: Store, damage: bytes | None) -> None:
    """Not even where no manifest of the new run tells any more which run it was of."""
    a_run(store, 2, keep=9)
    writer = begin(store, restart=True, keep=9)
    writer.commit({"rows": 10}, numbers(7))
    for sequence in (4, 3):
        overwrite(store, manifest_name(sequence), b"not JSON")
    with pytest.raises(NoCommitError, match=r"commit 4: .*commit 3: .*commit 2: .*earlier run"):
        load_all(store)
    if damage is not None:
        overwrite(store, manifest_name(3), damage)
    assert load_all(store, at=2)[1] == plain(numbers(2))


def test_a_restart_that_died_before_its_commit_changes_nothing(store: Store) -> None:
    """Its mark alone is no commit: the run before is loaded, falls back, and goes on."""
    a_run(store, 2, keep=9)
    mark_restart(store, 3)
    overwrite(store, manifest_name(2), b"")
    loaded, parts = load_all(store)
    assert parts == plain(numbers(1))
    writer = Writer.take_over(store, loaded, keep=9)
    writer.commit({"rows": 50}, numbers(5))
    assert load_all(store)[1] == plain(numbers(5))


def test_the_writer_of_the_run_before_is_stopped(store: Store) -> None:
    """It finds its next number taken, by whom, and deletes nothing."""
    old = a_run(store, 1)
    begin(store, restart=True)
    with pytest.raises(ConcurrentWriterError, match=r"pid \d+, started .* at commit 2") as error:
        old.commit({"rows": 20}, numbers(2))
    assert error.value.exit_code == 5
    assert [one["ok"] for one in list_commits(store, deep=True)] == [True] * 3
    assert load_all(store)[1] == plain(numbers(0))


def test_a_restart_may_be_restarted(store: Store) -> None:
    """Each falls back within itself only; earlier runs stay, whole, and can be asked for."""
    for _ in range(3):
        writer = begin(store, restart=True)
        writer.commit({"rows": 10}, numbers(1))
    assert [one["sequence"] for one in list_commits(store, deep=True)] == list(range(6))
    overwrite(store, manifest_name(5), b"")
    assert load_all(store)[0].commit.sequence == 4
    overwrite(store, manifest_name(4), b"")
    with pytest.raises(NoCommitError):
        load_all(store)
    assert load_all(store, at=1)[1] == plain(numbers(1))
