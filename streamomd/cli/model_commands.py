"""Commands that use, inspect or convert a model: evaluate, predict, inspect, certify, export."""

from __future__ import annotations

from typing import Any

import click

from streamomd.cli import formatting
from streamomd.cli.command_group import CODES, Choice, guarded, main
from streamomd.cli.job_flags import COMPARATOR, LIST
from streamomd.cli.options import (
    allow_non_finite,
    cache_option,
    checkpoint_options,
    data_options,
    joined,
    open_model,
    output_option,
    read_options_file,
    shards,
    table_options,
    url,
    verbose_option,
)
from streamomd.core.errors import UsageError
from streamomd.core.run_events import phase
from streamomd.core.urls import printable, shown

where_option = click.option(
    "--where", default="", metavar="CONDITION",
    help="Read only rows that satisfy a condition, such as day >= 2026-01-01.",
)  # fmt: skip


@main.command(epilog=CODES)
@url
@shards
@click.option(
    "--by", multiple=True, type=LIST, metavar="A,B,…",
    help="Columns for whose values metrics are printed separately.",
)  # fmt: skip
@where_option
@cache_option
@allow_non_finite
@table_options
@data_options
@checkpoint_options
@verbose_option
@guarded
def evaluate(
    url: str,
    shards: tuple[str, ...],
    by: tuple[list[str], ...],
    where: str,
    cache: str | None,
    allow_non_finite: bool,
    storage_options: str,
    checkpoint_storage_options: str,
    **table: Any,
) -> tuple[Any, str]:
    """Compute loss and metrics of a model on labelled shards; the model does not change.

    \b
      streamomd evaluate runs/bank new/
      streamomd evaluate runs/bank new/ --by job,marital
    """
    model = open_model(url, checkpoint_storage_options, cache)
    result = model.evaluate(
        list(shards),
        by=joined(by),
        where=where,
        storage_options=read_options_file(storage_options),
        allow_non_finite=allow_non_finite,
        **table,
    )
    return result, formatting.format_evaluation(result)


@main.command(epilog=CODES)
@url
@shards
@output_option("DIR", "Directory or URL to write the predictions to.", required=True)
@click.option(
    "--keep", type=LIST, metavar="A,B,…", help="Columns to copy to the files of predictions."
)
@where_option
@click.option(
    "--with",
    "more",
    type=Choice(["interval", "prediction-interval"]),
    multiple=True,
    help="interval: also lower and upper, a 95 % interval of the mean or probability. "
    "prediction-interval: also new_lower and new_upper, where a new value is (regression).",
)
@click.option(
    "--level",
    type=float,
    metavar="P",
    help="Of prediction intervals: 0.5, 0.8, 0.9, 0.95 or 0.99.  [default: 0.9]",
)
@click.option("--overwrite", is_flag=True, help="Overwrite existing predictions.")
@allow_non_finite
@table_options
@data_options
@checkpoint_options
@verbose_option
@guarded
def predict(
    url: str,
    shards: tuple[str, ...],
    to: str,
    keep: list[str] | None,
    where: str,
    more: tuple[str, ...],
    level: float | None,
    overwrite: bool,
    allow_non_finite: bool,
    storage_options: str,
    checkpoint_storage_options: str,
    **table: Any,
) -> tuple[Any, str]:
    """Write a Parquet file of predictions for each shard.

    Columns: row, prediction, score, probability (logistic), and those of --keep. With three or
    more classes, score and probability are lists in the order of "classes" in the schema's
    metadata. The interval of --with interval is the uncertainty of the weights; that of --with
    prediction-interval is where a new value is, by the residuals of the rows learned.
    """
    from streamomd.core.platform_calls import stopping_promptly
    from streamomd.sources.tables import text_format

    if text_format(to):
        raise UsageError(f"-o {shown(to)}: predictions are Parquet files; name a directory")
    if "prediction-interval" in more:
        level = 0.9 if level is None else level
    elif level is not None:
        raise UsageError("--level is of prediction intervals: add --with prediction-interval")
    with stopping_promptly("predicting", "the files of the shards before are complete"):
        written = open_model(url, checkpoint_storage_options).predict(
            list(shards),
            to,
            keep=keep or (),
            where=where,
            interval="interval" in more,
            level=level,
            overwrite=overwrite,
            storage_options=read_options_file(storage_options),
            quiet=False,
            allow_non_finite=allow_non_finite,
            **table,
        )
    return {"files": written}, "\n".join(written)


