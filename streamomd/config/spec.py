"""Spec: the whole description of a job, frozen and legal; all that travels, all that is saved.

Made from a TOML file, a dict or a checkpoint's manifest by ``Spec.parse``; ``Spec.to_json`` gives
it back. Values are made legal here and never checked again inside.
"""

from __future__ import annotations

import difflib
import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    model_validator,
)

from streamomd.core.errors import InputNotFoundError, UnsupportedError, UsageError
from streamomd.core.urls import absolute, local_name, protocol, scrub, shown, without_secrets
from streamomd.losses import Loss, all_losses, find_loss
from streamomd.losses.lipschitz import with_lipschitz
from streamomd.rules import find_rule
from streamomd.rules.contract import Rule, Saved

Label = bool | int | float | str
MOST_SHOWN = 200  # letters of a value that cannot be meant


def _listed(value: Any) -> Any:
    return (value,) if isinstance(value, str) else value


def _named(value: Any) -> Any:
    """A text column's name alone stands for its words, counted."""
    given = (value,) if isinstance(value, str | Mapping) else value
    listed = isinstance(given, list | tuple)
    return [{"column": one} if isinstance(one, str) else one for one in given] if listed else given


def _crossed(value: Any) -> Any:
    for cross in value if isinstance(value, list | tuple) else ():
        if (
            not isinstance(cross, list | tuple)
            or len(cross) < 2
            or len({*map(str, cross)}) < len(cross)
        ):
            raise UsageError(
                f"data.crosses holds {_brief(cross)}: expected lists of two or more different "
                'columns, e.g. crosses = [["job", "marital"]]'
            )
    return value


def _some_learned(value: int) -> int:
    if value == 1:
        raise UsageError("data.holdout = 1 holds out every row: expected 2 or more, or 0 for none")
    return value


def _local_folder(value: str) -> str:
    if protocol(value):
        raise UsageError(
            f"data.cache = {shown(value)}: expected a folder of this machine's own disk, e.g. "
            '"~/.cache/rows"; rows of a store are what it spares'
        )
    return absolute(os.path.expanduser(local_name(value))) if value else ""


Names = Annotated[tuple[str, ...], BeforeValidator(_listed)]
Crosses = Annotated[tuple[tuple[str, ...], ...], BeforeValidator(_crossed)]


