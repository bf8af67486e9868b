"""Logs of Delta tables that are hostile, damaged, or use features of other readers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from delta_tables import PROTOCOL, add, commit, metadata, remove, shard, table
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from running import run

from streamomd.config.allow_list import VARIABLE
from streamomd.core.errors import DataError, StreamomdError, UnsupportedError, UsageError
from streamomd.sources.contract import Request
from streamomd.sources.delta import actions, log
from streamomd.sources.find import find, list_shards


def refusal(root: Path, kind: type[StreamomdError] = DataError) -> str:
    with pytest.raises(kind) as caught:
        find(f"delta+{root}")
    return str(caught.value)


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Data files that were opened."""
    found: list[str] = []
    monkeypatch.setattr(
        "streamomd.shards.read_footers.read_shard", lambda fs, path, url: found.append(path)
    )
    return found


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("/etc/passwd", "names files outside of the table (a shallow clone?): /etc/passwd."),
        ("file:///etc/passwd", "outside of the table"),
        ("file:/etc/passwd", "outside of the table"),
        ("../secret.parquet", "is not a path of a file"),
        ("a/../../secret.parquet", "is not a path of a file"),
        ("%2e%2e/secret.parquet", "is not a path of a file"),
        ("..%2Fsecret.parquet", "is not a path of a file"),
        ("%2Fetc/passwd", "outside of the table"),
        ("file:///table/../etc/passwd", "is not a path of a file"),
        ("a//b.parquet", "is not a path of a file"),
        ("./a.parquet", "is not a path of a file"),
        ("a%00.parquet", "is not a path of a file"),
        ("a%ff.parquet", "is not UTF-8"),
        ("s3://bucket/a.parquet", "is in another file system than the table"),
        ("https://host/a.parquet", "is in another file system"),
        ("gs:bucket/a.parquet", "is in another file system"),
    ],
)
def test_no_path_leaves_the_table(path: str, words: str, tmp_path: Path, opened: list[str]) -> None:
    """Absolute paths, URLs and ``..`` are refused before a file is opened, in any notation."""
    root = table(tmp_path / "table", add(shard(tmp_path / "table", "a.parquet")), add(path))
    assert words in refusal(root, StreamomdError)
    assert not opened


@pytest.mark.parametrize("how", ["{}", "file://{}", "file:{}"])
def test_an_absolute_path_inside_the_table_is_read(how: str, tmp_path: Path) -> None:
    """A path that a writer made absolute is in the table still."""
    name = shard(tmp_path / "table", "a b.parquet")
    path = str(tmp_path / "table" / name).replace(" ", "%20")
    found = find(str(table(tmp_path / "table", add(how.format(path)))))
    assert [one.name for one in found] == [name]


