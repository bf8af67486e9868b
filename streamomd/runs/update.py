"""Update: learn the shards that arrived since the last commit of a run, each once.

    load the run → finish its list → list the sources → take what is new → record it → learn it

The shards of an update are a list of their own in the ledger, which the update's first commit
records: an interrupted update is finished before another looks for more.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Self

from pydantic import ValidationError

from streamomd.checkpoint import Ledger, Loaded, Store
from streamomd.checkpoint.manifest import KINDS
from streamomd.checkpoint.segments import Facts
from streamomd.config.allow_list import allow_lists, refuse_outside
from streamomd.config.explain import explain
from streamomd.config.run_tables import Update
from streamomd.config.spec import Spec
from streamomd.config.values import nanoseconds
from streamomd.core.counted import counted
from streamomd.core.errors import (
    DataError,
    InputNotFoundError,
    ResumeRefusedError,
    SchemaError,
    StreamomdError,
    UnsupportedError,
    UsageError,
)
from streamomd.core.nearest import named_keywords
from streamomd.core.run_events import name_run
from streamomd.core.urls import is_kafka, shown, typed
from streamomd.features import check_schema
from streamomd.runs.connection import record_cluster
from streamomd.runs.metrics_address import MetricsAddress
from streamomd.runs.modes import has_remote_state, read_state
from streamomd.runs.reporting import Reporting
from streamomd.runs.session import Session, report_rejected, report_transport_warnings
from streamomd.shards.arrivals import Arrivals, Choice, SkippedShard, find_arrivals
from streamomd.shards.columns import distinct_schemas
from streamomd.shards.cursor import Cursor
from streamomd.shards.dataset import COLLECTION
from streamomd.shards.digests import Digests
from streamomd.shards.filtered_shards import filter_columns
from streamomd.shards.find import list_shards
from streamomd.shards.shard import ShardSet
from streamomd.shards.table_finder import TableOptions
from streamomd.shards.text_cache import is_text
from streamomd.training.allowed_urls import described
from streamomd.training.callbacks import Callback
from streamomd.training.checkpoint_manager import CheckpointManager
from streamomd.training.holdout import ledger_facts
from streamomd.training.load_model import load_model
from streamomd.training.model import Model
from streamomd.training.model_document import is_named
from streamomd.training.open_checkpoint import (
    find_current_list,
    first_needed,
    open_ledger,
    take_over,
)
from streamomd.training.progress import Watcher, note, quiet_notes
from streamomd.training.resume_changes import change_model_job, refuse_diverged_again
from streamomd.training.shard_views import view_shards
from streamomd.training.signals import StopRequest, stop_on_signals
from streamomd.training.update_record import UpdateRecord

SHUFFLED = (
    'data.order = "shuffled" permutes all shards of an epoch, so no shard can be added to one: '
    "train on the new shards from this state (train SHARDS --start URL)"
)


@dataclass(eq=False)
class UpdateRun:
    """A run that is brought up to date, as often as its user wants.

    manager: None until something is committed. new_shards, new_rows, skipped: of this process.
    before: where its figures begin. report: prints what was found. watchers: of its learning, in
    addition to those of ``reporting``. learning: the list that is learned, not committed yet;
    learned: the last one that was.
    """

    model: Model
    loaded: Loaded
    store: Store
    ledger: Ledger
    stop: StopRequest
    reporting: Reporting
    client: Any = None
    manager: CheckpointManager | None = None
    new_shards: int = 0
    new_rows: int = 0
    skipped: tuple[SkippedShard, ...] = ()
    before: UpdateRecord = field(default_factory=UpdateRecord)
    _versions: dict[str, int] = field(default_factory=dict)
    clock: Callable[[], int] = time.time_ns
    report: Callable[[str], None] = note
    watchers: Sequence[Watcher] = ()
    learning: ShardSet | None = None
    learned: ShardSet | None = None

    @classmethod
    def open(
        cls,
        url: str,
        sets: Mapping[str, Any],
        storage_options: Mapping[str, Any] | None,
        checkpoint_storage_options: Mapping[str, Any] | None,
        **more: Any,
    ) -> Self:
        """The run at a URL, with the keys that may change. Raises as ``update``."""
        model, loaded = load_model(
            url,
            storage_options=checkpoint_storage_options,
            remote=has_remote_state,
            needs=KINDS,
            finite=True,
        )
        report_rejected(loaded, model.sequence)
        options = (storage_options, checkpoint_storage_options)
        change_model_job(model, sets, *options, may_skip=True)
        refuse_diverged_again(model, loaded)
        report_transport_warnings(model.spec)
        return cls.of(model, loaded, **more)

    @classmethod
    def of(cls, model: Model, loaded: Loaded, **more: Any) -> Self:
        """The run of a model that was loaded. Raises UnsupportedError if it cannot be updated."""
        refuse_update(model.spec)
        run = cls(model, loaded, *open_ledger(model, loaded), **more)
        run.before = model.update if not model.finished else run._next_record()
        return run

    def finish(self) -> None:
        """Learn the remaining rows of the list that the run is in, if it is not finished."""
        model = self.model
        if self.learning is not None:  # an error interrupted it in this process
            self._learn(self._session(self.learning))
            return
        if model.finished:
            return
        with undoable(model, lambda: self.ledger):
            shards = find_current_list(model, self.ledger)
            session = self._session(shards)
            self.manager = session.resume(model, self.loaded, accept_new=False)
        rows, what = model.metrics.total_rows, "the first run"
        if model.update.number:
            what = f"update {model.update.number}" if model.update.of_new else "the epochs"
        note(f"finishing {what}, after row {rows:,}")
        if model.update.of_new:
            self.new_shards, self.new_rows = len(shards), shards.rows
        self._learn(session)

    def find(self, choice: Choice, *, appends_only: bool = False) -> Arrivals:
        """The shards of the sources that are not in the ledger; their footers are read.

        Of a Delta table those that later versions than the learned one appended. Raises SchemaError
        with every shard that lacks a column of the model.
        """
        data, lists = self.model.spec.data, allow_lists()
        for line in described(data.shards):
            self.report(f"the checkpoint names the shards: {line}")
        refuse_outside(data.shards, lists)
        listing = list_shards(
            data.shards,
            storage_options=data.store_options,
            tables=TableOptions(as_files=data.as_files),
            since=self.model.table_versions,
            appends_only=appends_only or self.model.spec.update.appends_only,
            may_be_empty=True,
            ledger=self._recorded_ranges(),
            with_new=True,
            may_be_gone=lambda url: any(facts["url"] == url for facts in self.ledger.shards),
        )
        found = find_arrivals(
            self.ledger.shards,
            listing.fs,
            listing.files,
            choice,
            now_ns=self.clock(),
            check=lambda urls: refuse_outside(urls, lists),
            statistics=filter_columns(data.where),
        )
        found = replace(found, shards=view_shards(found.shards, data, self.model.plan))
        self._check_schemas(found.shards)
        self.skipped = found.skipped
        for line in (*listing.notes, *found.notes):
            self.report(line)
        known = {str(facts["url"]) for facts in self.ledger.shards}
        taken = known | {shard.url for shard in found.shards}
        # Files that wait are listed again only if they come after the version that is recorded.
        self._versions = listing.versions if taken >= {one.url for one in listing.files} else {}
        return found

    def _recorded_ranges(self) -> dict[str, Facts]:
        """The ledger's entries by URL, where a source is a Kafka topic, skipped ones too."""
        if not any(map(is_kafka, self.model.spec.data.shards)):
            return {}
        return {str(facts["url"]): facts for facts in self.ledger.shards}

    def catch_up(self, choice: Choice, *, appends_only: bool = False) -> None:
        """Finish the list that the run is in, then learn what is new."""
        self.finish()
        arrivals = self.find(choice, appends_only=appends_only)
        if not len(arrivals.shards) and not self.new_shards:
            note(f"nothing new since commit {self.model.sequence}")
        self.learn(arrivals)

    def learn(self, arrivals: Arrivals) -> None:
        """Record new shards as the list of an update, and learn them."""
        model, first = self.model, len(self.ledger.shards)
        versions = {**model.table_versions, **self._versions}
        changed = arrivals.skipped_facts or arrivals.renamed or versions != model.table_versions
        if not len(arrivals.shards) and not changed:
            return
        if self.manager is None:
            self.manager = take_over(model, self.loaded, self.store, self.ledger)
        self.manager.share(Digests())  # the ledger has those of the lists before
        if model.spec.data.delay:  # rows of which are read again
            waiting = self.ledger.digests(first_needed(model, self.ledger, first))
            model.digests = Digests(waiting)
        new = ledger_facts(arrivals.shards, named=is_named(model))
        record, sequence = self._next_record(), self.manager.sequence + 1
        own = {"update": record.number, "sequence": sequence}
        self.ledger.change(dict((*arrivals.renamed, *arrivals.touched)))
        self.ledger.append([{**facts, **own} for facts in arrivals.skipped_facts])
        self.ledger.append([{**facts, **own} for facts in new])
        if len(arrivals.shards):
            epochs = model.cursor.epoch  # those that were made, where it stopped early
            train = model.spec.train.model_copy(update={"epochs": epochs})
            model.spec = model.spec.model_copy(update={"train": train})
            model.update = replace(record, first=first)
            model.cursor, model.finished = Cursor(epochs - 1), False
            self.learning = arrivals.shards
            self.new_shards += len(arrivals.shards)
            self.new_rows += arrivals.shards.rows
        model.table_versions = versions
        self.manager.record_list()
        if len(arrivals.shards):
            self._learn(self._session(arrivals.shards))

    def figures(self) -> dict[str, Any]:
        """What an update reports next to the figures of the model."""
        learned = self.before.figures(self.model.metrics)
        return {
            "new_shards": self.new_shards,
            "new_rows": self.new_rows,
            "update": learned if self.new_shards else None,
            "skipped_shards": [{"url": one.url, "reason": one.reason} for one in self.skipped],
        }

    def _next_record(self) -> UpdateRecord:
        return self.model.update.next(len(self.ledger.shards), self.model.metrics)

    def _session(self, shards: ShardSet) -> Session:
        opened = (self.store, self.ledger)
        return Session(self.model.spec, shards, self.stop, self.client, opened=opened)

    def _learn(self, session: Session) -> None:
        model = self.model
        self.learning = session.shards
        with undoable(model, lambda: self.ledger), session.connect() as connection:
            if connection is None:
                read_state(model)
            record_cluster(model, self.client)
            session.learn(model, self.manager, connection, self.reporting, *self.watchers)
        self.learning, self.learned = None, session.shards
        if not model.update.of_new:  # rows that an update finds finished are not its own
            self.before = self._next_record()

    def _check_schemas(self, shards: ShardSet) -> None:
        plan, problems, known = self.model.plan, [], set[str]()
        for facts in self.ledger.shards[:1]:
            known = {str(column[0]) for column in facts.get("schema") or ()}
        right: set[int] = set()
        for shard in shards:
            # Writers of no rows often know no types. Most shards have one schema, as one object.
            if not shard.rows or id(shard.schema) in right:
                continue
            try:
                check_schema(plan, shard.schema, shard.url)
                right.add(id(shard.schema))
            except SchemaError as error:
                problems.append(str(error))
        if problems:
            raise SchemaError("\n".join(problems))
        names = (shard.stored_schema.names for shard in distinct_schemas(shards))
        more = sorted({name for one in names for name in one} - known)
        if known and more:
            self.report(f"new columns, which this model ignores: {', '.join(map(repr, more))}")


