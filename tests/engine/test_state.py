"""States: what parts give, fill takes back; the hash sees every number and nothing else."""

from __future__ import annotations

import hashlib
import sys
from itertools import product

import numpy as np
import pytest
from dask.sizeof import sizeof
from helpers import Learner, some_pairs, sparse

from streamomd.core.errors import TooLargeError
from streamomd.engine import state as state_module
from streamomd.engine.layout import CACHE_LINE, Layout
from streamomd.engine.state import State
from streamomd.rules import all_rules, find_rule

KINDS = [("nag", "logistic"), ("rls", "square"), ("dual_ascent", "hinge")]  # of what is kept


def learned(rule: str, loss: str, dtype: str, classes: int) -> State:
    """A state with something in every slot that the rule moves."""
    rng, n = np.random.default_rng(0), 6 if all_rules()[rule].storage.kind == "recent" else 40
    y = rng.integers(0, classes, n).astype(float) if classes > 2 else np.sign(rng.normal(size=n))
    learner = Learner(rule, loss, 9, classes=classes, dtype=dtype, compiled=False)
    learner.learn(sparse(rng.normal(size=(n, 9)), y))
    return learner.state


def sha(state: State) -> str:
    """The state's hash."""
    digest = hashlib.sha256()
    state.digest(digest)
    return digest.hexdigest()


@pytest.mark.parametrize("classes, dtype", [(2, "float32"), (3, "float64")])
@pytest.mark.parametrize("rule, loss", list(some_pairs()))
@pytest.mark.sample(4)
def test_parts_are_the_state(rule, loss, classes, dtype, monkeypatch) -> None:
    """A state filled from another's parts, however many, has its bits."""
    one = learned(rule, loss, dtype, classes)
    monkeypatch.setattr(state_module, "CHUNK_BYTES", 4 * one.layout.row_bytes)
    other = State.start(one.layout)
    parts = list(one.parts())
    for part in parts:
        other.fill(*part)

    assert len(parts) == 3
    assert sha(other) == sha(one)
    assert other.table[:, : one.layout.used].tobytes() == one.table[:, : one.layout.used].tobytes()
    assert (other.clock, other.totals.tobytes()) == (one.clock, one.totals.tobytes())


@pytest.mark.parametrize("rule, loss", list(some_pairs()))
@pytest.mark.sample(3)
def test_the_hash_sees_every_number(rule, loss) -> None:
    """One bit more in any slot, total or the clock is another hash; padding is not seen."""
    state = learned(rule, loss, "float64", 2)
    seen = {sha(state)}
    for column in range(state.layout.used):
        state.table[5, column] = np.nextafter(state.table[5, column], np.inf)
        seen.add(sha(state))
    for at in range(state.totals.size):
        state.totals.reshape(-1)[at] += 1.0
        seen.add(sha(state))
    state.clock += 1
    seen.add(sha(state))
    state.table[:, state.layout.used :] = 7.0
    seen.add(sha(state))

    assert len(seen) == 1 + state.layout.used + state.totals.size + 1


@pytest.mark.parametrize("learners", [1, 2, 3, 7, 16])
def test_a_coordinate_straddles_no_line_it_could_avoid(learners) -> None:
    """Cells begin on a cache line, and a coordinate's row divides a line or fills whole ones."""
    wrong = []
    for rule, dtype in product(all_rules().values(), ("float64", "float32")):
        layout = Layout(rule, 5, learners, dtype, numeric=2, most=4)
        row = layout.width * np.dtype(dtype).itemsize
        aligned = State.start(layout).cells.ctypes.data % CACHE_LINE == 0
        divides = CACHE_LINE % row == 0 or row % CACHE_LINE == 0
        if not (aligned and divides and layout.used <= layout.width):
            wrong.append((rule.name, dtype, row))
    assert not wrong


def test_slots_start_where_they_say() -> None:
    """Every slot of a new state is at its declared start."""
    for rule in all_rules().values():
        state = State.start(Layout(rule, 4, 3, "float64", numeric=2, most=3))
        for slot, columns in state.layout.columns():
            assert np.all(state.table[:, columns] == slot.start)


@pytest.mark.parametrize("rule, loss", KINDS)
def test_a_copy_has_the_numbers_and_none_of_the_memory(rule, loss) -> None:
    """Also of arrays other than the cells; and its cells begin on a cache line."""
    state = learned(rule, loss, "float64", 3)
    copy = state.copy()
    assert sha(copy) == sha(state)
    assert copy.cells.ctypes.data % CACHE_LINE == 0
    assert copy.extra.keys() == state.extra.keys()
    arrays = [(copy.cells, state.cells), (copy.totals, state.totals)]
    arrays += [(copy.extra[name], state.extra[name]) for name in state.extra]
    assert not any(np.shares_memory(*pair) for pair in arrays)


def test_a_block_is_a_view() -> None:
    """What is written to a block is written to the state, at its coordinates."""
    state = learned("nag", "logistic", "float64", 3)
    expected = state.copy()
    expected.slot("w")[3:5] = 7.0
    block = state.block(3, 5)
    assert np.array_equal(block.slot("s"), state.slot("s")[3:5])
    block.slot("w")[...] = 7.0
    assert sha(state) == sha(expected)


@pytest.mark.parametrize("rule, loss", KINDS)
def test_a_state_says_how_large_it_is(rule, loss) -> None:
    """Python and Dask are told of the bytes in its arrays."""
    state = learned(rule, loss, "float64", 2)
    arrays = (state.cells, state.totals, *state.extra.values())
    held = sum(array.size * array.itemsize for array in arrays)
    for told in (sys.getsizeof(state), sizeof(state)):
        assert held <= told <= held + 200


def test_too_large_a_copy_says_how_large(monkeypatch) -> None:
    """As too large a state does."""
    state = learned("nag", "logistic", "float64", 2)

    def none(count: int, dtype: str) -> None:
        raise MemoryError

    monkeypatch.setattr(state_module, "aligned", none)
    with pytest.raises(TooLargeError, match="9 coordinates of nag"):
        state.copy()


def test_too_large_a_state_says_how_large() -> None:
    """Memory that is not there is asked for once, and named in GiB."""
    with pytest.raises(TooLargeError, match="GiB"):
        State.start(Layout(find_rule("nag"), 2**31 - 1, 10_000, "float64"))
