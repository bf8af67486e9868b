"""Which listed files are new to a run: what an update learns, in order of arrival.

A file of a learned URL is opened only if its size, or its ETag or time, is not the recorded one. A
new file is opened when it has settled. The result depends on nothing but the arguments and the
files, so that a second call after an interruption finds the same.

Times are those of the files and the ``now`` of this machine. A clock that goes backwards makes new
files look young, and they wait; learned ones are known by URL and footer, never by time.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from streamomd.checkpoint.ledger import Difference, compare
from streamomd.checkpoint.segments import Facts, shorten_facts
from streamomd.core.errors import ChangedDataError, DataError, InputNotFoundError, UsageError
from streamomd.core.startup import no_garbage_collection
from streamomd.core.urls import shown
from streamomd.shards.filesystem import FileSystem
from streamomd.shards.order import natural_key, path_key
from streamomd.shards.read_footers import open_each, shard_set
from streamomd.shards.shard import Listed, ShardSet
from streamomd.sources.files.paths import PathPattern
from streamomd.sources.find import Listing, refuse_duplicates
from streamomd.sources.new_files import (
    Choice,
    Comparison,
    Contents,
    NewFiles,
    SkippedShard,
    is_of_table,
    notes_of,
    open_new,
    reason_of,
    refuse_found,
    set_aside,
    skipped_notes,
    youth,
)


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


class _Divided(NamedTuple):
    """The files of a listing by what the ledger has of them."""

    new: list[Listed]
    changed: list[tuple[int, Listed]]
    learned: dict[str, int]
    skipped: set[str]
    left_out: int
    deleted: int


def find_arrivals(
    known: Sequence[Facts],
    fs: FileSystem,
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
    # Before any is opened, so that the order does not depend on which can be read.
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
    new_files = NewFiles(choice, now_ns, listing.learned, contents, statistics)
    open_new(known, fs, listed, ready, new_files)
    # Young files first, as they were decided first: messages are in one order.
    new_files.skipped[:0] = young
    # All problems of the listing are in one message: a person corrects them in one go.
    refuse_found(
        [] if choice.ignore_rewritten else rewritten, new_files.copies, new_files.unproven_moves
    )
    set_aside(new_files, choice)
    waiting = {file.url for file in ready} | {skipped.url for skipped in young}
    wanted = waiting - new_files.settled_urls()
    facts = [
        _facts_of(file, why)
        for file, why in new_files.unreadable
        if file.url not in listing.skipped
    ]
    return Arrivals(
        shard_set(fs, [*new_files.shards.values()]),
        tuple(new_files.skipped),
        tuple(facts),
        tuple(new_files.renamed.items()),
        touched,
        tuple(accepted),
        tuple(
            notes_of(new_files, listing.deleted, listing.left_out, touched, rewritten, late, choice)
        ),
        tuple(file for file in listing.new if file.url in wanted),
    )


def _divide(known: Sequence[Facts], listed: Sequence[Listed], *, retry: bool) -> _Divided:
    learned = {str(one["url"]): at for at, one in enumerate(known) if "skipped" not in one}
    skipped = {str(one["url"]) for one in known if "skipped" in one} - learned.keys()
    new: list[Listed] = []
    changed: list[tuple[int, Listed]] = []
    left_out = there = 0
    for file in listed:
        number = learned.get(file.url)
        if number is not None:
            # Also of changed files: what is counted is which learned ones still exist.
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
    return _Divided(new, changed, learned, skipped, left_out, max(0, len(learned) - there - tables))


def _is_same(facts: Facts, file: Listed) -> bool:
    """Whether the listing alone shows that a learned shard did not change."""
    # A size below 0 is not known, so the listing shows nothing.
    if facts.get("size") != file.size or file.size < 0:
        return False
    if is_of_table(file):  # whose files are never written again
        return True
    # Before the time: a store copies objects with new times and equal ETags.
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
        # A later update learns them.
        if choice.until_ns is not None and (file.mtime_ns or 0) > choice.until_ns:
            late += 1
        elif why := youth(file, file.mtime_ns, choice, now_ns):
            young.append(SkippedShard(file.url, why, origin=file.origin))
        else:
            ready.append(file)
    return ready, young, late


def _order(arrival: str) -> Callable[[Listed], Any]:
    """Sort key of new files. A table's version comes first; all others have the same."""

    def by_path(file: Listed) -> Any:
        return file.version, natural_key(file.name), path_key(file.origin or file.path)

    def by_time(file: Listed) -> Any:
        return file.version, file.mtime_ns, *by_path(file)[1:]

    return by_time if arrival == "modified" else by_path


def _reread(
    known: Sequence[Facts],
    fs: FileSystem,
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
            text = f"it cannot be read now ({reason_of(shard, file)})"
            rewritten.append(Difference(number, file.url, text, refused=True))
            continue
        facts = known[number]
        # Footers first: they are small, and most rewritten files differ in them.
        differences = compare([facts], [shard.fingerprint()])
        texts = [one.text for one in differences if one.refused]
        try:
            compared = Comparison(None) if texts else contents.compare(shard, facts, number)
        except (ChangedDataError, InputNotFoundError):  # the next listing shows it
            continue
        except DataError as error:
            texts = [f"it cannot be read now ({reason_of(error, file)})"]
        else:
            texts += [f"{compared.by}, with the same footer"] if compared.equal is False else []
        rewritten += [Difference(number, file.url, text, refused=True) for text in texts]
        if not texts:
            # The time as it is listed, so that the next listing shows the same.
            times = {"mtime_ns": file.mtime_ns, "etag": file.etag}
            touched.append((number, shorten_facts({**facts, **times})))
    return tuple(touched), rewritten


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
            skipped.append(SkippedShard(url, why, origin=files[url].origin))
            continue
        why = reason_of(error, files[url])
        skipped.append(SkippedShard(url, why, True, files[url].origin))
        facts += [_facts_of(files[url], why)] if url not in recorded else []
    settled = {one.url for one in skipped if one.recorded}
    shards = tuple(shard for shard in found.shards if shard.url not in bad)
    return found._replace(
        shards=replace(found.shards, shards=shards),
        skipped=(*found.skipped, *skipped),
        skipped_facts=(*found.skipped_facts, *facts),
        notes=(*skipped_notes(skipped), *found.notes),
        unlearned=tuple(file for file in found.unlearned if file.url not in settled),
    )


def _facts_of(file: Listed, why: str) -> Facts:
    """The ledger entry of a file that cannot be read."""
    own: dict[str, Any] = {"mtime_ns": file.mtime_ns, "etag": file.etag}
    if is_of_table(file) and file.columns is None:  # as ``skipped_of_tables`` lists it again
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
        # Only tables record partitions of what they skip; other files are listed again.
        if partitions is None or url in others or not url.startswith(roots):
            continue
        path, name = PathPattern(url, listing.fs).path, str(one.get("name", ""))
        values = tuple((column, text) for column, text in partitions)
        size = int(one.get("size", -1))
        found[url] = Listed(path, url, name, size, partitions=values, version=(0, at))
    return [*found.values()]
