"""Manifests: a commit is one small object, canonical JSON and its own hash on a second line."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, NoReturn

from streamomd.checkpoint.parts import PartEntry
from streamomd.errors import CorruptionError, NoCommitError

MAJOR, MINOR = 1, 0
FEATURES: frozenset[str] = frozenset()  # what a newer minor version may demand of its reader
MAX_BYTES = 4 << 20
MAX_DEPTH = 16
NAME = re.compile(r"(\d{12})\.json")


@dataclass(frozen=True)
class Commit:
    """A commit as read or written: its place in the sequence, who wrote it, and what it names.

    run: the same for all commits that go on from one beginning. document: the model's own words.
    """

    sequence: int
    run: str
    writer: Mapping[str, Any]
    nonce: str
    parent_sha256: str
    written: str
    versions: Mapping[str, str]
    document: Mapping[str, Any]
    parts: tuple[PartEntry, ...]

    @property
    def name(self) -> str:
        """Its name in the store."""
        return manifest_name(self.sequence)

    @property
    def nbytes(self) -> int:
        """Bytes of all parts."""
        return sum(part.size for part in self.parts)

    def encode(self) -> bytes:
        """The manifest."""
        fields = {**asdict(self), "format": [MAJOR, MINOR], "required_features": sorted(FEATURES)}
        line = json.dumps(fields, sort_keys=True, allow_nan=False, separators=(",", ":")).encode()
        return line + b"\n" + hashlib.sha256(line).hexdigest().encode() + b"\n"

    @property
    def sha256(self) -> str:
        """Hash of the manifest, by which the next one names its parent."""
        return hashlib.sha256(self.encode()).hexdigest()


def manifest_name(sequence: int) -> str:
    """The name of a commit's manifest in its store."""
    return f"commits/{sequence:012d}.json"


def decode(data: bytes, sequence: int) -> Commit:
    """The commit of these bytes. Raises CorruptionError, NoCommitError if a newer version wrote it."""
    line, _, rest = data.partition(b"\n")
    if hashlib.sha256(line).hexdigest().encode() + b"\n" != rest:
        raise CorruptionError("the manifest does not have its own sha256")
    fields = parse(line)
    _check_version(fields)
    try:
        fields["parts"] = tuple(PartEntry(**part) for part in fields["parts"])
        commit = Commit(**fields)
    except (TypeError, KeyError, AttributeError) as error:
        raise CorruptionError(f"the manifest lacks what it should hold: {error}") from None
    if commit.sequence != sequence:
        raise CorruptionError(f"this is the manifest of commit {commit.sequence}")
    return commit


def parse(data: bytes) -> dict[str, Any]:
    """Strict JSON: an object, bounded in size and depth, no key twice, no NaN."""
    if len(data) > MAX_BYTES:
        raise CorruptionError(f"{len(data)} bytes of JSON, more than {MAX_BYTES}")
    if _depth(data) > MAX_DEPTH:
        raise CorruptionError(f"JSON nested deeper than {MAX_DEPTH}")
    try:
        fields = json.loads(data, object_pairs_hook=_no_key_twice, parse_constant=_no_constant)
    except ValueError as error:
        raise CorruptionError(f"not JSON: {error}") from None
    if not isinstance(fields, dict):
        raise CorruptionError("not a JSON object")
    return fields


def _check_version(fields: dict[str, Any]) -> None:
    written = fields.pop("format", None)
    needed = fields.pop("required_features", None)
    if not isinstance(written, list) or not isinstance(needed, list) or len(written) != 2:
        raise CorruptionError("the manifest names no format")
    if written[0] != MAJOR or not FEATURES.issuperset(needed):
        versions = fields.get("versions")
        raise NoCommitError(
            f"written as format {written} by {versions}, needing {needed}; this streamomd reads "
            f"format {MAJOR}: use the version that wrote it, or a newer one"
        )
    known = Commit.__dataclass_fields__
    for unknown in [key for key in fields if key not in known]:
        del fields[unknown]  # optional words of a newer minor version


def _depth(data: bytes) -> int:
    """How deep brackets nest, those inside strings counted too: a bound is all that is asked."""
    depth = deepest = 0
    for byte in data:
        if byte in b"[{":
            depth += 1
            deepest = max(deepest, depth)
        elif byte in b"]}":
            depth -= 1
    return deepest


def _no_key_twice(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key stands twice")
    return found


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number")
