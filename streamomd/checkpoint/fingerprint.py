"""Comparing the shards a run was begun on with those found on resume, field by field."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from streamomd.urls import shown

Fingerprint = Sequence[Mapping[str, Any]]

PROOF = ("url", "format", "size", "rows", "groups", "schema", "footer_sha256")
ADVICE = ("etag", "mtime_ns")
MOST = 10


@dataclass(frozen=True)
class Difference:
    """One field that differs, and whether that is a reason to refuse."""

    place: int
    url: str
    text: str
    refused: bool


def compare(saved: Fingerprint, found: Fingerprint, *, accept_new: bool) -> list[Difference]:
    """What differs between two data sets in read order.

    A changed time or tag with the same size and footer is a note. New shards after the last are
    accepted where they are asked for; anything else is refused.
    """
    differences: list[Difference] = []
    for place, (old, new) in enumerate(zip(saved, found, strict=False)):
        differences += _compare_one(place, old, new)
    for place in range(len(found), len(saved)):
        differences.append(Difference(place, saved[place]["url"], "is not there any more", True))
    for place in range(len(saved), len(found)):
        text = "is new" if accept_new else "is new; --accept-new-shards reads it after the others"
        differences.append(Difference(place, found[place]["url"], text, not accept_new))
    return differences


def explain(differences: Sequence[Difference]) -> str:
    """A line each, the first ten."""
    lines = [f"  shard {one.place}, {shown(one.url)}: {one.text}" for one in differences[:MOST]]
    if len(differences) > MOST:
        lines.append(f"  … and {len(differences) - MOST} more")
    return "\n".join(lines)


def _compare_one(place: int, old: Mapping[str, Any], new: Mapping[str, Any]) -> list[Difference]:
    if old["url"] != new["url"]:
        text = f"stands where {shown(old['url'])} was"
        return [Difference(place, new["url"], text, True)]
    found = []
    for key in (*PROOF, *ADVICE):
        if old[key] != new[key]:
            text = f"{key} was {_short(old[key])}, is {_short(new[key])}"
            found.append(Difference(place, new["url"], text, key in PROOF))
    return found


def _short(value: Any) -> str:
    text = str(value)
    return text if len(text) <= 60 else f"{text[:57]}…"
