"""Scorer: predictions of rows in memory, one in microseconds, without Arrow and numba."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from streamomd.core.errors import UsageError
from streamomd.training.scoring.description import Description
from streamomd.training.scoring.fast_form import FEWEST, FastForm
from streamomd.training.scoring.link import Label, Link, chosen, class_probabilities, means
from streamomd.training.scoring.margins import Margins
from streamomd.training.scoring.row_encoder import Entries, RowEncoder, Source, mappings_of


class Scorer:
    """A trained model as rows in memory need it; made by ``Model.scorer``, immutable, thread-safe.

    A row is a mapping from column to value; columns that are no features are ignored. It has no
    reference to the model: what the model learns later does not change it.

    Raises SchemaError that names all missing columns of a row, or all values of another type,
    BadRowError for other bad values, UsageError for a row that is not a mapping.

    >>> from streamomd.training.scoring.description import NumberColumn
    >>> from streamomd.training.scoring.margins import Weights
    >>> columns = Description(bias=True, numbers=(NumberColumn("age", "float", "error"),))
    >>> margins = Margins(True, Weights.of(np.array([[-1.0], [0.5]])), start=(-1.0,))
    >>> link = Link((0, 1), (0, 1), "logistic", False, True, mean="sigmoid")
    >>> scorer = Scorer(columns, margins, link)
    >>> scorer({"age": 4.0}), scorer.score({"age": 4.0}), round(scorer.proba({"age": 4.0}), 3)
    (1, 1.0, 0.731)
    """

    def __init__(self, description: Description, margins: Margins, link: Link) -> None:
        self._form = description, margins, link
        self._encoder = RowEncoder(description)
        self._margins, self._link = margins, link
        self._fast = FastForm.of(description, margins)
        self._mean = link.mean_of_margin()

    def __repr__(self) -> str:
        """In a line."""
        return f"Scorer(columns={len(self.columns)}, classes={len(self.classes)})"

    def __reduce__(self) -> Any:
        """Pickled as the bytes of its file."""
        return type(self)._of_bytes, (self._content(),)

    def _content(self) -> bytes:
        from streamomd.training.scoring.saved_scorer import scorer_bytes

        return scorer_bytes(*self._form)

    @classmethod
    def _of_bytes(cls, content: bytes) -> Self:
        from streamomd.training.scoring.saved_scorer import parts_of_bytes

        return cls(*parts_of_bytes(content, "the pickled scorer"))

    @property
    def classes(self) -> tuple[Label, ...]:
        """The classes, [negative, positive] or all; () in regression."""
        return self._link.classes

    @property
    def columns(self) -> dict[str, str]:
        """The kind of each feature column: number, category, categories, date, text or list."""
        return dict(self._encoder.description.columns)

    @property
    def description(self) -> Description:
        """How the columns of a row become coordinates."""
        return self._encoder.description

    @property
    def required(self) -> tuple[str, ...]:
        """The columns that each row must have."""
        return self._encoder.required

    def __call__(self, row: Mapping[str, Any]) -> Any:
        """The value of the column ``prediction``: a label, or a number in regression."""
        return self._prediction(self._of(row))

    def score(self, row: Mapping[str, Any]) -> Any:
        """The margin, bit-identical to the column ``score``; with a margin a class a list."""
        margins = self._of(row)
        return margins[0] if len(margins) == 1 else margins

    def proba(self, row: Mapping[str, Any]) -> Any:
        """The probability of the second class; with a margin a class a list over all classes.

        Raises UsageError for a loss without probabilities.
        """
        return self._probability(self._of(row))

    def many(self, rows: Iterable[Mapping[str, Any]]) -> tuple[list[Any], Any, Any]:
        """Predictions, scores and probabilities of rows, by row.

        predictions: a list. scores: float64 (n,), or (n, classes) with a margin a class.
        probabilities: the same shape; None for a loss without. Errors name the row.
        """
        given = mappings_of(rows)
        margins = self._all(given)
        link = self._link
        scores = margins[:, 0] if self._margins.learners == 1 else margins
        likely = None
        if link.calibration is not None:
            likely = link.calibration.of(margins)
        elif link.has_probabilities:
            likely = class_probabilities(self._mean, link.coupled, link.e, margins)
        return self._predictions(margins), scores, likely

    def explain(self, row: Mapping[str, Any], where: str = "the row") -> Explanation:
        """What each feature of a row adds to its margin. where: its name in errors."""
        sources: list[Source] = []
        entries = self._encoder.entries(row, where, sources)
        return explanation_of(self._margins, entries, sources)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the scorer to a file, which ``Scorer.load`` reads: a zip archive, no pickle."""
        from streamomd.training.scoring.saved_scorer import write_scorer

        write_scorer(path, self._content())

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """The scorer of a file that ``save`` wrote. Nothing of it is executed.

        Raises InputNotFoundError without a file, DataError for any other file.
        """
        from streamomd.training.scoring.saved_scorer import read_scorer

        return cls(*read_scorer(path))

    def _all(self, rows: Sequence[Mapping[str, Any]]) -> Any:
        """The margins of rows, (n, learners)."""
        found = None
        if self._fast is not None and len(rows) >= FEWEST:
            found = self._fast.many(rows)
        if found is None:
            each = [self._of(row, f"row {at}") for at, row in enumerate(rows)]
            found = np.array(each, np.float64).reshape(len(rows), self._margins.learners)
        return found

    def _of(self, row: Mapping[str, Any], where: str = "the row") -> list[float]:
        found = None if self._fast is None else self._fast.one(row)
        return self._margins.of(self._encoder.entries(row, where)) if found is None else found

    def _prediction(self, margins: Sequence[float]) -> Any:
        labels = self._link.labels
        if not labels:
            return self._mean(margins[0])
        if any(map(math.isnan, margins)):
            return None
        if len(margins) == 1:
            return labels[1 if margins[0] > 0.0 else 0]
        return labels[margins.index(max(margins))]

    def _predictions(self, margins: Any) -> list[Any]:
        labels = self._link.labels
        if not labels:
            found: list[Any] = means(self._mean, margins[:, 0]).tolist()
            return found
        places = np.where(np.isnan(margins).any(axis=1), len(labels), chosen(margins))
        with_none = (*labels, None)
        return [with_none[at] for at in places.tolist()]

    def _probability(self, margins: Sequence[float]) -> Any:
        link = self._link
        if not link.has_probabilities:
            raise no_probabilities(link.loss, link.classes)
        if link.calibration is not None:
            if len(margins) == 1:
                return link.calibration(margins[0])
            return link.calibration.of(np.array([margins]))[0].tolist()
        if len(margins) == 1:
            likely = self._mean(margins[0])
            return (1.0 - link.e) * likely + link.e / 2 if link.e > 0.0 else likely
        found: list[float] = class_probabilities(
            self._mean, link.coupled, link.e, np.array([margins])
        )[0].tolist()
        return found


