"""Names that users' programs and pickles have from before the packages."""

from __future__ import annotations

import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

from streamomd.compat import FORMER

PICKLE = Path(__file__).parents[1] / "golden" / "estimator.pickle.b64"


@pytest.mark.parametrize("former", FORMER)
def test_a_former_name_is_the_module_that_replaced_it(former: str) -> None:
    """Importing a former name gives the very module, so classes and errors are the same objects."""
    assert import_module(former) is import_module(FORMER[former])


def test_former_names_need_only_streamomd() -> None:
    """In a fresh process ``from streamomd.errors import UsageError`` works."""
    code = (
        "from streamomd.errors import UsageError; from streamomd.core import errors; "
        "assert UsageError is errors.UsageError; import streamomd.sweeps.learners"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_an_unknown_name_is_still_unknown() -> None:
    """Only the former names are found."""
    with pytest.raises(ModuleNotFoundError):
        import_module("streamomd.no_such_module")


def test_a_pickle_of_an_earlier_version_loads() -> None:
    """An estimator that was pickled before the packages predicts what it predicted then."""
    code = (
        "import base64, pickle, sys; import numpy as np; "
        "fitted, X, scores = pickle.loads(base64.b64decode(sys.stdin.read())); "
        "assert np.array_equal(fitted.decision_function(X), scores); "
        "fitted.partial_fit(X, scores > 0)"
    )
    words = [sys.executable, "-c", code]
    done = subprocess.run(
        words, input=PICKLE.read_text(), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
