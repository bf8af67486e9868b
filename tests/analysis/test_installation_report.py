"""``streamomd doctor --report``: what an issue needs, and nothing that is private."""

from __future__ import annotations

import json
import platform
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest
from click.testing import CliRunner

from streamomd.cli import main


def printed(*words: str) -> str:
    done = CliRunner().invoke(main, ["doctor", "--report", *words], standalone_mode=False)
    assert done.exit_code == 0, done.output
    return done.output


def test_versions_and_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Names of variables without values; neither the host's name nor any path."""
    monkeypatch.setenv("STREAMOMD_SERVE_TOKEN", "top-secret")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "other-secret")
    text = printed()
    for word in (metadata.version("numpy"), platform.python_version(), "STREAMOMD_SERVE_TOKEN"):
        assert word in text
    home = str(Path.home())
    for private in ("secret", "AWS", platform.node() or "-", home if home != "/" else "-/-"):
        assert private not in text
    found = json.loads(printed("--json"))["report"]
    assert {"streamomd", "python", "system", "cores", "packages", "variables"} <= found.keys()
    assert "pytest" not in found["packages"]


def test_it_needs_no_package_that_may_be_broken() -> None:
    code = (
        "import sys\n"
        "for name in ('numba', 'numpy', 'pyarrow', 'scipy', 'dask'): sys.modules[name] = None\n"
        "from streamomd.cli import main\n"
        "main(['doctor', '--report'])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "numba" in done.stdout


def test_it_is_about_this_machine() -> None:
    done = CliRunner().invoke(main, ["doctor", "job.toml", "--report"])
    assert done.exit_code == 2
    assert "leave out" in done.output
