"""Metrics in Prometheus' text format, by the library prometheus-client.

Values are read when they are asked for; nothing is registered globally.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from streamomd.core.errors import MissingExtraError

TYPE = "text/plain; version=0.0.4; charset=utf-8"
Labels = tuple[tuple[str, str], ...]


class Histogram(NamedTuple):
    """counts: values up to each limit, and then all of them; total: their sum."""

    limits: Sequence[float]
    counts: Sequence[float]
    total: float


@dataclass(frozen=True)
class Family:
    """A metric with its samples by labels. kind: "counter" (its name ends with ``_total``), "gauge"
    or "histogram"."""

    name: str
    kind: str
    help: str
    samples: dict[Labels, float | Histogram] = field(default_factory=dict)


def require_prometheus() -> Any:
    """The library. Raises MissingExtraError without ``streamomd[metrics]``."""
    try:
        import prometheus_client
    except ImportError:
        raise MissingExtraError(
            "prometheus-client is not installed: pip install 'streamomd[metrics]'"
        ) from None
    return prometheus_client


def prometheus_text(families: Iterable[Family]) -> bytes:
    """The families as text; its content type is ``TYPE``.

    >>> loss = Family("streamomd_loss", "gauge", "Progressive loss.", {(("learner", "000"),): 0.5})
    >>> print(prometheus_text([loss]).decode(), end="")
    # HELP streamomd_loss Progressive loss.
    # TYPE streamomd_loss gauge
    streamomd_loss{learner="000"} 0.5
    """
    library = require_prometheus()
    registry = library.CollectorRegistry()
    registry.register(_Families([*families]))
    text: bytes = library.exposition.choose_encoder("")[0](registry)
    return text


class _Families:
    """A collector, as the library calls it."""

    def __init__(self, families: Sequence[Family]) -> None:
        self._families = families

    def describe(self) -> list[Any]:
        """Called when it is registered: the names are checked nowhere else."""
        return []

    def collect(self) -> Iterator[Any]:
        """Called once a text."""
        core = require_prometheus().metrics_core
        for family in self._families:
            made = core.Metric(family.name.removesuffix("_total"), family.help, family.kind)
            for labels, value in family.samples.items():
                if isinstance(value, Histogram):
                    _add_histogram(made, dict(labels), value)
                else:
                    made.add_sample(family.name, dict(labels), value)
            yield made


def _add_histogram(made: Any, labels: dict[str, str], value: Histogram) -> None:
    for limit, count in zip((*value.limits, math.inf), value.counts, strict=True):
        edge = "+Inf" if limit == math.inf else f"{limit:g}"
        made.add_sample(f"{made.name}_bucket", {**labels, "le": edge}, count)
    made.add_sample(f"{made.name}_sum", labels, value.total)
    made.add_sample(f"{made.name}_count", labels, value.counts[-1])
