"""Kill -9 at seeded instants of a real sweep: what comes out in the end is as if undisturbed.

The instants are counted in commits of the sweep, so a slow machine moves none of them out of it.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from killing import (
    BINARY,
    COMMON,
    Folder,
    Instant,
    finish,
    newest,
    result,
    start,
    strike,
    write_shards,
)

SEED = 20_261_122
WORDS = (
    *(*BINARY, *COMMON, "--epochs", "2", "--set", "checkpoint.every_rows=1500"),
    *("--grid", "eta=0.1..10:4", "--halve", "9000"),
)


def instants() -> list[tuple[Instant, ...]]:
    """Ten cases of one to three kills, the same each time."""
    draw = random.Random(SEED)

    def somewhen() -> Instant:
        return Instant("delay", draw.randint(2, 9), draw.uniform(0.0, 0.05))

    return [tuple(somewhen() for _ in range(1 + at % 3)) for at in range(10)]


CASES = instants()


def told(words: list[str]) -> dict[str, Any]:
    """Figures of a sweep, but of times and sequences."""
    found = result(finish([*words, "--json"]))
    for one in (*found["learners"], found["best"]):
        del one["checkpoint"]
    return {key: found[key] for key in ("learners", "best", "rows", "epochs", "skipped")}


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Two shards of 9,000 rows."""
    folder = tmp_path_factory.mktemp("sweep") / "rows"
    return str(write_shards(folder, shards=2, groups=3))


@pytest.fixture(scope="module")
def undisturbed(rows: str) -> dict[str, Any]:
    """What must come out."""
    return told(["sweep", rows, *WORDS, "--checkpoint", "none"])


@pytest.mark.slow
@pytest.mark.parametrize("at", range(len(CASES)))
def test_killed_it_goes_on_to_the_same_bits(
    at: int, rows: str, undisturbed: dict[str, Any], tmp_path: Path
) -> None:
    """Of every learner, those that were dropped among them."""
    place, landed = Folder(str(tmp_path / "run")), []
    words = ["sweep", rows, *WORDS, "--checkpoint", place.url]
    for instant in CASES[at]:
        base = newest(place)
        process = start(words, tmp_path / "log")
        landed.append(strike(process, place, instant, base))
        words = ["resume", place.url]
    print(*landed, sep="\n")
    assert any(landing.between for landing in landed)
    assert told(["resume", place.url]) == undisturbed
