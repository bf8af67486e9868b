"""Commands beside a run: convert, list."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import click

from streamomd.cli import formatting
from streamomd.cli.options import CODES, data_options, guarded, main, parsed
from streamomd.core.errors import UsageError


@main.command(epilog=CODES)
@click.argument("sources", nargs=-1, required=True)
@click.option(
    "--from", "source_format", required=True, type=click.Choice(["csv", "svmlight", "vw"])
)
@click.option("--to", required=True, metavar="DIR", help="Directory or URL for the shards.")
@click.option(
    "--as",
    "form",
    type=click.Choice(["parquet", "arrow"]),
    default="parquet",
    show_default=True,
    help="arrow: larger files, read faster where rows are sparse; for a local disk.",
)
@click.option("--shards", type=int, help="How many shards to write (reads the source twice).")
@click.option("--rows-per-shard", type=int, help="Rows of a shard.  [1,000,000]")
@click.option("--shuffle", type=int, metavar="SEED", help="Permute all rows, by this seed.")
@click.option("--overwrite", is_flag=True, help="Replace shards that are there.")
@click.option("--no-header", is_flag=True, help="csv: the first line holds values.")
@click.option("--delimiter", help="csv: what stands between values.  [found in the first line]")
@click.option("--no-quotes", is_flag=True, help="csv: quotes are part of the values.")
@click.option("--type", "types", multiple=True, metavar="COL=TYPE", help="csv: e.g. zip=string.")
@click.option("--null", "null_values", multiple=True, help="csv: a text that means missing.")
@click.option("--one-based/--zero-based", default=None, help="svmlight: the first index is 1 or 0.")
@click.option("--size", type=int, help="svmlight: coordinates in all.  [largest index + 1]")
@click.option("--bits", type=int, help="vw: 2^BITS coordinates.  [18]")
@click.option("--hash-seed", type=int, help="vw: seed of the hash.  [0]")
@data_options
@guarded
def convert(
    sources: tuple[str, ...],
    no_header: bool,
    no_quotes: bool,
    types: tuple[str, ...],
    one_based: bool | None,
    **given: Any,
) -> tuple[Any, str]:
    """Text to Parquet or Arrow shards, streaming: a file larger than memory converts.

    \b
      streamomd convert covtype.csv.gz --from csv --to covertype/ --rows-per-shard 36314
      streamomd convert rows.svm --from svmlight --to rows/ --shuffle 1
    """
    from streamomd.shards.convert.convert import convert
    from streamomd.training.progress import copying

    given = parsed(given)
    given |= {"header": False} if no_header else {}
    given |= {"quotes": False} if no_quotes else {}
    given |= {"types": _pairs(types)} if types else {}
    given |= {"zero_based": not one_based} if one_based is not None else {}
    wanted = {key: value for key, value in given.items() if value not in (None, ())}
    done = convert(sources, progress=copying(), **wanted)
    return asdict(done), formatting.converted(asdict(done))


@main.command("list", epilog=CODES)
@click.argument("kind", type=click.Choice(["rules", "losses", "formats", "modes", "exports"]))
@guarded
def list_command(kind: str) -> tuple[Any, str]:
    """What there is to choose from."""
    rows = formatting.LISTS[kind]()
    return {kind: rows}, formatting.listed(rows)


def _pairs(texts: tuple[str, ...]) -> dict[str, str]:
    for text in texts:
        if "=" not in text:
            raise UsageError(f"--type {text}: expected COLUMN=TYPE, e.g. zip=string")
    return dict(text.rsplit("=", 1) for text in texts)
