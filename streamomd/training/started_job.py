"""The job of the run that a new one starts from."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from streamomd.checkpoint import open_store
from streamomd.checkpoint.commit_list import read_commit, sequences
from streamomd.checkpoint.commit_reader import require_commits
from streamomd.config.inherited import inherited_tables
from streamomd.core.errors import CorruptionError, SweepError
from streamomd.core.urls import absolute, shown
from streamomd.training.warm_start import is_weights


def started_job(tables: Mapping[str, Any]) -> dict[str, Any] | None:
    """What a job takes over from the checkpoint that its ``model.start`` names; None: no such.

    The newest manifest that can be read says it. Whether the commit is whole is seen when its state
    is loaded. Raises NoCommitError if there is none, StorageError if the store does not answer.
    """
    start = (tables.get("model") or {}).get("start")
    if not start or not isinstance(start, str) or is_weights(start):
        return None
    options = (tables.get("checkpoint") or {}).get("storage_options")
    store = open_store(absolute(start), options)
    found = sequences(store)
    require_commits(store, found)
    for sequence in reversed(found):
        try:
            document = read_commit(store, sequence).document
        except CorruptionError:
            continue
        if "sweep" in document:
            place = shown(store.url)
            raise SweepError(f"{place} is a sweep, of many models: start from {place}/best")
        return inherited_tables(document["job"], document["plan"])
    return None  # loading it says why no commit is usable
