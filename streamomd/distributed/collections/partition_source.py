"""From a collection to what a run needs: a plan of its columns, and its rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from typing import Any

from distributed import Client

from streamomd.config.spec import Spec
from streamomd.core.errors import DataError, UsageError
from streamomd.distributed.cluster import told
from streamomd.distributed.collections.collection import Collection
from streamomd.distributed.collections.partition import PartitionSummary, look
from streamomd.distributed.collections.partition_rows import ClusterPartitions, LocalPartitions
from streamomd.features import Plan, make_plan
from streamomd.shards.distinct_labels import distinct_among
from streamomd.shards.encoded_rows import Rows
from streamomd.shards.reader import Piece
from streamomd.training.model import Model
from streamomd.training.progress import note
from streamomd.training.row_stream import Source


def plan_of(collection: Collection, spec: Spec, client: Client | None) -> Plan:
    """How its columns become coordinates; its first partitions are computed for that.

    Raises DataError when all are empty, and what ``make_plan`` raises.
    """
    reader = _reader(collection, spec, client, None, lambda: None)
    seen: list[PartitionSummary] = []

    def looked() -> Iterator[PartitionSummary]:
        yield from seen
        for number in range(len(seen), len(collection)):
            seen.append(reader.ask(number, look, spec.data.label))
            yield seen[-1]

    first = next((one for one in looked() if one.rows), None)
    if first is None:
        raise DataError(f"no rows: all {len(collection)} partitions are empty")

    def labels() -> list[Any]:
        return distinct_among(((one, [one.labels]) for one in looked()), spec.data.label)

    return make_plan(spec.data, spec.model, first.schema, labels)


def source(
    model: Model, collection: Collection, client: Client | None, waiting: Callable[[], None]
) -> Source:
    """Its rows, from the workers if there are any; the loops are made ready for the first."""
    if client is not None:
        note(told(client))
    reader = _reader(collection, model.spec, client, model.plan.columns, waiting)
    ready = False

    def rows(places: Sequence[int], start: tuple[int, int]) -> Iterator[Piece[Rows]]:
        nonlocal ready
        pieces: Any = reader.rows(model.plan, model.names, places, start)
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
            "this collection is persisted on a cluster, where alone it can be computed: pass its "
            'client=, and leave cluster.decode at "auto"'
        )
    return LocalPartitions(graph, spec.train.prefetch << 20)
