"""A row group that changed while it is learned over a cluster: exit 3, and no commit has it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from clustered import ROWS, long
from distributed import Client
from flipping import flip
from mode_runs import table

import streamomd
from streamomd.checkpoint import open_store, read_commit, read_ledger
from streamomd.core.errors import ChangedDataError

# Dask warns where another cluster of this machine has the port of its dashboard.
pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture
def own(data: Path, tmp_path: Path) -> Path:
    """Shards that may be changed."""
    return Path(shutil.copytree(data, tmp_path / "own"))


def cursors(url: Path) -> list[tuple[int, int, int]]:
    """Where the commits stand."""
    told = (json.loads(path.read_text().splitlines()[0]) for path in (url / "commits").iterdir())
    at = [one["document"]["cursor"] for one in told]
    return sorted((one["epoch"], one["place"], one["row"]) for one in at)


@pytest.mark.parametrize("mode", ["decoders", "averaged", *long("sharded", "learner")])
def test_a_change_between_epochs(mode: str, own: Path, client: Client, tmp_path: Path) -> None:
    """The first epoch's commits have the digests that workers found; the second stops before the
    changed row group."""
    url = tmp_path / "run"
    job = table(mode, own, url)
    job["train"] = {**job["train"], "epochs": 1}
    learned = streamomd.train(job, client=client, quiet=True)
    found = {
        *read_ledger(store := open_store(str(url)), read_commit(store, learned.sequence)).digests()
    }
    assert len({(name, group) for name, group, _ in found}) == len(found) == 4 * 6
    flip(own / "2.parquet", group=1)
    with pytest.raises(ChangedDataError, match=r"2\.parquet, row group 1"):
        streamomd.resume(str(url), client=client, sets={"train.epochs": 2}, quiet=True)
    assert cursors(url)[-1] <= (1, 2, 900)
    flip(own / "2.parquet", group=1)
    again = streamomd.resume(str(url), client=client, sets={"train.epochs": 2}, quiet=True)
    assert again.metrics.total_rows == 2 * 4 * ROWS
