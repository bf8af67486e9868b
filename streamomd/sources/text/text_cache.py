"""Delimited text and JSON lines as sources: converted to Parquet in folders of the user's cache.

Each file has a folder, whose name follows from its path, from the options of the text and, but for
the first file of a job, from the first one's columns, whose types it has. A folder is rebuilt, to
the same bytes, if it was deleted, and rebuilt from the changed text if a file changed, which a run
that resumes or is updated refuses as any changed shard. Large text is refused: `streamomd convert`
writes shards that stay.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import time
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from streamomd.checkpoint.segments import TYPES
from streamomd.config.values import join_list
from streamomd.core.errors import (
    DataError,
    ResumeRefusedError,
    StorageError,
    StreamomdError,
    UsageError,
)
from streamomd.core.platform_calls import replace, stopping_promptly, to_slashes
from streamomd.core.run_events import phase
from streamomd.core.urls import location, printable, protocol, shown, typed
from streamomd.shards.cache.folder import VARIABLE, cache_root, refuse_shared
from streamomd.shards.file_schema import schema_facts, schema_of_text
from streamomd.shards.order import path_key
from streamomd.shards.shard import Listed
from streamomd.sources.contract import ALL, Request, SourceFiles
from streamomd.sources.tables import command, text_files, text_format

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
_SHARD = re.compile(r"part-(\d+)\.parquet")
_UNSAFE = re.compile(r"[^\w.-]+|^\.+", re.ASCII)
MOST_LETTERS = 80
"""The most letters of a file's name in that of its folder."""


class Text(NamedTuple):
    """A text file and how it is converted. types: the schema whose types its columns have, as a
    text of the reader's; "": they are inferred. is_first: of its job."""

    file: str
    kind: str
    options: Mapping[str, Any]
    types: str = ""
    is_first: bool = True

    @property
    def folder(self) -> Path:
        """Where its shards are."""
        parts = [self.file, json.dumps(self.options, sort_keys=True), self.types]
        name = _UNSAFE.sub("_", os.path.basename(self.file))[:MOST_LETTERS]
        return cache_root() / "text" / f"{name}-{_hash(parts)}"

    @property
    def earlier_folder(self) -> Path:
        """Where earlier versions had the shards of a run that read this file alone."""
        options = [json.dumps(self.options, sort_keys=True)] if self.options else []
        return cache_root() / "text" / _hash([self.file, *options])


def _hash(parts: Sequence[str]) -> str:
    data = "\0".join(parts).encode("utf-8", "surrogateescape")
    return hashlib.sha256(data).hexdigest()[:24]


def as_shards(texts: Sequence[str], request: Request = ALL) -> list[str]:
    """The sources, or the folders of the shards that were made of their files if they are text.

    request: of an update, where a file that cannot be read has a folder with the error.

    Raises UsageError for text next to other sources and for text of more than ``MOST_BYTES``,
    what ``convert`` raises for text that cannot be read, StorageError without room and for a
    folder that other users can write, StoppedError for a signal while it converts, and
    ResumeRefusedError for a run whose text was converted elsewhere or by an earlier version.
    """
    options = request.tables.csv
    files = [text_files(text) for text in texts]
    if not any(files):
        return list(texts)
    convert = command(texts, files, options)
    others = [text for text, some in zip(texts, files, strict=True) if not some]
    if request.with_new:  # of a run, whose files may be gone
        others = [text for text in others if not text_format(text)]
    if others:
        raise UsageError(
            f"{shown(others[0])} is not text, and other sources are: convert the text once, "
            f"{convert}, and pass shards/ with the other sources"
        )
    # Patterns that overlap name a file once.
    names = list(dict.fromkeys(file for some in files for file in some))
    if request.order != "given":  # the first file decides on types, and comes first
        names.sort(key=path_key)
    if request.check is not None:
        request.check(names)
    kinds = {text_format(file) for file in names}
    if len(kinds) > 1:
        raise UsageError(f"sources are of different formats, {', '.join(sorted(kinds))}: pass one")
    size = sum(os.path.getsize(file) for file in names)
    # A run that has learned its text continues, whatever new files add.
    if size > MOST_BYTES and not request.ledger:
        raise UsageError(
            f"{size / 1e9:.1f} GB of text are more than the {MOST_BYTES / 1e9:.0f} GB that are "
            f"read directly: convert them once, {convert}, and pass shards/"
        )
    [kind] = kinds
    every = [Text(file, kind, options) for file in names]
    if request.ledger:
        return _of_run(every, request)
    folders = [_first(every[0], request.tables.texts)]
    if every[1:]:
        import pyarrow.parquet as pq

        types = schema_facts(pq.read_schema(folders[0] / "part-00000.parquet")).text or ""
        later = [text._replace(types=types, is_first=False) for text in every[1:]]
        folders += [_converted(text, text.folder) for text in later]
    if not any(record["rows"] for folder in folders if (record := _record(folder))):
        from streamomd.sources.text.conversion import no_rows

        raise DataError(no_rows([*map(shown, names)]))
    return [*map(str, folders)]


