"""What a place without a commit is instead: the end of the message about it."""

from __future__ import annotations

import os

from streamomd.core.nearest import similar_path
from streamomd.core.urls import protocol, shown

COMMITS = "commits"
MOST_NAMED = 5  # of runs and files in a message
MOST_LOOKED_AT = 1_000  # entries of a directory
DATA = (".parquet", ".parq", ".pq", ".arrow", ".feather", ".ipc", ".csv", ".gz")


def instead_of_commits(url: str) -> str:
    """What is at a URL without commits, and what to pass; local directories are looked into."""
    known = "" if protocol(url) else _local(url)
    return known or (
        'nothing was saved there; pass the URL that train printed after "saved to", before any '
        "shards"
    )


def _local(path: str) -> str:
    if not os.path.lexists(path):
        near = similar_path(path)
        return f"nothing was saved there{near}" if near else ""
    try:
        with os.scandir(path) as entries:
            children = [entry for entry, _ in zip(entries, range(MOST_LOOKED_AT), strict=False)]
        runs = [child for child in children if os.path.isdir(os.path.join(child.path, COMMITS))]
        runs.sort(key=lambda child: -child.stat().st_mtime_ns)
    except OSError:
        return ""
    if runs:
        names = ", ".join(shown(os.path.join(path, child.name)) for child in runs[:MOST_NAMED])
        more = f" and {len(runs) - MOST_NAMED} more" if len(runs) > MOST_NAMED else ""
        return f"it contains runs, the newest first: {names}{more}; pass one of them"
    if any(child.name.endswith(DATA) for child in children):
        return "it contains data files; the checkpoint's URL comes first, then the shards"
    return ""
