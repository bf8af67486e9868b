"""A model's numbers in the form in which a scorer needs them."""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from streamomd.core.batch import Floats
from streamomd.core.errors import UnsupportedError
from streamomd.core.scalars import sigmoid
from streamomd.engine import Engine
from streamomd.engine.block_state import weights_of_block
from streamomd.engine.frozen_rows import saved_mix
from streamomd.engine.loops.reference import C, S
from streamomd.engine.operations import TARGET_C, TARGET_S
from streamomd.engine.state import State
from streamomd.features import Plan, decode_labels
from streamomd.features.plan import number_name
from streamomd.losses.contract import identity
from streamomd.rules.contract import Matrix
from streamomd.training.scoring.description import (
    CATEGORIES,
    DATES,
    BinnedNumber,
    CategoryColumn,
    CategoryList,
    DateColumn,
    Description,
    NumberColumn,
    SparseColumns,
    TextColumn,
    VectorColumn,
    is_measured,
)
from streamomd.training.scoring.link import Calibration, Link
from streamomd.training.scoring.margins import Margins, RuleMargins, Weights
from streamomd.training.scoring.scorer import Scorer

ROWS = 1 << 20  # coordinates whose weights are computed at a time


def scorer_of(
    plan: Plan, engine: Engine, state: State, calibration: Calibration | None = None
) -> Scorer:
    """A scorer of the state as it is now."""
    return Scorer(*parts_of(plan, engine, state, calibration))


def parts_of(
    plan: Plan, engine: Engine, state: State, calibration: Calibration | None
) -> tuple[Description, Margins, Link]:
    """The parts of a scorer."""
    link = _link(plan, engine, state, calibration)
    return description_of(plan), margins_of(plan, engine, state), link


def description_of(plan: Plan) -> Description:
    """A plan as a scorer has it. Raises UnsupportedError for columns that it cannot read."""
    types = {column.name: column for column in plan.types}
    pair = None
    if plan.sparse is not None:
        indices, values, size = plan.sparse
        pair = SparseColumns(indices, values, size, _number_kind(types[values].type))
    numbers = tuple(
        NumberColumn(name, _column_kind(types[name]), plan.nulls_of(name)) for name in plan.numeric
    )
    vectors = tuple(
        VectorColumn(
            name,
            width,
            _number_kind(types[name].type),
            plan.nulls_of(name),
            types[name].family.startswith("list<"),
        )
        for name, width in plan.vectors
    )
    dates = tuple(DateColumn(d.column, types[d.column].family, d.parts) for d in plan.dates)
    dated = {date.name for date in dates}
    categories = tuple(
        CategoryColumn(name, _column_kind(types[name]), name in plan.hashed)
        for name in plan.categorical
        if name not in dated and name not in plan.hashed_lists
    )
    lists = tuple(CategoryList(name, _element_kind(types[name])) for name in plan.hashed_lists)
    described = Description(
        bias=plan.bias,
        numbers=numbers,
        vectors=vectors,
        categories=categories,
        lists=lists,
        dates=dates,
        crosses=plan.crossed,
        texts=tuple(TextColumn(*text) for text in plan.text),
        sparse=pair,
        bits=plan.bits,
        seed=plan.hash_seed,
        narrow=_is_narrow(plan, types),
        largest=plan.legal.largest,
        least=plan.legal.limits.least,
        most=plan.legal.limits.most,
        curves=plan.curves,
        trees=plan.trees.final if plan.trees else None,
        bins=tuple(
            BinnedNumber(number_name(plan, one.place), *one, tuple(one.names)) for one in plan.bins
        ),
    )
    unknown = [c.name for c in categories if c.kind not in CATEGORIES]
    unknown += [one.name for one in lists if one.kind not in CATEGORIES]
    unknown += [d.name for d in dates if d.kind not in DATES]
    unknown += [n.name for n in numbers if not is_measured(n.kind)]
    if unknown or described.size != plan.size:
        names = ", ".join(f"{name!r} ({types[name].type})" for name in unknown)
        raise UnsupportedError(
            f"a scorer cannot read columns of these types: {names}; use Model.predict"
        )
    return described


def margins_of(plan: Plan, engine: Engine, state: State) -> Margins:
    """The weights of a state as it is now, in the form in which rows are scored."""
    layout, first = engine.layout, int(plan.bias)
    fill = _fill_values(plan, engine, state)
    if layout.block:
        return _block_margins(plan, engine, state, fill)
    rule, reference, target = layout.rule, None, None
    if layout.standardize:
        reference = state.extra["reference"][[C, S], 1 : 1 + layout.centred].copy()
    if layout.scale_target:
        numbers = state.extra["target"]
        target = float(numbers[TARGET_C]), float(numbers[TARGET_S])
    foresees = isinstance(rule.storage, Matrix) and rule.storage.foresee is not None
    learners = layout.learners
    if foresees or rule.row.part or rule.row.clamp:
        used = np.array(state.table[:, : layout.used], np.float64)
        special = RuleMargins(
            rule,
            engine.loss.name,
            dict(engine.params),
            plan.bias,
            Weights(len(used), used),
            state.totals.copy(),
            state.clock + 1.0,
            state.extra["matrix"].copy() if foresees else None,
        )
        none = Weights(plan.size, np.empty((0, learners)), np.empty(0, np.int64))
        start = (0.0,) * learners
        return Margins(plan.bias, none, start, reference, target, fill, (), special)
    weights = _plain_weights(engine, state)
    start = tuple(weights[0].tolist()) if first else (0.0,) * learners
    return Margins(plan.bias, Weights.of(weights), start, reference, target, fill)


