"""What the scripts of this directory share: arguments, rows read once, learning, and telling.

A script collects what it finds in a Section: Markdown, printed as it comes and kept in
``OUT/<script>.md``, with a picture beside it. ``report.py`` joins the sections.
"""

from __future__ import annotations

import argparse
import math
import re
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse

from streamomd.config.spec import Spec
from streamomd.core.batch import Batch, DenseBatch, SparseBatch
from streamomd.features import Plan, make_plan
from streamomd.shards.distinct_values import distinct_labels
from streamomd.sources.find import find
from streamomd.training.model import Model
from streamomd.training.row_stream import rows_of
from streamomd.training.training_step import learn_rows

ROOT = Path(__file__).parents[2]


def arguments(text: str) -> argparse.ArgumentParser:
    """A parser with what every script takes."""
    parser = argparse.ArgumentParser(
        description=text, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--data",
        type=Path,
        default=ROOT / ".." / "shared" / "data",
        help="directory of the data sets (default: ../shared/data beside the repository)",
    )
    parser.add_argument(
        "--out",
        type=Path,
        default=ROOT / "runs" / "papers",
        help="directory for shards, results and pictures (default: runs/papers)",
    )
    parser.add_argument(
        "--tiny", action="store_true", help="a small made-up sample in place of the data sets"
    )
    return parser


@dataclass(frozen=True)
class Rows:
    """Shards of one kind, read and encoded once: what many learners learn from."""

    job: Mapping[str, Any]
    plan: Plan
    batches: tuple[Batch, ...]

    def __len__(self) -> int:
        return sum(len(batch) for batch in self.batches)

    @property
    def y(self) -> np.ndarray:
        """Targets: -1 or 1, class numbers, or values."""
        return np.concatenate([batch.y for batch in self.batches])

    def mapped(self, change: Callable[[Batch], Batch]) -> Rows:
        """The same rows with every batch changed."""
        return replace(self, batches=tuple(change(batch) for batch in self.batches))


def read(shards: str | Sequence[str], *, label: str = "y", bias: bool = True, **data: Any) -> Rows:
    """All rows of some shards. data: other keys of the job's table [data]."""
    told = {"task": "classify", "bias": bias}
    job = {"data": {"shards": shards, "label": label, **data}, "model": told}
    spec = Spec.parse(job)
    found = find(spec.data.shards)
    schema = next(iter(found)).schema
    plan = make_plan(spec.data, spec.model, schema, lambda: distinct_labels(found, label))
    pieces = rows_of(plan, found, range(len(found)))
    return Rows(job, plan, tuple(piece.value.batch for piece in pieces))


def learn(
    rows: Rows,
    rule: str,
    loss: str = "",
    params: Mapping[str, Any] | None = None,
    passes: int = 1,
    *,
    margins: list[np.ndarray] | None = None,
    **told: Any,
) -> Model:
    """A model of these rows, learned from the first to the last, ``passes`` times.

    margins: the list to which every batch's margins of before learning are added. told: other keys
    of the job's table [model].
    """
    named = {"rule": rule, "loss": loss, "params": dict(params or {})}
    described = {**rows.job["model"], **told, **named}
    model = Model.new(Spec.parse({**rows.job, "model": described}), rows.plan)
    if model.cursor.epoch < 0:  # the rule wants a look at all rows before the first is learned
        for batch in rows.batches:
            model.engine.look(model.state, batch)
    for epoch in range(passes):
        model.metrics.begin(epoch)
        for batch in rows.batches:
            learned = learn_rows(model, batch)
            if margins is not None:
                margins.append(learned)
    return model


def progress(rows: Rows, rule: str, loss: str = "", **params: Any) -> np.ndarray:
    """The margin of each row before it was learned, in one pass of one learner."""
    found: list[np.ndarray] = []
    learn(rows, rule, loss, params, margins=found)
    return np.concatenate(found)[:, 0]


def error(model: Model) -> float:
    """The progressive 0-1 error of all passes."""
    importance, _, mistakes = model.metrics.total
    return float(mistakes / importance)


def test_error(model: Model, rows: Rows) -> float:
    """The 0-1 error on rows that are not learned."""
    sums = np.zeros(3)
    for batch in rows.batches:
        model.engine.predict(model.state, sums, batch)
    return float(sums[2] / sums[0])


def scaled(rows: Rows, scale: np.ndarray) -> Rows:
    """Every numeric column divided by its number in ``scale``; the label and bias stay."""

    def divided(batch: Batch) -> Batch:
        assert isinstance(batch, DenseBatch)
        return replace(batch, values=np.ascontiguousarray(batch.values / scale))

    return rows.mapped(divided)


