"""The exchange of a round: its bits, its messages and bytes for up to 1,000 owners."""

from __future__ import annotations

import math

import numpy as np
import pytest
from counting_star import Counted, CountingStar, exchange_all, numbers, shares_of
from hypothesis import given, settings
from hypothesis import strategies as st

from streamomd.core.errors import ClusterError
from streamomd.distributed.exchange import SumExchange
from streamomd.engine.micro_batches import HEAD


def in_order(found: np.ndarray) -> np.ndarray:
    """The partitions added one after the other, as one process does."""
    total = found[0].copy()
    for partition in found[1:]:
        total = total + partition
    return total


@settings(deadline=None)  # of the first call, which compiles
@given(
    parts=st.integers(2, 24),
    owners=st.integers(1, 24),
    rows=st.integers(0, 9),
    touched=st.sampled_from([0.0, 0.2, 1.0]),
    moves=st.sampled_from([0.0, 0.5, 1.0]),
)
def test_the_sum_is_that_of_one_process(
    parts: int, owners: int, rows: int, touched: float, moves: float
) -> None:
    """To the bit, for any number of owners; each receives the steps of the rows that it has
    entries of, and no others move."""
    sensed = numbers(parts, rows, 2, touched)
    found = exchange_all(min(owners, parts), sensed, moves)
    assert found.total.tobytes() == in_order(sensed.numbers).tobytes()
    others = shares_of(sensed, min(owners, parts))[1:]
    for share, steps in zip(others, found.received, strict=True):
        active = share.touched.any(axis=0) & (found.steps[:, 0, 0] != 0.0)
        assert (steps[:, 0, 0] == active).all()
        assert steps[active].tobytes() == found.steps[active].tobytes()


@pytest.mark.parametrize("touched, moves", [(1.0, 1.0), (0.1, 0.6), (0.0, 1.0)])
@pytest.mark.parametrize(
    "owners, parts", [(2, 16), (3, 16), (8, 16), (16, 16), (100, 100), (400, 1000), (1000, 1000)]
)
@pytest.mark.parametrize("rows", [1, 256])
def test_messages_and_bytes_of_a_round(
    owners: int, parts: int, rows: int, touched: float, moves: float
) -> None:
    """The formulas of docs/cost-model.md: 2 (K - 1) messages, one each way for each owner but the
    leader, of words of 8 bytes. Up: a head, a bit for each cell (partition, row), n words for each
    cell with an entry. Down: a head, a bit for each touched row, totals and sums, m words for each
    touched row that moves."""
    sensed = numbers(parts, rows, 1, touched)
    found = exchange_all(owners, sensed, moves)
    counted, moving = found.counted, found.steps[:, 0, 0] != 0.0
    shares = shares_of(sensed, owners)[1:]
    down = 0
    for owner, share in enumerate(shares, start=1):
        assert counted.peers[owner] == {0}
        assert counted.messages[owner] == 1
        entries, cells = int(share.touched.sum()), share.touched.size
        assert counted.bytes[owner] == 8 * (HEAD + entries + math.ceil(cells / 64))
        here = share.touched.any(axis=0)
        moved, bits = int((here & moving).sum()), math.ceil(int(here.sum()) / 64)
        down += 8 * (HEAD + 1 + 3 + moved + bits)
    assert counted.messages[0] == owners - 1
    assert counted.bytes[0] == down


def test_owners_in_other_rounds_are_named() -> None:
    """A message of another round, or of other rows: an error that names the owner."""
    for rows, sent in ((3, 1), (2, 2), (20, 1)):
        counted = Counted()
        leader, other = (SumExchange(CountingStar(owner, 2, counted), 2) for owner in (0, 1))
        for _ in range(sent):
            counted.boxes.clear()
            other.send(numbers(1, rows))
        with pytest.raises(ClusterError, match="owner 1 is not in round 1"):
            leader.add_all(numbers(1, 2))


def test_a_leader_with_other_rows_is_named() -> None:
    """Its steps do not fit those that this owner asked for."""
    counted = Counted()
    leader, other = (SumExchange(CountingStar(owner, 2, counted), 2) for owner in (0, 1))
    other.send(numbers(1, 3))
    leader.add_all(numbers(1, 3))
    leader.send_steps(np.ones((3, 1, 4)), np.zeros((1, 1)), np.zeros(3), 0)
    with pytest.raises(ClusterError, match="owner 0 is not in round 1"):
        other.receive_steps(np.empty((3, 1, 2)), np.empty((1, 1)), np.empty(3))
