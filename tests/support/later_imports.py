"""Packages that are imported by the first test that uses them.

Every test process collects every test file, and runs few of them: what a file imports costs each
of the processes. Large packages that only their own tests need wait here.
"""

from __future__ import annotations

import importlib
import importlib.util
import warnings
from typing import Any

import pytest


class _Later:
    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> Any:
        # pytest asks every name of a test file for such attributes when it collects.
        if attribute.startswith("_") or attribute == "pytestmark":
            raise AttributeError(attribute)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # their own
            return getattr(importlib.import_module(self._name), attribute)


def later(name: str, reason: str) -> Any:
    """A module that is imported when an attribute of it is looked up; a test file is skipped where
    its package is not installed."""
    if importlib.util.find_spec(name.partition(".")[0]) is None:
        pytest.skip(reason, allow_module_level=True)
    return _Later(name)
