"""Metrics of the server; changed by the event loop's thread only."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator

from streamomd.core.prometheus_text import Family, Histogram, Labels

BUCKETS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Upper limits of the histogram of seconds."""


class HttpMetrics:
    """Requests by path and status, their seconds, and rows predicted since the start."""

    def __init__(self) -> None:
        self.requests: Counter[tuple[str, int]] = Counter()
        self.rows: Counter[str] = Counter()
        self.reloads: Counter[str] = Counter()
        self._seconds: defaultdict[str, list[float]] = defaultdict(lambda: [0.0] * len(BUCKETS))
        self._sums: defaultdict[str, float] = defaultdict(float)

    def count(self, path: str, status: int, seconds: float) -> None:
        """Count a response."""
        self.requests[path, status] += 1
        self._sums[path] += seconds
        within = self._seconds[path]
        for at in range(len(BUCKETS) - 1, -1, -1):
            if seconds > BUCKETS[at]:
                break
            within[at] += 1

    def families(self, gauges: dict[str, tuple[str, float]]) -> Iterator[Family]:
        """All metrics. gauges: help and value by name."""
        requests: dict[Labels, float] = {
            (("path", path), ("status", str(status))): count
            for (path, status), count in sorted(self.requests.items())
        }
        yield _counter("requests", "Responses by path and status.", requests)
        rows: dict[Labels, float] = {(("path", path),): n for path, n in sorted(self.rows.items())}
        yield _counter("predicted_rows", "Rows predicted or explained, by path.", rows)
        reloads: dict[Labels, float] = {
            (("result", result),): self.reloads[result]
            for result in ("loaded", "refused", "failed")
        }
        yield _counter("reloads", "Commits looked at, by result.", reloads)
        text = "Time from a request's headers to its response."
        yield Family("streamomd_request_seconds", "histogram", text, {**self._histograms()})
        for name, (text, value) in gauges.items():
            yield Family(name, "gauge", text, {(): value})

    def _histograms(self) -> dict[Labels, Histogram]:
        totals: Counter[str] = Counter()
        for (path, _), count in self.requests.items():
            totals[path] += count
        return {
            (("path", path),): Histogram(BUCKETS, [*self._seconds[path], total], self._sums[path])
            for path, total in sorted(totals.items())
        }


def _counter(name: str, text: str, samples: dict[Labels, float]) -> Family:
    return Family(f"streamomd_{name}_total", "counter", text, {**samples})
