"""All labels of a job's shards, counted: which classes there are, before a run learns a row."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from typing import Any

from streamomd.config.spec import Spec
from streamomd.core.urls import printable
from streamomd.core.wording import counted
from streamomd.features.classes import FEWEST_ROWS, targets
from streamomd.runs.session import Session
from streamomd.shards.distinct_values import count_labels
from streamomd.training.progress import note

MOST_CLASSES = 1000


def scan_labels(
    job: str | Mapping[str, Any] | Spec | None = None,
    *,
    storage_options: Mapping[str, Any] | None = None,
    sets: Mapping[str, Any] | None = None,
    **flags: Any,
) -> dict[str, Any]:
    """The rows of each label: label, rows, missing, values, by_value (the most frequent first,
    ``MOST_CLASSES`` at most), rare (values of under 5 rows), classes (a line of a job file, "" if
    the labels are those of a regression) and regression (why they are, or "").

    Arguments as in ``streamomd.train``. Reads the label column of every shard. Raises what
    ``train`` raises for a job and its shards.
    """
    session = Session.open(job, {**flags, "storage_options": storage_options}, sets)
    column = session.spec.data.label
    note(f"reading {printable(column)!r} of {counted(session.shards.rows, 'row')} …")
    counts, missing = count_labels(session.shards, column)
    values = Counter(counts).most_common(MOST_CLASSES)
    regression = targets(counts) or (
        f"it has {len(counts):,} distinct values" if len(counts) > MOST_CLASSES else ""
    )
    return {
        "label": column,
        "rows": sum(counts.values()) + missing,
        "missing": missing,
        "values": len(counts),
        "by_value": [{"value": value, "rows": rows} for value, rows in values],
        "rare": sorted(value for value, rows in counts.items() if rows < FEWEST_ROWS),
        "classes": "" if regression or len(counts) < 2 else _line(counts),
        "regression": regression,
    }


def _line(found: Mapping[Any, int]) -> str:
    """The classes as a line of a job file, in the order of a run."""
    texts = (json.dumps(value, ensure_ascii=False) for value in sorted(found))
    return f"classes = [{', '.join(texts)}]"
