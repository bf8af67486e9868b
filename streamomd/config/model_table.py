"""Model, the table [model] of a job."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Literal

from pydantic import model_validator

from streamomd.config.field_types import ClassWeights, Labels, Shapes
from streamomd.config.job_table import Table, brief, canonical_value, key
from streamomd.core.errors import UsageError
from streamomd.core.message import Key, Message, PerReader, invalid_value
from streamomd.losses import all_losses, find_loss
from streamomd.losses.contract import with_lipschitz
from streamomd.rules import all_rules, find_rule
from streamomd.rules.contract import Rule, fields

DEFAULT, FALLBACK = "auto", "nag"
"""The rule of a job that names none, and where that one cannot learn the job."""


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
    shapes: Shapes = key(
        "none", "Shapes of the effects of numbers; columns: also curves, between knots that the "
        "first rows decide; pairs: and of pairs of columns; all: curves, and the margin of boosted "
        "trees, grown on the first rows.",
        flag="shapes",
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
        found = validate({**given, **_complete(given)})
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


def _complete(given: Mapping[str, Any]) -> dict[str, Any]:
    """The keys of [model] with rule, loss and parameters under their own names and complete.

    Raises UsageError for a rule, loss or parameter that is unknown, and for a rule that does not
    learn with the loss.
    """
    rule = find_rule(str(given.get("rule", DEFAULT)))
    if "rule" not in given:
        _refuse_parameters(_parameters(given, "params"))
    named = given.get("loss", "")
    loss = find_loss(_default_loss(rule, given) if named in ("", None) else str(named))
    if rule.losses.names and loss.name not in rule.losses.names:
        allowed = " or ".join(rule.losses.names)
        raise UsageError(f"rule {rule.name!r} learns with loss {allowed}; got {loss.name!r}")
    params = _rule_params(rule, _parameters(given, "params"))
    narrowed = rule.losses.narrowed(params) if rule.losses.narrowed else ()
    if narrowed and loss.name not in narrowed:
        raise UsageError(
            f"rule {rule.name!r} with {params} learns with loss {' or '.join(narrowed)}; "
            f"got {loss.name!r}"
        )
    loss_params = loss.parse_params(_parameters(given, "loss_params"))
    with_lipschitz(rule, loss, params, loss_params)
    if rule.is_implicit(params) and loss.along is None:
        exact = ", ".join(known.name for known in all_losses().values() if known.along)
        raise UsageError(f"implicit steps are exact for loss {exact}; got {loss.name!r}")
    proven = rule.certificate
    if given.get("certificate") and (
        proven.claims is None or (proven.losses and loss.name not in proven.losses)
    ):
        other = f" with loss {loss.name!r}" if proven.claims else ""
        raise UsageError(
            f"rule {rule.name!r} has no certificate{other}: {proven.reason}; rules with one: "
            "streamomd list rules"
        )
    return {"rule": rule.name, "loss": loss.name, "params": params, "loss_params": loss_params}


def _default_loss(rule: Rule, given: Mapping[str, Any]) -> str:
    """The rule's own, or the square loss in regression if the rule's own is of classes."""
    default = rule.losses.default
    regression = canonical_value("task", given.get("task")) == "regress"
    if not regression or not find_loss(default).classifies:
        return default
    if rule.losses.names and "square" not in rule.losses.names:
        raise UsageError(
            f"rule {rule.name!r} learns classes, with loss {' or '.join(rule.losses.names)}, and "
            "the task is regression (numeric labels of many values, or model.task): take another "
            "rule, or pass --task classify"
        )
    return "square"


def _refuse_parameters(given: Mapping[str, Any]) -> None:
    """Raise UsageError for parameters of the default or the fallback of a job without a rule: they
    may be meant for another. One that neither has is reported as unknown."""
    ours, theirs = fields(find_rule(DEFAULT).hyper), fields(find_rule(FALLBACK).hyper)
    if given and all(name in (*ours, *theirs) for name in given):
        which = PerReader(f"--rule {FALLBACK}, model.rule = {FALLBACK!r}", f'rule="{FALLBACK}"')
        rest = (
            f", but no rule is named: rule {DEFAULT} (the default) has {', '.join(ours)}; "
            f"rule {FALLBACK} has {', '.join(theirs)}; name one ("
        )
        raise UsageError(
            Message(
                "no_rule", ("{key} sets {found}", rest, "{remedy})"), key=Key("model.params"),
                found=", ".join(given), remedy=which,
            )
        )  # fmt: skip


def _rule_params(rule: Rule, given: Mapping[str, Any]) -> dict[str, Any]:
    try:
        return rule.parse_params(given)
    except UsageError as error:
        unknown = [name for name in given if name not in fields(rule.hyper)]
        rest = _rules_with(unknown[0]) if unknown else ""
        raise UsageError(replace(error.message, form=(error.message.form, rest))) from None


def _rules_with(parameter: str) -> str:
    """The end of a message about a parameter that other rules have."""
    names = [rule.name for rule in all_rules().values() if parameter in fields(rule.hyper)]
    return f"; rules with {parameter!r}: {', '.join(names)}" if names else ""


def _parameters(model: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    given = {} if model.get(key) is None else model[key]
    if not isinstance(given, Mapping):
        wanted = "expected a table of parameters"
        raise UsageError(invalid_value(f"model.{key}", brief(given), wanted))
    return given
