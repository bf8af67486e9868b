"""How long does a prediction over HTTP take? p50 and p99 at 1, 8 and 64 connections.

Each learner is trained on bank marketing (45,211 rows, 16 columns) and predicts one row a request,
JSON, on connections that stay open. The server is one process on the first core, the client one on
the second. CPU ms: processor time of the server for a request. All learners are behind streamomd's
own server, and only what turns rows into predictions differs: a Scorer; scikit-learn's
DictVectorizer and SGDClassifier; Vowpal Wabbit's Python module (the daemon of its package on PyPI
answers no connection). floor: GET /healthz, that is HTTP alone. reloading: the streamomd server
while its reload thread loads a commit again and again; the goal is a p99 of 1.5 times that without.

    python benchmarks/serving.py --seconds 5 --rounds 3
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import common
import pyarrow.dataset as ds

ROOT = Path(__file__).resolve().parents[1]
BANK = ROOT / "pipelines" / "data" / "bank"
CONNECTIONS = (1, 8, 64)
ROWS = 500  # different ones, asked for in turn


class Behind:
    """A learner as the server wants it."""

    def __init__(self, probabilities: Any) -> None:
        self.probabilities = probabilities

    def many(self, rows: list[dict[str, Any]]) -> Any:
        found = self.probabilities(rows)
        return ["yes" if one > 0.5 else "no" for one in found], found, found


def bank() -> tuple[list[dict[str, Any]], list[str]]:
    """Rows and labels."""
    table = ds.dataset(BANK).to_table()
    return table.drop_columns(["y"]).to_pylist(), table["y"].to_pylist()


def streamomd(folder: Path, name: str) -> Any:
    """The snapshot of a checkpoint."""
    import streamomd as package
    from streamomd.integrations.serve.model_reloader import snapshot_of

    url = str(folder / name)
    package.train(shards=str(BANK), label="y", checkpoint=url, quiet=True, restart=True)
    return snapshot_of(package.load(url))


def scikit_learn(folder: Path, name: str) -> Any:
    """The fastest of its own for rows that are dicts."""
    from sklearn.feature_extraction import DictVectorizer
    from sklearn.linear_model import SGDClassifier
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import MaxAbsScaler

    rows, y = bank()
    model = make_pipeline(DictVectorizer(), MaxAbsScaler(), SGDClassifier(loss="log_loss"))
    model.fit(rows, y)
    return behind(lambda given: model.predict_proba(given)[:, 1].tolist())


def vowpal_wabbit(folder: Path, name: str) -> Any:
    """A Workspace, and lines of text made of the rows."""
    from vowpalwabbit import Workspace

    rows, y = bank()
    model = Workspace("--loss_function logistic --link logistic --quiet")
    for row, label in zip(rows, y, strict=True):
        model.learn(f"{1 if label == 'yes' else -1} {line(row)}")
    return behind(lambda given: [model.predict(line(row)) for row in given])


def line(row: dict[str, Any]) -> str:
    """A row as Vowpal Wabbit's text."""
    return "| " + " ".join(
        f"{name}={value}" if isinstance(value, str) else f"{name}:{value}"
        for name, value in row.items()
    )


def behind(probabilities: Any) -> Any:
    """A snapshot that is no checkpoint's."""
    from streamomd.integrations.serve.model_reloader import Schema, Snapshot

    columns = dict.fromkeys(bank()[0][0], "number")
    schema = Schema("y", columns, tuple(columns), ("no", "yes"), True)
    return Snapshot(Behind(probabilities), 1, 0, schema, {})


LEARNERS = {
    "streamomd": streamomd,
    "reloading": streamomd,
    "scikit-learn": scikit_learn,
    "vowpalwabbit": vowpal_wabbit,
}


def serve(name: str, folder: Path) -> None:
    """A server process; prints its port."""
    import socket

    import uvicorn

    from streamomd.integrations.serve.http_app import ServeApp
    from streamomd.integrations.serve.model_reloader import ModelReloader
    from streamomd.integrations.serve.run_server import server_config

    reloader = ModelReloader(None)
    reloader.snapshot = LEARNERS[name](folder, name)
    app = ServeApp(reloader)
    listener = socket.create_server(("127.0.0.1", 0), backlog=256)
    pin(0)
    if name == "reloading":
        threading.Thread(target=reload, args=(reloader, str(folder / name)), daemon=True).start()
    print(listener.getsockname()[1], flush=True)
    server = uvicorn.Server(server_config(app, app.limits))
    asyncio.run(server.serve(sockets=[listener]))


