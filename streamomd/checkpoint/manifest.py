"""Commit: the content of a manifest. The only module that encodes and decodes manifests."""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

from streamomd.checkpoint.parts import ZSTD, PartEntry, parse_entry
from streamomd.checkpoint.sealed_json import Fields, seal, unseal
from streamomd.core.errors import CorruptionError, NoCommitError
from streamomd.core.installed import upgrade_hint
from streamomd.core.urls import printable

FORMAT, MAJOR, MINOR = "streamomd-checkpoint", 1, 1
SEGMENTS = "segments"
HOLDOUT_BY = "holdout_by"
"""Key of a commit's document: "name" if hold-out rows depend on the shards' names; absent: on their
positions. Earlier versions know positions alone, and would learn other rows on resume."""
GROUPS = "groups"
"""Key of a sweep's commit: its learners' commits are those that commits of groups name."""
BACKTEST = "backtest"
"""Key of a commit of a backtest. Earlier versions would learn its rows when they are predicted."""
TRIED = "tried"
"""Key of a commit in a pass that may be undone: its sums, and the commit before it, which is
retained. Earlier versions would learn the rows that decide."""
FEATURES = frozenset({SEGMENTS, HOLDOUT_BY, GROUPS, BACKTEST, TRIED})
"""Features a manifest may require: keys of its document."""
KNOWN = FEATURES | {ZSTD}
"""All features that this version supports; ``ZSTD``: a part is compressed."""
KINDS = ("dataset", "names", SEGMENTS)
"""Keys of a commit's document whose value is the SHA-256 of a shared document; for segments
a list of them, in ledger order. A commit has segments, or a dataset if an older version wrote
it."""
MAX_SEGMENTS = 1000
MOST_ROWS = (1 << 63) - 1

COMMITS = "commits/"
SHA256 = r"[0-9a-f]{64}"
_ID = r"[0-9a-f]{32}"
_DIRECTORY = r"[0-9]{12}-[0-9a-f]{8}-[0-9a-f]{8}"
_NAME = re.compile(r"commits/([0-9]{12})\.json")
LAST = 10**12 - 1


@dataclass(frozen=True)
class WriterId:
    """Identity of a writer: its own ``uuid``, host and pid, start time (ISO)."""

    uuid: str
    host: str
    pid: int
    started: str


class Commit(NamedTuple):
    """A valid commit.

    ``kind``: "commit", or "open" for one that repeats its parent's parts to fence other writers.
    ``run``: id of the training run; a restart begins another. ``nonce``: unique to this attempt.
    ``parent``: sequence of the commit it follows, −1 if none; ``parent_sha256``: of its first line.
    ``directory``: below ``data/``, where ``parts`` are. ``document``: the caller's.
    """

    sequence: int
    kind: str
    run: str
    writer: WriterId
    nonce: str
    parent: int
    parent_sha256: str
    versions: Mapping[str, Any]
    directory: str
    document: Mapping[str, Any]
    parts: tuple[PartEntry, ...]
    written: str
    sha256: str

    @property
    def documents(self) -> list[tuple[str, str]]:
        """(kind, SHA-256) of each shared document this commit needs."""
        named = ((kind, self.document[kind]) for kind in KINDS if kind in self.document)
        return [
            (kind, sha256) for kind, one in named for sha256 in (one if kind == SEGMENTS else [one])
        ]

    @property
    def update(self) -> int:
        """Number of the update that made it; 0: the first run."""
        record = self.document.get("update")
        number = record.get("number") if isinstance(record, dict) else 0
        return number if type(number) is int else 0

    @property
    def before_pass(self) -> int | None:
        """The commit of the model before the pass under way, if that may be undone."""
        record = self.document.get(TRIED)
        number = record.get("commit") if isinstance(record, dict) else None
        return number if type(number) is int else None

    def part_name(self, entry: PartEntry) -> str:
        """The object that holds a part."""
        return f"data/{self.directory}/{entry.name}"


def manifest_name(sequence: int) -> str:
    """The object that holds a manifest."""
    return f"{COMMITS}{sequence:012d}.json"


def sequence_of(name: str) -> int | None:
    """The sequence of a manifest's name, None for any other name."""
    match = _NAME.fullmatch(name)
    return int(match[1]) if match else None


