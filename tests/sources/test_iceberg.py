"""Iceberg tables: rows of a pinned snapshot, by field id; deletes and foreign files refused."""

from __future__ import annotations

import datetime
import gzip
import json
import re
import threading
import zlib
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

pytest.importorskip("pyiceberg")
pytest.importorskip("sqlalchemy")

from iceberg_tables import NAME, SCHEMA, catalog, copied, data_files, file, forged, rows
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.manifest import DataFileContent, FileFormat
from pyiceberg.types import DoubleType, IntegerType, LongType, StringType
from pyiceberg.utils.config import Config

from streamomd.core.errors import (
    CorruptionError,
    DataError,
    InputNotFoundError,
    ResumeRefusedError,
    StreamomdError,
    UnsupportedError,
    UsageError,
)
from streamomd.shards.file_schema import parse_projection
from streamomd.shards.filtered_shards import with_filter
from streamomd.shards.reader import read_batches
from streamomd.shards.shard import ShardSet
from streamomd.sources.contract import Request
from streamomd.sources.find import describe_sources, find, list_shards
from streamomd.sources.iceberg import iceberg_table
from streamomd.sources.iceberg.iceberg_table import check_container
from streamomd.sources.tables import TableOptions


@pytest.fixture
def tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    return catalog(tmp_path, monkeypatch)


@pytest.fixture
def table(tables: Any) -> Any:
    """Two snapshots of four rows."""
    made = tables.create_table("ns.t", SCHEMA)
    made.append(rows(0))
    made.append(rows(4))
    return made


def read(shards: ShardSet, columns: list[str]) -> list[dict[str, Any]]:
    found = read_batches(shards, places=range(len(shards)), columns=columns)
    return [row for one in found for row in one.batch.to_pylist()]


def xs(source: str = NAME, **options: Any) -> list[float]:
    found = find(source, tables=TableOptions(**options))
    return [row["x"] for row in read(found, ["x"])]


def snapshots(table: Any) -> list[int]:
    return [one.snapshot_id for one in table.refresh().metadata.snapshots]


def appended(since: int, source: str = NAME, **options: Any) -> list[float]:
    listing = list_shards(source, Request(since={source: since}, may_be_empty=True, **options))
    return [x for one in listing.files for x in pq.read_table(one.path)["x"].to_pylist()]


def test_rows_are_in_the_order_of_commits(table: Any) -> None:
    """Files have random names: their order is that of the commits that added them."""
    table.append(rows(8))
    assert xs() == [*map(float, range(12))]
    assert xs(table.metadata_location.removeprefix("file://")) == xs()
    found = find(NAME)
    assert found.table_versions == {NAME: snapshots(table)[-1], f"{NAME}#schema": 0}
    assert describe_sources(found) == [f"Iceberg table {NAME}: snapshot {snapshots(table)[-1]}"]


def test_a_snapshot_is_chosen_by_id_or_time(table: Any) -> None:
    """A pinned snapshot wins; one that is not there is refused with those that are."""
    first, second = snapshots(table)
    assert xs(version=first) == [0.0, 1.0, 2.0, 3.0]
    ms = table.metadata.snapshots[0].timestamp_ms
    when = datetime.datetime.fromtimestamp(ms / 1000, datetime.UTC).isoformat()
    assert xs(as_of=when) == [0.0, 1.0, 2.0, 3.0]
    found = find(NAME, tables=TableOptions(version=second), versions={NAME: first})
    assert found.rows == 4
    with pytest.raises(UsageError, match=f"no snapshot 7 to read.* are {first}, {second}"):
        xs(version=7)
    with pytest.raises(UsageError, match="has no snapshot as of 2001"):
        xs(as_of="2001-01-01T00:00Z")


def test_a_packed_metadata_file_is_read(table: Any) -> None:
    """Its bytes say that it is packed, and what they unpack to is limited."""
    path = Path(table.metadata_location.removeprefix("file://"))
    packed = path.with_name("v9.gz.metadata.json")
    packed.write_bytes(gzip.compress(path.read_bytes()))
    assert xs(str(packed)) == xs()
    packed.write_bytes(packed.read_bytes()[:-20])
    with pytest.raises(DataError, match="cannot be read"):
        xs(str(packed))


