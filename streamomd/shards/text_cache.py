"""Delimited text and JSON lines as sources: converted to Parquet in a folder of the user's cache.

The folder's name follows from the paths; it is rebuilt, to the same bytes, if it was deleted, and
rebuilt from the changed text if a file changed, which a run that resumes refuses as any changed
shard. Large text is refused: `streamomd convert` writes shards that stay.
"""

from __future__ import annotations

import glob
import hashlib
import json
import os
import shutil
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from streamomd.core.errors import DataError, StorageError, UsageError
from streamomd.core.phases import phase
from streamomd.core.urls import absolute, local_name, protocol, shown
from streamomd.shards.convert.text_formats import text_format

MOST_BYTES = 1_000_000_000
"""Of all text files of a job; more are converted once, by the user."""
VARIABLE = "STREAMOMD_CACHE_DIR"
RECORD = ".source.json"  # hidden, so no shard
ROWS_PER_SHARD = 250_000


def cache_root() -> Path:
    """The folder of the user's cache: STREAMOMD_CACHE_DIR, or streamomd below XDG_CACHE_HOME."""
    if own := os.environ.get(VARIABLE):
        return Path(own).absolute()
    base = os.environ.get("XDG_CACHE_HOME", "")
    home = Path(base) if os.path.isabs(base) else Path.home() / ".cache"
    return home / "streamomd"


def as_shards(texts: Sequence[str]) -> list[str]:
    """The sources, or the folder of the shards that were made of them if they are text.

    Raises UsageError for text next to other sources and for text of more than ``MOST_BYTES``,
    what ``convert`` raises for text that cannot be read, StorageError without room.
    """
    files = [_text_files(text) for text in texts]
    if not any(files):
        return list(texts)
    if not all(files):
        other = texts[[bool(some) for some in files].index(False)]
        raise UsageError(
            f"{shown(other)} is not text, and other sources are: convert the text files first, "
            f"{_command(files)}"
        )
    found = list(dict.fromkeys(file for some in files for file in some))
    kinds = {text_format(file) for file in found}
    if len(kinds) > 1:
        raise UsageError(f"sources are of different formats, {', '.join(sorted(kinds))}: pass one")
    size = sum(os.path.getsize(file) for file in found)
    if size > MOST_BYTES:
        raise UsageError(
            f"{size / 1e9:.1f} GB of text are more than the {MOST_BYTES / 1e9:.0f} GB that are "
            f"read directly: convert them once, {_command(files)}, and pass that directory"
        )
    return [str(_converted(found, kinds.pop()))]


def is_converted(path: str) -> bool:
    """Whether a path is that of a shard in the cache, made of a source that is text."""
    return path.startswith(f"{cache_root()}{os.sep}")


def text_notes(paths: Sequence[str]) -> list[str]:
    """Which text the shards at these paths were made of."""
    folders = dict.fromkeys(os.path.dirname(path) for path in paths if is_converted(path))
    lines = []
    for folder in folders:
        record = _record(Path(folder)) or {"files": []}
        names = [shown(file["path"]) for file in record["files"]]
        lines.append(f"{', '.join(names[:3])}{' …' * (len(names) > 3)}: converted to {folder}")
        lines += record.get("notes", [])
    return lines


def _text_files(text: str) -> list[str]:
    """The local text files that a source names: a file, a glob, or a directory of nothing else."""
    if protocol(text) and not text.startswith("file://"):
        return []
    path = local_name(absolute(text))
    if os.path.isfile(path):
        names = [path]
    elif os.path.isdir(path):
        names = _text_in(path)
    else:
        names = sorted(glob.glob(path)) if text_format(path) else []
    return names if names and all(map(text_format, names)) else []


def _text_in(folder: str) -> list[str]:
    """The text files of a folder that has no other files. A million shards are not looked at."""
    names = []
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.startswith((".", "_")):
                continue
            if not text_format(entry.name):
                return []
            names.append(entry.path)
    return sorted(names)


def _command(files: Sequence[Sequence[str]]) -> str:
    first = next(file for some in files for file in some)
    return f"`streamomd convert {shown(os.path.relpath(first))} … -o shards/`"


def _converted(files: Sequence[str], kind: str) -> Path:
    """The folder with the shards of these files."""
    digest = hashlib.sha256("\0".join(files).encode("utf-8", "surrogateescape")).hexdigest()
    folder = cache_root() / "text" / digest[:24]
    source = [_identity(file) for file in files]
    record = _record(folder)
    if record is not None and record["files"] == source:
        return folder
    scratch = folder.with_name(f".{folder.name}-{uuid.uuid4().hex}")
    try:
        for own in (cache_root(), folder.parent, scratch):
            own.mkdir(mode=0o700, parents=True, exist_ok=True)
        with phase(f"converting {shown(files[0])} to {folder}"):
            notes = _convert(files, kind, scratch)
        if [_identity(file) for file in files] != source:
            raise DataError(f"{shown(files[0])} changed while it was read: run the command again")
        latest = max(file["mtime_ns"] for file in source)
        for part in scratch.iterdir():  # a rebuilt shard is the same file to a run that resumes
            os.utime(part, ns=(latest, latest))
        record = {"files": source, "notes": notes}
        (scratch / RECORD).write_text(json.dumps(record), "utf-8")
        if folder.exists():
            shutil.rmtree(folder)
        os.replace(scratch, folder)
    except OSError as error:
        if (_record(folder) or {}).get("files") == source:  # another process was first
            return folder
        raise StorageError(
            f"the folder of converted text, {folder}, cannot be written: {error.strerror}; "
            f"set {VARIABLE}, or run streamomd convert"
        ) from None
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return folder


def _convert(files: Sequence[str], kind: str, to: Path) -> list[str]:
    from streamomd.shards.convert.convert import convert  # it opens files of every format

    done = convert(files, source_format=kind, to=str(to), rows_per_shard=ROWS_PER_SHARD)
    return list(done.notes)


def _identity(file: str) -> dict[str, Any]:
    status = os.stat(file)
    return {"path": file, "bytes": status.st_size, "mtime_ns": status.st_mtime_ns}


def _record(folder: Path) -> dict[str, Any] | None:
    """What a folder was made of; None if it is not complete."""
    try:
        found: dict[str, Any] = json.loads((folder / RECORD).read_text("utf-8"))
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) and "files" in found else None
