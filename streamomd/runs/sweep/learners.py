"""The learners of a sweep: how each does, which is best, which are dropped."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np

from streamomd.checkpoint.manifest import GROUPS
from streamomd.core.batch import Floats
from streamomd.core.errors import DivergedError
from streamomd.core.urls import shown
from streamomd.runs.sweep.grid import find_edges, worded
from streamomd.shards.order import Cursor
from streamomd.training.model import Model
from streamomd.training.model_data import ModelData
from streamomd.training.progress import note

_STAGE = re.compile(r"[0-9a-f]{8}")


@dataclass(frozen=True)
class Division:
    """The learners of each group by name, and the row after which all groups wait; 0: none.

    A group's commits are in ``URL/groups/STAGE-NUMBER``. Each division has a stage of its own, so
    that the commits of an earlier one are never read.
    """

    stage: str
    until: int
    names: tuple[tuple[str, ...], ...]

    def directory(self, at: int) -> str:
        """Where a group commits, below the sweep's URL."""
        return f"groups/{self.stage}-{at:03d}"

    @property
    def directories(self) -> list[str]:
        """The directories of all groups."""
        return [self.directory(at) for at in range(len(self.names))]

    def to_json(self) -> dict[str, Any]:
        """For the document of a commit."""
        names = [list(group) for group in self.names]
        return {"stage": self.stage, "until": self.until, "learners": names}

    @classmethod
    def from_json(cls, saved: Mapping[str, Any]) -> Self:
        """Back from ``to_json``. Raises ValueError for a stage that is not the name of a folder."""
        stage = str(saved["stage"])
        if not _STAGE.fullmatch(stage):
            raise ValueError(f"no groups are called {stage!r}")
        names = tuple(tuple(str(name) for name in group) for group in saved["learners"])
        return cls(stage, int(saved["until"]), names)


@dataclass(eq=False)
class Learner:
    """A model of a sweep.

    name: of its folder. chosen: what the grid chose for it. dropped: the row after which it was
    dropped, 0 while it learns. mark: the sums of its figures when learners were last dropped.
    diverged: what was not finite, if that is why it was dropped.
    """

    name: str
    chosen: Mapping[str, Any]
    model: Model
    dropped: int = 0
    mark: Floats = field(default_factory=lambda: np.zeros(3))
    diverged: str = ""

    def figures(self) -> dict[str, float | None]:
        """Progressive loss, error and rmse of all rows."""
        metrics = self.model.metrics
        return metrics.figures(metrics.total)

    def since(self) -> dict[str, float | None]:
        """The same of the rows since learners were last dropped."""
        metrics = self.model.metrics
        with np.errstate(invalid="ignore"):  # squared errors may have overflowed: no figure then
            return metrics.figures(metrics.total - self.mark)


