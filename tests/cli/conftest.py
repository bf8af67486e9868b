"""The folder that tests of commands run in."""

from __future__ import annotations

from pathlib import Path

import pytest
from running import shards


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current directory, with three shards of 40 rows in ``data``."""
    monkeypatch.chdir(tmp_path)
    shards(tmp_path / "data")
    return tmp_path


@pytest.fixture
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty current directory, with a cache of its own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("STREAMOMD_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path
