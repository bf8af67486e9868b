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
    from streamomd.estimators import OMDClassifier as OMDClassifier
    from streamomd.estimators import OMDRegressor as OMDRegressor
    from streamomd.export import to_sklearn as to_sklearn
    from streamomd.model import Model as Model
    from streamomd.pages import write_report as write_report
    from streamomd.profiling import profiled as profiled
    from streamomd.runs import load as load
    from streamomd.runs import resume as resume
    from streamomd.runs import train as train
    from streamomd.spec import Spec as Spec
    from streamomd.sweeps import resume_sweep as resume_sweep
    from streamomd.sweeps import sweep as sweep

_HOME = {
    "Model": "streamomd.model",
    "OMDClassifier": "streamomd.estimators",
    "OMDRegressor": "streamomd.estimators",
    "Spec": "streamomd.spec",
    "load": "streamomd.runs",
    "predict_collection": "streamomd.distribute.collections_predict",
    "profiled": "streamomd.profiling",
    "resume": "streamomd.runs",
    "resume_sweep": "streamomd.sweeps",
    "submit": "streamomd.away",
    "sweep": "streamomd.sweeps",
    "to_sklearn": "streamomd.export",
    "train": "streamomd.runs",
    "write_report": "streamomd.pages",
}

__all__ = [
    "Model", "OMDClassifier", "OMDRegressor", "Spec", "load", "predict_collection", "profiled",
    "resume", "resume_sweep", "submit", "sweep", "to_sklearn", "train", "write_report",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'streamomd' has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)
