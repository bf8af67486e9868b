"""Which listed files are new to a run: what an update learns, in order of arrival.

A file of a learned URL is opened only if its size, or its ETag or time, is not the recorded one. A
new file is opened when it has settled. The result depends on nothing but the arguments and the
files, so that a second call after an interruption finds the same.

Times are those of the files and the ``now`` of this machine. A clock that goes backwards makes new
files look young, and they wait; learned ones are known by URL and footer, never by time.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from streamomd.checkpoint.fingerprint import Difference, compare, explain
from streamomd.checkpoint.segments import Facts, shorten_facts
from streamomd.core.counted import counted
from streamomd.core.errors import (
    ChangedDataError,
    DataError,
    IncompleteShardError,
    InputNotFoundError,
    ResumeRefusedError,
    UsageError,
)
from streamomd.core.startup import no_garbage_collection
from streamomd.core.urls import shown
from streamomd.shards.listed import Listed
from streamomd.shards.order import natural_key, path_key
from streamomd.shards.read_footers import Opened, open_each, shard_set
from streamomd.shards.shard import Shard, ShardSet
from streamomd.sources.copies import Comparison, Contents, alike
from streamomd.sources.files.paths import PathPattern
from streamomd.sources.find import Listing, refuse_duplicates

if TYPE_CHECKING:
    import fsspec

MOST_LINES = 10
MOST_LETTERS = 300
"""Of a reason that the ledger records."""
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
    """A listed file that is not learned now. recorded: it stays so, as the ledger has it."""

    url: str
    reason: str
    recorded: bool = False


class Arrivals(NamedTuple):
    """What is new.

    shards: to learn, in order. skipped_facts: ledger entries of files that cannot be read.
    renamed, touched, accepted: new facts of ledger entries, by number, of moved and of copied
    shards, and of rewritten ones to ignore.
    notes: what to print. unlearned: all listed files that are to be learned, now or later.
    """

    shards: ShardSet
    skipped: tuple[SkippedShard, ...] = ()
    skipped_facts: tuple[Facts, ...] = ()
    renamed: tuple[tuple[int, Facts], ...] = ()
    touched: tuple[tuple[int, Facts], ...] = ()
    accepted: tuple[tuple[int, Facts], ...] = ()
    notes: tuple[str, ...] = ()
    unlearned: tuple[Listed, ...] = ()


class _Listing(NamedTuple):
    """The files of a listing by what the ledger has of them."""

    new: list[Listed]
    changed: list[tuple[int, Listed]]
    learned: dict[str, int]
    skipped: set[str]
    left_out: int
    deleted: int


def find_arrivals(
    known: Sequence[Facts],
    fs: fsspec.AbstractFileSystem,
    listed: Sequence[Listed],
    choice: Choice,
    *,
    now_ns: int,
    contents: Contents,
    check: Callable[[Sequence[str]], None] | None = None,
    statistics: Collection[str] = (),
) -> Arrivals:
    """Compare a listing with the ledger's entries, and open what is new.

    contents: compares files whose footers are equal. statistics: columns of which the footers'
    bounds are read. check: gets the URLs of all files that may be opened, before the first is; may
    raise.

    Raises ResumeRefusedError for learned shards that were rewritten and for new files that are
    copies of learned ones, DataError for files that cannot be read, unless the choice says what to
    do with them; UsageError for a file that is listed twice.
    """
    with no_garbage_collection():  # none of the objects made of a million files is garbage
        refuse_duplicates(fs, listed)
        listing = _divide(known, listed, retry=choice.retry_skipped)
    for url in choice.accept_rewritten:
        if url not in listing.learned:
            raise UsageError(f"--accept-rewritten {shown(url)}: no learned shard has this URL")
    ready, young, late = _settled(listing.new, choice, now_ns)
    ready.sort(key=_order(choice.arrival))
    if check is not None:
        check([file.url for _, file in listing.changed] + [file.url for file in ready])
    touched, rewritten = _reread(known, fs, listing.changed, contents)
    accepted = [
        (number, {**known[number], "accepted": _content_of(file)})
        for number, file in listing.changed
        if file.url in choice.accept_rewritten and any(one.url == file.url for one in rewritten)
    ]
    rewritten = [one for one in rewritten if one.url not in choice.accept_rewritten]
    found = _Opening(choice, now_ns, listing.learned, contents, statistics)
    _open(known, fs, listed, ready, found)
    found.skipped[:0] = young
    _refuse([] if choice.ignore_rewritten else rewritten, found.copies, found.unproven_moves)
    _set_aside(found, choice)
    waiting = {file.url for file in ready} | {skipped.url for skipped in young}
    wanted = waiting - found.settled_urls()
    facts = [
        _facts_of(file, why) for file, why in found.unreadable if file.url not in listing.skipped
    ]
    return Arrivals(
        shard_set(fs, [*found.shards.values()]),
        tuple(found.skipped),
        tuple(facts),
        tuple(found.renamed.items()),
        touched,
        tuple(accepted),
        tuple(_notes(listing, found, touched, rewritten, late, choice)),
        tuple(file for file in listing.new if file.url in wanted),
    )


def _divide(known: Sequence[Facts], listed: Sequence[Listed], *, retry: bool) -> _Listing:
    learned = {str(one["url"]): at for at, one in enumerate(known) if "skipped" not in one}
    skipped = {str(one["url"]) for one in known if "skipped" in one} - learned.keys()
    new: list[Listed] = []
    changed: list[tuple[int, Listed]] = []
    left_out = there = 0
    for file in listed:
        number = learned.get(file.url)
        if number is not None:
            there += 1
            facts = known[number]
            if not _is_same(facts, file) and not _is_accepted(facts, file):
                changed.append((number, file))
        elif file.url in skipped and not retry:
            left_out += 1
        else:
            new.append(file)
    # A table lists the files that were added; what is not among them need not be deleted.
    numbers = learned.values() if there < len(learned) else ()
    tables = sum("partitions" in known[at] for at in numbers)
    return _Listing(new, changed, learned, skipped, left_out, max(0, len(learned) - there - tables))


def _is_same(facts: Facts, file: Listed) -> bool:
    """Whether the listing alone shows that a learned shard did not change."""
    if facts.get("size") != file.size or file.size < 0:
        return False
    if _is_of_table(file):  # whose files are never written again
        return True
    if file.etag is not None and "etag" in facts:
        return bool(facts["etag"] == file.etag)
    return file.mtime_ns is not None and bool(facts.get("mtime_ns") == file.mtime_ns)


def _content_of(file: Listed) -> str:
    """A text on what a listing shows of a file's content; empty if it cannot show a change."""
    seen = file.etag if file.etag is not None else file.mtime_ns
    return "" if seen is None else f"{file.size} {seen}"


