"""A process that makes commits when it is told to: for faults that would harm this one."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
MADE, NAMED, CRASHED, UNPREPARED = 0, 3, 4, 5


class Server:
    """Forks a child a case: it prepares, stops itself, and when it is let go on does the deed."""

    def __init__(self, *prefix: str) -> None:
        support = HERE.parent / "support"
        places = (HERE, support, HERE.parents[1], os.environ.get("PYTHONPATH", ""))
        self.process = subprocess.Popen(
            [*prefix, sys.executable, "-m", "served"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, places))},
        )

    def begin(self, deed: str, folder: str) -> int:
        """The child's pid; it has stopped, ready for the deed."""
        self._say(f"begin {deed} {folder}")
        return int(self._hear())

    def end(self) -> int:
        """The child is let go on; its exit code, negative for a signal."""
        self._say("end")
        return int(self._hear())

    def mount(self, folder: str, size: int) -> None:
        """A tmpfs, seen by the server and its children alone; in place of the one before."""
        self._say(f"mount {folder} {size}")
        assert self._hear() == "mounted"

    def stands(self, folder: str, names: str) -> str:
        """The verdict on a folder that only the server sees, and whether it can be gone on from."""
        self._say(f"stands {names} {folder}")
        return self._hear()

    def close(self) -> None:
        assert self.process.stdin
        assert self.process.stdout
        self.process.stdin.close()
        self.process.wait(20)
        self.process.stdout.close()

    def _say(self, words: str) -> None:
        assert self.process.stdin
        self.process.stdin.write(words + "\n")
        self.process.stdin.flush()

    def _hear(self) -> str:
        assert self.process.stdout
        return self.process.stdout.readline().strip()


def child(deed: str, folder: str) -> None:
    """Prepare, wait, do; the exit code tells what came of it."""
    from calls import DEEDS

    from streamomd.core.errors import StreamomdError

    code = CRASHED
    try:
        code = UNPREPARED
        writer = DEEDS[deed].prepare(folder)
        code = CRASHED
        os.kill(os.getpid(), signal.SIGSTOP)
        DEEDS[deed].do(folder, writer)
        code = MADE
    except StreamomdError:
        code = UNPREPARED if code == UNPREPARED else NAMED
    finally:
        os._exit(code)


def warm() -> None:
    """What is imported or cached at first use must not be among the calls that are counted."""
    import tempfile

    from calls import DEEDS, counted

    with tempfile.TemporaryDirectory() as folder:
        for deed in DEEDS.values():
            counted(Path(folder), deed)


def judge(names: str, folder: str) -> str:
    """See ``Server.stands``."""
    from kinds import Verdict
    from standing import goes_on, stands

    from streamomd.checkpoint import open_store
    from streamomd.core.errors import StorageError

    legal = {None if name == "None" else int(name) for name in names.split(",")}
    store = open_store(folder)
    try:
        verdict = stands(store, legal)
        return verdict if verdict is not Verdict.SAME else goes_on(store)
    except StorageError:
        # No room to go on: then what stood still stands.
        return stands(store, legal)


def main() -> None:
    """Serve until the other side closes."""
    logging.disable(logging.WARNING)
    warm()
    made = 0
    for words in sys.stdin:
        what, *rest = words.split()
        if what == "begin":
            made = os.fork()
            if not made:
                child(*rest)
            os.waitid(os.P_PID, made, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
            answer = str(made)
        elif what == "end":
            os.kill(made, signal.SIGCONT)
            answer = str(os.waitstatus_to_exitcode(os.waitpid(made, 0)[1]))
        elif what == "mount":
            folder, size = rest
            subprocess.run(["umount", "-l", folder], capture_output=True, check=False)
            options = ["-o", f"size={size}", "tmpfs", folder]
            subprocess.run(["mount", "-t", "tmpfs", *options], check=True)
            answer = "mounted"
        else:
            answer = judge(*rest)
        print(answer, flush=True)


if __name__ == "__main__":
    main()
