"""Spec: the complete description of a job, frozen and valid; what is saved and sent to workers.

``Spec.parse`` makes it from the tables of a TOML file, a dict or a checkpoint's manifest;
``Spec.to_json`` returns such tables. Values are validated here and never checked again inside. The
command line's flags are generated from these fields (``streamomd.config.flags``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Self

from pydantic import Field, ValidationError

from streamomd.config.data_table import Data
from streamomd.config.job_table import Table, canonical_keys, explain
from streamomd.config.model_table import DEFAULT, FALLBACK, Model
from streamomd.config.run_tables import Alert, Checkpoint, Cluster, Train, Update
from streamomd.core.errors import UnsupportedError, UsageError
from streamomd.core.message import Key, Message, PerReader, invalid_value
from streamomd.core.urls import without_secrets
from streamomd.losses import Loss, all_losses, find_loss
from streamomd.rules import all_rules, find_rule, standardize_problem, target_problem
from streamomd.rules.contract import Rule, Saved


class SpecTables(Table):
    """Each table valid by itself; ``Spec`` refuses those that contradict each other."""

    data: Data = Data()
    model: Model = Field(default_factory=lambda: Model.model_validate({}))
    train: Train = Train()
    checkpoint: Checkpoint = Checkpoint()
    cluster: Cluster = Cluster()
    update: Update = Update()
    alert: Alert = Alert()

    @property
    def rule(self) -> Rule:
        """The rule of the job with its loss, with its accounts if a certificate is wanted."""
        rule = find_rule(self.model.rule).for_loss(self.model.loss)
        if self.model.certificate:
            rule = rule.certificate.accounted or rule
        return rule.reduced_for(self.model.params)

    @property
    def refers_target(self) -> bool:
        """Whether a rule without a reference of its own learns the target in standard units."""
        return bool(self.model.scale_target) and self.rule.storage.kind != "block"

    @property
    def rounds_per_epoch(self) -> int:
        """Merges per epoch in averaged mode: the job's number, or what the rule needs."""
        return self.train.rounds_per_epoch or self.rule.storage.rounds

    @property
    def loss(self) -> Loss:
        """The loss of the job."""
        return find_loss(self.model.loss)

    def saved(self, version: int) -> Saved:
        """What a commit of this job records about its state."""
        model = self.model
        return Saved(version, self.data.weight != "", model.certificate, model.params)


NEEDS_BIAS = "needs the bias, the reference of standardised columns"


def names_no_rule(tables: Mapping[str, Any]) -> bool:
    """Whether a job leaves its rule to the default."""
    return "rule" not in (tables.get("model") or {})


def not_default(spec: SpecTables) -> str:
    """Why the default rule cannot learn this job, of which it is the rule; "" if it can."""
    rule, model, mode = spec.rule, spec.model, spec.train.mode
    if mode not in rule.modes_with(model.params):
        return _wrong_mode(rule, model.params, mode)
    return "" if model.bias else NEEDS_BIAS


def _wrong_mode(rule: Rule, params: Mapping[str, Any], mode: str) -> str:
    return f"learns in mode {' or '.join(rule.modes_with(params))}, not {mode}"


def _refuse_target(spec: SpecTables) -> None:
    model, loss, rule = spec.model, spec.loss, find_rule(spec.model.rule)
    scales, params = model.scale_target, model.params
    always = rule.storage.kind == "block"
    if scales is None or (scales is False and not (always and loss.centres)):
        return
    given = f"model.scale_target = {str(scales).lower()}"
    if not loss.degree:
        names = [name for name, one in all_losses().items() if one.degree]
        raise UsageError(
            f"{given}: the target of loss {loss.name!r} has no scale; losses whose target has one: "
            f"{', '.join(names)}"
        )
    if always and not scales:
        raise UsageError(
            f"{given}: rule {rule.name!r} always learns the target centred and scaled; leave "
            "model.scale_target out"
        )
    problem = "" if always else target_problem(rule, params)
    if problem:
        able = [
            name for name, one in all_rules().items()
            if not one.losses.names and not target_problem(one, one.parse_params({}))
        ]  # fmt: skip
        raise UsageError(
            f"{given}: rule {rule.name!r} with {params} cannot learn a target whose scale changes: "
            f"{problem}. Rules that can: {', '.join(able)}"
        )


