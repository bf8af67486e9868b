"""Every verb that starts or resumes a run opens one session; it alone has the steps of a run."""

from __future__ import annotations

import ast
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from running import write

import streamomd
from streamomd.analysis.preview import preview
from streamomd.runs import session
from streamomd.runs.session import Session

RUNS = Path(session.__file__).parent
STEPS: dict[str, set[str]] = {
    "find": {"session.py"},
    "find_recorded_rows": set(),  # session.py has it
    "plan_columns": {"session.py"},
    "connect_cluster": {"session.py"},
    "begin_checkpoint": {"session.py"},
    "resume_checkpoint": {"session.py"},
    "learn_remaining_rows": {"session.py", "select_columns.py"},  # a pass that only ranks columns
    "new_model": {"session.py", "__init__.py"},  # a sweep makes one for each combination
    "build_job": {"session.py", "__init__.py", "train.py"},  # and submit changes the job
}
"""What a run needs one after another, and the files of ``runs`` that import it."""


def test_each_step_has_one_place() -> None:
    """No verb finds shards, plans, connects, begins or resumes by itself."""
    found: dict[str, set[str]] = {step: set() for step in STEPS}
    for file in RUNS.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            if isinstance(node, ast.ImportFrom):
                for name in {alias.name for alias in node.names} & STEPS.keys():
                    found[name].add(file.name)
    assert found == STEPS


def recording(own: Callable[..., Any], name: str, calls: list[str]) -> Callable[..., Any]:
    """A class method that notes its name when it is called."""

    def open_session(cls: Any, *given: Any, **more: Any) -> Any:
        calls.append(name)
        return own(cls, *given, **more)

    return open_session


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """How sessions were opened, one after another."""
    calls: list[str] = []
    for name in ("of", "recorded"):
        own: Callable[..., Any] = getattr(Session, name).__func__

        def open_session(
            cls: Any, *given: Any, own: Any = own, name: str = name, **more: Any
        ) -> Any:
            calls.append(name)
            return own(cls, *given, **more)

        monkeypatch.setattr(Session, name, classmethod(open_session))
    return calls


def test_every_verb_opens_one_session(tmp_path: Path, opened: list[str]) -> None:
    """train, plan and sweep open one on the shards of the job, resume and resume_sweep on those
    that the checkpoint names; a finished run needs none."""
    data = str(
        write(tmp_path / "data" / "a.parquet", {"y": [0, 1] * 20, "n": [0.5, 2.0] * 20}).parent
    )
    job = {"data": {"shards": data, "label": "y"}}

    def verb(function: Callable[..., Any], *given: Any, **more: Any) -> list[str]:
        opened.clear()
        function(*given, **more)
        return list(opened)

    run, many = str(tmp_path / "run"), str(tmp_path / "sweep")
    assert verb(streamomd.train, job, checkpoint=run, quiet=True) == ["of"]
    assert verb(preview, job) == ["of"]
    assert verb(streamomd.resume, run, quiet=True) == []
    more = {"sets": {"train.epochs": 2}, "quiet": True}
    assert verb(streamomd.resume, run, **more) == ["recorded"]
    grid = {"grid": {"eta": [0.1, 0.2]}, "rule": "nag", "checkpoint": many, "quiet": True}
    assert verb(streamomd.sweep, job, **grid) == ["of"]
    assert verb(streamomd.resume_sweep, many, **more) == ["recorded"]


def test_a_client_that_is_not_needed_is_not_asked(tmp_path: Path) -> None:
    """A session of a job that decodes here yields no connection, whatever client was passed."""
    data = str(write(tmp_path / "a.parquet", {"y": [0, 1] * 20, "n": [0.5, 2.0] * 20}))
    made = Session.open({"data": {"shards": data, "label": "y"}}, {}, client=object())
    local = Session.open(made.spec, {}, {"cluster.decode": "local"}, client=object())
    with local.connect() as connection:
        assert connection is None
