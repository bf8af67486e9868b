"""What alerts are computed from in averaged mode: of a part's rows, to be sent to the driver."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from streamomd.config.run_tables import Alert
from streamomd.core.batch import Batch
from streamomd.engine import Engine
from streamomd.training.column_statistics import ColumnStatistics, ColumnWindows

Floats = NDArray[np.float64]
MOST_LOSSES = 1 << 16
"""Losses that a part sends, 512 KiB: those of its rows, or means of blocks of its rows."""


@dataclass(frozen=True, eq=False)
class PartRows:
    """rows: how many the part learned. losses: of its blocks of ``block`` rows, the means; the last
    block may have fewer. windows: statistics of its columns, by windows of its rows."""

    rows: int
    block: int
    losses: Floats
    windows: tuple[ColumnStatistics, ...]

    @property
    def counts(self) -> Floats:
        """How many rows each loss is of."""
        counts = np.full(len(self.losses), float(self.block))
        if len(counts):
            counts[-1] = self.rows - self.block * (len(counts) - 1)
        return counts

    @property
    def nbytes(self) -> int:
        """Size in bytes."""
        windows = (one.sums.nbytes + one.categories.nbytes for one in self.windows)
        return self.losses.nbytes + sum(windows)


def block_of(rows: int) -> int:
    """Rows of a block, in a part of at most this many rows: a power of 2.

    >>> block_of(1000), block_of(65537), block_of(1_000_000)
    (1, 2, 16)
    """
    block = 1
    while block * MOST_LOSSES < rows:
        block *= 2
    return block


@dataclass(eq=False)
class PartWatcher:
    """Collects ``PartRows``. How the rows are cut into batches changes no bit of them.

    windows: of no rows yet. block: see ``block_of``.
    """

    engine: Engine
    job: Alert
    windows: ColumnWindows
    block: int
    _rows: int = 0
    _rest: Floats = field(default_factory=lambda: np.empty(0))
    _losses: list[Floats] = field(default_factory=list)
    _ended: list[ColumnStatistics] = field(default_factory=list)

    def add(self, batch: Batch, margins: Floats, learned: float) -> None:
        """Add rows that were just learned. margins: of before learning. learned:
        ``Engine.rows_learned`` before them."""
        self._rows += len(batch)
        if self.job.loss:
            losses = self.engine.row_losses(learned, margins, batch.y, batch.weight)[:, 0]
            every = np.concatenate([self._rest, losses])
            whole = len(every) - len(every) % self.block
            self._losses.append(_means(every[:whole], self.block))
            self._rest = every[whole:]
        if batch.columns is not None:
            for _ in self.windows.add(batch.columns, self.job.rows):
                self._end_window()

    def found(self) -> PartRows:
        """Returns what is known of all rows added."""
        if self.windows.window.rows:
            self._end_window()
        losses = [*self._losses, _means(self._rest, max(len(self._rest), 1))]
        return PartRows(self._rows, self.block, np.concatenate(losses), tuple(self._ended))

    def _end_window(self) -> None:
        self._ended.append(replace(self.windows.window))
        self.windows.end()


def _means(losses: Floats, block: int) -> Floats:
    """Returns the mean loss of each block of rows. One block's mean does not depend on the
    others."""
    if block == 1:
        return losses
    sums: Floats = np.add.reduce(np.ascontiguousarray(losses).reshape(-1, block), axis=1)
    return sums / block
