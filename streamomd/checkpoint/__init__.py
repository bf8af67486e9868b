"""Checkpoints: immutable parts, then one manifest; committed by put-if-absent and read back.

This layer knows nothing of models: a commit is a JSON document and arrays by range of coordinates.
"""

from streamomd.checkpoint.documents import keep_document, read_document
from streamomd.checkpoint.fingerprint import compare, explain
from streamomd.checkpoint.manifest import Commit
from streamomd.checkpoint.parts import Part
from streamomd.checkpoint.reader import Loaded, commits, load
from streamomd.checkpoint.store import Store, open_store
from streamomd.checkpoint.writer import Writer

__all__ = [
    "Commit",
    "Loaded",
    "Part",
    "Store",
    "Writer",
    "commits",
    "compare",
    "explain",
    "keep_document",
    "load",
    "open_store",
    "read_document",
]
