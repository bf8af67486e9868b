"""Former module names, which users' programs and pickles of estimators still have."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

FORMER = {
    "streamomd.callbacks": "streamomd.training.callbacks",
    "streamomd.certify": "streamomd.analysis.certify",
    "streamomd.demo": "streamomd.training.demo",
    "streamomd.errors": "streamomd.core.errors",
    "streamomd.estimators": "streamomd.integrations.sklearn",
    "streamomd.estimators.classifier": "streamomd.integrations.sklearn.classifier",
    "streamomd.estimators.held": "streamomd.integrations.sklearn.pickling",
    "streamomd.estimators.regressor": "streamomd.integrations.sklearn.regressor",
    "streamomd.export": "streamomd.integrations.export",
    "streamomd.sweeps": "streamomd.runs.sweep",
    "streamomd.sweeps.learners": "streamomd.runs.sweep.learners",
    "streamomd.trackers": "streamomd.integrations.trackers",
}
"""Documented names and those inside pickles, with the modules that replaced them."""


class FormerNames:
    """Finds the modules of ``FORMER``; importing one gives the very module that replaced it.

    A finder and a loader without the classes of ``importlib.abc``, which import archives and more.
    """

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Asked first: the path of a renamed package would find its files a second time."""
        loader: Any = self
        return ModuleSpec(fullname, loader) if fullname in FORMER else None

    def create_module(self, spec: ModuleSpec) -> None:
        """Python makes an empty module."""

    def exec_module(self, module: ModuleType) -> None:
        """Replace the empty module that importlib made for the former name."""
        sys.modules[module.__name__] = import_module(FORMER[module.__name__])


def install() -> None:
    """Make the former names importable in this process."""
    if not any(isinstance(finder, FormerNames) for finder in sys.meta_path):
        sys.meta_path.insert(0, FormerNames())
