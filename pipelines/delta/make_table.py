"""Write runs/bank-delta, a Delta table: three appends, OPTIMIZE, DELETE."""

from __future__ import annotations

import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

try:
    from deltalake import DeltaTable, write_deltalake
except ImportError:
    sys.exit("deltalake is missing: pip install 'streamomd[delta]'")

SOURCE = Path(__file__).parents[1] / "data" / "bank"
TABLE = "runs/bank-delta"
COMMITS = 3
DELETED = 1000


def main() -> None:
    """Make the table, unless it exists."""
    if Path(TABLE).exists():
        sys.exit(f"{TABLE} exists: remove it first")
    whole = pq.read_table(str(SOURCE))
    whole = whole.append_column("row", pa.array(range(len(whole))))
    size = -(-len(whole) // COMMITS)
    for first in range(0, len(whole), size):
        write_deltalake(TABLE, whole.slice(first, size), mode="append")
    table = DeltaTable(TABLE)
    table.optimize.compact()
    table.delete(f"row < {DELETED}")
    # pyarrow's threads would read it by a Python file system, and a process that ends while one of
    # them releases its last object is aborted (delta-io/delta-rs#2184, pola-rs/polars#24169).
    newest = DeltaTable(TABLE)
    sys.stdout.write(f"{TABLE}: version {newest.version()}, {newest.count():,} rows\n")


if __name__ == "__main__":
    main()
