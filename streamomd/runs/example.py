"""The example that is installed with streamomd: its data set and job files, as the README has them.

A wheel holds them next to this package's modules; a checkout, in ``pipelines`` at its root.
"""

from __future__ import annotations

from pathlib import Path

from streamomd.core.errors import OutputExistsError, UsageError
from streamomd.core.message import Message
from streamomd.core.urls import local_name, protocol, shown

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
