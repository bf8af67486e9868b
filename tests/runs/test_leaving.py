"""A command's process ends at once, and loses nothing on the way."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

LEAVES = """
import atexit, sys, threading, time
from streamomd.core.startup import end_process

def late():
    time.sleep(0.2)
    print("thread")

atexit.register(print, "registered")
threading.Thread(target=late).start()
sys.stdout.write("begun\\n")
end_process(int(sys.argv[1]))
"""


def ended(*words: str) -> subprocess.CompletedProcess[str]:
    """A Python process that has come to its end."""
    command = [sys.executable, *words]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("code", [0, 3, 143])
def test_threads_and_what_is_registered_come_first(code: int) -> None:
    """All that is printed arrives in a pipe, in order, and the exit code is the one given."""
    done = ended("-c", LEAVES, str(code))
    assert done.returncode == code, done.stderr
    assert done.stdout == "begun\nthread\nregistered\n"


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (["list", "losses"], 0, "logistic"),
        (["list", "nothing"], 2, ""),
        (["train", "no-such-job.toml"], 2, ""),
        (["--help"], 0, "Usage: streamomd"),
    ],
)
def test_the_exit_code_of_a_command_is_its_process_s(
    words: list[str], code: int, says: str
) -> None:
    """Also of one that fails; what it prints is whole."""
    done = ended("-m", "streamomd", *words)
    assert done.returncode == code, done.stderr
    assert says in done.stdout


def test_a_closed_pipe_is_no_traceback(tmp_path: Path) -> None:
    """Whoever reads the output may stop reading."""
    done = subprocess.run(
        f"{sys.executable} -m streamomd list rules | head -c 10",
        shell=True, capture_output=True, text=True, check=False, cwd=tmp_path,
    )  # fmt: skip
    assert "Traceback" not in done.stderr


def test_a_profiler_is_heard_out() -> None:
    """Python's own profiler tells what it saw after the command has ended."""
    done = ended("-m", "cProfile", "-m", "streamomd", "list", "losses")
    assert "function calls" in done.stdout, done.stderr
