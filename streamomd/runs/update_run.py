"""A run that is brought up to date: finds new shards of its sources and learns them."""

from __future__ import annotations

import glob
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Self

from streamomd.checkpoint import Ledger, Loaded, Store
from streamomd.checkpoint.manifest import KINDS
from streamomd.checkpoint.segments import Facts
from streamomd.core.errors import (
    DataError,
    InputNotFoundError,
    ResumeRefusedError,
    SchemaError,
    UnsupportedError,
)
from streamomd.core.urls import absolute, protocol, shown, typed
from streamomd.features import check_schema
from streamomd.runs.connection import record_cluster
from streamomd.runs.modes import has_remote_state, read_state
from streamomd.runs.reporting import Reporting
from streamomd.runs.session import Session, report_rejected, report_transport_warnings
from streamomd.runs.update_choice import refuse_update
from streamomd.shards.filesystem import FileSystem
from streamomd.shards.filtered_shards import filter_columns
from streamomd.shards.order import Cursor
from streamomd.shards.read_footers import recorded_projection
from streamomd.shards.reader import digests_of
from streamomd.shards.renames import check_columns, distinct_schemas, refuse_unknown_renames
from streamomd.shards.shard import Digests, Shard, ShardSet
from streamomd.sources.arrivals import (
    Arrivals,
    find_arrivals,
    skipped_of_tables,
    without_bad_shards,
)
from streamomd.sources.contract import Request
from streamomd.sources.find import Listing, by_source, list_shards, source_of
from streamomd.sources.new_files import Choice, Contents, SkippedShard
from streamomd.sources.tables import TableOptions
from streamomd.sources.text.text_cache import is_text
from streamomd.training.checkpoint_manager import CheckpointManager
from streamomd.training.holdout import ledger_facts
from streamomd.training.load_model import load_model
from streamomd.training.model import Model
from streamomd.training.model_data import ModelData
from streamomd.training.model_document import is_named
from streamomd.training.open_checkpoint import (
    change_model_job,
    find_current_list,
    first_needed,
    open_ledger,
    refuse_diverged_again,
    take_over,
)
from streamomd.training.progress import Watcher, note
from streamomd.training.row_stream import view_shards
from streamomd.training.run_records import UpdateRecord
from streamomd.training.signals import StopRequest
from streamomd.training.url_trust import check_sources


