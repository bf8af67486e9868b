"""A command in a process of its own: seconds, processor seconds and peak memory of its tree."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

LONGEST = 900
"""Seconds after which a command is killed."""


def measured(
    command: Sequence[str], environment: Mapping[str, str], log: Path
) -> tuple[dict[str, Any], str]:
    """Figures, and all it printed (kept in ``log``, too).

    wall: from start to end of the process, interpreter and imports included. cpu: user and system
    time of it and of all its children that ended. peak: the largest resident set of any one of
    them, in bytes. A process counts the memory of the one it was forked from: call this from a
    small one. It runs in the log's folder: Python looks for packages where it is run first.
    """
    with log.open("wb") as out:
        began = time.perf_counter()
        process = subprocess.Popen(
            command, env=environment, cwd=log.parent, stdout=out, stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip
        timer = threading.Timer(LONGEST, os.killpg, (process.pid, signal.SIGKILL))
        timer.start()
        _, status, used = os.wait4(process.pid, 0)
        wall = time.perf_counter() - began
        timer.cancel()
    process.returncode = os.waitstatus_to_exitcode(status)
    figures = {
        "wall": wall,
        "cpu": used.ru_utime + used.ru_stime,
        "peak": used.ru_maxrss * 1024,
        "status": process.returncode,
    }
    return figures, log.read_text(errors="replace")
