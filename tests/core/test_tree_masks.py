"""Masks of leaves give the margins of a walk from the roots, bit by bit."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from streamomd.core import tree_masks
from streamomd.core.tree_masks import LeafMasks

THRESHOLDS = np.array([-1.5, -0.5, -0.0, 0.5, 2.0])


def grown(draw: Any, trees: int, columns: int) -> list[np.ndarray]:
    """Random trees of up to 32 leaves as flat nodes; some are one leaf."""
    nodes: list[list[Any]] = []

    def add(leaves: int) -> None:
        if leaves == 1:
            nodes.append([-1, draw.normal(), 0, 0])
            return
        at, left = len(nodes), int(draw.integers(1, leaves))
        nodes.append([int(draw.integers(columns)), draw.choice(THRESHOLDS), 0, draw.integers(2)])
        add(left)
        nodes[at][2] = len(nodes)
        add(leaves - left)

    roots = [0]
    for _ in range(trees):
        add(int(draw.choice([1, 2, 7, 32])))
        roots.append(len(nodes))
    kinds = np.int32, np.float64, np.int32, np.int8
    arrays = [
        np.array(one, kind) for one, kind in zip(zip(*nodes, strict=True), kinds, strict=True)
    ]
    return [*arrays, np.array(roots, np.int64)]


def walked(nodes: list[np.ndarray], row: list[float], margins: int) -> list[float]:
    """The margins of a row, node by node."""
    feature, value, right, nan_left, roots = (one.tolist() for one in nodes)
    found = margins * [0.0]
    for tree, node in enumerate(roots[:-1]):
        while feature[node] >= 0:
            x = row[feature[node]]
            left = nan_left[node] if math.isnan(x) else x <= value[node]
            node = node + 1 if left else right[node]
        found[tree % margins] += value[node]
    return found


@pytest.mark.parametrize(("trees", "margins"), [(1, 1), (70, 1), (130, 1), (66, 3)])
def test_margins_are_those_of_a_walk(
    trees: int, margins: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    draw = np.random.default_rng(trees)
    nodes = grown(draw, trees, 4)
    rows = draw.choice([*THRESHOLDS, -7.0, 0.1, 9.0, math.nan, -math.inf], (40, 5))
    masks = LeafMasks.of(*nodes)
    expected = [walked(nodes, row, margins) for row in rows.tolist()]
    monkeypatch.setattr(tree_masks, "BLOCK", 16)
    for ready in (tree_masks.add_margins, None):
        made = SimpleNamespace(ready=ready, compiled_after=lambda _, ready=ready: ready)
        monkeypatch.setattr(tree_masks, "margin_adder", lambda made=made: made)
        assert [masks.margins_of(row, margins) for row in rows.tolist()] == expected
        assert masks.margins_of_rows(rows, margins).tolist() == expected
        assert masks.margins_of_rows(rows[:0], margins).shape == (0, margins)


def test_trees_of_one_leaf_add_it() -> None:
    one = [np.array([-1, -1], np.int32), np.array([0.5, 2.0]), *np.zeros((2, 2), np.int8)]
    masks = LeafMasks.of(one[0], one[1], one[2].astype(np.int32), one[3], np.arange(3))
    assert masks.margins_of([math.nan], 1) == [2.5]


def test_no_trees_have_margins_of_zero() -> None:
    none = [np.empty(0, kind) for kind in (np.int32, np.float64, np.int32, np.int8)]
    masks = LeafMasks.of(*none, np.zeros(1, np.int64))
    assert masks.margins_of([1.0], 2) == [0.0, 0.0]
    assert not masks.margins_of_rows(np.ones((3, 1)), 2).any()


def test_more_leaves_are_refused() -> None:
    chain = [[0, float(at), 2 * at + 2, 0] for at in range(32)]
    nodes = [one for pair in ((inner, [-1, 1.0, 0, 0]) for inner in chain) for one in pair]
    nodes.append([-1, 1.0, 0, 0])
    kinds = np.int32, np.float64, np.int32, np.int8
    arrays = [
        np.array(one, kind) for one, kind in zip(zip(*nodes, strict=True), kinds, strict=True)
    ]
    with pytest.raises(ValueError, match="more leaves"):
        LeafMasks.of(*arrays, np.array([0, len(nodes)], np.int64))
