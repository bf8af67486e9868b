"""A network of namespaces: machines with an address each, and a cable to a switch that can be cut.

What is cut off goes on computing, and writes to the disk that all of them share.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

NET = "10.93.7"
_serial = itertools.count()


def ip(*words: object, check: bool = True) -> subprocess.CompletedProcess[str]:
    """The command of that name."""
    return subprocess.run(
        ["ip", *map(str, words)], capture_output=True, text=True, check=check, timeout=30
    )


def why_not() -> str:
    """Why there can be no namespaces here; nothing if there can."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    if not shutil.which("ip"):
        return "network namespaces need the command ip (package iproute2)"
    name = f"omd{os.getpid()}probe"
    made = ip("netns", "add", name, check=False)
    if made.returncode == 0:
        made = ip("-n", name, "link", "add", "bridge", "type", "bridge", check=False)
        ip("netns", "del", name)
    return "" if made.returncode == 0 else f"no network namespaces here: {made.stderr.strip()}"


class Network:
    """A switch, and the machines that were joined to it; gone at the end, with what runs there."""

    def __init__(self) -> None:
        self._prefix = f"omd{os.getpid()}n{next(_serial)}"
        self._machines: dict[str, str] = {}
        self._running: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> Network:
        ip("netns", "add", self._namespace("switch"))
        self._switch("link", "add", "name", "bridge", "type", "bridge")
        self._switch("link", "set", "dev", "bridge", "up")
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._running:
            process.kill()
            process.wait()
        for name in [*self._machines, "switch"]:
            for pid in ip("netns", "pids", self._namespace(name)).stdout.split():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(int(pid), 9)
            ip("netns", "del", self._namespace(name))

    def join(self, name: str) -> str:
        """One more machine; its address."""
        space, address = self._namespace(name), f"{NET}.{len(self._machines) + 1}"
        ip("netns", "add", space)
        self._machines[name] = address
        self._switch(
            "link", "add", "name", name, "type", "veth", "peer", "name", "eth0", "netns", space
        )
        self._switch("link", "set", "dev", name, "master", "bridge", "up")
        ip("-n", space, "addr", "add", f"{address}/24", "dev", "eth0")
        for device in ("eth0", "lo"):
            ip("-n", space, "link", "set", device, "up")
        return address

    def address(self, name: str) -> str:
        """Of a machine."""
        return self._machines[name]

    def at(self, address: str) -> str:
        """The machine of an address, of tcp://address:port also."""
        host = address.rpartition("/")[2].split(":")[0]
        return {found: name for name, found in self._machines.items()}[host]

    def run(self, name: str, words: Sequence[object], log: Path) -> subprocess.Popen[bytes]:
        """Have a machine run a command, which writes to a log."""
        command = ["ip", "netns", "exec", self._namespace(name), *map(str, words)]
        with log.open("ab") as out:
            process = subprocess.Popen(command, stdout=out, stderr=out, env=_environment())
        self._running.append(process)
        return process

    def cut(self, name: str) -> None:
        """Pull a machine's cable."""
        self._switch("link", "set", "dev", name, "down")

    def mend(self, name: str) -> None:
        """Put it back."""
        self._switch("link", "set", "dev", name, "up")

    def _switch(self, *words: object) -> None:
        ip("-n", self._namespace("switch"), *words)

    def _namespace(self, name: str) -> str:
        return f"{self._prefix}{name}"


def _environment() -> dict[str, Any]:
    """This one, with this folder and its parent to import from."""
    here = Path(__file__).parent
    path = [str(here), str(here.parent / "oracles"), os.environ.get("PYTHONPATH", "")]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(path)}
