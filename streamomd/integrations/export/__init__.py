"""Export: a trained model for other programs. One file per format; ``FORMATS`` lists them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from streamomd.core import installed
from streamomd.integrations.export.contract import Format
from streamomd.integrations.export.to_onnx import FORMAT as ONNX
from streamomd.integrations.export.to_parquet import FORMAT as PARQUET
from streamomd.integrations.export.to_scorer import FORMAT as SCORER
from streamomd.integrations.export.to_sklearn import FORMAT as SKLEARN
from streamomd.integrations.export.to_sklearn import matrix_of, to_sklearn
from streamomd.integrations.export.to_vw import FORMAT as VW
from streamomd.shards.output_files import open_atomic
from streamomd.training.model import Model

__all__ = ["FORMATS", "Format", "export", "matrix_of", "to_sklearn"]

FORMATS = {one.name: one for one in (ONNX, SKLEARN, VW, PARQUET, SCORER)}


def export(
    model: Model,
    kind: str,
    to: str,
    *,
    overwrite: bool = False,
    storage_options: Mapping[str, Any] | None = None,
    allow_non_finite: bool = False,
) -> dict[str, Any]:
    """Write a model to the file ``to``, a path or URL, in a format of ``FORMATS``.

    The result: ``as``, ``file``, ``to_read`` (how to read it), and fields of the format.
    Raises UsageError (unknown format), UnsupportedError (what the format cannot represent, and what
    to do), MissingExtraError, OutputExistsError, StorageError, DivergedError (a model that is not
    finite, unless ``allow_non_finite``).
    """
    form = installed.find("export format", kind, FORMATS)
    if not allow_non_finite:
        # Parquet streams the state part by part: it may be too large for this process.
        model.refuse_non_finite(weights=kind != "parquet")
    with open_atomic(to, overwrite=overwrite, storage_options=storage_options) as file:
        figures = form.write(model, file)
    to_read = figures.pop("to_read", form.to_read)
    return {"as": kind, "file": to, **figures, "to_read": to_read.format(file=to)}
