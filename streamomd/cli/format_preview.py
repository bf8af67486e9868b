"""What ``streamomd plan`` prints."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from streamomd.cli.formatting import table
from streamomd.core.urls import shown

MOST = 40  # columns, of which each has a line


def planned(found: Mapping[str, Any], command: str) -> str:
    """What a job would do, in lines, and what to type next."""
    unit = found["unit"]
    return "\n".join(
        [
            *found["plan"],
            f"{found['rows']:,} rows in {found['shards']:,} shards, {_bytes(found['bytes'])}",
            "",
            *_columns(found["columns"], unit["rows"]),
            f"seen in the first {unit['rows']:,} rows, from {shown(unit['shard'])} on",
            "",
            *_hashed(found["hashed"]),
            *_memory(found["memory"]),
            *_time(found["time"]),
            "next:",
            f"  {command}",
        ]
    )


def _columns(columns: Sequence[Mapping[str, Any]], rows: int) -> list[str]:
    shown_ones = [
        {
            **{key: one[key] for key in ("name", "type", "kind")},
            "coordinates": _count(one["coordinates"]),
            f"in {rows:,} rows": _count(one["seen"]),
            "in all": _count(one["expected"]),
        }
        for one in columns[:MOST]
    ]
    more = len(columns) - MOST
    return [table(shown_ones), *([f"… {more} more (--json has all)"] if more > 0 else [])]


def _hashed(hashed: Mapping[str, Any] | None) -> list[str]:
    if hashed is None:
        return []
    lines = [
        f"hashed values: {hashed['seen']:,} seen, about {hashed['expected']:,} expected, on about "
        f"{hashed['used_expected']:,.0f} of 2^{hashed['bits']} coordinates",
        f"expected to share one: {_few(hashed['share_seen'])} of those seen, "
        f"{_few(hashed['share_expected'])} of all",
    ]
    if hashed["share_expected"] > 0.1 * hashed["expected"]:
        more = hashed["bits"] + 2
        lines.append(f"more than a tenth: data.bits = {more} would give four times as many")
    return lines


def _memory(memory: Mapping[str, Any]) -> list[str]:
    copied = f" and as much for its copy in commits ({_bytes(memory['copy'])})"
    needed = memory["state"] + memory["copy"] + memory["decoding"]
    free = f"; {_bytes(memory['free'])} can be had" if memory["free"] < 2**60 else ""
    lines = [
        f"memory: state {_bytes(memory['state'])}{copied if memory['copy'] else ''}, rows on their "
        f"way up to {_bytes(memory['decoding'])}{free}"
    ]
    if needed > memory["free"]:
        lines.append("that is more than can be had: lower data.bits, or take model.dtype float32")
    return lines


def _time(time: Mapping[str, Any]) -> list[str]:
    decoding = f"{1e6 * time['decode_per_row']:.2f} µs a row to read and decode"
    if time["seconds"] is None:
        return [f"time: {decoding}; the state is too large to try learning"]
    learning = f"{1e6 * time['learn_per_row']:.2f} to learn"
    return [
        f"time: about {_seconds(time['seconds'])} for {time['epochs']} "
        f"epoch{'s' if time['epochs'] > 1 else ''} in one process on {time['cores']} cores, after "
        f"{time['compile_seconds']:.1f} s of compiling ({decoding}, {learning})"
    ]


def _count(number: int | None) -> str:
    return "" if number is None else f"{number:,}"


def _few(number: float) -> str:
    return f"{number:,.0f}" if number >= 10 else f"{number:.2g}"


def _seconds(seconds: float) -> str:
    """A time as a person says it.

    >>> _seconds(0.25), _seconds(75), _seconds(7_500), _seconds(200_000)
    ('0.25 s', '75 s', '125 min', '55.6 h')
    """
    if seconds < 180:
        return f"{seconds:.3g} s"
    return f"{seconds / 60:.0f} min" if seconds < 10_800 else f"{seconds / 3600:.1f} h"


def _bytes(number: float) -> str:
    """A size as a person says it.

    >>> _bytes(800), _bytes(3 << 20), _bytes(5 << 30)
    ('800 bytes', '3.0 MiB', '5.0 GiB')
    """
    for size, unit in ((2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB")):
        if number >= size:
            return f"{number / size:.1f} {unit}"
    return f"{number:.0f} bytes"
