"""A model as a notebook shows it: tables of HTML, in which every text is escaped."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any

from streamomd.core.wording import counted
from streamomd.training.progress import show

TOP = 10
"""The heaviest coordinates that are shown."""
MOST_LEARNERS = 8
"""Columns of weights; a model of more classes shows those of the first."""
_METRICS = ("loss", "error", "auc", "rmse", "mae", "r2")


def html_of(summary: Mapping[str, Any], heaviest: Sequence[Mapping[str, Any]]) -> str:
    """summary: as ``Model.summary`` returns it. heaviest: as ``Model.inspect``."""
    url = summary["checkpoint"]["url"] or "not saved"
    commit = summary["checkpoint"]["sequence"]
    head = [
        ("rule", summary["rule"]),
        ("rows", f"{summary['rows']:,}"),
        *((name, show(summary[name])) for name in _METRICS if summary.get(name) is not None),
        ("checkpoint", url if url == "not saved" else f"{url}, commit {commit}"),
    ]
    weights = [
        (one["name"], *(f"{weight:.4g}" for weight in one["weight"][:MOST_LEARNERS]))
        for one in heaviest
    ]
    title = f"{counted(len(weights), 'coordinate')} of the largest weights"
    return f"{_table('Model', head)}{_table(title, weights)}"


def _table(caption: str, rows: Iterable[Sequence[str]]) -> str:
    lines = "".join(
        f"<tr><th>{escape(str(row[0]))}</th>"
        f"{''.join(f'<td>{escape(str(cell))}</td>' for cell in row[1:])}</tr>"
        for row in rows
    )
    return f"<table><caption>{escape(caption)}</caption>{lines}</table>"
