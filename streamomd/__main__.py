"""``streamomd`` and ``python -m streamomd``: the command in a process of its own."""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from streamomd.core.startup import end_process, exit_now, no_garbage_collection, set_environment


def main() -> None:
    """Run the command, and end the process with its exit code."""
    set_environment()
    with _starting(), no_garbage_collection():
        from streamomd.cli import main as command

    try:
        command(prog_name="streamomd")
    except SystemExit as end:
        watched = sys.getprofile() or sys.gettrace()  # by a tool that reports at the end
        if isinstance(end.code, int) and not watched:
            end_process(end.code)
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
        end_process(1)
    before = signal.getsignal(signal.SIGINT)
    ours = before is signal.default_int_handler
    if ours:
        signal.signal(signal.SIGINT, lambda *_: exit_now(130))
    try:
        yield
    except Exception as error:
        from streamomd.core.machine_errors import is_of_the_machine, one_line

        if not is_of_the_machine(error):
            raise
        print(f"streamomd: {one_line(error)}", file=sys.stderr)
        end_process(1)
    finally:
        if ours:
            signal.signal(signal.SIGINT, before)


if __name__ == "__main__":
    main()
