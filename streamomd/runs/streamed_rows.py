"""Rows of a stream, learned as they come, once: no file is written.

A block of rows is encoded whole and its digest recorded before its rows are learned, so that a
resumed run knows the rows again.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, contextmanager
from functools import partial
from typing import Any

from streamomd.checkpoint.segments import Facts
from streamomd.config.spec import Spec
from streamomd.core.batch import Batch
from streamomd.core.errors import ChangedDataError, UsageError
from streamomd.core.profiling import Stage
from streamomd.features import Plan, check_schema, make_plan
from streamomd.shards.distinct_values import distinct_among, label_counts
from streamomd.shards.encoded_rows import Rows
from streamomd.shards.file_schema import schema_facts
from streamomd.shards.order import STREAM
from streamomd.shards.reader import Piece
from streamomd.sources.memory.row_streams import (
    Block,
    RowBlocks,
    RowFolder,
    encode_block,
    stream_name,
)
from streamomd.training.model_data import ModelData
from streamomd.training.new_model import report_labels
from streamomd.training.progress import note
from streamomd.training.row_stream import UNIT_BYTES, Source
from streamomd.training.training_step import reader_plan


class StreamedRows:
    """A stream as the rows of a run; it can be read once. recorded: what the ledger of a run to
    resume has of it.

    Raises what ``RowBlocks`` raises.
    """

    rows = 0  # unknown
    remedy = (
        "pass the same rows in the same order, or learn others from this state: "
        "streamomd.train(rows, start=URL)"
    )

    def __init__(self, given: Any, recorded: Sequence[Facts] = ()) -> None:
        self.name = f"the {stream_name(given)} given as shards"
        self.url = str(recorded[0]["url"]) if recorded else stream_url(given)
        self._blocks = RowBlocks(given, UNIT_BYTES)
        self.schema = self._blocks.schema
        if recorded:  # digests are of these blocks
            self._blocks.size = recorded[0]["groups"][0]

    def __len__(self) -> int:
        return 1

    def part_name(self, number: int) -> str:
        """Its name in the job."""
        return self.url

    def fingerprint(self) -> list[dict[str, Any]]:
        """Its columns, and the rows of a block."""
        kinds, groups = schema_facts(self._blocks.stored).columns, [self._blocks.size]
        return [{"url": self.url, "format": "stream", "groups": groups, "schema": kinds}]

    def plan(self, spec: Spec) -> Plan:
        """How its columns become coordinates, by its first rows. Raises what ``make_plan``
        raises."""
        labels, longest = partial(self._labels, spec), self._blocks.longest
        return make_plan(spec.data, spec.model, self.schema, labels, (), longest)

    def _labels(self, spec: Spec) -> list[Any]:
        column = spec.data.label

        def distinct(**more: Any) -> list[Any]:
            chunks = self._blocks.first_chunks(column)
            return distinct_among([(self, map(label_counts, chunks))], column, **more)

        return report_labels(spec, distinct, lambda: ())

    def source(self, model: ModelData) -> Source:
        """Where the run's rows come from; compiles its loops first."""

        def rows(places: Sequence[int], start: tuple[int, int]) -> Iterator[Piece[Rows]]:
            plan, begin = reader_plan(model), start[1]
            check_schema(plan, self.schema, self.name)
            encode = partial(encode_block, plan, model.names, self.url, begin)
            pieces = _in_threads(self._blocks.read(plan.columns), encode)
            ready, end = False, 0
            with closing(pieces):
                for block, batch, digest in pieces:
                    self._check(model, block, digest)
                    end = block.end
                    if not ready:
                        model.engine.warm(model.state, batch.rows(0, 0), learning=True)
                        ready = True
                    if end > begin:
                        first = max(begin, block.row)
                        yield Piece(0, first, end - first, Rows(batch, None))
            if end < begin:
                raise ChangedDataError(
                    f"{self.name} ends after row {end:,}, and the run has learned {begin:,}: "
                    f"{self.remedy}"
                )

        return rows

    def _check(self, model: ModelData, block: Block, digest: bytes) -> None:
        known = model.digests.get(self.url, block.number)
        if known is not None and known != digest:
            raise ChangedDataError(
                f"{self.name}, {block.span}: they are not the rows that the run read first "
                f"(digest {known.hex()[:12]} -> {digest.hex()[:12]}): {self.remedy}; no commit has "
                "a changed row"
            )
        model.digests.check_found(self.url, block.number, digest)


