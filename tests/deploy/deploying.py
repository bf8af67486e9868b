"""Where the files of deploy/ are, and how they are read."""

from __future__ import annotations

import os
import shutil
import sys
from importlib.metadata import distribution
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
RUN_URL = "s3://streamomd/runs/bank"


def documents(path: Path) -> list[Any]:
    """What a YAML file holds."""
    return list(yaml.safe_load_all(path.read_text()))


def tool(name: str) -> str:
    """A linter that the test extra has installed, beside this Python."""
    found = shutil.which(name, path=str(Path(sys.executable).parent))
    assert found, f"{name} is not installed: pip install -e '.[test]'"
    return found


def shipped(package: str, end: str) -> list[Path]:
    """Files of an installed package, which is not imported for them."""
    files = distribution(package).files or []
    return [Path(str(file.locate())) for file in files if str(file).endswith(end)]


def environment(**more: str) -> dict[str, str]:
    """Of a shell that finds streamomd and the scripts of deploy/bin, and no credentials."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
    path = f"{Path(sys.executable).parent}:{DEPLOY / 'bin'}:{os.environ['PATH']}"
    return kept | {"PATH": path} | more