def encode(
    *,
    sequence: int,
    kind: str,
    run: str,
    writer: WriterId,
    nonce: str,
    parent: Commit | None,
    versions: Mapping[str, str],
    directory: str,
    document: Mapping[str, Any],
    parts: Sequence[PartEntry],
    written: str,
) -> bytes:
    """A manifest's bytes. Raises UsageError if JSON cannot hold the document or it is too large."""
    fields = {
        "format": {"name": FORMAT, "major": MAJOR, "minor": MINOR},
        "required_features": _needed(document, parts),
        "sequence": sequence,
        "kind": kind,
        "run": run,
        "writer": asdict(writer),
        "nonce": nonce,
        "parent": None
        if parent is None
        else {"sequence": parent.sequence, "sha256": parent.sha256},
        "versions": dict(versions),
        "directory": directory,
        "document": dict(document),
        "parts": [entry.to_json() for entry in parts],
        "written": written,
    }
    return seal(fields)


def _needed(document: Mapping[str, Any], parts: Sequence[PartEntry]) -> list[str]:
    compressed = {ZSTD} if any(entry.unpacked for entry in parts) else set()
    return sorted((FEATURES & document.keys()) | compressed)


def decode(data: bytes, sequence: int) -> Commit:
    """The commit of a manifest of this sequence.

    Raises CorruptionError for an invalid manifest, NoCommitError for one that only a newer
    streamomd can read.
    """
    value, sha256 = unseal(data)
    fields = Fields(value, "the manifest")
    refuse_newer(fields)
    if fields.number("sequence", LAST) != sequence:
        raise CorruptionError(f"the manifest is that of commit {fields.values['sequence']}")
    versions = fields.mapping("versions")
    with upgrade_hint(versions.get("streamomd", ""), ""):
        return _commit(fields, sequence, versions, sha256)


def _commit(fields: Fields, sequence: int, versions: Mapping[str, Any], sha256: str) -> Commit:
    parent, parent_sha256 = _parent(fields)
    return Commit(
        sequence=sequence,
        kind=fields.text("kind", "commit|open"),
        run=fields.text("run", _ID),
        writer=_writer(fields),
        nonce=fields.text("nonce", _ID),
        parent=parent,
        parent_sha256=parent_sha256,
        versions=versions,
        directory=fields.text("directory", _DIRECTORY),
        document=_document(fields),
        parts=_parts(fields),
        written=fields.text("written"),
        sha256=sha256,
    )


def refuse_newer(fields: Fields) -> None:
    """Raises NoCommitError if the format or a feature is of a later version."""
    written = Fields(fields.mapping("format"), "the format")
    if written.text("name") != FORMAT:
        raise CorruptionError(f"the format is not {FORMAT}")
    major = written.number("major", LAST)
    required = fields.items("required_features") if "required_features" in fields.values else []
    needs = {str(feature) for feature in required} - KNOWN
    if major == MAJOR and not needs:
        return
    versions = fields.values.get("versions")
    version = versions.get("streamomd", "") if isinstance(versions, dict) else ""
    what = f"format {major}, needs {', '.join(sorted(needs)) or 'nothing more'}"
    raise NoCommitError(
        f"written by a newer streamomd {printable(str(version)[:40])} ({printable(what[:200])}); "
        f"this one reads format {MAJOR}: upgrade streamomd"
    )


def _parent(fields: Fields) -> tuple[int, str]:
    if fields.values.get("parent") is None:
        return -1, ""
    parent = Fields(fields.mapping("parent"), "the parent")
    return parent.number("sequence", LAST), parent.text("sha256", SHA256)


def _writer(fields: Fields) -> WriterId:
    writer = Fields(fields.mapping("writer"), "the writer")
    return WriterId(
        writer.text("uuid", _ID),
        writer.text("host"),
        writer.number("pid", 1 << 32),
        writer.text("started"),
    )


def _document(fields: Fields) -> dict[str, Any]:
    document = Fields(fields.mapping("document"), "the document")
    if "rows" in document.values:
        document.number("rows", MOST_ROWS)
    for kind in KINDS:
        if kind in document.values:
            # They become part of a name.
            named = document.items(kind) if kind == SEGMENTS else [document.values[kind]]
            if len(named) > MAX_SEGMENTS or not all(_is_sha256(one) for one in named):
                raise document.invalid(kind)
    return document.values


def _is_sha256(value: Any) -> bool:
    return isinstance(value, str) and bool(re.fullmatch(SHA256, value, re.ASCII))


def _parts(fields: Fields) -> tuple[PartEntry, ...]:
    parts = tuple(parse_entry(one) for one in fields.items("parts"))
    for before, after in itertools.pairwise(parts):
        if before.hi > after.lo:
            raise CorruptionError(f"parts {before.name} and {after.name} are not in order")
    return parts