def _is_accepted(facts: Facts, file: Listed) -> bool:
    """Whether it is the rewritten file that an earlier update accepted, by the listing alone."""
    return bool(facts.get("accepted")) and facts["accepted"] == _content_of(file)


def _is_of_table(file: Listed) -> bool:
    return file.partitions is not None


def _settled(
    new: Iterable[Listed], choice: Choice, now_ns: int
) -> tuple[list[Listed], list[SkippedShard], int]:
    """Files that may be opened, those that are too young, the number of those after ``until``."""
    ready: list[Listed] = []
    young: list[SkippedShard] = []
    late = 0
    for file in new:
        if file.mtime_ns is None and (choice.until_ns is not None or choice.arrival == "modified"):
            which = "--until" if choice.until_ns is not None else 'data.arrival = "modified"'
            raise UsageError(
                f"{shown(file.url)} is listed without a modification time, which {which} needs"
            )
        if choice.until_ns is not None and (file.mtime_ns or 0) > choice.until_ns:
            late += 1
        elif why := _youth(file, file.mtime_ns, choice, now_ns):
            young.append(SkippedShard(file.url, why))
        else:
            ready.append(file)
    return ready, young, late


def _youth(file: Listed, mtime_ns: int | None, choice: Choice, now_ns: int) -> str:
    """Why a file of this modification time has to wait; empty if it has not."""
    settle = choice.settle
    if _is_of_table(file) or mtime_ns is None or not settle or file.path in choice.complete:
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


def _order(arrival: str) -> Callable[[Listed], Any]:
    """Sort key of new files. A table's version comes first; all others have the same."""

    def by_path(file: Listed) -> Any:
        return file.version, natural_key(file.name), path_key(file.path)

    def by_time(file: Listed) -> Any:
        return file.version, file.mtime_ns, natural_key(file.name), path_key(file.path)

    return by_time if arrival == "modified" else by_path


def _reread(
    known: Sequence[Facts],
    fs: fsspec.AbstractFileSystem,
    changed: Sequence[tuple[int, Listed]],
    contents: Contents,
) -> tuple[tuple[tuple[int, Facts], ...], list[Difference]]:
    """New facts of learned shards that were copied or touched; the differences of the others."""
    touched: list[tuple[int, Facts]] = []
    rewritten: list[Difference] = []
    opened = open_each(fs, [file for _, file in changed])
    for (number, file), shard in zip(changed, opened, strict=True):
        if isinstance(shard, InputNotFoundError):  # deleted since it was listed
            continue
        if isinstance(shard, DataError):
            text = f"it cannot be read now ({_reason(shard, file)})"
            rewritten.append(Difference(number, file.url, text, refused=True))
            continue
        facts = known[number]
        found = compare([facts], [shard.fingerprint()])
        texts = [one.text for one in found if one.refused]
        try:
            compared = Comparison(None) if texts else contents.compare(shard, facts, number)
        except (ChangedDataError, InputNotFoundError):  # the next listing shows it
            continue
        except DataError as error:
            texts = [f"it cannot be read now ({_reason(error, file)})"]
        else:
            texts += [f"{compared.by}, with the same footer"] if compared.equal is False else []
        rewritten += [Difference(number, file.url, text, refused=True) for text in texts]
        if not texts:
            # The time as it is listed, so that the next listing shows the same.
            times = {"mtime_ns": file.mtime_ns, "etag": file.etag}
            touched.append((number, shorten_facts({**facts, **times})))
    return tuple(touched), rewritten


