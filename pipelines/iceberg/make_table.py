"""Write the first 30,000 rows of Bank to the Iceberg table example.bank; run again, the others."""

from __future__ import annotations

import sys
from pathlib import Path

import pyarrow.parquet as pq

try:
    from pyiceberg.catalog import load_catalog
except ImportError:
    sys.exit("pyiceberg is missing: pip install 'streamomd[iceberg]' 'pyiceberg[sql-sqlite]'")

SOURCE = Path(__file__).parents[1] / "data" / "bank"
TABLE = "example.bank"
FIRST = 30_000
APPENDS = 3


def main() -> None:
    """Make the table, or append to it."""
    Path("runs").mkdir(exist_ok=True)
    catalog = load_catalog("example")
    rows = pq.read_table(str(SOURCE))
    if not catalog.table_exists(TABLE):
        catalog.create_namespace_if_not_exists("example")
        table = catalog.create_table(TABLE, schema=rows.schema)
        for first in range(0, FIRST, FIRST // APPENDS):
            table.append(rows.slice(first, FIRST // APPENDS))
    else:
        table = catalog.load_table(TABLE)
        table.append(rows.slice(FIRST))
    count = table.scan().to_arrow().num_rows
    sys.stdout.write(f"{TABLE}: {len(table.snapshots())} snapshots, {count:,} rows\n")


if __name__ == "__main__":
    main()