def dense(rows: Rows) -> np.ndarray:
    """The rows of numeric columns as one matrix, without the bias."""
    return np.concatenate([batch.values for batch in rows.batches if isinstance(batch, DenseBatch)])


def taken(rows: Rows, places: np.ndarray) -> Rows:
    """The rows at these places, in this order."""
    parts = rows.batches
    y = rows.y[places]
    weight = np.concatenate([part.weight for part in parts])[places]
    if isinstance(parts[0], DenseBatch):
        return replace(rows, batches=(DenseBatch(dense(rows)[places], y, weight),))
    some = csr(rows, with_bias=False)[places]
    arrays = (some.indptr.astype(np.int64), some.indices.astype(np.int32), some.data)
    return replace(rows, batches=(SparseBatch(*arrays, y, weight),))


def csr(rows: Rows, *, with_bias: bool = True) -> Any:
    """All rows as one matrix over the model's coordinates, the bias (1 in each row) the first."""
    columns, bias = rows.plan.size - int(rows.plan.bias), rows.plan.bias and with_bias
    if isinstance(rows.batches[0], DenseBatch):
        matrix = scipy.sparse.csr_array(dense(rows))
    else:
        parts = [part for part in rows.batches if isinstance(part, SparseBatch)]
        shapes = [(len(part), columns) for part in parts]
        arrays = [(part.values, part.indices, part.indptr) for part in parts]
        matrix = scipy.sparse.vstack(
            list(map(scipy.sparse.csr_array, arrays, shapes)), format="csr"
        )
    if bias:
        ones = scipy.sparse.csr_array(np.ones((len(rows), 1)))
        matrix = scipy.sparse.hstack([ones, matrix], format="csr")
    return matrix


def shuffled(rows: Rows, seed: int) -> Rows:
    """The rows in an order that the seed decides."""
    return taken(rows, np.random.default_rng(seed).permutation(len(rows)))


@dataclass
class Section:
    """What one script found, as Markdown."""

    out: Path
    name: str
    title: str
    lines: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    began: float = field(default_factory=time.perf_counter)

    def __post_init__(self) -> None:
        self.out.mkdir(parents=True, exist_ok=True)
        self.say(f"## {self.title}")

    def say(self, text: str) -> None:
        """A paragraph."""
        self._add(text, "")

    def table(self, heads: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
        """A table; numbers to three significant digits."""
        cells = [list(heads), ["---"] + ["---:"] * (len(heads) - 1)]
        cells += [[shown(cell) for cell in row] for row in rows]
        self._add(*(f"| {' | '.join(row)} |" for row in cells), "")

    def check(self, text: str, holds: bool, *, ours: bool = True) -> bool:
        """A statement that can be seen to hold or not. ours: it must hold, whatever the data."""
        self._add(f"- {'holds' if holds else 'DOES NOT HOLD'}: {text}")
        if ours and not holds:
            self.failed.append(text)
        return holds

    def picture(self, draw: Callable[[Any], None], size: tuple[float, float] = (9, 4)) -> None:
        """``OUT/<name>.png``, drawn on a figure; a message where matplotlib is not installed."""
        try:
            from matplotlib.figure import Figure
        except ImportError:
            print("no picture: matplotlib is missing; pip install 'streamomd[report]'\n")
            return
        figure = Figure(figsize=size, layout="constrained")
        draw(figure)
        figure.savefig(self.out / f"{self.name}.png", dpi=120)
        print(f"picture: {self.out / self.name}.png\n")

    def close(self) -> int:
        """Write the section; 1 if a check failed, the exit code."""
        self._add("")
        text = re.sub(r"\n{3,}", "\n\n", "\n".join(self.lines)).rstrip("\n") + "\n"
        (self.out / f"{self.name}.md").write_text(text, encoding="utf-8")
        print(f"{time.perf_counter() - self.began:.0f} s")
        for what in self.failed:
            print(f"failed: {what}", file=sys.stderr)
        return int(bool(self.failed))

    def _add(self, *lines: str) -> None:
        self.lines += lines
        print(*lines, sep="\n", flush=True)


def shown(cell: object) -> str:
    """A table's cell.

    >>> shown(0.09812), shown(5.5e-05), shown(45211), shown(None)
    ('0.0981', '5.5e-05', '45,211', '')
    """
    if cell is None or (isinstance(cell, float) and math.isnan(cell)):
        return ""
    if isinstance(cell, float):
        return f"{cell:.3g}"
    return f"{cell:,}" if isinstance(cell, int) else str(cell)


def missing(section: Section, names: Iterable[str], data: Path) -> None:
    """Say which data sets are not there."""
    absent = [name for name in names if not (data / name).is_dir()]
    if absent:
        section.say(f"Omitted, not in the data directory: {', '.join(absent)}.")
