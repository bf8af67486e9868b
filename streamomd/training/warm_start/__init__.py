"""Start from weights: a Parquet file of them, or a fitted linear model, as the first state."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from streamomd.core.errors import UsageError
from streamomd.core.urls import shown
from streamomd.training.model import Model

IN_MEMORY = "weights://"
"""What ``model.start`` begins with where the weights were an object: no file can be read again."""
_EXECUTABLE = (".pkl", ".pickle", ".joblib", ".skops")


def split_weights(flags: Mapping[str, Any]) -> tuple[dict[str, Any], Any]:
    """Flags with a name in the place of a model that is given as ``start``, and that model."""
    start = flags.get("start")
    if start is None or isinstance(start, str):
        return dict(flags), None
    kind = type(start)
    return {**flags, "start": f"{IN_MEMORY}{kind.__module__}.{kind.__qualname__}"}, start


def start_from_weights(
    model: Model, storage_options: Mapping[str, Any] | None, given: Any = None
) -> None:
    """Set the weights of ``model.start``, a Parquet file, or of ``given``, a fitted linear model.

    Raises UsageError, DataError and UnsupportedError telling what does not fit, and what would.
    """
    # Few jobs start from weights.
    from streamomd.training.warm_start.from_estimator import weights_in
    from streamomd.training.warm_start.from_file import read
    from streamomd.training.warm_start.weights import set_start_weights

    url = model.spec.model.start
    if given is not None:
        set_start_weights(model, [weights_in(model, given)])
    else:
        set_start_weights(model, read(model, url, storage_options))


def is_weights(url: str) -> bool:
    """Whether ``model.start`` names weights, and not a checkpoint.

    Raises UsageError for a file that would have to be executed to be read.
    """
    if url.endswith(_EXECUTABLE):
        raise UsageError(
            f"--start {shown(url)}: a pickle may run anything when it is read, and is never read "
            "here. Load it in Python, if you trust it, and pass the object: "
            "streamomd.train(…, start=model); or write its weights to Parquet"
        )
    return url.startswith(IN_MEMORY) or url.endswith(".parquet")
