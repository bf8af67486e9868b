"""A folder that text is read in."""

from __future__ import annotations

from pathlib import Path

import pytest

from streamomd.sources.text import text_cache


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current directory, with a cache of its own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(text_cache.VARIABLE, str(tmp_path / "cache"))
    return tmp_path
