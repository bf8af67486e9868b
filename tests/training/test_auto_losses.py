"""The default rule with every loss: train, resume, load and predict."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from estimating import uncompiled
from running import rows, with_column, write

import streamomd
from streamomd.losses import all_losses


@pytest.mark.parametrize("loss", all_losses())
@pytest.mark.sample(5)
def test_every_loss_is_learned_and_resumed(
    loss: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A resumed run has the bits of one that nothing interrupts, and its state is one kind only:
    a loaded model predicts as it did, and better than a constant."""
    uncompiled(monkeypatch)
    described = all_losses()[loss]
    table = rows(60)
    if not described.classifies:
        n = table["n"].to_numpy() / 1000.0
        table = with_column(
            table, "y", np.exp(n / 2.0) if described.least is not None else n + 50.0
        )
    data = write(tmp_path / "data" / "a.parquet", table, row_group_size=20)
    given: dict[str, Any] = {"label": "y", "weight": "w", "numeric": ["n", "k"], "hashed": ["h"]}
    given |= {"ignore": ["c", "i", "v"], "bits": 5, "loss": loss, "quiet": True}
    whole = streamomd.train(str(data), epochs=2, checkpoint="none", **given)
    assert whole.spec.model.rule == "auto"
    url = str(tmp_path / "run")
    streamomd.train(str(data), epochs=1, checkpoint=url, **given)
    resumed = streamomd.resume(url, sets={"train.epochs": 2}, quiet=True)
    assert resumed.state_sha256 == whole.state_sha256
    (file,) = streamomd.load(url).predict(str(data), str(tmp_path / "out"))
    found = pq.read_table(file)
    assert found.num_rows == 60
    constant = 0.5 if described.classifies else float(np.std(table["y"].to_numpy()))
    figures = resumed.result()["epochs"][1]
    assert (figures["error"] if described.classifies else figures["rmse"]) < 0.7 * constant
    expected = whole.predict(str(data), str(tmp_path / "again"))
    assert pq.read_table(expected[0]) == found
