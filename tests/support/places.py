"""Where faults strike, mode by mode: every kind hits each place, at instants that are drawn."""

from __future__ import annotations

import itertools
import random
from typing import Any

import pytest
from cluster_faults import HERE

Place = tuple[tuple[str, range], ...]
"""Functions that stand for it, and which of their calls, among all workers, there is in any run."""

COMMITS = "streamomd.checkpoint.Writer.commit"
PLACES: dict[str, dict[str, Place]] = {
    "decoders": {
        "rendezvous": (("streamomd.distributed.decode.decode", range(2)),),
        "round": (("streamomd.distributed.decode.rows_of_group", range(2, 24)),),
        "commit": ((HERE + COMMITS, range(6)),),
    },
    "learner": {
        "rendezvous": (
            ("streamomd.training.load_model.load_model", range(1)),
            ("streamomd.runs.session.resume_checkpoint", range(1)),
        ),
        "round": (("streamomd.runs.walk.learn_rows", range(2, 60)),),
        "commit": ((COMMITS, range(2, 12)),),
    },
    "sweep": {
        "rendezvous": (
            ("streamomd.runs.sweep.group_run.load_group", range(2)),
            ("streamomd.runs.session.resume_checkpoint", range(4)),
        ),
        "round": (  # a group alone calls it 76 times before it waits
            ("streamomd.runs.sweep.batched.LearnerGroup.learn", range(120, 150)),
            ("streamomd.runs.sweep.batched.LearnerGroup.learn", range(2, 180)),
        ),
        "commit": ((COMMITS, range(4, 50)),),
        "halving": ((f"{HERE}streamomd.runs.sweep.grouped_sweep.join_groups", range(2)),),
    },
    "averaged": {
        "rendezvous": (("streamomd.distributed.round_state._load_commit", range(1)),),
        "start": (
            ("streamomd.distributed.round_state.start_state", range(1, 4)),
            ("streamomd.distributed.round_state.copy_state", range(4)),
        ),
        "round": (("streamomd.distributed.averaged_worker.rows_of_group", range(20)),),
        "merge": (("streamomd.distributed.averaged_worker.merge", range(12)),),
        "commit": ((HERE + COMMITS, range(3)),),
    },
    "sharded": {
        "rendezvous": (
            ("streamomd.distributed.star.Star.join", range(2)),
            ("streamomd.distributed.partition_owner.PartitionOwner._load_share", range(2)),
        ),
        "round": (("streamomd.training.microbatch_rounds.Rounds._learn", range(2, 280)),),
        "merge": (("streamomd.checkpoint.commit_writer.write_checked", range(16)),),
        "rows": (("streamomd.distributed.slice_outbox.SliceOutbox.put", range(40)),),
        "commit": ((HERE + COMMITS, range(1, 8)),),
    },
}
"""Sharded mode merges nothing: its owners put their parts of a commit instead."""


def drawn(mode: str, where: str, how: str, seed: int) -> tuple[str, int]:
    """A function and the call of it that a seed stands for."""
    place = PLACES[mode][where]
    name, calls = place[seed % len(place)]
    return name, random.Random(f"{mode}-{where}-{how}-{seed}").choice(calls)


def cases(mode: str, seeds: int, quick: tuple[Any, ...] = ()) -> list[Any]:
    """(how, where, seed): all of them, of which the quick run takes those named."""
    return [
        pytest.param(*case, marks=() if case in quick else pytest.mark.slow)
        for case in itertools.product(("kill", "stop", "retire"), PLACES[mode], range(seeds))
    ]