def test_what_names_no_table_is_refused(tables: Any, tmp_path: Path) -> None:
    """A catalog that is not configured, a table that it lacks, a table without rows."""
    tables.create_table("ns.t", SCHEMA)
    with pytest.raises(DataError, match="has no snapshot"):
        find(NAME)
    with pytest.raises(UsageError, match="PYICEBERG_CATALOG__OTHER__URI"):
        find("iceberg://other/ns.t")
    with pytest.raises(InputNotFoundError, match=r"has no table 'ns.u'"):
        find("iceberg://tests/ns.u")
    for text in ("iceberg://tests/t", "iceberg:///ns.t", "iceberg://tests/ns.t/data"):
        with pytest.raises(UsageError, match=r"expected iceberg://catalog/namespace.table"):
            find(text)
    for text in ("{}", "[]", "\0", json.dumps({"format-version": 2})):
        (tmp_path / "a.metadata.json").write_text(text)
        with pytest.raises(DataError, match=r"a.metadata.json, cannot be read"):
            find(str(tmp_path / "a.metadata.json"))


def test_appended_files_alone_are_new(table: Any) -> None:
    """Since a snapshot, those that later snapshots appended; none since the newest."""
    first, second = snapshots(table)
    table.append(rows(8))
    assert appended(first) == [*map(float, range(4, 12))]
    assert appended(second) == [*map(float, range(8, 12))]
    assert appended(snapshots(table)[-1]) == []


def test_compaction_adds_no_rows(table: Any) -> None:
    """A snapshot of operation replace has other files and the same rows: none is new."""
    first, second = snapshots(table)
    source = forged(table, "replace", [file(copied(table, "z.parquet"))], whole=True)
    assert appended(second, source) == []
    assert appended(first, source) == [x["x"] for x in read(find(NAME), ["x"])][4:]
    assert len(xs(source)) == 4


def test_rows_that_were_deleted_cannot_be_unlearned(table: Any) -> None:
    """Snapshots that delete or overwrite are refused by number, or skipped."""
    second = snapshots(table)[-1]
    table.delete("x = 2")
    table.append(rows(8))
    changed = snapshots(table)[2]
    with pytest.raises(ResumeRefusedError, match=rf"{changed} \(overwrite\).*--appends-only"):
        appended(second)
    assert appended(second, appends_only=True) == [8.0, 9.0, 10.0, 11.0]
    notes = list_shards(NAME, Request(since={NAME: second}, appends_only=True)).notes
    assert any("they are skipped" in note for note in notes)
    assert 2.0 not in xs()


def test_an_expired_snapshot_is_refused(table: Any) -> None:
    """What was appended after a snapshot that is not in the metadata is not known."""
    with pytest.raises(ResumeRefusedError, match=r"snapshot 5 .* is not before snapshot"):
        appended(5)
    first, second = snapshots(table)
    with pytest.raises(ResumeRefusedError, match=f"snapshot {second} .* is not before"):
        list_shards(NAME, Request(since={NAME: second}, tables=TableOptions(version=first)))


@pytest.mark.parametrize(
    ("content", "form", "words"),
    [
        (DataFileContent.POSITION_DELETES, FileFormat.PARQUET, "position deletes"),
        (DataFileContent.EQUALITY_DELETES, FileFormat.PARQUET, "equality deletes"),
        (DataFileContent.POSITION_DELETES, FileFormat.PUFFIN, "deletion vectors"),
    ],
)
def test_deletes_are_refused_by_name(
    table: Any, content: DataFileContent, form: FileFormat, words: str
) -> None:
    """A file whose deletes reach rows of the snapshot; they are never ignored."""
    source = forged(table, "delete", [file("/nowhere/d.parquet", content, form)])
    with pytest.raises(UnsupportedError, match=f"deleted rows in 1 files of {words}, which are"):
        find(source)
    with pytest.raises(UnsupportedError, match=words):
        forged_append = forged(table, "append", [file("/d", content, form)], name="g")
        list_shards(forged_append, Request(since={forged_append: snapshots(table)[-1]}))


