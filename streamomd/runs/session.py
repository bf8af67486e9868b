"""A session: the one way from a job to a run.

    open the job → find its rows → plan its columns → model → connect → begin or resume → learn

``train``, ``resume``, ``sweep``, ``submit``, ``diagnose`` and ``plan`` take the steps they need.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from streamomd.checkpoint import Ledger, Loaded, Store
from streamomd.checkpoint.segments import Facts
from streamomd.config.build_job import MOST_COLUMNS, build_job, read_job, require_label
from streamomd.config.spec import Spec
from streamomd.core.errors import UnsupportedError, UsageError
from streamomd.core.urls import printable
from streamomd.core.wording import listed
from streamomd.features import Plan, describe
from streamomd.runs.connection import connect_cluster, record_cluster
from streamomd.runs.modes import learn_remaining_rows
from streamomd.runs.reporting import Reporting
from streamomd.runs.streamed_rows import StreamedRows, resumed_stream
from streamomd.shards.directory_columns import partition_notes
from streamomd.shards.filtered_shards import filter_columns, filter_notes
from streamomd.shards.first_rows import column_in_order, unique_string_notes
from streamomd.shards.order import COLLECTION, STREAM, Dataset
from streamomd.shards.renames import distinct_schemas
from streamomd.shards.shard import ShardSet, checksum_notes
from streamomd.sources.find import describe_sources, find
from streamomd.sources.tables import TableOptions
from streamomd.training.checkpoint_manager import CheckpointManager
from streamomd.training.model import Model
from streamomd.training.model_data import ModelData
from streamomd.training.new_model import new_model, plan_columns
from streamomd.training.open_checkpoint import (
    begin_checkpoint,
    find_current_list,
    open_ledger,
    resume_checkpoint,
)
from streamomd.training.progress import Watcher, is_verbose, note
from streamomd.training.row_stream import view_shards
from streamomd.training.signals import StopRequest
from streamomd.training.url_trust import by_url, find_recorded, transport_warnings
from streamomd.training.warm_start import started_job

if TYPE_CHECKING:
    from streamomd.distributed.collections.collection import Collection


def is_collection(given: Any) -> bool:
    """Whether something is Dask's, or a tuple of such. Dask is not imported for that."""
    parts = given if isinstance(given, tuple | list) else (given,)
    return any(hasattr(part, "__dask_graph__") for part in parts)


def split_collection(
    job: Any, flags: Mapping[str, Any]
) -> tuple[Any, dict[str, Any], Collection | None]:
    """The job and flags with a name in the place of a collection, and the collection if any."""
    flags = dict(flags)
    tables = job if isinstance(job, Mapping) else {}
    places = [flags.get("shards"), job, dict(tables.get("data") or {}).get("shards")]
    given = [place for place in places if is_collection(place)]
    if not given:
        return job, flags, None
    if len(given) > 1 or (given[0] is job and flags.get("shards")):
        raise UsageError("shards are given twice: once is enough")
    from streamomd.distributed.collections.collection import Collection

    collection = Collection(given[0])
    flags.pop("shards", None)
    tables = {} if given[0] is job else _tables(job)
    data = {**collection.columns, **dict(tables.get("data") or {}), "shards": [collection.name]}
    return {**tables, "data": data}, flags, collection


def refuse_collection(job: Any, flags: Mapping[str, Any], what: str) -> None:
    """Raise UnsupportedError if shards are a collection."""
    if split_collection(job, flags)[2] is not None:
        raise UnsupportedError(f"{what} {_INSTEAD}")


_INSTEAD = (
    "needs shards, which a worker can open by itself: write the collection with "
    "ddf.to_parquet(URL), then train on URL"
)


def refuse_selection(spec: Spec, what: str) -> None:
    """Raise UnsupportedError for a job that asks for a selection of columns."""
    if spec.data.select:
        raise UnsupportedError(
            f"{what} selects no columns (data.select): `streamomd train --select "
            f"{spec.data.select}` prints them; name those in the job"
        )


def refuse_other_modes(spec: Spec) -> None:
    """Raise UnsupportedError for what is not done with a collection, and say what to do."""
    if spec.train.mode != "exact":
        raise UnsupportedError(f"mode {spec.train.mode!r} {_INSTEAD}")
    if spec.data.where:
        raise UnsupportedError(
            f"data.where = {spec.data.where!r} reads shards: filter the collection, e.g. "
            "ddf[ddf.day >= day]"
        )
    if spec.data.rename:
        raise UnsupportedError(
            "data.rename reads shards: rename the columns of the collection, "
            f"ddf.rename(columns={spec.data.rename!r})"
        )
    if spec.data.time:
        raise UnsupportedError(f"data.time = {spec.data.time!r} {_INSTEAD}")
    if spec.cluster.learner == "worker":
        raise UnsupportedError(f'cluster.learner = "worker" {_INSTEAD}')


