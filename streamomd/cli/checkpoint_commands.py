"""Commands for the commits of a checkpoint: list, verify, shards, restore."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import click

from streamomd.cli import formatting
from streamomd.cli.command_group import CODES, guarded, main
from streamomd.cli.options import checkpoint_options, read_options_file, url
from streamomd.core.urls import shown, typed
from streamomd.core.wording import counted

MOST_LINES = 20
"""Shards printed of a ledger: the first and the last ones."""
MOST_UNDONE = 8


@main.group()
def checkpoint() -> None:
    """List, verify or restore the commits of a checkpoint, or list its shards."""


@checkpoint.command("list", epilog=CODES)
@url
@checkpoint_options
@guarded
def list_commits(url: str, checkpoint_storage_options: str) -> tuple[Any, str]:
    """List every commit: sequence, rows, time, and whether it can be used."""
    return _commits(url, checkpoint_storage_options, deep=False)


@checkpoint.command("verify", epilog=CODES)
@url
@checkpoint_options
@guarded
def verify_commits(url: str, checkpoint_storage_options: str) -> tuple[Any, str]:
    """Read every byte of every commit, compare hashes, and look for NaN and infinities."""
    return _commits(url, checkpoint_storage_options, deep=True)


def _commits(url: str, checkpoint_storage_options: str, *, deep: bool) -> tuple[Any, str]:
    from streamomd.checkpoint import list_commits, list_temporary_files, open_store
    from streamomd.core.errors import CorruptionError, DivergedError
    from streamomd.core.finite import NOT_FINITE

    store = open_store(url, read_options_file(checkpoint_storage_options))
    found = list_commits(store, deep=deep)
    text, temporary = formatting.format_table(found), list_temporary_files(store) if deep else []
    if temporary:
        text += "\n" + formatting.format_temporary_files(temporary)
    problems = [one["problem"] for one in found if not one["ok"]]
    if deep and problems:
        diverged = all(problem.startswith(NOT_FINITE) for problem in problems)
        raise (DivergedError if diverged else CorruptionError)(text)
    return {"commits": found, **({"temporary": temporary} if deep else {})}, text


@checkpoint.command("shards", epilog=CODES)
@url
@checkpoint_options
@guarded
def list_shards(url: str, checkpoint_storage_options: str) -> tuple[Any, str]:
    """List the shards of a run in learned order, with the update that learned each.

    sequence is the first commit that lists the shard. Shards that were skipped because they cannot
    be read follow, with the reason.
    """
    from streamomd.checkpoint import list_ledger, open_store

    found = list_ledger(open_store(url, read_options_file(checkpoint_storage_options)))
    return found, "\n".join(_ledger_lines(found))


@checkpoint.command("restore", epilog=CODES)
@url
@click.option(
    "--at",
    type=int,
    required=True,
    metavar="N",
    help="Sequence of the commit; see checkpoint list.",
)
@checkpoint_options
@guarded
def restore_commit(url: str, at: int, checkpoint_storage_options: str) -> tuple[Any, str]:
    """Make commit N the newest again, with its ledger: undo what was learned since.

    \b
      streamomd checkpoint list runs/bank
      streamomd checkpoint restore runs/bank --at 12

    Another commit repeats it, so that resume, update and predict use it, and running writers stop.
    The later commits stay until retention deletes them. Shards that were learned since count as new
    again: remove or repair the bad ones before the next update.
    """
    from streamomd.checkpoint import open_store, restore_commit

    store = open_store(url, read_options_file(checkpoint_storage_options))
    restored = restore_commit(store, at)
    place = {"url": store.url, "sequence": restored.sequence}
    result = {**restored.to_json(), "checkpoint": place}
    del result["sequence"]
    return result, "\n".join(_restored_lines(result))


def _ledger_lines(found: Mapping[str, Any]) -> Iterator[str]:
    """Counts, and a table of the first and the last shards."""
    shards, skipped = found["shards"], found["skipped"]
    half = MOST_LINES // 2
    lines = [{**shard, "url": shown(shard["url"])} for shard in shards]
    table = formatting.format_table([*lines[:half], *lines[half:][-half:]]).splitlines()
    if len(lines) > MOST_LINES:
        table.insert(1 + half, f"… {len(lines) - MOST_LINES:,} more; --json lists all")
    yield from table
    if skipped:
        yield ""
        yield formatting.format_table(
            [{**shard, "url": shown(shard["url"])} for shard in skipped[:MOST_LINES]]
        )
        if len(skipped) > MOST_LINES:
            yield f"… {len(skipped) - MOST_LINES:,} more skipped; --json lists all"
    yield ""
    rows = sum(shard["rows"] or 0 for shard in shards)
    updates = len({shard["update"] for shard in shards} - {0})
    parts = [f"{counted(len(shards), 'shard')} ({counted(rows, 'row')})"]
    parts += [f"{counted(updates, 'update')} after the first run"] if updates else []
    parts += [f"{len(skipped):,} skipped"] if skipped else []
    yield ", ".join(parts)


def _restored_lines(result: Mapping[str, Any]) -> Iterator[str]:
    """What is the newest commit now, what it undid, and what to do next."""
    url, sequence = result["checkpoint"]["url"], result["checkpoint"]["sequence"]
    rows, updates, shards = (result[f"undone_{key}"] for key in ("rows", "updates", "shards"))
    of = f" of update {result['update']}" if result["update"] else ""
    yield (
        f"commit {sequence} of {shown(url)} repeats commit {result['at']}{of}, after "
        f"{counted(result['rows'], 'row')}"
    )
    if rows is None:
        yield "the newest commit could not be read; what it had learned since is undone"
    elif rows < 0:
        yield f"restored: {counted(-rows, 'row')} that an earlier restore had undone"
    else:
        which = f" of {_range(updates)}" if updates else ""
        yield f"undone: {counted(rows, 'row')}{which}, {counted(len(shards), 'shard')}"
        yield from (f"  {shown(undone)}" for undone in shards[:MOST_UNDONE])
        if len(shards) > MOST_UNDONE:
            yield f"  and {len(shards) - MOST_UNDONE:,} more"
    if shards:
        yield "These shards count as new again: remove or repair bad ones, then"
        yield f"  streamomd update {typed(url)}"


def _range(updates: list[int]) -> str:
    first, last = updates[0], updates[-1]
    if not last:
        return "the first run"
    return f"update {first}" if first == last else f"updates {first or 1} to {last}"
