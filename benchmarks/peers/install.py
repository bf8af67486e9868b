"""An environment for each tool, made once, by pip from its ordinary index.

streamomd's has the packages that it depends on, without extras. The package itself is built from
this checkout, as ``pip install`` builds it, into a folder that is named by a hash of its files:
sources that changed are another folder, and two checkouts can measure at the same time.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
import tomllib
from collections.abc import Iterable
from pathlib import Path

from tools import OURS, ROOT, Tool


def install(tools: Iterable[Tool], folder: Path) -> dict[str, Path]:
    """The interpreter of each tool's environment, by the environment's name.

    Raises CalledProcessError where pip does not find what is pinned.
    """
    return {tool.venv: installed(folder / tool.venv, wanted(tool)) for tool in tools}


def wanted(tool: Tool) -> tuple[str, ...]:
    """What is installed for a tool: for streamomd, what a user's ``pip install`` brings."""
    if tool.venv != OURS:
        return tool.packages
    return tuple(tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"])


def installed(home: Path, packages: tuple[str, ...]) -> Path:
    """The interpreter of an environment with these packages, which is made if it is missing."""
    python, asked, told = home / "bin/python", home / "asked.txt", home / "packages.txt"
    lines = "\n".join(packages)
    if told.exists() and (not asked.exists() or asked.read_text() == lines):
        return python
    print(f"installing {' '.join(packages)}", file=sys.stderr, flush=True)
    subprocess.run([sys.executable, "-m", "venv", "--clear", str(home)], check=True)
    pip = [str(python), "-m", "pip"]
    subprocess.run([*pip, "install", "--quiet", *packages], check=True)
    frozen = subprocess.run([*pip, "freeze"], check=True, capture_output=True).stdout
    asked.write_text(lines)
    told.write_bytes(frozen)
    return python


def checkout(python: Path, folder: Path) -> Path:
    """The folder that this checkout is installed into, by pip of streamomd's environment."""
    home = folder / f"{OURS}-{hash_of_sources()}"
    if not home.exists():
        print(f"installing {ROOT}", file=sys.stderr, flush=True)
        part = home.with_suffix(".part")
        pip = [str(python), "-m", "pip", "install", "--quiet", "--no-deps", "--upgrade"]
        subprocess.run([*pip, "--target", str(part), str(ROOT)], check=True)
        part.rename(home)
    return home


def hash_of_sources() -> str:
    """Of everything that pip builds the package from."""
    found = hashlib.sha256()
    package = (file for file in (ROOT / "streamomd").rglob("*") if "__pycache__" not in file.parts)
    for file in (ROOT / "pyproject.toml", *sorted(file for file in package if file.is_file())):
        found.update(str(file.relative_to(ROOT)).encode() + b"\0")
        found.update(hashlib.sha256(file.read_bytes()).digest())
    return found.hexdigest()[:12]


def versions(tools: Iterable[Tool], folder: Path) -> dict[str, list[str]]:
    """What is installed in each environment, name==version."""
    files = {tool.venv: folder / tool.venv / "packages.txt" for tool in tools}
    return {venv: file.read_text().split() for venv, file in files.items() if file.exists()}
