"""A job of whole numbers: 8 coordinates, rows that are numbers, sums that tell every order apart.

What a run must end with is computed here a second time, plainly, in the words of the two decisions
on averaged and sharded mode.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, partial
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from streamomd.checkpoint import Commit, Part
from streamomd.config.spec import Spec
from streamomd.core.batch import DenseBatch
from streamomd.engine.layout import Layout
from streamomd.engine.micro_batches import Sensed
from streamomd.engine.state import State
from streamomd.features import make_plan
from streamomd.features.plan import Plan
from streamomd.shards.encoded_rows import Rows
from streamomd.shards.order import Cursor
from streamomd.shards.reader import Piece
from streamomd.shards.shard import Shard, ShardSet
from streamomd.training.load_model import fill
from streamomd.training.metrics import Metrics
from streamomd.training.microbatch_rounds import Rounds
from streamomd.training.model import Model

SIZE, MODULUS = 8, 1_000_003
URL = "sim://kept"


@dataclass(eq=False)
class TinyEngine:
    """As Engine, as far as the modes ask. work: told how many rows, before they are learned."""

    layout: Layout
    work: Callable[[int], None]
    bias: bool = False
    compile_seconds: float = 0.0

    def begin_pass(self, state: State) -> None:
        """Nothing depends on passes."""

    def learn(self, state: State, sums: Any, batch: DenseBatch, *, part: bool = False) -> Any:
        self.work(len(batch))
        for y in batch.y:
            learn(state.table[:, 0], y)
            state.clock += 1
            sums += [1.0, y, 0.0]
        return np.zeros((len(batch), 1))

    step_numbers = 2


def sense(engine: TinyEngine, state: State, edges: Any, batch: DenseBatch) -> Sensed:
    """As the functions of streamomd.engine.micro_batches, all three."""
    w = state.table[:, 0]
    shares = [w[a:b].sum() % MODULUS for a, b in pairwise(edges)]
    numbers = np.array(shares)[:, None, None] + batch.y[None, :, None]
    return Sensed(numbers, np.ones(numbers.shape[:2], np.uint8))


def decide(engine: TinyEngine, state: State, sums: Any, batch: DenseBatch, numbers: Any) -> Any:
    steps = np.ones((len(batch), 1, 2))
    for at in range(len(batch)):
        steps[at, 0, 1] = numbers[:, at, 0].sum() % MODULUS
        sums += [1.0, steps[at, 0, 1], 0.0]
    return steps, np.zeros((len(batch), 1))


def apply(engine: TinyEngine, state: State, batch: DenseBatch, steps: Any) -> None:
    engine.work(len(batch))
    for y, (active, total) in zip(batch.y, steps[:, 0], strict=True):
        assert active
        state.table[:, 0] = (state.table[:, 0] * 3 + total + y) % MODULUS
        state.clock += 1


def learn(w: Any, y: float) -> None:
    """A row, in averaged mode."""
    w[...] = (w * 3 + y + np.arange(len(w))) % MODULUS


def merge(engine: Any, states: list[State], start: State, rows: Any, by: str = "") -> State:
    """As streamomd.engine.merge.merge; it tells left from right, and where both began."""
    a, b = states
    whole = start.copy()
    whole.cells[...] = merged(a.cells, b.cells, start.cells)
    whole.clock = a.clock + b.clock - start.clock
    return whole


def merged(a: Any, b: Any, start: Any) -> Any:
    """Cells of a merge."""
    return (a * 5 + b * 7 + start) % MODULUS


class TinyModel(Model):
    """A model whose document is short."""

    def document(self, **more: Any) -> dict[str, Any]:
        told = {"cursor": self.cursor.to_json(), "finished": self.finished}
        return {**told, "rows": self.metrics.total_rows, **more}


class TinyRounds(Rounds):
    """As Rounds, of rows that are at hand."""

    def warm(self) -> float:
        return 0.0

    def _pieces(self) -> Iterator[Any]:
        at = self.cursor
        for place in range(at.place, len(self.shards)):
            begin = at.row if place == at.place else 0
            count = self.shards.shards[place].rows
            if begin < count:
                yield batch(place, begin, count), place, begin


def value(place: int, row: int) -> float:
    """A row of a shard."""
    return float((place * 1009 + row * 31 + 17) % 997)


def batch(place: int, begin: int, end: int) -> DenseBatch:
    """Rows begin … end − 1 of a shard."""
    y = np.array([value(place, row) for row in range(begin, end)])
    return DenseBatch(np.zeros((len(y), SIZE)), y, np.ones(len(y)))


def rows_of_group(_: Plan, group: Any, begin: int, end: int, **more: Any) -> Iterator[Piece[Rows]]:
    """As training.row_stream.rows_of_group, a few rows at a time."""
    for low in range(begin, end, 3):
        rows = batch(int(group.shard.path), low, min(end, low + 3))
        yield Piece(0, low, len(rows), Rows(rows, None))


@dataclass(frozen=True)
class Job:
    """What is to be learned."""

    mode: str
    parts: int
    epochs: int
    rounds: int
    every_rows: int
    batch_rows: int
    shards: tuple[int, ...]

    @property
    def rows(self) -> int:
        """Of one epoch."""
        return sum(self.shards)


@cache
def described(job: Job) -> tuple[Spec, Plan, ShardSet]:
    """The job in streamomd's words."""
    columns = [f"x{at}" for at in range(SIZE)]
    more = {"rounds_per_epoch": job.rounds} if job.mode == "averaged" else {}
    train = {"mode": job.mode, "parts": job.parts, "epochs": job.epochs, "detail": False, **more}
    train |= {"batch_rows": job.batch_rows} if job.mode == "sharded" else {}
    spec = Spec.parse(
        {
            "data": {"label": "y", "numeric": columns},
            "model": {"rule": "perceptron", "bias": False},
            "train": train,
            "checkpoint": {
                "url": URL,
                "every_rows": job.every_rows,
                "every_seconds": 0 if job.every_rows else 0.2,
            },
        }
    )
    schema = pa.schema([("y", pa.int64()), *((name, pa.float64()) for name in columns)])
    plan = make_plan(spec.data, spec.model, schema, lambda: [0, 1])
    shards = tuple(
        Shard(f"sim://{at}", str(at), "parquet", 1, rows, (rows,), schema, "", None, None)
        for at, rows in enumerate(job.shards)
    )
    return spec, plan, ShardSet(shards, None)


