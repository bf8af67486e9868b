"""Spec: the complete description of a job, frozen and valid; what is saved and sent to workers.

``Spec.parse`` makes it from the tables of a TOML file, a dict or a checkpoint's manifest;
``Spec.to_json`` returns such tables. Values are validated here and never checked again inside. The
command line's flags are generated from these fields (``streamomd.config.flags``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Self

from pydantic import ValidationError

from streamomd.config.explain import explain
from streamomd.config.job_table import canonical_keys
from streamomd.config.model_table import DEFAULT, FALLBACK
from streamomd.config.refusals import names_no_rule, not_default, refuse_conflicts
from streamomd.config.spec_tables import SpecTables
from streamomd.core.errors import UsageError
from streamomd.core.urls import without_secrets


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