class _Table(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Sparse(_Table):
    """A pair of list columns; ``size`` 0: it stands in the schema's metadata."""

    indices: str
    values: str
    size: int = Field(default=0, ge=0, le=2**31 - 2)


class Text(_Table):
    """A column of texts: words, and runs of up to ``ngrams`` words; ``counts``: what a word is."""

    column: str
    ngrams: int = Field(default=1, ge=1, le=8)
    counts: Literal["presence", "count", "log"] = "presence"


Texts = Annotated[tuple[Text, ...], BeforeValidator(_named)]


class Data(_Table):
    """[data]: where the rows are and how columns become coordinates."""

    shards: Names = ()
    storage_options: dict[str, Any] = Field(default_factory=dict, repr=False)
    label: str = ""
    weight: str = ""
    numeric: Names = ()
    hashed: Names = ()
    vectors: Names = ()
    text: Texts = ()
    dates: Names = ()
    sparse: Sparse | None = None
    crosses: Crosses = ()
    ignore: Names = ()
    nulls: Literal["error", "zero", "indicator"] = "error"
    on_bad_row: Literal["error", "skip"] = "error"
    max_bad_rows: int | None = Field(default=None, ge=0, description="of an epoch; None: any")
    bits: int = Field(default=18, ge=1, le=30)
    hash_seed: int = Field(default=0, ge=0, le=2**32 - 1)
    order: Literal["sorted", "given", "shuffled"] = "sorted"
    seed: int = 0
    cache: Annotated[str, AfterValidator(_local_folder)] = Field(
        default="", description="folder of decoded rows, for later epochs and jobs"
    )
    cache_gib: float = Field(default=50.0, ge=0.0, description="most in the cache; 0: any")
    holdout: Annotated[int, AfterValidator(_some_learned)] = Field(
        default=0, ge=0, le=2**32 - 1, description="about every so many-th row is not learned"
    )


class Model(_Table):
    """[model]: what is learned. An empty loss is the rule's own default.

    ``certificate``: also keep the slots that the rule's certificate needs.
    """

    rule: str = "nag"
    loss: str = ""
    loss_params: dict[str, Any] = Field(default_factory=dict)
    task: Literal["auto", "classify", "regress"] = "auto"
    classes: tuple[Label, ...] = ()
    bias: bool = True
    dtype: Literal["float64", "float32"] = "float64"
    start: str = ""
    certificate: bool = False
    params: dict[str, Any] = Field(default_factory=dict)

    @model_validator(mode="before")
    @classmethod
    def _known(cls, given: Any) -> Any:
        if not isinstance(given, Mapping):
            return given
        rule = find_rule(str(given.get("rule", "nag")))
        default = rule.losses[0] if rule.losses else "logistic"
        loss = find_loss(str(given.get("loss") or default))
        if rule.losses and loss.name not in rule.losses:
            allowed = " or ".join(rule.losses)
            raise UsageError(f"rule {rule.name!r} learns with loss {allowed}; got {loss.name!r}")
        params = rule.parse_params(_parameters(given, "params"))
        narrowed = rule.losses_with(params) if rule.losses_with else ()
        if narrowed and loss.name not in narrowed:
            raise UsageError(
                f"rule {rule.name!r} with {params} learns with loss {' or '.join(narrowed)}; "
                f"got {loss.name!r}"
            )
        goal = loss.parse_params(_parameters(given, "loss_params"))
        with_lipschitz(rule, loss, params, goal)
        if params.get("implicit") and loss.along is None:
            exact = ", ".join(known.name for known in all_losses().values() if known.along)
            raise UsageError(f"implicit steps are exact for loss {exact}; got {loss.name!r}")
        if given.get("certificate") and rule.certificate is None:
            raise UsageError(f"rule {rule.name!r} has no certificate: {rule.uncertified}")
        named = {"rule": rule.name, "loss": loss.name}
        return {**given, **named, "params": params, "loss_params": goal}

    @property
    def classifies(self) -> bool:
        """Whether labels are classes."""
        if self.task == "auto":
            return find_loss(self.loss).classifies or bool(self.classes)
        return self.task == "classify"


class Train(_Table):
    """[train]: how the rows are walked. ``detail``: keep more than sums of what is predicted."""

    mode: Literal["exact", "averaged", "sharded"] = "exact"
    epochs: int = Field(default=1, ge=1)
    parts: int = Field(default=16, ge=1)
    rounds_per_epoch: int = Field(default=1, ge=1)
    merge: Literal["examples", "gradients"] = "examples"
    exact_epochs: int = Field(default=0, ge=0)
    batch_rows: int = Field(default=256, ge=1)
    prefetch: int = Field(default=32, ge=1, le=65_536, description="MiB decoded ahead")
    detail: bool = True
    patience: int = Field(default=0, ge=0, description="epochs without a better held-out loss")


class Checkpoint(_Table):
    """[checkpoint]: where the run is kept. An empty url is chosen for you; "none" keeps nothing.

    ``aside``: exact mode copies the state and a thread makes the commit, where memory allows.
    """

    url: str = ""
    storage_options: dict[str, Any] = Field(default_factory=dict, repr=False)
    every_seconds: float = Field(default=60.0, ge=0.0)
    every_rows: int = Field(default=0, ge=0)
    keep: int = Field(default=3, ge=1)
    aside: bool = True


class Cluster(_Table):
    """[cluster]: a Dask cluster. "auto" decodes where the first rows went faster."""

    scheduler: str = ""
    window: int = Field(default=256, ge=1, le=1_048_576, description="MiB decoded on workers")
    decode: Literal["auto", "local", "remote"] = "auto"
    learner: Literal["client", "worker"] = "client"


class Spec(_Table):
    """A job: see docs/job-file.md."""

    data: Data = Data()
    model: Model = Field(default_factory=lambda: Model.model_validate({}))
    train: Train = Train()
    checkpoint: Checkpoint = Checkpoint()
    cluster: Cluster = Cluster()

    @classmethod
    def parse(cls, given: Mapping[str, Any]) -> Self:
        """A Spec from nested tables. Raises UsageError naming the key, what came and the remedy."""
        try:
            spec = cls.model_validate(dict(given))
        except ValidationError as error:
            raise UsageError(_explain(error)) from None
        spec._refuse_what_does_not_go_together()
        return spec

    def to_json(self, *, secrets: bool = False) -> dict[str, Any]:
        """Nested tables that parse back to this Spec; without secrets unless asked."""
        tables: dict[str, Any] = self.model_dump(mode="json")
        if not secrets:
            data, model, kept = tables["data"], tables["model"], tables["checkpoint"]
            del data["storage_options"], kept["storage_options"]
            data["shards"] = [without_secrets(shard) for shard in data["shards"]]
            model["start"], kept["url"] = map(without_secrets, (model["start"], kept["url"]))
        return tables

    def __repr__(self) -> str:
        return f"Spec({self.to_json()!r})"

    __str__ = __repr__

    @property
    def rule(self) -> Rule:
        """The rule that is named, with its accounts if a certificate is wanted."""
        rule = find_rule(self.model.rule)
        if self.model.certificate:
            return rule.accounted or rule
        return rule.simplest(self.model.params) if rule.simplest else rule

    def saved(self, version: int) -> Saved:
        """What a commit of this job says of its state."""
        model = self.model
        return Saved(version, self.data.weight != "", model.certificate, model.params)

    @property
    def loss(self) -> Loss:
        """The loss that is named."""
        return find_loss(self.model.loss)

    def _refuse_what_does_not_go_together(self) -> None:
        mode, rule = self.train.mode, self.rule
        modes = rule.modes_with(self.model.params)
        if mode not in modes:
            raise UnsupportedError(
                f"rule {rule.name!r} with {self.model.params} learns in mode "
                f"{' or '.join(modes)}, not {mode}: see streamomd list rules"
            )
        if self.data.holdout and mode != "exact":
            raise UnsupportedError(
                f"data.holdout = {self.data.holdout}: only exact mode holds rows out, not {mode}; "
                "keep a shard apart, and: streamomd evaluate"
            )
        if self.train.patience and not self.data.holdout:
            raise UsageError(
                f"train.patience = {self.train.patience} waits for the loss of rows held out: say "
                "how many are, e.g. data.holdout = 10"
            )
        if mode != "averaged":
            if self.train.exact_epochs:
                raise UsageError(
                    f"train.exact_epochs = {self.train.exact_epochs}: only averaged mode has "
                    f"epochs that are learned otherwise first; the mode is {mode!r}"
                )
            return
        if self.train.merge == "gradients" and "G" not in [slot.name for slot in rule.own_slots]:
            raise UsageError(
                f"train.merge = 'gradients' weighs by accumulated squared gradients, and rule "
                f"{rule.name!r} keeps none (no slot G): take 'examples', or a rule such as nag"
            )
        if self.checkpoint.url == "none":
            raise UsageError(
                "averaged mode needs a checkpoint, at a URL that the workers reach: each round "
                "goes on from the commit of the one before"
            )


def read_job(path: str) -> dict[str, Any]:
    """The tables of a TOML job file. Raises InputNotFoundError, or UsageError naming the line."""
    try:
        text = Path(path).read_bytes()
        return tomllib.loads(text.decode("utf-8"))
    except FileNotFoundError:
        raise InputNotFoundError(f"no job file {path!r}") from None
    except RecursionError:
        raise UsageError(f"job {path!r} is not TOML that is read: nested too deep") from None
    except ValueError as error:
        raise UsageError(f"job {path!r} is not TOML: {error}") from None
    except OSError as error:
        raise UsageError(f"job {path!r} cannot be read: {error.strerror}") from None


def assign(tables: dict[str, Any], key: str, value: Any) -> None:
    """Set a dotted key, e.g. ``model.params.eta``; a bare parameter name goes to model.params.

    >>> tables = {}
    >>> assign(tables, "data.bits", 20); assign(tables, "eta", 1.5); tables
    {'data': {'bits': 20}, 'model': {'params': {'eta': 1.5}}}
    """
    path = key.split(".") if "." in key else ["model", "params", key]
    for step in path[:-1]:
        below = tables.setdefault(step, {})
        if not isinstance(below, dict):
            raise UsageError(f"--set {key}: {step!r} is a value, not a table")
        tables = below
    tables[path[-1]] = value


def _explain(error: ValidationError) -> str:
    lines = []
    for problem in error.errors():
        place = [str(step) for step in problem["loc"]]
        key = ".".join(place)
        if problem["type"] == "value_error":
            lines.append(str(problem["ctx"]["error"]))
        elif problem["type"] == "extra_forbidden":
            lines.append(f"unknown key {key!r}{_nearest(place)}")
        else:
            # What was given as options may be a secret.
            given = "…" if "storage_options" in place else _brief(problem.get("input"))
            lines.append(f"{key} = {given}: {problem['msg'].lower()}")
    return "\n".join(lines)


def _parameters(model: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    given = model.get(key) or {}
    if not isinstance(given, Mapping):
        raise UsageError(f"model.{key} = {_brief(given)}: expected a table of parameters")
    return given


def _brief(given: Any) -> str:
    text = scrub(repr(given))
    return text if len(text) <= MOST_SHOWN else f"{text[:MOST_SHOWN]}…"


def _nearest(place: list[str]) -> str:
    tables: dict[str, type[BaseModel]] = {
        "data": Data, "model": Model, "train": Train, "checkpoint": Checkpoint, "cluster": Cluster
    }  # fmt: skip
    inner: dict[str, type[BaseModel]] = {"sparse": Sparse, "text": Text}
    table = tables.get(place[0], Spec)
    table = inner.get(place[1], table) if len(place) > 2 else table
    known = list(table.model_fields) if len(place) > 1 else list(tables)
    near = difflib.get_close_matches(place[-1], known, n=1)
    return f"; did you mean {near[0]!r}?" if near else f"; known here: {', '.join(known)}"
