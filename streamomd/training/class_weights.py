"""What a row counts for by its class: numbers of a job by name, or so that classes balance."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamomd.config.data_table import Data
from streamomd.config.spec import Spec
from streamomd.core.batch import SAMPLED, Batch, Floats, Skipped, taken
from streamomd.core.errors import UnsupportedError, UsageError
from streamomd.core.urls import printable
from streamomd.core.wording import job_word, suggestion
from streamomd.engine import Engine
from streamomd.engine.state import State
from streamomd.features import Plan
from streamomd.training.holdout import drawn_numbers, rows_held_out
from streamomd.training.metrics import Metrics

Learn = Callable[[Floats, Batch], Floats]
"""learn(sums, batch) -> margins of before learning; it adds to sums."""


@dataclass(frozen=True, eq=False)
class ClassWeights:
    """given: a number for each class; None: balanced.

    Balanced, a row of class k counts for n / (K n_k) times its weight: n the weight of all rows up
    to and including it, n_k that of its class, K the number of classes. ``before``: the n_k and n,
    (classes + 1,), of rows that the metrics do not count: those before a round of averaged mode.
    """

    classes: int
    given: Floats | None
    before: Floats = field(default_factory=lambda: np.zeros(0))

    def of(self, metrics: Metrics, batch: Batch) -> Floats:
        """A factor for each row; balanced, the metrics count the rows' classes.

        Rows are added one by one, so how they are cut into batches changes no bit.
        """
        place = places_of_labels(batch.y, self.classes)
        if self.given is not None:
            found: Floats = self.given[place]
            return found
        if metrics.classes is None:
            metrics.classes = np.zeros(self.classes + 1)
        return self._balanced(metrics.classes, place, batch.weight)

    def weighted(self, metrics: Metrics, batch: Batch) -> Batch:
        """The rows with what they count for in learning."""
        return replace(batch, weight=batch.weight * self.of(metrics, batch))

    def _balanced(self, counts: Floats, place: NDArray[np.int64], weight: Floats) -> Floats:
        before = self.before if len(self.before) else np.zeros(self.classes + 1)
        each, total = np.empty(len(place)), _running(counts, self.classes, weight)
        total += before[-1]
        for k in np.unique(place).tolist():
            at = np.flatnonzero(place == k)
            each[at] = _running(counts, k, weight[at]) + before[k]
        with np.errstate(divide="ignore", invalid="ignore"):
            found: Floats = total / (self.classes * each)
        return np.where(each > 0.0, found, 1.0)


def class_weights_of(spec: Spec, plan: Plan, before: Floats | None = None) -> ClassWeights | None:
    """The weights by class of a job; None if it has none. Raises UsageError for an unknown class.

    before: see ``ClassWeights``.
    """
    wanted, count = spec.model.class_weight, len(plan.classes)
    if not wanted or not count:
        return None
    if isinstance(wanted, str):
        return ClassWeights(count, None, np.zeros(0) if before is None else before)
    return ClassWeights(count, numbers_of_classes(wanted, plan.classes, "model.class_weight"))


def _running(counts: Floats, at: int, more: Floats) -> Floats:
    """A count after each addition, which becomes the last of them."""
    found: Floats = np.add.accumulate(np.concatenate([counts[at : at + 1], more]))[1:]
    if len(found):
        counts[at] = found[-1]
    return found


def learn_weighted(
    engine: Engine,
    state: State,
    metrics: Metrics,
    weights: ClassWeights,
    learn: Learn,
    batch: Batch,
) -> Floats:  # fmt: skip
    """Learn a batch with weights by class. The sums are those of the rows' own weights."""
    learned = engine.rows_learned(state)
    margins = learn(np.zeros(3), weights.weighted(metrics, batch))
    recount(metrics.current, engine.row_losses(learned, margins, batch.y, batch.weight), batch)
    return margins


def recount(sums: Floats, losses: Floats, batch: Batch) -> None:
    """Add rows to sums one by one, by their own weights. losses: see ``Engine.row_losses``."""
    with np.errstate(all="ignore"):  # of a model that diverges
        for at, terms in enumerate((np.ones(len(batch)), losses[:, 0], losses[:, 1])):
            _running(sums, at, batch.weight * terms)


