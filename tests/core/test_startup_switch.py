"""The shortcuts of a start: in one module, behind one switch that changes no result."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
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
from streamomd.cli.options import runs

runs().train({"data": {"shards": sys.argv[1], "label": "y"}, "checkpoint": {"url": "none"}})
print(gc.get_freeze_count() > 0, "scipy.linalg" in sys.modules, "pyarrow.compute" in sys.modules)
"""


def rows(folder: Path, **more: list[str]) -> Path:
    """A shard with a label, numbers and more columns."""
    numbers = np.random.default_rng(0).normal(size=80).tolist()
    return write(folder / "rows.parquet", {"y": [0, 1] * 40, "x": numbers, **more})


def python(switch: str, numba: Path, *words: object) -> subprocess.CompletedProcess[str]:
    """Python with the switch in its environment, and a folder for compiled loops."""
    environment = {**os.environ, VARIABLE: switch, "NUMBA_CACHE_DIR": str(numba)}
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


def test_a_training_without_shortcuts_has_the_same_state(tmp_path: Path) -> None:
    """The command, compiling its loops and with loops from the disk, ends with the same exit code
    and the same ``state_sha256`` whether the switch is on or off."""
    file = rows(tmp_path, h=["a", "b", "c", "d"] * 20)  # texts have kernels of their own
    words = ["-m", "streamomd", "train", file, "--label", "y", "--checkpoint", "none", "--json"]
    hashes = {
        json.loads(python(switch, tmp_path / numba, *words).stdout.splitlines()[-1])["state_sha256"]
        for switch, numba in (("1", "one"), ("0", "one"), ("0", "two"))
    }
    assert len(hashes) == 1


def test_the_switch_turns_every_shortcut_off(tmp_path: Path) -> None:
    """With it off, Python's and the other packages' own ways are taken."""
    file = rows(tmp_path)
    fast = python("1", tmp_path / "numba", "-c", SEEN, file).stdout.split()
    slow = python("0", tmp_path / "numba", "-c", SEEN, file).stdout.split()
    assert fast == ["True", "False", "False"]
    assert slow == ["False", "True", "True"]
