"""Commit: the content of a manifest. The only module that encodes and decodes manifests."""

from __future__ import annotations

import base64
import hashlib
import itertools
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from types import MappingProxyType
from typing import Any, NamedTuple

from streamomd.checkpoint.parts import ZSTD, PartEntry, parse_entry
from streamomd.checkpoint.sealed_json import Fields, seal, unseal
from streamomd.core.errors import CorruptionError, NoCommitError, UsageError
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
TREES = "trees"
"""Key of a commit's document: the shared document of its plan's trees."""
FEATURES = frozenset({SEGMENTS, HOLDOUT_BY, GROUPS, BACKTEST, TRIED, TREES})
"""Features a manifest may require: keys of its document."""
INLINE = "inline"
KNOWN = FEATURES | {ZSTD, INLINE}
"""All features that this version supports; ``ZSTD``: a part is compressed; ``INLINE``: shared
documents are in the manifest."""
MOST_EARLIER = 256
"""Earlier commits that a manifest describes."""
KINDS = ("dataset", "names", TREES, SEGMENTS)
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
_OBJECT = re.compile(
    rf"data/{_DIRECTORY}/[0-9a-z.-]+|(copies/)?({'|'.join(KINDS)})/{SHA256}\.(bin|json)", re.ASCII
)
"""What a commit may have retention delete."""
LAST = 10**12 - 1


@dataclass(frozen=True)
class WriterId:
    """Identity of a writer: its own ``uuid``, host and pid, start time (ISO)."""

    uuid: str
    host: str
    pid: int
    started: str


class Brief(NamedTuple):
    """What retention needs of a commit. objects: the names of its parts and documents."""

    sequence: int
    run: str
    directory: str
    objects: tuple[str, ...]
    update: int
    finite: bool

    @classmethod
    def of(cls, commit: Commit) -> Brief:
        """Of a commit that was read."""
        names = [commit.part_name(entry) for entry in commit.parts]
        for kind, sha256 in commit.documents:
            names += document_names(kind, sha256)
        finite = commit.document.get("finite") is True
        own = (commit.sequence, commit.run, commit.directory)
        return cls(*own, tuple(names), commit.update, finite)


class Commit(NamedTuple):
    """A valid commit.

    ``kind``: "commit", or "open" for one that repeats its parent's parts to fence other writers.
    ``run``: id of the training run; a restart begins another. ``nonce``: unique to this attempt.
    ``parent``: sequence of the commit it follows, −1 if none; ``parent_sha256``: of its first line.
    ``directory``: below ``data/``, where ``parts`` are. ``document``: the caller's. ``inline``: the
    bytes of shared documents that are in the manifest, by SHA-256. ``exclusive``: no other writer
    can have made this commit's sequence. ``earlier``: commits that existed before it, or some.
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
    inline: Mapping[str, bytes] = MappingProxyType({})
    exclusive: bool = False
    earlier: tuple[Brief, ...] = ()

    @property
    def documents(self) -> list[tuple[str, str]]:
        """(kind, SHA-256) of each shared document this commit needs, but for those inline."""
        return [one for one in named_documents(self.document) if one[1] not in self.inline]

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


def named_documents(document: Mapping[str, Any]) -> list[tuple[str, str]]:
    """(kind, SHA-256) of each shared document that a commit's document names."""
    named = ((kind, document[kind]) for kind in KINDS if kind in document)
    return [(kind, one) for kind, of in named for one in (of if kind == SEGMENTS else [of])]


def document_names(kind: str, sha256: str) -> tuple[str, str]:
    """The objects that hold a shared document: the first and the second copy."""
    if kind not in KINDS:
        raise UsageError(f"a shared document is one of {', '.join(KINDS)}, not {kind!r}")
    name = f"{kind}/{sha256}.{'bin' if kind == SEGMENTS else 'json'}"
    return name, f"copies/{name}"


def manifest_name(sequence: int) -> str:
    """The object that holds a manifest."""
    return f"{COMMITS}{sequence:012d}.json"


def sequence_of(name: str) -> int | None:
    """The sequence of a manifest's name, None for any other name."""
    match = _NAME.fullmatch(name)
    return int(match[1]) if match else None


def encode(commit: Commit) -> bytes:
    """A manifest's bytes, to which ``sha256`` adds nothing. Raises UsageError if JSON cannot hold
    the document or it is too large."""
    document, parts, inline = commit.document, commit.parts, commit.inline
    parent = {"sequence": commit.parent, "sha256": commit.parent_sha256}
    fields = {
        "format": {"name": FORMAT, "major": MAJOR, "minor": MINOR},
        "required_features": _needed(document, parts, inline),
        "sequence": commit.sequence,
        "kind": commit.kind,
        "run": commit.run,
        "writer": asdict(commit.writer),
        "nonce": commit.nonce,
        "parent": None if commit.parent < 0 else parent,
        "versions": dict(commit.versions),
        "directory": commit.directory,
        "document": dict(document),
        "parts": [entry.to_json() for entry in parts],
        "written": commit.written,
    }
    if inline:
        fields[INLINE] = {one: base64.b64encode(data).decode() for one, data in inline.items()}
    if commit.exclusive:
        fields["exclusive"] = True
    if commit.earlier:
        fields["earlier"] = [brief._asdict() for brief in commit.earlier[-MOST_EARLIER:]]
    return seal(fields)


def _needed(
    document: Mapping[str, Any], parts: Sequence[PartEntry], inline: Mapping[str, bytes]
) -> list[str]:
    more = {ZSTD} if any(entry.unpacked for entry in parts) else set()
    more |= {INLINE} if inline else set()
    return sorted((FEATURES & document.keys()) | more)


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
        inline=_inline(fields),
        exclusive=fields.values.get("exclusive") is True,
        earlier=tuple(map(_brief, fields.items("earlier"))) if "earlier" in fields.values else (),
    )


def _inline(fields: Fields) -> dict[str, bytes]:
    if INLINE not in fields.values:
        return {}
    found = {}
    for sha256, text in fields.mapping(INLINE).items():
        try:
            found[sha256] = base64.b64decode(text, validate=True)
        except (ValueError, TypeError):
            raise fields.invalid(INLINE) from None
        if hashlib.sha256(found[sha256]).hexdigest() != sha256:
            raise fields.invalid(INLINE)
    return found


def _brief(value: Any) -> Brief:
    fields = Fields(value, "an earlier commit")
    names = fields.items("objects")
    if not all(isinstance(name, str) and _OBJECT.fullmatch(name) for name in names):
        raise fields.invalid("objects")
    return Brief(
        fields.number("sequence", LAST),
        fields.text("run", _ID),
        fields.text("directory", _DIRECTORY),
        tuple(names),
        fields.number("update", LAST),
        fields.values.get("finite") is True,
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
