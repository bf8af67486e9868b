"""Census-Income (KDD) as Parquet shards: the file has no header, so its columns get names here."""

from __future__ import annotations

import argparse

from streamomd.sources.text.convert import convert

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
    done = convert(
        [given.source],
        source_format="csv",
        to=given.to,
        shards=8,
        delimiter=", ",
        header=False,
        column_names=COLUMNS,
    )
    print(f"{done.rows:,} rows in {len(done.shards)} shards: {given.to}")


if __name__ == "__main__":
    main()