def test_a_table_that_was_of_version_1(tables: Any) -> None:
    """Rows of version 1 have no sequence number: they are before those of version 2, in the order
    of their commits, and deletes of version 2 reach them."""
    table = tables.create_table("ns.old", SCHEMA, properties={"format-version": "1"})
    for first in (0, 10, 20, 30):
        table.append(rows(first, 2))
    table.delete("x < 10")
    with table.transaction() as change:
        change.upgrade_table_version(2)
    delete = file("/nowhere/d.parquet", DataFileContent.POSITION_DELETES)
    with pytest.raises(UnsupportedError, match="position deletes"):
        find(forged(table.refresh(), "delete", [delete]))
    table.append(rows(40, 2))
    table.append(rows(50, 2))
    order = [10.0, 11.0, 20.0, 21.0, 30.0, 31.0, 40.0, 41.0, 50.0, 51.0]
    assert xs("iceberg://tests/ns.old") == order


def test_a_snapshot_without_files_has_no_rows(tables: Any) -> None:
    """After an append of no rows, and after all rows were deleted."""
    table = tables.create_table("ns.t", SCHEMA)
    table.append(rows(0, 0))
    with pytest.raises(DataError, match=r"no rows: no data file is in .*ns.t in version"):
        find(NAME)
    table.append(rows(0))
    table.delete("x >= 0")
    with pytest.raises(DataError, match="no rows: no data file"):
        find(NAME)


def test_other_formats_are_refused(table: Any) -> None:
    """ORC and Avro files are named."""
    source = forged(table, "append", [file(copied(table, "z.orc"), form=FileFormat.ORC)])
    with pytest.raises(UnsupportedError, match=r"z.orc is ORC, and Parquet is read"):
        find(source)


def test_files_outside_the_table_are_refused(
    table: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Data files, manifests: unless an allow-list has them. Another file system never."""
    outside = tmp_path / "other.parquet"
    pq.write_table(rows(0), outside)
    source = forged(table, "append", [file(str(outside))])
    with pytest.raises(UsageError, match="names files outside of the table"):
        find(source)
    monkeypatch.setenv("STREAMOMD_ALLOWED_URLS", f"{tmp_path}/warehouse")
    with pytest.raises(UsageError, match="names URLs outside"):
        find(source)
    monkeypatch.setenv("STREAMOMD_ALLOWED_URLS", str(tmp_path))
    with pytest.raises(UnsupportedError, match="has no field id"):
        find(source)
    monkeypatch.delenv("STREAMOMD_ALLOWED_URLS")
    for at, path in enumerate(("s3://b/k.parquet", f"{table.location()}/../u/a.parquet")):
        with pytest.raises(DataError, match="names the file"):
            find(forged(table, "append", [file(path)], name=f"h{at}"))
    document = json.loads(Path(source).read_text())
    document["snapshots"][-1]["manifest-list"] = "/etc/hostname"
    Path(source).write_text(json.dumps(document))
    with pytest.raises(UsageError, match="/etc/hostname"):
        find(source)


class Spy(PyArrowFileIO):
    """A FileIO that a table's properties may name."""

    made = 0

    def __init__(self, properties: Any = None) -> None:
        Spy.made += 1
        super().__init__(properties or {})


def test_table_metadata_chooses_no_file_io(table: Any) -> None:
    """Properties of the table name a FileIO, an endpoint and a key: none is used."""
    with table.transaction() as change:
        change.set_properties({
            "py-io-impl": f"{__name__}.Spy", "s3.endpoint": "http://127.0.0.1:1",
            "s3.access-key-id": "k",
        })  # fmt: skip
    Spy.made = 0
    assert len(xs()) == 8
    assert Spy.made == 0


class RestCatalog(BaseHTTPRequestHandler):
    """Answers as the REST catalog of one table, whose answers name a FileIO."""

    location = ""

    def do_GET(self) -> None:
        named = {"py-io-impl": f"{__name__}.Spy"}
        body: dict[str, Any] = {"defaults": named, "overrides": named}
        if "/config" not in self.path:
            metadata = json.loads(Path(self.location.removeprefix("file://")).read_text())
            metadata["properties"] = named
            body = {"metadata-location": self.location, "metadata": metadata, "config": named}
        data = json.dumps(body).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *args: Any) -> None:
        """Nothing is printed."""