def find_recorded_rows(model: ModelData, given: Any, facts: Sequence[Facts]) -> Dataset:
    """The rows of a run to resume: its recorded shards, or the collection given for them. facts: of
    its ledger.

    Raises UsageError where a collection is missing, or given in the place of shards.
    """
    spec, data, saved = model.spec, model.spec.data, model.spec.data.shards[0]
    if saved.startswith(STREAM):
        return resumed_stream(model, given, facts)
    collection = split_collection(None, {"shards": given})[2]
    if not saved.startswith(COLLECTION):
        if given is not None:
            raise UsageError(
                "a run resumes on the shards it started with: pass shards= only for a run that "
                "started on a Dask collection. For other rows: train with start= this run's URL"
            )
        listing = find_recorded(data, model.plan, model.table_versions, facts)
        return view_shards(listing, data, model.plan)
    if collection is None:
        raise UsageError(
            "this run started on a Dask collection, whose graph is not in the checkpoint: make the "
            "collection again and pass it, streamomd.resume(URL, shards=ddf)"
        )
    refuse_other_modes(spec)
    return collection


def _tables(job: Any) -> dict[str, Any]:
    if isinstance(job, Spec):
        return job.to_json(secrets=True)
    if isinstance(job, str | Path):
        return read_job(str(job))
    return dict(job or {})


@dataclass(frozen=True)
class Session:
    """A job and its rows, found.

    rows: shards, a collection or a stream. client: one that was passed, or None. weights: a fitted
    linear model to start from. choices: lines on what the job leaves to a default that is not the
    usual one. opened: the store and the ledger of a checkpoint, if they were read.
    """

    spec: Spec
    rows: Dataset
    stop: StopRequest = field(default_factory=StopRequest)
    client: Any = None
    weights: Any = None
    choices: tuple[str, ...] = ()
    opened: tuple[Store, Ledger] | None = None

    @classmethod
    def open(
        cls,
        job: str | Sequence[str] | Mapping[str, Any] | Spec | None,
        flags: Mapping[str, Any],
        sets: Mapping[str, Any] | None = None,
        **more: Any,
    ) -> Self:
        """The session of a new run, of a job as a person gives it: see ``build_job`` and ``of``."""
        choices: list[str] = []
        spec = build_job(job, flags, sets, report=choices.append, inherit=started_job)
        return cls.of(spec, choices=tuple(choices), **more)

    @classmethod
    def of(
        cls,
        spec: Spec,
        *,
        collection: Dataset | None = None,
        running: ModelData | None = None,
        opened: tuple[Store, Ledger] | None = None,
        **more: Any,
    ) -> Self:
        """The session of a new run, on the shards of its job, a Dask collection or a stream.

        running: the model of a run that another process began, whose checkpoint is ``opened``.
        more: fields of the session. Raises what ``find`` raises, then UsageError without a label.
        """
        report_transport_warnings(spec)
        if collection is not None and not isinstance(collection, StreamedRows):
            refuse_other_modes(spec)
        facts = opened[1].shards if opened else ()
        rows = find_shards(spec, running, facts) if collection is None else collection
        first = rows.shards[0] if isinstance(rows, ShardSet) else rows
        require_label(spec, first.schema.names if hasattr(first, "schema") else ())
        return cls(spec, rows, opened=opened, **more)

    @classmethod
    def recorded(
        cls, model: ModelData, given: Any = None, facts: Sequence[Facts] = (), **more: Any
    ) -> Self:
        """The session of a run to resume, on the shards that its checkpoint names.

        given: the Dask collection, if the run started on one. facts: of the run's ledger. URLs of
        shards are printed and checked against the allow-list before they are opened.
        """
        report_transport_warnings(model.spec)
        return cls(model.spec, find_recorded_rows(model, given, facts), **more)

    @classmethod
    def continued(cls, model: ModelData, loaded: Loaded, given: Any = None, **more: Any) -> Self:
        """The session of a run to continue. Once it was updated, its shards are those of the
        ledger, as its sources may have others by now; else those of ``recorded``."""
        opened = open_ledger(loaded)
        if not model.update.number:
            return cls.recorded(model, given, opened[1].shards, opened=opened, **more)
        report_transport_warnings(model.spec)
        return cls(model.spec, find_current_list(model, opened[1]), opened=opened, **more)

    def plan(self, connection: Any = None) -> Plan:
        """How columns become coordinates. Partitions of a collection are computed for that."""
        if isinstance(self.rows, ShardSet):
            return plan_columns(self.spec, self.rows)
        if isinstance(self.rows, StreamedRows):
            return self.rows.plan(self.spec)
        from streamomd.distributed.collections.collection import Collection
        from streamomd.distributed.collections.partition_source import make_collection_plan

        assert isinstance(self.rows, Collection)
        return make_collection_plan(self.rows, self.spec, connection)

    def new_model(self, connection: Any = None) -> Model:
        """A model before its first row."""
        model = new_model(self.spec, self.plan(connection), self.weights)
        model.table_versions = self.table_versions
        return model

    @property
    def table_versions(self) -> dict[str, int]:
        """Version of each table among the sources, by URL."""
        return dict(self.rows.table_versions) if isinstance(self.rows, ShardSet) else {}

    @property
    def shards(self) -> ShardSet:
        """The rows, where a verb refuses collections."""
        assert isinstance(self.rows, ShardSet)
        return self.rows

    def column_hints(self, plan: Plan) -> list[str]:
        """A line on columns that the job does not name and that are hashed, but nearly unique."""
        named = not isinstance(self.rows, ShardSet) or self.spec.data.hashed
        return [] if named else unique_string_notes(plan, self.shards)

    def connect(self) -> AbstractContextManager[Any]:
        """Inside: a client of the cluster that the job uses, or None."""
        holder = getattr(self.rows, "client", None)  # of the cluster that a collection is on
        return connect_cluster(self.spec, self.client or holder, self.stop)

    @contextmanager
    def prepare(self) -> Iterator[tuple[Model, Any]]:
        """A new model, and a client of the cluster that the job uses, or None.

        Shards are planned before the cluster is contacted: an error in them comes first. The
        partitions of a collection are computed on the cluster.
        """
        planned = self.new_model() if isinstance(self.rows, ShardSet) else None
        with self.connect() as connection:
            model = planned or self.new_model(connection)
            record_cluster(model, self.client)
            yield model, connection

    def begin(self, model: ModelData, *, restart: bool) -> CheckpointManager | None:
        """Make the first commit."""
        data = self.spec.data
        exact = self.spec.train.mode == "exact" and data.order != "shuffled"
        if exact and not data.time and isinstance(self.rows, ShardSet):
            model.ordered_by = column_in_order(self.rows)
        return begin_checkpoint(model, self.rows, restart=restart)

    def resume(self, model: ModelData, loaded: Loaded, *, accept_new: bool) -> CheckpointManager:
        """Continue after the commit that was loaded, as the only writer."""
        given = (model, loaded, self.rows)
        return resume_checkpoint(*given, accept_new=accept_new, opened=self.opened)

    def learn(
        self,
        model: Model,
        manager: CheckpointManager | None,
        connection: Any,
        reporting: Reporting,
        *watchers: Watcher,
    ) -> Model:
        """Learn the remaining rows in this process and on the cluster; the model, finished."""
        given = (model, self.rows, manager, self.stop, connection)
        return learn_remaining_rows(*given, reporting=reporting, more_watchers=watchers)


