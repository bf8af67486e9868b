"""Delimited text and JSON lines as sources: converted to Parquet in a folder of the user's cache.

The folder's name follows from the paths and the options of the text; it is rebuilt, to the same
bytes, if it was deleted, and rebuilt from the changed text if a file changed, which a run that
resumes refuses as any changed shard. Large text is refused: `streamomd convert` writes shards that
stay.
"""

from __future__ import annotations

import glob
import hashlib
import json
import os
import re
import shlex
import shutil
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from streamomd.config.values import join_list
from streamomd.core.errors import DataError, StorageError, StreamomdError, UsageError
from streamomd.core.platform_calls import replace, stopping_promptly, to_slashes
from streamomd.core.run_events import phase
from streamomd.core.urls import absolute, local_name, location, printable, protocol, shown, typed
from streamomd.shards.cache.folder import VARIABLE, cache_root, refuse_shared
from streamomd.sources.tables import ending, text_format

if TYPE_CHECKING:
    from streamomd.sources.text.conversion import Converted

MOST_BYTES = 1_000_000_000
"""The most bytes of all text files of a job; more are converted once, by the user."""
RECORD = ".source.json"  # hidden, so no shard
ROWS_PER_SHARD = 250_000
"""The rows of all shards but the last; which row of the text a row of a shard is follows from
it."""
ABANDONED = 86_400.0
"""Seconds after which a folder that is not complete is removed; no conversion takes as long."""
MOST_NAMES = 3
"""Files of a command in a message."""
_SHARD = re.compile(r"part-(\d+)\.parquet")
_FLAGS = {
    "types": "--type", "null_values": "--null", "header": "--no-header", "quotes": "--no-quotes",
}  # fmt: skip
"""Flags of ``convert`` whose names are not those of its options."""


def as_shards(
    texts: Sequence[str],
    check: Callable[[Sequence[str]], None] | None = None,
    options: Mapping[str, Any] | None = None,
    text_columns: Sequence[str] = (),
) -> list[str]:
    """The sources, or the folder of the shards that were made of them if they are text.

    check: gets the paths of all text files before the first one is opened, and may raise. options:
    of ``convert``, for the text.

    Raises UsageError for text next to other sources and for text of more than ``MOST_BYTES``,
    what ``convert`` raises for text that cannot be read, StorageError without room and for a
    folder that other users can write, StoppedError for a signal while it converts.
    """
    options = options or {}
    files = [_text_files(text) for text in texts]
    if not any(files):
        return list(texts)
    command = _command(texts, files, options)
    if not all(files):
        other = texts[[bool(some) for some in files].index(False)]
        raise UsageError(
            f"{shown(other)} is not text, and other sources are: convert the text once, "
            f"{command}, and pass shards/ with the other sources"
        )
    found = list(dict.fromkeys(file for some in files for file in some))
    if check is not None:
        check(found)
    kinds = {text_format(file) for file in found}
    if len(kinds) > 1:
        raise UsageError(f"sources are of different formats, {', '.join(sorted(kinds))}: pass one")
    size = sum(os.path.getsize(file) for file in found)
    if size > MOST_BYTES:
        raise UsageError(
            f"{size / 1e9:.1f} GB of text are more than the {MOST_BYTES / 1e9:.0f} GB that are "
            f"read directly: convert them once, {command}, and pass shards/"
        )
    kind = kinds.pop()
    folder = _converted(found, kind, options)
    types = {**_seen_as_other(folder, text_columns), **options.get("types", {})}
    if kind == "csv" and types != options.get("types", {}):
        folder = _converted(found, kind, {**options, "types": types})
    return [str(folder)]


def _seen_as_other(folder: Path, text_columns: Sequence[str]) -> dict[str, str]:
    """The types of those columns that were not read as text."""
    first = folder / "part-00000.parquet"
    if not text_columns or not first.exists():
        return {}
    import pyarrow as pa
    import pyarrow.parquet as pq

    schema = pq.read_schema(first)
    return {
        name: "string"
        for name in text_columns
        if name in schema.names and schema.field(name).type != pa.string()
    }