@contextmanager
def undoable(model: Model, ledger: Callable[[], Ledger]) -> Iterator[None]:
    """After an error in the shards of an update: print how to take another list of them."""
    try:
        yield
    except (DataError, InputNotFoundError, ResumeRefusedError):
        record = model.update
        if record.of_new:
            before = int(ledger().shards[record.first].get("sequence", 1)) - 1
            note(
                f"update {record.number} is not finished, and its list of shards is recorded. "
                "To repair or remove one of them, undo the update first: streamomd checkpoint "
                f"restore {typed(model.url)} --at {before}"
            )
        raise


def refuse_update(spec: Spec) -> None:
    """Raises UnsupportedError for a run that cannot learn shards that came later."""
    if spec.data.shards[0].startswith(COLLECTION):
        raise UnsupportedError(
            "this run learned a Dask collection, which lists no files: train on the new rows from "
            "its state (streamomd.train(ddf, start=URL))"
        )
    if any(map(is_text, spec.data.shards)):
        raise UnsupportedError(
            f"this run learned text, {shown(spec.data.shards[0])}, which is converted as a whole, "
            "so its rows would be learned again. For updates convert each file to a directory of "
            "its own (`streamomd convert 2026-01.csv -o rows/2026-01`), train on "
            "'rows/*/*.parquet' and update that run; or learn a new file once: "
            "`streamomd train NEW.csv --start URL`"
        )
    if spec.data.order == "shuffled":
        raise UnsupportedError(SHUFFLED)
    if spec.data.held_after is not None:
        raise UnsupportedError(
            f"data.holdout = {spec.data.holdout}: every new row would be held out, and none "
            "learned. Train a run of its own on all rows, with data.holdout as a number, and "
            "update that one"
        )
    if spec.rule.looks(spec.model.params):
        raise UnsupportedError(
            f"rule {spec.model.rule!r} observes all rows before it learns the first, so no row can "
            "be added: train on all shards again, or on the new ones from this state (--start URL)"
        )
    if spec.cluster.learner == "worker":
        raise UnsupportedError(
            'cluster.learner = "worker": update learns in this process, workers may decode; '
            "leave cluster.learner out"
        )


