"""The kernels that each batch of a plan needs, compiled in a second process.

numba compiles one function at a time in a process. While this one compiles the loop that learns,
another compiles the kernels; they reach this one by the disk cache. It starts only when the loop is
not in that cache, so other starts do not wait for it.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from typing import Any

import pyarrow as pa

from streamomd.core.platform_calls import load_average, usable_cores
from streamomd.core.startup import before_compiling, is_command
from streamomd.features.encode import encode
from streamomd.features.plan import Plan

LONGEST = 60.0
"""Seconds that the second process may take; the kernels take it two."""
PROCESS = """
from streamomd.core import startup

startup.set_environment()
with startup.no_garbage_collection():
    startup.start_pyarrow_without_pandas()
    startup.start_numba()
    from streamomd.features.warm_kernels import compile_from_stdin

    compile_from_stdin()
"""
"""What the second process runs."""


@contextmanager
def kernels_compiled(plan: Plan, schema: pa.Schema) -> Iterator[None]:
    """Inside, a second process may compile the kernels of batches with this schema; at the end they
    are in the memory of this one."""
    processes: list[Any] = []

    def start() -> None:
        with suppress(OSError):  # no room for a process: this one compiles them
            processes.append(_start(plan, schema))

    try:
        with before_compiling(start) if plan.hashes and may_start() else nullcontext():
            yield
        for process in processes:
            _wait(process)
    finally:
        for process in processes:
            process.kill()  # nothing if it has ended
            process.wait()
    _compile(plan, schema)


def may_start() -> bool:
    """Whether a second process would run on another core than this one. A program that imports
    streamomd is not started again: only commands know what `sys.executable` is."""
    cores = usable_cores()
    if cores < 2 or not is_command():
        return False
    return load_average() < cores - 0.5


def compile_from_stdin() -> None:
    """In the second process."""
    described, serialized = sys.stdin.buffer.read().split(b"\n", 1)
    _compile(Plan.from_json(json.loads(described)), pa.ipc.read_schema(pa.py_buffer(serialized)))


def _start(plan: Plan, schema: pa.Schema) -> Any:
    import subprocess  # late: few runs compile

    given = json.dumps(plan.to_json()).encode() + b"\n" + schema.serialize().to_pybytes()
    process = subprocess.Popen(  # noqa: S603 (the program is a constant; the plan is its input)
        [sys.executable, "-P", "-c", PROCESS],
        stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    assert process.stdin is not None
    with suppress(BrokenPipeError), process.stdin as stdin:
        stdin.write(given)
    return process


def _wait(process: Any) -> None:
    from subprocess import TimeoutExpired

    with suppress(TimeoutExpired):  # then this process compiles them
        process.wait(LONGEST)


def _compile(plan: Plan, schema: pa.Schema) -> None:
    """Encoding compiles what it calls, whether there are rows or not."""
    none = [pa.nulls(0, kind) for kind in schema.types]
    encode(plan, pa.RecordBatch.from_arrays(none, schema=schema), shard="", row=0)
