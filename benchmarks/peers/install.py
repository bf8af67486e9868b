"""An environment for each tool, made once, by pip from its ordinary index."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

from tools import Tool


def install(tools: Iterable[Tool], folder: Path) -> dict[str, Path]:
    """The interpreter of each tool's environment, by the environment's name.

    streamomd has none: this interpreter and this checkout. Raises CalledProcessError where pip
    does not find what is pinned.
    """
    found = {"streamomd": Path(sys.executable)}
    for tool in tools:
        home = folder / tool.venv
        if tool.venv in found:
            continue
        found[tool.venv] = home / "bin/python"
        if (home / "packages.txt").exists():
            continue
        print(f"installing {' '.join(tool.packages)}", file=sys.stderr, flush=True)
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(home)], check=True)
        pip = [str(found[tool.venv]), "-m", "pip"]
        subprocess.run([*pip, "install", "--quiet", *tool.packages], check=True)
        frozen = subprocess.run([*pip, "freeze"], check=True, capture_output=True).stdout
        (home / "packages.txt").write_bytes(frozen)
    return found


def versions(tools: Iterable[Tool], folder: Path) -> dict[str, list[str]]:
    """What is installed in each environment, name==version."""
    files = {tool.venv: folder / tool.venv / "packages.txt" for tool in tools}
    return {venv: file.read_text().split() for venv, file in files.items() if file.exists()}
