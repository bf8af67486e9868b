"""Ranges of a topic's offsets: the shards of a topic, in the order (round, partition).

A checkpoint names topics with their brokers, and may be anyone's. Brokers are named by the URL of a
topic that the user gives, by ``bootstrap.servers`` of storage options, or by the environment.

A range has all it needs in its name, so a ledger that has the URLs of learned shards has the
offsets.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

from streamomd.core.errors import ResumeRefusedError, UsageError
from streamomd.core.urls import printable, protocol, shown

KAFKA = "kafka"
BROKERS = "bootstrap.servers"
"""Storage option: hosts with ports, with commas between, as librdkafka has it."""
VARIABLE = "STREAMOMD_KAFKA_BROKERS"
PORT = 9092
_HOST = r"(?:[A-Za-z0-9_.-]+|\[[0-9A-Fa-f:.]+\])(?::[0-9]{1,5})?"
SERVERS = re.compile(rf"{_HOST}(?:,{_HOST})*")


def addresses(servers: str) -> list[str]:
    """Each host with its port.

    >>> addresses("a,B:7,[::1]")
    ['a:9092', 'b:7', '[::1]:9092']
    """
    hosts = servers.lower().split(",")
    return [host if re.search(r":\d+$", host) else f"{host}:{PORT}" for host in hosts]


def with_typed_brokers(shards: Iterable[str], options: Mapping[str, Any]) -> dict[str, Any]:
    """Storage options that also name the brokers of topics which the user gave.

    >>> with_typed_brokers(["kafka://a:1/t", "kafka://b/u"], {"client.id": "x"})
    {'client.id': 'x', 'bootstrap.servers': 'a:1,b'}
    """
    named = map(_servers, shards)
    given = [str(options[BROKERS])] if BROKERS in options else []
    return {**options, BROKERS: ",".join(dict.fromkeys([*given, *named]))}


def with_brokers_named_elsewhere(options: Mapping[str, Any]) -> dict[str, Any]:
    """Storage options for topics that a checkpoint names, with the brokers that the environment or
    fsspec's configuration name, if the options name none. Workers have another environment."""
    if BROKERS in options:
        return dict(options)
    from fsspec.config import conf

    configured = conf.get("kafka", {})
    # The environment wins over a configuration file.
    named = os.environ.get(VARIABLE) or configured.get(BROKERS)
    return {**options, BROKERS: named} if named else dict(options)


def refuse_unnamed_brokers(urls: Iterable[str], options: Mapping[str, Any]) -> None:
    """Raise UsageError for topics of brokers that storage options do not name."""
    given = options.get(BROKERS, "")
    if given and not (isinstance(given, str) and SERVERS.fullmatch(given)):
        raise UsageError(
            f"{BROKERS} ({VARIABLE}, or a storage option): expected hosts with ports, with commas "
            "between, e.g. broker-1:9092,broker-2:9092"  # a wrong value may have a password
        )
    named = set(addresses(given)) if given else set()
    servers = dict.fromkeys(map(_servers, urls))
    # All of a URL's hosts: a client connects to any of them.
    unnamed = [one for one in servers if not named.issuperset(addresses(one))]
    if unnamed:
        text = printable(",".join(unnamed))
        others = f"; named are {printable(given)}" if given else ""
        raise UsageError(
            f"the checkpoint names the Kafka brokers {text}, and this command does not{others}. A "
            "run connects to no brokers that only a checkpoint names. If you trust them, set "
            f"{VARIABLE}={text}, or name them in the file of --storage-options: "
            f'{{"{BROKERS}": "{text}"}}'
        )


def _servers(url: str) -> str:
    return shown(url).partition("://")[2].partition("/")[0]


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
        # The same name again: one range has one URL in the ledger.
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
        # The largest, in whichever order ranges are given.
        begin[one.partition] = max(begin.get(one.partition, 0), one.last + 1)
    _refuse_lost(topic, marks, begin)
    first_round = max((one.round for one in recorded), default=-1) + 1
    # By round, then by partition: partitions of different lengths are read side by side.
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
