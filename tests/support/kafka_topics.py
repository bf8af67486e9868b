"""Topics of a Kafka cluster that librdkafka mocks in this process.

Such a cluster has brokers that speak the protocol over TCP, four partitions in each topic, and a
retention of 5 MB a partition. It has no transactions, compaction, SASL or TLS.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import Producer

from streamomd.sources.kafka.broker import Broker

PARTITIONS = 4


class Cluster:
    """servers: what a URL names. ids: of topics, which these brokers do not have."""

    def __init__(self) -> None:
        # The cluster ends with the producer that made it.
        given = {"bootstrap.servers": "mock", "test.mock.num.brokers": 1, "log_level": 0}
        self._producer = Producer(given)
        brokers = self._producer.list_topics(timeout=60).brokers.values()
        self.ids: dict[str, int] = {}
        self.servers = ",".join(f"{one.host}:{one.port}" for one in brokers)

    def send(self, topic: str, partition: int, values: Iterable[bytes | None]) -> None:
        """Append messages to a partition."""
        for value in values:
            self._producer.produce(topic, value, partition=partition)
        assert self._producer.flush(20) == 0

    def send_rows(self, topic: str, partition: int, rows: Iterable[Mapping[str, Any]]) -> None:
        """Append rows as JSON."""
        self.send(topic, partition, (json.dumps(row).encode() for row in rows))

    def url(self, topic: str) -> str:
        return f"kafka://{self.servers}/{topic}"


@contextmanager
def cluster() -> Iterator[Cluster]:
    """A cluster without topics; one that is written to or read exists."""
    made = Cluster()
    ids = made.ids
    with pytest.MonkeyPatch.context() as patch:
        # Its brokers never answer.
        patch.setattr(Broker, "topic_id", lambda self: ids.get(self._topic.name))
        yield made
    del made


def stream_of(table: pa.Table) -> bytes:
    """A table as an Arrow IPC stream."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue().to_pybytes()
