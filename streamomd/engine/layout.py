"""Layout: what a state has of a rule's slots, and how many numbers that are."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from streamomd.core.batch import StoredRows
from streamomd.engine.loops.block_row import padded
from streamomd.engine.loops.frozen import LENGTH
from streamomd.rules.contract import Block, Rule, Slot

CACHE_LINE = 64
MEANS = "extra.means"
"""``State.means`` in a part."""
GROUP, WIDE = 64, 256
"""Coordinates of a group where the block is wider than ``WIDE``: a row costs d * GROUP, not d^2."""


@dataclass(frozen=True)
class Layout:
    """Where numbers lie: ``size`` coordinates, ``learners`` side by side, cells of ``dtype``.

    For learners on standardised inputs: ``numeric`` columns, which follow the bias, and at most
    ``most`` coordinates in the block. standardize: a rule without a block learns numeric columns on
    standardised inputs, too: see ``engine.standardize``. scale_target: or the target in standard
    units: see ``engine.standardize``. means: columns of a row, without the bias, whose missing
    values become means: see ``engine.standardize``.
    """

    rule: Rule
    size: int
    learners: int
    dtype: str
    numeric: int = 0
    most: int = 0
    standardize: bool = False
    scale_target: bool = False
    means: tuple[int, ...] = ()

    def start_means(self) -> NDArray[np.float64]:
        """Sums and counts before the first value: see ``engine.standardize``."""
        return np.zeros((2, len(self.means)))

    @property
    def block(self) -> dict[str, tuple[str, tuple[int, ...]]]:
        """Dtype and shape of the block's arrays: see ``loops.block``; empty without a block."""
        storage = self.rule.storage
        if not isinstance(storage, Block):
            return {}
        d, second = self.most, int(storage.second)
        size = padded(d)
        # Empty without B: a rule of G alone has no matrix.
        matrix = ("float64", (self.learners, d * second, (GROUP if d > WIDE else d) * second))
        return {
            "reference": ("float64", (4, size)),
            "vectors": ("float64", (self.learners, 3 + 2 * second, size)),
            "A": matrix,
            "P": matrix,
            "places": ("int64", (d,)),
        }

    @property
    def frozen(self) -> dict[str, tuple[str, tuple[int, ...]]]:
        """Dtype and shape of what a saved model's mixture is fitted with, see ``loops.frozen``;
        empty of rules with one predictor."""
        storage = self.rule.storage
        if not (isinstance(storage, Block) and storage.second and storage.first):
            return {}
        front = "float64", (self.learners, 2, 1 + self.numeric)
        return {
            "front": front,
            "next_front": front,
            # After its fields the importance of each class, of two classes also with one learner.
            "chain": ("float64", (LENGTH + max(self.learners, 2),)),
        }

    @property
    def standardized(self) -> dict[str, tuple[str, tuple[int, ...]]]:
        """Dtype and shape of the arrays of standardised inputs, the block's included; empty for
        raw inputs."""
        if not self.referred:
            return self.block | self.frozen
        arrays: dict[str, tuple[str, tuple[int, ...]]] = {
            "reference": ("float64", (4, 1 + self.centred)), "schedule": ("float64", (3,)),
        }  # fmt: skip
        return arrays | ({"target": ("float64", (5,))} if self.scale_target else {})

    @property
    def stored(self) -> dict[str, tuple[str, tuple[int | None, ...]]]:
        """Dtype and shape of the rows that a rule stores: see ``StoredRows``; empty without any.

        With multipliers for each learner, or, of a block's first rows, without.
        """
        storage = self.rule.storage
        if storage.kind != "recent" and not (isinstance(storage, Block) and storage.second):
            return {}
        rows = StoredRows.none(self.learners if storage.kind == "recent" else 0)
        return {
            name: (array.dtype.name, (None, *array.shape[1:]))
            for name, array in rows._asdict().items()
        }

    @property
    def copied(self) -> dict[str, tuple[str, tuple[int | None, ...]]]:
        """The copy of weights by which rows are scored, and the newest one, none before the first:
        dtype and shape."""
        names = ("copies", "next_copies") if self.frozen else ()
        return dict.fromkeys(names, (self.dtype, (None, self.learners, 2)))

    @property
    def referred(self) -> bool:
        """Whether a rule without a block learns columns or the target relative to a reference."""
        return self.standardize or self.scale_target

    @property
    def centred(self) -> int:
        """Numeric columns that have a reference, of a rule without a block."""
        return self.numeric if self.standardize else 0

    @property
    def groups(self) -> int:
        """Into how many groups the block is divided."""
        return -(-self.most // GROUP) if self.most > WIDE else 1

    @property
    def block_bytes(self) -> int:
        """Bytes of the arrays of standardised inputs."""
        return sum(8 * math.prod(shape) for _, shape in self.standardized.values())

    @property
    def used(self) -> int:
        """Cells of a coordinate that hold a slot."""
        return len(self.rule.shared_slots) + len(self.rule.own_slots) * self.learners

    @property
    def width(self) -> int:
        """Cells of a coordinate, padded to a power of two, or to whole cache lines."""
        # A power of two within a line: then no coordinate lies in two lines.
        line = CACHE_LINE // np.dtype(self.dtype).itemsize
        if self.used > line:
            return -(-self.used // line) * line
        return 1 << (self.used - 1).bit_length()

    @property
    def matrix(self) -> tuple[int, int, int]:
        """Shape of the matrices next to the cells: (learners, coordinates, numbers of each)."""
        return self.learners, self.size, self.rule.storage.matrices * self.size

    @property
    def row_bytes(self) -> int:
        """Bytes of a coordinate."""
        cells = self.width + (2 * self.learners if self.frozen else 0)
        return cells * np.dtype(self.dtype).itemsize + self.learners * self.matrix[2] * 8

    @property
    def saved_bytes(self) -> int:
        """Bytes of a coordinate in a commit, which has no padding."""
        return self.used * np.dtype(self.dtype).itemsize + self.learners * self.matrix[2] * 8

    @property
    def nbytes(self) -> int:
        """Bytes of all coordinates."""
        return self.size * self.row_bytes + self.block_bytes

    @property
    def starts(self) -> NDArray[np.float64]:
        """What each used cell of a coordinate starts as."""
        starts = np.empty(self.used)
        for slot, columns in self.columns():
            starts[columns] = slot.start
        return starts

    def arrays(self, low: int, high: int) -> dict[str, tuple[str, tuple[int | None, ...]]]:
        """Dtype and shape of each array of ``State.parts`` for coordinates low … high − 1.

        None stands for a length that depends on the rows, as that of rows that a rule stores.
        """
        found: dict[str, tuple[str, tuple[int | None, ...]]] = {
            f"slot.{slot.name}": (self.dtype, (high - low, columns.stop - columns.start))
            for slot, columns in self.columns()
        }
        learners, _, numbers = self.matrix
        if numbers:
            found["extra.matrix"] = ("float64", (learners, high - low, numbers))
        # What belongs to no coordinate is in the first part.
        if low == 0:
            found["totals"] = ("float64", (learners, len(self.rule.total_slots)))
            found["clock"] = ("int64", (1,))
            found |= {f"extra.{name}": array for name, array in self.standardized.items()}
            if self.means:
                found[MEANS] = ("float64", (2, len(self.means)))
            some = self.stored | self.copied
            found |= {f"extra.{name}": array for name, array in some.items()}
        return found

    def columns(self) -> Iterator[tuple[Slot, slice]]:
        """Each slot with its cells of a coordinate."""
        for at, slot in enumerate(self.rule.shared_slots):
            yield slot, slice(at, at + 1)
        first = len(self.rule.shared_slots)
        for slot in self.rule.own_slots:
            yield slot, slice(first, first + self.learners)
            first += self.learners
