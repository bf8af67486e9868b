"""When new shards landed, and the clock that says so: lag of a run, freshness of its commits."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

from streamomd.shards.listed import Listed


@dataclass(eq=False)
class Landings:
    """Listed shards that are not learned, and when each landed (ns since the epoch).

    A shard that the listing before did not have landed after that listing, or at its modification
    time, whichever is later: a copied or renamed file may have an old one. At the first listing
    only the modification time is known. looked_ns: when the last listing was made.
    """

    landed: dict[str, int] = field(default_factory=dict)
    looked_ns: int | None = None

    def look(self, unlearned: Sequence[Listed], now_ns: int, appeared: Mapping[str, int]) -> int:
        """Take a listing; the number of shards that the one before did not have.

        appeared: when files got to their paths, where that is known.
        """
        before, known = self.looked_ns, self.landed
        self.landed = {}
        for file in unlearned:
            times = [now_ns if file.mtime_ns is None and before is None else 0]
            times += [file.mtime_ns or 0, before or 0]
            landed = known.get(file.url, appeared.get(file.path, max(times)))
            self.landed[file.url] = min(landed, now_ns)
        self.looked_ns = now_ns
        return len(self.landed.keys() - known.keys())

    def learned(self, urls: Collection[str], now_ns: int) -> float | None:
        """Remove shards that were committed; seconds since the first of them landed."""
        landed = [self.landed.pop(url) for url in urls if url in self.landed]
        return max(0, now_ns - min(landed)) / 1e9 if landed else None

    def lag(self, now_ns: int) -> float:
        """Seconds since the oldest shard landed that is not learned; 0: all are."""
        return max(0, now_ns - min(self.landed.values(), default=now_ns)) / 1e9

    def ages(self, now_ns: int) -> list[float]:
        """Seconds since each landed that is not learned."""
        return [(now_ns - landed) / 1e9 for landed in self.landed.values()]

    def oldest(self) -> str:
        """URL of that shard."""
        return min(self.landed, key=lambda url: (self.landed[url], url), default="")


@dataclass(frozen=True)
class Clock:
    """now_ns: of the wall, as files have it. seconds: monotonic."""

    now_ns: Callable[[], int] = time.time_ns
    seconds: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
