"""Preview a job from the shards' footers and their first unit; nothing is written.

Distinct values grow with rows: the estimate for all rows is n·(rows / seen rows)^b, where b is the
growth of n over the second half of the unit (0: no new values; 1: all new). Of n values hashed into
m coordinates, each shares its coordinate with probability 1 − (1 − 1/m)^(n − 1).
"""

from __future__ import annotations

import json
import math
import os
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

import numpy as np

from streamomd.config.spec import Spec
from streamomd.core.batch import Batch
from streamomd.core.run_events import phase
from streamomd.core.urls import printable
from streamomd.core.wording import counted
from streamomd.engine.state import State
from streamomd.features import Names, Plan, describe, encode
from streamomd.features.hashed import cross_name
from streamomd.features.labels import FEWEST_ROWS, targets
from streamomd.features.plan import number_name
from streamomd.runs.session import Session, data_notes
from streamomd.shards.distinct_values import count_labels
from streamomd.shards.encoded_rows import encode_rows
from streamomd.shards.filtered_shards import unread_of
from streamomd.shards.open_readers import open_group
from streamomd.shards.order import Job, jobs_of, places
from streamomd.shards.reader import ShardBatch
from streamomd.shards.shard import ShardSet, checksum_notes
from streamomd.training import row_checks
from streamomd.training.choose_shapes import shape_advice
from streamomd.training.model_data import engine_of
from streamomd.training.progress import note
from streamomd.training.row_stream import UNIT_BYTES, ahead_of
from streamomd.training.training_threads import available_memory, thread_count

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


MOST_GROUPS = 64
"""Row groups that are read."""
THREAD_BYTES = 4 * UNIT_BYTES  # of a thread that decodes a unit
Unit = list[ShardBatch]


class SeenValues(Names):
    """All hashed values, by column."""

    def __init__(self) -> None:
        super().__init__()
        self.values: dict[str, set[bytes | None]] = defaultdict(set)

    def note(self, column: str, coordinates: Any, values: Any, hashes: Any = None) -> None:
        """Record values of a column."""
        self.values[column].update(values.to_pylist())

    def counts(self) -> dict[str, int]:
        """The number of distinct values, by column."""
        return {column: len(values) for column, values in self.values.items()}


def preview(
    job: str | Mapping[str, Any] | Spec | None = None,
    *,
    storage_options: Mapping[str, Any] | None = None,
    sets: Mapping[str, Any] | None = None,
    workers: int = 0,
    price: float | None = None,
    **flags: Any,
) -> dict[str, Any]:
    """Columns and their kinds, coordinates, collisions, memory and time of a job before it runs.

    Arguments as in ``streamomd.train``. Reads footers, the first shard's labels if classes are not
    given, as ``train`` does, and a unit of rows, which a temporary state learns. Raises what
    ``train`` raises for a job, its shards, and those rows.

    workers: number of workers of a cluster on which the cost of an epoch is to be estimated too, by
    mode; 0: none. price: of one worker for an hour.
    """
    session = Session.open(job, {**flags, "storage_options": storage_options}, sets)
    shards, plan = session.shards, session.plan()
    spec = session.spec.of_classes(len(plan.classes))
    data = spec.data
    started = time.perf_counter()
    unit = read_unit(jobs_of(shards, places(data.order, data.seed, len(shards), 0)), plan, spec)
    reading = time.perf_counter() - started
    rows = sum(read.batch.num_rows for read in unit)
    read = shards.rows - shards.unread_rows
    with phase(f"counting the values of {rows:,} rows"):
        columns = _columns(plan, *_count_growth(plan, unit), read / max(1, rows))
        memory = _memory(spec, plan, (spec.train.prefetch << 20) or ahead_of(shards))
        encoded = _encoded(plan, unit)
    front = [batch.first_columns(len(plan.numeric), row_checks.MOST) for batch in encoded[0]]
    far = row_checks.offset_warnings(spec, plan, np.concatenate(front)[: row_checks.MOST])
    notes = [*_loss_note(spec, plan), *far, *session.column_hints(plan)]
    times = _time(spec, plan, shards, encoded, reading, memory)
    return {
        "rows": shards.rows,
        "shards": len(shards),
        "bytes": sum(shard.size for shard in shards),
        "filtered": vars(unread_of(shards)) if data.where else None,
        "plan": [
            *describe(plan),
            *session.choices,
            *([f"data.select: a run learns the best {data.select} of them"] if data.select else []),
            *notes,
            *data_notes(plan, shards),
            *checksum_notes(shards),
        ],
        "advice": [] if times["learn_per_row"] is None else shape_advice(spec, plan, unit, read),
        "columns": columns,
        "coordinates": plan.size,
        "hashed": _hashed(plan, columns),
        "memory": memory,
        "unit": {"shard": unit[0].shard.url, "rows": rows},
        "time": times,
        "cluster": _cluster(spec, plan, shards, encoded[0], times, workers, price),
    }


