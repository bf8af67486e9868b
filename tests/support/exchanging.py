"""Two owners that only exchange, each on its machine; for a test that cuts a cable between them.

Arguments: owner, its address, a folder that both see. Writes when it lost the other.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from distributed import LocalCluster, Worker
from elsewhere import wait_for

from streamomd.distributed.star import PeerLostError, Star


def main(owner: int, host: str, folder: Path) -> None:
    """Exchange until the other is lost."""
    with LocalCluster(
        n_workers=1, host=host, processes=False, protocol="tcp", dashboard_address=None
    ) as cluster:
        exchange(owner, folder, next(iter(cluster.workers.values())))


def exchange(owner: int, folder: Path, worker: Worker) -> None:
    """The rounds of one owner."""
    star = Star(worker, bytes(16), owner, 2)
    if owner == 0:
        put(folder / "place", star.endpoint)
    wait_for(folder / "place")
    star.join(json.loads((folder / "place").read_text()))
    count = 0
    try:
        while True:
            star.send(1 - owner, b"numbers")
            star.receive(1 - owner)
            count += 1
            if count == 100:
                put(folder / f"exchanging-{owner}", count)
            time.sleep(0.001)
    except PeerLostError as error:
        lost = time.monotonic()
        star.close()
        put(folder / f"lost-{owner}", [error.peer, lost, time.monotonic() - lost])


def put(path: Path, what: object) -> None:
    """A file that is whole as soon as it is there."""
    path.with_suffix(".new").write_text(json.dumps(what))
    path.with_suffix(".new").rename(path)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], Path(sys.argv[3]))
