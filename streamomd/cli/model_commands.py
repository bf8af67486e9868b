"""Commands that look at what was learned: evaluate, predict, inspect, certify, checkpoint."""

from __future__ import annotations

from typing import Any

import click

from streamomd.cli import formatting
from streamomd.cli.options import (
    CODES,
    allow_non_finite,
    cache_option,
    checkpoint_options,
    data_options,
    guarded,
    listed,
    loaded,
    main,
    options_in,
    shards,
    url,
)


@main.command(epilog=CODES)
@url
@shards
@click.option("--by", multiple=True, metavar="COLUMN", help="Also for each of its values.")
@cache_option
@allow_non_finite
@data_options
@checkpoint_options
@guarded
def evaluate(
    url: str,
    shards: tuple[str, ...],
    by: tuple[str, ...],
    cache: str | None,
    allow_non_finite: bool,
    storage_options: str,
    checkpoint_storage_options: str,
) -> tuple[Any, str]:
    """Loss and error of a model on labelled shards; nothing is learned.

    \b
      streamomd evaluate runs/bank new/
      streamomd evaluate runs/bank new/ --by job --by marital
    """
    model = loaded(url, checkpoint_storage_options, cache)
    result = model.evaluate(
        list(shards),
        by=by,
        storage_options=options_in(storage_options),
        allow_non_finite=allow_non_finite,
    )
    return result, formatting.evaluated(result)


@main.command(epilog=CODES)
@url
@shards
@click.option("--to", required=True, metavar="DIR", help="Directory or URL for the predictions.")
@click.option("--keep", metavar="A,B", help="Columns to copy beside the predictions.")
@click.option("--overwrite", is_flag=True, help="Replace predictions that are there.")
@allow_non_finite
@data_options
@checkpoint_options
@guarded
def predict(
    url: str,
    shards: tuple[str, ...],
    to: str,
    keep: str | None,
    overwrite: bool,
    allow_non_finite: bool,
    storage_options: str,
    checkpoint_storage_options: str,
) -> tuple[Any, str]:
    """Write a Parquet file of predictions for each shard.

    Columns: row, prediction, score, probability (logistic), and those kept. Of three classes and
    more score and probability are lists, in the order that the schema's metadata has: classes.
    """
    written = loaded(url, checkpoint_storage_options).predict(
        list(shards),
        to,
        keep=listed(keep) or (),
        overwrite=overwrite,
        storage_options=options_in(storage_options),
        quiet=False,
        allow_non_finite=allow_non_finite,
    )
    return {"files": written}, "\n".join(written)


@main.command(epilog=CODES)
@url
@click.option("--top", default=20, show_default=True, help="How many coordinates.")
@checkpoint_options
@guarded
def inspect(url: str, top: int, checkpoint_storage_options: str) -> tuple[Any, str]:
    """The heaviest features of a model by name, with their weights and slots."""
    model = loaded(url, checkpoint_storage_options)
    result = {**model.summary(), "top": model.inspect(top)}
    return result, formatting.inspected(result)


@main.command(epilog=CODES)
@url
@shards
@click.option(
    "--comparator",
    default="best",
    metavar="best|bound|FILE",
    help="Fixed weights to compare with: those of least loss in the rule's set; those for which "
    "each bound is least; or a .npy or Parquet file of them, in the order of coordinates.  [best]",
)
@cache_option
@data_options
@checkpoint_options
@guarded
def certify(
    url: str,
    shards: tuple[str, ...],
    comparator: str,
    cache: str | None,
    storage_options: str,
    checkpoint_storage_options: str,
) -> tuple[Any, str]:
    """Regret or mistakes of a run and the bounds its paper proves, over the shards it learned.

    \b
      streamomd certify runs/bank data/
      streamomd certify runs/bank data/ --comparator bound
      streamomd certify runs/bank data/ --comparator weights.npy --json
    """
    from streamomd.analysis.certify import certify as certify_run

    model = loaded(url, checkpoint_storage_options, cache)
    learners = certify_run(
        model,
        list(shards),
        comparator=comparator,
        storage_options=options_in(storage_options),
        checkpoint_storage_options=options_in(checkpoint_storage_options),
    )
    told = model.spec.model
    result = {
        "rule": told.rule,
        "loss": told.loss,
        "params": told.params,
        "comparator": comparator,
        "checkpoint": {"url": model.url, "sequence": model.sequence},
        "learners": learners,
    }
    return result, formatting.certified(result)


@main.group()
def checkpoint() -> None:
    """Look at what a checkpoint holds."""


@checkpoint.command("list", epilog=CODES)
@url
@checkpoint_options
@guarded
def list_commits(url: str, checkpoint_storage_options: str) -> tuple[Any, str]:
    """Every commit: sequence, rows, when, and whether it can be used."""
    return _commits(url, checkpoint_storage_options, deep=False)


@checkpoint.command("verify", epilog=CODES)
@url
@checkpoint_options
@guarded
def verify_commits(url: str, checkpoint_storage_options: str) -> tuple[Any, str]:
    """Read every byte of every commit; compare it with its hash, look for NaN and infinities."""
    return _commits(url, checkpoint_storage_options, deep=True)


def _commits(url: str, checkpoint_storage_options: str, *, deep: bool) -> tuple[Any, str]:
    from streamomd.checkpoint import list_commits, list_temporary_files, open_store
    from streamomd.core.errors import CorruptionError, DivergedError
    from streamomd.core.finite import NOT_FINITE

    store = open_store(url, options_in(checkpoint_storage_options))
    found = list_commits(store, deep=deep)
    text, left = formatting.table(found), list_temporary_files(store) if deep else []
    if left:
        text += "\n" + formatting.list_temporary_files(left)
    problems = [one["problem"] for one in found if not one["ok"]]
    if deep and problems:
        diverged = all(problem.startswith(NOT_FINITE) for problem in problems)
        raise (DivergedError if diverged else CorruptionError)(text)
    return {"commits": found, **({"temporary": left} if deep else {})}, text
