"""Metrics of a run for Prometheus, taken from the watchers' figures and from events, and the HTTP
server that has them.

The learner's thread stores figures at most 20 times a second, in 30 µs; everything else is
computed at a scrape.
"""

from __future__ import annotations

import math
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple

import numpy as np

from streamomd.core.batch import Floats
from streamomd.core.http_servers import (
    TYPE,
    Family,
    Labels,
    MetricsAddress,
    address_text,
    is_loopback,
    listen,
    names_this_machine,
    prometheus_text,
    require_prometheus,
)
from streamomd.core.run_events import Event
from streamomd.training.metrics import Metrics
from streamomd.training.model_data import ModelData
from streamomd.training.progress import Watcher, note

TAKE_SECONDS = 0.05
WINDOW_SECONDS = 10.0
"""Recent figures are of the last 10 to 20 seconds in which rows were learned."""


class Described(NamedTuple):
    """A metric that is exported. labels: their names; ``learner`` is a sweep's alone."""

    kind: str
    help: str
    labels: tuple[str, ...] = ()


OF_LEARNERS = {
    "rows_total": Described("counter", "Rows learned by this process; rows learned again count."),
    "run_rows": Described("gauge", "Rows learned by the run in all epochs, as in its result."),
    "rows_per_second": Described("gauge", "Rows learned per second recently."),
    "loss": Described("gauge", "Progressive loss of all rows."),
    "recent_loss": Described("gauge", "Progressive loss of recent rows."),
    "error": Described("gauge", "Progressive error, 0 to 1, of all rows; classification."),
    "rmse": Described("gauge", "Progressive RMSE of all rows; regression."),
    "skipped_rows_total": Described(
        "counter", "Bad rows skipped by this process, by reason.", ("reason",)
    ),
}
"""Metrics of each learner, without the prefix ``streamomd_``; a sweep's have the label learner."""
OF_RUN = {
    "expected_rows": Described("gauge", "Rows that the run will have learned at its end."),
    "commit_sequence": Described("gauge", "Number of the last commit."),
    "commit_rows": Described("gauge", "Rows learned at the last commit."),
    "commit_age_seconds": Described("gauge", "Time since the last commit of this process."),
    "commit_bytes": Described("gauge", "Size of the parts of the last commit."),
    "commit_seconds": Described("gauge", "Time that writing the last commit took."),
    "commits_total": Described("counter", "Commits made by this process."),
    "commit_failures_total": Described("counter", "Commits that failed."),
    "store_requests_total": Described(
        "counter", "Requests of this process to remote stores, by operation.", ("operation",)
    ),
    "store_retries_total": Described("counter", "Requests to remote stores that were retries."),
    "lag_seconds": Described(
        "gauge", "Time since the oldest shard landed that is not learned; of follow."
    ),
    "freshness_seconds": Described(
        "gauge", "Time from a shard's landing to its commit, of the last update; of follow."
    ),
    "rounds_total": Described("counter", "Rounds completed; averaged and sharded mode."),
    "workers_lost_total": Described("counter", "Workers of the cluster that were lost."),
    "tasks_again_total": Described("counter", "Tasks run again after a worker was lost."),
    "rows_again_total": Described("counter", "Rows learned again after a recovery."),
    "alerts_total": Described("counter", "Alerts of the job's table [alert]."),
}
"""Metrics of the run, likewise."""
COUNTED = {
    "commit": "commits_total",
    "commit_failed": "commit_failures_total",
    "store_retry": "store_retries_total",
    "worker_lost": "workers_lost_total",
    "alert": "alerts_total",
}
"""Events that a counter counts."""


@dataclass(eq=False)
class LearnerMetrics:
    """The figures of one learner. learned, skipped: of this process, and never falling."""

    classifies: bool
    rows: int
    total: Floats
    bad: Mapping[str, int]
    learned: int = 0
    skipped: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        # Two marks: the figures since the older one are of at least one window.
        self._marks = [(time.monotonic(), 0, self.total)] * 2

    def take(self, metrics: Metrics) -> None:
        """Store the figures as of now. After a recovery there may be fewer rows than before."""
        rows, bad = metrics.total_rows, metrics.skipped
        self.learned += max(0, rows - self.rows)
        for reason, count in bad.items():
            self.skipped[reason] += max(0, count - self.bad.get(reason, 0))
        went_back = rows < self.rows
        self.rows, self.total, self.bad = rows, metrics.total, bad
        now = time.monotonic()
        if went_back:
            self._marks = [(now, self.learned, self.total)] * 2
        elif now - self._marks[1][0] > WINDOW_SECONDS:
            self._marks = [self._marks[1], (now, self.learned, self.total)]

    def values(self) -> Iterator[tuple[str, Labels, float | None]]:
        """The values by the name in ``OF_LEARNERS`` and labels; None where undefined."""
        since, learned, total = self._marks[0]
        yield "rows_total", (), self.learned
        yield "run_rows", (), self.rows
        yield "rows_per_second", (), (self.learned - learned) / max(time.monotonic() - since, 1e-9)
        now = Metrics(self.classifies).figures(self.total)
        with np.errstate(invalid="ignore"):  # sums may have overflowed: no figure then
            recent = Metrics(self.classifies).figures(self.total - total)
        yield "loss", (), now["loss"]
        yield "recent_loss", (), recent["loss"]
        yield "error", (), now["error"]
        yield "rmse", (), now["rmse"]
        for reason, count in sorted(self.skipped.items()):
            yield "skipped_rows_total", (("reason", reason),), count


