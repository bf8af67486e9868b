"""Which footers are read to find shards."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import pytest

from streamomd.shards import read_footers


def note_footers(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the files whose footers are read from now on."""
    read: list[str] = []
    own: Callable[..., Any] = read_footers.read_shard

    def noted(fs: Any, path: str, *given: Any, **more: Any) -> Any:
        read.append(os.path.basename(path))
        return own(fs, path, *given, **more)

    monkeypatch.setattr(read_footers, "read_shard", noted)
    return read