def is_text(source: str) -> bool:
    """Whether a source is text: by its files, or by its name where there are none."""
    named = bool(text_format(source)) and not os.path.exists(source)
    return not protocol(location(source)) and (named or bool(_text_files(source)))


def is_converted(path: str) -> bool:
    """Whether a path is that of a shard in the cache, made of a source that is text."""
    return to_slashes(path).startswith(f"{cache_root().as_posix()}/")


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


def is_csv(path: str) -> bool:
    """Whether a path is that of a shard in the cache, made of CSV."""
    record = _record(Path(path).parent) if is_converted(path) else None
    return record is not None and text_format(record["files"][0]["path"]) == "csv"


def place_in_text(path: str, row: int) -> str:
    """The file and line that a row of a shard in the cache was made of; "" for other shards.

    The line is counted in the file, which is read up to it; where that fails, it is the row.
    """
    record = _record(Path(path).parent) if is_converted(path) else None
    number = _SHARD.fullmatch(os.path.basename(path))
    if record is None or number is None:
        return ""
    row += int(number[1]) * ROWS_PER_SHARD
    for file, rows in zip(record["files"], record["rows"], strict=True):
        if row < rows:
            line = _line(file, row, record["options"])
            return f"{shown(file['path'])}, {f'line {line}' if line else f'row {row}'}"
        row -= rows
    return ""


def text_of(path: str) -> str:
    """The first file that a shard in the cache was made of; "" for other shards."""
    record = _record(Path(path).parent) if is_converted(path) else None
    return str(record["files"][0]["path"]) if record else ""


def _line(file: Mapping[str, Any], row: int, options: Mapping[str, Any]) -> int:
    """The line of a row of a text file; 0 if it is not found."""
    from streamomd.sources.text.text_source import Text, line_of, locate

    kind = text_format(file["path"])
    if kind == "arrows":  # which has no lines
        return 0
    csv = kind == "csv"
    header = csv and options.get("header", True)
    try:
        if _identity(file["path"]) != file:
            return 0
        [source] = locate([file["path"]], {})
        with Text(source, options.get("encoding", "")) as text:
            return line_of(text, row + header, quotes=csv and options.get("quotes", True))
    except (OSError, ValueError):  # it is gone or changed: the row is known
        return 0


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


def _command(
    texts: Sequence[str], files: Sequence[Sequence[str]], options: Mapping[str, Any]
) -> str:
    """The command that converts the text among the sources, to paste into a shell."""
    words = ["streamomd convert"]
    for text, some in zip(texts, files, strict=True):
        words += _pasted(text, some) if some else []
    words += [f"-o shards/{''.join(_flags(options))}"]
    return f"`{' '.join(words)}`"


def _pasted(text: str, files: Sequence[str]) -> list[str]:
    """Names of files for a shell; patterns where there are many."""
    if len(files) <= MOST_NAMES:
        return [typed(file) for file in files]
    folders = dict.fromkeys((os.path.dirname(one), ending(one)) for one in files)
    return [f"{typed(folder)}/*{end}" for folder, end in folders]


def _flags(options: Mapping[str, Any]) -> Iterator[str]:
    for name, value in options.items():
        flag = _FLAGS.get(name, f"--{name.replace('_', '-')}")
        yield f" {flag}" if isinstance(value, bool) else f" {flag} {shlex.quote(_worded(value))}"


def _worded(value: str | Sequence[str] | Mapping[str, str]) -> str:
    if isinstance(value, Mapping):
        return join_list(f"{column}={kind}" for column, kind in value.items())
    return value if isinstance(value, str) else join_list(value)