def update_table(spec: Spec, given: Mapping[str, Any]) -> Update:
    """A job's table [update], except what this command says. Raises UsageError."""
    try:
        return Update.model_validate({**spec.update.model_dump(), **given})
    except ValidationError as error:
        raise UsageError(explain(error, Update)) from None


def choice_of(spec: Spec, given: Mapping[str, Any] | None = None) -> Choice:
    """What a job says of new shards, except what this command says. Raises UsageError."""
    table = update_table(spec, given or {})
    return Choice(
        settle=table.settle,
        until_ns=nanoseconds(table.until) if table.until else None,
        max_shards=table.max_shards,
        arrival=spec.data.arrival,
        on_bad_shard=spec.data.on_bad_shard,
        ignore_rewritten=table.ignore_rewritten,
        moved=table.moved,
        accept_duplicates=table.accept_duplicates,
        retry_skipped=table.retry_skipped,
    )


@named_keywords
def update(
    url: str,
    *,
    dry_run: bool = False,
    settle: float | str | None = None,
    max_shards: int | None = None,
    until: str | None = None,
    ignore_rewritten: bool | None = None,
    moved: bool | None = None,
    accept_duplicates: bool | None = None,
    retry_skipped: bool | None = None,
    appends_only: bool | None = None,
    fail_on_alert: bool | None = None,
    client: Any = None,
    storage_options: Mapping[str, Any] | None = None,
    checkpoint_storage_options: Mapping[str, Any] | None = None,
    sets: Mapping[str, Any] | None = None,
    log: str | None = None,
    quiet: bool = False,
    callbacks: Sequence[Callback] = (),
    metrics_port: int | None = None,
    metrics_host: str = "",
) -> Model:
    """Learn the shards of a run's sources that it has not learned: each once, in order of arrival.

    dry_run: only say which they are. settle to fail_on_alert: keys of the job's table [update], for
    this call alone; None: as the job has them. settle: seconds, or "30s". until: ISO 8601. The
    other arguments are those of ``streamomd.resume``. In exact mode the state is that of one run
    over the same shards in the same order, to the bit.

    Raises ResumeRefusedError (a learned shard was rewritten or moved), UnsupportedError (the order
    is shuffled, or the rule observes all rows first), SchemaError, AlertError, and what ``resume``
    raises.
    """
    choice = {
        "settle": settle,
        "max_shards": max_shards,
        "until": until,
        "ignore_rewritten": ignore_rewritten,
        "moved": moved,
        "accept_duplicates": accept_duplicates,
        "retry_skipped": retry_skipped,
        "appends_only": appends_only,
        "fail_on_alert": fail_on_alert,
    }
    model, _ = run_update(
        url,
        {key: value for key, value in choice.items() if value is not None},
        dry_run=dry_run,
        options=(storage_options, checkpoint_storage_options),
        sets=sets or {},
        client=client,
        reporting=Reporting(log, quiet, callbacks, MetricsAddress.of(metrics_port, metrics_host)),
        quiet=quiet,
    )
    return model


