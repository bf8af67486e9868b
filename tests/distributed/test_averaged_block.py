"""Averaged mode of learners on standardised inputs: exact stretches, parts, merges."""

from __future__ import annotations

import hashlib
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from clustered import spread
from distributed import Client

import streamomd
from streamomd.config.spec import Spec
from streamomd.core.errors import StoppedError
from streamomd.distributed import averaged
from streamomd.distributed.averaged import Averaged, rounds_of
from streamomd.engine.merge import tree
from streamomd.engine.state import State
from streamomd.rules import all_rules
from streamomd.shards.order import RowRange
from streamomd.shards.shard import ShardSet
from streamomd.sources.find import find
from streamomd.training import training_step
from streamomd.training.row_stream import rows_of_group

pytestmark = pytest.mark.filterwarnings("ignore")
ROUNDS = {"parts": 3, "rounds_per_epoch": 2, "epochs": 2}
MODEL = {"rule": "auto", "params": {"block": 8}}


def table(data: Path, url: Path, **train: Any) -> dict[str, Any]:
    found: dict[str, Any] = spread(data, url, {**ROUNDS, **train}, model=MODEL)
    return found


def rows_in(ranges: list[RowRange]) -> int:
    return sum(one.rows for one in ranges)


def digest(state: State) -> str:
    found = hashlib.sha256()
    state.digest(found)
    return found.hexdigest()


def literally(given: dict[str, Any]) -> State:
    """The rounds one after the other in this process; rounds of one part take block places."""
    spec = Spec.parse(given)
    shards = find(spec.data.shards)
    assert isinstance(shards, ShardSet)
    model = streamomd.load(spec.checkpoint.url, at=0)
    whole = model.state
    for epoch in range(spec.train.epochs):
        if epoch:
            model.engine.begin_pass(whole)
        for parts in rounds_of(shards, range(len(shards)), spec, epoch):
            states = []
            for stretch in parts:
                state = whole.copy()
                for span in stretch.spans:
                    pieces = rows_of_group(model.plan, span.group, span.begin, span.end, options={})
                    for piece in pieces:
                        batch = piece.value.batch
                        model.engine.learn(state, np.zeros(3), batch, part=len(parts) > 1)
                states.append(state)
            whole = tree(model.engine, states, whole, [1] * len(states))
    return whole


@pytest.mark.slow
def test_it_is_what_it_says_and_resumes(
    data: Path, client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in one process, to the bit, also after a stop within an epoch; near exact mode's loss."""
    took, applied = Averaged._apply, []

    def signalled(self: Any, *given: Any) -> None:
        applied.append(1)
        if len(applied) == 3:
            self.stop.signal = signal.SIGTERM
        took(self, *given)

    given = table(data, tmp_path / "run")
    given["checkpoint"]["keep"] = 99
    with monkeypatch.context() as patch:
        patch.setattr(Averaged, "_apply", signalled)
        with pytest.raises(StoppedError):
            streamomd.train(given, client=client, quiet=True)
    there = streamomd.resume(str(tmp_path / "run"), client=client, quiet=True)
    assert there.finished
    assert digest(there.state) == digest(literally(given))
    alone = {**given, "checkpoint": {"url": "none"}}
    alone["train"] = {"epochs": 2}
    exact = streamomd.train(alone, quiet=True)
    assert there.metrics.rows == exact.metrics.rows
    losses = [model.evaluate(str(data))["loss"] for model in (there, exact)]
    assert losses[0] < 1.01 * losses[1]
    assert there.state.used_places == exact.state.used_places == 8


def test_one_part_is_exact_mode(
    data: Path, client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """But that no pass is undone: that is of exact mode alone."""
    monkeypatch.setattr(training_step, "LEAST", 1 << 62)
    one = table(data, tmp_path / "run", parts=1, rounds_per_epoch=1)
    there = streamomd.train(one, client=client, quiet=True)
    alone = {**one, "checkpoint": {"url": "none"}, "train": {"epochs": 2}}
    assert there.state_sha256 == streamomd.train(alone, quiet=True).state_sha256


def test_rounds_begin_and_end_with_rows_of_one_part(data: Path, tmp_path: Path) -> None:
    """The first ones of the first epoch give the common start; all rows are in one range each."""
    shards = find(str(data))
    assert isinstance(shards, ShardSet)
    spec = Spec.parse(table(data, tmp_path / "run", parts=4))
    first, later = (rounds_of(shards, range(4), spec, epoch) for epoch in (0, 1))
    assert [len(parts) for parts in first] == [1, 4, 1, 4, 1]
    assert [len(parts) for parts in later] == [4, 1, 4, 1]
    rows = [rows_in(parts) for parts in first]
    assert rows[::2] == [averaged.FIRST_ROWS, averaged.EXACT_ROWS, averaged.EXACT_ROWS]
    for rounds in (first, later):
        ranges = [one for parts in rounds for one in parts]
        assert rows_in(ranges) == 4 * 5_000
        assert [one.begin for one in ranges] == sorted(one.begin for one in ranges)


@pytest.mark.parametrize("rule, rounds", [("auto", 16), ("nag", 1)])
def test_how_many_rounds_an_epoch_has(data: Path, tmp_path: Path, rule: str, rounds: int) -> None:
    """What the rule needs, unless the job says."""
    given = table(data, tmp_path / "run")
    del given["train"]["rounds_per_epoch"]
    given["model"] = {"rule": rule}
    assert Spec.parse(given).rounds_per_epoch == rounds
    given["train"]["rounds_per_epoch"] = 3
    assert Spec.parse(given).rounds_per_epoch == 3


def test_few_rows(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fewer than the first stretch, or than the rounds: no range is empty."""
    shards = find(str(data))
    assert isinstance(shards, ShardSet)
    spec = Spec.parse(table(data, tmp_path / "run", rounds_per_epoch=16))
    for first, exact in ((10**6, 256), (19_990, 256), (19_990, 1)):
        monkeypatch.setattr(averaged, "FIRST_ROWS", first)
        monkeypatch.setattr(averaged, "EXACT_ROWS", exact)
        rounds = rounds_of(shards, range(4), spec, 0)
        assert all(one.rows > 0 for parts in rounds for one in parts)
        assert sum(map(rows_in, rounds)) == 4 * 5_000


def test_block_rules_have_no_sharded_mode() -> None:
    blocks = [rule for rule in all_rules().values() if rule.storage.kind == "block"]
    assert {rule.name for rule in blocks} >= {"auto", "laplace", "adagrad_standardized"}
    assert all(rule.modes == ("exact", "averaged") for rule in blocks)
