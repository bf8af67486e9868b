"""New files of an update, opened one after another: what each turns out to be.

Footers do not show it: those of small files with the same statistics are equal. Equal are an ETag
that is a hash of the content, or the digests of all row groups that are read.

A new file is a shard to learn, one that waits, one that cannot be read, a copy of another shard, or
a learned shard that was moved.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from streamomd.checkpoint.ledger import Difference, explain
from streamomd.checkpoint.segments import Facts, shorten_facts
from streamomd.core.errors import (
    ChangedDataError,
    DataError,
    IncompleteShardError,
    InputNotFoundError,
    ResumeRefusedError,
)
from streamomd.core.urls import shown
from streamomd.core.wording import counted, first_lines, it_or_them
from streamomd.shards.filesystem import FileSystem, protocols
from streamomd.shards.read_footers import Opened, open_each
from streamomd.shards.shard import Listed, Shard

IDENTITY = ("footer_sha256", "size", "rows", "schema")
"""What equal files have in common, and what is compared before any of their rows is read."""
_MD5 = re.compile(r"[0-9a-f]{32}(-[0-9]+)?")
_HASHED = {"s3", "s3a"}
"""Stores whose ETags of this form are MD5 sums, of the object or of its parts."""


class Comparison(NamedTuple):
    """equal: None if there is nothing to compare. by: what was compared, for a message."""

    equal: bool | None
    by: str = ""


class Contents:
    """Compares shards of one file system, learned or new; the digests of each are found once.

    recorded: the digests that a ledger has of a shard, by row group, from its number. read: reads
    a shard; its digests by row group.
    """

    def __init__(
        self,
        fs: FileSystem,
        recorded: Callable[[int], Mapping[int, bytes]],
        read: Callable[[Shard], Mapping[int, bytes]],
    ) -> None:
        self._has_hashes = bool(_HASHED.intersection(protocols(fs)))
        self._recorded, self._read = recorded, read
        self._found: dict[str, Mapping[int, bytes]] = {}

    def compare(self, shard: Shard, other: Facts, of_other: int | Shard) -> Comparison:
        """A shard with one whose facts agree. of_other: the ledger's number of it, or the shard.

        Raises what reading the shard raises.
        """
        tag = shard.etag
        # Different ones show nothing: the parts may have other sizes, or the keys of encryption.
        if self._has_hashes and tag and tag == other.get("etag") and _MD5.fullmatch(tag):
            return Comparison(True, "their ETags are equal")
        known = self._digests(of_other) if isinstance(of_other, Shard) else self._recorded(of_other)
        if not known:
            return Comparison(None)
        found = self._digests(shard)
        if not found or not found.keys() <= known.keys():
            return Comparison(None)
        equal = all(known[group] == digest for group, digest in found.items())
        what = "equal" if equal else "different"
        return Comparison(equal, f"the digests of their row groups are {what}")

    def _digests(self, shard: Shard) -> Mapping[int, bytes]:
        if shard.url not in self._found:
            self._found[shard.url] = self._read(shard)
        return self._found[shard.url]


def alike(facts: Facts, others: Iterable[Facts]) -> Sequence[Facts]:
    """Shards that may have the same bytes. Empty files are all alike: none."""
    if not facts["rows"]:
        return []
    return [one for one in others if all(one.get(key) == facts[key] for key in IDENTITY)]


MOST_LETTERS = 300
"""The most letters of a reason that the ledger records."""
OPENED_AT_ONCE = 256
"""Files opened before the next look whether ``max_shards`` are found."""


class Choice(NamedTuple):
    """What an update takes; see the job's keys of the same names.

    settle: seconds since a file's modification, 0: any. until_ns: latest modification time.
    accept_rewritten: URLs of rewritten shards to ignore from now on, as they are now.
    complete: paths of files that are known to be complete, whatever their age.
    """

    settle: float = 30.0
    until_ns: int | None = None
    max_shards: int | None = None
    arrival: str = "path"
    on_bad_shard: str = "error"
    ignore_rewritten: bool = False
    moved: bool = False
    accept_duplicates: bool = False
    retry_skipped: bool = False
    accept_rewritten: Collection[str] = ()
    complete: Collection[str] = ()


class SkippedShard(NamedTuple):
    """A listed file that is not learned now. recorded: it stays so, as the ledger has it. origin:
    the file that it was made of."""

    url: str
    reason: str
    recorded: bool = False
    origin: str = ""

    @property
    def note(self) -> str:
        """A line on it."""
        return f"skipped {shown(self.origin or self.url)}: {self.reason}"


@dataclass(eq=False)
class NewFiles:
    """New files as they are opened one after another, and what each turns out to be.

    owners: facts of shards, learned or new, by footer. there: URLs that are listed.
    """

    choice: Choice
    now_ns: int
    learned: Mapping[str, int]
    contents: Contents
    statistics: Collection[str] = ()
    owners: dict[str, list[Facts]] = field(default_factory=dict)
    there: set[str] = field(default_factory=set)
    shards: dict[str, Shard] = field(default_factory=dict)
    skipped: list[SkippedShard] = field(default_factory=list)
    unreadable: list[tuple[Listed, str]] = field(default_factory=list)
    copies: list[tuple[str, str]] = field(default_factory=list)
    renamed: dict[int, Facts] = field(default_factory=dict)
    unproven: list[tuple[str, str]] = field(default_factory=list)
    unproven_moves: list[tuple[str, str]] = field(default_factory=list)
    repeated: int = 0
    waiting: int = 0

    def open_all(self, fs: FileSystem, ready: Sequence[Listed]) -> None:
        """Open files in order until ``max_shards`` shards are found."""
        position = 0
        most = len(ready) if self.choice.max_shards is None else self.choice.max_shards
        while position < len(ready) and len(self.shards) < most:
            files = ready[position : position + min(most - len(self.shards), OPENED_AT_ONCE)]
            opened_files = open_each(fs, files, self.statistics)
            for file, opened in zip(files, opened_files, strict=True):
                self._add(file, opened)
            position += len(files)
        self.waiting = len(ready) - position

    def _add(self, file: Listed, opened: Opened) -> None:
        if isinstance(opened, InputNotFoundError):
            self._skip(file, "removed since it was listed")
        elif isinstance(opened, IncompleteShardError) and not is_of_table(file):
            self._skip(
                file, f"{reason_of(opened, file)}; if it is still written, it is taken later"
            )
        elif isinstance(opened, DataError):
            self.unreadable.append((file, reason_of(opened, file)))
        # Its time as it was opened: it may have been written to since it was listed.
        elif why := youth(file, opened.mtime_ns, self.choice, self.now_ns):
            self._skip(file, why)
        else:
            self._add_shard(file, opened)

    def _skip(self, file: Listed, why: str) -> None:
        self.skipped.append(SkippedShard(file.url, why, origin=file.origin))

    def _add_shard(self, file: Listed, shard: Shard) -> None:
        """Sorts a shard among the new, moved, repeated or copied ones."""
        facts = shorten_facts(shard.fingerprint())
        try:
            # That a commit appended a file proves that its rows are new.
            same = [] if is_of_table(file) else self._copies(shard, facts)
        except (ChangedDataError, InputNotFoundError):
            self._skip(file, "written again or removed since it was listed; it is taken later")
            return
        proven = [one for one in same if one[1].equal]
        gone = [one for one in proven if self._is_gone(str(one[0]["url"]))]
        maybe = [str(one[0]["url"]) for one in same if self._is_gone(str(one[0]["url"]))]
        if self.choice.moved and maybe and not proven:
            self.unproven_moves.append((file.url, maybe[0]))
        elif gone and self.choice.moved:
            old = gone[0][0]
            place = {"url": file.url, "mtime_ns": file.mtime_ns, "etag": file.etag}
            # All else stays, such as the name by which rows are held out.
            self.renamed[self.learned[str(old["url"])]] = shorten_facts({**old, **place})
        elif proven and not self.choice.accept_duplicates:
            one, compared = (gone or proven)[0]
            url = str(one["url"])
            where = "no longer listed" if gone else "learned" if url in self.learned else "new"
            self.copies.append((file.url, f"{shown(url)}, which is {where}: {compared.by}"))
        else:
            self.repeated += bool(proven)
            if same and not proven:
                self.unproven.append((file.url, str(same[0][0]["url"])))
            self.owners.setdefault(facts["footer_sha256"], []).append(facts)
            self.shards[file.url] = shard

    def _copies(self, shard: Shard, facts: Facts) -> list[tuple[Facts, Comparison]]:
        """Shards with the same stored bytes, and those of which that is unknown."""
        found = []
        for other in alike(facts, self.owners.get(facts["footer_sha256"], ())):
            url = str(other["url"])
            of_other = self.learned[url] if url in self.learned else self.shards[url]
            try:
                found.append((other, self.contents.compare(shard, other, of_other)))
            except ChangedDataError:
                raise
            except DataError:  # rows that cannot be decoded, which learning reports
                return []
        return [one for one in found if one[1].equal is not False]

    def settled_urls(self) -> set[str]:
        """Files of which nothing is left to learn: unreadable, recorded so, or moved."""
        moved = {str(facts["url"]) for facts in self.renamed.values()}
        return {file.url for file, _ in self.unreadable} | moved

    def _is_gone(self, url: str) -> bool:
        """Whether it is a learned shard that is no longer listed and that none has replaced."""
        return (
            url in self.learned and url not in self.there and self.learned[url] not in self.renamed
        )


def open_new(
    known: Sequence[Facts],
    fs: FileSystem,
    listed: Sequence[Listed],
    ready: Sequence[Listed],
    opening: NewFiles,
) -> None:
    """Open the files that are ready. known: the ledger's entries; listed: all files."""
    if not ready:  # what follows costs memory for each known shard
        return
    opening.there = {file.url for file in listed}
    for facts in known:
        if "skipped" not in facts and "footer_sha256" in facts:
            opening.owners.setdefault(facts["footer_sha256"], []).append(facts)
    opening.open_all(fs, ready)


