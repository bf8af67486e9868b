"""``streamomd`` and ``python -m streamomd``: the command in a process of its own."""

from __future__ import annotations

import atexit
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NoReturn


def main() -> None:
    """Run the command, and end the process with its exit code."""
    # 2^n clocks that numpy's threads wait for work without sleeping; of themselves 2^26 each.
    os.environ.setdefault("OPENBLAS_THREAD_TIMEOUT", "4")
    # Nobody's plug-ins look at a job: to find them a file of every installed package is read.
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    with _starting():
        from streamomd.cli import main as command

    try:
        command(prog_name="streamomd")
    except SystemExit as end:
        watched = sys.getprofile() or sys.gettrace()  # by who tells afterwards what was seen
        if isinstance(end.code, int) and not watched:
            leave(end.code)
        raise


@contextmanager
def _starting() -> Iterator[None]:
    """While modules are imported: Ctrl-C and a machine without room end the process in one line.

    Other packages would take a KeyboardInterrupt in the middle of an import for an error of theirs.
    """
    try:
        time.time()
    except OverflowError:  # nanoseconds in 64 bits, everywhere in Python
        print(
            "streamomd: the clock is after the year 2262: set this machine's date", file=sys.stderr
        )
        leave(1)
    before = signal.getsignal(signal.SIGINT)
    ours = before is signal.default_int_handler
    if ours:
        signal.signal(signal.SIGINT, lambda *_: os._exit(130))
    try:
        yield
    except Exception as error:
        from streamomd.core.machine_errors import is_of_the_machine, one_line

        if not is_of_the_machine(error):
            raise
        print(f"streamomd: {one_line(error)}", file=sys.stderr)
        leave(1)
    finally:
        if ours:
            signal.signal(signal.SIGINT, before)


def leave(code: int) -> NoReturn:
    """End the process: threads are waited for and what is registered runs, as ever; but objects are
    not taken apart one by one, which costs a quarter of a second of processor time after pyarrow,
    numba and LLVM, for memory that the system takes back at once.
    """
    ending: Any = (threading, atexit)
    ending[0]._shutdown()
    ending[1]._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        try:
            if stream is not None:  # closed by whoever began the process
                stream.flush()
        except OSError:  # nobody reads on, or the disk is full
            code = code or 1
    os._exit(code)


if __name__ == "__main__":
    main()
