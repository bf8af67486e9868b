"""The wheel with the lowest and the newest versions of its dependencies passes the smoke tests."""

from __future__ import annotations

import os
import shutil
import subprocess
import tomllib
from collections.abc import Sequence
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


def done(*words: str, cwd: Path = ROOT, **more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        words, cwd=cwd, env={**os.environ, **more}, capture_output=True, text=True, check=False
    )


def succeeded(*words: str, cwd: Path = ROOT, **more: str) -> str:
    found = done(*words, cwd=cwd, **more)
    assert found.returncode == 0, f"{' '.join(words)}\n{found.stdout[-8000:]}{found.stderr[-3000:]}"
    return found.stdout


def installed(place: Path, python: str, resolution: str, extras: Sequence[str]) -> tuple[str, Path]:
    """uv, and an environment with the wheel of this checkout and what it and the extras need."""
    uv = pytest.importorskip("uv").find_uv_bin()
    home = place / "venv"
    if (made := done(uv, "venv", "--python", python, str(home))).returncode != 0:
        pytest.skip(f"no Python {python} here: {made.stderr.strip().splitlines()[-1]}")
    succeeded(uv, "build", "--wheel", "--out-dir", str(place))
    (wheel,) = place.glob("*.whl")
    chosen = resolved(uv, home, place, resolution, extras)
    name = f"{wheel}[{','.join(extras)}]" if extras else str(wheel)
    install = (uv, "pip", "install", "--python", str(home))
    succeeded(*install, "--constraint", str(chosen), name)
    return uv, home


def resolved(uv: str, home: Path, place: Path, resolution: str, extras: Sequence[str]) -> Path:
    """Versions of what the project and the extras need: of a wheel's requirements none is direct,
    so they are resolved from the project's file. The lowest are those that have wheels."""
    chosen = place / f"chosen-{len(extras)}.txt"
    words = [word for extra in extras for word in ("--extra", extra)]
    if resolution == "lowest-direct":
        words += ["--only-binary", ":all:"]
    succeeded(
        uv, "pip", "compile", "--python", str(home), "--resolution", resolution, *words,
        "pyproject.toml", "--output-file", str(chosen),
    )  # fmt: skip
    if resolution == "lowest-direct":
        found = chosen.read_text()
        assert "pyarrow==21.0.0" in found or "numba==0.63.0" in found  # the first for Python 3.14
    return chosen


@pytest.mark.parametrize(
    "python, resolution",
    [
        ("3.11", "lowest-direct"),
        ("3.11", "highest"),
        ("3.12", "highest"),
        ("3.13", "highest"),
        ("3.14", "highest"),
    ],
)
def test_the_wheel_passes_the_smoke_tests(python: str, resolution: str, tmp_path: Path) -> None:
    """With all extras, in an environment of its own."""
    uv, home = installed(tmp_path, python, resolution, EXTRAS)
    frozen = succeeded(uv, "pip", "freeze", "--python", str(home)).splitlines()
    versions = tmp_path / "versions.txt"
    versions.write_text("\n".join(line for line in frozen if "==" in line))
    install = (uv, "pip", "install", "--python", str(home), "--constraint", str(versions))
    succeeded(*install, *TOOLS)
    # The script, not python -m pytest: the wheel is imported, not the checkout.
    words = ("-q", "-n", "2", "-m", "smoke", "-p", "no:cacheprovider", "tests")
    succeeded(str(home / "bin" / "pytest"), *words, PYTHONDONTWRITEBYTECODE="1")


ESTIMATOR = """
import numpy as np, streamomd
x = np.random.default_rng(0).normal(size=(500, 3))
model = streamomd.OMDClassifier().fit(x, x[:, 0] > 0)
assert model.score(x, x[:, 0] > 0) > 0.9
"""
SERVED = """
import json, subprocess, sys, urllib.request
words = [sys.executable, "-m", "streamomd", "serve", "runs/quickstart", "--port", "0"]
with subprocess.Popen(words, stderr=subprocess.PIPE, text=True) as server:
    line = next(line for line in server.stderr if "http://" in line)
    address = "http://" + line.split("http://")[1].split()[0].strip(",;").rstrip("/")
    body = json.dumps({"rows": [{"age": 30}]}).encode()
    head = {"Content-Type": "application/json"}
    request = urllib.request.Request(address + "/predict", body, head)
    try:
        print(urllib.request.urlopen(request).read())
    except urllib.error.HTTPError as error:  # columns are missing: the server says which
        assert error.code == 422, error.read()
    server.terminate()
"""


@pytest.mark.parametrize(
    "python, resolution",
    [
        ("3.11", "lowest-direct"), ("3.12", "lowest-direct"), ("3.13", "lowest-direct"),
        ("3.14", "lowest-direct"),
        ("3.11", "highest"), ("3.12", "highest"), ("3.13", "highest"), ("3.14", "highest"),
    ],
)  # fmt: skip
def test_the_wheel_alone_is_enough(python: str, resolution: str, tmp_path: Path) -> None:
    """Quickstart, second day and predictions without extras; then an estimator and a server."""
    uv, home = installed(tmp_path, python, resolution, ())
    folder, command = tmp_path / "work", str(home / "bin" / "streamomd")
    folder.mkdir()

    def run(*words: str) -> str:
        return succeeded(*words, cwd=folder)

    assert "45,211 rows, loss 0.210" in run(command, "demo")
    bank = folder / "pipelines" / "data" / "bank"
    shutil.copy(bank / "part-00000.parquet", bank / "part-00004.parquet")
    run(command, "update", "runs/quickstart", "--settle", "0", "--accept-duplicates")
    run(command, "predict", "runs/quickstart", str(bank), "--to", "predictions")
    assert len([*(folder / "predictions").glob("*.parquet")]) == 5
    chosen = resolved(uv, home, tmp_path, resolution, ("serve", "sklearn"))
    succeeded(uv, "pip", "install", "--python", str(home), "-r", str(chosen))
    python = str(home / "bin" / "python")
    run(python, "-c", ESTIMATOR)
    run(python, "-c", SERVED)
