"""Digests of row groups: every later read must equal the first one.

A digest is XXH3-128 over the stored bytes that a row group is decoded from. It detects changed
data. It does not protect against an attacker, who can construct bytes with the same digest.
"""

from __future__ import annotations

import struct
import threading
from collections.abc import Iterable, Iterator
from typing import Any

import xxhash

from streamomd.core.errors import ChangedDataError
from streamomd.core.urls import shown
from streamomd.shards.shard import Shard

DIGEST_BYTES = 16
WINDOW = 256 << 10
"""Bytes are hashed in windows, and the windows' hashes once more: so a window can be verified
alone, where a row group is too large to stay in memory."""
_RANGE = struct.Struct("<QQ")
_UNKNOWN = bytes(DIGEST_BYTES)
Found = tuple[str, int, bytes]
"""URL of a shard, number of its row group, digest."""


def hash_window(data: object) -> bytes:
    """XXH3-128 of at most ``WINDOW`` bytes."""
    return xxhash.xxh3_128_digest(data)  # type: ignore[arg-type]


def combine(ranges: Iterable[tuple[int, int, Iterable[bytes]]]) -> bytes:
    """The digest of a row group: of each range its offset, its length and its windows' hashes."""
    whole = xxhash.xxh3_128()
    for offset, length, hashes in ranges:
        whole.update(_RANGE.pack(offset, length))
        for one in hashes:
            whole.update(one)
    return whole.digest()


class Digests:
    """Digests by shard and row group; those that are new, in the order in which they came.

    Threads may use one table at the same time.
    """

    def __init__(self, known: Iterable[Found] = ()) -> None:
        self._lock = threading.Lock()
        self._groups: dict[str, bytearray] = {}
        self._found: list[Found] = []
        for url, group, digest in known:
            self._put(url, group, digest)

    def check(self, shard: Shard, group: int, digest: bytes) -> None:
        """Record a digest, or compare it with the recorded one.

        Raises ChangedDataError if the bytes are not those that were read first.
        """
        self.check_found(shard.url, group, digest)

    def check_found(self, url: str, group: int, digest: bytes) -> None:
        """Records or compares a digest that another process computed, as ``check`` does."""
        with self._lock:
            known = self._get(url, group)
            if known is None:
                self._put(url, group, digest)
                self._found.append((url, group, digest))
        if known is not None and known != digest:
            raise ChangedDataError(
                f"shard {shown(url)}, row group {group}: its stored bytes differ from those "
                f"read first (digest {known.hex()[:12]} -> {digest.hex()[:12]}), and its size and "
                "footer are the same. Restore the old file and resume, or start over with "
                "--restart; no commit has a changed row"
            )

    def check_all(self, found: Iterable[Found]) -> None:
        """Records or compares several digests, as ``check_found`` does."""
        for one in found:
            self.check_found(*one)

    def get(self, url: str, group: int) -> bytes | None:
        """The digest of a row group; None if it was not read yet."""
        with self._lock:
            return self._get(url, group)

    def found(self, begin: int = 0) -> list[Found]:
        """Digests that were not known when the table was made, from number ``begin`` on."""
        with self._lock:
            return self._found[begin:]

    def __iter__(self) -> Iterator[Found]:
        """All digests, known and found."""
        with self._lock:
            shards = [(url, bytes(digests)) for url, digests in self._groups.items()]
        for url, digests in shards:
            for group in range(len(digests) // DIGEST_BYTES):
                digest = digests[group * DIGEST_BYTES : (group + 1) * DIGEST_BYTES]
                if digest != _UNKNOWN:
                    yield url, group, digest

    def __reduce__(self) -> Any:
        """For a pickle of a model: a lock cannot be in one."""
        return Digests, ([*self],)

    def _get(self, url: str, group: int) -> bytes | None:
        digests = self._groups.get(url, b"")
        digest = bytes(digests[group * DIGEST_BYTES : (group + 1) * DIGEST_BYTES])
        return digest if digest and digest != _UNKNOWN else None

    def _put(self, url: str, group: int, digest: bytes) -> None:
        # One array a shard: a million row groups take 16 MB, not 200.
        digests = self._groups.setdefault(url, bytearray())
        missing = (group + 1) * DIGEST_BYTES - len(digests)
        if missing > 0:
            digests.extend(bytes(missing))
        digests[group * DIGEST_BYTES : (group + 1) * DIGEST_BYTES] = digest
