"""Results as text for a terminal."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from streamomd.urls import typed

MOST = 12  # columns named on a line
SHARDS_SHOWN = 8


def as_json(result: Any) -> Any:
    """A result as JSON can say it: a number that is not finite is null."""
    if isinstance(result, dict):
        return {key: as_json(value) for key, value in result.items()}
    if isinstance(result, list | tuple):
        return [as_json(value) for value in result]
    return None if isinstance(result, float) and not math.isfinite(result) else result


def figures(result: Mapping[str, Any]) -> str:
    """Rows, loss and error in a line."""
    parts = [f"{result['rows']:,} rows"]
    known = [name for name in ("loss", "error", "rmse") if result[name] is not None]
    parts += [f"{name} {result[name]:.6f}" for name in known]
    if result["loss"] is None:
        parts.append("loss is not a finite number: try a smaller eta, or is every weight 0?")
    parts.append(f"{result['seconds']:.2f} s ({result['rows_per_second']:,.0f} rows/s)")
    return ", ".join(parts)


def trained(result: Mapping[str, Any], shards: Sequence[str]) -> str:
    """The result of a run, and what to type next."""
    url = result["checkpoint"]["url"]
    lines = [figures(result)]
    if not url:
        return lines[0]
    url = typed(url)
    data = " ".join(map(typed, shards)) if len(shards) <= SHARDS_SHOWN else "SHARDS"
    lines += [
        f"kept in {url}, commit {result['checkpoint']['sequence']}",
        f"state {result['state_sha256']}",
        "next:",
        f"  streamomd inspect {url}",
        f"  streamomd predict {url} {data} --to predictions/",
        f"  streamomd resume {url} --epochs {len(result['epochs']) + 1}",
    ]
    return "\n".join(lines)


def inspected(result: Mapping[str, Any]) -> str:
    """A model's summary and its heaviest coordinates."""
    lines = [f"{key}: {value}" for key, value in result.items() if key != "top"]
    rows = [
        {
            "coordinate": one["coordinate"],
            "name": one["name"],
            "weight": " ".join(f"{weight:.6g}" for weight in one["weight"]),
            **{
                name: " ".join(f"{number:.6g}" for number in slot)
                for name, slot in one["slots"].items()
                if name != "w"
            },
        }
        for one in result["top"]
    ]
    return "\n".join([*lines, "", table(rows)])


def table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Rows in columns, one a key."""
    if not rows:
        return "(none)"
    keys: list[str] = max(([*row] for row in rows), key=len)
    cells = [keys, *([str(row.get(key, "")) for key in keys] for row in rows)]
    widths = [max(len(row[at]) for row in cells) for at in range(len(keys))]
    form = "  ".join(f"{{:<{width}}}" for width in widths)
    return "\n".join(form.format(*row).rstrip() for row in cells)


def converted(result: Mapping[str, Any]) -> str:
    """What was written, and what to type next."""
    files, names = result["shards"], result["columns"]
    folder = files[0].rpartition("/")[0] if files else ""
    return "\n".join(
        [
            f"{result['rows']:,} rows in {len(files)} shards, {result['seconds']:.1f} s",
            f"columns: {', '.join(names[:MOST])}{', …' if len(names) > MOST else ''}",
            "next:",
            f"  streamomd train {folder} {_flags(names, result['size'])}",
        ]
    )


def _flags(columns: Sequence[str], size: int | None) -> str:
    """How to learn what ``convert`` wrote: its sparse pair comes last, and needs to be named."""
    if size is None:
        return "--label COLUMN"
    weight = "--weight weight " if "weight" in columns else ""
    indices, values = columns[-2:]
    return f'--label label {weight}--set \'data.sparse={{indices="{indices}", values="{values}"}}\''


def rules() -> list[dict[str, Any]]:
    """Every rule, for a table."""
    from streamomd.rules import all_rules

    return [
        {
            "name": rule.name,
            "what": rule.title,
            "params": ", ".join(f"{key}={value}" for key, value in rule.parse_params({}).items()),
            "losses": ", ".join(rule.losses) or "all",
            "modes": ", ".join(rule.modes),
            "source": rule.source,
        }
        for rule in all_rules().values()
    ]


def losses() -> list[dict[str, Any]]:
    """Every loss, for a table."""
    from streamomd.losses import all_losses

    return [
        {
            "name": loss.name,
            "what": loss.title,
            "task": "classify" if loss.classifies else "regress",
            "also": ", ".join(loss.aliases),
        }
        for loss in all_losses().values()
    ]


def formats() -> list[dict[str, Any]]:
    """What can be read, for a table."""
    return [
        {"name": "parquet", "what": "shards; .parquet", "read by": "train, evaluate, predict"},
        {"name": "arrow", "what": "shards; Arrow IPC files", "read by": "train, evaluate, predict"},
        {"name": "csv", "what": "text, also .gz, .bz2, .xz", "read by": "convert"},
        {"name": "svmlight", "what": "text: label i:v i:v", "read by": "convert"},
        {"name": "vw", "what": "Vowpal Wabbit text: label |ns f:v", "read by": "convert"},
    ]


def modes() -> list[dict[str, Any]]:
    """The ways to walk the rows, for a table."""
    return [
        {
            "name": "exact",
            "what": "one learner, every row in order; other threads decode ahead",
            "bits": "the same however batches, shards and interruptions fall",
        }
    ]


LISTS: dict[str, Callable[[], list[dict[str, Any]]]] = {
    "rules": rules,
    "losses": losses,
    "formats": formats,
    "modes": modes,
}
