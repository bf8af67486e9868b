"""Checkpoints: JSON documents with numbered parts of arrays, committed one after the other.

Nothing here knows a model. The layout of a checkpoint (all names are made here, none is reused):

    FORMAT.json                                        which format this is
    data/<sequence>-<writer>-<attempt>/p<lo>-<hi>.safetensors    a commit's parts, written first
    dataset/<sha256>.json, names/<sha256>.json         documents that several commits share
    segments/<sha256>.bin                              the ledger of shards, shared as well
    copies/…/<sha256>.…                                second copies of these three
    restarts/<sequence>                                a run was begun anew with this commit
    commits/<sequence>.json                            a commit: written last, once, or not at all
"""

from __future__ import annotations

from streamomd.checkpoint.commit_list import read_commit, read_part
from streamomd.checkpoint.commit_reader import Loaded, load
from streamomd.checkpoint.commit_writer import Writer, put_part
from streamomd.checkpoint.documents import keep_document, read_document
from streamomd.checkpoint.fingerprint import Difference, compare, explain
from streamomd.checkpoint.ledger import Ledger, read_ledger
from streamomd.checkpoint.listing import commits, left_temporary
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
    "Store",
    "StoredParts",
    "Writer",
    "commits",
    "compare",
    "explain",
    "keep_document",
    "left_temporary",
    "load",
    "open_store",
    "parse_entry",
    "put_part",
    "read_commit",
    "read_document",
    "read_ledger",
    "read_part",
]