def run_update(
    url: str,
    choice: Mapping[str, Any],
    *,
    dry_run: bool,
    options: tuple[Mapping[str, Any] | None, Mapping[str, Any] | None],
    sets: Mapping[str, Any],
    client: Any,
    reporting: Reporting,
    quiet: bool,
) -> tuple[Model, dict[str, Any]]:
    """As ``update``; and the figures of the update."""
    with stop_on_signals() as stop, quiet_notes(quiet), reporting.opened() as opened:
        name_run(shown(url))
        run = UpdateRun.open(url, sets, *options, stop=stop, reporting=opened, client=client)
        model, chosen = run.model, choice_of(run.model.spec, choice)
        model.fail_on_alert = update_table(model.spec, choice).fail_on_alert
        appends_only = bool(choice.get("appends_only"))
        if not dry_run:
            run.catch_up(chosen, appends_only=appends_only)
            return model, run.figures()
        arrivals = run.find(chosen, appends_only=appends_only)
        report_new(model, arrivals)
        rows, shards = arrivals.shards.rows, len(arrivals.shards)
        return model, {**run.figures(), "new_shards": shards, "new_rows": rows}


def report_unlearned(model: Model, loaded: Loaded) -> None:
    """Print how many new shards the sources of a finished run have, where they can be listed."""
    try:
        run = UpdateRun.of(model, loaded, stop=StopRequest(), reporting=Reporting(quiet=True))
        arrivals = run.find(replace(choice_of(model.spec), on_bad_shard="skip"))
    except StreamomdError:
        return  # a finished run is complete without its shards
    if len(arrivals.shards):
        report_new(model, arrivals)


def report_new(model: Model, arrivals: Arrivals) -> None:
    """Print how many shards an update would learn, or that there are none."""
    count, rows = len(arrivals.shards), arrivals.shards.rows
    if count:
        note(
            f"{counted(count, 'new shard')} ({counted(rows, 'row')}) not learned: "
            f"streamomd update {typed(model.url)}"
        )
    else:
        note(f"nothing new since commit {model.sequence} of {shown(model.url)}")
