"""The feature plan and the rows of a collection."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from typing import Any

from distributed import Client

from streamomd.config.spec import Spec
from streamomd.core.errors import DataError, UsageError
from streamomd.distributed.cluster import describe_cluster
from streamomd.distributed.collections.collection import Collection
from streamomd.distributed.collections.partition import PartitionSummary, summarize
from streamomd.distributed.collections.partition_rows import ClusterPartitions, LocalPartitions
from streamomd.features import Plan, make_plan
from streamomd.shards.distinct_labels import distinct_among
from streamomd.shards.encoded_rows import Rows
from streamomd.shards.reader import Piece
from streamomd.training.model import Model
from streamomd.training.new_model import enough_labels, report_task
from streamomd.training.progress import note
from streamomd.training.row_stream import AHEAD_BYTES, Source
from streamomd.training.training_step import reader_plan


def make_collection_plan(collection: Collection, spec: Spec, client: Client | None) -> Plan:
    """The feature plan of a collection; its first partitions are computed for it.

    Raises DataError if all are empty, and what ``make_plan`` raises.
    """
    reader = _reader(collection, spec, client, None, lambda: None)
    known: list[PartitionSummary] = []

    def summaries() -> Iterator[PartitionSummary]:
        yield from known
        for number in range(len(known), len(collection)):
            known.append(reader.call(number, summarize, spec.data.label))
            yield known[-1]

    first = next((one for one in summaries() if one.rows), None)
    if first is None:
        raise DataError(f"no rows: all {len(collection)} partitions are empty")

    def labels() -> list[Any]:
        pieces = ((one, [one.labels]) for one in summaries())
        found = distinct_among(pieces, spec.data.label, enough=enough_labels(spec))
        report_task(spec, found)
        return found

    return make_plan(spec.data, spec.model, first.schema, labels)


def collection_source(
    model: Model, collection: Collection, client: Client | None, waiting: Callable[[], None]
) -> Source:
    """The rows of a collection, from the workers if there are any; compiles the loops first."""
    if client is not None:
        note(describe_cluster(client))
    reader = _reader(collection, model.spec, client, model.plan.columns, waiting)
    ready = False

    def rows(places: Sequence[int], start: tuple[int, int]) -> Iterator[Piece[Rows]]:
        nonlocal ready
        pieces: Any = reader.rows(reader_plan(model), model.names, places, start)
        with closing(pieces):
            for piece in pieces:
                if not ready:
                    model.engine.warm(model.state, piece.value.batch.rows(0, 0), learning=True)
                    ready = True
                yield piece

    return rows


def _reader(
    collection: Collection,
    spec: Spec,
    client: Client | None,
    columns: Sequence[str] | None,
    waiting: Callable[[], None],
) -> LocalPartitions | ClusterPartitions:
    graph = collection.graph(columns)
    if client is not None:
        return ClusterPartitions(client, graph, spec.cluster.window << 20, waiting)
    if collection.client is not None:
        raise UsageError(
            "this collection is persisted on a cluster and can only be computed there: pass its "
            'client=, and leave cluster.decode at "auto"'
        )
    return LocalPartitions(graph, (spec.train.prefetch << 20) or AHEAD_BYTES)
