"""streamomd: linear models on more rows than memory, exact and resumable to the bit.

The public names; each is imported when it is first used, so that importing the package costs
neither numba nor pyarrow.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from streamomd.exact import load as load
    from streamomd.exact import resume as resume
    from streamomd.exact import train as train
    from streamomd.model import Model as Model
    from streamomd.spec import Spec as Spec

_HOME = {
    "Model": "streamomd.model",
    "Spec": "streamomd.spec",
    "load": "streamomd.exact",
    "resume": "streamomd.exact",
    "train": "streamomd.exact",
}

__all__ = ["Model", "Spec", "load", "resume", "train"]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'streamomd' has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)