def _loss_note(spec: Spec, plan: Plan) -> list[str]:
    """A note on the loss of several classes."""
    count = len(plan.classes)
    if count <= 2:
        return []
    if spec.loss.coupled:
        return [f"{count} classes learned jointly, by {spec.loss.name}"]
    return [
        f"{count} learners, one per class against all others; the loss is the sum of their losses"
    ]


def expected_shared(values: float, coordinates: int) -> float:
    """The expected number of values that share their coordinate, if hashed uniformly.

    >>> [round(expected_shared(n, 2**18), 1) for n in (1, 100, 10_000, 1_000_000)]
    [0.0, 0.0, 374.2, 977955.7]
    """
    return -values * math.expm1(max(0.0, values - 1.0) * math.log1p(-1.0 / coordinates))


def expected_used(values: float, coordinates: int) -> float:
    """The expected number of coordinates used by hashed values.

    >>> [round(expected_used(n, 2**18)) for n in (1, 100, 1_000_000)]
    [1, 100, 256365]
    """
    return -coordinates * math.expm1(values * math.log1p(-1.0 / coordinates))


def expected(half: int, whole: int, times: float) -> int:
    """The number of distinct values in ``times`` as many rows, from those of a half and the whole.

    >>> expected(12, 12, 100.0), expected(50, 100, 100.0), expected(60, 100, 1.0)
    (12, 10000, 100)
    """
    if not half or times <= 1.0:
        return whole
    growth = min(1.0, math.log2(whole / half))
    return round(float(whole * times**growth))


def read_unit(jobs: Iterator[Job], plan: Plan, spec: Spec) -> Unit:
    """The first rows, about a unit of them; fewer of shards of a few rows, each of which costs as
    much to open as hundreds of rows."""
    unit: Unit = []
    nbytes = 0
    for job in islice(jobs, MOST_GROUPS):
        group = job.group
        with open_group(
            group,
            group.row,
            group.row + group.rows,
            options=spec.data.store_options,
            columns=plan.columns,
            dictionary=plan.dictionary,
            unit_bytes=UNIT_BYTES,
        ) as (reader, whole):
            for rows in reader.read(whole):
                unit.append(rows)
                nbytes += rows.nbytes
                if nbytes >= UNIT_BYTES:
                    return unit
    return unit


def _count_growth(plan: Plan, unit: Unit) -> tuple[dict[str, int], dict[str, int]]:
    """Distinct values by column, in the unit's first half and in the whole unit."""
    seen, left_over = SeenValues(), sum(rows.batch.num_rows for rows in unit) // 2
    half: dict[str, int] = {}
    for rows in unit:
        shard, row, table = rows.shard.url, rows.row, rows.batch
        cut = min(table.num_rows, left_over)
        encode(plan, table.slice(0, cut), shard=shard, row=row, names=seen)
        left_over -= cut
        if not left_over and not half:
            half = seen.counts()
        encode(plan, table.slice(cut), shard=shard, row=row + cut, names=seen)
    return half, seen.counts()


def _encoded(plan: Plan, unit: Unit) -> tuple[list[Batch], float]:
    """The encoded unit, and the seconds it took."""
    names, started = Names(), time.perf_counter()
    batches = [encode_rows(plan, rows, names=names).value.batch for rows in unit]
    return batches, time.perf_counter() - started


def _columns(
    plan: Plan, half: Mapping[str, int], whole: Mapping[str, int], times: float
) -> list[dict[str, Any]]:
    """Every feature: its source, its coordinates, or the number of hashed values."""
    types = {column.name: column.type for column in plan.types}

    def fixed(name: str, kind: str, coordinates: int) -> dict[str, Any]:
        fields = {"name": name, "type": types.get(name, ""), "kind": kind}
        return {**fields, "coordinates": coordinates, "seen": None, "expected": None}

    def hashed(name: str, kind: str) -> dict[str, Any]:
        seen = whole.get(name, 0)
        grown = expected(half.get(name, 0), seen, times)
        return {**fixed(name, kind, 0), "coordinates": None, "seen": seen, "expected": grown}

    parts = [name for date in plan.dates for name in date.names]
    return [
        *(fixed(name, "numeric", 1) for name in plan.numeric),
        *(fixed(vector.column, "vector", vector.width) for vector in plan.vectors),
        *(fixed(number_name(plan, c.place), "curve", len(c.knots)) for c in plan.curves),
        *([fixed("trees", "trees", plan.margins)] if plan.trees else []),
        *(hashed(name, "hashed") for name in plan.hashed),
        *(hashed(name, "date part") for name in parts),
        *(hashed(cross_name(cross), "cross") for cross in plan.crossed),
        *(hashed(text.column, "text") for text in plan.text),
        *([fixed(plan.sparse.indices, "sparse", plan.sparse.size)] if plan.sparse else []),
        *(fixed(f"{name} is null", "indicator", 1) for name in plan.indicators),
    ]