def _plain_weights(engine: Engine, state: State) -> Floats:
    """All weights as the rule has them, relative to references, (coordinates, learners)."""
    size = state.layout.size
    some = [
        engine.relative_weights(state, low, min(low + ROWS, size)) for low in range(0, size, ROWS)
    ]
    return np.concatenate(some)


def _block_margins(plan: Plan, engine: Engine, state: State, fill: tuple[float, ...]) -> Margins:
    """The linear model in raw units that ``loops.block_predict`` computes for each batch."""
    layout, rule = engine.layout, engine.layout.rule
    block = weights_of_block(engine, state).T  # (block, learners)
    own = [np.array(state.slot(slot.name), np.float64) for slot in rule.own_slots]
    mix = saved_mix(engine, state)
    make: Any = rule.state.own
    weights = np.array(rule.weight(make(*own), mix[1], mix[2]), np.float64)
    weights = weights.reshape(layout.size, layout.learners)
    place = np.array(state.slot("place")).astype(np.int64)
    inside = np.flatnonzero(place > 0)
    weights[inside] += block[place[inside]]
    front = 1 + layout.numeric
    weights[:front] = block[:front]
    centres = tuple(state.extra["reference"][C, 1:front].tolist())
    start = tuple(block[0].tolist())
    return Margins(plan.bias, Weights.of(weights), start, None, None, fill, centres)


def _fill_values(plan: Plan, engine: Engine, state: State) -> tuple[float, ...]:
    """What missing numbers become, by numeric and vector coordinate; () where none is filled."""
    if not plan.means:
        return ()
    values = np.zeros(plan.numbers)
    values[list(plan.means)] = engine.fill_values(state)
    return tuple(values.tolist())


def _link(plan: Plan, engine: Engine, state: State, calibration: Calibration | None) -> Link:
    labels: tuple[Any, ...] = ()
    if plan.classes:
        labels = tuple(decode_labels(plan, np.arange(len(plan.classes))).to_pylist())
    loss = engine.loss
    e = float(engine.smoothing(state))
    mean = "margin" if loss.mean is identity else "sigmoid" if loss.mean is sigmoid else "loss"
    given = plan.classes, labels, loss.name, loss.coupled, loss.probabilistic
    return Link(*given, e, mean, calibration)


def _column_kind(column: Any) -> str:
    """The kind of a column of numbers or categories."""
    names = {"string": "text", "binary": "bytes"}
    family: str = names.get(column.family, column.family)
    if family == "decimal":
        return f"decimal:{column.type.rpartition(',')[2].strip(' )')}"
    if family in ("duration", "time"):
        return f"{family}:{column.type.partition('[')[2].rstrip(']')}"
    return _number_kind(column.type) if family == "float" else family


def _element_kind(column: Any) -> str:
    """The kind of the elements of a list of categories."""
    element = column.family.partition("<")[2].partition(">")[0]
    names = {"string": "text", "binary": "bytes"}
    return _number_kind(column.type) if element == "float" else names.get(element, element)


def _number_kind(kind: str) -> str:
    """The kind of the numbers of a type, which may be a list's or a dictionary's.

    >>> _number_kind("fixed_size_list<item: float>[3]"), _number_kind("double")
    ('float32', 'float')
    """
    inner = kind.partition("values=")[2] or kind.rpartition(":")[2]
    found = re.search(r"\b(halffloat|float|double|bool|u?int\d+)\b", inner)
    word = found[1] if found else ""
    words = {"halffloat": "float16", "float": "float32", "double": "float", "bool": "boolean"}
    return words.get(word, "integer" if "int" in word else "float")


def _is_narrow(plan: Plan, types: dict[str, Any]) -> bool:
    """Whether values are float32: if there are stored numbers and all are float32."""
    if plan.means or plan.made:  # a mean is a float64, and so are a hat and a margin
        return False
    kinds = [types[name].type for name in plan.numeric]
    measured = [v.column for v in plan.vectors] + ([plan.sparse.values] if plan.sparse else [])
    kinds += [types[name].type.rpartition(":")[2].split(">")[0].split()[0] for name in measured]
    kinds += ["double" for text in plan.text if text.counts == "log"]
    return bool(kinds) and all(kind == "float" for kind in kinds)
