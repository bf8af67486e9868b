"""Shards that a ledger records: no footer is read of those that did not change."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from found_footers import note_footers
from shard_rows import every_format, read_ids, small_set

from streamomd.checkpoint.segments import (
    GROUPS,
    LATER,
    MOST_RUNS,
    TYPES,
    Facts,
    Segment,
    decode,
    encode,
    groups_of,
    run_lengths,
    shorten_facts,
)
from streamomd.core.errors import ChangedDataError
from streamomd.shards.shard import ShardSet
from streamomd.sources.find import find

Known = dict[str, Facts]


def saved(shards: ShardSet) -> Known:
    """What a ledger has of these shards after it was written and read."""
    facts = tuple(shorten_facts(one) for one in shards.fingerprint())
    return {str(one["url"]): one for one in decode(encode(Segment(0, facts))).shards}


@pytest.fixture
def footers(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    return note_footers(monkeypatch)


@every_format
def test_no_footer_is_read(suffix: str, write: Any, tmp_path: Path, footers: list[str]) -> None:
    """A shard from a ledger is the one that was found, reads the same rows, and has the same facts
    again: a run that is resumed writes no fact of it once more."""
    shards = small_set(tmp_path, suffix, write)
    known = saved(shards)
    footers.clear()
    again = find(str(tmp_path), known=known)
    assert footers == []
    for was, now in zip(shards, again, strict=True):
        half = was.footer_sha256[:32]
        assert now == replace(was, footer_sha256=half, checksums=None)
        assert now.is_recorded
        assert not was.is_recorded
    assert [shorten_facts(one) for one in again.fingerprint()] == [*known.values()]
    assert read_ids(again) == read_ids(shards) == list(range(13))
    assert again.versions == shards.versions


SCHEMA = {
    "numbers": pa.schema([("a", pa.int8()), pa.field("b", pa.float64(), nullable=False)]),
    "texts": pa.schema([("a", pa.string()), ("b", pa.large_string()), ("c", pa.binary())]),
    "times": pa.schema([("a", pa.timestamp("us", "Europe/Paris")), ("b", pa.date32())]),
    "decimals": pa.schema([("a", pa.decimal128(12, 3)), ("b", pa.duration("ms"))]),
    "lists": pa.schema([("a", pa.list_(pa.field("element", pa.int32(), nullable=False)))]),
    "items": pa.schema([("a", pa.list_(pa.int32())), ("b", pa.list_(pa.float32(), 3))]),
    "structs": pa.schema([("a", pa.struct([("x: int64, y", pa.string()), ("z", pa.int8())]))]),
    "dictionaries": pa.schema([("a", pa.dictionary(pa.int32(), pa.string()))]),
    "two of one name": pa.schema([("a", pa.int32()), ("a", pa.string())]),
    "no column": pa.schema([]),
    "names": pa.schema([("", pa.int8()), ("ü\n\0", pa.int8()), ("a.b", pa.null())]),
    "metadata": pa.schema(
        [pa.field("a", pa.int32(), metadata={"k": "v"})], {"streamomd.size": "9", "x": "y"}
    ),
}


@pytest.mark.parametrize("kind", SCHEMA)
@pytest.mark.parametrize("form", ["parquet", "arrow"])
def test_types_are_those_of_the_file(
    kind: str, form: str, tmp_path: Path, footers: list[str]
) -> None:
    """A schema is recorded with all that a reader needs of it."""
    schema, path = SCHEMA[kind], tmp_path / f"a.{form}"
    if form == "parquet":
        with pq.ParquetWriter(str(path), schema):
            pass
    else:
        with pa.ipc.new_file(str(path), schema):
            pass
    (was,) = shards = find(str(path))
    known = saved(shards)
    footers.clear()
    (now,) = find(str(path), known=known)
    assert footers == []
    for before, after in ((was.schema, now.schema), (was.stored_schema, now.stored_schema)):
        bare = pa.schema([one.remove_metadata() for one in before])
        assert after.equals(bare, check_metadata=True)
        assert [str(one) for one in after.types] == [str(one) for one in before.types]


ROWS = {
    "one row group": [5],
    "as writers cut": [*[700] * 40, 50],
    "all differ": [3, 1, 4, 1, 5, 9, 2, 6, 5, 3],
    "as many as are saved": [1, 1, 1, *range(MOST_RUNS)],
    "empty ones": [0, 0, 7, 0, 0, 0, 2],
    "none": [],
}


@pytest.mark.parametrize("kind", ROWS)
def test_row_groups_come_back(kind: str) -> None:
    facts = shorten_facts({"url": "a", "groups": ROWS[kind], "rows": sum(ROWS[kind])})
    (found,) = decode(encode(Segment(0, (facts,)))).shards
    assert groups_of(found) == tuple(ROWS[kind])
    assert groups_of(shorten_facts(found)) == tuple(ROWS[kind])


@pytest.mark.parametrize(
    "change",
    [
        {"rows": 6},
        {"row_groups": 5},
        {LATER: [7, -1 << 60]},
        {LATER: [7, -1 << 60], "row_groups": 4 + (1 << 60)},
        {LATER: [-4]},
        {"groups": []},
        {"groups": [-1, 1, 0]},
        {"groups": None},
    ],
)
def test_row_groups_that_do_not_add_up_are_none(change: dict[str, Any]) -> None:
    """A ledger may be anyone's: what it claims takes no memory."""
    facts = {"groups": [1, 2, 2], "row_groups": 4, "rows": 7, LATER: [2]}
    assert groups_of(facts) == (1, 2, 2, 2)
    changed = {key: value for key, value in {**facts, **change}.items() if value is not None}
    assert groups_of(changed) is None