def _hashed(plan: Plan, columns: Sequence[Mapping[str, Any]]) -> dict[str, Any] | None:
    if not plan.hashes:
        return None
    seen = sum(column["seen"] or 0 for column in columns)
    grown = sum(column["expected"] or 0 for column in columns)
    size = 1 << plan.bits
    found = {"bits": plan.bits, "coordinates": size, "seen": seen, "expected": grown}
    fields = {
        "share_seen": expected_shared(seen, size),
        "share_expected": expected_shared(grown, size),
    }
    return {**found, **fields, "used_expected": expected_used(grown, size)}


def _memory(spec: Spec, plan: Plan, ahead: int) -> dict[str, Any]:
    """Bytes of the state, of its copy while a commit is written, and of prefetched rows."""
    state = engine_of(spec, plan).layout.nbytes
    checkpoint = spec.checkpoint
    copied = spec.train.mode == "exact" and checkpoint.aside and checkpoint.url != "none"
    prefetch = ahead + (os.cpu_count() or 1) * THREAD_BYTES
    return {
        "state": state,
        "copy": state if copied else 0,
        "decoding": prefetch,
        "free": available_memory(),
    }


def _time(
    spec: Spec,
    plan: Plan,
    shards: ShardSet,
    encoded: tuple[list[Batch], float],
    reading: float,
    memory: Mapping[str, Any],
) -> dict[str, Any]:
    """Seconds per row, and of the whole job in one process in exact mode.

    One core learns, or a thread for each group of classes; all cores read and decode concurrently.
    """
    batches, encoding = encoded
    rows = max(1, sum(batch.passed for batch in batches))
    decode, cores = (reading + encoding) / rows, os.cpu_count() or 1
    figures: dict[str, Any] = {"decode_per_row": decode, "learn_per_row": None, "seconds": None}
    figures |= {"compile_seconds": None, "cores": cores, "epochs": spec.train.epochs}
    if memory["state"] > memory["free"]:
        return figures
    engine = engine_of(spec, plan)
    engine.late = False  # the job's rows are learned by compiled loops
    state, sums = State.start(engine.layout), np.zeros(3)
    engine.begin(state)
    with phase("compiling"):
        engine.warm(state, batches[0].rows(0, 0), learning=True)
    looks = spec.rule.looks(spec.model.params)
    if looks:
        engine.look(state, batches[0].rows(0, 0))
    seeing = _timed(lambda batch: engine.look(state, batch), batches) / rows if looks else 0.0
    learn = _timed(lambda batch: engine.learn(state, sums, batch), batches) / rows
    walks = [learn] * spec.train.epochs + ([seeing] if looks else [])
    read = shards.rows - shards.unread_rows
    threads = thread_count(spec.train) if engine.divisible else 1
    alone = min(threads, engine.layout.learners, cores)
    seconds = read * sum(max(walk / alone, (walk + decode) / cores) for walk in walks)
    fields = {"learn_per_row": learn, "seconds": seconds, "compile_seconds": engine.compile_seconds}
    return {**figures, **fields}


def _cluster(
    spec: Spec,
    plan: Plan,
    shards: ShardSet,
    batches: Sequence[Batch],
    times: Mapping[str, Any],
    workers: int,
    price: float | None,
) -> dict[str, Any] | None:
    """What an epoch would cost on a cluster, by mode; None without workers."""
    if not workers:
        return None
    from streamomd.analysis.cluster_cost import Epoch, RowCost, costs  # it imports Dask

    layout = engine_of(spec, plan).layout
    held = sum(batch.nbytes for batch in batches) / max(1, sum(map(len, batches)))
    decode = times["decode_per_row"]
    # Where the state is too large to learn here, learning counts as much as decoding.
    learn = decode if times["learn_per_row"] is None else times["learn_per_row"]
    sizes = [shard.size for shard in shards]
    read = shards.rows - shards.unread_rows
    epoch = Epoch(read, sizes, layout.nbytes, RowCost(decode, learn, held))
    return {
        "workers": workers,
        "price": price,
        "parts": spec.train.parts,
        "modes": costs(spec, layout, epoch, workers, price),
    }


def _timed(walk: Callable[[Batch], Any], batches: Sequence[Batch]) -> float:
    started = time.perf_counter()
    for batch in batches:
        walk(batch)
    return time.perf_counter() - started
