"""Checkpoints in a store whose listings are consistent: what is not asked for is not lost."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from checkpoint_helpers import a_run, begin, holds, load_all, numbers

from streamomd.checkpoint import Store, StoredParts, Writer, list_commits, open_store
from streamomd.checkpoint.documents import bytes_of, save_document
from streamomd.checkpoint.manifest import decode, manifest_name
from streamomd.checkpoint.sealed_json import seal
from streamomd.checkpoint.stores import remote
from streamomd.core.errors import ConcurrentWriterError, CorruptionError

pytest.importorskip("s3fs", reason="s3fs is not installed")
from s3_server import Answer, S3Server

RUN = "bucket/run/"


@pytest.fixture
def server() -> Iterator[S3Server]:
    with S3Server() as running:
        yield running


def opened(server: S3Server) -> Store:
    return open_store("s3://bucket/run", server.options)


def names(server: S3Server) -> set[str]:
    """What the checkpoint holds."""
    return {key.removeprefix(RUN) for key in server.objects if key.startswith(RUN)}


def test_a_late_list_is_detected_by_the_next_commit(server: S3Server) -> None:
    """A writer whose number another had used and deleted: its commit with parts of the one before
    is found out by the next, and the other's model stands."""
    a_run(opened(server), 2, keep=1)
    loaded = load_all(opened(server))[0]
    late = Writer.take_over(opened(server), loaded, keep=1, commits_next=True)
    other = Writer.take_over(opened(server), load_all(opened(server))[0], keep=1)
    for at in range(3, 7):
        other.commit({"rows": 10 * at}, numbers(at))
    last = late.last
    assert manifest_name(last.sequence + 1) not in names(server)
    late.commit({"rows": 20}, StoredParts(last.directory, last.parts))
    with pytest.raises(ConcurrentWriterError):
        late.commit({"rows": 999}, numbers(9))
    holds(opened(server), 6)
    other.commit({"rows": 70}, numbers(7))
    holds(opened(server), 7)
    assert [one["ok"] for one in list_commits(opened(server), deep=True)][-1]


def test_retention_reads_no_manifest(server: S3Server) -> None:
    """What each manifest says of the commits before it is what they are; without it they are
    read."""
    a_run(opened(server), 5, keep=2)
    store = opened(server)
    writer = Writer.take_over(store, load_all(store)[0], keep=2)
    server.count()
    writer.commit({"rows": 60}, numbers(6))
    assert "GET" not in server.count()
    there = names(server)
    commit = load_all(store)[0].commit
    assert len([name for name in there if name.startswith("commits/")]) == 3  # one repeats another
    known = {brief.sequence for brief in commit.earlier}
    assert {int(name[8:20]) for name in there if name.startswith("commits/")} - known == {
        commit.sequence
    }


def test_a_store_without_bulk_deletion(server: S3Server) -> None:
    """Objects are deleted one by one."""

    async def refused(operation: str, key: str) -> Answer | None:
        return (501, {}, b"") if operation == "POST" else None

    server.fault = refused
    a_run(opened(server), 4, keep=1)
    holds(opened(server), 4)
    assert len([name for name in names(server) if name.startswith("commits/")]) == 1


def test_a_checkpoint_of_many_objects(server: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that is too large to list as a whole is listed by folder."""
    monkeypatch.setattr(remote, "MOST_LISTED", 3)
    a_run(opened(server), 3)
    holds(opened(server), 3)


def test_small_documents_are_in_the_manifest(server: S3Server) -> None:
    """They are there as long as a commit names them; no object is written."""
    store, inline = opened(server), dict[str, bytes]()
    names_ = save_document(store, "names", b'{"1":["a"]}', inline)
    writer = Writer.begin(store, {"rows": 0, "names": names_}, numbers(0), inline=inline)
    writer.commit({"rows": 10, "names": names_}, numbers(1))
    commit = load_all(store)[0].commit
    assert bytes_of(store, commit, "names", names_) == b'{"1":["a"]}'
    assert not [name for name in names(server) if "names" in name]
    assert writer.commit({"rows": 20}, numbers(2)).inline == {}


def test_manifests_name_objects_of_a_checkpoint_alone(server: S3Server) -> None:
    """Whatever it says of earlier commits, retention deletes nothing else."""
    begin(opened(server))
    writer = Writer.take_over(opened(server), load_all(opened(server))[0])
    name = RUN + manifest_name(writer.sequence)
    fields = json.loads(server.objects[name].split(b"\n")[0])
    assert fields["earlier"]
    for object_ in ("../other/data", "commits/000000000000.json", "data/x", "FORMAT.json"):
        fields["earlier"][0]["objects"] = [object_]
        with pytest.raises(CorruptionError):
            decode(seal(fields), writer.sequence)
    fields["earlier"][0]["objects"] = []
    fields["inline"] = {"0" * 64: "AAAA"}
    with pytest.raises(CorruptionError):
        decode(seal(fields), writer.sequence)
