"""What an update prints and refuses of the files that it found."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from streamomd.checkpoint.ledger import Difference, explain
from streamomd.core.errors import (
    DataError,
    ResumeRefusedError,
)
from streamomd.core.urls import shown
from streamomd.core.wording import counted

if TYPE_CHECKING:
    pass
from streamomd.sources.new_files import Choice, NewFiles, SkippedShard

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


def set_aside(found: NewFiles, choice: Choice) -> None:
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


def _it(count: int) -> str:
    return "it" if count == 1 else "them"


def skipped_notes(skipped: Sequence[SkippedShard]) -> Iterable[str]:
    """Lines on shards that are skipped."""
    for one in skipped[:MOST_LINES]:
        yield f"skipped {shown(one.url)}: {one.reason}"
    if len(skipped) > MOST_LINES:
        yield f"and {len(skipped) - MOST_LINES:,} more skipped"


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
    if left_out:
        count = counted(left_out, "shard")
        yield f"{count} skipped by an earlier update; --retry-skipped tries again"
    if late:
        yield f"{counted(late, 'new shard')} modified after the time of --until"
    if found.waiting:
        count = counted(found.waiting, "more new shard")
        yield f"{count} not taken: --max-shards {choice.max_shards}"
