"""Spec: the complete description of a job, frozen and valid; what is saved and sent to workers.

``Spec.parse`` makes it from the tables of a TOML file, a dict or a checkpoint's manifest;
``Spec.to_json`` returns such tables. Values are validated here and never checked again inside. The
command line's flags are generated from these fields (``streamomd.config.flags``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    model_validator,
)

from streamomd.config.aliases import canonical_keys, canonical_value
from streamomd.config.explain import explain
from streamomd.config.field_types import (
    Crosses,
    Filter,
    Folder,
    Gibibytes,
    Labels,
    Locations,
    Mebibytes,
    Moment,
    Names,
    Nulls,
    OneIn,
    Partitions,
    Scheduler,
    Seconds,
    Types,
    as_texts,
)
from streamomd.config.refusals import (
    DEFAULT,
    FALLBACK,
    names_no_rule,
    not_default,
    parse_model,
    refuse_conflicts,
)
from streamomd.core.errors import UsageError
from streamomd.core.urls import without_secrets
from streamomd.losses import Loss, find_loss
from streamomd.rules import find_rule
from streamomd.rules.contract import Rule, Saved


def key(
    default: Any,
    text: str,
    *,
    flag: str | None,
    metavar: str = "",
    shown_default: str = "",
    option: bool = True,
    parameters: Mapping[str, str] | None = None,
    **limits: Any,
) -> Any:
    """A key of a table.

    text: what it sets, a sentence for the help. flag: its name on the command line and in Python;
    None: it has no flag, only ``--set`` sets it. metavar: what the help calls the value.
    shown_default: instead of the default. option: False if only Python has the flag. parameters:
    flags of entries of this table, with their help.
    """
    on_command_line: dict[str, Any] = {
        "flag": flag,
        "metavar": metavar,
        "shown_default": shown_default,
        "option": option,
        "parameters": dict(parameters or {}),
    }
    return Field(default, description=text, json_schema_extra=on_command_line, **limits)


class _Table(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    @model_validator(mode="before")
    @classmethod
    def _own_values(cls, given: Any) -> Any:
        if not isinstance(given, Mapping):
            return given
        return {name: canonical_value(name, value) for name, value in given.items()}


class Sparse(_Table):
    """A pair of list columns; ``size`` 0: it is in the schema's metadata."""

    indices: str
    values: str
    size: int = Field(default=0, ge=0, le=2**31 - 2)


class Text(_Table):
    """A column of texts: words, and runs of up to ``ngrams`` words; ``counts``: a word's value."""

    column: str
    ngrams: int = Field(default=1, ge=1, le=8)
    counts: Literal["presence", "count", "log"] = "presence"


Texts = Annotated[tuple[Text, ...], BeforeValidator(as_texts)]


class Csv(_Table):
    """How CSV files are read: the options of ``convert``, by its names in Python. JSON lines have
    ``encoding`` and ``types`` alone.
    """

    delimiter: str = key(
        "", "Character between the values of CSV files.", flag="delimiter", metavar="CHAR",
        shown_default="found in the first lines",
    )  # fmt: skip
    decimal: Literal[".", ","] = key(
        ".", "Decimal mark of numbers in CSV files, a point or a comma.", flag="decimal",
        metavar="CHAR",
    )  # fmt: skip
    encoding: str = key(
        "", "Encoding of text files, such as latin-1.", flag="encoding", metavar="NAME",
        shown_default="utf-8; utf-16 by its mark",
    )  # fmt: skip
    date_format: str = key(
        "", "Format of dates in CSV files, such as %d.%m.%Y.", flag="date_format", metavar="FORMAT",
        shown_default="ISO 8601",
    )  # fmt: skip
    types: Types = key(
        {}, "Types of columns of text files, such as zip=string.", flag="type",
        metavar="COL=TYPE,…", shown_default="inferred",
    )  # fmt: skip
    null_values: Names | None = key(
        None, "Texts of CSV files that mean a missing value.", flag="null_values",
        metavar="A,B,…", shown_default="NA, N/A, NaN, null, …",
    )  # fmt: skip
    header: bool = key(True, "Whether the first line has the names of columns.", flag=None)
    quotes: bool = key(True, "Whether values may be in double quotes.", flag=None)

    def options(self) -> dict[str, Any]:
        """Those that are not the defaults, as ``convert`` takes them."""
        return self.model_dump(exclude_defaults=True)

    def changed(self, given: Mapping[str, Any]) -> Self:
        """These with others in their place. Raises UsageError."""
        try:
            return self.model_validate({**self.model_dump(), **given})
        except ValidationError as error:
            raise UsageError(explain(error, type(self))) from None