class RunMetrics(Watcher):
    """Receives the events of a run and watches its rows; ``families`` are its metrics.

    Numbers are read by other threads than those that write them.
    """

    def __init__(self) -> None:
        self._learners: dict[str, LearnerMetrics] = {}
        self._values: dict[str, float] = {}
        self._counts: Counter[tuple[str, Labels]] = Counter()
        self._times: dict[str, float] = {}
        self._taken = 0.0
        self._lock = threading.Lock()

    def begin(self, model: ModelData, expected: int) -> RunMetrics:
        """Watch a run of ``expected`` rows. Rows that it has already are not counted."""
        self._values["expected_rows"] = expected
        self._begin_learner("", model.metrics)
        return self

    def begin_sweep(self, learners: Mapping[str, Metrics], expected: int) -> None:
        """Watch the learners of a sweep, by name, and no others."""
        self._values["expected_rows"] = expected
        self._learners = {}
        self.take_sweep(learners)

    def update(self, metrics: Metrics) -> None:
        """See ``Watcher``."""
        if self._is_time():
            self.finish(metrics)

    def finish(self, metrics: Metrics) -> None:
        """See ``Watcher``."""
        self._learners[""].take(metrics)

    def update_sweep(self, learners: Mapping[str, Metrics]) -> None:
        """Takes the figures of a sweep's learners that are not dropped, as often as ``update``
        does."""
        if self._is_time():
            self.take_sweep(learners)

    def _is_time(self) -> bool:
        now = time.monotonic()
        if now - self._taken < TAKE_SECONDS:
            return False
        self._taken = now
        return True

    def take_sweep(self, learners: Mapping[str, Metrics]) -> None:
        """Store the figures of the learners of a sweep that are not dropped."""
        for name, metrics in learners.items():
            self._begin_learner(name, metrics)
            self._learners[name].take(metrics)
        if len(learners) != len(self._learners):
            self._learners = {name: self._learners[name] for name in learners}

    def _begin_learner(self, name: str, metrics: Metrics) -> None:
        if name not in self._learners:
            given = (metrics.total_rows, metrics.total, metrics.skipped)
            added = {name: LearnerMetrics(metrics.classifies, *given)}
            self._learners = {**self._learners, **added}

    def receive(self, event: Event) -> None:
        """Count an event. Called from any thread."""
        fields = event.fields
        with self._lock:
            if event.name in COUNTED:
                self._counts[COUNTED[event.name], ()] += 1
            for name in ("rows_again", "tasks_again"):
                self._counts[f"{name}_total", ()] += fields.get(name, 0)
            receive = _RECEIVED.get(event.name)
            if receive is not None:
                receive(self, fields)

    def _receive_commit(self, fields: Mapping[str, Any]) -> None:
        self._times["commit"] = time.monotonic()
        for name in ("sequence", "rows", "bytes", "seconds"):
            if name in fields:
                self._values[f"commit_{name}"] = fields[name]

    def _receive_request(self, fields: Mapping[str, Any]) -> None:
        self._counts["store_requests_total", (("operation", fields["operation"]),)] += 1

    def _receive_rounds(self, fields: Mapping[str, Any]) -> None:
        self._counts["rounds_total", ()] += fields["rounds"]

    def _receive_landings(self, fields: Mapping[str, Any]) -> None:
        oldest = fields["oldest_ns"]
        self._times["oldest"] = math.inf if oldest is None else oldest / 1e9

    def _receive_update(self, fields: Mapping[str, Any]) -> None:
        if fields["freshness"] is not None:
            self._values["freshness_seconds"] = fields["freshness"]

    def families(self) -> list[Family]:
        """Every metric that has a value now; counters of the run from the start on."""
        made = {
            name: Family(f"streamomd_{name}", metric.kind, metric.help)
            for name, metric in {**OF_LEARNERS, **OF_RUN}.items()
        }
        for learner, figures in self._learners.items():
            own = (("learner", learner),) if learner else ()
            for name, labels, value in figures.values():
                if value is not None:
                    made[name].samples[*own, *labels] = value
        with self._lock:
            counts, values, times = Counter(self._counts), {**self._values}, {**self._times}
        for name, metric in OF_RUN.items():
            if metric.kind == "counter" and not metric.labels:
                made[name].samples[()] = counts[name, ()]
        for (name, labels), count in counts.items():
            made[name].samples[labels] = count
        for name, value in values.items():
            made[name].samples[()] = value
        if "commit" in times:
            made["commit_age_seconds"].samples[()] = time.monotonic() - times["commit"]
        if "oldest" in times:
            made["lag_seconds"].samples[()] = max(0.0, time.time() - times["oldest"])
        return [family for family in made.values() if family.samples]