@dataclass(eq=False)
class UpdateRun:
    """A run that is brought up to date, as often as its user wants.

    manager: None until something is committed. new_shards, new_rows, skipped: of this process.
    before: where its figures begin. report: prints what was found. watchers: of its learning, in
    addition to those of ``reporting``. learning: the list that is learned, not committed yet;
    learned: the last one that was. new_renames: names of columns that this command added to
    data.rename, which new shards must have.
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
    _has_added: bool = False
    clock: Callable[[], int] = time.time_ns
    report: Callable[[str], None] = note
    watchers: Sequence[Watcher] = ()
    learning: ShardSet | None = None
    learned: ShardSet | None = None
    new_renames: Sequence[str] = ()

    @classmethod
    def open(
        cls,
        url: str,
        sets: Mapping[str, Any],
        storage_options: Mapping[str, Any] | None,
        checkpoint_storage_options: Mapping[str, Any] | None,
        *,
        given: Mapping[str, Any] | None = None,
        **more: Any,
    ) -> Self:
        """The run at a URL, with the keys that may change. given: keys of [update] for this command
        alone, which are checked. Raises as ``update``."""
        model, loaded = load_model(
            url,
            storage_options=checkpoint_storage_options,
            remote=has_remote_state,
            needs=KINDS,
            finite=True,
        )
        report_rejected(loaded, model.sequence)
        options = (storage_options, checkpoint_storage_options)
        keys = {f"update.{key}" for key, value in (given or {}).items() if value is not False}
        before = model.spec.data.rename
        change_model_job(model, sets, *options, may_skip=True, given=keys)
        renames = model.spec.data.rename.items()
        more["new_renames"] = [name for name, to in renames if before.get(name) != to]
        refuse_diverged_again(model, loaded)
        report_transport_warnings(model.spec)
        return cls.of(model, loaded, **more)

    @classmethod
    def of(cls, model: Model, loaded: Loaded, **more: Any) -> Self:
        """The run of a model that was loaded. Raises UnsupportedError if it cannot be updated."""
        refuse_update(model.spec)
        if model.metrics.backtest is not None:
            raise UnsupportedError(
                f"{shown(model.url)} is a backtest, whose periods end with its shards: run another "
                "one over all shards, or train a model (streamomd train) and update that"
            )
        run = cls(model, loaded, *open_ledger(loaded), **more)
        run.before = model.update if not model.finished else run._next_record()
        return run

    def add_sources(self, shards: Sequence[str]) -> None:
        """List these too, from here on. Raises InputNotFoundError."""
        data = self.model.spec.data
        added = [one for one in map(absolute, shards) if one not in data.shards]
        for one in added:
            if not protocol(one) and not glob.glob(one) and not os.path.exists(one):
                raise InputNotFoundError(f"{shown(one)}: no such file or directory")
        if added:
            self._has_added = True
            data = data.model_copy(update={"shards": (*data.shards, *added)})
            self.model.spec = self.model.spec.model_copy(update={"data": data})

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

    def find(self, choice: Choice, *, appends_only: bool = False, decode: bool = True) -> Arrivals:
        """The shards of the sources that are not in the ledger; their footers are read.

        Of a Delta table those that later versions than the learned one appended. Raises SchemaError
        with every shard that lacks a column of the model, unless the choice is to skip them; then
        decode: read every row of new shards first, so that those with damage inside are skipped.
        """
        data = self.model.spec.data
        check = check_sources(data.shards, data, self.report)
        listing, known = self._list(appends_only=appends_only), self.ledger.shards
        if listing.lost and choice.on_bad_shard != "skip":
            raise ResumeRefusedError("\n".join(listing.lost))
        again = skipped_of_tables(known, listing) if choice.retry_skipped else []
        arrivals = find_arrivals(
            known,
            listing.fs,
            [*again, *listing.files],
            choice,
            now_ns=self.clock(),
            contents=self._contents(listing.fs),
            check=check,
            statistics=filter_columns(data.where),
        )
        if choice.on_bad_shard == "skip":
            bad = self._bad_shards(arrivals.shards, decode=decode)
            arrivals = without_bad_shards(arrivals, known, bad)
        if len(arrivals.shards):
            refuse_unknown_renames(arrivals.shards, self.new_renames)
        arrivals = arrivals._replace(shards=view_shards(arrivals.shards, data, self.model.plan))
        self._check_schemas(arrivals.shards)
        self.skipped = arrivals.skipped
        for line in (*listing.notes, *arrivals.notes):
            self.report(line)
        taken = {str(facts["url"]) for facts in known} | {shard.url for shard in arrivals.shards}
        # Files that wait are listed again only if they come after the version that is recorded.
        new = len(arrivals.shards) or listing.notes  # a compaction alone is not recorded
        whole = taken >= {file.url for file in listing.files}
        self._versions = listing.versions if new and whole else {}
        return arrivals

    def _bad_shards(
        self, shards: ShardSet, *, decode: bool
    ) -> dict[str, DataError | InputNotFoundError]:
        """Shards that the model cannot learn, by URL, and why."""
        data, plan = self.model.spec.data, self.model.plan
        bad: dict[str, DataError | InputNotFoundError] = {}
        for shard in shards:
            try:
                (view,) = view_shards(ShardSet((shard,), shards.fs), data, plan)
                if view.rows:
                    check_schema(plan, view.schema, view.url)
                if decode and not source_of(view.url).verifies_rows:
                    digests_of(shards.fs, view, plan.columns, plan.dictionary, decode=True)
            except (DataError, InputNotFoundError) as error:
                bad[shard.url] = error
        return bad

    def _contents(self, fs: FileSystem) -> Contents:
        """Compares new shards with those of the ledger, by the columns that the run reads."""
        data, plan = self.model.spec.data, self.model.plan

        def recorded(number: int) -> dict[int, bytes]:
            return {group: digest for _, group, digest in self.ledger.digests(number, number)}

        def read(shard: Shard) -> dict[int, bytes]:
            (view,) = view_shards(ShardSet((shard,), fs), data, plan)
            return digests_of(fs, view, plan.columns, plan.dictionary)

        return Contents(fs, recorded, read)

    def count_unopened(self) -> tuple[int, int]:
        """New shards that are not in the ledger, and what their sources count of them; none is
        opened."""
        data = self.model.spec.data
        check_sources(data.shards, data, self.report)
        known = {str(facts["url"]) for facts in self.ledger.shards}
        new = [one.url for one in self._list().files if one.url not in known]
        return len(new), sum(source_of(url).count(url) for url in new)

    def _list(self, *, appends_only: bool = False) -> Listing:
        data = self.model.spec.data
        request = Request(
            storage_options=data.store_options,
            tables=TableOptions(as_files=data.as_files, csv=data.csv.options()),
            since=self.model.table_versions,
            appends_only=appends_only or self.model.spec.update.appends_only,
            may_be_empty=True,
            ledger=self._recorded_files(),
            with_new=True,
            may_be_gone=lambda url: any(facts["url"] == url for facts in self.ledger.shards),
        )
        return list_shards(data.shards, request)

    def _recorded_files(self) -> dict[str, Facts]:
        """The ledger's entries by URL, skipped ones too, where a source lists by them."""
        urls = self.model.spec.data.shards
        by_ledger = any(source.lists_by_ledger for source in by_source(urls))
        by_ledger = by_ledger or any(map(is_text, urls))
        if not (self.model.table_versions or by_ledger):
            return {}
        return {str(facts["url"]): facts for facts in self.ledger.shards}

    def catch_up(self, choice: Choice, *, appends_only: bool = False) -> None:
        """Finish the list that the run is in, then learn what is new."""
        self.finish()
        arrivals = self.find(choice, appends_only=appends_only)
        if not len(arrivals.shards) and not self.new_shards:
            note(f"nothing new since commit {self.model.sequence}")
            if all(map(os.path.isfile, self.model.spec.data.shards)):
                url = typed(self.model.url)
                note(f"its sources are single files; another one: streamomd update {url} FILE")
        self.learn(arrivals)

    def learn(self, arrivals: Arrivals) -> None:
        """Record new shards as the list of an update, and learn them."""
        model, first = self.model, len(self.ledger.shards)
        versions = {**model.table_versions, **self._versions}
        changed = any((arrivals.skipped_facts, arrivals.renamed, arrivals.accepted))
        changed = changed or versions != model.table_versions or self._has_added
        if not len(arrivals.shards) and not changed:
            return
        if self.manager is None:
            opened = (self.store, self.ledger)
            self.manager = take_over(model, self.loaded, *opened, commits_next=True)
        self.manager.share(Digests())  # the ledger has those of the lists before
        if model.spec.data.delay:  # rows of which are read again
            waiting = self.ledger.digests(first_needed(model, self.ledger, first))
            model.digests = Digests(waiting)
        new = ledger_facts(arrivals.shards, named=is_named(model))
        record, sequence = self._next_record(), self.manager.sequence + 1
        own = {"update": record.number, "sequence": sequence}
        self.ledger.change(dict((*arrivals.renamed, *arrivals.touched, *arrivals.accepted)))
        self.ledger.append([{**facts, **own} for facts in arrivals.skipped_facts])
        self.ledger.append([{**facts, **own} for facts in new])
        if len(arrivals.shards):
            epochs = model.cursor.epoch  # those that were made, where it stopped early
            train = model.spec.train.model_copy(update={"epochs": epochs})
            model.spec = model.spec.model_copy(update={"train": train})
            model.update = record._replace(first=first)
            model.cursor, model.finished = Cursor(epochs - 1), False
            self.learning = arrivals.shards
            self.new_shards += len(arrivals.shards)
            self.new_rows += arrivals.shards.rows
        model.table_versions, self._has_added = versions, False
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
            first = recorded_projection(facts)
            stored = [str(column[0]) for column in facts.get("schema") or ()]
            known = {first.column(name) if first else name for name in stored}
        right: set[int] = set()
        for shard in shards:
            # Writers of no rows often know no types. Most shards have one schema, as one object.
            if not shard.rows or id(shard.schema) in right:
                continue
            try:
                check_columns(plan, shard)
                right.add(id(shard.schema))
            except SchemaError as error:
                problems.append(str(error))
        if problems:
            remedy = (
                "If the files have a column under another name, pass --rename FILE=COLUMN. Or set "
                'data.on_bad_shard = "skip": the ledger records it'
            )
            raise SchemaError("\n".join([*problems, remedy]))
        names = (shard.column_names for shard in distinct_schemas(shards))
        more = sorted({name for columns in names for name in columns} - known)
        if known and more:
            self.report(f"new columns, which this model ignores: {', '.join(map(repr, more))}")


@contextmanager
def undoable(model: ModelData, ledger: Callable[[], Ledger]) -> Iterator[None]:
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
