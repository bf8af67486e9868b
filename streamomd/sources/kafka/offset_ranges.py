"""Ranges of a topic's offsets: the shards of a topic, in the order (round, partition).

A range has all it needs in its name, so a ledger that has the URLs of learned shards has the
offsets.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Self

from streamomd.core.errors import ResumeRefusedError, UsageError
from streamomd.core.urls import protocol, shown
from streamomd.sources.kafka.brokers import KAFKA, SERVERS, addresses

MOST_MESSAGES = 100_000
"""Offsets of a range. Its messages are in memory at the same time."""
_TOPIC = re.compile(r"(?!\.{1,2}(?:/|$))[A-Za-z0-9._-]{1,249}")
_RANGE = re.compile(r"([0-9]{10,18})-([0-9]{5,10})-([0-9]{1,18})-([0-9]{1,18})")
START_OVER = (
    "train --restart learns all messages that the topic has; train --start URL continues from this "
    "state with them"
)


class Marks(NamedTuple):
    """Offsets of a partition: the first that it has, and the one that its next message gets."""

    low: int
    high: int


@dataclass(frozen=True, order=True)
class Range:
    """Offsets first … last of a partition. round: of the plan that it is in.

    >>> Range(3, 1, 100, 199).name
    '0000000003-00001-100-199'
    """

    round: int
    partition: int
    first: int
    last: int

    @property
    def name(self) -> str:
        """The last segment of its URL."""
        return f"{self.round:010d}-{self.partition:05d}-{self.first}-{self.last}"

    @classmethod
    def parse(cls, name: str) -> Self | None:
        """The range of a name; None if it is not one."""
        match = _RANGE.fullmatch(name)
        found = cls(*map(int, match.groups())) if match else None
        return found if found and found.name == name and found.first <= found.last else None


@dataclass(frozen=True)
class Topic:
    """A topic of a cluster. servers: hosts with ports, with commas between."""

    servers: str
    name: str

    @property
    def url(self) -> str:
        """Its URL, with the hosts as they were given."""
        return f"{KAFKA}://{self.servers}/{self.name}"

    @property
    def bootstrap(self) -> str:
        """The hosts, each with a port."""
        return ",".join(addresses(self.servers))

    def url_of(self, offsets: Range) -> str:
        """The URL of a range."""
        return f"{self.url}/{offsets.name}"


def parse_source(text: str) -> tuple[Topic, Range | None]:
    """The topic that a URL or path names, and the range. Raises UsageError.

    >>> parse_source("kafka://a:1,b/clicks")
    (Topic(servers='a:1,b', name='clicks'), None)
    """
    path = text.split("://", 1)[1] if protocol(text) == KAFKA else text
    servers, _, rest = path.strip("/").partition("/")
    name, _, part = rest.partition("/")
    offsets = Range.parse(part) if part else None
    if not SERVERS.fullmatch(servers) or not _TOPIC.fullmatch(name) or (part and not offsets):
        raise UsageError(
            f"{shown(text)} names no Kafka topic: expected kafka://host:port/topic, the topic of "
            "at most 249 letters, digits, '.', '_' and '-', without a password: storage options "
            "have those, e.g. sasl.password"
        )
    return Topic(servers, name), offsets


def message_count(url: str) -> int:
    """The offsets of a range.

    >>> message_count("kafka://h:1/t/0000000003-00001-100-199")
    100
    """
    offsets = Range.parse(url.rpartition("/")[2])
    return offsets.last - offsets.first + 1 if offsets else 0


def recorded_ranges(topic: Topic, urls: Iterable[str]) -> list[Range]:
    """Those of the URLs that are ranges of the topic."""
    prefix = f"{topic.url}/"
    names = (url[len(prefix) :] for url in urls if url.startswith(prefix))
    return [found for name in names if (found := Range.parse(name))]


def plan_ranges(
    topic: Topic,
    marks: Mapping[int, Marks],
    recorded: Sequence[Range] = (),
    starts: Mapping[int, int] | None = None,
    most: int = MOST_MESSAGES,
) -> list[Range]:
    """What each partition has after the recorded ranges, in order.

    starts: of a run, the offset at which each partition began; None: now.

    Raises ResumeRefusedError if the number of partitions is another than that of ``starts``, and
    for offsets that a partition no longer has, or never had.
    """
    begin = {number: one.low for number, one in marks.items()} if starts is None else dict(starts)
    if begin.keys() != marks.keys():
        raise ResumeRefusedError(
            f"Kafka topic {shown(topic.url)} has {len(marks)} partitions now, and had {len(begin)} "
            "when the run started: messages of a key may be in another partition, so their order "
            f"is not known. {START_OVER}"
        )
    for one in recorded:
        begin[one.partition] = max(begin.get(one.partition, 0), one.last + 1)
    _refuse_lost(topic, marks, begin)
    first_round = max((one.round for one in recorded), default=-1) + 1
    return sorted(
        Range(first_round + number, partition, low, min(low + most, marks[partition].high) - 1)
        for partition, begins in begin.items()
        for number, low in enumerate(range(begins, marks[partition].high, most))
    )


def _refuse_lost(topic: Topic, marks: Mapping[int, Marks], begin: Mapping[int, int]) -> None:
    lines = []
    for number, wanted in sorted(begin.items()):
        if number not in marks:
            lines.append(f"partition {number} does not exist; offset {wanted} is the next to learn")
        elif wanted < marks[number].low:
            lines.append(
                f"partition {number}: offsets {wanted} to {marks[number].low - 1} were deleted "
                "before they were learned"
            )
        elif wanted > marks[number].high:
            lines.append(
                f"partition {number}: offset {wanted} is the next to learn, but it ends before "
                f"{marks[number].high}: the topic was deleted and made again, or lost messages"
            )
    if lines:
        raise ResumeRefusedError(
            "\n".join([f"Kafka topic {shown(topic.url)} lacks messages of this run:", *lines])
            + f"\nSet the topic's retention above the time between updates. {START_OVER}"
        )