class Data(_Table):
    """[data]: where the rows are and how columns become coordinates."""

    shards: Locations = key((), "Data files (shards).", flag="shards", option=False)
    storage_options: dict[str, Any] = key(
        {}, "Storage options for the shards.", flag="storage_options", option=False, repr=False
    )
    version: int | None = key(
        None, "Version of a Delta table.", flag="version", ge=0, shown_default="the newest"
    )
    as_of: Moment = key(
        "", "Time (ISO 8601) whose newest version of a Delta table is read.", flag="as_of",
        metavar="TIME",
    )  # fmt: skip
    as_files: bool = key(
        False, "Read files of Delta and Iceberg tables as they are, deleted rows too.",
        flag="as_files",
    )  # fmt: skip
    csv: Csv = key(Csv(), "How CSV files and JSON lines are read.", flag=None)
    label: str = key("", "Column to predict.", flag="label", metavar="COLUMN")
    weight: str = key("", "Column of importance weights.", flag="weight", metavar="COLUMN")
    numeric: Names = key(
        (), "Numeric columns, one coordinate each.", flag="numeric",
        shown_default="inferred from the schema",
    )  # fmt: skip
    hashed: Names = key(
        (), "Categorical columns, one hashed coordinate per value.", flag="hashed",
        shown_default="inferred from the schema",
    )  # fmt: skip
    vectors: Names = key((), "Columns of lists of numbers.", flag="vectors")
    text: Texts = key((), "Text columns, one hashed coordinate per word.", flag="text")
    dates: Names = key((), "Date columns, split into year, month, weekday and hour.", flag="dates")
    sparse: Sparse | None = key(
        None, "The columns of indices and values of sparse rows.", flag=None
    )
    crosses: Crosses = key((), "Lists of columns whose combined values are features.", flag=None)
    ignore: Names = key((), "Columns that are not features.", flag="ignore")
    partitions: Partitions = key(
        "hive", "Columns of key=value directories; none, or name and kind of each.",
        flag="partitions", metavar="hive|none",
    )  # fmt: skip
    where: Filter = key(
        "", "Learn only rows that satisfy a condition, such as day >= 2026-01-01.",
        flag="where", metavar="CONDITION", shown_default="all rows",
    )  # fmt: skip
    nulls: Nulls = key(
        "error", "What a missing number becomes: error, zero, indicator (0 and a coordinate for "
        "it) or mean (of the values before the row); or one for each column.",
        flag="nulls", metavar="WORD|COLUMN=WORD,…",
    )  # fmt: skip
    standardize: Literal["none", "running"] = key(
        "none", "Centring and scaling of numeric columns; running: by mean and scale so far.",
        flag=None,
    )  # fmt: skip
    on_bad_row: Literal["error", "skip"] = key(
        "error", "What to do with a bad row; skip: count it by reason.", flag="on_bad_row"
    )
    max_bad_rows: int | None = key(
        None, "Maximum bad rows per epoch before the run fails.", flag="max_bad_rows", ge=0,
        shown_default="unlimited",
    )  # fmt: skip
    bits: int = key(18, "Number of hashed coordinates, as a power of 2.", flag="bits", ge=1, le=30)
    hash_seed: int = key(0, "Seed of the hash function.", flag=None, ge=0, le=2**32 - 1)
    order: Literal["sorted", "given", "shuffled"] = key(
        "sorted", "Order of the shards; shuffled: by seed and epoch.", flag="order"
    )
    seed: int = key(0, "Seed of the shuffled order and of the hold-out rows.", flag="seed")
    arrival: Literal["path", "modified"] = key(
        "path", "Order of the new shards of an update: by path, numbers as numbers, or by time.",
        flag=None,
    )  # fmt: skip
    on_bad_shard: Literal["error", "skip"] = key(
        "error", "What an update does with a shard that cannot be read; skip: record it.",
        flag="on_bad_shard",
    )  # fmt: skip
    cache: Folder = key(
        "", "Local folder for decoded rows, reused by later epochs and jobs.", flag="cache",
        metavar="DIR",
    )  # fmt: skip
    cache_gib: Gibibytes = key(
        50.0, "Maximum size of the cache, in GiB or as 50GiB; 0: unlimited.", flag=None, ge=0.0
    )
    holdout: OneIn = key(
        0, "Hold out about 1 in N rows for validation; 0.1 means 10, 0 none.", flag="holdout", ge=0,
        le=2**32 - 1,
    )  # fmt: skip


