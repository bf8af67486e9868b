"""The shortcuts of a start: in one module, behind one switch that changes no result."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numba
import numpy as np
import pytest
from running import write

import streamomd
from streamomd.core.startup import VARIABLE, skip_masks

PACKAGE = Path(streamomd.__file__).parent
SHORTCUT = re.compile(
    r"_HAVE_BLAS|sys\.meta_path|pyarrow\._\w+|numba\w*\.\w*caching|rtsys"
    r"|c_helpers|typeof_pyval|_shutdown\(|_run_exitfuncs|os\._exit|\bgc\.(freeze|disable)|OPENBLAS_|PYDANTIC_"
)
SEEN = """
import gc, sys
from streamomd.cli.options import (import_runs)

import_runs().train({"data": {"shards": sys.argv[1], "label": "y"}, "checkpoint": {"url": "none"}})
print(gc.get_freeze_count() > 0, "scipy.linalg" in sys.modules, "pyarrow.compute" in sys.modules)
"""


def rows(folder: Path, **more: list[str]) -> Path:
    """A shard with a label, numbers and more columns."""
    numbers = np.random.default_rng(0).normal(size=80).tolist()
    return write(folder / "rows.parquet", {"y": [0, 1] * 40, "x": numbers, **more})


def python(switch: str, *words: object, **more: str) -> subprocess.CompletedProcess[str]:
    """Python with the switch in its environment."""
    environment = {**os.environ, VARIABLE: switch, **more}
    command = [sys.executable, *map(str, words)]
    return subprocess.run(
        command, capture_output=True, text=True, check=True, timeout=300, env=environment
    )


def test_shortcuts_are_in_one_module() -> None:
    """No other file of the package reaches into a package that it shortens."""
    found = {
        file.relative_to(PACKAGE).as_posix()
        for file in PACKAGE.rglob("*.py")
        if SHORTCUT.search(file.read_text("utf-8"))
    }
    assert found == {"core/startup.py"}


@pytest.mark.parametrize("loops", ["from disk", pytest.param("compiled", marks=pytest.mark.slow)])
@pytest.mark.slow
def test_a_training_without_shortcuts_has_the_same_state(loops: str, tmp_path: Path) -> None:
    """The command ends with the same exit code and the same ``state_sha256`` whether the switch is
    on or off; compiled loops on disk are shared, or compiled by each."""
    file = rows(tmp_path, h=["a", "b", "c", "d"] * 20)  # texts have kernels of their own
    words = ["-m", "streamomd", "train", file, "--label", "y", "--checkpoint", "none", "--json"]
    hashes = set()
    for switch in ("1", "0"):
        numba = {"NUMBA_CACHE_DIR": str(tmp_path / switch)} if loops == "compiled" else {}
        done = python(switch, *words, **numba)
        hashes.add(json.loads(done.stdout.splitlines()[-1])["state_sha256"])
    assert len(hashes) == 1


@pytest.mark.slow
def test_the_switch_turns_every_shortcut_off(tmp_path: Path) -> None:
    """With it off, Python's and the other packages' own ways are taken."""
    file = rows(tmp_path)
    python("1", "-c", SEEN, file)  # compiles, if need be
    assert python("1", "-c", SEEN, file).stdout.split() == ["True", "False", "False"]
    assert python("0", "-c", SEEN, file).stdout.split() == ["False", "True", "True"]


def test_types_of_arrays_are_those_that_numba_finds() -> None:
    """Of all numbers, shapes, layouts and flags; what numba refuses is refused."""
    function = numba.njit(lambda value: value)
    standard = type(function).typeof_pyval
    skip_masks(function)
    kinds = "?bhilqBHILQfdFDMUS"
    values = [np.zeros((2, 3, 4), kind if kind != "M" else "M8[s]") for kind in kinds]
    values += [np.zeros((2, 3), ">f8"), np.zeros(3, "f2"), np.zeros(2, "i4,f8"), np.zeros((2, 2))]
    for value in values:
        frozen = value.copy()
        frozen.flags.writeable = False
        views = [value, value[0], value.T, value[..., 1:], value[..., :0], frozen, frozen.T]
        for view in views:
            assert function.typeof_pyval(view) == standard(function, view), view.dtype
    for other in (1, 0.5, (1, 2.0), "text", None, np.float32(1), np.ma.zeros(3)):
        assert outcome(function.typeof_pyval, other) == outcome(standard, function, other)


def outcome(call: Callable[..., object], *given: object) -> object:
    """What is returned, or the error."""
    try:
        return call(*given)
    except Exception as error:
        return str(error)
