"""Census-Income (KDD) as Parquet shards: the file has no header, so its columns get names here."""

from __future__ import annotations

import argparse
import gzip
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

COLUMNS = (
    "age", "class of worker", "industry code", "occupation code", "education", "wage per hour",
    "enrolled in school", "marital status", "major industry", "major occupation", "race",
    "hispanic origin", "sex", "union member", "reason for unemployment", "employment",
    "capital gains", "capital losses", "dividends", "tax filer status",
    "region of previous residence", "state of previous residence", "family", "household",
    "instance weight", "migration msa", "migration region", "migration within region",
    "same house a year ago", "migration from sunbelt", "persons worked for employer",
    "family members under 18", "country of father", "country of mother", "country of birth",
    "citizenship", "own business", "veterans questionnaire", "veterans benefits",
    "weeks worked in year", "year", "income",
)  # fmt: skip


def main() -> None:
    """Read one file, write eight shards."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("source", help="census-income.data.gz, or .test.gz")
    parser.add_argument("--to", default="runs/census-rows", help="directory of the shards")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        named = Path(folder) / "census.csv"
        with gzip.open(given.source, "rb") as rows, named.open("wb") as file:
            file.write(f"{', '.join(COLUMNS)}\n".encode())
            shutil.copyfileobj(rows, file)
        command = ["convert", str(named), "-o", given.to, "--shards", "8", "--delimiter", ", "]
        subprocess.run([sys.executable, "-m", "streamomd", *command], check=True)  # noqa: S603


if __name__ == "__main__":
    main()
