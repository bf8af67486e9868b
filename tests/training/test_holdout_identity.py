"""Which rows are held out depends on a shard's name, not on its position among the shards."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from running import Impatient, rows, write
from sweeping import plain
from test_holdout import COUNT, EVERY, is_held, number

import streamomd
from streamomd.checkpoint import open_store, read_commit, read_ledger
from streamomd.checkpoint.commit_reader import sequences
from streamomd.core.errors import NoCommitError, StoppedError
from streamomd.sources.find import find
from streamomd.training.holdout import with_places
from streamomd.training.open_checkpoint import begin_checkpoint

NAMES = ("day=1/a.parquet", "day=1/b.parquet", "day=2/a.parquet")
FLAGS: dict[str, Any] = {"label": "y", "weight": "w", "numeric": ["n", "k"], "hashed": ["h"]}


@pytest.fixture(autouse=True)
def uncompiled() -> Iterator[None]:
    """Plain Python: the same bits, without a wait for the compiler."""
    with plain():
        yield


def learn(shards: Any, every: int = EVERY, **more: Any) -> streamomd.Model:
    sets = {"data.holdout": every, "data.seed": 3, "checkpoint.every_rows": 90}
    given = {"checkpoint": "none", "quiet": True, "bits": 8, **FLAGS, **more}
    return streamomd.train(shards, sets=sets, **given)


def make(folder: Path, numbers: dict[str, int]) -> Path:
    """The shards in ``all``; in ``learned`` without the rows that these numbers hold out."""
    for first, (name, drawn_by) in enumerate(numbers.items()):
        table = rows(COUNT, first=first)
        learned = [not is_held(EVERY, 3, drawn_by, row) for row in range(COUNT)]
        write(folder / "all" / name, table, row_group_size=30)
        write(folder / "learned" / name, table.filter(pa.array(learned)))
    return folder


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return make(tmp_path, {name: number(name) for name in NAMES})


def test_numbers_of_names() -> None:
    """The first eight bytes of the SHA-256 of the name."""
    digest = hashlib.sha256(b"day=1/a.parquet").digest()
    assert number("day=1/a.parquet") == int.from_bytes(digest[:8], "big")


def test_all_ways_to_name_the_shards_agree(data: Path) -> None:
    """A directory, globs and a list; and a copy of the directory elsewhere."""
    expected = learn(str(data / "learned"), 0).state_sha256
    folder = data / "all"
    shutil.copytree(folder, data / "elsewhere" / "deep")
    for shards in (
        str(folder),
        str(folder / "day=*" / "*.parquet"),
        str(folder / "**" / "*.parquet"),
        [str(folder / "day=1"), str(folder / "day=2" / "a.parquet")],
        [str(folder / name) for name in NAMES],
        str(data / "elsewhere" / "deep"),
    ):
        assert learn(shards).state_sha256 == expected, shards


def test_a_file_that_is_inserted_changes_no_other(data: Path) -> None:
    """The rows held out of the first three are the same with another before them."""
    write(data / "all" / "day=0" / "z.parquet", rows(COUNT, first=9))
    drawn = [not is_held(EVERY, 3, number("day=0/z.parquet"), row) for row in range(COUNT)]
    write(data / "learned" / "day=0" / "z.parquet", rows(COUNT, first=9).filter(pa.array(drawn)))
    ours, others = learn(str(data / "all")), learn(str(data / "learned"), 0)
    assert ours.state_sha256 == others.state_sha256


def interrupt(shards: Any, url: str, **more: Any) -> None:
    with pytest.MonkeyPatch.context() as patch, pytest.raises(StoppedError):
        patch.setattr("streamomd.runs.reporting.progress", lambda *_: Impatient(200))
        learn(shards, checkpoint=url, quiet=False, epochs=2, **more)


def newest(url: str) -> Any:
    store = open_store(url)
    commit = read_commit(store, sequences(store)[-1])
    return commit, read_ledger(store, commit)


def test_the_checkpoint_records_it(data: Path) -> None:
    """The manifest says that it is by name, which earlier versions cannot read; the ledger has the
    names, by which a resumed run draws."""
    url = str(data / "run")
    interrupt(str(data / "all"), url)
    commit, ledger = newest(url)
    assert commit.document["holdout_by"] == "name"
    assert b'"required_features":["holdout_by","segments"' in open_store(url).read(
        f"commits/{commit.sequence:012d}.json"
    )
    assert [facts["name"] for facts in ledger.shards] == list(NAMES)
    resumed = streamomd.resume(url, quiet=True)
    assert resumed.state_sha256 == learn(str(data / "learned"), 0, epochs=2).state_sha256
    assert newest(url)[0].document["holdout_by"] == "name"


def test_a_run_without_hold_out_records_nothing(data: Path) -> None:
    """Its manifests and segments are those of earlier versions."""
    learn(str(data / "all"), 0, checkpoint=str(data / "run"))
    commit, ledger = newest(str(data / "run"))
    assert "holdout_by" not in commit.document
    assert not any("name" in facts for facts in ledger.shards)


def test_a_run_started_earlier_keeps_positions(tmp_path: Path) -> None:
    """Its manifest does not say how rows are held out: by the position of their shard, as it was;
    shards that are accepted after the last continue the positions."""
    make(tmp_path, {name: position for position, name in enumerate(NAMES)})
    last = tmp_path / "all" / NAMES[-1]
    last.rename(tmp_path / "later.parquet")
    url = str(tmp_path / "run")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("streamomd.runs.session.begin_checkpoint", begin_by_position)
        interrupt(str(tmp_path / "all"), url)
    assert "holdout_by" not in newest(url)[0].document
    (tmp_path / "later.parquet").rename(last)
    resumed = streamomd.resume(url, quiet=True, accept_new_shards=True)
    expected = learn(str(tmp_path / "learned"), 0, epochs=2)
    assert resumed.state_sha256 == expected.state_sha256
    commit, ledger = newest(url)
    assert "holdout_by" not in commit.document
    assert not any("name" in facts for facts in ledger.shards)


def begin_by_position(model: streamomd.Model, *given: Any, **more: Any) -> Any:
    """Commit 0 as earlier versions made it."""
    model.holdout_by = "position"
    return begin_checkpoint(model, *given, **more)


def test_numbers_follow_the_ledger(data: Path) -> None:
    """A moved shard has the name it was learned by; positions are those of all learned shards."""
    shards = find(str(data / "all"))
    first, *_ = shards
    ledger = [
        {"url": "gone", "name": "z"},
        {"url": "bad", "skipped": "damaged"},
        {"url": first.url, "name": "old name"},
    ]
    placed = with_places(shards, "name", ledger)
    assert [one.place for one in placed] == [number("old name"), *map(number, NAMES[1:])]
    only = find(first.path)
    assert [one.place for one in with_places(only, "position", ledger)] == [1]
    assert [one.place for one in with_places(shards, "position")] == [0, 1, 2]


def test_an_unknown_way_is_corrupt(data: Path) -> None:
    """A manifest that names another way to draw is no usable commit."""
    url = str(data / "run")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("streamomd.training.model_document.is_named", lambda _: False)
        original = streamomd.training.model_document.document_of

        def forged(model: Any, **more: Any) -> dict[str, Any]:
            return {**original(model, **more), "holdout_by": "dice"}

        patch.setattr("streamomd.training.open_checkpoint.document_of", forged)
        patch.setattr("streamomd.training.checkpoint_manager.document_of", forged)
        learn(str(data / "all"), checkpoint=url)
    with pytest.raises(NoCommitError, match="its hold-out is by 'dice'"):
        streamomd.load(url)
