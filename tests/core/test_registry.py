"""Entry points of installed packages."""

from pathlib import Path

import pytest

from streamomd.core import installed

POINTS = "[other.group]\nx = json:dumps\n\n[streamomd.rules]\none = json:loads\n"


def package_with(folder: Path, name: str, points: str | None) -> str:
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
    installed._offered.cache_clear()
    assert not installed.offers("streamomd.rules")
    for folder in (
        package_with(tmp_path / "c", "hidden", POINTS),
        package_with(tmp_path / "b", "hidden", "[other.group]\nx = json:dumps\n"),
        package_with(tmp_path / "a", "plain", None),
        package_with(tmp_path / "d", "rules-of-ours", POINTS),  # as older tools name the folder
    ):
        monkeypatch.syspath_prepend(folder)
    installed._offered.cache_clear()
    try:
        assert [one.__name__ for one in installed.load("streamomd.rules")] == ["loads"]
        assert installed.offers("streamomd.rules")
        assert not installed.offers("streamomd.losses")
    finally:
        installed._offered.cache_clear()