def new(job: Job, work: Callable[[int], None]) -> TinyModel:
    """A model that has seen nothing."""
    spec, plan, _ = described(job)
    engine: Any = TinyEngine(Layout(spec.rule, SIZE, 1, "float64"), work)
    state = State.start(engine.layout)
    state.table[:, 0] = np.arange(SIZE)
    return TinyModel(spec, plan, engine, state, Metrics(spec.model.classifies), url=URL)


def receive(models: list[TinyModel], job: Job, work: Any) -> Callable[[Commit], Any]:
    """For checkpoint.load: each commit that is tried makes a model, the last one is whole."""

    def begin(commit: Commit) -> Callable[[Part], None]:
        models.append(new(job, work))
        models[-1].cursor = Cursor.from_json(commit.document["cursor"])
        models[-1].finished = commit.document["finished"]
        return partial(fill, models[-1])

    return begin


@cache
def expected(job: Job) -> tuple[bytes, int, tuple[int, ...]]:
    """Cells, clock and rows of each epoch that a run must end with."""
    shards = described(job)[2]
    model = new(job, lambda rows: None)
    w = model.state.table[:, 0]
    if job.mode == "averaged":
        for _ in range(job.epochs):
            _averaged_epoch(job, shards, w)
    else:
        for _ in range(job.epochs):
            _sharded_epoch(job, w)
    clock = job.rows * job.epochs
    return model.state.cells.tobytes(), clock, (job.rows,) * job.epochs


def _averaged_epoch(job: Job, shards: ShardSet, w: Any) -> None:
    from streamomd.shards.order import split_rows

    cut = split_rows(shards, range(len(shards)), job.parts * job.rounds)
    for low in range(0, len(cut), job.parts):
        start, found = w.copy(), []
        for stretch in cut[low : low + job.parts]:
            mine = start.copy()
            for span in stretch.spans:
                for row in range(span.begin, span.end):
                    learn(mine, value(int(span.group.shard.path), row))
            found.append(mine)
        while len(found) > 1:
            pairs = zip(found[::2], found[1::2], strict=False)
            above = [merged(a, b, start) for a, b in pairs]
            found = above + found[len(found) - len(found) % 2 :]
        w[...] = found[0]


def _sharded_epoch(job: Job, w: Any) -> None:
    rows = [value(place, row) for place, count in enumerate(job.shards) for row in range(count)]
    for low in range(0, len(rows), job.batch_rows):
        some = rows[low : low + job.batch_rows]
        edges = [part * SIZE // job.parts for part in range(job.parts + 1)]
        shares = [w[a:b].sum() % MODULUS for a, b in pairwise(edges)]
        for y in some:
            total = sum(share + y for share in shares) % MODULUS
            w[...] = (w * 3 + total + y) % MODULUS
