"""The row source of exact mode with a cluster: by a trial on the first rows, the faster decoder.

If this process alone would finish soon, the cluster is not tried: a trial that finds it slower, and
the cancellation of its tasks, costs two seconds or more.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from typing import Any

from distributed import Client

from streamomd.core.errors import ClusterError
from streamomd.distributed.cluster import has_usable_workers
from streamomd.distributed.decode import DecodeRequest, Decoders
from streamomd.shards.encoded_rows import Rows
from streamomd.shards.reader import Piece
from streamomd.shards.shard import ShardSet
from streamomd.training.model_data import ModelData
from streamomd.training.progress import note
from streamomd.training.row_stream import Source
from streamomd.training.training_step import reader_plan


def choose_source(
    model: ModelData, shards: ShardSet, local: Source, client: Client, waiting: Callable[[], None]
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


TRIAL_SECONDS = 2.0
MIN_REMAINING_SECONDS = (
    30.0  # work that must remain for a trial of the cluster to cost less than a tenth
)
LOCAL, REMOTE = "this process", "the cluster"
clock = time.monotonic


class FasterSource:
    """A row source that switches to the faster of two sources after a trial. Both yield equal rows.

    ready: whether there is a usable worker. remaining: rows to come, including the next epochs.
    If the cluster fails, this process continues alone.
    """

    def __init__(
        self, local: Source, remote: Source, ready: Callable[[], bool], remaining: Callable[[], int]
    ) -> None:
        self._sources = {LOCAL: local, REMOTE: remote}
        self._ready, self._remaining = ready, remaining
        self._chosen = ""
        self._position = 0, 0

    def rows(self, places: Sequence[int], start: tuple[int, int] = (0, 0)) -> Iterator[Piece[Rows]]:
        """Pieces in order, from position and row ``start`` on."""
        self._position = start
        if not self._chosen and not self._ready():
            text = f"the cluster has no usable worker: {LOCAL} decodes alone"
            note(text, "cluster_left", "warning")
            self._chosen = LOCAL
        try:
            yield from self._choose_source(places)
        except ClusterError as error:
            text = f"{error}. {LOCAL} decodes alone from now on; no row is learned again"
            note(text, "cluster_left", "warning", rows_again=0)
            self._chosen = LOCAL
            yield from self._sources[LOCAL](places, self._position)

    def _choose_source(self, places: Sequence[int]) -> Iterator[Piece[Rows]]:
        if not self._chosen:
            rates: dict[str, float] = {}
            for name in self._sources:
                rate = yield from self._trial(name, places)
                if rate is None:
                    return
                rates[name] = rate
                if name == LOCAL and self._remaining() < rate * MIN_REMAINING_SECONDS:
                    break
            self._chosen = max(rates, key=lambda name: rates[name])
            speeds = ", ".join(f"{name} {rate:,.0f}" for name, rate in rates.items())
            note(f"rows decoded and learned a second: {speeds}; continuing with {self._chosen}")
        yield from self._read_from(self._chosen, places)

    def _trial(
        self, name: str, places: Sequence[int]
    ) -> Generator[Piece[Rows], None, float | None]:
        """Yield rows for some seconds; return rows per second, or None if all were read.

        The clock starts after the first piece, so that start-up time is not counted.
        """
        started: float | None = None
        rows = 0
        with closing(self._read_from(name, places)) as pieces:
            for piece in pieces:
                yield piece
                now = clock()
                if started is None:
                    started = now
                    continue
                rows += piece.rows
                if now - started >= TRIAL_SECONDS:
                    return rows / (now - started)
        return None

    def _read_from(self, name: str, places: Sequence[int]) -> Generator[Piece[Rows], None, None]:
        """Yield a source's pieces and record where the next one begins."""
        source: Any = self._sources[name](places, self._position)
        with closing(source) as pieces:
            for piece in pieces:
                self._position = piece.position, piece.row + piece.rows
                yield piece
