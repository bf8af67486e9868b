"""What do checksums of pages cost without isal? CPU seconds of a whole training, and of them.

Rows of numbers and texts, and of lists stored as binary: those whose pages streamomd verifies; of
others pyarrow does. Each is trained with isal's and with zlib's function in turn, after a first run
that compiles; both are counted in the threads that call them. Needs the extra ``fast``.
"""

from __future__ import annotations

import tempfile
import time
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import common
import numpy as np
import pyarrow as pa
from isal.isal_zlib import crc32 as isal_crc32

import streamomd
from streamomd.features.lists import encoded, stored_as_binary
from streamomd.shards.formats import column_pages
from streamomd.sources.text.output_formats import FORMS

NUMBERS, TEXTS = 24, 6


def texts(rows: int) -> pa.Table:
    """Numbers that no codec shrinks, and texts of few values."""
    rng = np.random.default_rng(0)
    columns: dict[str, Any] = {f"n{at}": rng.normal(size=rows) for at in range(NUMBERS)}
    names = pa.array([f"value-{at:05}" for at in range(10_000)])
    for at in range(TEXTS):
        columns[f"c{at}"] = names.take(pa.array(rng.integers(0, 10 ** (at % 4 + 1), rows)))
    return pa.table(columns | {"y": rng.integers(0, 2, rows).astype("i1")})


def lists(rows: int) -> pa.Table:
    """75 non-zeros a row, stored as binary."""
    table = common.lists(0, rows, common.SMALL).combine_chunks()
    schema = stored_as_binary(table.schema)
    return pa.Table.from_batches([encoded(one, schema) for one in table.to_batches()], schema)


def write(table: pa.Table, path: Path) -> None:
    """As convert does, with checksums."""
    groups = table.combine_chunks().to_batches(max_chunksize=25_000)
    with FORMS["parquet"].begin(str(path), table.schema, groups[0], None) as writer:
        for group in groups:
            writer.write_batch(group)


def counted(crc32: Callable[[Any], int], seconds: list[float]) -> Callable[[Any], int]:
    """The function, which adds what it takes."""

    def call(data: Any) -> int:
        began = time.thread_time()
        found = crc32(data)
        seconds.append(time.thread_time() - began)
        return found

    return call


SETS: dict[str, tuple[Callable[[int], pa.Table], dict[str, Any]]] = {
    "texts": (texts, {}),
    "binary lists": (lists, {"sparse": {"indices": "i", "values": "v", "size": common.SMALL}}),
}


def main() -> None:
    """Prints a line for each kind of rows and each rule."""
    parser = common.arguments(__doc__)
    parser.add_argument("--rows", type=int, default=400_000)
    parser.add_argument("--times", type=int, default=5)
    given = parser.parse_args()
    lines, figures = [], {}
    with tempfile.TemporaryDirectory() as folder:
        for kind, (make, data) in SETS.items():
            path = Path(folder) / f"{kind}.parquet"
            write(make(given.rows), path)
            for rule in ("nag", "auto"):
                job = {
                    "data": {"shards": str(path), "label": "y", **data},
                    "model": {"rule": rule},
                    "checkpoint": {"url": "none"},
                }
                found: dict[str, list[tuple[float, float]]] = {"isal": [], "zlib": []}
                streamomd.train(job, quiet=True)
                for _ in range(given.times):
                    for name, crc32 in (("isal", isal_crc32), ("zlib", zlib.crc32)):
                        seconds: list[float] = []
                        column_pages.crc32 = counted(crc32, seconds)
                        began = time.process_time()
                        streamomd.train(job, quiet=True)
                        found[name].append((sum(seconds), time.process_time() - began))
                crc = {name: np.median([one[0] for one in pairs]) for name, pairs in found.items()}
                whole = float(np.median([one[1] for one in found["isal"]]))
                more = 100.0 * float(crc["zlib"] - crc["isal"]) / whole
                lines.append((f"{kind}, {rule}", whole, 1e3 * crc["isal"], 1e3 * crc["zlib"], more))
                figures[f"{kind}, {rule}"] = more
    head = ("", "training, s", "isal, ms", "zlib, ms", "more, %")
    common.table(head, lines)
    common.finish(figures, as_json=given.json)


if __name__ == "__main__":
    main()