def refuse_conflicts(spec: SpecTables) -> None:
    """Raise UsageError or UnsupportedError for keys that contradict each other."""
    mode, rule, params = spec.train.mode, spec.rule, spec.model.params
    if mode not in rule.modes_with(params):
        able = mode in find_rule(FALLBACK).modes and rule.name != FALLBACK
        raise UnsupportedError(
            f"rule {rule.name!r} with {params} {_wrong_mode(rule, params, mode)}: "
            f"{f'rule {FALLBACK} does; ' if able else ''}see streamomd list rules"
        )
    if rule.storage.kind == "block" and not spec.model.bias:
        which = PerReader(f"--rule {FALLBACK}", f'rule="{FALLBACK}"')
        with_bias = PerReader("model.bias = true", "fit_intercept=True")
        without = f", or take a rule that learns without one, such as {FALLBACK} ("
        found, remedy = f"rule {rule.name!r} {NEEDS_BIAS}", ("set ", with_bias, without, which, ")")
        key, form = Key("model.bias"), "{found}: {remedy}"
        raise UnsupportedError(Message("needs_bias", form, key=key, found=found, remedy=remedy))
    _refuse_time(spec)
    _refuse_renamed(spec)
    if spec.data.holds_out and mode == "sharded":
        raise UnsupportedError(
            f"data.holdout = {spec.data.holdout}: sharded mode has no hold-out rows; "
            "set a shard aside and run streamomd evaluate on it"
        )
    if spec.model.shapes != "none" and mode == "sharded":
        raise UnsupportedError(
            f"model.shapes = {spec.model.shapes!r}: sharded mode learns no curves; use mode "
            "averaged (--mode averaged), or leave model.shapes out"
        )
    start = spec.model.start
    if spec.model.continue_metrics and (not start or start.endswith(".parquet")):
        raise UsageError(
            "model.continue_metrics continues the metrics of a checkpoint: name it (--start URL), "
            "or leave continue_metrics out"
        )
    if spec.train.patience and not spec.data.holds_out:
        why = "early stopping needs hold-out rows; set data.holdout, e.g. 10"
        raise UsageError(invalid_value("train.patience", str(spec.train.patience), why))
    _refuse_means(spec)
    _refuse_class_keys(spec)
    if spec.data.standardize != "none":
        _refuse_standardized(spec)
    _refuse_target(spec)
    if spec.refers_target:
        _refuse_scaled_target(spec)
    if mode == "averaged":
        _refuse_in_averaged_mode(spec, rule)
    elif spec.train.exact_epochs:
        why = f"only averaged mode has exact epochs first; the mode is {mode!r}"
        raise UsageError(invalid_value("train.exact_epochs", str(spec.train.exact_epochs), why))


def _refuse_renamed(spec: SpecTables) -> None:
    """Keys that name a column by the name in files from which it is renamed."""
    data = spec.data
    for name in ("label", "weight", "time"):
        column = getattr(data, name)
        if column in data.rename:
            raise UsageError(
                f"data.{name} = {column!r}, which data.rename makes {data.rename[column]!r}: the "
                f"rows have {data.rename[column]!r}; name that"
            )


def _refuse_time(spec: SpecTables) -> None:
    """Keys that need ``data.time``, and what it does not go with."""
    data = spec.data
    for key, is_set in (("holdout.after", data.held_after is not None), ("delay", data.delay > 0)):
        if is_set and not data.time:
            raise UsageError(
                f"data.{key} needs the rows' times: name their column in data.time (--time COLUMN)"
            )
    if data.delay:
        given = f"data.delay = {data.delay:g} s"
        refuse_delay(spec, given)


