"""Three days of data: train on the first, update with the others, undo the third, which is bad.

Each step is a command, which is printed. Files appear by rename, as a program should write them
that others read: then none is seen before it is complete.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

import streamomd

SOURCE = Path(__file__).parents[1] / "data" / "bank"
DAYS, URL = Path("runs/days"), "runs/daily"
COUNT, ROWS = 3, 5_000


def write_day(day: int, *, bad: bool = False) -> None:
    """A directory with the rows of a day; a bad day has its labels exchanged."""
    whole = pq.read_table(str(SOURCE))
    rows = whole.take(
        pa.array(range(day - 1, COUNT * ROWS, COUNT))
    )  # calls of the whole year, each day
    if bad:
        labels = rows["y"].cast(pa.string())
        exchanged = pc.if_else(pc.equal(labels, "yes"), "no", "yes")
        rows = rows.set_column(rows.schema.get_field_index("y"), "y", exchanged)
    folder = DAYS / f"day=2026-03-{day:02d}"
    folder.mkdir(parents=True, exist_ok=True)
    pq.write_table(rows, str(folder / ".part-0.tmp"))
    (folder / ".part-0.tmp").rename(folder / "part-0.parquet")


def command(*words: str) -> None:
    """Print a command and run it."""
    sys.stdout.write(f"\n$ streamomd {' '.join(words)}\n")
    sys.stdout.flush()
    subprocess.run([sys.executable, "-m", "streamomd", *words], check=True)  # noqa: S603


def main() -> None:
    """Day after day."""
    write_day(1)
    command("train", str(Path(__file__).parent / "daily.toml"))
    write_day(2)
    command("update", URL)
    good = streamomd.load(URL).sequence
    write_day(3, bad=True)
    command("update", URL)  # its loss shows that the day is bad
    command("checkpoint", "shards", URL)
    command("checkpoint", "list", URL)
    command("checkpoint", "restore", URL, "--at", str(good))
    write_day(3)  # repaired, and new again
    command("update", URL)
    command("checkpoint", "shards", URL)


if __name__ == "__main__":
    main()
