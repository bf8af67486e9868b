"""A job is built from a file, flags and sets without side effects."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import streamomd
from streamomd.config.build_job import build_job, change_job
from streamomd.core.errors import InputNotFoundError

JOB: dict[str, Any] = {
    "data": {
        "shards": ["s3://bucket/rows"],
        "label": "y",
        "storage_options": {"client_kwargs": {"endpoint_url": "http://10.0.0.5:9000"}},
    },
    "model": {"rule": "nag"},
    "checkpoint": {"url": "s3://bucket/run"},
}
OPENING = ("open", "os.listdir", "os.scandir", "os.mkdir", "socket.connect", "socket.getaddrinfo")
_recorders: list[list[str]] = []


def _record(event: str, arguments: tuple[Any, ...]) -> None:
    for found in _recorders:
        if event in OPENING:
            found.append(f"{event} {arguments}")


sys.addaudithook(_record)


@contextmanager
def opened() -> Iterator[list[str]]:
    """What Python opens while inside."""
    found: list[str] = []
    _recorders.append(found)
    try:
        yield found
    finally:
        _recorders.remove(found)


def built() -> tuple[float, int, int, str]:
    """Figures of a job that was built, and changed as on resume."""
    spec = build_job(JOB, {"eta": 0.5}, {"train.epochs": 2})
    changed = change_job(spec.to_json(), {"train.epochs": 3})
    unlabelled = build_job({"data": {"shards": "none/there"}}, {})
    return spec.model.params["eta"], spec.train.epochs, changed.train.epochs, unlabelled.data.label


def test_building_a_job_opens_nothing_and_prints_nothing(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Neither building nor changing a job opens a file or a store, or prints, though its storage
    options travel unencrypted and its shards do not exist: the session reports both."""
    with opened() as found:
        (tmp_path / "x").write_text("")
    assert found  # so the test can fail
    built()  # imports the rule
    with opened() as found:
        assert built() == (0.5, 2, 3, "")
    assert found == []
    assert capfd.readouterr() == ("", "")


def test_missing_shards_are_reported_before_a_missing_label(tmp_path: Path) -> None:
    """The session finds the shards first: a slip in their name is the likelier error."""
    with pytest.raises(InputNotFoundError, match="nowhere"):
        streamomd.train(str(tmp_path / "nowhere"), quiet=True)
