"""Reading commits: newest first, an older one only where a newer one is proven corrupt."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from streamomd.checkpoint.manifest import NAME, Commit, decode, manifest_name
from streamomd.checkpoint.parts import Part, check_part, read_part
from streamomd.checkpoint.store import Store
from streamomd.errors import CorruptionError, NoCommitError

Receive = Callable[[Commit], Callable[[Part], None]]


@dataclass(frozen=True)
class Loaded:
    """The commit that was read, and the newer ones that were rejected, with the reason of each."""

    commit: Commit
    rejected: tuple[tuple[int, str], ...]


def sequences(store: Store) -> list[int]:
    """Numbers of all commits, ascending; one more than a stale listing shows is looked for."""
    matches = (NAME.fullmatch(name) for name in store.names("commits"))
    found = sorted(int(match[1]) for match in matches if match)
    while found and store.size(manifest_name(found[-1] + 1)) is not None:
        found.append(found[-1] + 1)
    return found


def read_commit(store: Store, sequence: int) -> Commit:
    """A commit's manifest. Raises CorruptionError, NoCommitError if it is not there."""
    try:
        data = store.read(manifest_name(sequence))
    except FileNotFoundError:
        raise NoCommitError(f"{store.url} has no commit {sequence}") from None
    return decode(data, sequence)


def load(store: Store, receive: Receive, *, at: int | None = None) -> Loaded:
    """Read the newest commit that is whole, or exactly commit ``at``.

    ``receive(commit)`` gives what each of its parts is handed to; it is called again, afresh, when
    a commit turns out to be corrupt and the one before it is tried, within the same run. Storage
    that does not answer is an error and never a reason to go back.

    Raises NoCommitError when there is no commit, or none that can be used.
    """
    found = [at] if at is not None else sequences(store)
    if not found:
        raise NoCommitError(f"{store.url} holds no commit: nothing was kept there yet")
    rejected: list[tuple[int, str]] = []
    run = None
    for sequence in reversed(found):
        try:
            commit = read_commit(store, sequence)
            if run not in (None, commit.run):
                break
            run = commit.run
            take = receive(commit)
            for entry in commit.parts:
                take(read_part(store, entry))
            return Loaded(commit, tuple(rejected))
        except CorruptionError as error:
            rejected.append((sequence, str(error)))
    reasons = "; ".join(f"commit {sequence}: {reason}" for sequence, reason in rejected)
    raise NoCommitError(f"{store.url} holds no commit that can be used: {reasons}")


def commits(store: Store, *, deep: bool = False) -> list[dict[str, Any]]:
    """Every commit, oldest first; ``deep`` reads every byte of every part.

    Keys: sequence, ok, problem, rows, epoch, finished, parts, bytes, written, writer.
    Raises NoCommitError when there is none.
    """
    found = [_look(store, sequence, deep) for sequence in sequences(store)]
    if not found:
        raise NoCommitError(f"{store.url} holds no commit: nothing was kept there yet")
    return found


def _look(store: Store, sequence: int, deep: bool) -> dict[str, Any]:
    try:
        commit = read_commit(store, sequence)
        problem = _problem(store, commit, deep)
    except CorruptionError as error:
        return {"sequence": sequence, "ok": False, "problem": str(error)}
    document = commit.document
    return {
        "sequence": sequence,
        "ok": not problem,
        "problem": problem,
        "rows": document.get("rows"),
        "epoch": document.get("cursor", {}).get("epoch"),
        "finished": document.get("finished"),
        "parts": len(commit.parts),
        "bytes": commit.nbytes,
        "written": commit.written,
        "writer": f"{commit.writer.get('host')}:{commit.writer.get('pid')}",
    }


def _problem(store: Store, commit: Commit, deep: bool) -> str:
    try:
        for entry in commit.parts:
            if deep:
                check_part(store, entry)
            elif store.size(entry.path) != entry.size:
                return f"{entry.path} is missing or cut short"
    except CorruptionError as error:
        return str(error)
    return ""
