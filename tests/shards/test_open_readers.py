"""Ranges of a row group that follow each other are decoded once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from streamomd.core.errors import DataError
from streamomd.shards.open_readers import OpenReaders, open_group
from streamomd.shards.open_shard import OpenShard
from streamomd.shards.order import Group, jobs_of
from streamomd.shards.shard import Digests
from streamomd.sources.find import find

ROWS, GROUP_ROWS = 900, 300


@pytest.fixture(params=["parquet", "arrow"])
def groups(tmp_path: Path, request: Any) -> list[Group]:
    """The row groups of a file."""
    table = pa.table({"x": np.arange(ROWS), "y": np.arange(ROWS) % 2})
    if request.param == "parquet":
        pq.write_table(table, tmp_path / "rows.parquet", row_group_size=GROUP_ROWS)
    else:
        with pa.ipc.new_file(tmp_path / "rows.arrow", table.schema) as file:
            file.write_table(table, max_chunksize=GROUP_ROWS)
    return [job.group for job in jobs_of(find(str(tmp_path)), [0])]


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The row groups that are decoded, in order."""
    found: list[int] = []
    read = OpenShard.read

    def counted(self: OpenShard, group: int) -> Any:
        found.append(group)
        return read(self, group)

    monkeypatch.setattr(OpenShard, "read", counted)
    return found


def values(group: Group, low: int, high: int, readers: OpenReaders | None, digests: Digests) -> Any:
    """Column x of some rows."""
    more: Any = {"options": {}, "columns": ["x"], "unit_bytes": 512, "digests": digests}
    with open_group(group, low, high, readers=readers, **more) as (reader, job):
        return np.concatenate([rows.batch["x"] for rows in reader.read(job)])


RANGES = [(0, 7, 70), (0, 70, 71), (0, 200, 300), (1, 301, 340), (1, 320, 600), (2, 600, 900)]


def test_ranges_that_follow_each_other_are_decoded_once(
    groups: list[Group], opened: list[int]
) -> None:
    """Rows and digests are those of separate readers; only an earlier row decodes a group again."""
    readers = OpenReaders()
    for number, low, high in RANGES:
        digests, alone = Digests(), Digests()
        found = values(groups[number], low, high, readers, digests)
        assert found.tolist() == [*range(low, high)]
        again = len(opened)
        assert values(groups[number], low, high, None, alone).tolist() == found.tolist()
        del opened[again:]
        assert digests.found() == alone.found()
        assert len(digests.found()) == 1
    assert opened == [0, 1, 1, 2]


def test_a_reader_that_failed_is_not_used_again(groups: list[Group], opened: list[int]) -> None:
    """After an error, and after a consumer that stops early, the group is read from its start."""
    readers = OpenReaders()
    more: Any = {"options": {}, "columns": ["x"], "unit_bytes": 512, "readers": readers}
    with pytest.raises(DataError), open_group(groups[0], 0, 100, **more) as (reader, job):
        next(reader.read(job))
        raise DataError("made up")
    assert values(groups[0], 100, 120, readers, Digests()).tolist() == [*range(100, 120)]
    assert opened == [0, 0]


def test_files_are_closed_with_the_readers(
    groups: list[Group], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last reference closes the shard, of which rows are left."""
    closed = []
    close = OpenShard.close
    monkeypatch.setattr(OpenShard, "close", lambda self: (closed.append(1), close(self)))
    readers = OpenReaders()
    values(groups[0], 0, 10, readers, Digests())
    assert not closed
    del readers
    assert closed == [1]
