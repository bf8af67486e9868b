"""A run as its driver's machine makes it: for tests that cut its network, in a process of its own.

The argument is a JSON file: scheduler, workers (how many), job, name and nth (of a function, and of
its call, before which somebody waits until a cable is cut), asleep (seconds that it waits then),
marks (a folder), waits (settings in seconds), out.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import dask
from cluster_faults import HERE, strike
from distributed import Client
from noted import listening

import streamomd
from streamomd.distributed import decode


def main(told: dict[str, Any]) -> None:
    """Train, and leave what came of it in a file: sha256, pid, and notes as (monotonic s, text)."""
    decode.TASK_BYTES = 60_000  # some dozen tasks in a run, so that there is something in between
    dask.config.set({f"streamomd.{name}-seconds": value for name, value in told["waits"].items()})
    notes: list[tuple[float, str]] = []
    with Client(told["scheduler"], set_as_default=False) as client:
        client.wait_for_workers(told["workers"], timeout=200)
        what = (told["name"].removeprefix(HERE), told["nth"], "cut", told["marks"], told["asleep"])
        if told["name"].startswith(HERE):
            strike(*what)
        else:
            client.run(strike, *what)
        with listening(lambda text: notes.append((time.monotonic(), text))):
            found = streamomd.train(told["job"], client=client, quiet=True)
    done = {"sha256": found.state_sha256, "pid": os.getpid(), "notes": notes}
    Path(told["out"]).write_text(json.dumps(done))


if __name__ == "__main__":
    main(json.loads(Path(sys.argv[1]).read_text()))
