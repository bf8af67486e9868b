"""The groups of a sweep on a cluster: which learners a task learns, and up to which row."""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

from streamomd.runs.sweep.learners import Learner, Sweep

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
        """Of all groups."""
        return [self.directory(at) for at in range(len(self.names))]

    def parts(self, sweep: Sweep) -> list[Sweep]:
        """Each group as a sweep of its own learners, which are at one row."""
        learners = {learner.name: learner for learner in sweep.learners}
        made = []
        for at, names in enumerate(self.names):
            own = [learners[name] for name in names]
            cursor = min(learner.model.cursor for learner in own)
            made.append(Sweep(own, cursor=cursor, url=f"{sweep.url}/{self.directory(at)}"))
        return made

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


def divide(learners: Sequence[Learner], count: int) -> tuple[tuple[str, ...], ...]:
    """The names of these learners in ``count`` groups, or one for each if they are fewer.

    Sizes differ by one at most. Learners of one rule and loss are together, so that they share
    loops.
    """
    alike = sorted(learners, key=_kind)
    count = min(count, len(alike))
    edges = [at * len(alike) // count for at in range(count + 1)]
    return tuple(
        tuple(learner.name for learner in alike[low:high])
        for low, high in itertools.pairwise(edges)
    )


def _kind(learner: Learner) -> tuple[str, ...]:
    model = learner.model.spec.model
    return model.rule, model.loss, repr(model.loss_params)
