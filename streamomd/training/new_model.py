"""A model before its first row: its columns planned, its state empty or from a warm start."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection
from copy import deepcopy
from dataclasses import replace
from functools import partial
from typing import Any

from streamomd.config.field_types import BALANCED
from streamomd.config.spec import Spec
from streamomd.core.errors import DataError, UsageError
from streamomd.core.urls import printable, shown
from streamomd.core.wording import counted
from streamomd.features import Plan, make_plan
from streamomd.features.labels import decimal_comma, rare_note, targets, task_note
from streamomd.features.plan_columns import Partition
from streamomd.shards.distinct_values import Enough, distinct_labels, label_bounds
from streamomd.shards.first_rows import longest_list
from streamomd.shards.renames import check_columns, distinct_schemas
from streamomd.shards.shard import ShardSet
from streamomd.training.choose_shapes import with_shapes
from streamomd.training.load_model import load_model
from streamomd.training.model import Model
from streamomd.training.progress import note
from streamomd.training.run_records import Teaching
from streamomd.training.warm_start import is_weights, start_from_weights

EFFECTS = {
    "none": (), "columns": ("curves",), "pairs": ("curves", "bins", "pairs"),
    "all": ("curves", "trees"),
}  # fmt: skip
"""What of a plan a warm start takes from the other model, by model.shapes."""
MOST_NAMED = 8
"""Labels that a line names."""


def plan_columns(spec: Spec, shards: ShardSet) -> Plan:
    """How the columns of a job's shards become coordinates; each shard's schema has been checked.

    Raises DataError and SchemaError, and what ``make_plan`` raises.
    """
    shards.require_rows()
    first = next(iter(shards))
    partitions = tuple(Partition(one.column, one.kind) for one in first.constants)
    labels = partial(_labels, shards, spec)
    lengths = partial(longest_list, shards)
    plan = make_plan(spec.data, spec.model, first.schema, labels, partitions, lengths)
    for shard in distinct_schemas(shards):
        check_columns(plan, shard)
    return plan if spec.model.shapes == "none" else with_shapes(spec, plan, shards)


def new_model(spec: Spec, plan: Plan, weights: Any = None) -> Model:
    """A model of these columns before its first row, or with the state that ``model.start`` names.

    weights: a fitted linear model, which ``model.start`` can only describe.
    """
    model = Model.new(spec, plan)
    options = spec.checkpoint.storage_options
    if is_weights(spec.model.start):
        start_from_weights(model, options, weights)
    elif spec.model.start:
        start, loaded = load_model(
            spec.model.start,
            storage_options=options,
            remote=lambda _: spec.train.mode == "sharded",  # its owners may be elsewhere
            finite=True,
        )
        for sequence, reason in loaded.rejected:
            note(f"commit {sequence} rejected: {reason}; starting from {start.sequence}")
        if plan.given_numbers == start.plan.given_numbers:  # the same map, if both have one
            names = EFFECTS[spec.model.shapes]
            learned = {name: getattr(start.plan, name) for name in names}
            model = Model.new(spec, replace(plan, **learned))
        _start_from(model, start)
    return model


def _start_from(model: Model, other: Model) -> None:
    """Give a model another's state and names; metrics restart. The learning rate may differ.

    Raises UsageError with every part of the two descriptions that does not agree.
    """
    ours, theirs = _description(model), _description(other)
    # A plan says nothing of what it does not have.
    differ = [key for key in {**ours, **theirs} if ours.get(key) != theirs.get(key)]
    if differ:
        lines = [f"{key}: {theirs.get(key)!r} there, {ours.get(key)!r} here" for key in differ]
        same = [f"--{key} {theirs[key]}" for key in ("rule", "loss") if key in differ]
        hint = f"; to continue it: {' '.join(same)}" if same else ""
        kinds = dict(other.plan.partitions)
        if any(kinds.get(column, kind) != kind for column, kind in model.plan.partitions):
            table = ", ".join(f"{column} = '{kind}'" for column, kind in kinds.items())
            hint += f'; to read the directories as it did: --partitions "{{ {table} }}"'
        raise UsageError(f"cannot start from {shown(other.url)}: {'; '.join(lines)}{hint}")
    model.state, model.names = other.state, other.names
    _mention_waiting(model, other)
    if model.spec.model.continue_metrics:
        model.teaching = Teaching(rows=other.metrics.total_rows)
        model.metrics = other.metrics.as_one_epoch(held=model.metrics.held)
    elif model.spec.model.class_weight == BALANCED and other.metrics.classes is not None:
        model.metrics.classes = other.metrics.classes.copy()
    if model.spec.model.calibrate != "none" and other.metrics.margins is not None:
        model.metrics.margins = other.metrics.margins.copy()
    if other.metrics.residuals is not None:
        model.metrics.residuals = deepcopy(other.metrics.residuals)


def _mention_waiting(model: Model, other: Model) -> None:
    """Print how many rows of another model's run wait for their labels: a warm start learns none of
    them. Raises UsageError where metrics would count them as rows of this run."""
    delay = other.spec.data.delay
    if not delay or not (waiting := other.metrics.total_rows - other.teaching.rows):
        return
    text = f"{counted(waiting, 'row')} of {shown(other.url)} wait for their labels (data.delay)"
    if model.spec.model.continue_metrics:
        raise UsageError(
            f"{text}, and only streamomd update {shown(other.url)} learns them: run that on new "
            "shards, or leave continue_metrics out"
        )
    note(f"{text} and are not learned by this run; streamomd update would learn them")


def _description(model: Model) -> dict[str, Any]:
    job = model.spec.model
    known = ("rule", "loss", "loss_params", "certificate", "dtype", "bias")
    # A run that diverged may continue with a smaller learning rate.
    params = {key: value for key, value in job.params.items() if key != "eta"}
    plan = model.plan.timeless.to_json(brief=True)
    # Types may differ as they may between shards.
    plan["types"] = [(column.name, column.family) for column in model.plan.timeless.types]
    del plan["label_type"], plan["on_bad_row"]
    plan.pop("partitions", None)  # those that are features have types
    plan.pop("limits", None)  # as the rule and dtype say, and older versions did not save
    model_keys = {key: getattr(job, key) for key in known}
    references = {
        "standardize": model.spec.data.standardize,
        "scale_target": model.spec.refers_target,
    }
    return {**model_keys, "params": params, **references, **plan}


def enough_labels(spec: Spec) -> Enough:
    """Whether distinct labels say that they are no classes, of a job that leaves it to them."""
    if not spec.model.finds_task:
        return lambda values: False
    return lambda values: targets(values) or decimal_comma(values)


def report_task(spec: Spec, labels: list[Any]) -> None:
    """Print the task that the labels chose, and why."""
    if text := task_note(spec.model, spec.data.label, labels):
        note(text)


def _labels(shards: ShardSet, spec: Spec) -> list[Any]:
    column = spec.data.label
    found = report_labels(
        spec, partial(distinct_labels, shards, column), lambda: label_bounds(shards, column)
    )
    if not found and spec.data.where:
        raise DataError(
            f"no row of {counted(len(shards), 'shard')} that satisfies where has a label: check "
            "the filter"
        )
    return found


def report_labels(
    spec: Spec, distinct: Callable[..., list[Any]], bounds: Callable[[], Collection[Any]]
) -> list[Any]:
    """The distinct labels of first rows, and lines on them. distinct: as ``distinct_labels`` with
    enough and counts alone. bounds: labels of later rows that are known without reading them."""
    data, column = spec.data, spec.data.label
    rows: Counter[Any] = Counter()
    labels = distinct(enough=enough_labels(spec), counts=rows)
    if not enough_labels(spec)(labels) and (later := sorted({*bounds()} - {*labels})):
        some = ", ".join(map(repr, later[:MOST_NAMED])) + ", …" * (len(later) > MOST_NAMED)
        text = f"label {printable(column)!r}: {some} from the footers of later shards"
        if data.where:  # which may drop all rows of a label
            note(f"{text} are unknown; to learn rows of them that satisfy where, set model.classes")
        else:
            labels = sorted([*labels, *later])
            note(text)
    report_task(spec, labels)
    if not enough_labels(spec)(labels) and (text := rare_note(column, rows)):
        note(f"{text}; streamomd plan --scan-labels counts those of all shards")
    if len(labels) == 1:
        note(f"all labels in column {column!r} are {labels[0]!r}; training needs two classes")
    return labels
