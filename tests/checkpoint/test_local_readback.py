"""A file of a commit is read back before an older commit may be deleted for it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from streamomd.checkpoint.stores import local

DATA = bytes(range(256)) * 3


@pytest.mark.parametrize(
    "there",
    [DATA[:-1], DATA + b"x", DATA[:300] + b"?" + DATA[301:], b"", DATA[256:] + DATA[:255] + b"?"],
)
@pytest.mark.parametrize("block", [100, 256, 768, 1 << 20])
def test_other_bytes_are_an_error(
    there: bytes, block: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Shorter, longer, or different anywhere, whatever is read at a time."""
    monkeypatch.setattr(local, "BLOCK", block)
    path = tmp_path / "file"
    for found in (DATA, there):
        path.write_bytes(found)
        handle = os.open(path, os.O_RDONLY)
        try:
            if found == DATA:
                local._compare(handle, DATA)
            else:
                with pytest.raises(OSError, match="differ"):
                    local._compare(handle, DATA)
        finally:
            os.close(handle)