def test_a_shallow_clone_is_read_where_it_is_allowed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The allow-list has to have the table and the files outside of it, links resolved."""
    shard(tmp_path / "origin", "a.parquet")
    root = table(tmp_path / "clone", add(f"file://{tmp_path}/origin/a.parquet"))
    assert VARIABLE in refusal(root, UsageError)
    for allowed in (f"{tmp_path}/clone", f"{tmp_path}/origin", "s3://bucket"):
        monkeypatch.setenv(VARIABLE, allowed)
        assert "names URLs outside" in refusal(root, UsageError)
    monkeypatch.setenv(VARIABLE, f"{tmp_path}/clone,{tmp_path}/origin")
    assert find(str(root)).rows == 4


def test_the_allow_list_applies_to_every_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, opened: list[str]
) -> None:
    """A file of the table that is a link to elsewhere; a log that is one: nothing is opened."""
    shard(tmp_path / "other", "b.parquet")
    root = table(tmp_path / "table", add(shard(tmp_path / "table", "a.parquet")), add("b.parquet"))
    (root / "b.parquet").symlink_to(tmp_path / "other" / "b.parquet")
    monkeypatch.setenv(VARIABLE, str(root))
    assert f"b.parquet, which is {tmp_path}/other/b.parquet" in refusal(root, UsageError)
    clone = tmp_path / "clone"
    clone.mkdir()
    (clone / "_delta_log").symlink_to(root / "_delta_log")
    monkeypatch.setenv(VARIABLE, str(clone))
    assert "_delta_log" in refusal(clone, UsageError)
    assert not opened


def test_names_are_decoded_once(tmp_path: Path) -> None:
    """``%2520`` is the file ``%20``; ``%20`` a blank; ``=``, ``:`` and ``%`` stay as they are."""
    names = {"a%20b.parquet": "a b.parquet", "a%2520b.parquet": "a%20b.parquet",
             "k=10:00/x.parquet": "k=10:00/x.parquet", "%C3%A9.parquet": "é.parquet"}  # fmt: skip
    for name in names.values():
        shard(tmp_path / "table", name)
    root = table(tmp_path / "table", *map(add, names))
    assert [one.name for one in find(str(root))] == list(names.values())


BAD_LINES: dict[str, Any] = {
    "no JSON": "{",
    "no object": "[1]",
    "a NUL": "\0",
    "deep": "[" * 100_000,
    "a number of many digits": '{"add": {"size": ' + "9" * 5000 + "}}",
    "no path": {"add": {"size": 1, "modificationTime": 1, "dataChange": True}},
    "empty path": add(""),
    "path is a number": {"add": {**add("a")["add"], "path": 3}},
    "size is NaN": '{"add": {"path": "a", "size": NaN, "modificationTime": 1, "dataChange": true}}',
    "size is negative": add("a", size=-1),
    "size is large": add("a", size=1 << 63),
    "dataChange is a text": add("a", dataChange="yes"),
    "partition value is a number": add("a", partitions={"k": 1}),
    "add is a list": {"add": []},
    "deletion vector is a text": add("a", deletionVector="x"),
    "remove without path": {"remove": {"dataChange": True}},
    "reader version is a text": {"protocol": {"minReaderVersion": "1"}},
    "features are numbers": {"protocol": {"minReaderVersion": 3, "readerFeatures": [1]}},
    "schema is no JSON": {"metaData": {**metadata()["metaData"], "schemaString": "{"}},
    "schema has no fields": {"metaData": {**metadata()["metaData"], "schemaString": "{}"}},
    "partition columns are numbers": {
        "metaData": {**metadata()["metaData"], "partitionColumns": [1]}
    },
}


@pytest.mark.parametrize("line", BAD_LINES)
def test_a_damaged_line_is_named(line: str, tmp_path: Path) -> None:
    """The file of the log and its line; exit 2."""
    root = table(tmp_path / "table", add(shard(tmp_path / "table", "a.parquet")))
    path = commit(root, 1, {"commitInfo": {}}, BAD_LINES[line])
    message = refusal(root)
    assert f"{path}, line 2: " in message
    assert len(message) < 1000


def test_a_long_line_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """So is a file of the log that is larger than a commit may be."""
    root = table(tmp_path / "table", add(shard(tmp_path / "table", "a.parquet")))
    monkeypatch.setattr(actions, "LINE_BYTES", 100)
    assert "more than 100" in refusal(root)
    monkeypatch.setattr(log, "COMMIT_BYTES", 10)
    assert "more than 10" in refusal(root)


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.integers(0, 10**6), st.binary(min_size=1, max_size=3), st.booleans())
@example(999_999, b"\x80\x80", True)  # a list in the place of an offset, in the footer
def test_a_changed_log_is_an_error_or_a_table(
    tmp_path_factory: pytest.TempPathFactory, place: int, piece: bytes, parquet: bool
) -> None:
    """Bytes changed anywhere in a commit or a checkpoint: an error, or files of the table."""
    root = tmp_path_factory.mktemp("fuzz") / "table"
    table(root, add(shard(root, "a.parquet")), add(shard(root, "b.parquet")))
    path = root / "_delta_log" / f"{0:020d}.json"
    if parquet:
        path = checkpoint(root, f"{0:020d}.checkpoint.parquet")
    data = bytearray(path.read_bytes())
    place %= len(data)
    data[place : place + len(piece)] = piece
    path.write_bytes(data)
    try:
        found = list_shards(f"delta+{root}")
    except StreamomdError:
        return
    assert all(file.path.startswith(f"{root}/") for file in found.files)


def checkpoint(root: Path, name: str) -> Path:
    """A checkpoint of commit 0."""
    lines = (root / "_delta_log" / f"{0:020d}.json").read_text().splitlines()
    found = [json.loads(line) for line in lines]
    pairs = pa.map_(pa.string(), pa.string())
    types = {
        "add": pa.struct([("path", pa.string()), ("partitionValues", pairs), ("size", pa.int64()),
                          ("modificationTime", pa.int64()), ("dataChange", pa.bool_())]),
        "protocol": pa.struct([("minReaderVersion", pa.int32())]),
        "metaData": pa.struct([("id", pa.string()), ("schemaString", pa.string()),
                               ("partitionColumns", pa.list_(pa.string())),
                               ("configuration", pairs)]),
    }  # fmt: skip
    data = {key: pa.array([one.get(key) for one in found], kind) for key, kind in types.items()}
    path = root / "_delta_log" / name
    path.parent.mkdir(exist_ok=True)
    pq.write_table(pa.table(data), str(path))
    return path


@pytest.mark.parametrize("form", ["parquet", "json"])
def test_a_v2_checkpoint_is_read_with_its_sidecars(form: str, tmp_path: Path) -> None:
    """Files are in sidecars of the log, whose names are no paths."""
    root = table(tmp_path / "table", add(shard(tmp_path / "table", "a.parquet")))
    names = f"{1:020d}.checkpoint.3a0d65cd-4056-49b8-937b-95f9e3ee90e5.{form}"
    sidecars = root / "_delta_log" / "_sidecars"
    sidecars.mkdir()
    whole = checkpoint(root, "whole.parquet")
    pq.write_table(pq.read_table(str(whole), columns=["add"]), str(sidecars / "s.parquet"))
    whole.unlink()

    def write(sidecar: str) -> None:
        given = {"sidecar": {"path": sidecar, "sizeInBytes": 9, "modificationTime": 1}}
        protocol = {"protocol": {"minReaderVersion": 3, "readerFeatures": ["v2Checkpoint"]}}
        lines = [protocol, metadata(), given]
        path = root / "_delta_log" / names
        if form == "json":
            path.write_text("\n".join(map(json.dumps, lines)))
        else:
            keys = ("protocol", "metaData", "sidecar")
            kinds = {"metaData": {**metadata()["metaData"], "configuration": None}}
            del kinds["metaData"]["format"]
            data = {
                key: [kinds.get(key, one[key]) if key in one else None for one in lines]
                for key in keys
            }
            pq.write_table(pa.table(data), str(path))

    write("s.parquet")
    (root / "_delta_log" / f"{0:020d}.json").unlink()
    commit(root, 2, add(shard(root, "b.parquet")))
    assert [one.name for one in find(str(root))] == ["a.parquet", "b.parquet"]
    for name in ("../s.parquet", "/etc/passwd", "s3://bucket/s.parquet", "..parquet"):
        write(name)
        assert "which is not in its log" in refusal(root)


VECTOR = {"storageType": "u", "pathOrInlineDv": "ab^-aqEH.-t@S}K{vb[*k^", "offset": 4,
          "sizeInBytes": 40, "cardinality": 6}  # fmt: skip


def test_deletion_vectors_are_refused(tmp_path: Path) -> None:
    """A file with one holds deleted rows; a table that may have some and has none is read."""
    protocol = {"protocol": {"minReaderVersion": 3, "readerFeatures": ["deletionVectors"]}}
    root, name = tmp_path / "table", shard(tmp_path / "table", "a.parquet")
    commit(root, 0, protocol, metadata(), add(name))
    assert find(str(root)).rows == 4
    commit(
        root,
        1,
        remove(name),
        add(name, deletionVector=VECTOR),
        {"commitInfo": {"operation": "DELETE"}},
    )
    message = refusal(root, UnsupportedError)
    assert "table feature deletionVectors: 1 of its files hold deleted rows" in message
    assert "REORG TABLE" in message
    commit(root, 2, remove(name, deletionVector=VECTOR), add(shard(root, "b.parquet")))
    assert [one.name for one in find(str(root))] == ["b.parquet"]
    with pytest.raises(StreamomdError, match="version 1 \\(DELETE\\), 2 \\(unknown operation\\)"):
        list_shards(str(root), Request(since={str(root): 0}))
    commit(root, 3, add(shard(root, "c.parquet"), deletionVector=VECTOR))
    with pytest.raises(UnsupportedError, match="deletionVectors"):
        list_shards(str(root), Request(since={str(root): 2}))


def test_column_mapping_is_refused(tmp_path: Path) -> None:
    """Names of columns in its files are others; a table where the mode is none is read."""
    name = shard(tmp_path / "a", "a.parquet")
    root = table(tmp_path / "a", add(name), delta__columnMapping__mode="name")
    message = refusal(root, UnsupportedError)
    assert "table feature columnMapping (mode name)" in message
    assert message.count("columnMapping") > 1
    shard(tmp_path / "b", name)
    assert find(str(table(tmp_path / "b", add(name), delta__columnMapping__mode="none"))).rows == 4


def test_unknown_features_are_refused_by_name(tmp_path: Path) -> None:
    """All unknown reader features, and reader versions after the third."""
    root, name = tmp_path / "table", shard(tmp_path / "table", "a.parquet")
    features = ["v2Checkpoint", "variantType", "typeWidening", "catalogManaged"]
    commit(
        root,
        0,
        {"protocol": {"minReaderVersion": 3, "readerFeatures": features}},
        metadata(),
        add(name),
    )
    assert "not supported: catalogManaged, typeWidening, variantType;" in refusal(
        root, UnsupportedError
    )
    commit(root, 0, {"protocol": {"minReaderVersion": 4}}, metadata(), add(name))
    assert "needs reader version 4" in refusal(root, UnsupportedError)


def test_a_log_without_its_first_actions_is_damaged(tmp_path: Path) -> None:
    """Neither protocol nor metaData; partition columns without a value."""
    root, name = tmp_path / "table", shard(tmp_path / "table", "a.parquet")
    commit(root, 0, add(name))
    assert "no protocol or no metaData" in refusal(root)
    commit(root, 0, PROTOCOL, metadata(["k"]), add(name))
    assert "no value of partition column 'k'" in refusal(root)
    commit(root, 0, PROTOCOL, metadata(["k"]), add(name, partitions={"k": ""}))
    assert list_shards(str(root)).files[0].partitions == (("k", None),)


def test_other_names_in_a_log_are_ignored(tmp_path: Path) -> None:
    """Checksums, hints, compacted commits, temporary files and versions that are no numbers."""
    root = table(tmp_path / "table", add(shard(tmp_path / "table", "a.parquet")))
    for name in ("_last_checkpoint", f"{0:020d}.crc", f".{0:020d}.json.crc", "NaN.json", "1.json",
                 f"{0:020d}.{1:020d}.compacted.json", f"{9:020d}.json.tmp",
                 "-0000000000000000001.json",
                 "0000000000000000000\u0663.json", f"{3:020d}.checkpoint.parquet.tmp"):  # fmt: skip
        (root / "_delta_log" / name).write_text("{}")
    assert find(str(root)).table_versions == {str(root): 0}


def test_a_huge_version_takes_no_time(tmp_path: Path) -> None:
    """The name of a commit may have any 20 digits: what is missing before it is an error."""
    root = table(tmp_path / "table", add(shard(tmp_path / "table", "a.parquet")))
    commit(root, 10**20 - 1, add(shard(root, "b.parquet")))
    assert "commit 1 of Delta table" in refusal(root)
    with pytest.raises(StreamomdError, match="commit 1 of Delta table"):
        list_shards(str(root), Request(since={str(root): 0}))


def test_files_added_again_keep_their_place(tmp_path: Path) -> None:
    """A commit that adds statistics of known files teaches nothing, and moves nothing."""
    root = table(tmp_path / "table", add(shard(tmp_path / "table", "b.parquet")))
    commit(root, 1, add(shard(root, "a.parquet")))
    commit(root, 2, add("b.parquet", changes=False))
    assert [one.name for one in find(str(root))] == ["b.parquet", "a.parquet"]
    assert list_shards(str(root), Request(since={str(root): 1})).files == []


def test_in_commit_timestamps_win_over_times_of_files(tmp_path: Path) -> None:
    """as_of compares with the time that a commit records of itself."""
    root = table(tmp_path / "table", add(shard(tmp_path / "table", "a.parquet")))
    for version, second in ((0, 10), (1, 20)):
        path = root / "_delta_log" / f"{version:020d}.json"
        text = path.read_text() if version == 0 else json.dumps(add(shard(root, "b.parquet")))
        info = {"commitInfo": {"inCommitTimestamp": second * 1000, "operation": "WRITE"}}
        path.write_text(f"{json.dumps(info)}\n{text}")
    done = run("plan", root, "--label", "y", "--as-of", "1970-01-01T00:00:19Z", "--json")
    assert done.result["rows"] == 4
    done = run("plan", root, "--label", "y", "--as-of", "1970-01-01T00:00:20Z", "--json")
    assert done.result["rows"] == 8


def test_a_table_in_a_store_is_read(tmp_path: Path) -> None:
    """Through the user's file system: paths, URLs, and a clone in another bucket refused."""
    fs = fsspec.filesystem("memory")
    fs.store.clear()
    root = table(tmp_path / "table", add(shard(tmp_path / "table", "k=a%20b/a.parquet", 0)))
    commit(root, 0, PROTOCOL, metadata(), add("k=a%2520b/a.parquet"))
    fs.put(str(root), "/bucket/table", recursive=True)
    found = find("delta+memory://bucket/table/")
    assert [one.url for one in found] == ["memory://bucket/table/k=a%20b/a.parquet"]
    assert found.table_versions == {"memory://bucket/table": 0}
    assert find("memory://bucket/table").rows == 4
    for path, words in {
        "memory://other/a.parquet": "outside of the table",
        "s3://other/a.parquet": "another file system",
        "/etc/passwd": "outside of the table",
    }.items():
        commit(root, 1, add(path))
        fs.put(str(root / "_delta_log"), "/bucket/table/_delta_log", recursive=True)
        with fs.open(f"/bucket/table/_delta_log/{1:020d}.json", "wb") as file:
            file.write(json.dumps(add(path)).encode())
        with pytest.raises(StreamomdError, match=words):
            find("memory://bucket/table")


