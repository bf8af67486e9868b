"""streamomd: linear models on more rows than memory, exact and resumable to the bit.

The public names; each is imported when it is first used, so that importing the package costs
neither numba nor pyarrow.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from streamomd.away import submit as submit
    from streamomd.distribute.collections_predict import predict_collection as predict_collection
    from streamomd.model import Model as Model
    from streamomd.runs import load as load
    from streamomd.runs import resume as resume
    from streamomd.runs import train as train
    from streamomd.spec import Spec as Spec

_HOME = {
    "Model": "streamomd.model",
    "Spec": "streamomd.spec",
    "load": "streamomd.runs",
    "predict_collection": "streamomd.distribute.collections_predict",
    "resume": "streamomd.runs",
    "submit": "streamomd.away",
    "train": "streamomd.runs",
}

__all__ = ["Model", "Spec", "load", "predict_collection", "resume", "submit", "train"]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'streamomd' has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)
