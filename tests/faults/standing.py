"""What stands after a fault, judged by loading it. A commit of 10 k rows holds ``numbers(k)``."""

from __future__ import annotations

import hashlib
from collections.abc import Collection

from checkpoint_helpers import begin, load_all, numbers, plain
from kinds import Verdict

from streamomd.checkpoint import Commit, Store, Writer, list_commits, read_document
from streamomd.checkpoint.sealed_json import canonical
from streamomd.core.errors import CorruptionError, NoCommitError


def found(store: Store) -> tuple[int | None, Verdict]:
    """Which numbers are loaded, None if nothing was committed; the verdict of the bits alone."""
    try:
        loaded, parts = load_all(store)
    except NoCommitError:
        return None, Verdict.NAMED
    number = loaded.commit.document["rows"] // 10
    if parts != plain(numbers(number)) or not documents_are_theirs(store, loaded.commit):
        return number, Verdict.SILENT
    # Nothing was damaged: then a commit that is seen is whole.
    return number, Verdict.LOST if loaded.rejected else Verdict.SAME


def documents_are_theirs(store: Store, commit: Commit) -> bool:
    """Whether what is read of each shared document has the hash it is named by."""
    try:
        return all(
            hashlib.sha256(canonical(read_document(store, kind, sha256))).hexdigest() == sha256
            for kind, sha256 in commit.documents
        )
    except CorruptionError:
        # The load should have seen it.
        return False


def stands(store: Store, legal: Collection[int | None]) -> Verdict:
    """SAME if what is loaded is one of these, and every commit that is listed is whole."""
    number, verdict = found(store)
    if verdict in (Verdict.SILENT, Verdict.LOST):
        return verdict
    if number not in legal:
        return Verdict.LOST
    if number is not None and not all(one["ok"] for one in list_commits(store, deep=True)):
        return Verdict.LOST
    return Verdict.SAME


def goes_on(store: Store, number: int = 3) -> Verdict:
    """Another process resumes or begins, commits once more, and that is what is loaded."""
    try:
        writer = Writer.take_over(store, load_all(store)[0], keep=2)
    except NoCommitError:
        writer = begin(store)
    writer.commit({"rows": 10 * number}, numbers(number))
    loaded, verdict = found(store)
    return verdict if loaded == number else Verdict.LOST


def falls_back(store: Store, newest: int, older: int) -> Verdict:
    """After damage: the newest, or an older one that is whole, and told; ``older``: at least it."""
    try:
        loaded, parts = load_all(store)
    except NoCommitError:
        return Verdict.LOST
    number = loaded.commit.document["rows"] // 10
    if parts != plain(numbers(number)) or not documents_are_theirs(store, loaded.commit):
        return Verdict.SILENT
    if number < newest and not loaded.rejected:
        return Verdict.SILENT
    if number < older:
        return Verdict.LOST
    return Verdict.NAMED if loaded.rejected else Verdict.SAME
