"""Encoding record batches of shards: `encode`, applied to what a reader yields."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from streamomd.core.batch import Batch
from streamomd.core.errors import BadRowError
from streamomd.core.installed import sources
from streamomd.features import Names, Plan, encode
from streamomd.features.bad_rows import BAD_ROW
from streamomd.shards.open_shard import explain
from streamomd.shards.output_files import passthrough_columns
from streamomd.shards.reader import Piece, ShardBatch


class Rows(NamedTuple):
    """Consecutive rows of a shard: a batch, and columns of its rows passed through unchanged."""

    batch: Batch
    passthrough: Any

    @property
    def nbytes(self) -> int:
        """Bytes held, for the bound on what is read ahead."""
        return self.batch.nbytes + (self.passthrough.nbytes if self.passthrough is not None else 0)


def encode_rows(
    plan: Plan,
    rows: ShardBatch,
    *,
    labelled: bool = True,
    keep: Sequence[str] = (),
    names: Names | None = None,
) -> Piece[Rows]:
    """A record batch as rows for the engine, and its columns ``keep`` unchanged.

    labelled, names: as in ``encode``. Raises what ``encode`` raises, and DataError that names shard
    and rows where Arrow cannot convert a column.
    """
    shard, row, batch = rows.shard, rows.row, rows.batch
    try:
        passthrough = passthrough_columns(batch, shard, keep) if keep else None
        given: Any = {"shard": shard.url, "row": row, "conflicts": rows.conflicts}
        given["dropped"], given["hashed"] = rows.dropped, rows.hashed
        encoded = encode(plan, batch, labelled=labelled, names=names, **given)
    except BadRowError as error:
        raise _of_text(error, shard.url, shard.path) from None
    except pa.ArrowException as error:
        raise explain(error, shard, row, row + rows.rows) from error
    if passthrough is not None and len(encoded.skipped):
        passthrough = passthrough.filter(pa.array(learned_rows(rows, encoded)))
    value = Rows(encoded, passthrough)
    # Pairs of lists share the record batch's memory: the larger of the two is what they hold.
    held = value.nbytes if plan.sparse is None else max(batch.nbytes, value.nbytes)
    return Piece(rows.position, row, rows.rows, value, held)


def _of_text(error: BadRowError, url: str, path: str) -> BadRowError:
    """The error, with file and line of the text that the shard was converted from, if it was."""
    message = error.message
    where = sources().source_of(url).place_of(url, path, message.row)
    if not where:
        return error
    form = BAD_ROW.replace(", row {row}", "")
    return BadRowError(replace(message, shard=where, form=form))


def learned_rows(rows: ShardBatch, encoded: Batch) -> NDArray[np.bool_]:
    """Which rows of the record batch are in the encoded one."""
    found = np.ones(rows.rows, np.bool_)
    found[encoded.skipped.places] = False
    return found if rows.dropped is None else np.delete(found, rows.dropped)