def refuse_delay(spec: SpecTables, given: str) -> None:
    """Raise UnsupportedError for a job whose rows cannot be learned later than they are predicted.

    given: what asks for it.
    """
    if spec.train.mode != "exact":
        raise UnsupportedError(
            f"{given}: one learner learns the rows in their order, in mode exact, not "
            f"{spec.train.mode}; set train.mode = 'exact' (--mode exact)"
        )
    if spec.train.epochs > 1:
        raise UnsupportedError(
            f"{given}: rows are learned once, in order of time; set train.epochs = 1, not "
            f"{spec.train.epochs} (--epochs 1)"
        )
    if spec.rule.looks(spec.model.params):
        raise UnsupportedError(
            f"{given}: rule {spec.model.rule!r} observes all rows before it learns the first, "
            "labels that are not known yet, too; take another rule"
        )
    if spec.model.certificate:
        raise UnsupportedError(
            f"{given}: the theorems are about rows that are learned when they are predicted; leave "
            "model.certificate out"
        )
    if spec.alert.watches:
        raise UnsupportedError(
            f"{given}: [alert] compares each row with its label when it is predicted, and the "
            "label is known later; leave [alert] out"
        )


def _refuse_standardized(spec: SpecTables) -> None:
    given, model = f"data.standardize = {spec.data.standardize!r}", spec.model
    rule = find_rule(model.rule)
    if rule.storage.kind == "block":
        raise UsageError(
            f"{given}: rule {rule.name!r} standardises numeric columns itself; leave "
            "data.standardize out"
        )
    problem = standardize_problem(rule, model.params)
    if problem:
        able = [name for name, one in all_rules().items() if not _standardize_problem(one)]
        raise UnsupportedError(
            f"{given}: rule {rule.name!r} with {model.params} cannot learn on a reference that "
            f"changes: {problem}. Rules that can: {', '.join(able)}"
        )
    _refuse_centring(spec, given, "the reference", "standardise the columns", "inputs")


def _refuse_centring(spec: SpecTables, given: str, what: str, remedy: str, fixed: str) -> None:
    """Jobs whose rows cannot be centred and scaled while they are learned."""
    if spec.train.mode != "exact":
        raise UnsupportedError(
            f"{given}: {what} is that of one learner, in mode exact, not {spec.train.mode}; "
            f"{remedy} beforehand, or use rule auto"
        )
    if not spec.model.bias:
        raise UnsupportedError(f"{given}: a model without a bias cannot be centred; set model.bias")
    if spec.model.certificate:
        raise UnsupportedError(
            f"{given}: the theorems are about fixed {fixed}; leave model.certificate out"
        )


def _refuse_means(spec: SpecTables) -> None:
    given = spec.data.nulls
    words = [given] if isinstance(given, str) else [*given.values()]
    if spec.train.mode != "exact" and "mean" in words:
        raise UnsupportedError(
            'data.nulls = "mean" takes the mean of the rows before each row, which mode exact '
            f'alone knows, not {spec.train.mode}: choose "zero" or "indicator"'
        )


def _refuse_class_keys(spec: SpecTables) -> None:
    """Keys about classes, in a regression or with a certificate."""
    model = spec.model
    given = {"model.class_weight": model.class_weight, "data.sample": spec.data.sample}
    if model.classifies and find_loss(model.loss).least:  # a class is −1 or 1
        raise UsageError(
            f"loss {model.loss!r} learns numbers above 0, and the labels are classes: choose "
            "another loss, or pass --task regress"
        )
    if model.calibrate != "none" and not model.classifies:
        why = "a regression has no probabilities; leave it out, or pass --task classify"
        raise UsageError(invalid_value("model.calibrate", repr(model.calibrate), why))
    for name, value in given.items():
        if value and not model.classifies:
            raise UsageError(
                f"{name} is about classes, and the task is regression: leave it out, or pass "
                "--task classify"
            )
        if value and model.certificate:
            raise UnsupportedError(
                f"{name} changes what rows count for: the theorems are about the rows and weights "
                f"of the shards; leave model.certificate or {name} out"
            )


