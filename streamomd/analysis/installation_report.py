"""What is installed on which machine, ready to paste into an issue: no paths, names or secrets.

No other package is imported: what is reported may be that one cannot be.
"""

from __future__ import annotations

import math
import os
import platform
import re
from collections.abc import Iterator, Mapping
from importlib import metadata
from typing import Any

from streamomd.core.installed import VERSION
from streamomd.core.platform_calls import memory_within, usable_cores

_NAME = re.compile(r"[A-Za-z0-9._-]+")
_FOR_DEVELOPERS = re.compile(r"extra == .(test|docs)")
_OF_A_RUN = re.compile(r"(STREAMOMD|NUMBA|DASK|OMP|MKL|OPENBLAS|ARROW|MALLOC)_\w+")
"""Environment variables that change what a run does. Their values may be secrets."""


def installation_report() -> dict[str, Any]:
    """Versions and the machine.

    >>> installation_report()["packages"]["numpy"] == metadata.version("numpy")
    True
    """
    memory, machine = memory_within(()), platform.uname()
    return {
        "streamomd": VERSION,
        "python": f"{platform.python_version()} ({platform.python_implementation()})",
        "system": f"{machine.system} {machine.release}, {machine.machine}",
        "libc": " ".join(platform.libc_ver()).strip(),
        "cores": usable_cores(),
        "memory_gib": round(memory / 2**30, 1) if math.isfinite(memory) else None,
        "packages": dict(_versions()),
        "variables": sorted(name for name in os.environ if _OF_A_RUN.fullmatch(name)),
    }


def _versions() -> Iterator[tuple[str, str]]:
    """Of packages that streamomd or one of its extras names, if they are installed."""
    try:
        required = metadata.requires("streamomd") or []
    except metadata.PackageNotFoundError:  # a source tree
        required = []
    used = [one for one in required if not _FOR_DEVELOPERS.search(one)]
    names = {found[0] for one in used if (found := _NAME.match(one))} | {"distributed"}
    for name in sorted(names, key=str.lower):
        try:
            yield name, metadata.version(name)
        except metadata.PackageNotFoundError:
            continue


def format_installation_report(found: Mapping[str, Any]) -> str:
    """A line for each kind of fact."""
    known = found["memory_gib"] is not None
    memory = f"{found['memory_gib']} GiB" if known else "an unknown amount"
    packages = ", ".join(f"{name} {version}" for name, version in found["packages"].items())
    return "\n".join(
        [
            f"streamomd {found['streamomd']}, Python {found['python']}",
            ", ".join(filter(None, (found["system"], found["libc"]))),
            f"{found['cores']} cores, {memory} of memory available",
            f"packages: {packages}",
            f"environment variables, without values: {', '.join(found['variables']) or 'none'}",
        ]
    )