@dataclass(eq=False)
class _Opening:
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

    def open_all(self, fs: fsspec.AbstractFileSystem, ready: Sequence[Listed]) -> None:
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
        elif isinstance(opened, IncompleteShardError) and not _is_of_table(file):
            self._skip(file, f"{_reason(opened, file)}; if it is still written, it is taken later")
        elif isinstance(opened, DataError):
            self.unreadable.append((file, _reason(opened, file)))
        # Its time as it was opened: it may have been written to since it was listed.
        elif why := _youth(file, opened.mtime_ns, self.choice, self.now_ns):
            self._skip(file, why)
        else:
            self._add_shard(file, opened)

    def _skip(self, file: Listed, why: str) -> None:
        self.skipped.append(SkippedShard(file.url, why))

    def _add_shard(self, file: Listed, shard: Shard) -> None:
        facts = shorten_facts(shard.fingerprint())
        try:
            # That a commit appended a file proves that its rows are new.
            same = [] if _is_of_table(file) else self._copies(shard, facts)
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


def _open(
    known: Sequence[Facts],
    fs: fsspec.AbstractFileSystem,
    listed: Sequence[Listed],
    ready: Sequence[Listed],
    opening: _Opening,
) -> None:
    if not ready:  # what follows costs memory for each known shard
        return
    opening.there = {file.url for file in listed}
    for facts in known:
        if "skipped" not in facts and "footer_sha256" in facts:
            opening.owners.setdefault(facts["footer_sha256"], []).append(facts)
    opening.open_all(fs, ready)


def _reason(error: DataError, file: Listed) -> str:
    """An error's text without the name of the file."""
    text = str(error).removeprefix("shard ").removeprefix(shown(file.url)).removeprefix(":").strip()
    return text[:MOST_LETTERS]


def without_bad_shards(
    found: Arrivals, known: Sequence[Facts], bad: Mapping[str, DataError | InputNotFoundError]
) -> Arrivals:
    """What is new, but for shards that the model cannot learn, which are skipped.

    bad: errors by URL. The ledger records each, unless the file changed since it was listed.
    """
    files = {file.url: file for file in found.unlearned if file.url in bad}
    recorded = {str(one["url"]) for one in known if "skipped" in one}
    skipped, facts = [], []
    for url, error in bad.items():
        if isinstance(error, ChangedDataError | InputNotFoundError):
            why = "written again or removed since it was listed; it is taken later"
            skipped.append(SkippedShard(url, why))
            continue
        why = _reason(error, files[url])
        skipped.append(SkippedShard(url, why, recorded=True))
        facts += [_facts_of(files[url], why)] if url not in recorded else []
    settled = {one.url for one in skipped if one.recorded}
    shards = tuple(shard for shard in found.shards if shard.url not in bad)
    return found._replace(
        shards=replace(found.shards, shards=shards),
        skipped=(*found.skipped, *skipped),
        skipped_facts=(*found.skipped_facts, *facts),
        notes=(*_skipped_notes(skipped), *found.notes),
        unlearned=tuple(file for file in found.unlearned if file.url not in settled),
    )


def _refuse(
    rewritten: Sequence[Difference],
    copies: Sequence[tuple[str, str]],
    moves: Sequence[tuple[str, str]],
) -> None:
    lines: list[str] = []
    if rewritten:
        count = len({one.url for one in rewritten})
        lines += [
            f"{counted(count, 'learned shard')} changed since the run read {_it(count)}:",
            explain(rewritten),
            "Restore what was there, or pass --accept-rewritten URL: then the new rows of that "
            "file are not learned, and it is not reported again unless it changes "
            "(--ignore-rewritten: all of them, once; train --restart learns all rows again)",
        ]
    if moves:
        some = [f"{shown(url)}: {shown(old)}" for url, old in moves[:MOST_LINES]]
        more = len(moves) - len(some)
        lines += [
            f"{counted(len(moves), 'new file')} with the footer of a learned shard that is no "
            "longer listed and of which the ledger has no digests:",
            *some,
            *([f"and {more:,} more"] if more else []),
            "A footer does not prove that a file was moved. Move it back under its old name, or "
            "leave out --moved to learn its rows as new ones",
        ]
    if copies:
        some = [f"{shown(url)} is {text}" for url, text in copies[:MOST_LINES]]
        more = len(copies) - len(some)
        lines += [
            f"{counted(len(copies), 'new file')} with the stored bytes of another shard:",
            *some,
            *([f"and {more:,} more"] if more else []),
            "Pass --moved if the file was moved and is no longer listed under the other name, "
            "--accept-duplicates to learn its rows again, or remove it",
        ]
    if lines:
        raise ResumeRefusedError("\n".join(lines))


