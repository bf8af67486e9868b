"""Iceberg tables for tests: a catalog in SQLite, and commits that pyiceberg does not write."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog import load_catalog
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.manifest import (
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestWriterV2,
    write_manifest_list,
)
from pyiceberg.table.metadata import TableMetadataUtil
from pyiceberg.typedef import Record
from pyiceberg.utils.config import Config

NAME = "iceberg://tests/ns.t"
SCHEMA = pa.schema([("y", pa.int64()), ("x", pa.float64())])


def rows(first: int, count: int = 4) -> pa.Table:
    """Rows with consecutive numbers in x, which say where they were learned."""
    x = range(first, first + count)
    return pa.table({"y": [n % 2 for n in x], "x": [float(n) for n in x]}, schema=SCHEMA)


def catalog(folder: Path, patch: pytest.MonkeyPatch) -> Any:
    """A catalog named ``tests`` of pyiceberg's configuration, with a namespace ``ns``."""
    for key, value in (
        ("TYPE", "sql"),
        ("URI", f"sqlite:///{folder}/catalog.db"),
        ("WAREHOUSE", f"file://{folder}/warehouse"),
    ):
        patch.setenv(f"PYICEBERG_CATALOG__TESTS__{key}", value)
    # It reads the environment when it is imported.
    patch.setattr("pyiceberg.catalog._ENV_CONFIG", Config())
    found = load_catalog("tests")
    found.create_namespace("ns")
    return found


class _Deletes(ManifestWriterV2):
    def content(self) -> ManifestContent:
        return ManifestContent.DELETES


def forged(
    table: Any, operation: str, added: Sequence[DataFile], *, whole: bool = False, name: str = "f"
) -> str:
    """Commit files to a table without its catalog: the metadata file of the new snapshot.

    whole: without the files of the snapshot before.
    """
    path = Path(table.metadata_location.removeprefix("file://"))
    document = json.loads(path.read_text())
    metadata, io = TableMetadataUtil.parse_raw(path.read_text()), PyArrowFileIO()
    before = metadata.current_snapshot()
    number, sequence = before.snapshot_id + 1, metadata.last_sequence_number + 1
    folder = path.parent
    data = added[0].content == DataFileContent.DATA
    writer = (ManifestWriterV2 if data else _Deletes)(
        metadata.spec(), metadata.schema(), io.new_output(f"{folder}/{name}-m.avro"), number, "null"
    )
    with writer:
        for file in added:
            entry = ManifestEntry.from_args(
                status=ManifestEntryStatus.ADDED, snapshot_id=number, data_file=file
            )
            writer.add_entry(entry)
    manifests = [] if whole else before.manifests(io)
    manifests = [*manifests, writer.to_manifest_file()]
    listing = io.new_output(f"{folder}/{name}-list.avro")
    with write_manifest_list(
        2, listing, number, before.snapshot_id, sequence, "null"
    ) as manifest_list:
        manifest_list.add_manifests(manifests)
    now = document["last-updated-ms"] + 1
    document |= {
        "last-updated-ms": now, "last-sequence-number": sequence, "current-snapshot-id": number,
    }  # fmt: skip
    document["refs"] = {"main": {"snapshot-id": number, "type": "branch"}}
    document["snapshot-log"].append({"snapshot-id": number, "timestamp-ms": now})
    document["snapshots"].append({
        "snapshot-id": number, "parent-snapshot-id": before.snapshot_id, "timestamp-ms": now,
        "sequence-number": sequence, "manifest-list": f"{folder}/{name}-list.avro",
        "summary": {"operation": operation}, "schema-id": metadata.current_schema_id,
    })  # fmt: skip
    found = folder / f"{name}.metadata.json"
    found.write_text(json.dumps(document))
    return str(found)


def file(
    path: str,
    content: DataFileContent = DataFileContent.DATA,
    form: FileFormat = FileFormat.PARQUET,
) -> DataFile:
    """An entry of a manifest for a file."""
    ids = [1] if content == DataFileContent.EQUALITY_DELETES else None
    return DataFile.from_args(
        content=content, file_path=path, file_format=form, partition=Record(), record_count=1,
        file_size_in_bytes=Path(path).stat().st_size if Path(path).exists() else 9,
        equality_ids=ids,
    )  # fmt: skip


def data_files(table: Any) -> list[Path]:
    """The data files of a table's directory, in the order of their names."""
    root = Path(table.location().removeprefix("file://"))
    return sorted((root / "data").rglob("*.parquet"))


def copied(table: Any, name: str) -> str:
    """A copy of a table's first data file: its path."""
    first = data_files(table)[0]
    return str(shutil.copy(first, first.parent / name))