@main.command(epilog=CODES)
@url
@click.option(
    "--top", type=click.IntRange(min=0), default=20, show_default=True,
    help="Number of coordinates, curves and pairs to print.",
)  # fmt: skip
@checkpoint_options
@guarded
def inspect(url: str, top: int, checkpoint_storage_options: str) -> tuple[Any, str]:
    """Print the features with the largest weights, by name, with their weights and slots.

    Of a model with model.shapes also the effect of each curve at its knots, and of each pair.
    """
    from streamomd.training.column_importance import effect_tables, pair_tables

    model = open_model(url, checkpoint_storage_options)
    result = {**model.summary(), "top": model.inspect(top)}
    if model.plan.curves:
        result["curves"] = effect_tables(model)
    if model.plan.pairs:
        result["pairs"] = pair_tables(model)
    return result, formatting.format_inspection(result)


@main.command(epilog=CODES)
@url
@shards
@click.option(
    "--comparator",
    type=COMPARATOR,
    default="best",
    metavar="best|FILE",
    help="Fixed weights to compare with: best: those with the lowest loss in the rule's constraint "
    "set; or a .npy or Parquet file of weights in the order of the coordinates.  [best]",
)
@cache_option
@table_options
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
    **table: Any,
) -> tuple[Any, str]:
    """Compute a run's regret or mistakes on its training shards, and the bounds its paper proves.

    \b
      streamomd certify runs/bank data/
      streamomd certify runs/bank data/ --comparator weights.npy --json
    """
    with phase("starting"):
        from streamomd.analysis.certify import certify as certify_run

    model = open_model(url, checkpoint_storage_options, cache)
    learners = certify_run(
        model,
        list(shards),
        comparator=comparator,
        storage_options=read_options_file(storage_options),
        checkpoint_storage_options=read_options_file(checkpoint_storage_options),
        **table,
    )
    job = model.spec.model
    result = {
        "rule": job.rule,
        "loss": job.loss,
        "params": job.params,
        "comparator": comparator,
        "checkpoint": {"url": model.url, "sequence": model.sequence},
        "learners": learners,
    }
    return result, formatting.format_certificate(result)


FORMATS = ("onnx", "sklearn", "vw", "parquet", "scorer")
OTHER_NAMES = {"scikit-learn": "sklearn", "skops": "sklearn", "vowpal_wabbit": "vw"}


@main.command(epilog=CODES)
@url
@click.option(
    "--as", "kind", required=True, type=Choice(FORMATS, OTHER_NAMES), help="Format of the file."
)
@output_option("FILE", "File or URL to write the model to.", required=True)
@click.option("--overwrite", is_flag=True, help="Overwrite an existing file.")
@allow_non_finite
@click.option(
    "--storage-options", metavar="FILE",
    help="TOML or JSON file of storage options for the output.",
)  # fmt: skip
@checkpoint_options
@guarded
def export(
    url: str,
    kind: str,
    to: str,
    overwrite: bool,
    allow_non_finite: bool,
    storage_options: str | None,
    checkpoint_storage_options: str | None,
) -> tuple[Any, str]:
    """Export a model to ONNX, a scorer, scikit-learn, Vowpal Wabbit or Parquet.

    \b
      streamomd export runs/bank --as onnx -o bank.onnx        raw columns to predictions
      streamomd export runs/bank --as scorer -o bank.scorer    any columns: numpy, JavaScript
      streamomd export runs/bank --as sklearn -o bank.skops    an SGDClassifier or SGDRegressor
      streamomd export runs/bank --as vw -o bank.vw.txt        Vowpal Wabbit's readable weights
      streamomd export runs/bank --as parquet -o bank.parquet  names, weights, slots
      streamomd train new/ --label y --start bank.parquet      warm start from the weights

    A feature that the format does not support is an error. See also: streamomd list exports.
    """
    with phase("starting"):
        from streamomd.integrations.export import export as write
        from streamomd.training.load_model import load_model
        from streamomd.training.progress import note

    # The state is not loaded here: Parquet reads it one part at a time.
    options = read_options_file(checkpoint_storage_options)
    model, loaded = load_model(url, storage_options=options, remote=lambda _: True)
    for sequence, reason in loaded.rejected:
        note(f"commit {sequence} rejected: {reason}; using commit {model.sequence}")
    result = write(
        model,
        kind,
        to,
        overwrite=overwrite,
        storage_options=read_options_file(storage_options),
        allow_non_finite=allow_non_finite,
    )
    lines = [f"{key}: {_text(result[key])}" for key in result if key not in ("as", "to_read")]
    return result, "\n".join([*lines, "to read it:", f"  {printable(result['to_read'])}"])


def _text(figure: Any) -> str:
    if isinstance(figure, float):
        return f"{figure:.1f}"
    return printable(", ".join(map(str, figure)) if isinstance(figure, list) else str(figure))
