"""``plan`` says whether curves and pairs would lower the loss of the first rows."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from running import run, write

from streamomd.training import choose_shapes

ROWS = 3_000


@pytest.mark.parametrize("shape", ["curve", "line", "few"])
def test_a_line_says_by_how_much(
    shape: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of rows that are not linear in a column; not of a line, of few rows, or where they are on. It
    names trees, where they can be grown."""
    count = 500 if shape == "few" else ROWS
    x = np.random.default_rng(0).normal(size=count)
    y = 2 * x if shape == "line" else np.sin(3 * x)
    y += 0.1 * np.random.default_rng(1).normal(size=count)
    shard = write(tmp_path / "0.parquet", {"x": x, "y": y}, row_group_size=700)
    words = [shard, "--label", "y", "--task", "regress", "--rule", "nag"]
    line = "curved columns: --shapes columns lowers the loss of rows 1,501 to 3,000 by "
    assert (line in run("plan", *words).out) == (shape == "curve")
    trees = "%; --shapes all also grows boosted trees, whose gain was not measured\n"
    assert (trees in run("plan", *words).out) == (shape == "curve")
    if shape == "curve":
        monkeypatch.setattr(choose_shapes, "find_spec", lambda _: None)
        assert line in run("plan", *words).out
        assert trees not in run("plan", *words).out
    assert "curved columns" not in run("plan", *words, "--shapes", "columns").out


@pytest.mark.parametrize("curved", [False, True])
def test_a_line_says_by_how_much_pairs_do(curved: bool, tmp_path: Path) -> None:
    """Next to curves, or alone, of categories, too."""
    draw = np.random.default_rng(0)
    x, h = draw.normal(size=ROWS), draw.integers(0, 2, (2, ROWS))
    y = 3.0 * (h[0] == h[1]) + 0.1 * draw.normal(size=ROWS) + (np.sin(3 * x) if curved else 0.0)
    a, b = ([f"v{k}" for k in one] for one in h)
    table = {"a": a, "b": b, "y": y} | ({"x": x} if curved else {})
    shard = write(tmp_path / "0.parquet", table, row_group_size=700)
    out = run("plan", shard, "--label", "y", "--task", "regress", "--rule", "nag").out
    rows = "lowers the loss of rows 1,501 to 3,000 by"
    if curved:
        assert re.search(
            rf"curved columns: --shapes columns {rows} \d+%, --shapes pairs by 9\d%", out
        )
    else:
        assert re.search(rf"pairs of columns: --shapes pairs {rows} (99|100)%", out)
