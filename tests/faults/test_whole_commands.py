"""Whole commands under strace: a call to the system fails, and the command still keeps its word.

No traceback, no wrong result with exit 0, a documented exit code. Faults strike the n-th call of a
kind, of those that touch the data or the output.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import random
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

CALLS = (
    *("openat", "read", "pread64", "write", "fsync", "close", "linkat", "renameat", "rename"),
    *(
        "unlinkat",
        "unlink",
        "mkdirat",
        "mkdir",
        "newfstatat",
        "fstat",
        "getdents64",
        "lseek",
        "mmap",
    ),
)
FAULTS = ("EIO", "ENOSPC", "EINTR", "ENOMEM", "EMFILE", "EACCES")
DOCUMENTED = (0, 1, 2, 3, 4, 5, 6)
COMMANDS = {
    "train": ("train", "data", "--label", "y", "--checkpoint", "OUT"),
    "predict": ("predict", "run", "data", "--to", "OUT"),
    "convert": ("convert", "rows.csv", "--from", "csv", "--to", "OUT"),
    "export": ("export", "run", "--as", "parquet", "--to", "OUT/weights.parquet"),
    "report": ("report", "run", "-o", "OUT/report.html"),
}

pytestmark = pytest.mark.skipif(not shutil.which("strace"), reason="strace is not installed")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Data, a run, text."""
    here = tmp_path_factory.mktemp("whole")
    (here / "data").mkdir()
    draw = np.random.default_rng(0)
    columns = {name: draw.normal(size=500) for name in "ab"}
    table = pa.table({**columns, "y": (draw.random(500) < 0.5).astype(int)})
    pq.write_table(table, here / "data" / "0.parquet")
    (here / "rows.csv").write_text("a,y\n" + "".join(f"{i},{i % 2}\n" for i in range(500)))
    done = spawned(here, ("train", "data", "--label", "y", "--checkpoint", "run"))
    assert done.returncode == 0, done.stderr
    return here


def spawned(here: Path, words: tuple[str, ...], *before: str) -> subprocess.CompletedProcess[str]:
    """A command, ended."""
    # -P: Python itself does not look for modules in the place, before there is a command.
    line = [*before, sys.executable, "-P", "-m", "streamomd", *words]
    return subprocess.run(
        line, cwd=here, capture_output=True, text=True, errors="replace", timeout=200, check=False
    )


def traced(here: Path, name: str, out: str, *options: str) -> subprocess.CompletedProcess[str]:
    """A command under strace, with its options."""
    words = tuple(word.replace("OUT", out) for word in COMMANDS[name])
    if "/" in words[-1]:
        (here / out).mkdir()
    # The command stops at the calls that are traced only: it takes half of the time.
    return spawned(here, words, "strace", "-qq", "-f", "--seccomp-bpf", *options)


def result_of(here: Path, name: str, out: str) -> str:
    """What a command made, as a hash that is the same for the same result."""
    made = here / out
    if name == "train":
        from streamomd import load

        return load(str(made)).state_sha256
    digest = hashlib.sha256()
    for path in sorted(made.rglob("*")):
        if path.suffix == ".parquet":
            digest.update(json.dumps(pq.read_table(path).to_pydict(), default=str).encode())
        elif path.suffix == ".html":
            digest.update(path.read_bytes().rpartition(b"</html>")[1])
    return digest.hexdigest()


def seen(here: Path, name: str) -> tuple[str, list[tuple[str, int]]]:
    """The undisturbed result, and the main thread's calls on paths of the place: kind, number."""
    log, whole = here / f"{name}.log", f"whole-{name}"
    trace = f"trace={','.join(CALLS)}"
    done = traced(here, name, whole, "-y", "-o", str(log), "-e", trace)
    assert done.returncode == 0, done.stderr
    main, counts, found = "", dict.fromkeys(CALLS, 0), []
    for line in log.read_text(errors="replace").splitlines():
        thread, _, rest = line.partition(" ")
        main = main or thread
        call = rest.strip().partition("(")[0]
        if thread != main or call not in counts:
            continue
        counts[call] += 1
        # The current directory is part of every path that is looked up.
        if str(here) in re.sub(r'AT_FDCWD<[^>]*>, "/', '"/', rest) or whole in rest:
            found.append((call, counts[call]))
    log.unlink()
    return result_of(here, name, whole), found


def cases(name: str, numbered: list[tuple[str, int]]) -> list[tuple[str, int, str]]:
    """Every fault at every call, in an order drawn once."""
    every = [(call, at, fault) for (call, at), fault in itertools.product(numbered, FAULTS)]
    random.Random(name).shuffle(every)
    return every


def strike(place: Path, name: str, most: int | None) -> None:
    """The promise, in so many cases."""
    expected, numbered = seen(place, name)
    assert numbered, "nothing of the place was touched"
    broken = []
    for call, at, fault in cases(name, numbered)[:most]:
        out = f"out-{name}"
        inject = f"inject={call}:error={fault}:when={at}"
        done = traced(place, name, out, "-o", "/dev/null", "-e", f"trace={call}", "-e", inject)
        case = f"{name}: {call} number {at}: {fault}"
        if "Traceback" in done.stderr:
            broken.append(f"{case}: {done.stderr[-1500:]}")
        elif done.returncode not in DOCUMENTED:
            broken.append(f"{case}: exit {done.returncode}: {done.stderr[-500:]}")
        elif not done.returncode and result_of(place, name, out) != expected:
            broken.append(f"{case}: exit 0, another result")
        shutil.rmtree(place / out, ignore_errors=True)
    assert not broken, f"{len(broken)} broken\n" + "\n".join(broken)


QUICK = ("train",)


@pytest.mark.parametrize(
    "name",
    [*QUICK, *(pytest.param(one, marks=pytest.mark.slow) for one in COMMANDS if one not in QUICK)],
)
@pytest.mark.slow
def test_some_faults_of_a_whole_command(place: Path, name: str) -> None:
    """Two, of all calls and errors."""
    strike(place, name, 2)


@pytest.mark.slow
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("name", COMMANDS)
def test_many_faults_of_a_whole_command(place: Path, name: str) -> None:
    """STREAMOMD_FAULTS: how many; 150 without it."""
    strike(place, name, int(os.environ.get("STREAMOMD_FAULTS", "150")))