def _of_run(texts: Sequence[Text], request: Request) -> list[str]:
    """The folders of a run's text, those of files that came later, too."""
    recorded = [facts for facts in request.ledger.values() if "skipped" not in facts]
    folders = {os.path.dirname(facts["url"]) for facts in recorded}
    place, known = Path(recorded[0]["url"]).parent, recorded[0].get(TYPES)
    root = cache_root() / "text"
    if place.parent != root:
        raise ResumeRefusedError(
            f"this run learned shards in {shown(str(place))}, and text is converted to "
            f"{shown(str(root))} now: set {VARIABLE} as it was (it contains text/), or learn the "
            "new files in a run of its own: streamomd train NEW.csv --start URL"
        )
    earlier = "-" not in place.name
    if known is None or (earlier and place not in [one.earlier_folder for one in texts]):
        raise ResumeRefusedError(
            "an earlier version began this run, and converted all of its text files as one, so "
            "their rows would be learned again. Train on all files (train FILES --restart), or "
            "learn new ones in a run of its own: streamomd train NEW.csv --start URL"
        )
    made = []
    for text in texts:
        later = text._replace(types=known, is_first=False)
        own = text.earlier_folder if earlier else text.folder
        which, folder = (text, own) if str(own) in folders else (later, later.folder)
        made.append(str(_converted(which, folder, may_fail=request.with_new)))
    return made


