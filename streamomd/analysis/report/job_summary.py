"""The job on the page: its keys, shards and commits."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any
from xml.etree.ElementTree import Element

from streamomd.analysis.history import History
from streamomd.analysis.report.axes import brief
from streamomd.analysis.report.markup import element, folded, paragraph, section, table
from streamomd.config.spec import Spec
from streamomd.core.counted import counted
from streamomd.core.urls import shown
from streamomd.features import describe
from streamomd.training.model import Model

MOST_SHARDS = 20


def job_section(model: Model, run_history: History) -> Element:
    """Columns, keys, shards and commits."""
    lines = [element("li", line) for line in describe(model.plan)]
    return section(
        "Job and data",
        element("ul", *lines),
        *_shards(run_history),
        *_commits(run_history),
        element("h3", "The job"),
        *_job(model.spec),
    )


def _job(spec: Spec) -> list[Element]:
    """The keys that are not the default's, and all others to open."""
    plain = dict(_keys(Spec().to_json()))
    keys = list(_keys(spec.to_json()))
    own = [(key, value) for key, value in keys if plain.get(key) != value]
    others = [(key, value) for key, value in keys if plain.get(key) == value]
    heads = ["key", "value"]
    rest = table(heads, others, label="Keys of the job with default values", wraps=True)
    return [
        table(heads, own, label="Keys of the job", wraps=True),
        folded(f"{counted(len(others), 'key')} with the default value", rest),
    ]


def _keys(tables: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, str]]:
    for name, value in tables.items():
        if isinstance(value, Mapping):
            yield from _keys(value, f"{above}{name}.")
        elif value not in ("", [], None):
            yield f"{above}{name}", _text(value)


def _text(value: Any) -> str:
    if isinstance(value, list):
        some = ", ".join(_text(one) for one in value[:MOST_SHARDS])
        return some + (f", … {len(value) - MOST_SHARDS} more" if len(value) > MOST_SHARDS else "")
    if isinstance(value, Mapping):
        return ", ".join(f"{key} = {_text(one)}" for key, one in value.items())
    return str(value).lower() if isinstance(value, bool) else str(value)


def _shards(run_history: History) -> list[Element]:
    if not run_history.shards:
        return []
    size = sum(int(shard.get("size") or 0) for shard in run_history.shards)
    some = [
        (shown(str(one["url"])), f"{one.get('rows') or 0:,}", f"{brief(one.get('size') or 0)}B")
        for one in run_history.shards[:MOST_SHARDS]
    ]
    text = f"{counted(len(run_history.shards), 'shard')}, {counted(run_history.rows, 'row')}, "
    text += f"{brief(size)}B."
    if len(run_history.shards) > MOST_SHARDS:
        text += f" The first {MOST_SHARDS}:"
    return [
        element("h3", "Shards"), paragraph(text),
        table(["shard", "rows", "size"], some, numbers=(1, 2), label="Shards"),
    ]  # fmt: skip


def _commits(run_history: History) -> list[Element]:
    rows = []
    for one in run_history.commits:
        when = f"{one.written:%Y-%m-%d %H:%M:%S}"
        rows.append((f"{one.sequence}", f"{one.rows:,}", when, f"{brief(one.nbytes)}B"))
    if not rows:
        return []
    text = f"Written by streamomd {run_history.version} on {run_history.host}, "
    text += f"in a process started {run_history.started}."
    rows_table = table(
        ["commit", "rows", "written (UTC)", "size"], rows, numbers=(0, 1, 3), label="Commits"
    )
    return [element("h3", "Commits"), paragraph(text), rows_table]
