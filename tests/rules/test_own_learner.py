"""The plug-in of docs/write-your-own-learner.md: algorithm 1 of P0, in 60 lines."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from documented import ROOT, blocks

import streamomd
from streamomd import rules
from streamomd.rules import contract
from streamomd.testing import check_rule

CODE, CHECK = (
    block.text for block in blocks(ROOT / "docs" / "write-your-own-learner.md")
    if block.language == "python"
)  # fmt: skip


@pytest.fixture(scope="module")
def plugin(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """The page's first block as a module of that name."""
    file = tmp_path_factory.mktemp("plugin") / "my_omd.py"
    file.write_text(CODE)
    spec = importlib.util.spec_from_file_location("my_omd", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["my_omd"] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules["my_omd"]


@pytest.fixture(scope="module")
def oracle(plugin: Any) -> Any:
    """The oracle of its second block, without the call that the page's own test runs compiled."""
    names: dict[str, Any] = {}
    exec(CHECK.partition("check_rule(RULE")[0], names)
    return names["oracle"]


def test_it_is_short() -> None:
    """Sixty lines at most, docstring and imports included."""
    assert len(CODE.splitlines()) <= 60


def test_it_is_its_literal_oracle(plugin: Any, oracle: Any) -> None:
    check_rule(plugin.RULE, oracle, compiled=False)


def test_its_mirror_map_depends_on_the_data(plugin: Any) -> None:
    """Equal dual weights give other weights after other rows."""
    h = plugin.Hyper()
    weights = {
        plugin.weight(plugin.Own(2.0), plugin.Shared(S), (), 1.0, h) for S in (0.0, 1.0, 3.0)
    }
    assert weights == {2.0, 1.0, 0.5}


def test_its_z_is_no_subgradient(plugin: Any) -> None:
    """It is the same whatever was predicted, also where the gradient of the loss is 0."""
    row = contract.Row(3.0, 3.0, 1.0, loss=0.0, slope=0.0, q=(), r=())
    assert plugin.step(row, (), 1.0, plugin.Hyper()) == (True, plugin.Move(3.0), ())


def subgradient(row: Any, totals: Any, clock: float, h: Any) -> Any:
    z = -row.importance * row.slope
    return z != 0.0, (z,), totals


def test_another_z_or_map_is_found(plugin: Any, oracle: Any) -> None:
    """With the subgradient for z, or the next row's map, it is not the oracle."""

    def late(own: Any, shared: Any, totals: Any, clock: float, h: Any) -> float:
        return float(plugin.weight(own, plugin.Shared(0.5 * shared.S), totals, clock, h))

    def step(*given: Any) -> Any:
        active, move, totals = subgradient(*given)
        return active, plugin.Move(*move), totals

    for mutant in (replace(plugin.RULE, step=step), replace(plugin.RULE, weight=late)):
        with pytest.raises(AssertionError, match="by the oracle as"):
            check_rule(mutant, oracle, compiled=False)


def test_it_trains_by_name(plugin: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As an entry point it is a rule like any other: trained, saved, loaded."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((300, 2))
    pq.write_table(
        pa.table({"a": X[:, 0], "b": X[:, 1], "y": X @ [1.0, -2.0]}), tmp_path / "d.parquet"
    )
    monkeypatch.setattr(rules, "load", lambda group: [plugin.RULE])
    monkeypatch.setattr(rules, "offers", lambda group: True)
    rules.all_rules.cache_clear()
    rules._own.cache_clear()
    try:
        url = str(tmp_path / "run")
        flags = {"label": "y", "numeric": ["a", "b"], "loss": "square", "checkpoint": url}
        trained = streamomd.train(str(tmp_path / "d.parquet"), rule="my_omd", quiet=True, **flags)
        model = streamomd.load(url)
        weights = model.engine.weights(model.state, 0, 3)[:, 0]
        np.testing.assert_allclose(weights, [0.0, 1.0, -2.0], atol=0.2)
        assert trained.result()["state_sha256"] == model.result()["state_sha256"]
    finally:
        monkeypatch.undo()
        rules.all_rules.cache_clear()
        rules._own.cache_clear()