def stream_url(given: Any) -> str:
    """The name of a stream in a job."""
    return f"{STREAM}{stream_name(given)}"


Encoded = tuple[Block, Batch, bytes]


def _in_threads(
    blocks: Iterator[Block], encode: Callable[[Block], Encoded]
) -> Generator[Encoded, None, None]:
    """The blocks encoded ahead, in order. The calling thread reads the stream: its objects, such as
    connections to a database, may belong to that thread."""
    threads = os.cpu_count() or 1
    waiting: deque[Future[Encoded]] = deque()
    pool = ThreadPoolExecutor(threads)
    try:
        while True:
            with Stage("decode"):
                block = next(blocks, None)
            if block is not None:
                waiting.append(pool.submit(encode, block))
            if not waiting:
                return
            if block is None or len(waiting) > threads:
                yield waiting.popleft().result()
    finally:
        pool.shutdown(cancel_futures=True)


def why_written(spec: Spec) -> str:
    """The key of a job that needs rows which can be read again; "" if they are read once."""
    data, train = spec.data, spec.train
    needs = {
        "train.epochs": train.epochs != 1,
        "model.rule": spec.rule.looks(spec.model.params),  # at all rows before the first
        "train.mode": train.mode != "exact",
        "model.shapes": spec.model.shapes != "none",
        "model.certificate": spec.model.certificate,  # which is computed from the rows
        "cluster": spec.cluster.scheduler is not None or spec.cluster.learner == "worker",
        **{f"data.{key}": bool(getattr(data, key))
           for key in ("cache", "where", "rename", "select", "delay", "time", "holdout", "sample")},
    }  # fmt: skip
    return next((key for key, needed in needs.items() if needed), "")


@contextmanager
def rows_of_stream(
    spec: Spec, stream: Any, client: Any
) -> Iterator[tuple[Spec, StreamedRows | None, Callable[[str], None]]]:
    """The job of a stream and its rows, which are written to a folder where they are read more than
    once. And what to call with the checkpoint's URL when the run has started: then the folder
    stays, unless there is not a checkpoint to resume from."""
    if stream is None:
        yield spec, None, lambda url: None
    elif not (why_written(spec) or client is not None):
        yield spec, StreamedRows(stream), lambda url: None
    else:
        folder = RowFolder(stream)
        note(folder.note)
        data = spec.data.model_copy(update={"shards": (str(folder.path),)})
        spec = spec.model_copy(update={"data": data})
        try:
            yield spec, None, lambda url: None if url == "none" else folder.retain()
        finally:
            folder.remove()


def resumed_stream(model: ModelData, given: Any, facts: Sequence[Facts]) -> StreamedRows:
    """The rows of a run on a stream that is resumed. Raises UsageError without the stream, or for a
    job that reads it again."""
    if given is None:
        raise UsageError(
            "this run learns a stream of rows, which is not in the checkpoint: pass the same rows "
            "again, streamomd.resume(URL, shards=rows)"
        )
    key, left = why_written(model.spec), model.spec.train.epochs - model.cursor.epoch
    if key == "train.epochs" and left <= 1:  # the epoch that these rows are
        key = ""
    if key:
        raise UsageError(
            f"this run learns a stream of rows, and {key} needs files: write the rows as Parquet "
            "and learn them from this state, streamomd.train(files, start=URL)"
        )
    return StreamedRows(given, facts)
