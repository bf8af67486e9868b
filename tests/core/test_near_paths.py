"""Names near to a missing path."""

from __future__ import annotations

from pathlib import Path

from streamomd.cli.options import job_and_shards
from streamomd.core.wording import similar_path


def test_a_link_to_nothing_is_not_its_own_neighbor(tmp_path: Path) -> None:
    """Another file is suggested, or none."""
    link = tmp_path / "rows.parquet"
    link.symlink_to("gone")
    assert similar_path(str(link)) == ""
    (tmp_path / "row.parquet").touch()
    assert "row.parquet" in similar_path(str(link))


def test_directories_are_shards_whatever_their_names(tmp_path: Path) -> None:
    """Job files and their kin are files."""
    for name in ("a.toml", "b.toml", "c.json", "d.yaml"):
        (tmp_path / name).mkdir()
    names = tuple(str(tmp_path / name) for name in ("a.toml", "b.toml", "c.json", "d.yaml"))
    assert job_and_shards(names, {}) == (None, {"shards": [*names]})
