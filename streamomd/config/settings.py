"""How to deal with a cluster: Dask's configuration under the key ``streamomd``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import dask
import yaml

dask.config.update_defaults(yaml.safe_load(Path(__file__).with_name("streamomd.yaml").read_text()))


def configured(name: str) -> Any:
    """The setting of that name, as the configuration has it."""
    return dask.config.get(f"streamomd.{name}")


def setting(name: str) -> str:
    """The setting of that name, as a word."""
    return str(configured(name))


def seconds(name: str) -> float:
    """The setting ``name-seconds``; streamomd.yaml tells what each is."""
    return float(configured(f"{name}-seconds"))
