"""A bound that a commit has to keep before it is served."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from streamomd.core.errors import UsageError
from streamomd.core.urls import printable
from streamomd.training.model import Model

_BOUND = re.compile(r"\s*(loss|error|rmse)\s*<=\s*([0-9.]+(?:[eE][+-]?[0-9]+)?)\s*")


class GatedError(Exception):
    """A commit that is worse than the bound."""


@dataclass(frozen=True)
class Gate:
    """metric: loss, error or rmse. most: its largest value. shards: labelled rows that a commit is
    evaluated on; without them, the progressive figure of the rows of its last update, each
    predicted before it was learned.
    """

    metric: str
    most: float
    shards: tuple[str, ...] = ()
    storage_options: Mapping[str, Any] = field(default_factory=dict, repr=False)

    @classmethod
    def parse(
        cls, text: str, shards: tuple[str, ...] = (), options: Mapping[str, Any] | None = None
    ) -> Self:
        """The gate of ``loss<=0.3``. Raises UsageError for another text."""
        try:
            found = _BOUND.fullmatch(text)
            if found is None:
                raise ValueError(text)
            return cls(found[1], float(found[2]), shards, options or {})
        except ValueError:
            raise UsageError(
                f"--gate {printable(text)!r}: expected loss, error or rmse and its largest value, "
                "such as 'loss<=0.3'"
            ) from None

    def check(self, model: Model) -> None:
        """Raise GatedError for a model that is worse; UsageError if it has no such figure."""
        if self.metric == ("rmse" if model.spec.model.classifies else "error"):
            raise UsageError(f"--gate: this model has no {self.metric}; use loss")
        if self.shards:
            of = "the rows of --gate-rows"
            figures = model.evaluate(self.shards, storage_options=self.storage_options, quiet=True)
        else:
            of = f"the rows of update {model.update.number}" if model.update.number else "all rows"
            figures = model.update.figures(model.metrics)
        value = figures[self.metric]
        if value is None or not value <= self.most:
            shown = "undefined" if value is None else f"{value:.6g}"
            raise GatedError(f"its {self.metric} on {of} is {shown}, over {self.most:g} of --gate")
