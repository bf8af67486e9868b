"""The command that hands a model to other programs: export."""

from __future__ import annotations

from typing import Any

import click

from streamomd.cli.options import (
    CODES,
    allow_non_finite,
    checkpoint_options,
    guarded,
    main,
    options_in,
    url,
)
from streamomd.core.urls import printable

FORMATS = ("onnx", "sklearn", "vw", "parquet")


@main.command(epilog=CODES)
@url
@click.option("--as", "kind", required=True, type=click.Choice(FORMATS), help="The format.")
@click.option("--to", required=True, metavar="FILE", help="File or URL to write.")
@click.option("--overwrite", is_flag=True, help="Replace a file that is there.")
@allow_non_finite
@click.option("--storage-options", metavar="FILE", help="Storage options for the file written.")
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
    """Write a model for other programs.

    \b
      streamomd export runs/bank --as onnx --to bank.onnx        raw columns to predictions
      streamomd export runs/bank --as sklearn --to bank.skops    an SGDClassifier or SGDRegressor
      streamomd export runs/bank --as vw --to bank.vw.txt        Vowpal Wabbit's readable weights
      streamomd export runs/bank --as parquet --to bank.parquet  names, weights, slots
      streamomd train new/ --label y --start bank.parquet        … and back

    What a format cannot say is refused by name. See also: streamomd list exports.
    """
    from streamomd.integrations.export import export as write
    from streamomd.training.load_model import load_model
    from streamomd.training.progress import note

    # The state stays where it is: Parquet takes it part by part.
    options = options_in(checkpoint_storage_options)
    model, loaded = load_model(url, storage_options=options, far=lambda _: True)
    for sequence, reason in loaded.rejected:
        note(f"commit {sequence} rejected: {reason}; this is {model.sequence}")
    result = write(
        model,
        kind,
        to,
        overwrite=overwrite,
        storage_options=options_in(storage_options),
        allow_non_finite=allow_non_finite,
    )
    told = [f"{key}: {_listed(result[key])}" for key in result if key not in ("as", "to_read")]
    return result, "\n".join([*told, "to read it:", f"  {printable(result['to_read'])}"])


def _listed(figure: Any) -> str:
    return printable(", ".join(map(str, figure)) if isinstance(figure, list) else str(figure))
