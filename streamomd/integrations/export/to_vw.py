"""Vowpal Wabbit: text in the layout that ``--invert_hash`` writes, lines of ``name:index:weight``.

The index is VW's own index of a feature of that name in the default namespace, with the file's
``-b`` bits: for ``| age:58 job=admin.`` the lowest bits of murmur3 of "age" and of "job=admin.",
and for a name of digits the number. So hashed features have VW's index, and a null that of its name
and a byte 0xFF. A sparse pair's index i is the feature ``i``. No two of our coordinates with
weights share an index; a value without a weight may share the index of a numeric column. White
space, colons and bars, which VW does not allow in a name, are written as underscores.

No VW command reads this text (issue 1046 of its repository); its Python package does, line by line,
and clips margins to the labels it has seen unless limits are given:

    workspace = Workspace("-b BITS --link logistic --min_prediction -50 --max_prediction 50 -t")
    workspace.set_weight(index, 0, weight)

Loaded this way, the quickstart's probabilities differ by 1.4e-7 at most on its 45,211 rows (VW
9.11.9): VW's weights are float32.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from streamomd.core.errors import UnsupportedError
from streamomd.core.urls import printable
from streamomd.features import Names, Plan, name_of
from streamomd.features.hashed import coordinate
from streamomd.integrations.export.contract import (
    Format,
    pieces,
    refuse_calibration,
    refuse_more_than_weights,
)
from streamomd.training.model_data import ModelData

CONSTANT = 11650396
"""VW's index of the bias, before it is reduced to the available bits."""
LEAST_BITS, MOST_BITS = 18, 31
LAYOUT = "9.0.0"
"""The VW version of this layout: that of --predict_only_model, where ":0" ends the head."""
LOGARITHMIC = ("poisson", "gamma", "tweedie", "log_square")
LINKS = {"logistic": "--link logistic", **dict.fromkeys(LOGARITHMIC, "--link poisson")}


def write(model: ModelData, file: Any) -> dict[str, Any]:
    """Writes a model's weights as text of VW; returns its figures, see ``Format.write``."""
    refuse_more_than_weights(model)
    refuse_calibration(model, "vw")
    _refuse(model)
    bits, dense = _dense(model.plan)
    file.write(_head(model, bits).encode())
    rows = 0
    for name, index, weight in _features(model, bits, dense):
        file.write(f"{name}:{index}:{weight!r}\n".encode())
        rows += 1
    return {"bits": bits, "rows": rows}


def _head(model: ModelData, bits: int) -> str:
    most = 50 if model.plan.classes else "inf"
    job = model.spec.model
    lines = (
        f"Version {LAYOUT}", "Id streamomd", f"Min label:-{most}", f"Max label:{most}",
        f"bits:{bits}", "lda:0", "0 ngram:", "0 skip:", f"options: {LINKS.get(job.loss, '')}",
        "Checksum: 0", ":0",
    )  # fmt: skip
    return "".join(f"{line}\n" for line in lines)


def _features(
    model: ModelData, bits: int, dense: dict[int, tuple[str, int]]
) -> Iterator[tuple[str, int, float]]:
    """Every coordinate with a weight: its name, VW's index, the weight."""
    taken = {index: name for name, index in dense.values()}
    for piece in pieces(model):
        weights = piece.weights[:, 0]
        for offset in np.flatnonzero(weights).tolist():
            place = piece.low + offset
            if place in dense:
                name, index = dense[place]
            else:
                name, index = _other(model, place)
                if index in taken:
                    raise UnsupportedError(
                        f"VW gives {taken[index]!r} and {name!r} one index with -b {bits}: train "
                        "with more data.bits, or export --as parquet"
                    )
            yield name, index, float(weights[offset])


def _other(model: ModelData, place: int) -> tuple[str, int]:
    """Name and index of a hashed feature or of a sparse pair."""
    plan = model.plan
    if place >= plan.sparse_offset:
        return str(place - plan.sparse_offset), place - plan.sparse_offset
    return _spelled(name_of(plan, model.names, place)), place - plan.hashed_offset


def _dense(plan: Plan) -> tuple[int, dict[int, tuple[str, int]]]:
    """The number of bits, and name and index of bias, numbers, vectors and indicators by
    coordinate.

    With hashed columns the bits are the job's; else the fewest without a collision.
    """
    names = {
        place: _spelled(name_of(plan, Names(), place))
        for place in (*range(plan.hashed_offset), *range(plan.indicator_offset, plan.size))
    }
    size = plan.sparse.size if plan.sparse else 0
    choice = [plan.bits] if plan.hashes else range(LEAST_BITS, MOST_BITS)
    for bits in choice:
        bias = {0: ("Constant", CONSTANT & ((1 << bits) - 1))} if plan.bias else {}
        features = {place: (name, _index(name, bits)) for place, name in names.items()} | bias
        places = {index for _, index in features.values()}
        if (
            len(places) == len(features)
            and (not places or size <= min(places))
            and size <= 1 << bits
        ):
            return bits, features
    raise UnsupportedError(
        f"VW would give two of {len(names)} columns one index with -b {choice[-1]}: train with "
        "more data.bits, or export --as parquet"
    )


def _index(name: str, bits: int) -> int:
    """VW's hash of a name in the default namespace: a number maps to itself."""
    if name.isascii() and name.isdecimal():
        return int(name) & ((1 << bits) - 1)
    return coordinate(name.encode(), 0, bits)


def _spelled(name: str) -> str:
    """A valid name in VW's text: no white space, colon or bar."""
    return "".join("_" if c.isspace() or c in ":|" else c for c in name)


def _refuse(model: ModelData) -> None:
    plan = model.plan
    if model.engine.layout.learners > 1:
        raise UnsupportedError(
            f"VW's text holds one learner, and this model has {model.engine.layout.learners}: "
            "--as parquet writes a column for each, --as sklearn a row"
        )
    if plan.curves:
        raise UnsupportedError(
            "VW has no curves of numbers (model.shapes): --as onnx has them, --as parquet their "
            "weights by name"
        )
    if plan.bins:
        raise UnsupportedError(
            "VW has no pairs of numbers (model.shapes): --as onnx has them, --as parquet their "
            "weights by name"
        )
    if plan.trees:
        raise UnsupportedError(
            "VW has no boosted trees (model.shapes): --as onnx has them, --as parquet has the "
            "weights by name"
        )
    if plan.means:
        names = printable(", ".join(plan.mean_columns))
        raise UnsupportedError(
            f'data.nulls = "mean" replaces missing numbers in {names}, and '
            "to VW a feature that is not there is 0: --as onnx replaces them, --as parquet has the "
            "weights alone"
        )
    if plan.hashes and plan.hash_seed:
        raise UnsupportedError(
            f"data.hash_seed is {plan.hash_seed}, and VW uses seeds differently: train with 0, or "
            "export --as parquet"
        )
    if plan.hashes and plan.sparse:
        pair = printable(", ".join(plan.sparse[:2]))
        raise UnsupportedError(
            f"VW would give the pair {pair} the indices of hashed features: export --as parquet"
        )


FORMAT = Format(
    name="vw",
    what="Vowpal Wabbit's readable text, name:index:weight",
    extra="",
    to_read="for each line after ':0' of {file}: workspace.set_weight(index, 0, weight)",
    write=write,
)