def numbers_of_classes(given: Mapping[str, float], classes: Sequence[Any], key: str) -> Floats:
    """A number for each class, 1 for those that are not named. key: that gives them.

    Names are texts in TOML: a boolean is true or false, a number is compared as a number. Raises
    UsageError for a name that is not a class.

    >>> numbers_of_classes({"1": 5.0}, (0, 1), "model.class_weight")
    array([1., 5.])
    """
    numbers = np.ones(len(classes))
    for name, number in given.items():
        places = [at for at, label in enumerate(classes) if _is_name(name, label)]
        if not places:
            names = [job_word(label) for label in classes]
            raise UsageError(
                f"{key} names {printable(repr(name))}, which is not a class of the label: "
                f"{suggestion(name, names)}"
            )
        numbers[places[0]] = number
    return numbers


def refuse_unknown_classes(spec: Spec, plan: Plan) -> None:
    """Raise UsageError for a class that a key of the job names and the label does not have, and
    UnsupportedError for classes that cannot be calibrated."""
    given = {"model.class_weight": spec.model.class_weight, "data.sample": spec.data.sample}
    for key, table in given.items():
        if isinstance(table, Mapping):
            numbers_of_classes(table, plan.classes, key)
    if spec.model.calibrate != "none" and len(plan.classes) != 2:
        raise UnsupportedError(
            f"model.calibrate = {spec.model.calibrate!r} is for two classes, and the label has "
            f"{len(plan.classes)}: leave it out"
        )


def places_of_labels(y: Floats, classes: int) -> NDArray[np.int64]:
    """The class's number of each label, as a batch holds it."""
    return (y > 0.0).astype(np.int64) if classes == 2 else y.astype(np.int64)


def _is_name(name: str, label: Any) -> bool:
    if isinstance(label, str):
        return bool(name == label)
    if isinstance(label, bool):
        return name.lower() == job_word(label)
    try:
        return bool(float(name) == label)
    except ValueError:
        return False


SALT = 0x5A3F1E6B
"""Added to the seed: what is drawn does not depend on which rows are held out."""


def drawn_shares(seed: int, shard: int, rows: NDArray[np.int64]) -> NDArray[np.float64]:
    """A number from 0 to below 1 for each row of a shard, the same in each call.

    >>> drawn_shares(0, 0, np.arange(3)).round(3)
    array([0.245, 0.53 , 0.624])
    """
    drawn = drawn_numbers(seed ^ SALT, shard, rows) >> np.uint64(11)
    return drawn.astype(np.float64) * 2.0**-53


def sampled_rows(data: Data, plan: Plan, place: int, rows: range, batch: Batch) -> Batch:
    """The rows of a batch that are learned, with what they count for, by ``data.sample``.

    place, rows: as in ``rows_held_out``, whose rows are all there with their own weights. The
    others of a class with share p are there with probability p, and their weight is divided by p:
    all sums over rows are those of all rows, in the mean over seeds. Skipped rows have those that
    were dropped among them.
    """
    if not data.sample:
        return batch
    shares = numbers_of_classes(data.sample, plan.classes, "data.sample")
    at = np.delete(np.arange(len(rows)), batch.skipped.places)
    share = shares[places_of_labels(batch.y, len(plan.classes))]
    chosen = drawn_shares(data.seed, place, rows.start + at) < share
    held = rows_held_out(data, place, rows, batch.skipped, batch.time)
    if held is not None:
        chosen |= held
        share = np.where(held, 1.0, share)
    chosen_rows, dropped = taken(batch, np.flatnonzero(chosen)), at[~chosen]
    return replace(
        chosen_rows,
        weight=chosen_rows.weight / share[chosen],
        skipped=_joined(batch.skipped, dropped),
    )


def _joined(skipped: Skipped, dropped: NDArray[np.int64]) -> Skipped:
    places = np.concatenate([skipped.places, dropped])
    reasons = np.concatenate([skipped.reasons, np.full(len(dropped), SAMPLED, np.int8)])
    order = np.argsort(places, kind="stable")
    return Skipped(places[order], reasons[order])
