"""What would an epoch cost on 10, 100, 1000 workers? Terms measured here, extrapolated on paper.

Measured, medians: seconds a row to decode and hash, and to learn, in one thread; seconds a byte of
state to merge two states, to commit and to load them (local disk), and to fetch one from another
worker (Dask over loopback). Two kinds of rows as in cluster.py, --rule in float64.

Assumed: rows cost alike everywhere; each worker has one core like this one, and a link of
--link bytes a second; the store gives and takes --store bytes a second in all; a round of sharded
mode costs --round seconds beside its bytes (rounds.py measures it for two workers on one machine);
nobody waits for a straggler. The formulas are those of `streamomd plan --workers`. Cores of one
machine are workers whose link is its memory: --workers 1,2,16,64 --link 1e10 --epoch 1e8.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import cluster
import common
import numpy as np
from commit import keeper
from distributed import Client, LocalCluster
from merge import filled

import streamomd
from streamomd.analysis.cluster_cost import (
    Epoch,
    Place,
    RowCost,
    StateCost,
    averaged_terms,
    exact_terms,
    sharded_terms,
    total_seconds,
)
from streamomd.engine.merge import merge
from streamomd.engine.state import State
from streamomd.sources.find import find
from streamomd.training.load_model import load_model

ROUND_SECONDS = 60.0  # an averaged round is to last so long, unless the epoch is shorter
BATCH_ROWS = 256


def minutes(epoch: Epoch, workers: int, place: Place) -> list[tuple[float, str]]:
    """Of each mode: minutes of an epoch, and what takes most of them. As many parts as workers;
    averaged rounds of about a minute."""
    learning = epoch.rows * (epoch.row.decode + epoch.row.learn) / workers
    terms = {
        "exact": exact_terms(epoch, workers, place),
        "averaged": averaged_terms(epoch, workers, place, max(1, round(learning / ROUND_SECONDS))),
        "sharded": sharded_terms(epoch, workers, place, BATCH_ROWS, workers),
    }
    return [
        (total_seconds(mode, one) / 60, max(one, key=lambda name: one[name]))
        for mode, one in terms.items()
    ]


def of_rows(data: dict[str, Any], rule: str, times: int) -> tuple[float, float, float]:
    """Seconds to decode a row, and to learn it, and its bytes when decoded."""
    job = {"data": data, "model": {"rule": rule}, "checkpoint": {"url": "none"}}
    model = streamomd.train(job, quiet=True)
    shards = find(data["shards"])

    def decode() -> list[Any]:
        return list(common.decoded(model.plan, shards))

    batches = decode()
    rows = sum(map(len, batches))

    def learn() -> None:
        for batch in batches:
            model.engine.learn(model.state, np.zeros(3), batch)

    found = common.in_turn({"decode": decode, "learn": learn}, times)
    held = sum(batch.indices.nbytes + batch.values.nbytes + 8 * len(batch) for batch in batches)
    return (*(statistics.median(found[name]) / rows for name in ("decode", "learn")), held / rows)


def of_states(size: int, folder: str, times: int) -> tuple[dict[str, float], int]:
    """Seconds a byte of state, and the bytes of one of so many coordinates."""
    model, kept = keeper(size, folder)
    start = State.start(model.state.layout)
    states = [filled(np.random.default_rng(seed), model.state) for seed in (0, 1)]
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as made,
        Client(made, set_as_default=False) as client,
    ):
        here, there = client.scheduler_info()["workers"]

        def fetch() -> None:
            held = client.submit(np.ones, states[0].nbytes // 8, workers=[here], pure=False)
            client.submit(len, held, workers=[here], pure=False).result()
            began = time.perf_counter()
            client.submit(len, held, workers=[there], pure=False).result()
            fetched.append(time.perf_counter() - began)

        fetched: list[float] = []
        jobs = {
            "merge": lambda: merge(model.engine, states, start, (1, 1)),
            "commit": kept.commit,
            "load": lambda: load_model(folder),
            "fetch": fetch,
        }
        found = common.in_turn(jobs, times + 1) | {"fetch": fetched}
    nbytes = model.state.nbytes
    return {name: statistics.median(some[1:]) / nbytes for name, some in found.items()}, nbytes


def main() -> None:
    parser = common.arguments(__doc__)
    parser.add_argument("--rows", type=int, default=100_000, help="rows a shard, of four")
    parser.add_argument("--times", type=int, default=5, help="runs of each; the median counts")
    parser.add_argument("--epoch", type=float, default=1e9, help="rows of the epoch on paper")
    parser.add_argument("--rule", default="nag", help="what learns the rows")
    parser.add_argument("--workers", default="1,10,100,1000", help="numbers of workers")
    parser.add_argument("--link", type=float, default=1.25e9, help="bytes a second of a worker")
    parser.add_argument("--store", type=float, default=1e10, help="bytes a second of the store")
    parser.add_argument("--round", type=float, default=5e-4, help="seconds of an exchange")
    args = parser.parse_args()
    place, figures = Place(args.link, args.store, args.round), {}
    with tempfile.TemporaryDirectory() as temporary:
        per_byte, nbytes = of_states(1 << 22, f"{temporary}/kept", args.times)
        common.table(
            ["2^22 coordinates", *per_byte],
            [["seconds a GiB of state", *(2**30 * one for one in per_byte.values())]],
        )
        for make in (cluster.numbers, cluster.texts):
            folder = Path(temporary) / make.__name__
            folder.mkdir()
            decode, learn, row = of_rows(make(folder, args.rows), args.rule, args.times)
            cost = RowCost(decode, learn, row)
            figures[make.__name__] = vars(cost)
            common.table(
                [make.__name__, "decode µs", "learn µs", "bytes"],
                [["a row", 1e6 * decode, 1e6 * learn, row]],
            )
            lines = []
            for power in (18, 28):
                state = nbytes * 2.0 ** (power - 22)
                epoch = Epoch(args.epoch, [], state, cost, StateCost(**per_byte))
                for workers in map(int, args.workers.split(",")):
                    found = minutes(epoch, workers, place)
                    line = [text for time, limit in found for text in (time, limit)]
                    lines.append([f"2^{power}, {workers:,} workers", *line])
            common.table(["minutes an epoch", "exact", "", "averaged", "", "sharded", ""], lines)
    common.finish({"seconds a byte": per_byte, **figures}, as_json=args.json)


if __name__ == "__main__":
    main()
