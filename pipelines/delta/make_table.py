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
    rows = DeltaTable(TABLE).to_pyarrow_table().num_rows
    sys.stdout.write(f"{TABLE}: version {DeltaTable(TABLE).version()}, {rows:,} rows\n")


if __name__ == "__main__":
    main()
