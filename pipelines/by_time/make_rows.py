"""Write runs/clicks.parquet: 60 days of 1,000 clicks, whose taste changes after day 40."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

TO = "runs/clicks.parquet"
DAYS, CHANGE, A_DAY = 60, 40, 1000
DAY = 86_400
FIRST = 1_767_225_600  # 2026-01-01
SHOPS = ("books", "garden", "music", "toys")


def main() -> None:
    """Write the rows, in order of time."""
    draw = np.random.default_rng(0)
    count = DAYS * A_DAY
    seconds = FIRST + np.sort(draw.integers(0, DAYS * DAY, count))
    day = (seconds - FIRST) // DAY
    price, shop = draw.lognormal(3.0, 0.5, count), draw.integers(0, len(SHOPS), count)
    liked = np.where(day < CHANGE, shop == 0, shop == 3)
    margin = 4.0 * liked - 0.8 * (np.log(price) - 3.0) - 2.0
    clicked = draw.random(count) < 1.0 / (1.0 + np.exp(-margin))
    rows = pa.table({
        "ts": pa.array(seconds.astype("datetime64[s]")),
        "shop": pa.array([SHOPS[number] for number in shop]),
        "price": price,
        "clicked": clicked.astype(np.int64),
    })  # fmt: skip
    Path("runs").mkdir(exist_ok=True)
    pq.write_table(rows, TO, row_group_size=10_000)
    sys.stdout.write(f"{TO}: {count:,} rows of {DAYS} days\n")


if __name__ == "__main__":
    main()