def youth(file: Listed, mtime_ns: int | None, choice: Choice, now_ns: int) -> str:
    """Why a file of this modification time has to wait; empty if it has not."""
    settle = choice.settle
    if is_of_table(file) or mtime_ns is None or not settle or file.path in choice.complete:
        return ""
    age = (now_ns - mtime_ns) / 1e9
    if age >= settle:
        return ""
    if age < -settle:
        return (
            f"its modification time is {-age:,.0f} s in the future: the clocks differ; set them, "
            "touch the file, or pass --settle 0"
        )
    return (
        f"modified {max(0.0, age):.1f} s ago, less than update.settle = {settle:g}: it may still "
        "be written; the next update takes it"
    )


def reason_of(error: DataError, file: Listed) -> str:
    """An error's text without the name of the file."""
    text = str(error).removeprefix("shard ").removeprefix(shown(file.url))
    text = text.removeprefix(shown(file.origin)).lstrip(":, ").strip()
    return text[:MOST_LETTERS]


def is_of_table(file: Listed) -> bool:
    """Whether it is never written to again."""
    return file.partitions is not None


MOST_LINES = 10


def refuse_found(
    rewritten: Sequence[Difference],
    copies: Sequence[tuple[str, str]],
    moves: Sequence[tuple[str, str]],
) -> None:
    """Raise ResumeRefusedError for learned shards that were rewritten, and for new files that are
    copies of shards or may be moved ones, each with the URL of the other."""
    lines: list[str] = []
    if rewritten:
        count = len({one.url for one in rewritten})
        lines += [
            f"{counted(count, 'learned shard')} changed since the run read {it_or_them(count)}:",
            explain(rewritten),
            "Restore what was there, or pass --accept-rewritten URL: then the new rows of that "
            "file are not learned, and it is not reported again unless it changes "
            "(--ignore-rewritten: all of them, once; train --restart learns all rows again)",
        ]
    if moves:
        lines += [
            f"{counted(len(moves), 'new file')} with the footer of a learned shard that is no "
            "longer listed and of which the ledger has no digests:",
            *first_lines([f"{shown(url)}: {shown(old)}" for url, old in moves], MOST_LINES),
            "A footer does not prove that a file was moved. Move it back under its old name, or "
            "leave out --moved to learn its rows as new ones",
        ]
    if copies:
        lines += [
            f"{counted(len(copies), 'new file')} with the stored bytes of another shard:",
            *first_lines([f"{shown(url)} is {text}" for url, text in copies], MOST_LINES),
            "Pass --moved if the file was moved and is no longer listed under the other name, "
            "--accept-duplicates to learn its rows again, or remove it",
        ]
    if lines:
        raise ResumeRefusedError("\n".join(lines))


