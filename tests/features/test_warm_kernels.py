"""Kernels are compiled in a second process, where that is of use, and in this one elsewhere."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from running import write

from streamomd.config.spec import Spec
from streamomd.core import startup
from streamomd.features import Plan, empty_batch, encode, make_plan, warm_kernels
from streamomd.features.warm_kernels import compile_from_stdin, kernels_compiled, may_start

COLUMNS = {
    "y": pa.int64(), "x": pa.float64(), "f": pa.float32(), "c": pa.string(), "t": pa.string(),
    "l": pa.list_(pa.string()), "d": pa.date32(), "v": pa.list_(pa.float32(), 3),
}  # fmt: skip
JOBS: dict[str, dict[str, Any]] = {
    "float64": {"numeric": ["x", "f"]},
    "float32": {"numeric": ["f"]},
    "vectors": {"numeric": ["f"], "vectors": ["v"]},
    "hashed": {"numeric": ["x"], "hashed": ["c"]},
    "hashed alone": {"hashed": ["c", "l"]},
    "float32 and text": {"numeric": ["f"], "text": ["t"]},
    "dates": {"dates": ["d"]},
    "nulls": {"numeric": ["x"], "nulls": "indicator"},
}


def planned(data: dict[str, Any]) -> tuple[Plan, pa.Schema]:
    used = ("y", *data.get("numeric", ()), *data.get("hashed", ()), *data.get("text", ()),
            *data.get("vectors", ()), *data.get("dates", ()))  # fmt: skip
    schema = pa.schema([(name, COLUMNS[name]) for name in used])
    job = {"data": {"shards": "rows", "label": "y", **data}, "model": {"rule": "nag"}}
    spec = Spec.parse(job)
    return make_plan(spec.data, spec.model, schema, lambda: [0, 1]), schema


@pytest.mark.parametrize("name", JOBS)
def test_an_empty_batch_is_of_the_kind_of_others(name: str) -> None:
    """Class, dtype and width are those of encoded rows, for which loops are compiled."""
    plan, schema = planned(JOBS[name])
    rows = pa.RecordBatch.from_arrays([pa.nulls(0, one) for one in schema.types], schema=schema)
    expected = encode(plan, rows, shard="", row=0)
    found = empty_batch(plan, schema)
    assert type(found) is type(expected)
    assert len(found) == 0
    for ours, theirs in zip(found.arrays, expected.arrays, strict=True):
        assert (ours.dtype, ours.shape) == (theirs.dtype, theirs.shape)


@contextmanager
def processes(monkeypatch: pytest.MonkeyPatch, idle: bool = True) -> Iterator[list[str]]:
    """What happens to a second process, which is none."""
    found: list[str] = []
    process = SimpleNamespace(
        wait=lambda *_: found.append("wait"), kill=lambda: found.append("kill")
    )

    def start(plan: Plan, schema: pa.Schema) -> Any:
        found.append("start")
        return process

    monkeypatch.setattr(warm_kernels, "may_start", lambda: idle)
    monkeypatch.setattr(warm_kernels, "_start", start)
    monkeypatch.setattr(warm_kernels, "_compile", lambda plan, schema: found.append("ready"))
    yield found


def miss() -> None:
    """A loop is not in the disk cache."""
    while startup._waiting:
        startup._waiting.pop()()


def test_a_process_starts_when_a_loop_is_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not before, once, and it is waited for; then what it compiled is loaded."""
    with processes(monkeypatch) as found:
        with kernels_compiled(*planned(JOBS["hashed"])):
            assert found == []
            miss()
            miss()
            assert found == ["start"]
        assert found == ["start", "wait", "kill", "wait", "ready"]


@pytest.mark.parametrize(("name", "idle"), [("float64", True), ("hashed", False)])
def test_no_process_without_use(name: str, idle: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where nothing is hashed, or no core is idle, this process compiles alone."""
    with processes(monkeypatch, idle) as found:
        with kernels_compiled(*planned(JOBS[name])):
            miss()
        assert found == ["ready"]


def test_a_loaded_loop_starts_no_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is in the cache is loaded; nothing waits for a later miss."""
    with processes(monkeypatch) as found:
        with kernels_compiled(*planned(JOBS["hashed"])):
            pass
        miss()
        assert found == ["ready"]


def test_an_error_ends_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is killed, not waited for."""
    with processes(monkeypatch) as found:
        with pytest.raises(KeyboardInterrupt), kernels_compiled(*planned(JOBS["hashed"])):
            miss()
            raise KeyboardInterrupt
        assert found == ["start", "kill", "wait"]


def test_a_machine_without_room_compiles_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that cannot be started is no error."""
    with processes(monkeypatch) as found:

        def fail(*_: object) -> Any:
            raise OSError(11, "Resource temporarily unavailable")

        monkeypatch.setattr(warm_kernels, "_start", fail)
        with kernels_compiled(*planned(JOBS["hashed"])):
            miss()
        assert found == ["ready"]


def test_the_process_gets_the_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    """A plan and a schema, with types and metadata, as they were."""
    plan, schema = planned(JOBS["hashed"])
    given = json.dumps(plan.to_json()).encode() + b"\n" + schema.serialize().to_pybytes()
    found: list[Any] = []
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(given)))
    monkeypatch.setattr(warm_kernels, "_compile", lambda *parts: found.extend(parts))
    compile_from_stdin()
    assert found == [plan, schema]


@pytest.mark.parametrize(
    ("load", "cores", "idle"), [(0.2, 2, True), (1.6, 2, False), (0.2, 1, True), (0.6, 1, False)]
)
def test_a_core_is_idle(
    load: float, cores: int, idle: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the load average of the last minute; a process of one core has none for another, and a
    program that imports streamomd starts none."""
    monkeypatch.setattr(os, "getloadavg", lambda: (load, 9.0, 9.0))
    monkeypatch.setattr(warm_kernels, "usable_cores", lambda: cores)
    monkeypatch.setattr(startup, "_commands", [os.getpid()])
    assert may_start() is (idle and cores > 1)
    monkeypatch.setattr(startup, "_commands", [])
    assert not may_start()


TRAIN = """
import json, sys
import streamomd
from streamomd.core.jit import recording
from streamomd.features import warm_kernels

warm_kernels.may_start = lambda: sys.argv[2] == "two"
with recording() as found:
    model = streamomd.train(sys.argv[1], label="y", hashed=["c"], rule="nag", checkpoint="none")
print(json.dumps([sorted(one.name for one in found if one.loaded), model.state_sha256]))
"""


@pytest.mark.slow
def test_two_processes_learn_the_same_as_one(tmp_path: Path) -> None:
    """The kernels are loaded from the cache, and the state is bit-identical."""
    rows = write(tmp_path / "rows.parquet", {"y": [0, 1] * 9, "c": ["a", "b", "c"] * 6})
    states = []
    for count in ("one", "two"):
        environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path / count)}
        words = [sys.executable, "-c", TRAIN, str(rows), count]
        done = subprocess.run(words, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        loaded, state = json.loads(done.stdout.splitlines()[-1])
        kernels = [name.partition("_")[0] for name in loaded]
        assert kernels == (["count", "places"] if count == "two" else [])
        states.append(state)
    assert states[0] == states[1]
