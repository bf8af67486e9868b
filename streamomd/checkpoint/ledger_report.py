"""The ledger of a checkpoint as users read it: each shard with the update that learned it."""

from __future__ import annotations

from typing import Any

from streamomd.checkpoint.commit_list import (
    check_format,
    first_sequence_of_run,
    read_commit,
    sequences,
)
from streamomd.checkpoint.commit_reader import require_commits
from streamomd.checkpoint.ledger import Ledger, read_ledger
from streamomd.checkpoint.manifest import Commit
from streamomd.checkpoint.segments import Facts
from streamomd.checkpoint.stores.contract import Store
from streamomd.core.errors import CorruptionError, NoCommitError
from streamomd.core.urls import shown


def read_newest_ledger(store: Store) -> tuple[Commit, Ledger]:
    """The newest commit of a run whose manifest and ledger are intact; no part is read.

    Raises NoCommitError if there is none, StorageError.
    """
    check_format(store)
    listed = sequences(store)
    require_commits(store, listed)
    first, problems = first_sequence_of_run(store, listed[-1]), []
    for sequence in reversed([number for number in listed if number >= first]):
        try:
            commit = read_commit(store, sequence)
            return commit, read_ledger(store, commit)
        except CorruptionError as error:
            problems.append(f"commit {sequence}: {error}")
    raise NoCommitError(f"no usable ledger in {shown(store.url)}: {'; '.join(problems[:10])}")


def list_ledger(store: Store) -> dict[str, list[dict[str, Any]]]:
    """The shards of a run in learned order, and those skipped, as dicts for JSON.

    shards: url, rows, update (0: the first run), sequence (the first commit that lists it).
    skipped: url, reason, update, sequence; without those that were learned later.
    """
    commit, ledger = read_newest_ledger(store)
    first = first_sequence_of_run(store, commit.sequence)
    facts = ledger.shards
    learned = [shard for shard in facts if "skipped" not in shard]
    urls = {shard["url"] for shard in learned}
    skipped = [shard for shard in facts if "skipped" in shard and shard["url"] not in urls]
    return {
        "shards": [
            {"url": shard["url"], "rows": shard.get("rows"), **_place(shard, first)}
            for shard in learned
        ],
        "skipped": [
            {"url": shard["url"], "reason": shard["skipped"], **_place(shard, first)}
            for shard in skipped
        ],
    }


def _place(facts: Facts, first: int) -> dict[str, int]:
    """Update and sequence. The shards of a first run do not record them."""
    return {"update": facts.get("update", 0), "sequence": facts.get("sequence", first)}
