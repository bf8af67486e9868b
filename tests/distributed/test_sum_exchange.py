"""The exchange of a round: its bits, its messages and bytes for up to 1,000 owners, its sockets."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from counting_star import Counted, CountingStar, exchange_all, numbers
from hypothesis import given
from hypothesis import strategies as st

from streamomd.core.errors import ClusterError
from streamomd.distributed.sum_exchange import HEAD, SumExchange

SCRIPT = Path(__file__).parents[1] / "support" / "many_owners.py"


def in_order(found: np.ndarray) -> np.ndarray:
    """The partitions added one after the other, as one process does."""
    total = found[0].copy()
    for partition in found[1:]:
        total = total + partition
    return total


@given(parts=st.integers(2, 24), owners=st.integers(2, 24), rows=st.integers(0, 3))
def test_the_sum_is_that_of_one_process(parts: int, owners: int, rows: int) -> None:
    """To the bit, at each owner, for any number of them."""
    found = numbers(parts, rows, 2)
    sums, _ = exchange_all(min(owners, parts), parts, found)
    assert len(sums) == min(owners, parts)
    assert {one.tobytes() for one in sums} == {in_order(found).tobytes()}


@pytest.mark.parametrize(
    "owners, parts", [(2, 16), (3, 16), (8, 16), (16, 16), (100, 100), (400, 1000), (1000, 1000)]
)
@pytest.mark.parametrize("rows", [1, 256])
def test_messages_and_bytes_of_a_round(owners: int, parts: int, rows: int) -> None:
    """The formulas of docs/modes.md: 2 (K - 1) messages, one each way for each owner but the
    leader; 8 B bytes for each partition of the others, 8 B for each sum, 16 a message."""
    _, counted = exchange_all(owners, parts, numbers(parts, rows))
    others, own = owners - 1, parts // owners
    head = HEAD.size
    assert sum(counted.messages.values()) == 2 * others
    assert sum(counted.bytes.values()) == 8 * rows * (parts - own + others) + 2 * others * head
    assert counted.messages[0] == others
    assert counted.bytes[0] == others * (8 * rows + head)
    for owner in range(1, owners):
        most = -(-parts // owners)
        assert counted.peers[owner] == {0}
        assert counted.messages[owner] == 1
        assert counted.bytes[owner] <= 8 * rows * most + head


def test_owners_in_other_rounds_are_named() -> None:
    """A message of another round, or of other rows: an error that names the owner."""
    for rows, sent in ((3, 1), (2, 2)):
        counted = Counted()
        leader, other = (SumExchange(CountingStar(owner, 2, counted), 2) for owner in (0, 1))
        for _ in range(sent):
            counted.boxes.clear()
            other.send(np.zeros((1, rows, 1)))
        with pytest.raises(ClusterError, match="owner 1 is not in round 1"):
            leader.add_all(np.zeros((1, 2, 1)), 0)


@pytest.mark.parametrize("owners", [8, 400])
def test_owners_in_processes(owners: int, tmp_path: Path) -> None:
    """ZeroMQ with CURVE: a leader process that may open one descriptor per owner and 64 more, and
    processes of 100 owners each (``ulimit -n 1024``). Rounds have the sum of one process, and the
    messages and bytes that are counted above."""
    limit = owners + 64
    command = [sys.executable, str(SCRIPT), "lead", str(owners), str(limit), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    found = json.loads(done.stdout.splitlines()[-1])
    sums, counted = exchange_all(owners, owners, numbers(owners, 16))
    assert found["owners"] == owners
    assert found["descriptors"] < limit
    assert found["sums"] == [sums[0].tobytes().hex()]
    assert found["messages"] == sum(counted.messages.values()) == 2 * (owners - 1)
    assert found["bytes"] == sum(counted.bytes.values())
