"""Builds what a release uploads, twice, and checks it.

    python tests/support/artefacts.py dist

Wheel and sdist have the same bytes both times. twine, check-wheel-contents and cyclonedx-bom run in
environments of their own, which uv makes. The SBOM, twice the same too, is of an environment with
the wheel and its newest required dependencies. Prints hashes; ends with 1 at the first failure.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from uv import find_uv_bin

ROOT = Path(__file__).parents[2]
DATA_LICENCE = "licenses/pipelines/data/README.md"


def run(*words: str | Path) -> None:
    """uv in the checkout, whose pyproject configures the checks."""
    done = subprocess.run(
        [find_uv_bin(), *map(str, words)], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise SystemExit(f"uv {' '.join(map(str, words))}\n{done.stdout}{done.stderr}")


def hashes(folder: Path) -> dict[str, str]:
    """SHA-256 of each file."""
    files = sorted(file for file in folder.iterdir() if file.name[0] != ".")
    return {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in files}


def make(folder: Path, home: Path) -> dict[str, str]:
    """Wheel, sdist and SBOM in a folder; ``home``: the environment that the SBOM is of."""
    run("build", "--out-dir", folder)
    run("venv", "--clear", "--python", sys.executable, home)
    install = ("pip", "install", "--python", home)
    run(*install, "-r", "pyproject.toml")
    # By name: a wheel that is named by its path would bring this machine's path into the SBOM.
    run(*install, "--no-deps", "--no-index", "--find-links", folder, "streamomd")
    tool = ("tool", "run", "--from", "cyclonedx-bom", "cyclonedx-py", "environment", home)
    run(*tool, "--output-reproducible", "-o", folder / "sbom.cdx.json")
    return hashes(folder)


def main(out: Path) -> None:
    """``out``: a new folder."""
    out = out.absolute()
    out.mkdir(parents=True)
    with tempfile.TemporaryDirectory() as folder:
        again, home = Path(folder) / "again", Path(folder) / "venv"
        found = make(out, home)
        if (second := make(again, home)) != found:
            raise SystemExit(f"another build has other bytes:\n{found}\n{second}")
    (wheel,), (sdist,) = out.glob("*.whl"), out.glob("*.tar.gz")
    run("tool", "run", "twine", "check", "--strict", wheel, sdist)
    run("tool", "run", "check-wheel-contents", wheel)
    with zipfile.ZipFile(wheel) as archive:
        if not any(name.endswith(DATA_LICENCE) for name in archive.namelist()):
            raise SystemExit("the wheel lacks the licence of the bundled data set")
    for name, sha in found.items():
        print(f"{sha}  {name}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
