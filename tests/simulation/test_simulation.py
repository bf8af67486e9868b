"""Driver, owners, parts and store of averaged and sharded mode, simulated: the project's own code,
in worlds that are all made from a seed.

``python tests/simulation/sim_run.py SEED`` tells what happened in one of them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

import pytest
import sim_run
from sim_mutants import MUTANTS, Mutant, mutated
from sim_world import KINDS, World

QUICK = range(100)
MANY = range(10_000)
CHUNK = 1_000
FOUND = (599, 979)
"""Seeds that failed once: an owner's task that ran again, on a worker that had come back at the
same address, put its parts over those of a commit."""
SOON = {"no fence", "the commit before its parts", "groups share a topic"}
"""Mutants that are noticed within a few seeds."""


@pytest.fixture(autouse=True)
def inside() -> Iterator[None]:
    """The code under test lives in a simulated world."""
    with sim_run.simulated():
        yield


def lived(seeds: Iterable[int]) -> Counter[str]:
    """How often each thing happened. Fails with all seeds that do."""
    told, failed = Counter[str](), []
    for seed in seeds:
        try:
            world = sim_run.run(seed)
        except BaseException as error:
            failed.append(f"python tests/simulation/sim_run.py {seed}: {error!r}")
        else:
            told.update(world.ended)
            told.update(text.split(",")[0] for _, text in world.disk.story)
            told["gangs"] += world.gangs
            told["writers"] += len(world.disk.writers)
            told[world.job.mode] += 1
    assert not failed, "\n".join(failed)
    return told


def test_every_world_ends_as_the_undisturbed_one() -> None:
    """100 seeds: its bits; one history of commits, none of them of who was taken over, none before
    its parts, none lost; and an end, also for those who only think that they are wanted.

    And what is to happen did.
    """
    told = lived(QUICK)
    assert told["averaged"] > 15
    assert told["sharded"] > 30
    for kind in KINDS:
        assert told[kind] > 3, kind
    for end in ("ConcurrentWriterError", "StoppedError", "StorageError"):
        assert told[end] > 1, end
    assert told["done"] >= len(QUICK)
    assert told["writers"] > 1.2 * len(QUICK)
    assert told["gangs"] > 1.2 * told["sharded"]


@pytest.mark.parametrize("seed", FOUND)
def test_what_was_found_once(seed: int) -> None:
    """It stays found."""
    lived([seed])


@pytest.mark.slow
@pytest.mark.parametrize("first", MANY[::CHUNK])
def test_many_worlds(first: int) -> None:
    """As above."""
    lived(range(first, first + CHUNK))


@pytest.mark.parametrize("seed", [3, 6, 19])
def test_a_seed_tells_all(seed: int) -> None:
    """The same seed, the same story to the last digit of its times; another seed, another one."""
    one, again, other = (sim_run.run(at) for at in (seed, seed, seed + 1))
    assert told_of(one) == told_of(again) != told_of(other)


def told_of(world: World) -> tuple[object, ...]:
    return world.disk.story, world.loop.now, world.loop.steps, sorted(world.disk.objects)


@pytest.mark.parametrize(
    "mutant",
    [
        pytest.param(one, marks=() if one.name in SOON else pytest.mark.slow, id=one.name)
        for one in MUTANTS
    ],
)
def test_a_mutant_is_noticed(mutant: Mutant) -> None:
    """By one of the seeds of the long run."""
    with mutated(mutant):
        assert any(fails(seed) for seed in MANY), f"{mutant} survives {len(MANY)} seeds"


def fails(seed: int) -> bool:
    try:
        sim_run.run(seed)
    except BaseException:
        return True
    return False