def find_shards(
    spec: Spec, running: ModelData | None = None, facts: Sequence[Facts] = ()
) -> ShardSet:
    """The shards of a job that a person gave. running: the model of the run, unless it is new;
    facts: of its ledger."""
    data = spec.data
    partitions = running.plan.partitions if running else ()
    listing = find(
        data.shards,
        order=data.order,
        storage_options=data.storage_options,
        tables=TableOptions.of(data),
        versions=running.table_versions if running else None,
        statistics=filter_columns(data.where, partitions),
        known=by_url(facts),
        label=data.label if running is None and spec.model.seeks_classes else "",
    )
    return view_shards(listing, data, running.plan if running else None)


def report_transport_warnings(spec: Spec) -> None:
    """Print what of a job travels unencrypted."""
    for line in transport_warnings(spec, os.environ):
        note(line)


def report_plan(plan: Plan, rows: Dataset, chosen: str = "", choices: Sequence[str] = ()) -> None:
    """Print how columns become coordinates. chosen: the rule, printed next to the number of
    coordinates; choices: lines before it."""
    more = data_notes(plan, rows) if isinstance(rows, ShardSet) else ()
    label, *columns, size = describe(plan)
    if is_verbose():
        sums = checksum_notes(rows) if isinstance(rows, ShardSet) else ()
        lines = [label, *columns, size, *more, *sums, *choices, *([chosen] if chosen else [])]
    else:  # a short run prints few lines
        numeric = [line for line in columns if line.startswith("numeric")]
        others = [line for line in columns if line not in numeric]
        joined = ["; ".join(others)] if others else []
        lines = [label, *numeric, *joined, *more, *choices, f"{chosen}; {size}" if chosen else size]
    for line in lines:
        note(line)


def data_notes(plan: Plan, shards: ShardSet) -> list[str]:
    """Lines on shards: versions of tables, directories that are no columns, and what a filter does
    not read."""
    return [
        *describe_sources(shards),
        *_later_columns(shards),
        *partition_notes(shards, plan.partitions),
        *filter_notes(shards),
    ]


def _later_columns(shards: ShardSet) -> list[str]:
    """A line on columns that the first shard, which decides, lacks."""
    names = [shard.column_names for shard in distinct_schemas(shards)]
    more = sorted({name for later in names[1:] for name in later} - {*names[0]})
    found = listed([repr(printable(name)) for name in more], MOST_COLUMNS)
    return [f"ignored, as the first shard lacks them: {found}"] if more else []


def report_rejected(loaded: Loaded, sequence: int) -> None:
    """Print why newer commits than the one that was loaded were rejected."""
    for rejected, reason in loaded.rejected:
        text = f"commit {rejected} rejected: {reason}; resuming from {sequence}"
        note(text, "commit_rejected", "warning", rejected=rejected, sequence=sequence)
