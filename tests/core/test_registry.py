"""Entry points of installed packages."""

from pathlib import Path

import pytest

from streamomd.core import registry

POINTS = "[other.group]\nx = json:dumps\n\n[streamomd.rules]\none = json:loads\n"


def installed(folder: Path, name: str, points: str | None) -> str:
    """A folder with a package of that name."""
    home = folder / f"{name}-1.0.dist-info"
    home.mkdir(parents=True)
    (home / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    if points is not None:
        (home / "entry_points.txt").write_text(points)
    return str(folder)


def test_only_the_first_package_of_a_name_offers_something(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As Python's own entry points; other groups and packages without entry points are passed."""
    registry._offered.cache_clear()
    assert not registry.offers("streamomd.rules")
    for folder in (
        installed(tmp_path / "c", "hidden", POINTS),
        installed(tmp_path / "b", "hidden", "[other.group]\nx = json:dumps\n"),
        installed(tmp_path / "a", "plain", None),
        installed(tmp_path / "d", "rules-of-ours", POINTS),  # as older tools name the folder
    ):
        monkeypatch.syspath_prepend(folder)
    registry._offered.cache_clear()
    try:
        assert [one.__name__ for one in registry.load("streamomd.rules")] == ["loads"]
        assert registry.offers("streamomd.rules")
        assert not registry.offers("streamomd.losses")
    finally:
        registry._offered.cache_clear()