def test_a_catalogs_server_chooses_no_file_io(table: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The configuration that a REST catalog sends is that of its server, not of the user."""
    monkeypatch.setattr(RestCatalog, "location", table.refresh().metadata_location)
    Spy.made = 0
    with HTTPServer(("127.0.0.1", 0), RestCatalog) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}"
        monkeypatch.setenv("PYICEBERG_CATALOG__TESTREST__URI", url)
        monkeypatch.setattr("pyiceberg.catalog._ENV_CONFIG", Config())
        assert len(xs("iceberg://testrest/ns.t")) == 8
        server.shutdown()
    assert Spy.made == 0


def test_columns_are_those_of_the_field_ids(tables: Any) -> None:
    """Renamed, dropped, added, and added again under a dropped name; filters see them so."""
    made = tables.create_table(
        "ns.t", pa.schema([("k", pa.int64()), ("a", pa.float64()), ("b", pa.string())])
    )
    made.append(pa.table({"k": [1, 2], "a": [5.0, 6.0], "b": ["u", "v"]}))
    with made.update_schema() as change:
        change.rename_column("a", "z")
        change.delete_column("b")
    with made.update_schema() as change:
        change.add_column("a", LongType())
        change.add_column("b", DoubleType())
    made.append(pa.table({"k": [3], "z": [7.0], "a": [9], "b": [0.5]}))
    found = find(NAME)
    assert all(sorted(shard.schema.names) == ["a", "b", "k", "z"] for shard in found)
    expected = [
        {"k": 1, "z": 5.0, "a": None, "b": None},
        {"k": 2, "z": 6.0, "a": None, "b": None},
        {"k": 3, "z": 7.0, "a": 9, "b": 0.5},
    ]
    assert read(found, ["k", "z", "a", "b"]) == expected
    # Bounds of the file's own column "a" say 5 and 6.
    for where, keys in (("a >= 9", [3]), ("z < 6", [1]), ("b is null", [1, 2]), ("a = 5", [])):
        bounded = with_filter(find(NAME, statistics=("a", "z", "b")), where)
        assert [row["k"] for row in read(bounded, ["k"])] == keys
    projection = found.shards[0].projection
    assert projection is not None
    assert parse_projection(projection.text) == projection


def test_fields_of_structs_that_changed_are_refused(tables: Any) -> None:
    """The column and the file are named."""
    made = tables.create_table("ns.t", pa.schema([("s", pa.struct([("u", pa.int64())]))]))
    made.append(pa.table({"s": [{"u": 1}]}))
    assert read(find(NAME), ["s.u"]) == [{"s.u": 1}]
    with made.update_schema() as change:
        change.rename_column("s.u", "v")
    made.append(pa.table({"s": [{"v": 2}]}))
    with pytest.raises(UnsupportedError, match=r"column 's' of its table has other fields"):
        find(NAME)


def test_a_file_without_field_ids_is_known_by_the_name_mapping(tables: Any, tmp_path: Path) -> None:
    """As files that were added to a table are; pyiceberg writes the mapping."""
    made = tables.create_table("ns.t", SCHEMA)
    path = tmp_path / "warehouse" / "ns" / "t" / "data" / "own.parquet"
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(rows(0), path)
    made.add_files([f"file://{path}"])
    assert xs() == [0.0, 1.0, 2.0, 3.0]


def test_a_deleted_file_is_named(table: Any) -> None:
    """A data file that is gone: the table, the file, and what to do."""
    data_files(table)[0].unlink()
    with pytest.raises(
        DataError, match=rf"Iceberg table {NAME} lists the file .*expiring snapshots"
    ):
        find(NAME)


STEPS = st.lists(
    st.sampled_from(["append", "rename", "add", "drop", "delete", "widen", "move"]),
    min_size=1, max_size=7,
)  # fmt: skip


def evolve(table: Any, steps: list[str], seed: int) -> None:
    """Change a table: rows have the column ``id`` and others that come and go."""
    number = 0
    for names, step in enumerate(["append", *steps, "append"]):
        schema = table.schema()
        others = [one for one in schema.fields if one.name != "id"]
        chosen = others[seed % len(others)].name if others else ""
        with table.update_schema() as change:
            if step == "rename" and others:
                change.rename_column(chosen, f"r{names}")
            elif step == "add":
                kind = (IntegerType(), DoubleType(), StringType())[seed % 3]
                name = ("a", f"n{names}")[seed % 2]
                if name not in schema.column_names:
                    change.add_column(name, kind)
            elif step == "drop" and others:
                change.delete_column(chosen)
            elif step == "move" and others:
                change.move_first(chosen)
            elif step == "widen":
                for one in others:
                    if isinstance(one.field_type, IntegerType):
                        change.update_column(one.name, LongType())
        if step == "append":
            kinds = table.schema().as_arrow()
            values = {
                one.name: [
                    f"t{number}" if "string" in str(one.type) else number + n for n in range(3)
                ]
                for one in kinds
            }
            table.append(pa.table(values, schema=kinds))
            number += 3
        elif step == "delete" and number:
            table.delete(f"id = {(seed + names) % number}")


def check_scan(tables: Any, steps: list[str], seed: int, name: str) -> None:
    table = tables.create_table(
        f"ns.{name}",
        pa.schema([("id", pa.int64()), ("a", pa.int32()), ("b", pa.float64()), ("c", pa.string())]),
    )
    evolve(table, steps, seed)
    for snapshot in table.metadata.snapshots:
        expected = table.scan(snapshot_id=snapshot.snapshot_id).to_arrow()
        found = find(
            f"iceberg://tests/ns.{name}", tables=TableOptions(version=snapshot.snapshot_id)
        )
        for shard in found:
            assert sorted(shard.schema.names) == sorted(expected.column_names)
        ours = read(found, expected.column_names)
        assert sorted(ours, key=lambda row: row["id"]) == sorted(
            expected.to_pylist(), key=lambda row: row["id"]
        )


def test_rows_are_those_of_pyiceberg(tables: Any) -> None:
    """A table with each change of its columns: every snapshot has the rows of its scan."""
    check_scan(tables, ["rename", "append", "drop", "add", "widen", "delete", "move"], 4, "one")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Delete operation did not match")
@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(STEPS, st.integers(0, 1000))
def test_random_tables_have_the_rows_of_pyiceberg(tables: Any, steps: list[str], seed: int) -> None:
    """Random changes of columns and rows: every snapshot has the rows of pyiceberg's scan."""
    check_scan(tables, steps, seed, f"t{len(tables.list_tables('ns'))}")


def test_damaged_manifests_are_errors_with_names(table: Any) -> None:
    """Bytes that are no manifest, or end early: DataError, never another exception."""
    newest = table.metadata.snapshots[-1]
    manifests = [one.manifest_path for one in newest.manifests(table.io)]
    for name in (newest.manifest_list, *manifests):
        path = Path(name.removeprefix("file://"))
        whole = path.read_bytes()
        for data in (b"", *(whole[:-n] for n in (1, 17, 40, 200)), whole[:60], b"PAR1" * 20):
            path.write_bytes(data)
            with pytest.raises(StreamomdError):
                find(NAME)
        path.write_bytes(whole)
    assert len(xs()) == 8


def test_manifests_that_are_missing_or_cyclic_are_errors(table: Any) -> None:
    """A list of manifests in the place of a manifest, which would list itself; one that is gone."""
    newest = table.metadata.snapshots[-1]
    listing = Path(newest.manifest_list.removeprefix("file://"))
    manifest = Path(newest.manifests(table.io)[0].manifest_path.removeprefix("file://"))
    manifest.write_bytes(listing.read_bytes())
    with pytest.raises(DataError, match=re.escape(manifest.name)):
        find(NAME)
    for gone in (manifest, listing):
        gone.unlink()
        with pytest.raises(DataError, match=rf"{re.escape(gone.name)}: it does not exist"):
            find(NAME)


def test_snapshots_in_a_circle_have_no_end(table: Any) -> None:
    """Each is after the other: what was appended is not known."""
    source = forged(table, "append", [file(copied(table, "z.parquet"))])
    document = json.loads(Path(source).read_text())
    two, three = document["snapshots"][-2:]
    two["parent-snapshot-id"] = three["snapshot-id"]
    Path(source).write_text(json.dumps(document))
    with pytest.raises(ResumeRefusedError, match="is not before snapshot"):
        list_shards(source, Request(since={source: snapshots(table)[0]}))


def test_types_that_arrow_lacks_are_errors(table: Any) -> None:
    source = Path(forged(table, "append", [file(copied(table, "z.parquet"))]))
    document = json.loads(source.read_text())
    document["schemas"][0]["fields"][0]["type"] = "fixed[99999999999]"
    source.write_text(json.dumps(document))
    with pytest.raises(DataError, match="the metadata of an Iceberg table"):
        find(str(source))


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{}", '{"renamed": 1, "hidden": [], "nulls": ""}',
     '{"renamed": [["a", 1]], "hidden": [], "nulls": ""}',
     '{"renamed": [], "hidden": [], "nulls": "AAAA"}'],
)  # fmt: skip
def test_other_texts_of_a_ledger_are_corrupt(text: str) -> None:
    """A projection that a ledger saves is checked before it is used."""
    with pytest.raises(CorruptionError, match="a projection of the ledger"):
        parse_projection(text)