def _set_aside(found: _Opening, choice: Choice) -> None:
    """Skip the files that cannot be read. Raises DataError unless the choice is to skip them."""
    if found.unreadable and choice.on_bad_shard != "skip":
        some = [f"{shown(file.url)}: {why}" for file, why in found.unreadable[:MOST_LINES]]
        more = len(found.unreadable) - len(some)
        raise DataError(
            "\n".join(
                [
                    f"{counted(len(found.unreadable), 'new shard')} cannot be read:",
                    *some,
                    *([f"and {more:,} more"] if more else []),
                    f'Replace {_it(len(found.unreadable))}, or set data.on_bad_shard = "skip": '
                    "the ledger records what is skipped, and --retry-skipped tries it again",
                ]
            )
        )
    found.skipped += [SkippedShard(file.url, why, recorded=True) for file, why in found.unreadable]


def _facts_of(file: Listed, why: str) -> Facts:
    """The ledger entry of a file that cannot be read."""
    own: dict[str, Any] = {"mtime_ns": file.mtime_ns, "etag": file.etag}
    if _is_of_table(file) and file.columns is None:  # as ``skipped_of_tables`` lists it again
        own |= {"partitions": file.partitions, "name": file.name}
    return shorten_facts({"url": file.url, "size": file.size, **own, "skipped": why})


def skipped_of_tables(known: Sequence[Facts], listing: Listing) -> list[Listed]:
    """Files of Delta tables that an earlier update skipped: a table lists those that were added
    later than the version that is recorded."""
    roots = tuple(f"{url.rstrip('/')}/" for url in listing.versions)
    others = {one.url for one in listing.files}
    others |= {str(one["url"]) for one in known if "skipped" not in one}
    found: dict[str, Listed] = {}
    for at, one in enumerate(known):
        url, partitions = str(one["url"]), one.get("partitions")
        if partitions is None or url in others or not url.startswith(roots):
            continue
        path, name = PathPattern(url, listing.fs).path, str(one.get("name", ""))
        values = tuple((column, text) for column, text in partitions)
        size = int(one.get("size", -1))
        found[url] = Listed(path, url, name, size, partitions=values, version=(0, at))
    return [*found.values()]


def _it(count: int) -> str:
    return "it" if count == 1 else "them"


def _skipped_notes(skipped: Sequence[SkippedShard]) -> Iterable[str]:
    for one in skipped[:MOST_LINES]:
        yield f"skipped {shown(one.url)}: {one.reason}"
    if len(skipped) > MOST_LINES:
        yield f"and {len(skipped) - MOST_LINES:,} more skipped"


def _notes(
    listing: _Listing,
    found: _Opening,
    touched: Sequence[object],
    rewritten: Sequence[Difference],
    late: int,
    choice: Choice,
) -> Iterable[str]:
    yield from _skipped_notes(found.skipped)
    deleted = listing.deleted - len(found.renamed)
    if deleted > 0:
        count = counted(deleted, "learned shard")
        yield f"{count} no longer listed; the model still has what it learned"
    if touched:
        count = counted(len(touched), "learned shard")
        yield f"{count} copied or touched, with the same footer and size"
    if rewritten:
        count = counted(len({one.url for one in rewritten}), "rewritten shard")
        yield f"{count} ignored, and not learned again (--ignore-rewritten):\n{explain(rewritten)}"
    for number, facts in list(found.renamed.items())[:MOST_LINES]:
        yield f"shard {number} moved to {shown(str(facts['url']))}"
    if len(found.renamed) > MOST_LINES:
        yield f"and {len(found.renamed) - MOST_LINES:,} more moved"
    for url, old in found.unproven[:MOST_LINES]:
        yield (
            f"{shown(url)} has the footer of {shown(old)}, of which the ledger has no digests: it "
            "is learned as a new shard"
        )
    if found.repeated:
        count = counted(found.repeated, "new shard")
        yield f"{count} with the rows of another shard (--accept-duplicates)"
    if listing.left_out:
        count = counted(listing.left_out, "shard")
        yield f"{count} skipped by an earlier update; --retry-skipped tries again"
    if late:
        yield f"{counted(late, 'new shard')} modified after the time of --until"
    if found.waiting:
        count = counted(found.waiting, "more new shard")
        yield f"{count} not taken: --max-shards {choice.max_shards}"
