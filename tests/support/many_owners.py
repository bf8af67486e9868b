"""Many owners that exchange over ZeroMQ: the leader in one process with a limit of descriptors, the
others in processes of 100 threads.

Arguments: ``lead``, owners, the leader's limit of descriptors, a folder. Prints a line of JSON.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import numpy as np
from counting_star import numbers, shares_of, steps_of

from streamomd.distributed.allreduce_zmq import ZmqStar
from streamomd.distributed.curve_keys import CurveKeys, new_keys
from streamomd.distributed.sum_exchange import SumExchange

HOST, GROUP, ROUNDS, ROWS, EACH = "127.0.0.1", bytes(16), 5, 16, 100


class Learned(NamedTuple):
    """What an owner had and sent: the hex of its last steps, messages and bytes of its rounds."""

    steps: str
    messages: int
    nbytes: int


def learn(star: ZmqStar, leader: str) -> Learned:
    """Join, and exchange some rounds."""
    star.join(leader)
    sent: list[int] = []
    send = star.send
    star.send = lambda peer, data: (sent.append(len(data)), send(peer, data))[1]  # type: ignore
    exchange = SumExchange(star, star.owners)
    own = shares_of(numbers(star.owners, ROWS), star.owners)[star.owner]
    for _ in range(ROUNDS):
        if star.owner:
            steps = np.empty((ROWS, 1, 2))
            exchange.send(own)
            exchange.receive_steps(steps, np.empty((1, 1)), np.empty(3))
        else:
            steps = steps_of(exchange.add_all(own)[0])
            exchange.send_steps(steps, np.zeros((1, 1)), np.zeros(3), 0)
    return Learned(steps.tobytes().hex(), len(sent), sum(sent))


def limit_descriptors(limit: int) -> None:
    """As ``ulimit -n``."""
    resource.setrlimit(
        resource.RLIMIT_NOFILE, (limit, resource.getrlimit(resource.RLIMIT_NOFILE)[1])
    )


def lead(owners: int, limit: int, folder: Path) -> None:
    """The leader, and the processes of the others."""
    limit_descriptors(limit)
    keys = new_keys()
    star = ZmqStar(HOST, GROUP, 0, owners, keys)
    told = {"leader": star.endpoint, "keys": [key.decode() for key in vars(keys).values()]}
    (folder / "told.json").write_text(json.dumps(told))
    others = [
        subprocess.Popen(
            [sys.executable, __file__, "join", str(owners), str(first), str(folder)],
            stdout=subprocess.PIPE,
            text=True,
        )
        for first in range(1, owners, EACH)
    ]
    learned = [learn(star, star.endpoint)]
    descriptors = len(os.listdir("/proc/self/fd"))
    for process in others:
        learned += [Learned(*one) for one in json.loads(process.communicate(timeout=120)[0])]
    star.close()
    found = {
        "owners": len(learned),
        "descriptors": descriptors,
        "steps": [*{one.steps for one in learned}],
        "messages": sum(one.messages for one in learned) / ROUNDS,
        "bytes": sum(one.nbytes for one in learned) / ROUNDS,
    }
    print(json.dumps(found))


def join(owners: int, first: int, folder: Path) -> None:
    """A hundred owners, each in a thread: they need nine descriptors each."""
    limit_descriptors(1024)
    told = json.loads((folder / "told.json").read_text())
    keys = CurveKeys(*(key.encode() for key in told["keys"]))
    mine = range(first, min(first + EACH, owners))
    made = [ZmqStar(HOST, GROUP, owner, owners, keys) for owner in mine]
    with ThreadPoolExecutor(len(made)) as pool:
        found = [*pool.map(lambda star: learn(star, told["leader"]), made)]
    for star in made:
        star.close()
    print(json.dumps(found))


if __name__ == "__main__":
    act = {"lead": lead, "join": join}[sys.argv[1]]
    act(int(sys.argv[2]), int(sys.argv[3]), Path(sys.argv[4]))
