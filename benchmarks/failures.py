"""How much of the time is progress when workers fail? A simulation of sharded mode, the dearest.

Each of W workers fails after an exponential time of mean --mtbf hours. A failure loses the time
since the last commit, and the group needs --restart seconds to start again: the detection of the
loss, the load of the state, and the start of other owners (30 s in docs/cost-model.md).
A commit stops the learning for --commit seconds. A failure during a restart starts it again, and
one during a commit loses it. The share of progress is the time learned and committed, of all time.
"""

from __future__ import annotations

import random

import common

INTERVALS = (15.0, 30.0, 60.0, 300.0)
WORKERS = (10, 100, 1000)


def progress(
    rng: random.Random, workers: int, mtbf: float, every: float, commit: float, restart: float
) -> float:
    """The share of 10,000 intervals' time that is progress. All in seconds."""
    rate = workers / mtbf
    clock = done = 0.0
    failure = rng.expovariate(rate)
    while done < 10_000 * every:
        end = clock + every + commit
        if failure > end:
            clock, done = end, done + every
            continue
        clock = failure
        failure = clock + rng.expovariate(rate)
        while failure < clock + restart:
            clock = failure
            failure = clock + rng.expovariate(rate)
        clock += restart
    return done / clock


def main() -> None:
    parser = common.arguments(__doc__)
    parser.add_argument("--mtbf", type=float, default=1000.0, help="hours of one worker")
    parser.add_argument("--commit", type=float, default=1.0, help="seconds without learning")
    parser.add_argument("--restart", type=float, default=30.0, help="seconds after a failure")
    args = parser.parse_args()
    rng, figures, lines = random.Random(0), {}, []
    for workers in WORKERS:
        shares = [
            progress(rng, workers, 3600 * args.mtbf, every, args.commit, args.restart)
            for every in INTERVALS
        ]
        figures[workers] = dict(zip(INTERVALS, shares, strict=True))
        lines.append([f"{workers:,} workers", *(f"{100 * one:.1f} %" for one in shares)])
    common.table(["share of progress", *(f"commit every {one:g} s" for one in INTERVALS)], lines)
    common.finish(figures, as_json=args.json)


if __name__ == "__main__":
    main()