@dataclass(eq=False)
class Sweep:
    """What ``streamomd.sweep`` returns: many models that learned the same rows, read once.

    A sequence of its models, in the order of the grid. ``cursor``: the next row of all that are
    not dropped. ``url``, ``sequence``: its last commit; empty and −1 if none. ``halve``: as given.
    ``extensions``: sweeps of values beyond the grid, whose learners ``best`` and ``result``
    include. ``division``: into groups, while tasks of a cluster learn them.
    """

    learners: list[Learner]
    halve: int = 0
    cursor: Cursor = field(default_factory=Cursor)
    url: str = ""
    sequence: int = -1
    finished: bool = False
    seconds: float = 0.0
    rows_per_second: float = 0.0
    compile_seconds: float = 0.0
    extensions: list[Sweep] = field(default_factory=list)
    division: Division | None = None

    def __repr__(self) -> str:
        """In a line: a model's own is as long."""
        parts = [f"learners={len(self)}", f"active={len(self.active)}", f"rows={self.rows}"]
        parts += [f"best={dict(self.ranked()[0].chosen)}"]
        parts += [f"url={shown(self.url)!r}"] if self.url else []
        return f"Sweep({', '.join(parts)})"

    def __len__(self) -> int:
        return len(self.learners)

    def __iter__(self) -> Iterator[Model]:
        return (learner.model for learner in self.learners)

    def __getitem__(self, at: int) -> Model:
        return self.learners[at].model

    @property
    def active(self) -> list[Learner]:
        """Those that are not dropped; there is always one."""
        return [learner for learner in self.learners if not learner.dropped]

    @property
    def lead(self) -> Model:
        """One of those that learn: what all have alike is read from it."""
        return self.active[0].model

    @property
    def rows(self) -> int:
        """Learned by all that are not dropped, in all epochs. Groups of a cluster may be ahead."""
        return min(learner.model.metrics.total_rows for learner in self.active)

    @property
    def measure(self) -> str:
        """What they are compared by: the loss, where all have the same; else error or rmse."""
        losses = {(m.spec.model.loss, repr(m.spec.model.loss_params)) for m in self}
        if len(losses) == 1:
            return "loss"
        return "error" if self.lead.metrics.classifies else "rmse"

    @property
    def best(self) -> Model:
        """The model with the lowest measure of all rows, of those that are not dropped."""
        return self.best_learner.model

    @property
    def best_learner(self) -> Learner:
        """The learner of the best model."""
        measure = self.measure
        firsts = [self.ranked()[0], *(one.ranked()[0] for one in self.extensions)]
        return min(firsts, key=lambda learner: _least(learner.figures()[measure]))

    @property
    def all_learners(self) -> list[Learner]:
        """Its learners and those of its extensions."""
        return [*self.learners, *(one for more in self.extensions for one in more.learners)]

    def ranked(self) -> list[Learner]:
        """Those that learn, the best first."""
        measure = self.measure
        return sorted(self.active, key=lambda learner: _least(learner.figures()[measure]))

    @property
    def next_halving(self) -> float:
        """The row after which half of the learners are dropped."""
        if not self.halve or len(self.active) == 1:
            return math.inf
        return self.halve << (self.rows // self.halve).bit_length()

    def drop_half(self) -> list[Learner]:
        """Keep the half that did better since the last time, and the first of equals."""
        measure, rows = self.measure, self.rows
        ranked = sorted(self.active, key=lambda learner: _least(learner.since()[measure]))
        worse = ranked[(len(ranked) + 1) // 2 :]
        for learner in ranked:
            learner.mark = learner.model.metrics.total
        for learner in worse:
            learner.dropped = rows
        return worse

    def parts(self, division: Division) -> list[Sweep]:
        """Each group of a division as a sweep of its own learners, which are at one row."""
        learners = {learner.name: learner for learner in self.learners}
        made = []
        for at, names in enumerate(division.names):
            own = [learners[name] for name in names]
            cursor = min(learner.model.cursor for learner in own)
            made.append(Sweep(own, cursor=cursor, url=f"{self.url}/{division.directory(at)}"))
        return made

    def drop_diverged(self, found: Mapping[ModelData, str]) -> None:
        """Drop the learners of these models, for what is not finite of them.

        Raises DivergedError if no other is left.
        """
        rows = self.rows
        for learner in self.active:
            if problem := found.get(learner.model):
                learner.dropped, learner.diverged = rows, problem
                text = f"learner {learner.name} ({worded(learner.chosen)}) is dropped: {problem}"
                note(text, "learner_dropped", "warning", learner=learner.name, rows=rows)
        self.refuse_all_diverged()

    def refuse_all_diverged(self) -> None:
        """Raises DivergedError if no learner is left."""
        if not self.active:
            rows, last = max((one.dropped, one.diverged) for one in self.learners if one.diverged)
            raise DivergedError(
                f"every learner of the sweep diverged, the last after {rows:,} rows: {last}. Fix "
                "extreme values in the shards, or pass smaller learning rates"
            )

    def document(self) -> dict[str, Any]:
        """What a commit of the sweep saves: its figures are in the learners' own commits."""
        return {
            "sweep": {"halve": self.halve},
            "learners": [
                {
                    "name": learner.name,
                    "chosen": dict(learner.chosen),
                    "sequence": learner.model.sequence,
                    "dropped": learner.dropped,
                    "mark": [float(number).hex() for number in learner.mark],
                    "diverged": learner.diverged,
                }
                for learner in self.learners
            ],
            "cursor": self.cursor.to_json(),
            "rows": self.rows,
            "finished": self.finished,
            **({GROUPS: self.division.to_json()} if self.division else {}),
        }

    def result(self) -> dict[str, Any]:
        """What ``--json`` prints: figures of each learner, which is the best, and the commit."""
        results = {learner.model: _result(learner) for learner in self.learners}
        for number, more in enumerate(self.extensions, 1):
            for learner in more.learners:
                figures = _result(learner)
                results[learner.model] = {**figures, "name": f"extended-{number}/{figures['name']}"}
        best = dict(results[self.best])
        if self.url and self.finished:
            best["checkpoint"] = {"url": f"{self.url}/best"}
        return {
            "learners": [*results.values()],
            "best": best,
            "edges": [
                {
                    "key": edge.key,
                    "value": edge.value,
                    "end": "largest" if edge.largest else "smallest",
                    "beyond": list(edge.beyond),
                }
                for edge in find_edges(
                    self.best_learner.chosen, [each.chosen for each in self.all_learners]
                )
            ],
            "measure": self.measure,
            "rows": self.rows,
            "epochs": len(self.lead.metrics.rows),
            "skipped": self.lead.metrics.skipped,
            "seconds": self.seconds + sum(more.seconds for more in self.extensions),
            "rows_per_second": self.rows_per_second,
            "compile_seconds": self.compile_seconds,
            "checkpoint": {"url": self.url, "sequence": self.sequence},
        }


def _least(number: float | None) -> float:
    """What is no number is worse than any."""
    return math.inf if number is None else number


def _result(learner: Learner) -> dict[str, Any]:
    model, diverged = learner.model, learner.diverged
    figures, held = learner.figures(), model.spec.data.holds_out
    return {
        "name": learner.name,
        "params": dict(learner.chosen),
        **(dict.fromkeys(figures) if diverged else figures),
        "rows": learner.dropped if diverged else model.metrics.total_rows,
        "state_sha256": None if diverged else model.state_sha256,
        "checkpoint": {"url": model.url, "sequence": model.sequence},
        **({"holdout": None if diverged else model.result()["holdout"]} if held else {}),
        "dropped": learner.dropped or None,
        "diverged": diverged or None,
    }
