"""Table features that change what a data file's rows are: refused by name where not supported."""

from __future__ import annotations

from streamomd.core.errors import UnsupportedError
from streamomd.core.urls import printable, shown
from streamomd.sources.delta.actions import Metadata, Protocol

SUPPORTED = frozenset({"timestampNtz", "v2Checkpoint", "vacuumProtocolCheck"})
"""Reader features that do not change how a data file is read."""
USED_BY_FILES = frozenset({"deletionVectors", "columnMapping"})
"""Reader features of a table whose files need not use them: each use is refused."""
REMEDIES = {
    "deletionVectors": "run REORG TABLE … APPLY (PURGE), which rewrites these files",
    "columnMapping": "write the rows to a table without it (delta.columnMapping.mode = none)",
}


def refuse_features(url: str, protocol: Protocol, metadata: Metadata) -> None:
    """Raise UnsupportedError with every reader feature of a table that is not supported."""
    if protocol.reader_version > 3:
        raise UnsupportedError(
            f"Delta table {shown(url)} needs reader version {protocol.reader_version}; versions "
            "1 to 3 are supported"
        )
    unknown = sorted({*protocol.features} - SUPPORTED - USED_BY_FILES)
    if unknown:
        raise UnsupportedError(
            f"Delta table {shown(url)} needs table features that are not supported: "
            f"{printable(', '.join(unknown))}; drop them (ALTER TABLE … DROP FEATURE), or write "
            "the rows to a table without them"
        )
    mode = metadata.configuration.get("delta.columnMapping.mode") or "none"
    if mode.lower() != "none":
        raise UnsupportedError(
            f"Delta table {shown(url)} uses the table feature columnMapping (mode "
            f"{printable(mode)}): its files have other column names; {REMEDIES['columnMapping']}"
        )


def vectors_refusal(url: str, files: int) -> UnsupportedError:
    """The error for a table with files whose deleted rows are listed elsewhere."""
    return UnsupportedError(
        f"Delta table {shown(url)} uses the table feature deletionVectors: {files:,} of its files "
        f"hold deleted rows; {REMEDIES['deletionVectors']}"
    )