def container(codec: str, *blocks: bytes) -> bytes:
    """An Avro file with blocks that are packed already."""

    def number(value: int) -> bytes:
        value, found = value << 1, b""
        while value > 127:
            found, value = found + bytes([value & 127 | 128]), value >> 7
        return found + bytes([value])

    def text(value: bytes) -> bytes:
        return number(len(value)) + value

    sync = b"0123456789abcdef"
    head = b"Obj\x01" + number(1) + text(b"avro.codec") + text(codec.encode()) + number(0) + sync
    return head + b"".join(number(1) + text(one) + sync for one in blocks)


def packed(codec: str, data: bytes) -> bytes:
    if codec == "deflate":
        packer = zlib.compressobj(9, zlib.DEFLATED, -15)
        return packer.compress(data) + packer.flush()
    if codec == "snappy":
        return bytes(pa.compress(data, codec="snappy")) + bytes(4)
    names = {"zstandard": "zstd", "bzip2": "bz2"}
    if codec not in names:
        return data
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, names[codec]) as stream:
        stream.write(data)
    return bytes(sink.getvalue())


@pytest.mark.parametrize("codec", ["null", "deflate", "zstandard", "bzip2", "snappy"])
def test_what_manifests_unpack_to_is_limited(codec: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """In one block or in several."""
    monkeypatch.setattr(iceberg_table, "MOST_UNPACKED", 5000)
    monkeypatch.setattr(iceberg_table, "STEP", 300)
    check_container(container(codec, packed(codec, bytes(5000))))
    check_container(container(codec, *[packed(codec, bytes(1000))] * 5))
    for blocks in ([packed(codec, bytes(5001))], [packed(codec, bytes(1000))] * 6):
        with pytest.raises(ValueError, match="unpacked it has more than 5,000 bytes"):
            check_container(container(codec, *blocks))
    with pytest.raises(ValueError, match="codec is unknown"):
        check_container(container("lz4", b"1"))
