"""The command that converts a model for other programs: export."""

from __future__ import annotations

from typing import Any

import click

from streamomd.cli.choice import Choice
from streamomd.cli.options import (
    CODES,
    allow_non_finite,
    checkpoint_options,
    guarded,
    main,
    output_option,
    read_options_file,
    url,
)
from streamomd.core.phases import phase
from streamomd.core.urls import printable

FORMATS = ("onnx", "sklearn", "vw", "parquet")
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
    """Export a model to ONNX, scikit-learn, Vowpal Wabbit or Parquet.

    \b
      streamomd export runs/bank --as onnx -o bank.onnx        raw columns to predictions
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
