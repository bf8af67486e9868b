"""Averaged mode with states that are merged in pieces: bit-identical to whole ones."""

from __future__ import annotations

import os
import signal
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from clustered import long, sized, spread
from distributed import Client, LocalCluster

import streamomd
from streamomd.distributed import averaged_worker
from streamomd.distributed.averaged_worker import ranges_of
from streamomd.distributed.round_tasks import merge_tree, place_parts, walk
from streamomd.engine.layout import Layout
from streamomd.rules import all_rules

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """The states of these tests are merged in eight pieces."""
    monkeypatch.setattr(averaged_worker, "PIECE_BYTES", 1 << 10)
    monkeypatch.setattr(averaged_worker, "MOST_PIECES", 8)


@pytest.mark.parametrize(
    ("rule", "workers_"), long(("nag", 1), ("nag", 4), ("auto", 2), ("laplace", 3))
)
def test_states_merged_in_pieces_are_bit_identical(
    data: Path, workers: LocalCluster, tmp_path: Path, rule: str, workers_: int,
    monkeypatch: pytest.MonkeyPatch, small_pieces: None,
) -> None:  # fmt: skip
    """Whatever the rule's states are made of, on any number of workers (two: test_round_start)."""
    model = {"rule": rule}
    sized(workers, workers_)
    with Client(workers, set_as_default=False) as client:
        found = streamomd.train(
            spread(data, tmp_path / "run", model=model), client=client, quiet=True
        )
        seen = client.run_on_scheduler(lambda dask_scheduler: sorted(dask_scheduler.task_prefixes))
        assert {"omd-piece", "omd-join"} <= {*seen}
        monkeypatch.setattr(averaged_worker, "MOST_PIECES", 0)
        whole = streamomd.train(
            spread(data, tmp_path / "whole", model=model), client=client, quiet=True
        )
    sized(workers, 2)
    assert found.state_sha256 == whole.state_sha256
    assert found.result()["loss"] == whole.result()["loss"]
    assert found.names.seen() == whole.names.seen()


@pytest.mark.slow
@pytest.mark.parametrize("prefix", ["omd-part", "omd-piece", "omd-merge", "omd-join"])
def test_a_worker_that_dies_while_pieces_are_merged(
    data: Path, workers: LocalCluster, client: Client, tmp_path: Path, expected: str,
    monkeypatch: pytest.MonkeyPatch, small_pieces: None, prefix: str,
) -> None:  # fmt: skip
    """Its tasks run again: the same result."""
    submit, struck = client.submit, list[int]()

    def submitting(*given: Any, key: str, **more: Any) -> Any:
        found = submit(*given, key=key, **more)
        if key.startswith(prefix) and not struck:
            pids = client.run(os.getpid)
            struck.append(min(pids.values()))
            threading.Timer(0.2, os.kill, [struck[0], signal.SIGKILL]).start()
        return found

    monkeypatch.setattr(client, "submit", submitting)
    found = streamomd.train(spread(data, tmp_path / "run"), client=client, quiet=True)
    assert struck
    assert found.state_sha256 == expected
    sized(workers, 0)
    sized(workers, 2)


@pytest.mark.parametrize("workers", [1, 2, 3, 8, 16])
@pytest.mark.parametrize("pieces", [1, 4, 8, 32])
@pytest.mark.parametrize("parts", [1, 2, 7, 16, 48])
def test_where_pieces_are_merged(parts: int, pieces: int, workers: int) -> None:
    """On a worker that has the piece of one of both; all workers merge about as many at a level;
    the tree is that of neighbours, and its last merge of the first piece is on the first worker."""
    places = place_parts({f"w{number:02d}": 1 for number in range(workers)}, parts)
    root = merge_tree(places, pieces)
    nodes = [*walk(root)]
    assert [node.places[0] for node in nodes if not node.below] == places
    assert len(nodes) == 2 * parts - 1
    for node in nodes:
        for piece, place in enumerate(node.places):
            assert not node.below or place in {one.places[piece] for one in node.below}
        assert node.is_local == (len({*sum((one.places for one in leaves(node)), ())}) == 1)
    assert root.places[0] == places[0]
    if parts == workers and parts.bit_count() == 1:  # each worker merges as many at the end
        share = pieces / min(workers, pieces)
        assert {*Counter(root.places).values()} == {share}


def leaves(node: Any) -> list[Any]:
    return [one for one in walk(node) if not one.below]


def test_which_states_are_merged_in_pieces() -> None:
    """Those of at least 64 MiB, in a power of two of pieces of at least 16 MiB, at most 32."""
    rule = all_rules()["nag"]
    sizes = [ranges_of(Layout(rule, 1 << bits, 1, "float64")) for bits in (18, 20, 21, 24, 30)]
    assert [None if one is None else len(one) for one in sizes] == [None, None, 4, 32, 32]
    block = ranges_of(Layout(all_rules()["auto"], 1 << 24, 1, "float64", 3, 64))
    assert block is not None
    assert len(block) == 1 + 32
    assert ranges_of(Layout(all_rules()["eg"], 1 << 24, 1, "float64")) is None