def test_a_damaged_manifest_has_no_table_versions(tmp_path: Path) -> None:
    """Versions of tables in a manifest are checked before they are used."""
    from streamomd.core.errors import CorruptionError
    from streamomd.training.load_model import _table_versions

    assert _table_versions({"/t": 3}) == {"/t": 3}
    for bad in ({"/t": -1}, {"/t": "3"}, {"/t": True}, {"/t": 1.5}):
        with pytest.raises(CorruptionError):
            _table_versions(bad)


def records(count: int | None) -> dict[str, str]:
    return {} if count is None else {"stats": json.dumps({"numRecords": count})}


@pytest.mark.parametrize(
    ("before", "after", "partitions", "is_read"),
    [
        (4, 4, [{}, {}], True), (4, 4, [None, None], True), (4, 5, [{}, {}], False),
        (None, 4, [{}, {}], False), (4, None, [{}, {}], False),
    ],
)  # fmt: skip
def test_a_compacted_file_is_read_if_the_log_proves_its_rows(
    before: int | None, after: int | None, partitions: list[Any], is_read: bool, tmp_path: Path
) -> None:
    """By numbers of rows; of a removed file whose partition the log lacks, by the whole commit."""
    root = table(tmp_path / "t", add(shard(tmp_path / "t", "a.parquet")))
    commit(root, 1, add("gone.parquet", **records(before)))
    more = {} if partitions[0] is None else {"partitionValues": partitions[0]}
    compacted = add(shard(root, "c.parquet"), changes=False, **records(after))
    again = add("a.parquet", changes=False, **records(4))  # for its statistics
    commit(root, 2, remove("gone.parquet", changes=False, **more), compacted)
    found = list_shards(f"delta+{root}", Request(since={str(root): 0}))
    if is_read:
        assert ([one.name for one in found.files], found.lost) == (["c.parquet"], ())
        assert "1 file appended after version 0 no longer exist" in found.notes[0]
    else:
        assert [one.name for one in found.files] == ["gone.parquet"]
        assert "Commit 2 wrote their rows into files with other rows" in found.lost[0]
    commit(root, 2, remove("gone.parquet", changes=False, **more), compacted, again)
    assert list_shards(f"delta+{root}", Request(since={str(root): 0})).lost


def test_rows_that_a_skipped_commit_changed_are_lost(tmp_path: Path) -> None:
    """``--appends-only`` reads the file as it was appended while it exists."""
    root = table(tmp_path / "t", add(shard(tmp_path / "t", "a.parquet")))
    commit(root, 1, add(shard(root, "b.parquet"), **records(4)))
    commit(root, 2, remove("b.parquet"), add(shard(root, "c.parquet"), **records(3)))
    given: Any = {"since": {str(root): 0}, "appends_only": True}
    assert [one.name for one in list_shards(f"delta+{root}", Request(**given)).files] == [
        "b.parquet"
    ]
    (root / "b.parquet").unlink()
    (lost,) = list_shards(f"delta+{root}", Request(**given)).lost
    assert "or changed them" in lost
