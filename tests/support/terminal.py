"""A command as a terminal shows it."""

from __future__ import annotations

import os
import pty
import re
import select
import subprocess
import sys

MODULE = [sys.executable, "-W", "error", "-m", "streamomd"]


def on_a_terminal(words: list[str], columns: int = 120) -> tuple[int, str, str]:
    """Exit code, stdout and what a terminal on stderr was sent."""
    main, end = pty.openpty()
    env = {**os.environ, "COLUMNS": str(columns), "TERM": "xterm"}
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=end, env=env) as process:
        os.close(end)
        seen = bytearray()
        while True:
            select.select([main], [], [])
            try:
                piece = os.read(main, 65536)
            except OSError:  # the other end was closed
                break
            if not piece:
                break
            seen += piece
        assert process.stdout
        out = process.stdout.read().decode()
    os.close(main)
    return process.returncode, out, seen.decode()


def plain(seen: str) -> str:
    """Without colours and the like; each turn of the bar on a line."""
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", seen).replace("\r", "\n")
