"""``streamomd warm``: a run after it compiles nothing, and has the bits of any other."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from running import run, write

WARM = """
import json, sys
from streamomd.analysis.warm_loops import warm

print(json.dumps(warm(sys.argv[1])))
"""
TRAIN = """
import json, sys
import streamomd
from streamomd.core.jit import recording

with recording() as found:
    model = streamomd.train(sys.argv[1], restart=True)
    model.evaluate(model.spec.data.shards)
compiled = [one.name for one in found if not one.loaded]
print(json.dumps([len(found), compiled, model.state_sha256]))
"""
COLUMNS: dict[str, list[Any]] = {
    "y": [0, 1] * 30,
    "x": [0.5, -2.0, 1.25] * 20,
    "c": ["red", "green", "blue"] * 20,
    "t": ["one two", "two THREE", None, "été", "five five"] * 12,
}
JOBS = {
    "text": 'hashed = ["c"]\ntext = ["t"]\n[model]\nrule = "nag"',
    "numbers": 'ignore = ["c", "t"]\n[model]\nrule = "nag"',
    "auto": 'hashed = ["c"]\nignore = ["t"]',
    "softmax": 'hashed = ["c"]\nignore = ["t"]\n[model]\nrule = "adagrad"\nloss = "softmax"',
    "square": 'ignore = ["c", "t"]\n[model]\nrule = "snag"\nloss = "square"\ndtype = "float32"',
    "sharded": 'hashed = ["c"]\nignore = ["t"]\n[model]\nrule = "nag"\n[train]\nmode = "sharded"',
    "averaged": 'hashed = ["c"]\nignore = ["t"]\n[model]\nrule = "nag"\n[train]\nmode = "averaged"',
}


def job(folder: Path, name: str) -> Path:
    """A job file next to a shard of 60 rows."""
    write(folder / "rows.parquet", COLUMNS)
    tables = f'[data]\nshards = "{folder}/rows.parquet"\nlabel = "y"\n{JOBS[name]}'
    path = folder / "job.toml"
    path.write_text(f'{tables}\n[checkpoint]\nurl = "{folder}/run"\n')
    return path


def process(script: str, path: Path, cache: Path) -> Any:
    """What a process of its own prints, with compiled loops in a folder."""
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(cache)}
    words = [sys.executable, "-c", script, str(path)]
    done = subprocess.run(words, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def compiles_nothing_after(folder: Path, name: str) -> None:
    path, cache = job(folder, name), folder / "cache"
    warmed = process(WARM, path, cache)
    assert warmed["compiled"] == warmed["loops"] > 0
    loops, compiled, state = process(TRAIN, path, cache)
    assert (compiled, loops > 0) == ([], True)
    there = run("train", path, "--checkpoint", folder / "there", "--json").result
    assert there["state_sha256"] == state


@pytest.mark.slow
def test_a_run_after_warm_compiles_nothing(tmp_path: Path) -> None:
    """All loops are loaded, and the state is bit-identical to that of a run without ``warm``."""
    compiles_nothing_after(tmp_path, "text")


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in JOBS if name not in ("text", "averaged")])
def test_a_run_of_any_kind_after_warm_compiles_nothing(tmp_path: Path, name: str) -> None:
    """The same, of other rules, losses, columns and modes."""
    compiles_nothing_after(tmp_path, name)


def test_it_prints_how_many_loops_and_how_long(tmp_path: Path) -> None:
    """One line, or JSON; of the job and of its directory nothing else changes."""
    path = job(tmp_path, "numbers")
    before = sorted(tmp_path.iterdir())
    assert " compiled before, in " in run("warm", path).out
    found = run("warm", path, "--json").result
    assert set(found) == {"loops", "compiled", "seconds", "folder"}
    assert found["compiled"] == 0
    assert sorted(tmp_path.iterdir()) == before
    wrong = run("warm", path, "--label", "z")
    assert wrong.code == 2
