"""The groups of a sweep on a cluster: which learners a task learns, and up to which row."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

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
