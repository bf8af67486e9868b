"""A scorer: the file of ``Scorer.save``, with two programs that read it without streamomd.

The file is a zip archive of a JSON description and arrays. It also has ``scorer_reader.py`` (numpy
alone) and ``scorer_reader.mjs`` (JavaScript, no dependency), which give the numbers of
``streamomd predict`` for a row of any columns; that in JavaScript reads boosted trees by
``scorer_trees.mjs``, which the file has where the model has trees.
"""

from __future__ import annotations

import io
import zipfile
from pathlib import Path
from typing import Any

from streamomd.core.errors import UnsupportedError
from streamomd.core.scalars import sigmoid
from streamomd.engine.state import State
from streamomd.integrations.export.contract import Format, refuse_more_than_weights
from streamomd.losses.contract import identity
from streamomd.losses.poisson import rate
from streamomd.training.model_data import ModelData
from streamomd.training.prepare_scorer import parts_of
from streamomd.training.scoring.saved_scorer import scorer_bytes, write_member

READERS = ("scorer_reader.py", "scorer_reader.mjs")


def write(model: ModelData, file: Any) -> dict[str, Any]:
    """Writes a scorer and its readers; returns its figures, see ``Format.write``."""
    refuse_more_than_weights(model)
    if model.engine.loss.mean not in (identity, sigmoid, rate):
        raise UnsupportedError(
            f"--as scorer does not support the prediction of loss {model.engine.loss.name!r}: use "
            "streamomd predict; --as parquet exports the weights only"
        )
    state = model.state if isinstance(model.state, State) else model.state.load()
    parts = parts_of(model.plan, model.engine, state, model.calibration)
    readers = [*READERS, *(["scorer_trees.mjs"] if parts[0].trees else [])]
    made = io.BytesIO(scorer_bytes(*parts))
    with zipfile.ZipFile(made, "a") as archive:
        for name in readers:
            write_member(archive, name, Path(__file__).with_name(name).read_bytes())
    file.write(made.getvalue())
    return {"columns": [*parts[0].columns], "readers": readers, "mib": made.tell() / 2**20}


FORMAT = Format(
    name="scorer",
    what="a model for numpy alone or JavaScript, with their readers",
    extra="",
    to_read="python -m zipfile -e {file} DIR; predict = scorer_reader.load({file!r}) in DIR",
    write=write,
)
