"""Metrics of the server in Prometheus' text format; changed by the event loop's thread only."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator

BUCKETS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Upper limits of the histogram of seconds."""
TYPE = "text/plain; version=0.0.4; charset=utf-8"


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

    def lines(self, gauges: dict[str, tuple[str, float]]) -> str:
        """All metrics as text. gauges: help and value by name."""
        return "\n".join([*self._counters(), *self._histogram(), *_gauges(gauges)]) + "\n"

    def _counters(self) -> Iterator[str]:
        yield from _head("streamomd_requests_total", "counter", "Responses by path and status.")
        for (path, status), count in sorted(self.requests.items()):
            yield f'streamomd_requests_total{{path="{path}",status="{status}"}} {count}'
        yield from _head("streamomd_rows_total", "counter", "Rows predicted or explained, by path.")
        for path, count in sorted(self.rows.items()):
            yield f'streamomd_rows_total{{path="{path}"}} {count}'
        yield from _head("streamomd_reloads_total", "counter", "Commits looked at, by result.")
        for result in ("loaded", "refused", "failed"):
            yield f'streamomd_reloads_total{{result="{result}"}} {self.reloads[result]}'

    def _histogram(self) -> Iterator[str]:
        name = "streamomd_request_seconds"
        yield from _head(name, "histogram", "Time from a request's headers to its response.")
        totals: Counter[str] = Counter()
        for (path, _), count in self.requests.items():
            totals[path] += count
        for path, total in sorted(totals.items()):
            for limit, within in zip(BUCKETS, self._seconds[path], strict=True):
                yield f'{name}_bucket{{path="{path}",le="{limit:g}"}} {within:.0f}'
            yield f'{name}_bucket{{path="{path}",le="+Inf"}} {total}'
            yield f'{name}_sum{{path="{path}"}} {self._sums[path]!r}'
            yield f'{name}_count{{path="{path}"}} {total}'


def _gauges(gauges: dict[str, tuple[str, float]]) -> Iterator[str]:
    for name, (text, value) in gauges.items():
        yield from _head(name, "gauge", text)
        yield f"{name} {value!r}"


def _head(name: str, kind: str, text: str) -> Iterator[str]:
    yield f"# HELP {name} {text}"
    yield f"# TYPE {name} {kind}"
