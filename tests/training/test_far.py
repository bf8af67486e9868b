"""A state left in its checkpoint: the same hash and numbers, however its parts are cut."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import pytest

from streamomd.checkpoint import StoredParts, open_store, write_parts
from streamomd.engine import Engine
from streamomd.engine import state as states
from streamomd.engine.layout import Layout
from streamomd.engine.state import State
from streamomd.losses import find_loss
from streamomd.rules import find_rule
from streamomd.training.microbatch_rounds import Share
from streamomd.training.model_document import RemoteState

SIZE = 103
FOLDER = "000000000001-0123abcd-0123abcd"


@pytest.fixture
def whole(monkeypatch: pytest.MonkeyPatch) -> State:
    """A state of several ranges."""
    monkeypatch.setattr(states, "CHUNK_BYTES", 10 * 32)
    made = State.start(Layout(find_rule("nag"), SIZE, 1, "float64"))
    draw = np.random.default_rng(0)
    for slot, columns in made.layout.columns():
        made.table[:, columns] = draw.normal(size=made.table[:, columns].shape)
        assert slot.name
    made.totals[...] = 7.5
    made.clock = 41
    return made


def sha256(state: State) -> str:
    digest = hashlib.sha256()
    state.digest(digest)
    return digest.hexdigest()


@pytest.mark.parametrize("owners", [1, 2, 3, 16])
def test_far_is_near(whole: State, tmp_path: Path, owners: int) -> None:
    """Put by so many owners, each in ranges of its own; read as one."""
    rule, store = find_rule("nag"), open_store(str(tmp_path))
    engine = Engine(whole.layout, find_loss("logistic"), 2, True, rule.parse_params({}))
    entries = []
    for owner in range(owners):
        mine = range(owner * 16 // owners, (owner + 1) * 16 // owners)
        share = Share.of(engine, 16, mine)
        for low, high, arrays in whole.parts():
            share.fill(low, high, arrays)
        entries += write_parts(store, FOLDER, share.parts())
    put = StoredParts(FOLDER, tuple(entries))
    far = RemoteState(whole.layout, store, put)
    assert (far.clock, far.totals.tolist()) == (41, [[7.5]])
    assert sha256(far) == sha256(whole)
    assert far.stored is put
    assert far.slot("w").tobytes() == whole.slot("w").tobytes()
    assert far.stored is None
    assert sha256(far) == sha256(whole)
    far.cells[0] += 1.0
    assert sha256(far) != sha256(whole)