class Model(_Table):
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
    def classifies(self) -> bool:
        """Whether labels are classes."""
        if self.task == "auto":
            return find_loss(self.loss).classifies or bool(self.classes)
        return self.task == "classify"


class Train(_Table):
    """[train]: how the rows are read and learned."""

    mode: Literal["exact", "averaged", "sharded"] = key(
        "exact", "How rows are divided among workers. See: streamomd list modes.", flag="mode"
    )
    epochs: int = key(1, "Number of passes over the rows.", flag="epochs", ge=1)
    parts: int = key(
        16, "Parts learned in parallel (averaged) or coordinate ranges (sharded).", flag=None, ge=1
    )
    rounds_per_epoch: int = key(
        0, "Merges per epoch in averaged mode; 0: as many as the rule needs.", flag=None, ge=0
    )
    merge: Literal["examples", "gradients"] = key(
        "examples", "What weights the means in averaged mode.", flag=None
    )
    exact_epochs: int = key(
        0, "Epochs of averaged mode that are learned exactly first.", flag=None, ge=0
    )
    batch_rows: int = key(256, "Rows between two exchanges in sharded mode.", flag=None, ge=1)
    prefetch: Mebibytes = key(
        0,
        "Bytes read ahead, in MiB or as 64MiB; 0: 32 MiB from a disk, 128 MiB from a store.",
        flag=None,
        ge=0,
        le=65_536,
    )
    threads: int = key(
        0, "Threads that learn classes or the learners of a sweep; 0: as many as usable cores.",
        flag=None, ge=0, le=1024,
    )  # fmt: skip
    detail: bool = key(
        True, "Whether to compute AUC, calibration, and metrics per class.", flag=None
    )
    patience: int = key(
        0, "Early stopping: epochs without a better hold-out loss; 0: never.", flag="patience", ge=0
    )


class Checkpoint(_Table):
    """[checkpoint]: where the run is saved. An empty url is chosen automatically; "none": nowhere.

    ``aside``: in exact mode a thread commits a copy of the state, where memory allows.
    """

    url: str = key(
        "", "Directory or URL to save the run to, or none.", flag="checkpoint", metavar="URL",
        shown_default="runs/DATA-DATE-TIME",
    )  # fmt: skip
    storage_options: dict[str, Any] = key(
        {}, "Storage options for the checkpoint.", flag="checkpoint_storage_options", option=False,
        repr=False,
    )  # fmt: skip
    every_seconds: Seconds = key(
        60.0, "Time between commits, in seconds or as 5m; 0: by rows only.", flag=None, ge=0.0
    )
    every_rows: int = key(0, "Rows between commits; 0: by time only.", flag=None, ge=0)
    keep: int = key(3, "Number of commits to retain.", flag=None, ge=1)
    keep_updates: int = key(
        7, "Number of updates whose last commit is retained, to undo later ones.", flag=None, ge=0
    )
    aside: bool = key(True, "Whether to commit in a thread while training continues.", flag=None)


