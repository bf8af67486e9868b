"""streamomd: linear models on more rows than memory, exact and resumable to the bit.

The public names; each is imported when it is first used, so that importing the package costs
neither numba nor pyarrow.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from streamomd.analysis.certify import certify as certify
    from streamomd.analysis.report import write_report as write_report
    from streamomd.config.spec import Spec as Spec
    from streamomd.core.profiling import profiled as profiled
    from streamomd.distributed.collections.collection import (
        predict_collection as predict_collection,
    )
    from streamomd.integrations.export import to_sklearn as to_sklearn
    from streamomd.integrations.sklearn import OMDClassifier as OMDClassifier
    from streamomd.integrations.sklearn import OMDRegressor as OMDRegressor
    from streamomd.runs.backtest import backtest as backtest
    from streamomd.runs.follow import follow as follow
    from streamomd.runs.resume import resume as resume
    from streamomd.runs.resume import update as update
    from streamomd.runs.sweep import resume_sweep as resume_sweep
    from streamomd.runs.sweep import sweep as sweep
    from streamomd.runs.sweep.learners import Sweep as Sweep
    from streamomd.runs.train import load as load
    from streamomd.runs.train import submit as submit
    from streamomd.runs.train import train as train
    from streamomd.training.model import Model as Model
    from streamomd.training.scoring.scorer import Explanation as Explanation
    from streamomd.training.scoring.scorer import Scorer as Scorer

_HOME = {
    "Explanation": "streamomd.training.scoring.scorer",
    "Model": "streamomd.training.model",
    "OMDClassifier": "streamomd.integrations.sklearn",
    "OMDRegressor": "streamomd.integrations.sklearn",
    "Scorer": "streamomd.training.scoring.scorer",
    "Spec": "streamomd.config.spec",
    "Sweep": "streamomd.runs.sweep.learners",
    "backtest": "streamomd.runs.backtest",
    "certify": "streamomd.analysis.certify",
    "follow": "streamomd.runs.follow",
    "load": "streamomd.runs.train",
    "predict_collection": "streamomd.distributed.collections.collection",
    "profiled": "streamomd.core.profiling",
    "resume": "streamomd.runs.resume",
    "resume_sweep": "streamomd.runs.sweep",
    "submit": "streamomd.runs.train",
    "sweep": "streamomd.runs.sweep",
    "to_sklearn": "streamomd.integrations.export",
    "train": "streamomd.runs.train",
    "update": "streamomd.runs.resume",
    "write_report": "streamomd.analysis.report",
}

__all__ = [
    "Explanation", "Model", "OMDClassifier", "OMDRegressor", "Scorer", "Spec", "Sweep", "backtest",
    "certify", "follow", "load", "predict_collection", "profiled", "resume", "resume_sweep",
    "submit", "sweep", "to_sklearn", "train", "update", "write_report",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name == "__version__":
        return import_module("streamomd.core.installed").VERSION
    if name not in _HOME:
        if name.endswith(("Classifier", "Regressor")):  # a class for a rule: NAGClassifier
            return getattr(import_module(_HOME["OMDClassifier"]), name)
        raise AttributeError(f"module 'streamomd' has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return __all__