def reload(reloader: Any, url: str) -> None:
    """Load and serve the newest commit without a pause, as the reload thread does a newer one."""
    from streamomd.integrations.serve.model_reloader import CheckpointSource, short_switches
    from streamomd.training.progress import quiet_notes

    reloader.source = CheckpointSource(url)
    with quiet_notes(quiet=True), short_switches():
        while True:
            reloader.snapshot = replace(reloader.snapshot, commit=-1)  # an older one
            reloader.check()


def pin(core: int) -> None:
    """Run on one core, where the machine has several."""
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cores[core % len(cores)]})


async def ask(port: int, requests: list[bytes], until: float, found: list[float]) -> None:
    """One connection: requests one after the other; their seconds."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    for request in itertools.cycle(requests):
        began = time.perf_counter()
        if began > until:
            break
        writer.write(request)
        head = await reader.readuntil(b"\r\n\r\n")
        size = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
        await reader.readexactly(size)
        found.append(time.perf_counter() - began)
        if not head.startswith(b"HTTP/1.1 200 "):
            raise SystemExit(head.decode())
    writer.close()


async def load(port: int, requests: list[bytes], connections: int, seconds: float) -> list[float]:
    """Seconds of all requests."""
    found: list[float] = []
    until = time.perf_counter() + seconds
    await asyncio.gather(
        *(ask(port, requests[at:] + requests[:at], until, found) for at in range(connections))
    )
    return found


def requests_of(rows: list[dict[str, Any]]) -> list[bytes]:
    """A request for each row."""
    made = []
    for row in rows:
        body = json.dumps([row]).encode()
        head = "POST /predict HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        made.append(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
    return made


def processor(process: int) -> float:
    """Seconds of processor time that a process has taken."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def measured(
    server: tuple[int, int], requests: list[bytes], seconds: float
) -> dict[str, dict[str, float]]:
    """Percentiles in ms, requests a second and the server's processor time, by connections."""
    (port, process), found = server, {}
    for connections in CONNECTIONS:
        before = processor(process)
        times = asyncio.run(load(port, requests, connections, seconds))
        cuts = statistics.quantiles(times, n=100)
        found[str(connections)] = {
            "p50": 1000 * cuts[49],
            "p99": 1000 * cuts[98],
            "rate": len(times) / seconds,
            "cpu": 1000 * (processor(process) - before) / len(times),
        }
    return found


def main() -> None:
    """Measure the learners in turn, and print medians over the rounds."""
    parser = common.arguments(__doc__)
    parser.add_argument("--serve", help="Be a server: name of a learner.")
    parser.add_argument("--folder", default="")
    parser.add_argument("--learners", nargs="+", default=[*LEARNERS], choices=[*LEARNERS])
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    if given.serve:
        serve(given.serve, Path(given.folder))
        return
    requests = requests_of(bank()[0][:ROWS])
    health = [b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"]
    names = [name for name in given.learners if name != "vowpalwabbit" or find_spec("vowpalwabbit")]
    results: dict[str, list[Any]] = {name: [] for name in ("floor", *names)}
    with tempfile.TemporaryDirectory() as folder:
        words = [sys.executable, __file__, "--folder", folder, "--serve"]
        servers = {
            name: subprocess.Popen([*words, name], stdout=subprocess.PIPE, text=True)
            for name in names
        }
        try:
            ports = {name: (int(one.stdout.readline()), one.pid) for name, one in servers.items()}
            pin(1)
            for name in names:  # caches are filled
                asyncio.run(load(ports[name][0], requests, 1, 1.0))
            for _ in range(given.rounds):
                results["floor"].append(measured(ports[names[0]], health, given.seconds))
                for name in names:
                    results[name].append(measured(ports[name], requests, given.seconds))
        finally:
            for one in servers.values():
                one.terminate()
                one.wait()
    figures = {
        name: {
            many: {
                key: statistics.median(one[many][key] for one in found) for key in found[0][many]
            }
            for many in map(str, CONNECTIONS)
        }
        for name, found in results.items()
    }
    common.table(
        ["learner", "connections", "p50 ms", "p99 ms", "requests/s", "CPU ms"],
        [
            [
                name,
                many,
                *(f"{one[key]:.2f}" for key in ("p50", "p99")),
                f"{one['rate']:,.0f}",
                f"{one['cpu']:.2f}",
            ]
            for name, found in figures.items()
            for many, one in found.items()
        ],
    )
    common.finish(figures, as_json=given.json)


if __name__ == "__main__":
    main()
