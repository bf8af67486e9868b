"""The row source of exact mode with a cluster."""

from __future__ import annotations

from collections.abc import Callable

from distributed import Client

from streamomd.distributed.auto_decode import FasterSource
from streamomd.distributed.cluster import has_usable_workers
from streamomd.distributed.decode import DecodeRequest, Decoders
from streamomd.shards.shard import ShardSet
from streamomd.training.model import Model
from streamomd.training.row_stream import Source
from streamomd.training.training_step import reader_plan


def choose_source(
    model: Model, shards: ShardSet, local: Source, client: Client, waiting: Callable[[], None]
) -> Source:
    """Rows from the workers (cluster.decode = "remote"), or from the faster source ("auto").

    local: rows decoded by this process. waiting: called twice a second while rows are awaited.
    """
    cluster = model.spec.cluster
    decoders = Decoders(
        client,
        DecodeRequest(reader_plan(model), model.spec.data.store_options),
        shards,
        window_bytes=cluster.window << 20,
        names=model.names,
        digests=model.digests,
        waiting=waiting,
    )
    if cluster.decode == "remote":
        return decoders.rows
    total = shards.rows * model.spec.train.epochs

    def remaining() -> int:
        return total - model.metrics.total_rows

    return FasterSource(
        local, decoders.rows, lambda: has_usable_workers(client, waiting), remaining
    ).rows
