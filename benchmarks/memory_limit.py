"""How far is the engine from what memory itself can give?

A non-zero asks for its coordinate's cells: 32 bytes somewhere, read and written, a line of 64 bytes
from memory. So, on this machine, ns a line of random places in an array of as many cells of 32
bytes as the model has coordinates:

  alone        each place is read from the last one: nothing can be asked for ahead; the latency
  independent  places known beforehand, each read and written: as many at once as the processor does
  ahead        the same, asked for ``engine.loops.AHEAD`` places before: what the engine does

and beside them NAG (logistic, float64), ns a non-zero: of coordinates drawn evenly, each far from
the last, and log-uniform as in engine.py, most of which are near. In turn, processor time, medians.

The gap is evenly ÷ ahead, and evenly − ahead in ns: the arithmetic, and the second walk over a row.
"""

from __future__ import annotations

import functools
import statistics
from typing import Any

import common
import numba
import numpy as np

from streamomd.engine.loops.cache_prefetch import prefetch
from streamomd.engine.loops.sparse import AHEAD

CELLS = 4  # of 8 bytes
SIZES = (12, 18, 24)


def alone(cells: Any, places: Any) -> float:
    """Each cell names the next place."""
    at = 0
    for _ in range(len(places)):
        at = int(cells[at * CELLS])
    return float(at)


def independent(cells: Any, places: Any) -> float:
    """Read and written; nothing asked for ahead."""
    for n in range(len(places)):
        cells[places[n] * CELLS + 1] += 1.0
    return float(cells[1])


def ahead(cells: Any, places: Any) -> float:
    """Read and written, asked for ahead."""
    for n in range(len(places)):
        if n + AHEAD < len(places):
            prefetch(cells, places[n + AHEAD] * CELLS, CELLS)
        cells[places[n] * CELLS + 1] += 1.0
    return float(cells[1])


def ring(rng: np.random.Generator, size: int) -> Any:
    """Cells of 32 bytes on lines of their own halves; the first of each names the next of a ring
    through all of them, in random order."""
    order = rng.permutation(size).astype(np.int32)
    raw = np.zeros(size * CELLS + 8)
    cells = raw[(-raw.ctypes.data % 64) // 8 :][: size * CELLS]
    cells[order.astype(np.int64) * CELLS] = np.roll(order, -1)
    return cells


def evenly(rng: np.random.Generator, count: int, size: int) -> Any:
    """Rows of 75 coordinates, one drawn from each 75th of them: distinct and ascending."""
    from streamomd.core.batch import SparseBatch

    low = np.arange(common.NONZEROS) * ((size - 1) / common.NONZEROS)
    width = (size - 1) / common.NONZEROS
    drawn = (low + rng.random((count, common.NONZEROS)) * (width - 1.0)).astype(np.int32)
    values = rng.standard_normal(drawn.size, np.float32)
    indptr = np.arange(count + 1, dtype=np.int64) * common.NONZEROS
    y = common.labels(rng, count).astype(np.float64)
    return SparseBatch(indptr, drawn.reshape(-1), values, y, np.ones(count))


def measured(power: int, args: Any) -> dict[str, float]:
    """The median ns of each, at 2^power coordinates."""
    rng, size = np.random.default_rng(power), 1 << power
    cells = ring(rng, size)
    places = rng.integers(0, size, args.rows * common.NONZEROS, np.int32)
    found: dict[str, list[float]] = {}
    for function in (alone, independent, ahead):
        loop = numba.njit(nogil=True)(function)
        part = places[: len(places) // 4] if function is alone else places
        job = functools.partial(loop, cells, part)
        found |= common.timed({function.__name__: job}, args.runs, len(part))
    del cells, job  # half a gigabyte
    batches = {
        "evenly": evenly(rng, args.rows, size),
        "log-uniform": common.batch(rng, args.rows, size),
    }
    for name, batch in batches.items():
        walk = common.Walk("nag", size, "float64", batch)
        found |= common.timed({name: walk}, args.runs, len(batch.values))
    return {name: statistics.median(times) for name, times in found.items()}


def main() -> None:
    parser = common.arguments(__doc__)
    parser.add_argument("--rows", type=int, default=20_000, help="75 places each")
    parser.add_argument("--runs", type=int, default=5, help="runs of each loop")
    args = parser.parse_args()
    figures: dict[str, Any] = {"ahead": AHEAD}
    lines = []
    for power in SIZES:
        ns = figures[f"2^{power}"] = measured(power, args)
        lines.append([f"2^{power}", *ns.values(), ns["evenly"] / ns["ahead"]])
    names = ["alone", "independent", "ahead", "NAG, evenly", "NAG, log-uniform", "evenly ÷ ahead"]
    common.table(["ns a line, ns a non-zero", *names], lines)
    common.finish(figures, as_json=args.json)


if __name__ == "__main__":
    main()
