"""Entry points are found in the folders of metadata, or assumed where that is no proof."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from streamomd.core.installed import may_offer

TEXT = "[console_scripts]\nx = y:z\n\n[streamomd.rules]\nmine = own:RULE\n"


@pytest.mark.parametrize("suffix, text, found", [
    (".dist-info", TEXT, True), (".egg-info", TEXT, True), (".other", TEXT, False),
    (".dist-info", "[console_scripts]\nstreamomd.rules = a:b\n", False),
    (".dist-info", None, False),
])  # fmt: skip
def test_groups_of_installed_packages(
    suffix: str, text: str | None, found: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A group of ours in any package's entry points, and nothing else."""
    folder = tmp_path / f"own-1.0{suffix}"
    folder.mkdir()
    if text is not None:
        (folder / "entry_points.txt").write_text(text)
    monkeypatch.setattr(sys, "path", ["/no/such/folder", str(tmp_path)])
    assert may_offer("streamomd.") == found


def test_what_is_not_known_is_assumed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Packages in an archive, or of another finder, are left to `importlib.metadata`."""
    archive = tmp_path / "packages.zip"
    archive.write_bytes(b"PK")
    monkeypatch.setattr(sys, "path", [str(archive)])
    assert may_offer("streamomd.")
    monkeypatch.setattr(sys, "path", [])
    assert not may_offer("streamomd.")

    class Finder:
        def find_distributions(self) -> None: ...

    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path, Finder()])
    assert may_offer("streamomd.")
