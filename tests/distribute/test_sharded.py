"""Owners on workers: the bits of one process, whatever is lost on the way."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from clustered import long, sized
from distributed import Client, LocalCluster
from gangs import told

import streamomd
from streamomd.errors import UsageError

# Dask's own warnings of workers that die are what is provoked here.
pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(scope="module")
def one(data: Path) -> dict[int, Any]:
    """The runs of one process, by B."""
    found: dict[int, Any] = {}

    class Alone(dict[int, Any]):
        def __missing__(self, rows: int) -> Any:
            found[rows] = streamomd.train(told(data, "none", rows), quiet=True)
            self[rows] = found[rows]
            return found[rows]

    return Alone()


@pytest.mark.parametrize("owners", [2, *long(1, 3, 4)])
@pytest.mark.parametrize("rows", [256, *long(1, 4096)])
def test_owners_leave_no_trace(
    data: Path,
    one: Any,
    client: Client,
    workers: LocalCluster,
    tmp_path: Path,
    owners: int,
    rows: int,
) -> None:
    """P = 16: the bits and figures of one process."""
    sized(workers, owners)
    url = tmp_path / "kept"
    there = streamomd.train(told(data, url, rows, every_rows=7000), client=client, quiet=True)
    assert there.state_sha256 == one[rows].state_sha256
    assert there.result()["epochs"] == one[rows].result()["epochs"]
    assert there.inspect(5) == one[rows].inspect(5)
    kept = streamomd.load(str(url))
    assert kept.state_sha256 == one[rows].state_sha256
    assert kept.finished
    sized(workers, 2)


def test_owners_need_a_checkpoint(data: Path, client: Client) -> None:
    """Said before a row is read."""
    with pytest.raises(UsageError, match="needs a checkpoint"):
        streamomd.train(told(data, "none"), client=client, quiet=True)
