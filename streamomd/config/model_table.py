"""Model, the table [model] of a job."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal

from pydantic import model_validator

from streamomd.config.field_types import ClassWeights, Labels
from streamomd.config.job_table import Table, key
from streamomd.config.refusals import DEFAULT, parse_model
from streamomd.losses import find_loss


class Model(Table):
    """[model]: what is learned. An empty loss is the rule's own default.

    ``certificate``: also store the slots that the rule's certificate needs.
    """

    rule: str = key(
        DEFAULT, "Learning rule; without a name: prints a guide. See: streamomd list rules.",
        flag="rule", metavar="NAME",
    )  # fmt: skip
    loss: str = key(
        "", "Loss to minimize. See: streamomd list losses.", flag="loss", metavar="NAME",
        shown_default="logistic; softmax for 3 classes and more; square in regression; or the "
        "named rule's",
    )  # fmt: skip
    loss_params: dict[str, Any] = key({}, "Parameters of the loss.", flag=None)
    task: Literal["auto", "classify", "regress"] = key(
        "auto", "Whether labels are classes or numbers; auto: as the loss or the labels say.",
        flag="task",
    )  # fmt: skip
    classes: Labels = key((), "The classes, the negative one first; empty: found.", flag=None)
    class_weight: ClassWeights = key(
        "", "What rows of a class count for in learning: balanced, or a number for each class; "
        "metrics do not change.", flag="class_weight", metavar="balanced|CLASS=X,…",
        shown_default="1 for each class",
    )  # fmt: skip
    calibrate: Literal["none", "sigmoid", "isotonic"] = key(
        "none", "How probabilities of two classes are calibrated, by margins of rows before they "
        "are learned; the score does not change.", flag="calibrate",
    )  # fmt: skip
    bias: bool = key(True, "Whether to learn a bias (intercept).", flag=None)
    dtype: Literal["float64", "float32"] = key(
        "float64", "Type of the state's numbers; float32 takes half the memory.", flag="dtype"
    )
    start: str = key(
        "", "Warm start from a checkpoint or a Parquet file of weights.", flag="start",
        metavar="URL",
    )  # fmt: skip
    continue_metrics: bool = key(
        False, "Whether metrics and history continue those of the start.", flag="continue_metrics"
    )
    scale_target: bool | None = key(
        None, "Whether to centre and scale the target as it comes, in regression.", flag=None,
        shown_default="true for auto and its parts, else false",
    )  # fmt: skip
    certificate: bool = key(False, "Whether to store what the rule's certificate needs.", flag=None)
    params: dict[str, Any] = key(
        {}, "Parameters of the rule.", flag=None,
        parameters={
            "eta": "Learning rate (step size).",
            "l1": "Strength of the L1 regularizer.",
            "l2": "Strength of the L2 regularizer.",
        },
    )  # fmt: skip

    @model_validator(mode="wrap")
    @classmethod
    def _known(cls, given: Any, validate: Callable[[Any], Any]) -> Any:
        if not isinstance(given, Mapping):
            return validate(given)
        found = validate({**given, **parse_model(given)})
        if not given.get("loss"):
            found.model_fields_set.discard("loss")
        return found

    @property
    def names_loss(self) -> bool:
        """Whether the job says which loss to minimize."""
        return "loss" in self.model_fields_set

    @property
    def finds_task(self) -> bool:
        """Whether the labels say if they are classes: the job names no task, loss or classes."""
        unsaid = self.task == "auto" and not self.names_loss and not self.classes
        return unsaid and find_loss(self.loss).classifies

    @property
    def seeks_classes(self) -> bool:
        """Whether the classes are found in the labels."""
        return self.classifies and not self.classes

    @property
    def counts_first(self) -> bool:
        """Whether a run counts predictions of rows that it learns for the first time."""
        return self.calibrate != "none" or not self.classifies

    @property
    def classifies(self) -> bool:
        """Whether labels are classes."""
        if self.task == "auto":
            return find_loss(self.loss).classifies or bool(self.classes)
        return self.task == "classify"