def no_probabilities(loss: str, classes: Sequence[Any]) -> UsageError:
    """The error of a model without probabilities."""
    if not classes:
        return UsageError("a regression model has no probabilities: use predict or score")
    return UsageError(
        f"loss {loss!r} has no probabilities: train with loss logistic or softmax, or use the score"
    )


Contribution = tuple[str, Any, float]


@dataclass(frozen=True)
class Explanation:
    """A row's margin and what each feature adds to it.

    margin: a float; with a margin for each class a list. contributions: (feature, value,
    contribution), the largest first, that sum to the margin; with a margin for each class a list of
    such lists. value: the row's number, category or text; None where it is missing, and of the
    bias. A feature that adds nothing has a contribution of 0.
    """

    margin: Any
    contributions: list[Any]


def explanation_of(margins: Margins, entries: Entries, sources: list[Source]) -> Explanation:
    """The explanation of an encoded row."""
    pieces, start, values = margins.explained(entries)
    by_place = dict(zip(entries.coordinates, pieces, strict=True))
    shares = _shares(sources)
    lists = []
    for k in range(margins.learners):
        parts: list[Contribution] = []
        hats: dict[str, float] = {}
        for (name, value, at, _, is_hat), share in zip(sources, shares, strict=True):
            adds = by_place[at][k] * share
            if is_hat:
                hats[name] = hats.get(name, 0.0) + adds
            else:
                parts.append((name, value, adds))
        if hats:
            parts = [(name, value, adds + hats.pop(name, 0.0)) for name, value, adds in parts]
        if start[k] != 0.0 or margins.bias:
            parts.append(("bias", None, start[k]))
        lists.append(sorted(parts, key=lambda one: -abs(one[2])))
    if margins.learners == 1:
        return Explanation(values[0], lists[0])
    return Explanation(values, lists)


def _shares(sources: Sequence[Source]) -> list[float]:
    """Each feature's share of what its coordinate adds: all of it, where it is alone."""
    totals: dict[int, list[float]] = {}
    for _, _, at, x, _ in sources:
        totals.setdefault(at, []).append(x)
    found = []
    for _, _, at, x, _ in sources:
        those = totals[at]
        whole = math.fsum(those) if len(those) > 1 else 0.0
        found.append(x / whole if whole else 1.0 / len(those))
    return found
