"""Boosted trees of rows' values, whose margins are numbers that a rule learns.

A growth is a model that was grown on rows up to some position. Its nodes are in flat arrays, each
tree's from its root on, the left child next to its parent.
"""

from __future__ import annotations

import base64
import hashlib
import io
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from streamomd.core.batch import Floats
from streamomd.core.tree_masks import LEAVES, LeafMasks

MOST_BYTES = 64 << 20
"""Bytes of all arrays of growths."""
MOST_MARGINS = 32
"""Margins of a row."""
_ARRAYS = {
    "feature": np.int32, "value": np.float64, "right": np.int32, "nan_left": np.int8,
    "roots": np.int64, "places": np.int64, "codes": np.float64, "ends": np.int64,
    "unseen": np.float64,
}  # fmt: skip


class Growth(NamedTuple):
    """A grown model. feature: of each node, −1 of a leaf. value: its threshold, a leaf's addition.
    right: the right child. nan_left: whether a missing value goes left. roots: of each tree, and
    where all end; trees k, k + margins, … are of margin k.

    The last columns are categories, one after the other in places (ascending coordinates) and
    codes, up to ends; unseen: each column's code of all others.
    """

    feature: NDArray[np.int32]
    value: Floats
    right: NDArray[np.int32]
    nan_left: NDArray[np.int8]
    roots: NDArray[np.int64]
    places: NDArray[np.int64]
    codes: Floats
    ends: NDArray[np.int64]
    unseen: Floats

    def coded(self, x: Floats) -> Floats:
        """Rows as trees read them: categories, the last columns of x, become their codes."""
        made, first, low = x.copy(), x.shape[1] - len(self.ends), 0
        for at, end in enumerate(self.ends.tolist()):
            codes, given = np.full(len(x), self.unseen[at]), x[:, first + at]
            if end > low:
                found = np.searchsorted(self.places[low:end], given).clip(0, end - low - 1) + low
                codes = np.where(self.places[found] == given, self.codes[found], codes)
            made[:, first + at], low = codes, end
        return made

    def check(self, columns: int) -> None:
        """Raises ValueError for nodes or codes that lead elsewhere."""
        nodes, at = len(self.feature), np.arange(len(self.feature))
        leaf, ends = self.feature < 0, np.append(self.roots[1:], 0)[:-1]
        tree = np.searchsorted(self.roots, at, side="right") - 1
        inner = (self.right > at + 1) & (self.feature < columns)
        fits = [
            len(self.value) == len(self.right) == len(self.nan_left) == nodes,
            len(self.roots) > 0 and self.roots[0] == 0 and self.roots[-1] == nodes,
            bool((np.diff(self.roots) > 0).all()),
            len(self.places) == len(self.codes) and len(self.ends) == len(self.unseen) <= columns,
            bool((np.diff(self.ends, prepend=0) >= 0).all()),
            not len(self.ends) or self.ends[-1] == len(self.places),
        ]
        if not all(fits) or not np.isfinite(self.value).all() or not np.isfinite(self.codes).all():
            raise ValueError("trees of other arrays than this version saves")
        # A child follows its parent in its own tree, whose last node is a leaf: every walk ends.
        inside = inner & (self.right < ends[tree]) & (at + 1 < ends[tree]) if nodes else inner
        if not (leaf | inside).all():
            raise ValueError("trees whose nodes lead elsewhere")
        if nodes and np.add.reduceat(leaf, self.roots[:-1], dtype=np.int64).max() > LEAVES:
            raise ValueError(f"trees of more than {LEAVES} leaves")


