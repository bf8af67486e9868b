"""States that are merged in ranges of coordinates: bit-identical to those merged as a whole."""

from __future__ import annotations

import tracemalloc
from collections.abc import Sequence

import numpy as np
import pytest
import test_merge
import test_merge_block

from streamomd.core.errors import UsageError
from streamomd.engine import Engine
from streamomd.engine.layout import Layout
from streamomd.engine.merge import Ranges, merges_in_ranges, tree
from streamomd.engine.state import State
from streamomd.rules import all_rules

CASES = [
    (name, at)
    for name, at in test_merge.CASES
    if all_rules()[name].storage.kind == "coordinates"
    and not all_rules()[name].reduced_for(test_merge.params_of(name, at)).masses
]
EDGES = (0, 2, 3, 7)


def test_which_rules_are_merged_in_ranges() -> None:
    """All that averaged mode has, but for matrices and sums over all coordinates."""
    whole = set()
    for name, rule in all_rules().items():
        form = rule.reduced_for(rule.parse_params({}))
        if "averaged" in rule.modes and not merges_in_ranges(Layout(form, 4, 1, "float64")):
            whole.add(name)
    matrices = {"aggressive_second_order", "arow", "cw", "ons", "rls", "sop", "vaw", "adagrad_full"}
    sums = {"adagrad_da", "aggressive", "dual_step", "eg", "nag_projected", "ons_diag", "pnorm"}
    assert whole == matrices | sums | {"pnorm_lms", "si_pnorm", "winnow"}


def in_ranges(
    engine: Engine, ranges: Ranges, parts: Sequence[State], start: State, examples: Sequence[int],
    by: str = "examples",
) -> State:  # fmt: skip
    """The pieces of each state, cut and merged in pairs, and joined."""
    found = []
    for number in range(len(ranges)):
        nodes = [
            (ranges.cut(part.copy())[number], n) for part, n in zip(parts, examples, strict=True)
        ]
        begin = ranges.piece(start, number)
        while len(nodes) > 1:
            above = []
            for (a, n), (b, m) in zip(nodes[::2], nodes[1::2], strict=False):
                above.append((ranges.merge(engine, number, (a, b), begin, (n, m), by=by), n + m))
            nodes = above + nodes[len(nodes) - len(nodes) % 2 :]
        found.append(nodes[0][0])
    cells = ranges.joined_cells([piece.cells for piece in found])
    first = found[0]
    return State(start.layout, cells, first.totals, first.clock, first.extra)


@pytest.mark.parametrize("name, at", CASES)
def test_ranges_leave_no_trace(name: str, at: int) -> None:
    """Of every rule whose coordinates merge by themselves, two and three levels of merges."""
    engine, start, parts, examples = test_merge.run(name, at, reduced=True)
    assert merges_in_ranges(engine.layout)
    before = [test_merge.bits(state) for state in (start, *parts)]
    for by in ("examples", "G"):
        for count in (2, 3):
            given = parts[:count], start, examples[:count]
            whole = tree(engine, *given, by=by)
            found = in_ranges(engine, Ranges(EDGES, front=False), *given, by)
            assert test_merge.bits(found) == test_merge.bits(whole)
    assert [test_merge.bits(state) for state in (start, *parts)] == before


@pytest.mark.parametrize("loss", test_merge_block.CLASSES)
@pytest.mark.parametrize("rule", test_merge_block.RULES)
def test_ranges_of_learners_on_standardised_inputs(rule: str, loss: str) -> None:
    """The block's coordinates are in several ranges, and its arrays in a piece of their own."""
    engine, start, parts = test_merge_block.run(rule, loss)
    assert merges_in_ranges(engine.layout)
    size = start.layout.size
    ranges = Ranges((0, 1, size - 2, size - 1, size), front=True)
    assert len(ranges) == 5
    before = [test_merge_block.bits(state) for state in (start, *parts)]
    whole = tree(engine, parts, start, [1] * len(parts))
    found = in_ranges(engine, ranges, parts, start, [1] * len(parts))
    assert test_merge_block.bits(found) == test_merge_block.bits(whole)
    assert [test_merge_block.bits(state) for state in (start, *parts)] == before


def test_other_coordinates_in_a_block_are_refused() -> None:
    """As in a merge of whole states."""
    engine, start, parts = test_merge_block.run("auto", "logistic")
    other = parts[0].copy()
    used = other.used_places
    other.extra["places"][used - 2 : used] = other.extra["places"][used - 2 : used][::-1].copy()
    ranges = Ranges.of(start.layout, 2)
    pieces = [ranges.piece(state, 0) for state in (parts[0], other)]
    with pytest.raises(UsageError, match="other coordinates in its block"):
        ranges.merge(engine, 0, pieces, ranges.piece(start, 0), (1, 1))


@pytest.mark.parametrize("count", [1, 2, 32])
def test_a_cut_state_and_its_pieces_take_the_memory_of_one(count: int) -> None:
    """Its memory is freed from the end on; the pieces hold all cells."""
    layout = Layout(all_rules()["nag"], (1 << 16) + 3, 1, "float64")
    tracemalloc.start()
    try:
        state = State.start(layout)
        expected = state.nbytes
        state.cells[...] = np.arange(len(state.cells))
        ranges = Ranges.of(layout, count)
        tracemalloc.reset_peak()
        pieces = ranges.cut(state)
        held, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert not len(state.cells)
    assert held <= 1.05 * expected
    assert peak <= (1.05 + 1 / count) * expected
    cells = ranges.joined_cells([piece.cells for piece in pieces])
    assert np.array_equal(cells, np.arange(len(cells)))


def test_a_state_with_another_view_is_cut_all_the_same() -> None:
    """Then its memory is freed with that view."""
    layout = Layout(all_rules()["nag"], 10, 1, "float64")
    state = State.start(layout)
    state.cells[...] = np.arange(len(state.cells))
    other = state.cells
    pieces = Ranges.of(layout, 3).cut(state)
    assert np.array_equal(np.concatenate([one.cells for one in pieces]), other)
