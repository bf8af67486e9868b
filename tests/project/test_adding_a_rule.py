"""A new rule is one file and one oracle function: nothing else in the repository names it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from documented import ROOT, blocks

PARTS = ("streamomd", "tests", "docs", "README.md", "CHANGELOG.md", "CONTRIBUTING.md", "mkdocs.yml")
TESTS = (
    "tests/rules", "tests/engine", "tests/cli/test_rule_pages.py", "tests/cli/test_list_rules.py",
    "tests/config/test_spec.py", "tests/training/test_start_weights.py",
    "tests/runs/test_sweep_side.py", "tests/analysis/test_comparator_sets.py",
)  # fmt: skip
WHOLE = "my_omd or catalogue or every or committed or fit or table or guide or names"


def ran(folder: Path, *words: str) -> str:
    """What a Python command prints in a copy of the repository; it must end with 0."""
    env = {**os.environ, "PYTHONPATH": str(folder)}
    done = subprocess.run(
        [sys.executable, "-m", *words], cwd=folder, env=env, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-2000:]
    return done.stdout


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_rule_is_one_file_and_one_oracle(tmp_path: Path) -> None:
    """In a copy of the repository with docs/write-your-own-learner.md's rule and its oracle added,
    its page written by the command, every test that goes over all rules passes with it."""
    for part in PARTS:
        one, copy = ROOT / part, tmp_path / part
        if one.is_dir():
            shutil.copytree(one, copy, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(one, copy)
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    code, check = (
        block.text for block in blocks(ROOT / "docs" / "write-your-own-learner.md")
        if block.language == "python"
    )  # fmt: skip
    score = '\n>>> from streamomd.training.demo import score\n>>> score("my_omd", "square")\n0.39\n'
    code = code.partition("\n")[2].replace("Cost: O(nnz).\n", f"Cost: O(nnz).\n{score}")
    (tmp_path / "streamomd" / "rules" / "my_omd.py").write_text(code)
    oracle = re.search(r"def oracle\(.*?\n\n\n", check, re.S)
    assert oracle is not None
    with (tmp_path / "tests" / "oracles" / "oracles_first_order.py").open("a") as file:
        file.write("\n\n" + oracle[0].replace("oracle", "my_omd").rstrip() + "\n")

    ran(tmp_path, "tests.support.rule_docs", "docs/rules")
    options = ("-n", "0", "-q", "-p", "no:cacheprovider")
    out = ran(tmp_path, "pytest", *options, "--doctest-modules", "streamomd/rules/my_omd.py")
    assert "1 passed" in out
    out = ran(tmp_path, "pytest", *options, *TESTS, "-k", WHOLE)
    assert "test_rule_is_its_oracle[my_omd]" in ran(
        tmp_path, "pytest", *options, "--co", "tests/rules", "-k", "my_omd"
    )
    passed = re.search(r"(\d+) passed", out)
    assert passed is not None
    assert int(passed[1]) > 250
