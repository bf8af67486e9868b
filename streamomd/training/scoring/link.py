"""From margins to predictions: the classes, and the loss's mean."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Self

from streamomd.core.errors import DataError, UsageError
from streamomd.core.sigmoid import sigmoid
from streamomd.training.scoring.calibration import Calibration

Label = bool | int | float | str
CALIBRATED = "calibrated"


@dataclass(frozen=True)
class Link:
    """From margins to predictions. labels: what is predicted of each class, () in regression.

    classes: as the job has them. loss: its name. probable: there are probabilities. e: their
    smoothing. mean: which function of a margin is predicted: "margin", "sigmoid", or "loss", the
    loss's own. calibration: of the probabilities, in place of the loss's.
    """

    classes: tuple[Label, ...]
    labels: tuple[Label, ...]
    loss: str
    coupled: bool
    probable: bool
    e: float = 0.0
    mean: str = "loss"
    calibration: Calibration | None = None

    @property
    def has_probabilities(self) -> bool:
        """Whether rows have probabilities."""
        return (self.probable or self.calibration is not None) and bool(self.classes)

    def mean_of_margin(self) -> Callable[[float], float]:
        """What is predicted at a margin."""
        if self.mean != "loss":
            return sigmoid if self.mean == "sigmoid" else float
        from streamomd.losses import find_loss  # late: all losses take a third of a scorer's start

        return find_loss(self.loss).mean

    def check(self, learners: int) -> None:
        """Raises DataError unless as many margins belong to these classes."""
        classes = len(self.classes)
        legal = (1,) if classes == 0 else (1, 2) if classes == 2 else (classes,)
        if self.calibration is not None and classes != 2:
            raise DataError(f"a calibration of {classes} classes")
        if classes == 1 or learners not in legal or len(self.labels) != classes:
            raise DataError(f"{learners} margins of {classes} classes")

    def to_json(self) -> dict[str, Any]:
        """What ``from_json`` reads back."""
        found = {name: value for name, value in vars(self).items() if name != "calibration"}
        if self.calibration is None:
            return found
        # Scorers of versions without calibration refuse the word.
        calibrated = {"mean": CALIBRATED, "of": self.mean, CALIBRATED: self.calibration.to_json()}
        return {**found, **calibrated}

    @classmethod
    def from_json(cls, saved: Mapping[str, Any]) -> Self:
        """A link that was saved. Raises DataError for anything else."""
        mean, calibration = saved["mean"], None
        if mean == CALIBRATED:
            mean, calibration = saved["of"], Calibration.from_json(saved[CALIBRATED])
        made = cls(
            _labels(saved["classes"]),
            _labels(saved["labels"]),
            saved["loss"],
            saved["coupled"],
            saved["probable"],
            float(saved["e"]),
            mean,
            calibration,
        )
        flags = type(made.coupled) is bool and type(made.probable) is bool
        known = made.mean in ("margin", "sigmoid", "loss")
        if type(made.loss) is not str or not flags or not known or not 0.0 <= made.e < 1.0:
            raise DataError(f"the link {dict(saved)!r}")
        try:
            made.mean_of_margin()
        except UsageError as error:
            raise DataError(str(error)) from None
        return made


def _labels(saved: list[Any]) -> tuple[Label, ...]:
    if type(saved) is not list or not all(type(one) in (bool, int, float, str) for one in saved):
        raise DataError(f"the labels {saved!r}")
    return tuple(saved)
