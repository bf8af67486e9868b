"""What a source and a file format must fulfil: ``testing.check_source`` and
``testing.check_shards``.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from streamomd.core.errors import StreamomdError, UsageError
from streamomd.core.urls import absolute, location, protocol, shown
from streamomd.shards.formats.contract import ReadRequest
from streamomd.shards.open_shard import OpenShard
from streamomd.shards.read_footers import open_listed
from streamomd.shards.reader import read_batches
from streamomd.shards.shard import Listed, ShardSet
from streamomd.sources.contract import Request, Source
from streamomd.sources.find import (
    CHECKED,
    Listing,
    find,
    list_shards,
    options_for,
    refuse_without_effect,
)

Rows = Sequence[Mapping[str, Any]]
Facts = dict[str, dict[str, Any]]


@dataclass
class SourceCase:
    """A source, a place that it lists, and what adds rows there; see ``check_source``."""

    source: Source
    url: str
    add: Callable[[int], Rows]
    change: Callable[[], object] | None
    missing: str
    options: Mapping[str, Any] = field(default_factory=dict)

    def problems(self) -> Iterator[str]:
        """What is wrong, in words."""
        if not self.source.takes(self.url):
            yield f"it does not take {self.url}"
            return
        # So that its URLs are found as those of an installed package are.
        CHECKED.append(self.source)
        try:
            yield from self._problems()
        finally:
            CHECKED.remove(self.source)

    def _problems(self) -> Iterator[str]:
        self.options = options_for([self.url], self.options)
        # Twice, so that the order of the files can be checked.
        rows = [*self.add(0), *self.add(1)]
        first = self._list()
        yield from self._stable(first)
        opened = open_listed(first.fs, first.files)
        yield from _read(opened, rows, "all")
        yield from self._named_alone(first)
        yield from _fingerprints(opened, open_listed(first.fs, self._list().files))
        yield from _copied(opened, rows)
        if json.loads(json.dumps(first.versions)) != first.versions:
            yield f"the position {first.versions} is another after JSON: it is numbers by text"
        if strange := [name for name in first.versions if not name.startswith(_stem(self.url))]:
            yield f"the position has {strange[0]!r}, which does not begin with the URL"
        # After all that needs the first listing: from here on the source has more.
        yield from self._later(first, _facts(opened), rows, self.add(2))
        yield from self._changed()
        yield from self._refused()
        yield from self._missing()

    def _list(self, **asked: Any) -> Listing:
        return list_shards(self.url, Request(storage_options=self.options, **asked))

    def _stable(self, first: Listing) -> Iterator[str]:
        again = self._list()
        urls, others = _urls(first.files), _urls(again.files)
        if urls != others:
            yield f"two listings differ: {urls}, then {others}"
        if first.versions != again.versions:
            yield f"two listings have the positions {first.versions} and {again.versions}"
        if len({*urls}) < len(urls):
            yield f"a URL is listed twice: {urls}"
        if not urls:
            yield "no file is listed after rows were added twice"

    def _named_alone(self, first: Listing) -> Iterator[str]:
        """A run records URLs of files, and opens them by these alone when it resumes."""
        for file in first.files:
            request = Request(storage_options=self.options, order="given", ledger={})
            alone = list_shards([file.url], _as_files(request))
            if _urls(alone.files) != [file.url]:
                yield f"{file.url} was listed; named alone, it lists {_urls(alone.files)}"

    def _later(self, first: Listing, facts: Facts, rows: Rows, more: Rows) -> Iterator[str]:
        """What is new after rows were added, and that the position still lists what was there."""
        known = _urls(first.files)
        later = self._list(since=first.versions, ledger=facts, with_new=True, may_be_empty=True)
        new = [file for file in later.files if file.url not in facts]
        yield from _read(open_listed(later.fs, new), more, "new")
        old = [url for url in _urls(later.files) if url in facts]
        if first.versions and old and not self.source.lists_by_ledger:
            yield f"after its position are listed files that were there before: {old}"
        if old != known[: len(old)]:
            yield f"files that were there before are listed as {old}, and were as {known}"
        # What a resumed run lists: nothing that came since.
        before = self._list(versions=first.versions, ledger=facts)
        if first.versions and _urls(before.files) != known:
            yield f"the position lists {_urls(before.files)}, and listed {known}"
        yield from _read(open_listed(before.fs, before.files[: len(known)]), rows, "old")
        now = {**first.versions, **later.versions}
        ledger = {**facts, **_facts(open_listed(later.fs, new))}
        # An update after an update, of which nothing may be new.
        last = self._list(since=now, ledger=ledger, with_new=True, may_be_empty=True)
        if again := [url for url in _urls(last.files) if url not in ledger]:
            yield f"nothing was added, and {again} are new"

    def _changed(self) -> Iterator[str]:
        if self.change is None:
            return
        before = self._list()
        prints = open_listed(before.fs, before.files).fingerprint()
        self.change()
        after = self._list()
        changed = open_listed(after.fs, after.files).fingerprint()
        if _urls(before.files) == _urls(after.files) and prints == changed:
            yield "its content changed, and no fingerprint did: list a size, an ETag or a time"

    def _refused(self) -> Iterator[str]:
        for key in self.source.without_effect:
            try:
                refuse_without_effect([self.url], {key})
            except UsageError as error:
                if key not in str(error) or shown(self.url) not in str(error):
                    yield f"the refusal of {key} names it or the URL not: {error}"
            else:
                yield f"{key} has no effect, and is not refused"

    def _missing(self) -> Iterator[str]:
        try:
            list_shards(self.missing, Request(storage_options=self.options))
        except StreamomdError as error:
            if shown(location(self.missing)) not in str(error):
                yield f"the error on {self.missing} does not name it: {error}"
        except Exception as error:  # any other is the problem that is looked for
            yield f"{self.missing} raised {type(error).__name__}, not a StreamomdError: {error}"
        else:
            yield f"{self.missing} does not exist, and is listed without an error"


def _as_files(request: Request) -> Request:
    return replace(request, tables=replace(request.tables, as_files=True))


def _stem(url: str) -> str:
    place = location(url)
    return place if protocol(place) else absolute(place)


def _urls(files: Sequence[Listed]) -> list[str]:
    return [file.url for file in files]


def _facts(shards: ShardSet) -> Facts:
    return {str(one["url"]): one for one in shards.fingerprint()}


def _read(shards: ShardSet, rows: Rows, which: str) -> Iterator[str]:
    """Whether shards have these rows, and no others."""
    found: list[Mapping[str, Any]] = []
    if len(shards):
        columns = shards.shards[0].schema.names
        reader = read_batches(shards, places=range(len(shards)), columns=columns)
        for one in reader:
            found += one.batch.to_pylist()
    wanted = [dict(row) for row in rows]
    if found == wanted:
        return
    if len(found) != len(wanted):
        yield f"{which} shards have {len(found)} rows, not the {len(wanted)} that were added"
        return
    at = next(i for i, (a, b) in enumerate(zip(found, wanted, strict=True)) if a != b)
    yield f"row {at} of {which} shards is {found[at]}, not {wanted[at]}"


def _fingerprints(one: ShardSet, other: ShardSet) -> Iterator[str]:
    pairs = zip(one.fingerprint(), other.fingerprint(), strict=True)
    for before, after in pairs:
        differing = [key for key in before if before[key] != after[key]]
        if differing:
            yield f"nothing changed, and the fingerprint of {before['url']} did: {differing}"


def _copied(shards: ShardSet, rows: Rows) -> Iterator[str]:
    """Workers get copies of shards and their file system, made as by pickle."""
    yield from _read(copy.deepcopy(shards), rows, "copied")


Write = Callable[[str, pa.Table, int], None]
ROWS, GROUP = 100, 30
SLICES = (1, 200, 1 << 20)
"""Bytes requested of a slice: a row at a time, a few, all of a group."""
DAMAGES = 80
"""Places at which a byte of a file is changed, one at a time."""


def shard_problems(write: Write, suffix: str, folder: Path) -> Iterator[str]:
    """What is wrong, in words."""
    path = folder / f"rows{suffix}"
    table = example()
    write(str(path), table, GROUP)
    shards = find(str(path))
    yield from _footer(shards, table)
    for columns in (["id"], ["word", "list", "id"], table.column_names):
        for unit_bytes in SLICES:
            yield from _groups(shards, table, columns, unit_bytes)
    yield from _empty(write, suffix, folder, table)
    yield from _damaged(path, table)


def example() -> pa.Table:
    """Numbers, lists of different lengths, strings that repeat, and nulls."""
    ids = range(ROWS)
    return pa.table(
        {
            "id": pa.array(ids, pa.int64()),
            "number": pa.array([i / 7 if i % 5 else None for i in ids], pa.float64()),
            "list": pa.array([[i] * (i % 4) for i in ids], pa.list_(pa.int32())),
            "word": pa.array([f"w{i % 3}" for i in ids], pa.string()),
        }
    )


def _footer(shards: ShardSet, table: pa.Table) -> Iterator[str]:
    if len(shards) != 1:
        yield f"find names {len(shards)} shards for one file"
        return
    shard, groups = shards.shards[0], (GROUP, GROUP, GROUP, ROWS - 3 * GROUP)
    if shard.rows != ROWS or shard.groups != groups:
        yield f"the footer says {shard.rows} rows in groups of {shard.groups}, not {groups}"
    if shard.schema.names != table.column_names:
        yield f"the schema has columns {shard.schema.names}, not {table.column_names}"


def _groups(
    shards: ShardSet, table: pa.Table, columns: Sequence[str], unit_bytes: int
) -> Iterator[str]:
    """Each group alone, the last first: its rows, in slices, of the columns in their order."""
    where = f"columns {list(columns)}, slices of {unit_bytes} bytes"
    # Not in order: a reader that counts on the group before it fails.
    for group in (3, 0, 2, 1):
        first = group * GROUP
        found = pa.Table.from_batches(read(shards, columns, unit_bytes, [group]))
        expected = table.select(columns).slice(first, GROUP)
        if found.column_names != list(columns):
            yield f"{where}: read as {found.column_names}"
        elif found.num_rows != expected.num_rows:
            yield f"{where}: group {group} has {found.num_rows} rows, not {expected.num_rows}"
        elif found.to_pydict() != expected.to_pydict():
            at = next(i for i, (a, b) in enumerate(_pairs(found, expected)) if a != b)
            yield f"{where}: row {first + at} (group {group}) is not the row that was written"


def _pairs(found: pa.Table, expected: pa.Table) -> Iterator[tuple[Any, Any]]:
    return zip(found.to_pylist(), expected.to_pylist(), strict=True)


def read(
    shards: ShardSet, columns: Sequence[str], unit_bytes: int, groups: Sequence[int]
) -> list[pa.RecordBatch]:
    """The slices of some groups of the first shard."""
    wanted = ReadRequest(tuple(columns), (), unit_bytes, 1 << 20)
    shard = OpenShard(shards.fs, shards.shards[0], wanted)
    try:
        return [batch for group in groups for batch in shard.read(group)]
    finally:
        shard.close()


def _empty(write: Write, suffix: str, folder: Path, table: pa.Table) -> Iterator[str]:
    path = folder / f"empty{suffix}"
    write(str(path), table.slice(0, 0), GROUP)
    if find(str(path)).shards[0].rows:
        yield "a file of no rows is said to have some"


def _damaged(path: Path, table: pa.Table) -> Iterator[str]:
    """A file that is cut, or of which one byte is another: refused, or as many rows as before."""
    whole = path.read_bytes()
    checksums = find(str(path)).shards[0].checksums
    damaged = path.with_name(f"damaged{path.suffix}")
    # As writers that were interrupted leave them, and disks with a wrong bit.
    cuts = [whole[: len(whole) * k // 8] for k in range(1, 8)]
    places = np.random.default_rng(0).integers(0, len(whole), DAMAGES)
    flips = [whole[:at] + bytes([whole[at] ^ 0x55]) + whole[at + 1 :] for at in map(int, places)]
    for number, content in enumerate([*cuts, *flips]):
        damaged.write_bytes(content)
        what = f"a file cut to {len(content)} of {len(whole)} bytes"
        if number >= len(cuts):
            what = f"a file with byte {places[number - len(cuts)]} changed"
        try:
            shards = find(str(damaged))
            groups = range(len(shards.shards[0].groups))
            rows = pa.Table.from_batches(read(shards, table.column_names, 1 << 20, groups))
        except StreamomdError:
            continue
        except Exception as error:  # any other is the problem that is looked for
            yield f"{what} raised {type(error).__name__}, not a StreamomdError: {error}"
            continue
        if number < len(cuts) or rows.num_rows != shards.shards[0].rows:
            yield f"{what} is read as {rows.num_rows} rows: check lengths against the footer"
        elif checksums and rows.to_pydict() != table.to_pydict():
            yield f"{what} is read as other rows, though the format has checksums"