def _converted(files: Sequence[str], kind: str, options: Mapping[str, Any]) -> Path:
    """The folder with the shards of these files."""
    # Without options the name is that of earlier versions, whose runs may resume.
    parts = [*files, *([json.dumps(options, sort_keys=True)] if options else [])]
    digest = hashlib.sha256("\0".join(parts).encode("utf-8", "surrogateescape")).hexdigest()
    folder = cache_root() / "text" / digest[:24]
    source = [_identity(file) for file in files]
    refuse_shared(folder)
    record = _record(folder)
    if record is not None and record["files"] == source:
        return folder
    for old in folder.parent.glob(f".{folder.name}-*"):  # of a process that was killed
        if time.time() - old.stat().st_mtime > ABANDONED:
            shutil.rmtree(old, ignore_errors=True)
    scratch = folder.with_name(f".{folder.name}-{uuid.uuid4().hex}")
    work = f"converting {shown(files[0])} to {folder}"
    try:
        for own in (cache_root(), folder.parent, scratch):
            own.mkdir(mode=0o700, parents=True, exist_ok=True)
        with stopping_promptly(work), phase(work):
            _fill(scratch, files, source, kind, options)
        if (_record(folder) or {}).get("files") == source:  # another process was first
            return folder
        if folder.exists():
            shutil.rmtree(folder)
        replace(scratch, folder)
    except OSError as error:
        if isinstance(error, StreamomdError):  # some are errors of files to Python
            raise
        if (_record(folder) or {}).get("files") == source:  # another process was first
            return folder
        raise StorageError(
            f"the folder of converted text, {folder}, cannot be written: {error.strerror}; "
            f"set {VARIABLE}, or run streamomd convert"
        ) from None
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return folder


def _fill(
    scratch: Path,
    files: Sequence[str],
    source: Sequence[Mapping[str, Any]],
    kind: str,
    options: Mapping[str, Any],
) -> None:
    """Write shards and record to a folder that is not in use yet."""
    done = _convert(files, kind, scratch, options)
    if [_identity(file) for file in files] != source:
        raise DataError(f"{shown(files[0])} changed while it was read: run the command again")
    latest = max(file["mtime_ns"] for file in source)
    for part in scratch.iterdir():  # a rebuilt shard is the same file to a run that resumes
        os.utime(part, ns=(latest, latest))
    shards = {part.name: part.stat().st_size for part in scratch.iterdir()}
    notes = [*done.notes, *(_almost(*one) for one in done.almost_numbers.items())]
    record = {"files": source, "rows": done.source_rows, "notes": notes, "shards": shards}
    (scratch / RECORD).write_text(json.dumps({**record, "options": options}), "utf-8")


def _almost(column: str, words: Sequence[str]) -> str:
    some = printable(", ".join(word[:20] for word in words))
    return (
        f"{printable(column)!r}: most values are numbers, but it is text because of {some} (if "
        f"that means missing: {typed(f'--null-values={join_list(words)}')})"
    )


def _convert(files: Sequence[str], kind: str, to: Path, options: Mapping[str, Any]) -> Converted:
    # Late: few runs read text.
    from streamomd.sources.text.conversion import Layout, text_reader, write_shards
    from streamomd.sources.text.text_source import locate

    more = dict(options)
    encoding = more.pop("encoding", "")
    layout = Layout(to=str(to), rows_per_shard=ROWS_PER_SHARD)
    make = text_reader(kind, more)
    return write_shards(locate(files, None), make, kind, layout, encoding=encoding)


def _identity(file: str) -> dict[str, Any]:
    status = os.stat(file)
    return {"path": file, "bytes": status.st_size, "mtime_ns": status.st_mtime_ns}


def _record(folder: Path) -> dict[str, Any] | None:
    """What a folder was made of; None if it is not complete."""
    try:
        found = json.loads((folder / RECORD).read_text("utf-8"))
        shards = found["shards"].items()
        whole = all((folder / name).stat().st_size == size for name, size in shards)
        known: dict[str, Any] = {name: list(found[name]) for name in ("files", "rows", "notes")}
        known["options"] = dict(found["options"])
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return None
    return known if whole else None
