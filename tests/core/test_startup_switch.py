"""The shortcuts of a start: in one module, behind one switch that changes no result."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from running import write

import streamomd
from streamomd.core.startup import VARIABLE

PACKAGE = Path(streamomd.__file__).parent
SHORTCUT = re.compile(
    r"_HAVE_BLAS|sys\.meta_path|pyarrow\._\w+|numba\w*\.\w*caching|rtsys"
    r"|_shutdown\(|_run_exitfuncs|os\._exit|\bgc\.(freeze|disable)|OPENBLAS_|PYDANTIC_"
)
FORMER_NAMES = "compat.py"
"""Finds former module names by ``sys.meta_path``: its purpose, not a shortcut."""
SEEN = """
import gc, sys
from streamomd.cli.options import import_runs

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
    assert found == {"core/startup.py", FORMER_NAMES}


@pytest.mark.parametrize("loops", ["from disk", pytest.param("compiled", marks=pytest.mark.slow)])
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


def test_the_switch_turns_every_shortcut_off(tmp_path: Path) -> None:
    """With it off, Python's and the other packages' own ways are taken."""
    file = rows(tmp_path)
    python("1", "-c", SEEN, file)  # compiles, if need be
    assert python("1", "-c", SEEN, file).stdout.split() == ["True", "False", "False"]
    assert python("0", "-c", SEEN, file).stdout.split() == ["False", "True", "True"]
