"""A run, and a server of it, for the tests of what it responds."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from http_serving import Served, served, snapshot
from running import everything, shards, train

import streamomd
from streamomd.integrations.serve.request_rows import Limits


@pytest.fixture(scope="module")
def run_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run, its shards, and its predictions."""
    folder = tmp_path_factory.mktemp("serve") / "secret-place"
    shards(folder / "data")
    train(folder / "data", *everything(), "--checkpoint", folder / "run")
    model = streamomd.load(str(folder / "run"))
    model.predict([str(folder / "data")], to=str(folder / "out"))
    return folder


@pytest.fixture(scope="module")
def server(run_folder: Path) -> Iterator[Served]:
    """A server of the run."""
    limits = Limits(body=100_000, rows=50, explained=5, explained_body=50_000)
    with served(snapshot(streamomd.load(str(run_folder / "run"))), limits=limits) as found:
        yield found
