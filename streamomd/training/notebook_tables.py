"""Tables of a notebook: what a model is, and its coordinates."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any

from streamomd.core.wording import counted
from streamomd.training.progress import show

MOST_LEARNERS = 8
"""Columns of weights; a table of more classes shows those of the first."""
_METRICS = ("loss", "error", "auc", "rmse", "mae", "r2")


class Coordinates(list[dict[str, Any]]):
    """Coordinates as ``model_data.heaviest`` returns them; in a notebook a table."""

    def _repr_html_(self) -> str:
        """Names, and each learner's weight with its standard error where that is known."""
        rows = []
        for one in self:
            errors = one.get("error", [None] * len(one["weight"]))
            both = zip(one["weight"], errors, strict=True)
            cells = [f"{w:.4g}" if error is None else f"{w:.4g} ± {error:.2g}" for w, error in both]
            rows.append((one["name"], *cells[:MOST_LEARNERS]))
        return _table(f"{counted(len(rows), 'coordinate')} of the largest weights", rows)


def model_table(summary: Mapping[str, Any], verdict: Mapping[str, str]) -> str:
    """summary: as ``Model.summary`` returns it. verdict: its level and text, as in a report."""
    url = summary["checkpoint"]["url"] or "not saved"
    commit = summary["checkpoint"]["sequence"]
    rows = [
        ("rule", summary["rule"]),
        ("rows", f"{summary['rows']:,}"),
        *((name, show(summary[name])) for name in _METRICS if summary.get(name) is not None),
        ("checkpoint", url if url == "not saved" else f"{url}, commit {commit}"),
    ]
    return f"{_table('Model', rows)}<p>{escape(verdict['text'])}</p>"


def _table(caption: str, rows: Iterable[Sequence[str]]) -> str:
    lines = "".join(
        f"<tr><th>{escape(str(row[0]))}</th>"
        f"{''.join(f'<td>{escape(str(cell))}</td>' for cell in row[1:])}</tr>"
        for row in rows
    )
    return f"<table><caption>{escape(caption)}</caption>{lines}</table>"
