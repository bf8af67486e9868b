"""Faults that the kernel makes: calls injected by strace, file systems that are full."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from calls import DEEDS
from kinds import Cases, Unavailable, Verdict, kind
from served import CRASHED, MADE, UNPREPARED, Server
from standing import goes_on, stands

from streamomd.checkpoint import open_store

CALLS = (
    *("openat", "write", "fsync", "close", "linkat", "renameat", "renameat2", "unlinkat"),
    *("mkdirat", "mkdir", "newfstatat", "fstat", "getdents64", "read", "lseek", "pread64"),
)
FAULTS = ("EIO", "ENOSPC", "EDQUOT", "EROFS", "EINTR", "ENOMEM", "KILL")


def traced(server: Server, deed: str, folder: str, log: str, inject: str = "") -> int:
    """The exit code of a deed done under strace."""
    pid = server.begin(deed, folder)
    words = ["strace", "-q", "-f", "-p", str(pid), "-e", f"trace={','.join(CALLS)}", "-o", log]
    words += ["-e", f"inject={inject}"] if inject else []
    strace = subprocess.Popen(words, stderr=subprocess.PIPE, text=True)
    try:
        _wait_until_traced(pid, strace)
        return server.end()
    finally:
        # It ends with the child; where it never attached, it is told to.
        strace.terminate()
        strace.communicate()


def _wait_until_traced(pid: int, strace: subprocess.Popen[str]) -> None:
    status = Path(f"/proc/{pid}/status")
    while not re.search(r"^TracerPid:\s+[1-9]", status.read_text(), re.MULTILINE):
        if strace.poll() is not None:
            os.kill(pid, signal.SIGKILL)
            raise Unavailable("strace may not attach to a process here")


@kind("system-calls", quick=12)
@contextmanager
def system_calls(folder: Path) -> Iterator[Cases]:
    """strace fails or kills each call of a real process (6 errors, SIGKILL)"""
    if not shutil.which("strace"):
        raise Unavailable("strace is not installed")
    server, log = Server(), str(folder / "log")
    try:
        cases = []
        for name in DEEDS:
            traced(server, name, str(folder / f"counted-{name}"), log)
            lines = Path(log).read_text().splitlines()
            seen = Counter(
                found[1] for one in lines if (found := re.match(r"(?:\d+ +)?(\w+)\(", one))
            )
            cases += [
                (name, call, at, fault)
                for call, count in sorted(seen.items())
                for at in range(1, count + 1)
                for fault in FAULTS
            ]

        def run(seed: int) -> Verdict:
            name, call, at, fault = cases[seed]
            place = str(folder / str(seed))
            how = "signal=KILL" if fault == "KILL" else f"error={fault}"
            code = traced(server, name, place, log, f"{call}:{how}:when={at}")
            if code == CRASHED:
                return Verdict.CRASH
            store = open_store(place)
            legal = (DEEDS[name].new,) if code == MADE else DEEDS[name].legal
            verdict = stands(store, legal)
            if verdict is Verdict.SAME:
                verdict = goes_on(store)
            shutil.rmtree(place, ignore_errors=True)
            if verdict is not Verdict.SAME:
                return verdict
            return Verdict.SAME if code == MADE else Verdict.NAMED

        yield Cases(range(len(cases)), run)
    finally:
        server.close()


PAGE = 4096
SIZES = 60


@kind("full-file-systems", quick=6)
@contextmanager
def full_file_systems(folder: Path) -> Iterator[Cases]:
    """a file system (tmpfs) of any size is full; the run resumes with more space"""
    able = ["unshare", "--mount", "--propagation", "private"]
    if not shutil.which("unshare") or subprocess.run([*able, "true"], check=False).returncode:
        raise Unavailable("no file system may be mounted here")
    server, place = Server(*able), folder / "disk"
    place.mkdir()
    try:

        def run(seed: int) -> Verdict:
            name = ("commit", "restart", "begin")[seed % 3]
            pages = 1 + seed // 3
            server.mount(str(place), pages * PAGE)
            run_ = f"{place}/run"
            server.begin(name, run_)
            code = server.end()
            if code == CRASHED:
                return Verdict.CRASH
            deed = DEEDS[name]
            # Where not even what comes before had room, nothing was promised.
            legal = {MADE: (deed.new,), UNPREPARED: (None, 0, 1)}.get(code, deed.legal)
            verdict = Verdict(server.stands(run_, ",".join(map(str, legal))))
            if verdict is not Verdict.SAME:
                return verdict
            return Verdict.SAME if code == MADE else Verdict.NAMED

        yield Cases(range(3 * SIZES), run)
    finally:
        server.close()
