"""Compare the shards of a run with those it started with, field by field."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from streamomd.checkpoint.segments import shorten_facts
from streamomd.core.urls import shown

CONTENT = ("format", "size", "rows", "row_groups", "groups", "schema", "footer_sha256", "key")
ADVISORY = ("etag", "mtime_ns")
"""Fields that change when a file is copied; alone they do not show changed rows."""
MAX_LINES = 10
Fingerprint = Mapping[str, Any]


class Difference(NamedTuple):
    """A changed shard. position: in the order of the run, or in the new order if it is new."""

    position: int
    url: str
    text: str
    refused: bool


def compare(
    saved: Sequence[Fingerprint], found: Sequence[Fingerprint], *, accept_new: bool = False
) -> list[Difference]:
    """Every difference between two lists of fingerprints, or of facts of a ledger, in read order.

    A copied file (another time or ETag, the same footer and size) is reported but not refused, and
    so are new shards after the last if ``accept_new``. All other changes are refused.
    """
    saved, found = (
        [shorten_facts(facts) for facts in saved],
        [shorten_facts(facts) for facts in found],
    )
    differences = [
        difference
        for position, (before, after) in enumerate(zip(saved, found, strict=False))
        if before["url"] == after["url"]
        for difference in _changes(position, before, after)
    ]
    if [facts["url"] for facts in saved] == [facts["url"] for facts in found[: len(saved)]]:
        return differences + list(_added(len(saved), found, refused=not accept_new))
    return differences + list(_moves(saved, found))


def explain(differences: Sequence[Difference]) -> str:
    """At most ten differences, one per line."""
    lines = [
        f"shard {one.position} {shown(one.url)}: {one.text}" for one in differences[:MAX_LINES]
    ]
    if len(differences) > MAX_LINES:
        lines.append(f"and {len(differences) - MAX_LINES} more")
    return "\n".join(lines)


def _changes(position: int, before: Fingerprint, after: Fingerprint) -> Iterator[Difference]:
    changed = [key for key in CONTENT if before.get(key) != after.get(key)]
    noted = [key for key in ADVISORY if before.get(key) != after.get(key)]
    if changed:
        shown_keys = [key for key in changed if key != "row_groups" or "groups" not in changed]
        text = "; ".join(_change(key, before, after) for key in shown_keys)
        yield Difference(position, after["url"], text, refused=True)
    elif noted:
        text = f"copied or touched ({', '.join(noted)} changed), with the same footer and size"
        yield Difference(position, after["url"], text, refused=False)


def _added(start: int, found: Sequence[Fingerprint], *, refused: bool) -> Iterator[Difference]:
    hint = "; pass --accept-new-shards to continue with it" if refused else ""
    for position in range(start, len(found)):
        text = f"new, after the last{hint}"
        yield Difference(position, found[position]["url"], text, refused=refused)


def _moves(saved: Sequence[Fingerprint], found: Sequence[Fingerprint]) -> Iterator[Difference]:
    """The URLs or their order differ: shards removed, inserted, or moved."""
    before, after = [facts["url"] for facts in saved], [facts["url"] for facts in found]
    stayed, there = set(before) & set(after), set(after)
    for position, url in enumerate(before):
        if url not in there:
            yield Difference(position, url, "removed", refused=True)
    for position, url in enumerate(after):
        if url not in stayed:
            yield Difference(
                position, url, "new, not after the last of an unchanged list", refused=True
            )
    kept_order, new_order = (
        [url for url in before if url in stayed],
        [url for url in after if url in stayed],
    )
    for position, url in enumerate(kept_order):
        if position >= len(new_order) or new_order[position] != url:
            yield Difference(
                before.index(url), url, "not at its position in the order", refused=True
            )


def _change(key: str, before: Fingerprint, after: Fingerprint) -> str:
    old, new = before.get(key), after.get(key)
    if key == "schema":
        return _schema_change(old or (), new or ())
    if key in ("groups", "row_groups"):
        return f"row groups {_groups(before)} -> {_groups(after)}"
    if key in ("footer_sha256", "key"):
        return f"{key.removesuffix('_sha256')} {str(old)[:12]} -> {str(new)[:12]}"
    return f"{key} {old} -> {new}"


def _groups(facts: Fingerprint) -> str:
    rows, count = facts.get("groups", ()), facts.get("row_groups", 0)
    some = ", ".join(str(one) for one in rows)
    return f"[{some}{', …' if count > len(rows) else ''}] ({count})"


def _schema_change(before: Sequence[Any], after: Sequence[Any]) -> str:
    """The first column that differs, by position; columns are [name, type, nullable]."""
    for old, new in zip(before, after, strict=False):
        if old != new:
            return f"column {_column(old)} -> {_column(new)}"
    longer, sign = (before, "-") if len(before) > len(after) else (after, "+")
    position = min(len(before), len(after))
    return f"column {sign}{_column(longer[position])}"


def _column(column: Sequence[Any]) -> str:
    name, kind, nullable = column
    return f"{name} {kind}{'' if nullable else ' not null'}"
