"""What a source must fulfil for training, updates and resumption: ``testing.check_source``."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from streamomd.core.errors import StreamomdError, UsageError
from streamomd.core.urls import absolute, location, protocol, shown
from streamomd.shards.listed import Listed
from streamomd.shards.read_footers import open_listed
from streamomd.shards.reader import read_batches
from streamomd.shards.shard import ShardSet
from streamomd.sources.contract import Request, Source
from streamomd.sources.find import Listing, list_shards
from streamomd.sources.known_sources import CHECKED, options_for, refuse_without_effect

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
        CHECKED.append(self.source)
        try:
            yield from self._problems()
        finally:
            CHECKED.remove(self.source)

    def _problems(self) -> Iterator[str]:
        self.options = options_for([self.url], self.options)
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
        before = self._list(versions=first.versions, ledger=facts)
        if first.versions and _urls(before.files) != known:
            yield f"the position lists {_urls(before.files)}, and listed {known}"
        yield from _read(open_listed(before.fs, before.files[: len(known)]), rows, "old")
        now = {**first.versions, **later.versions}
        ledger = {**facts, **_facts(open_listed(later.fs, new))}
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