def _refuse_scaled_target(spec: SpecTables) -> None:
    given = "model.scale_target = true"
    if spec.model.classifies:
        raise UsageError(f"{given}: the labels are classes (model.task); leave it out")
    _refuse_centring(spec, given, "the scale", "centre and scale the target", "targets")


def _standardize_problem(rule: Rule) -> str:
    return standardize_problem(rule, rule.parse_params({}))


def _refuse_in_averaged_mode(spec: SpecTables, rule: Rule) -> None:
    if spec.train.merge == "gradients" and not rule.state.curvature:
        raise UsageError(
            f"train.merge = 'gradients' weights by accumulated squared gradients, and rule "
            f"{rule.name!r} has none (no slot G): use 'examples', or a rule such as nag"
        )
    if spec.checkpoint.url == "none":
        raise UsageError(
            "averaged mode needs a checkpoint at a URL that the workers reach: each round starts "
            "from the commit of the previous one; a backtest learns in mode exact (--mode exact)"
        )


class Spec(SpecTables):
    """A job: see docs/job-file.md."""

    @classmethod
    def parse(
        cls, given: Mapping[str, Any], *, report: Callable[[str], object] | None = None
    ) -> Self:
        """A Spec from nested tables. Raises UsageError: the key, its value, what was expected.

        report: called with a line where no rule is named and the default does not apply.
        """
        tables = canonical_keys(given)
        spec = cls._validated(tables)
        reason = not_default(spec) if names_no_rule(tables) else ""
        if reason:
            model = {**tables.get("model", {}), "rule": FALLBACK}
            spec = cls._validated({**tables, "model": model})
            if report:
                report(f"rule {FALLBACK}: the default, {DEFAULT}, {reason}")
        refuse_conflicts(spec)
        return spec

    @classmethod
    def _validated(cls, tables: Mapping[str, Any]) -> Self:
        try:
            return cls.model_validate(tables)
        except ValidationError as error:
            raise UsageError(explain(error, cls)) from None

    def of_classes(self, count: int) -> Self:
        """The job once its classes are known.

        Without classes it is a regression, by the square loss if the job leaves the task to the
        labels. Of three or more, the default rule learns one joint model, by softmax, if no loss is
        named. Raises what ``parse`` raises for a regression.
        """
        if not count and self.model.finds_task:
            tables = self.to_json(secrets=True)
            return type(self).parse({**tables, "model": _as_regression(tables["model"])})
        if count <= 2 or self.model.rule != DEFAULT or self.model.names_loss:
            return self
        model = self.model.model_copy(update={"loss": "softmax"})
        return self.model_copy(update={"model": model})

    def of_epochs(self, epochs: int) -> Self:
        """The job with this number of epochs."""
        train = self.train.model_copy(update={"epochs": epochs})
        return self.model_copy(update={"train": train})

    def to_json(self, *, secrets: bool = False) -> dict[str, Any]:
        """Nested tables that parse back to this Spec; without secrets unless asked."""
        tables: dict[str, Any] = self.model_dump(mode="json")
        if not secrets:
            data, model, checkpoint = tables["data"], tables["model"], tables["checkpoint"]
            del data["storage_options"], checkpoint["storage_options"]
            data["shards"] = [without_secrets(shard) for shard in data["shards"]]
            model["start"] = without_secrets(model["start"])
            checkpoint["url"] = without_secrets(checkpoint["url"])
        return tables

    def __repr__(self) -> str:
        return f"Spec({self.to_json()!r})"

    __str__ = __repr__


def _as_regression(model: Mapping[str, Any]) -> dict[str, Any]:
    return {**model, "task": "regress", "loss": "", "loss_params": {}}
