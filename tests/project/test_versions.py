"""The wheel with the lowest and the newest versions of its dependencies passes the smoke tests."""

from __future__ import annotations

import os
import subprocess
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = sorted({*PROJECT["optional-dependencies"]} - {"docs", "test"})
TOOLS = (
    "boto3", "dask-kubernetes", "httpx", "hypothesis", "markdown-it-py", "moto[server]>=5.2",
    "mypy", "onnxruntime", "pandas", "polars", "psutil", "pytest", "pytest-timeout",
    "pytest-xdist", "sqlalchemy",
)  # fmt: skip
"""What the smoke tests need that no extra brings; they have the versions that fit."""

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]


def done(*words: str, **more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        words, cwd=ROOT, env={**os.environ, **more}, capture_output=True, text=True, check=False
    )


def succeeded(*words: str, **more: str) -> str:
    found = done(*words, **more)
    assert found.returncode == 0, f"{' '.join(words)}\n{found.stdout[-8000:]}{found.stderr[-3000:]}"
    return found.stdout


@pytest.mark.parametrize(
    "python, resolution",
    [("3.11", "lowest-direct"), ("3.11", "highest"), ("3.12", "highest"), ("3.13", "highest")],
)
def test_the_wheel_passes_the_smoke_tests(python: str, resolution: str, tmp_path: Path) -> None:
    """With all extras, in an environment of its own."""
    uv = pytest.importorskip("uv").find_uv_bin()
    place = tmp_path / "venv"
    if (made := done(uv, "venv", "--python", python, str(place))).returncode != 0:
        pytest.skip(f"no Python {python} here: {made.stderr.strip().splitlines()[-1]}")
    succeeded(uv, "build", "--wheel", "--out-dir", str(tmp_path))
    (wheel,) = tmp_path.glob("*.whl")
    install = (uv, "pip", "install", "--python", str(place))
    # Of a wheel's requirements none is direct: they are resolved from the project's file first.
    chosen = tmp_path / "chosen.txt"
    extras = [word for extra in EXTRAS for word in ("--extra", extra)]
    succeeded(
        uv, "pip", "compile", "--python", str(place), "--resolution", resolution, *extras,
        "pyproject.toml", "--output-file", str(chosen),
    )  # fmt: skip
    succeeded(*install, "--constraint", str(chosen), f"{wheel}[{','.join(EXTRAS)}]")
    if resolution == "lowest-direct":
        assert "pyarrow==21.0.0" in chosen.read_text()
    frozen = succeeded(uv, "pip", "freeze", "--python", str(place)).splitlines()
    versions = tmp_path / "versions.txt"
    versions.write_text("\n".join(line for line in frozen if "==" in line))
    succeeded(*install, "--constraint", str(versions), *TOOLS)
    # The script, not python -m pytest: the wheel is imported, not the checkout.
    words = ("-q", "-n", "2", "-m", "smoke", "-p", "no:cacheprovider", "tests")
    succeeded(str(place / "bin" / "pytest"), *words, PYTHONDONTWRITEBYTECODE="1")