def _first(text: Text, text_columns: Sequence[str]) -> Path:
    """The folder of the first file. text_columns: are text, whatever their values look like."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    record = _record(text.folder)
    if text_columns and record and record["files"] == [_identity(text.file)]:
        schema = pq.read_schema(text.folder / "part-00000.parquet")
        kinds = {schema.field(name).type for name in text_columns if name in schema.names}
        text_columns = [] if kinds <= {pa.string()} else text_columns
    types = schema_facts(pa.schema([(name, pa.string()) for name in text_columns])).text or ""
    text = text._replace(types=types if text_columns else "")
    return _converted(text, text.folder)


def is_text(source: str) -> bool:
    """Whether a source is text: by its files, or by its name where there are none."""
    named = bool(text_format(source)) and not os.path.exists(source)
    return not protocol(location(source)) and (named or bool(text_files(source)))


def is_converted(path: str) -> bool:
    """Whether a path is that of a shard in the cache, made of a source that is text."""
    return to_slashes(path).startswith(f"{cache_root().as_posix()}/")


def text_notes(paths: Sequence[str], text_columns: Sequence[str] = ()) -> list[str]:
    """Which text the shards at these paths were made of, and choices of its conversion; without
    those on text_columns, which are text to a model."""
    folders = dict.fromkeys(os.path.dirname(path) for path in paths if is_converted(path))
    records = [record for folder in folders if (record := _record(Path(folder)))]
    if not records:
        return []
    names = [shown(record["files"][0]["path"]) for record in records]
    to = next(iter(folders)) if len(folders) == 1 else str(cache_root() / "text")
    lines = [f"{', '.join(names[:3])}{' …' * (len(names) > 3)}: converted to {to}"]
    for record in records:
        lines += record["notes"]
        almost = record["almost"].items()
        lines += [_almost(*one) for one in almost if one[0] not in text_columns]
    return [*dict.fromkeys(lines)]


def is_csv(path: str) -> bool:
    """Whether a path is that of a shard in the cache, made of CSV."""
    return text_format(text_of(path)) == "csv"


def place_in_text(path: str, row: int) -> str:
    """The file and line that a row of a shard in the cache was made of; "" for other shards.

    The line is counted in the file, which is read up to it; where that fails, it is the row.
    """
    record = _record(Path(path).parent) if is_converted(path) else None
    number = _SHARD.fullmatch(os.path.basename(path))
    if record is None or number is None:
        return ""
    row += int(number[1]) * ROWS_PER_SHARD
    if row >= record["rows"]:
        return ""
    [file] = record["files"]
    line = _line(file, row, record["options"])
    return f"{shown(file['path'])}, {f'line {line}' if line else f'row {row}'}"


def text_of(path: str) -> str:
    """The file that a shard in the cache was made of; "" for other shards."""
    record = _record(Path(path).parent) if is_converted(path) else None
    return str(record["files"][0]["path"]) if record else ""


def list_text(files: SourceFiles, folder: str) -> SourceFiles:
    """What a folder of the cache has, in the place of its text, or the error of its text."""
    record = _record(Path(folder)) if is_converted(folder) else None
    if record is None:
        return files
    [text] = record["files"]
    prefix = f"{os.path.basename(folder).rpartition('-')[0]}/" if record["later"] else ""
    found = [one._replace(name=prefix + one.name, origin=text["path"]) for one in files.files]
    if record["error"]:
        path = f"{folder}/part-00000.parquet"
        error = DataError(record["error"])
        found = [Listed(path, path, prefix + "part-00000.parquet", text["bytes"],
                        text["mtime_ns"], origin=text["path"], error=error)]  # fmt: skip
    return files._replace(files=found, place=text["path"])


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


def _converted(text: Text, folder: Path, *, may_fail: bool = False) -> Path:
    """The folder with the shards of a file; may_fail: or with the error of its conversion."""
    source = [_identity(text.file)]
    refuse_shared(folder)
    if _is_of(folder, source, may_fail=may_fail):
        return folder
    for old in folder.parent.glob(f".{folder.name}-*"):  # of a process that was killed
        if time.time() - old.stat().st_mtime > ABANDONED:
            shutil.rmtree(old, ignore_errors=True)
    scratch = folder.with_name(f".{folder.name}-{uuid.uuid4().hex}")
    work = f"converting {shown(text.file)} to {folder}"
    try:
        for own in (cache_root(), folder.parent, scratch):
            own.mkdir(mode=0o700, parents=True, exist_ok=True)
        with stopping_promptly(work), phase(work):
            _fill(scratch, text, source, may_fail=may_fail)
        if _is_of(folder, source, may_fail=may_fail):  # another process was first
            return folder
        # Of the text as it was before it changed.
        if folder.exists():
            shutil.rmtree(folder)
        replace(scratch, folder)
    except OSError as error:
        if isinstance(error, StreamomdError):  # some are errors of files to Python
            raise
        if _is_of(folder, source, may_fail=may_fail):  # another process was first
            return folder
        raise StorageError(
            f"the folder of converted text, {folder}, cannot be written: {error.strerror}; "
            f"set {VARIABLE}, or run streamomd convert"
        ) from None
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return folder


def _is_of(folder: Path, source: Sequence[Mapping[str, Any]], *, may_fail: bool) -> bool:
    """Whether a folder has what was made of these files as they are."""
    record = _record(folder)
    return record is not None and record["files"] == source and (may_fail or not record["error"])


def _fill(
    scratch: Path, text: Text, source: Sequence[Mapping[str, Any]], *, may_fail: bool
) -> None:
    """Write shards and record to a folder that is not in use yet."""
    record: dict[str, Any] = {"files": source, "options": text.options, "rows": 0}
    record["later"] = not text.is_first
    try:
        done = _convert(text, scratch)
        if [_identity(text.file)] != source:
            raise DataError(f"{shown(text.file)} changed while it was read: run the command again")
        record |= {"rows": done.rows, "notes": done.notes, "almost": dict(done.almost_numbers)}
    except DataError as error:
        if not may_fail:
            raise
        record["error"] = str(error)
    for part in scratch.iterdir():  # a rebuilt shard is the same file to a run that resumes
        os.utime(part, ns=(source[0]["mtime_ns"], source[0]["mtime_ns"]))
    record["shards"] = {part.name: part.stat().st_size for part in scratch.iterdir()}
    (scratch / RECORD).write_text(json.dumps(record), "utf-8")


def _almost(column: str, words: Sequence[str]) -> str:
    some = printable(", ".join(word[:20] for word in words))
    return (
        f"{printable(column)!r}: most values are numbers, but it is text because of {some} (if "
        f"that means missing: {typed(f'--null-values={join_list(words)}')})"
    )


def _convert(text: Text, to: Path) -> Converted:
    # Late: few runs read text.
    import pyarrow as pa

    from streamomd.sources.text.conversion import Layout, text_reader, write_shards
    from streamomd.sources.text.text_source import locate

    more = dict(text.options)
    encoding = more.pop("encoding", "")
    layout = Layout(to=str(to), rows_per_shard=ROWS_PER_SHARD)
    columns = schema_of_text(text.types) if text.types else None
    known = columns.schema if columns else pa.schema([])
    return write_shards(
        locate([text.file], None),
        text_reader(text.kind, more),
        text.kind,
        layout,
        encoding=encoding,
        known=known,
    )


def _identity(file: str) -> dict[str, Any]:
    status = os.stat(file)
    return {"path": file, "bytes": status.st_size, "mtime_ns": status.st_mtime_ns}


def _record(folder: Path) -> dict[str, Any] | None:
    """What a folder was made of; None if it is not complete."""
    try:
        found = json.loads((folder / RECORD).read_text("utf-8"))
        shards = found["shards"].items()
        whole = all((folder / name).stat().st_size == size for name, size in shards)
        [file] = found["files"]
        # Earlier versions had a list of rows, and neither of the last three.
        rows = found["rows"] if isinstance(found["rows"], int) else sum(found["rows"])
        known = {"files": [dict(file)], "rows": rows, "options": dict(found["options"])}
        known |= {"notes": list(found.get("notes", [])), "almost": dict(found.get("almost", {}))}
        known |= {"later": bool(found.get("later")), "error": str(found.get("error", ""))}
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return None
    return known if whole else None
