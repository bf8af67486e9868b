"""What a start does not wait for: rules nobody asked for, pandas, and SciPy's linear algebra."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from running import write

from streamomd import rules

NO_PANDAS = """
import sys
import pyarrow as pa
from streamomd.core.startup import start_pyarrow_without_pandas

start_pyarrow_without_pandas()
assert pa.array([1, None]).null_count == 1 and "pandas" not in sys.modules
import pandas
frame = pandas.DataFrame({"x": [1, 2]})
assert pa.Table.from_pandas(frame).to_pandas().equals(frame)
start_pyarrow_without_pandas()
assert sys.modules["pandas"] is pandas
"""
NO_LINEAR_ALGEBRA = """
import sys
import numpy as np
import numba
from streamomd.features.kernels.murmur3 import hasher

assert hasher().signatures and "scipy.linalg" not in sys.modules
product = numba.njit(lambda a, b: np.dot(a, b))
assert (product(np.eye(2), np.eye(2)) == np.eye(2)).all() and "scipy.linalg" in sys.modules
"""
TRAIN = """
import gc, sys
from streamomd.cli.options import (import_runs)

learner = import_runs()
assert gc.isenabled() and gc.get_freeze_count()
data = {"shards": sys.argv[1], "label": "y", "text": ["t"], "hashed": ["c"]}
job = {"data": data, "checkpoint": {"url": "none"}}
learner.train(job, quiet=True)
unused = {"pandas", "rich.console", "pyarrow.compute", "fsspec", "asyncio", "scipy.special", "yaml"}
unused |= {"streamomd.training.scoring.scorer", "streamomd.sources.delta.appended"}
assert not unused & {*sys.modules}
"""
NUMBERS = """
import sys
from streamomd.cli.options import (import_runs)

data = {"shards": sys.argv[1], "label": "y"}
model = import_runs().train({"data": data, "checkpoint": {"url": "none"}}, quiet=True)
assert model.engine._loops  # they are loaded
from numba.core.runtime import rtsys
unused = {"numba.np.arrayobj", "numpy.ma", "pyarrow._compute"} & {*sys.modules}
assert not unused and not rtsys._init, unused
"""
TEXTS = {"t": ["one two", "THREE"] * 8, "c": ["red", "blue"] * 8}
COMMAND = """
import sys
from streamomd.__main__ import set_environment

set_environment()
from streamomd.cli import main

words = ["train", sys.argv[1], "--label", "y", "--checkpoint", "none"]
main(words, "streamomd", standalone_mode=False)
assert "streamomd.analysis.report.verdict" in sys.modules
unused = {"scipy.optimize", "scipy.linalg", "pyarrow.compute", "pandas", "sklearn"}
assert not unused & {*sys.modules}
"""
ONE_RULE = """
import sys
from streamomd.rules import find_rule

rule = find_rule("nag")
assert "streamomd.rules.ons" not in sys.modules
from streamomd.rules import all_rules
assert all(find_rule(name) is one for name, one in all_rules().items()) and find_rule("nag") is rule
"""


@pytest.fixture
def forgetful() -> Iterator[None]:
    """Rules are found anew, before and after."""
    for found in (rules.all_rules, rules._own):
        found.cache_clear()
    yield
    for found in (rules.all_rules, rules._own):
        found.cache_clear()


@pytest.mark.parametrize(
    "script", [NO_PANDAS, ONE_RULE, NO_LINEAR_ALGEBRA], ids=["pandas", "rules", "linear_algebra"]
)
def test_a_start_leaves_out_what_is_not_needed(script: str, tmp_path: Path) -> None:
    """pyarrow does without pandas until a frame is asked for, numba without SciPy until a product
    is; one rule is one file, the same."""
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}
    subprocess.run([sys.executable, "-c", script], check=True, timeout=100, env=environment)


@pytest.mark.slow
def test_a_run_on_numbers_leaves_out_what_is_slow_to_import(tmp_path: Path) -> None:
    """The bar of a terminal, pyarrow's functions with their docstrings, stores, pandas; the same
    with texts, categories and classes that are texts.
    """
    file = write(tmp_path / "rows.parquet", {"y": ["a", "b"] * 8, "x": [0.5, 2.0] * 8} | TEXTS)
    subprocess.run([sys.executable, "-c", TRAIN, str(file)], check=True, timeout=100)


def test_a_command_leaves_out_what_is_slow_to_import(tmp_path: Path) -> None:
    """Until its last line, with a verdict and a hint on strings that are all different."""
    rows = {"y": [0, 1] * 50, "x": [0.5, 2.0] * 50, "c": [f"c{i}" for i in range(100)]}
    file = write(tmp_path / "rows.parquet", rows)
    done = subprocess.run(
        [sys.executable, "-c", COMMAND, str(file)],
        check=True, timeout=100, capture_output=True, text=True,
    )  # fmt: skip
    assert "every row has its own value" in done.stderr


def test_loops_from_the_disk_load_little_of_numba(tmp_path: Path) -> None:
    """Not what numba knows of arrays, nor the functions it compiles in each process."""
    file = write(tmp_path / "rows.parquet", {"y": [0, 1] * 8, "x": [0.5, 2.0] * 8})
    warm = [sys.executable, "-m", "streamomd", "warm", str(file), "--label", "y"]
    subprocess.run(warm, check=True, timeout=100, capture_output=True)
    subprocess.run([sys.executable, "-c", NUMBERS, str(file)], check=True, timeout=100)


def test_a_rule_of_a_package_goes_before_ours(
    forgetful: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever installs a rule under a name of ours gets it, though ours is a file of that name."""
    theirs = dataclasses.replace(rules.find_rule("nag"), title="theirs")
    rules._own.cache_clear()
    rules.all_rules.cache_clear()
    monkeypatch.setattr(rules, "offers", lambda group: True)
    monkeypatch.setattr(rules, "load", lambda group: [theirs])

    assert rules.find_rule("nag") is theirs
    assert rules.find_rule("ogd").name == "ogd"
