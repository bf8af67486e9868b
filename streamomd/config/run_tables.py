"""How a job runs: its tables [train], [checkpoint], [cluster], [update] and [alert]."""

from __future__ import annotations

from typing import Any, Literal

from streamomd.config.field_types import Mebibytes, Moment, Names, Resources, Scheduler, Seconds
from streamomd.config.job_table import Table, key


class Train(Table):
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


class Checkpoint(Table):
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


class Cluster(Table):
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
    workers: Names = key((), "Names of the only workers to use; none: all.", flag=None)
    resources: Resources = key(
        {}, "Dask resources, by name, of the only workers to use, such as GPU=1.", flag=None
    )


class Update(Table):
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
    fail_on_alert: bool = key(
        False, "Whether a run ends at an alert, with exit code 7.", flag="fail_on_alert"
    )


class Alert(Table):
    """[alert]: thresholds, off by default; ``delta`` to ``min_instances``: of the loss's test."""

    loss: bool = key(False, "Whether a rise of the progressive loss is an alert.", flag=None)
    delta: float = key(0.005, "Rise of the loss that is not summed.", flag=None, ge=0.0)
    threshold: float = key(
        300.0, "Sum of rises of the loss above which it is an alert.", flag=None, gt=0.0
    )
    alpha: float = key(
        0.9999, "Factor by which that sum fades at each row.", flag=None, gt=0.0, le=1.0
    )
    min_instances: int = key(
        30, "Rows before the first such alert, and after each.", flag=None, ge=1
    )
    rows: int = key(
        10_000, "Rows of a window, which is compared with all rows before it.", flag=None, ge=1
    )
    mean: float | None = key(
        None, "Change of a numeric column's mean that is an alert, in standard deviations.",
        flag=None, gt=0.0, shown_default="none",
    )  # fmt: skip
    null_rate: float | None = key(
        None, "Rise of the share of a numeric column's missing values that is an alert.",
        flag=None, gt=0.0, le=1.0, shown_default="none",
    )  # fmt: skip
    new_categories: float | None = key(
        None, "New categories of a column, divided by rows, that are an alert.", flag=None, gt=0.0,
        le=1.0, shown_default="none",
    )  # fmt: skip

    @property
    def of_columns(self) -> bool:
        """Whether windows of rows are compared."""
        return (self.mean, self.null_rate, self.new_categories) != (None, None, None)

    @property
    def watches(self) -> bool:
        """Whether there are any alerts."""
        return self.loss or self.of_columns
