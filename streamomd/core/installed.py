"""What is installed: the version of this package, plug-ins by entry point, and a report of all.

The report can be pasted into an issue: no paths, names or secrets.
"""

from __future__ import annotations

import functools
import math
import os
import platform
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module, metadata
from importlib.metadata import EntryPoint, PackageNotFoundError, distributions, version
from pathlib import Path
from typing import Any, TypeVar

from streamomd.core.errors import (
    CorruptionError,
    DataError,
    MissingExtraError,
    NoCommitError,
    OutputExistsError,
    UnsupportedError,
    UsageError,
)
from streamomd.core.message import Message
from streamomd.core.platform_calls import memory_within, usable_cores
from streamomd.core.urls import local_name, printable, protocol, shown
from streamomd.core.wording import suggestion


@contextmanager
def needs_extra(what: str, extra: str) -> Iterator[None]:
    """Imports of an optional package inside: if there is none, MissingExtraError says ``what``, and
    how it is installed."""
    try:
        yield
    except ImportError:
        raise MissingExtraError(f"{what}: pip install 'streamomd[{extra}]'") from None


def _own_version() -> str:
    """The version, or "unknown" when run from a source tree that is not installed."""
    try:
        return version("streamomd")
    except PackageNotFoundError:
        return "unknown"


VERSION = _own_version()
"""When it is imported: nothing is imported any more while a checkpoint is read."""


def is_newer(other: str) -> bool:
    """Whether a version is later than this one; False if either has no number.

    >>> is_newer("999.0"), is_newer(VERSION), is_newer("unknown")
    (True, False, False)
    """
    numbers = [re.match(r"\d{1,6}(\.\d{1,6}){0,3}(?!\d)", one) for one in (other, VERSION)]
    found = [tuple(map(int, one[0].split("."))) for one in numbers if one]
    return len(found) == 2 and found[0] > found[1]


@contextmanager
def upgrade_hint(writer: object, what: str) -> Iterator[None]:
    """What this version refuses may be right for the later version that wrote it: NoCommitError in
    place of the error. writer: that version. what: begins the message, as "commit 3 was ".
    """
    try:
        yield
    except (UsageError, UnsupportedError, DataError, CorruptionError, NoCommitError):
        found = str(writer)[:40]
        if not is_newer(found):
            raise
        raise NoCommitError(
            f"{what}written by streamomd {printable(found)}; this is {VERSION}: upgrade streamomd"
        ) from None


T = TypeVar("T")
OURS = "[streamomd."
"""What the headings of our groups begin with, in the file of a package's entry points."""
TO_ESTIMATOR = "streamomd.integrations.sklearn:to_estimator"
VERDICT = "streamomd.analysis.report.verdict:summarize"
"""Functions of higher packages, imported at their first call."""


def load(group: str) -> list[Any]:
    """The plug-ins of installed packages in an entry-point group."""
    return [entry.load() for entry in _offered() if entry.group == group]


def offers(group: str) -> bool:
    """Whether installed packages have plug-ins in an entry-point group."""
    return any(entry.group == group for entry in _offered())


def load_named(group: str, name: str) -> Any:
    """The plug-in of a name in an entry-point group, made if it is a class; None if there is none.

    The others of the group are not imported.
    """
    found = [entry for entry in _offered() if (entry.group, entry.name) == (group, name)]
    return _made(found[0]) if found else None


def sources() -> Any:
    """The module that knows the sources of URLs. It is of a higher package: lower ones ask it by
    way of this function alone, when they meet a URL."""
    return import_module("streamomd.sources.find")


@functools.cache
def _made(entry: EntryPoint) -> Any:
    found = entry.load()
    return found() if isinstance(found, type) else found


def find(kind: str, name: str, known: Mapping[str, T]) -> T:
    """known[name], or UsageError with the nearest name."""
    if name in known:
        return known[name]
    raise UsageError(f"unknown {kind} {name!r}; {suggestion(name, known)}")


@functools.cache
def _offered() -> list[EntryPoint]:
    """The entry points of packages that offer something to us.

    A file of every installed package is read; few are parsed, which takes most of the time.
    """
    found = [one for one in distributions() if OURS in (one.read_text("entry_points.txt") or "")]
    named = {one.name: one for one in found if one.name}
    # Of packages of the same name the first on the path is installed.
    first = [next(iter(distributions(name=name)), one) for name, one in named.items()]
    return [entry for package in first for entry in package.entry_points]


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


FILES = ("quickstart.toml", "sweep.toml", "data")
"""Below ``pipelines``."""
PACKAGE = Path(__file__).parents[1]


def write_example(folder: str) -> Path:
    """Write ``pipelines`` into a folder, and return the job file of the quickstart.

    Files that are there already stay. Raises OutputExistsError for one of other content, and
    UsageError for a folder that is not local, and where the example is not installed.
    """
    to = Path(local_name(folder)) / "pipelines"
    if protocol(folder) or not folder or any(one.is_file() for one in (to, *to.parents)):
        raise UsageError(f"{shown(folder)!r} is not a local folder: pass a path on this machine")
    files = _files()
    others = [name for name, data in files.items() if _differs(to / name, data)]
    if others:
        raise OutputExistsError(
            Message(
                "exists", "{found}: {remedy}",
                found=f"{to / others[0]} is a file of yours",
                remedy="pass another folder: streamomd demo FOLDER",
            )
        )  # fmt: skip
    for name, data in files.items():
        if not (to / name).exists():
            (to / name).parent.mkdir(parents=True, exist_ok=True)
            scratch = (to / name).with_name(f".{(to / name).name}.part")
            scratch.write_bytes(data)
            scratch.replace(to / name)  # a half one would be taken for a file of the user's
    return to / FILES[0]


def _differs(file: Path, data: bytes) -> bool:
    return file.exists() and (not file.is_file() or file.read_bytes() != data)


def _files() -> dict[str, bytes]:
    """Content by name below ``pipelines``."""
    for root in (PACKAGE / "pipelines", PACKAGE.parent / "pipelines"):
        if (root / FILES[0]).is_file():
            named = [one for name in FILES for one in _below(root / name)]
            return {one.relative_to(root).as_posix(): one.read_bytes() for one in named}
    raise UsageError("the example is missing from this installation: install streamomd again")


def _below(path: Path) -> list[Path]:
    return [path] if path.is_file() else sorted(one for one in path.rglob("*") if one.is_file())