_RECEIVED: dict[str, Callable[[RunMetrics, Mapping[str, Any]], None]] = {
    "commit": RunMetrics._receive_commit,
    "store_request": RunMetrics._receive_request,
    "rounds": RunMetrics._receive_rounds,
    "landings": RunMetrics._receive_landings,
    "update": RunMetrics._receive_update,
}


CONNECTIONS = 16
"""Open at a time; a scraper needs one."""
SECONDS = 5.0
"""For a client to send or to read something."""


@contextmanager
def serve_metrics(
    address: MetricsAddress, families: Callable[[], Iterable[Family]]
) -> Iterator[None]:
    """Serve the metrics while inside, and report the URL.

    Raises UsageError for an address that cannot be used, MissingExtraError.
    """
    require_prometheus()
    listener = listen(address.host, address.port, options="--metrics-port or --metrics-host")
    server = _Server(listener, families, anyone=not is_loopback(address.host))
    thread = threading.Thread(
        target=server.serve_forever, args=(0.1,), name="streamomd-metrics", daemon=True
    )
    thread.start()
    url = f"{address_text(listener)}/metrics"
    open_to = "" if is_loopback(address.host) else "; every machine that reaches it can read them"
    note(f"metrics at {url}{open_to}", "metrics", url=url, port=listener.getsockname()[1])
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Server(ThreadingHTTPServer):
    """Closes the connections that are open when it ends, so that its threads end too."""

    daemon_threads = False  # else ``server_close`` would not wait for them
    block_on_close = True

    def __init__(
        self, listener: socket.socket, families: Callable[[], Iterable[Family]], *, anyone: bool
    ) -> None:
        super().__init__(listener.getsockname()[:2], _Handler, bind_and_activate=False)
        self.socket.close()  # the base class makes one, of IPv4
        self.socket, self.families, self.anyone = listener, families, anyone
        self._open: dict[socket.socket, None] = {}
        self._lock = threading.Lock()

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Called in a thread for each connection; the oldest one makes room for too many."""
        threading.current_thread().name = "streamomd-metrics-request"
        with self._lock:
            if len(self._open) >= CONNECTIONS:
                _end(next(iter(self._open)))
            self._open[request] = None
        super().process_request_thread(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        """Called at the end of each connection."""
        with self._lock:
            self._open.pop(request, None)
        super().shutdown_request(request)

    def server_close(self) -> None:
        """End the connections, and wait for their threads."""
        with self._lock:
            for connection in self._open:
                _end(connection)
        super().server_close()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Called for a client that does not speak HTTP, or is gone: nothing is printed."""


def _end(connection: socket.socket) -> None:
    with suppress(OSError):  # its client has closed it
        connection.shutdown(socket.SHUT_RDWR)


class _Handler(BaseHTTPRequestHandler):
    """Answers ``GET /metrics``."""

    server: _Server
    timeout = SECONDS
    server_version, sys_version = "streamomd", ""

    def do_GET(self) -> None:
        """Called for a GET request."""
        hosts = self.headers.get_all("host") or []
        if not self.server.anyone and not names_this_machine(hosts):
            self._answer(421, b"the Host header has to be a loopback address or localhost\n")
        elif self.path.partition("?")[0] not in ("/metrics", "/"):
            self._answer(404, b"metrics are at /metrics\n")
        else:
            self._answer(200, prometheus_text(self.server.families()), TYPE)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        """Requests are not logged."""

    def _answer(self, status: int, body: bytes, kind: str = "text/plain; charset=utf-8") -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