def set_aside(found: NewFiles, choice: Choice) -> None:
    """Skip the files that cannot be read. Raises DataError unless the choice is to skip them."""
    if found.unreadable and choice.on_bad_shard != "skip":
        lines = [
            f"{counted(len(found.unreadable), 'new shard')} cannot be read:",
            *first_lines(
                [f"{shown(file.origin or file.url)}: {why}" for file, why in found.unreadable],
                MOST_LINES,
            ),
            f'Replace {it_or_them(len(found.unreadable))}, or set data.on_bad_shard = "skip": the '
            "ledger records what is skipped, and --retry-skipped tries it again",
        ]
        raise DataError("\n".join(lines))
    found.skipped += [
        SkippedShard(file.url, why, True, file.origin) for file, why in found.unreadable
    ]


def skipped_notes(skipped: Sequence[SkippedShard]) -> Iterable[str]:
    """Lines on shards that are skipped."""
    return first_lines([one.note for one in skipped], MOST_LINES, " skipped")


def notes_of(
    found: NewFiles,
    deleted: int,
    left_out: int,
    touched: Sequence[object],
    rewritten: Sequence[Difference],
    late: int,
    choice: Choice,
) -> Iterable[str]:
    """Lines on what an update found. deleted: learned shards that are not listed, moved ones too;
    left_out: shards that an earlier update skipped; late: those after ``until``."""
    yield from skipped_notes(found.skipped)
    deleted -= len(found.renamed)
    if deleted > 0:
        count = counted(deleted, "learned shard")
        yield f"{count} no longer listed; the model still has what it learned"
    if touched:
        count = counted(len(touched), "learned shard")
        yield f"{count} copied or touched, with the same footer and size"
    if rewritten:
        count = counted(len({one.url for one in rewritten}), "rewritten shard")
        yield f"{count} ignored, and not learned again (--ignore-rewritten):\n{explain(rewritten)}"
    moved = [
        f"shard {number} moved to {shown(str(facts['url']))}"
        for number, facts in found.renamed.items()
    ]
    yield from first_lines(moved, MOST_LINES, " moved")
    for url, old in found.unproven[:MOST_LINES]:
        yield (
            f"{shown(url)} has the footer of {shown(old)}, of which the ledger has no digests: it "
            "is learned as a new shard"
        )
    if found.repeated:
        count = counted(found.repeated, "new shard")
        yield f"{count} with the rows of another shard (--accept-duplicates)"
    if left_out:
        count = counted(left_out, "shard")
        yield f"{count} skipped by an earlier update; --retry-skipped tries again"
    if late:
        yield f"{counted(late, 'new shard')} modified after the time of --until"
    if found.waiting:
        count = counted(found.waiting, "more new shard")
        yield f"{count} not taken: --max-shards {choice.max_shards}"