def test_many_different_row_groups_are_counted_only() -> None:
    """A shard of more takes no more bytes, and its footer is read again."""
    groups = list(range(GROUPS + MOST_RUNS + 1))
    facts = shorten_facts({"groups": groups, "rows": sum(groups)})
    assert facts == {"groups": [0, 1, 2], "row_groups": len(groups), "rows": sum(groups)}
    assert groups_of(facts) is None
    assert run_lengths([]) == []


def write_rows(path: Path, seed: int = 0) -> None:
    values = np.random.default_rng(seed).normal(size=60)
    pq.write_table(pa.table({"id": values}), str(path), row_group_size=25, compression="none")


def copied(path: Path) -> None:
    data = path.read_bytes()
    path.unlink()
    path.write_bytes(data)
    os.utime(path, ns=(7, 7))


CHANGES: dict[str, Callable[[Path], object]] = {
    "touched": lambda path: os.utime(path, ns=(7, 7)),
    "copied": copied,
    "other rows": lambda path: (write_rows(path, 9), os.utime(path, ns=(7, 7))),
    "shorter": lambda path: pq.write_table(pa.table({"id": [1.0]}), str(path)),
}


@pytest.mark.parametrize("change", CHANGES)
def test_the_footer_of_a_changed_file_is_read(
    change: str, tmp_path: Path, footers: list[str]
) -> None:
    """And of no other one: it is found as if nothing had been known of it."""
    for name in "abc":
        write_rows(tmp_path / f"{name}.parquet", ord(name))
    known = saved(find(str(tmp_path)))
    CHANGES[change](tmp_path / "b.parquet")
    footers.clear()
    found = find(str(tmp_path), known=known)
    assert footers == ["b.parquet"]
    assert found.shards[1] == find(str(tmp_path / "b.parquet")).shards[0]
    assert [one.is_recorded for one in found] == [True, False, True]


LESS: dict[str, Callable[[dict[str, Any]], object]] = {
    "no types, as earlier versions": lambda facts: facts.pop(TYPES),
    "no footer": lambda facts: facts.pop("footer_sha256"),
    "a short hash": lambda facts: facts.update(footer_sha256=""),
    "types of no schema": lambda facts: facts.update({TYPES: "AAAA"}),
    "types in no base 64": lambda facts: facts.update({TYPES: "ü!"}),
    "types of another schema": lambda facts: facts.update({"schema": [["x", "int8", True]]}),
    "an unknown format": lambda facts: facts.update(format="csv"),
    "row groups that do not add up": lambda facts: facts.update(rows=1),
    "no time": lambda facts: facts.pop("mtime_ns"),
}


@pytest.mark.parametrize("less", LESS)
def test_a_footer_is_read_where_less_is_recorded(
    less: str, tmp_path: Path, footers: list[str]
) -> None:
    write_rows(tmp_path / "a.parquet")
    ((url, facts),) = saved(find(str(tmp_path))).items()
    known = dict(facts)
    LESS[less](known)
    footers.clear()
    (shard,) = find(str(tmp_path), known={url: known})
    assert footers == ["a.parquet"]
    assert not shard.is_recorded


def rewritten(shards: Sequence[str], same_size: int) -> None:
    """Other rows in a file of the same size and time."""
    for path in shards:
        before = os.stat(path)
        write_rows(Path(path), 5)
        assert os.stat(path).st_size == same_size
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def test_another_file_of_equal_size_and_time_is_refused_when_it_is_read(tmp_path: Path) -> None:
    """Before a row of it is given; the error names it."""
    write_rows(tmp_path / "a.parquet")
    known = saved(find(str(tmp_path)))
    rewritten([str(tmp_path / "a.parquet")], os.path.getsize(tmp_path / "a.parquet"))
    found = find(str(tmp_path), known=known)
    with pytest.raises(ChangedDataError, match=r"a\.parquet was replaced since this run recorded"):
        read_ids(found)


FORGED: dict[str, Callable[[dict[str, Any]], object]] = {
    "fewer row groups": lambda facts: facts.update(groups=[25, 25], row_groups=2, rows=50),
    "more row groups": lambda facts: facts.update(groups=[25, 25, 10, 9], row_groups=4, rows=69),
    "other rows": lambda facts: facts.update(groups=[20, 30, 10]),
}


@pytest.mark.parametrize("change", FORGED)
def test_a_ledger_that_contradicts_the_footer_is_refused(change: str, tmp_path: Path) -> None:
    """No row is left out because of what a ledger says."""
    write_rows(tmp_path / "a.parquet")
    ((url, facts),) = saved(find(str(tmp_path))).items()
    known = dict(facts)
    FORGED[change](known)
    found = find(str(tmp_path), known={url: known})
    with pytest.raises(ChangedDataError, match=r"a\.parquet: its row groups or columns are not"):
        read_ids(found)


def test_columns_that_are_filtered_by_are_read_from_footers(
    tmp_path: Path, footers: list[str]
) -> None:
    """A ledger has no bounds of columns."""
    write_rows(tmp_path / "a.parquet")
    known = saved(find(str(tmp_path)))
    footers.clear()
    (shard,) = find(str(tmp_path), known=known, statistics=["id"])
    assert footers == ["a.parquet"]
    assert shard.statistics