class Cluster(_Table):
    """[cluster]: a Dask cluster. decode "auto": where the first rows were decoded faster."""

    scheduler: Scheduler = key(
        None, "Address of a Dask scheduler whose workers decode or learn, or its file (.json).",
        flag="scheduler", metavar="ADDRESS",
    )  # fmt: skip
    window: Mebibytes = key(
        256, "Decoded rows waiting on workers, in MiB or as 256MiB.", flag=None, ge=1,
        le=1_048_576,
    )  # fmt: skip
    decode: Literal["auto", "local", "remote"] = key(
        "auto", "Where rows are decoded in exact mode.", flag=None
    )
    learner: Literal["client", "worker"] = key(
        "client", "Where the learner of exact mode runs.", flag=None
    )


class Update(_Table):
    """[update]: what ``update`` and ``follow`` take for new shards, and when."""

    settle: Seconds = key(
        30.0, "Age of a file before it is read, in seconds or as 30s.", flag=None, ge=0.0
    )
    max_shards: int | None = key(
        None, "Maximum number of shards of an update.", flag=None, ge=1, shown_default="all"
    )
    until: Moment = key("", "Time after which files are left, ISO 8601.", flag=None)
    ignore_rewritten: bool = key(False, "Whether to leave out rewritten shards.", flag=None)
    moved: bool = key(False, "Whether a learned shard under a new URL was moved.", flag=None)
    accept_duplicates: bool = key(
        False, "Whether to learn shards again that have a new URL.", flag=None
    )
    retry_skipped: bool = key(False, "Whether to try skipped shards again.", flag=None)
    appends_only: bool = key(
        False, "Whether to learn what was appended to a table that also deleted rows.", flag=None
    )
    every: Seconds = key(60.0, "Time between two listings of follow.", flag=None, gt=0.0)
    idle_exit: Seconds = key(
        0.0, "Time without a new shard after which follow ends; 0: never.", flag=None, ge=0.0
    )
    max_lag: Seconds = key(
        0.0, "Age of an unlearned shard that is an alert; 0: none.", flag=None, ge=0.0
    )
    fail_on_alert: bool = key(False, "Whether follow ends at an alert.", flag=None)


class Spec(_Table):
    """A job: see docs/job-file.md."""

    data: Data = Data()
    model: Model = Field(default_factory=lambda: Model.model_validate({}))
    train: Train = Train()
    checkpoint: Checkpoint = Checkpoint()
    cluster: Cluster = Cluster()
    update: Update = Update()

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

    @property
    def rule(self) -> Rule:
        """The rule of the job with its loss, with its accounts if a certificate is wanted."""
        rule = find_rule(self.model.rule).for_loss(self.model.loss)
        if self.model.certificate:
            return rule.certificate.accounted or rule
        return rule.reduced_for(self.model.params)

    @property
    def refers_target(self) -> bool:
        """Whether a rule without a reference of its own learns the target in standard units."""
        return bool(self.model.scale_target) and self.rule.storage.kind != "block"

    @property
    def rounds_per_epoch(self) -> int:
        """Merges per epoch in averaged mode: the job's number, or what the rule needs."""
        return self.train.rounds_per_epoch or self.rule.storage.rounds

    def saved(self, version: int) -> Saved:
        """What a commit of this job records about its state."""
        model = self.model
        return Saved(version, self.data.weight != "", model.certificate, model.params)

    @property
    def loss(self) -> Loss:
        """The loss of the job."""
        return find_loss(self.model.loss)


def _as_regression(model: Mapping[str, Any]) -> dict[str, Any]:
    return {**model, "task": "regress", "loss": "", "loss_params": {}}
