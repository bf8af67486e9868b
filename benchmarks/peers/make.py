"""Write one data set in every format a tool needs: make.py SET ROWS FOLDER.

FOLDER/SIZE/rows/*.parquet and FOLDER/SIZE/rows.arrow/*.arrow (as `convert` stores them),
FOLDER/SIZE/rows.binary/*.parquet of sets with lists (as `convert --lists-as binary` does) and
FOLDER/SIZE/rows.vw for each SIZE: full; few, the first rows, for slow tools and for losses; tiny,
for the slowest; start, a hundred rows. full and start also as rows.vw.gz (level 1).
FOLDER/made.json tells rows, bytes and seconds. A process of its own: what it holds in memory must
not count as that of a tool. Ends with status 3 and the reason if the data are not there.
"""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

sys.path.insert(0, str(Path(__file__).parents[1]))
from streamomd.features.lists import encoded, stored_as_binary
from streamomd.sources.text.output_formats import BINARY_GROUP_BYTES, FORMS

SHARDS = 4
START = 100
FOLDERS = {"rows": "parquet", "rows.arrow": "arrow", "rows.binary": "parquet"}
"""The form of each folder's shards."""


class Size:
    """The first so many rows, as shards of each form and as text."""

    def __init__(self, folder: Path, rows: int) -> None:
        self.folder, self.rows, self.written, self.open = folder, rows, 0, -1
        folder.mkdir(parents=True)
        self.text = (folder / "rows.vw").open("wb")
        self.writers: dict[str, Any] = {}

    def add(self, table: pa.Table, lines: bytes, lengths: list[int]) -> None:
        """As much of a table, and of its lines, as there is room for. A shard ends with a table."""
        some = table.slice(0, self.rows - self.written)
        if not some.num_rows:
            return
        shard = self.written * SHARDS // self.rows
        if shard != self.open:
            self._next(some, shard)
        for name, writer in self.writers.items():
            for group in groups(name, stored(name, some)):
                FORMS[FOLDERS[name]].write(writer, group)
        self.text.write(lines[: sum(lengths[: some.num_rows])])
        self.written += some.num_rows

    def _next(self, some: pa.Table, shard: int) -> None:
        self._end()
        for name, form in FOLDERS.items():
            if name == "rows.binary" and not any(map(pa.types.is_list, some.schema.types)):
                continue
            first = stored(name, some).to_batches()[0]
            path = self.folder / f"{name}/part-{shard:03}.{form}"
            path.parent.mkdir(exist_ok=True)
            self.writers[name] = FORMS[form].begin(str(path), first.schema, first, None)
        self.open = shard

    def _end(self) -> None:
        for writer in self.writers.values():
            writer.close()

    def close(self) -> None:
        self._end()
        self.text.close()


def groups(name: str, rows: pa.Table) -> list[pa.Table]:
    """The rows in row groups of a folder's size."""
    if name != "rows.binary":
        return [rows]
    parts = -(-rows.nbytes // BINARY_GROUP_BYTES)
    each = -(-rows.num_rows // parts)
    return [rows.slice(low, each) for low in range(0, rows.num_rows, each)]


def stored(name: str, some: pa.Table) -> pa.Table:
    """The rows as a folder has them."""
    whole = some.combine_chunks()
    if name != "rows.binary":
        return whole
    schema = stored_as_binary(whole.schema)
    return pa.Table.from_batches([encoded(one, schema) for one in whole.to_batches()], schema)


def make(name: str, rows: int, folder: Path) -> dict[str, Any]:
    """Write all; rows, bytes by format and seconds. rows 0: as many as the set has."""
    found = importlib.import_module(f"rows.{name}")
    full = min(rows or found.ROWS, found.ROWS)
    few, began = min(found.FEW, full), time.perf_counter()
    counts = {"full": full, "few": few, "tiny": min(found.TINY, few), "start": min(START, few)}
    sizes: dict[str, Size] = {}
    for table in found.tables(full):
        sizes = sizes or {size: Size(folder / size, count) for size, count in counts.items()}
        starts = pc.if_else(pc.equal(table["y"], 1), "1 ", "-1 ")
        lines = pc.binary_join_element_wise(starts, found.features(table), "\n", "")
        text = "".join(lines.to_pylist()).encode()
        lengths = pc.binary_length(lines).to_pylist()
        for size in sizes.values():
            size.add(table, text, lengths)
    for size in sizes.values():
        size.close()
    for size in ("full", "start"):
        subprocess.run(["gzip", "-1", "-k", str(folder / size / "rows.vw")], check=True)
    seconds = time.perf_counter() - began
    stored = {
        name: sum(path.stat().st_size for path in (folder / "full" / name).glob("*"))
        for name in FOLDERS
    } | {
        "vw": (folder / "full/rows.vw").stat().st_size,
        "gz": (folder / "full/rows.vw.gz").stat().st_size,
    }
    return {"rows": counts, "bytes": stored, "seconds": round(seconds, 1)}


def main() -> int:
    name, rows, folder = sys.argv[1:]
    try:
        made = make(name, int(rows), Path(folder))
    except FileNotFoundError as error:
        print(error)
        return 3
    (Path(folder) / "made.json").write_text(json.dumps(made))
    return 0


if __name__ == "__main__":
    sys.exit(main())
