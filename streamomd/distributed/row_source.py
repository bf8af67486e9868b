"""Where exact mode's rows come from when there is a cluster."""

from __future__ import annotations

from collections.abc import Callable

from distributed import Client

from streamomd.distributed.auto_decode import FasterSource
from streamomd.distributed.cluster import has_workers
from streamomd.distributed.decode import DecodeRequest, Decoders
from streamomd.shards.shard import ShardSet
from streamomd.training.model import Model
from streamomd.training.row_stream import Source


def source(
    model: Model, shards: ShardSet, here: Source, client: Client, waiting: Callable[[], None]
) -> Source:
    """Rows from the workers (cluster.decode = "remote"), or from whoever is faster ("auto").

    here: rows decoded by this process. waiting: called twice a second while rows are awaited.
    """
    cluster = model.spec.cluster
    decoders = Decoders(
        client,
        DecodeRequest(model.plan, model.spec.data.storage_options),
        shards,
        window_bytes=cluster.window << 20,
        names=model.names,
        digests=model.digests,
        waiting=waiting,
    )
    if cluster.decode == "remote":
        return decoders.rows
    total = shards.rows * model.spec.train.epochs

    def left() -> int:
        return total - model.metrics.total_rows

    return FasterSource(here, decoders.rows, lambda: has_workers(client, waiting), left).rows
