"""A loop that the disk cache lacks is compiled once plain Python has done some work."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from streamomd.core import jit
from streamomd.engine import compile as late

TRAIN = """
import json, sys
import streamomd
model = streamomd.train(sys.argv[1], label="y", rule=sys.argv[2])
print(json.dumps([model.result()["state_sha256"], model.result()["compile_seconds"]]))
"""


def trained(shard: Path, rule: str, cache: Path) -> list[object]:
    """The state's hash, and the seconds it took to compile or load, of a process of its own."""
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(cache)}
    words = [sys.executable, "-c", TRAIN, str(shard), rule]
    done = subprocess.run(words, env=environment, capture_output=True, text=True, check=True)
    found: list[object] = json.loads(done.stdout)
    return found


# To compile all loops of auto takes 20 s; quick tests of tests/engine/test_frozen.py compare them.
@pytest.mark.parametrize("rule", ["nag", pytest.param("auto", marks=pytest.mark.slow)])
def test_a_small_table_compiles_nothing(rule: str, tmp_path: Path) -> None:
    """And has the state that compiled loops give."""
    rng = np.random.default_rng(1)
    X = rng.normal(size=(60, 3))
    columns = {f"x{j}": X[:, j] for j in range(3)}
    y = (X[:, 0] + rng.normal(size=60) > 0.0).astype(np.int64)
    shard, cache = tmp_path / "rows.parquet", tmp_path / "cache"
    pq.write_table(pa.table({**columns, "y": y}), shard)
    plain, seconds = trained(shard, rule, cache)
    assert seconds == 0.0
    assert not list(cache.rglob("*make_learn*"))
    words = [sys.executable, "-m", "streamomd", "warm", str(shard), "--label", "y", "--rule", rule]
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(cache)}
    subprocess.run(words, env=environment, capture_output=True, check=True)
    compiled, seconds = trained(shard, rule, cache)
    assert compiled == plain
    assert seconds != 0.0  # loops are loaded


def test_work_counts_what_a_loop_looks_at() -> None:
    assert late.work_of(3, 12, 2, (np.zeros((5, 5)), 7)) == 3 * 25 + late.OF_VALUE * 2 * 12
    assert late.work_of(0, 0, 2, (np.zeros((5, 5)),)) == 0.0


def test_a_budget_of_work_is_done_uncompiled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(late._Budget, "left", 100.0)
    assert late.is_early(60.0, lambda: False)
    assert not late.is_early(60.0, lambda: False)
    assert not late.is_early(10.0, lambda: True)  # the disk cache has it
    assert late.is_early(40.0, lambda: False)
    assert not late.is_early(1.0, lambda: False)
    monkeypatch.setattr(late._Budget, "left", 100.0)
    with jit.recording():
        assert not late.is_early(1.0, lambda: False)
    assert not late.is_early(float("inf"), lambda: False)


def test_plain_loops_do_not_warn() -> None:
    with np.errstate(all="raise"):
        assert np.isinf(late.as_compiled(lambda x: x / np.float64(0.0))(np.float64(1.0)))


def test_an_interrupt_waits_for_the_end_of_a_plain_loop() -> None:
    """As it does for a compiled one: else half a row would be learned."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        written = np.zeros(1000)

        def loop(found: np.ndarray) -> None:
            for at in range(len(found)):
                if at == 10:
                    os.kill(os.getpid(), signal.SIGINT)
                found[at] = 1.0

        with pytest.raises(KeyboardInterrupt):
            late.as_compiled(loop)(written)
        assert written.sum() == 1000.0
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, before)
