"""describe: a plan in lines for a person, printed before the first row is learned."""

from __future__ import annotations

from streamomd.core.urls import printable
from streamomd.core.wording import counted, listed
from streamomd.features.plan import COUNTED, Partition, Plan, Text, number_name


def describe(plan: Plan) -> list[str]:
    """What a plan makes of each column."""
    weight = f"; weight {plan.weight!r}" if plan.weight else ""
    weight += f"; time {plan.time!r}, in UTC" if plan.time else ""
    lines = [f"label {plan.label!r} ({plan.label_type}): {_task(plan)}{weight}"]
    if plan.partitions:
        lines.append(f"columns of directories: {_list(tuple(map(_partition, plan.partitions)))}")
    if plan.numeric:
        lines.append(f"numeric, one coordinate each ({len(plan.numeric)}): {_list(plan.numeric)}")
    lines += [f"vector {v.column!r}: {v.width:,} coordinates" for v in plan.vectors]
    if plan.curves:
        curved = tuple(number_name(plan, curve.place) for curve in plan.curves)
        lines.append(f"curved, {plan.hats:,} coordinates more ({len(curved)}): {_list(curved)}")
    if plan.hashed:
        into = f"hashed into 2^{plan.bits} coordinates ({len(plan.hashed)})"
        lines.append(f"{into}: {_list(plan.hashed)}")
        if plan.hashed_lists:
            lines.append(f"each element of a list is a category: {_list(plan.hashed_lists)}")
    lines += [f"date {date.column!r}: {', '.join(date.parts)}, hashed" for date in plan.dates]
    lines += [f"cross {' × '.join(map(repr, cross))}, hashed" for cross in plan.crosses]
    lines += [_text_line(text) for text in plan.text]
    if plan.hashes and not plan.hashed:
        lines.append(f"hashed into 2^{plan.bits} coordinates")
    if plan.sparse:
        indices, values, size = plan.sparse
        lines.append(f"sparse pair {indices!r}, {values!r}: {size:,} coordinates")
    if plan.indicators:
        more = counted(len(plan.indicators), "more coordinate")
        which = f" in {_list(plan.indicators)}" if plan.nulls_by else ""
        lines.append(f"a null or NaN{which} is 0, and 1 in its column's indicator: {more}")
    if plan.mean_columns:
        lines.append(
            f"a null or NaN is the mean of its column so far ({len(plan.mean_columns)}): "
            f"{_list(plan.mean_columns)}"
        )
    if plan.on_bad_row == "skip":
        lines.append("bad rows are skipped and counted")
    lines.append(f"{plan.size:,} coordinates{' with the bias' if plan.bias else ', no bias'}")
    return lines


def _task(plan: Plan) -> str:
    if not plan.classes:
        return "regression"
    if len(plan.classes) == 2:
        return f"negative {plan.classes[0]!r}, positive {plan.classes[1]!r}"
    return f"{len(plan.classes)} classes: {_list(tuple(map(repr, plan.classes)))}"


def _text_line(text: Text) -> str:
    runs = f" and runs of up to {text.ngrams}" if text.ngrams > 1 else ""
    return f"text {text.column!r}: words{runs}, {COUNTED[text.counts]}, hashed"


def _partition(partition: Partition) -> str:
    return f"{partition.column} ({partition.kind})"


def _list(names: tuple[str, ...], most: int = 12) -> str:
    return printable(listed(names, most))
