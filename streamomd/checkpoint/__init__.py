"""Checkpoints: JSON documents with numbered parts of arrays, committed in sequence.

This package is independent of the model. Layout of a checkpoint (no object name is reused):

    FORMAT.json                                        name and version of the format
    data/<sequence>-<writer>-<attempt>/p<lo>-<hi>.safetensors    a commit's parts, written first
    dataset/<sha256>.json, names/<sha256>.json         documents that several commits share
    segments/<sha256>.bin                              segments of the ledger of shards, shared too
    copies/…/<sha256>.…                                second copies of the shared documents
    restarts/<sequence>                         the first commit of a run that overwrote another
    commits/<sequence>.json                            a commit: written last, exactly once

In a store where each request waits for an answer, small shared documents are in the commits.
"""

from __future__ import annotations

from streamomd.checkpoint.commit_reader import Loaded, load, read_commit, read_part, read_parts
from streamomd.checkpoint.commit_writer import Writer, write_parts
from streamomd.checkpoint.documents import read_document, write_document, write_shared
from streamomd.checkpoint.ledger import (
    Difference,
    Ledger,
    compare,
    explain,
    list_ledger,
    read_ledger,
    read_newest_ledger,
)
from streamomd.checkpoint.manage_commits import (
    Restored,
    list_commits,
    list_temporary_files,
    restore_commit,
)
from streamomd.checkpoint.manifest import Commit
from streamomd.checkpoint.parts import Part, PartEntry, StoredParts, parse_entry
from streamomd.checkpoint.stores.contract import Store, open_store

__all__ = [
    "Commit",
    "Difference",
    "Ledger",
    "Loaded",
    "Part",
    "PartEntry",
    "Restored",
    "Store",
    "StoredParts",
    "Writer",
    "compare",
    "explain",
    "list_commits",
    "list_ledger",
    "list_temporary_files",
    "load",
    "open_store",
    "parse_entry",
    "read_commit",
    "read_document",
    "read_ledger",
    "read_newest_ledger",
    "read_part",
    "read_parts",
    "restore_commit",
    "write_document",
    "write_parts",
    "write_shared",
]