@dataclass(frozen=True)
class Trees:
    """Growths, the last of them for rows that none was grown on.

    grown_by: name and version of what grew them. margins: of a row. columns: that are read. window:
    of each shard with rows that they were grown on, the first row, for each growth, that it may
    predict: it was grown on earlier ones. packed: the growths.
    """

    grown_by: str
    margins: int
    columns: int
    window: tuple[tuple[str, tuple[int, ...]], ...]
    packed: bytes

    @classmethod
    def of(
        cls, grown_by: str, margins: int, columns: int, window: Mapping[str, Sequence[int]],
        growths: Sequence[Growth],
    ) -> Self:  # fmt: skip
        """The trees of these growths."""
        file = io.BytesIO()
        arrays: Any = {
            f"{at}.{name}": array
            for at, growth in enumerate(growths)
            for name, array in growth._asdict().items()
        }
        np.savez_compressed(file, **arrays)
        shards = tuple((url, tuple(begins)) for url, begins in window.items())
        return cls(grown_by, margins, columns, shards, file.getvalue())

    def __reduce__(self) -> Any:
        """Without what is unpacked."""
        return Trees, (self.grown_by, self.margins, self.columns, self.window, self.packed)

    @cached_property
    def growths(self) -> tuple[Growth, ...]:
        """Unpacked. Raises ValueError for other bytes than ``of`` packs."""
        try:
            with zipfile.ZipFile(io.BytesIO(self.packed)) as archive:
                if sum(one.file_size for one in archive.infolist()) > MOST_BYTES:
                    raise ValueError("trees of too many bytes")
            arrays = np.load(io.BytesIO(self.packed), allow_pickle=False)
            count = len(arrays.files) // len(_ARRAYS)
            made = tuple(
                Growth(*(_array(arrays[f"{at}.{name}"], kind) for name, kind in _ARRAYS.items()))
                for at in range(count)
            )
        except (zipfile.BadZipFile, KeyError, EOFError, OSError) as error:
            raise ValueError(f"trees of other bytes: {error}") from None
        for growth in made:
            growth.check(self.columns)
        if not made:
            raise ValueError("trees without a growth")
        return made

    def until(self, growths: int) -> Trees | None:
        """The first growths, of which the last one predicts all later rows; None of none."""
        if growths < 1:
            return None
        window = {url: begins[:growths] for url, begins in self.window}
        return Trees.of(self.grown_by, self.margins, self.columns, window, self.growths[:growths])

    @cached_property
    def final(self) -> Trees:
        """The last growth alone, for rows of predictions."""
        return Trees.of(self.grown_by, self.margins, self.columns, {}, self.growths[-1:])

    @cached_property
    def _codes(self) -> list[tuple[int, dict[float, float], float]]:
        """Each column of categories, its codes by coordinate, and that of all others."""
        growth, low, found = self.growths[-1], 0, []
        first = self.columns - len(growth.ends)
        for at, end in enumerate(growth.ends.tolist()):
            places, codes = growth.places[low:end].tolist(), growth.codes[low:end].tolist()
            found.append((first + at, dict(zip(places, codes, strict=True)), growth.unseen[at]))
            low = end
        return found

    @cached_property
    def _masks(self) -> dict[int, LeafMasks]:
        """Of the growth that was used last."""
        return {}

    def masks(self, which: int) -> LeafMasks:
        """Of a growth's trees. Raises ValueError for trees that are too large."""
        which %= len(self.growths)
        found = self._masks.get(which)
        if found is None:
            found = LeafMasks.of(*self.growths[which][:5])
            self._masks.clear()  # rows come in order; a table of many classes has tens of megabytes
            self._masks[which] = found
        return found

    def margins_of(self, values: Sequence[float]) -> list[float]:
        """The margins of a row by the last growth."""
        x = [*values]
        for at, codes, unseen in self._codes:
            x[at] = codes.get(x[at], unseen)
        return self.masks(-1).margins_of(x, self.margins)

    def margins_of_rows(self, values: Floats, which: int = -1) -> Floats:
        """The margins of rows by a growth, (rows, margins)."""
        coded = self.growths[which].coded(values)
        return self.masks(which).margins_of_rows(coded, self.margins)

    @cached_property
    def of_shards(self) -> dict[str, NDArray[np.int64]]:
        """The window by the URL of a shard."""
        return {url: np.array(begins, np.int64) for url, begins in self.window}

    def growth_of(self, shard: str, rows: NDArray[np.int64]) -> NDArray[np.int64] | None:
        """The number of the growth of each row of a shard that is learned, −1: of none; None if the
        last one predicts all of them."""
        begins = self.of_shards.get(shard)
        if begins is None or not len(rows) or rows[0] >= begins[-1]:
            return None
        return np.searchsorted(begins, rows, side="right") - 1

    @cached_property
    def sha256(self) -> str:
        """Of all that they are."""
        text = repr((self.grown_by, self.margins, self.columns, self.window)).encode()
        return hashlib.sha256(text + self.packed).hexdigest()

    @cached_property
    def _text(self) -> str:
        return base64.b64encode(self.packed).decode()

    def to_json(self) -> dict[str, Any]:
        """Plain values that ``from_json`` reads back."""
        return {
            "grown_by": self.grown_by, "margins": self.margins, "columns": self.columns,
            "window": [[url, [*begins]] for url, begins in self.window], "growths": self._text,
        }  # fmt: skip

    @classmethod
    def from_json(cls, saved: Mapping[str, Any]) -> Self:
        """The trees that were saved. Raises ValueError, TypeError or KeyError for others."""
        window = tuple((str(url), tuple(begins)) for url, begins in saved["window"])
        packed = base64.b64decode(saved["growths"], validate=True)
        margins, columns = saved["margins"], saved["columns"]
        made = cls(str(saved["grown_by"]), margins, columns, window, packed)
        numbers = [margins, columns, *(row for _, begins in window for row in begins)]
        if not all(type(one) is int and one >= 0 for one in numbers):
            raise TypeError("trees of other numbers than integers")
        count = len(made.growths)
        ascend = all([*begins] == sorted(begins) and len(begins) == count for _, begins in window)
        if not 1 <= margins <= MOST_MARGINS or not ascend:
            raise ValueError("trees of another window or other margins")
        return made


def _array(given: Any, kind: Any) -> Any:
    if given.ndim != 1 or given.dtype != kind:
        raise ValueError("trees of arrays of another type")
    return given
