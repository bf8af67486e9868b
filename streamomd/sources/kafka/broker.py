"""What a Kafka cluster is asked for: the marks of partitions, and the messages of a range.

Partitions are assigned manually, and no offset is committed: a run's commit has the offsets.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

from streamomd.core.errors import ChangedDataError, InputNotFoundError, StorageError, UsageError
from streamomd.core.installed import needs_extra
from streamomd.core.urls import printable, scrub, shown
from streamomd.sources.kafka.offset_ranges import (
    BROKERS,
    Marks,
    Range,
    Topic,
    refuse_unnamed_brokers,
)

ANSWER_SECONDS = 10.0
"""For the answer to one question."""
STALL_SECONDS = 30.0
"""Without a message of a range that the broker has."""
ID_SECONDS = 2.0
"""For a topic's id, which some brokers never answer."""
_WITHOUT_IDS = set[str]()
"""Brokers that have not reported one: each listing of ``follow`` would wait again."""
ID_MASK = 2**63 - 1
STEP_SECONDS, STEP_MESSAGES = 0.1, 1000
MOST_LETTERS = 300
OWN = {
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "auto.offset.reset": "error",
    "enable.partition.eof": True,
}
"""A message is learned once because of these."""
_ALIAS = "metadata.broker.list"
_QUIET = logging.Logger("streamomd.kafka", logging.CRITICAL + 1)


class Message(NamedTuple):
    """A message; value None: a tombstone."""

    offset: int
    value: bytes | None


class Broker:
    """The cluster of a topic. options: keys of librdkafka, such as sasl.password; they name the
    brokers that the user names, which are asked, and no others. Raises UsageError."""

    def __init__(self, topic: Topic, options: Mapping[str, Any]) -> None:
        refuse_unnamed_brokers([topic.url], options)
        self._topic = topic
        self._options = {name: one for name, one in options.items() if name != BROKERS}
        self._errors: list[Any] = []
        self._confluent = require_confluent()
        own = sorted({_ALIAS, *OWN}.intersection(options))
        if own:
            raise UsageError(
                f"storage options {', '.join(own)} of {shown(topic.url)}: streamomd sets these; "
                f"remove them (brokers are {BROKERS})"
            )

    def marks(self) -> dict[int, Marks]:
        """The marks of each partition.

        Raises InputNotFoundError for a topic that does not exist, StorageError without an answer.
        """
        confluent = self._confluent
        with self._consumer() as consumer, self._asking(consumer):
            found = consumer.list_topics(self._topic.name, timeout=ANSWER_SECONDS)
            # Not the error of the call: brokers that answer may lack the topic.
            topic = found.topics[self._topic.name]
            if topic.error is not None:
                raise confluent.KafkaException(topic.error)
            return {number: self._marks_of(consumer, number) for number in sorted(topic.partitions)}

    def _marks_of(self, consumer: Any, partition: int) -> Marks:
        place = self._confluent.TopicPartition(self._topic.name, partition)
        found = consumer.get_watermark_offsets(place, timeout=ANSWER_SECONDS)
        if found is None:
            raise StorageError(
                f"{shown(self._topic.url)}, partition {partition}: no answer in "
                f"{ANSWER_SECONDS:g} s"
            )
        return Marks(*found)

    def topic_id(self) -> int | None:
        """A number that the topic got when it was made; None: the brokers, which answered other
        questions, do not report it."""
        from confluent_kafka.admin import AdminClient

        if self._topic.servers in _WITHOUT_IDS:
            return None
        given = {**self._options, BROKERS: self._topic.bootstrap, "logger": _QUIET}
        wanted = self._confluent.TopicCollection([self._topic.name])
        try:
            admin = AdminClient(given)
            [found] = admin.describe_topics(wanted, request_timeout=ID_SECONDS).values()
            number = found.result().topic_id  # None of older brokers
        except self._confluent.KafkaException:  # older ones still, and users that may not ask
            number = None
        if number is None:
            _WITHOUT_IDS.add(self._topic.servers)
            return None
        # 63 bits fit a signed number.
        return int(number.get_least_significant_bits() & ID_MASK) or None

    def messages(self, offsets: Range) -> Iterator[Message]:
        """The messages of a range, in order. Offsets of transactions and compaction have none.

        Raises ChangedDataError for offsets that the partition does not have, StorageError.
        """
        with self._consumer() as consumer, self._asking(consumer):
            # Before the first message: else the consumer would wait for offsets that never come.
            self._refuse_gone(self._marks_of(consumer, offsets.partition), offsets)
            place = (self._topic.name, offsets.partition, offsets.first)
            consumer.assign([self._confluent.TopicPartition(*place)])
            yield from self._read(consumer, offsets)

    def _read(self, consumer: Any, offsets: Range) -> Iterator[Message]:
        latest = time.monotonic()
        while True:
            messages = consumer.consume(STEP_MESSAGES, STEP_SECONDS)
            for message in messages:
                if (error := message.error()) is not None:
                    if self._is_end(error, message, offsets):
                        return
                    continue
                latest = time.monotonic()
                # The last offsets of a range may have no message, after compaction.
                if message.offset() > offsets.last:
                    return
                yield Message(message.offset(), message.value())
                if message.offset() == offsets.last:
                    return
            if time.monotonic() - latest > STALL_SECONDS:
                raise StorageError(
                    f"{self._where(offsets)}: no message in {STALL_SECONDS:g} s{self._reasons()}"
                )

    def _is_end(self, error: Any, message: Any, offsets: Range) -> bool:
        """Whether the partition ends after the range. Raises KafkaException for an error."""
        kinds = self._confluent.KafkaError
        if error.code() == kinds.GROUP_AUTHORIZATION_FAILED:  # no group is joined
            return False
        if error.code() != kinds._PARTITION_EOF:
            raise self._confluent.KafkaException(error)
        if message.offset() <= offsets.last:
            raise StorageError(
                f"{self._where(offsets)}: messages from offset {message.offset()} on are those of "
                "a transaction that is not committed: run the command again when it is"
            )
        return True

    def _refuse_gone(self, marks: Marks, offsets: Range) -> None:
        if marks.low > offsets.first or marks.high <= offsets.last:
            rest = f"offsets {marks.low} to {marks.high - 1} only"
            raise ChangedDataError(
                f"{self._where(offsets)}: the partition has "
                f"{rest if marks.high > marks.low else 'no messages'}, and this machine has no "
                "copy of the range: restore the copy (STREAMOMD_CACHE_DIR), or start a new run; a "
                "longer retention of the topic prevents this"
            )

    def _where(self, offsets: Range) -> str:
        return (
            f"{shown(self._topic.url)}, partition {offsets.partition}, offsets {offsets.first} to "
            f"{offsets.last}"
        )

    @contextmanager
    def _consumer(self) -> Iterator[Any]:
        # Of an earlier consumer: they would be given as reasons of this one's failure.
        self._errors.clear()
        given = {"group.id": "streamomd", **self._options, **OWN}
        given |= {BROKERS: self._topic.bootstrap, "error_cb": self._errors.append}
        try:
            consumer = self._confluent.Consumer({**given, "logger": _QUIET})
        except (self._confluent.KafkaException, TypeError, ValueError) as error:  # by the option
            raise UsageError(
                f"storage options of {shown(self._topic.url)}: {self._without_values(error)}"
            ) from None
        try:
            yield consumer
        finally:
            consumer.close()

    @contextmanager
    def _asking(self, consumer: Any) -> Iterator[None]:
        try:
            yield
        except self._confluent.KafkaException as error:
            consumer.poll(0.0)  # calls error_cb
            found, kinds = error.args[0], self._confluent.KafkaError
            if found.code() in (kinds.UNKNOWN_TOPIC_OR_PART, kinds._UNKNOWN_TOPIC):
                raise InputNotFoundError(
                    f"{shown(self._topic.url)}: the brokers have no topic "
                    f"{printable(self._topic.name)!r}, or this user may not see it"
                ) from None
            raise StorageError(
                f"{shown(self._topic.url)} cannot be read: {self._without_values(error)}"
                f"{self._reasons()}"
            ) from None

    def _reasons(self) -> str:
        """What connections failed of."""
        texts = dict.fromkeys(self._without_values(one) for one in self._errors)
        return "".join(f"; {text}" for text in [*texts][:2])

    def _without_values(self, error: Any) -> str:
        """The text of an error, without what storage options have in it."""
        found = error.args[0] if isinstance(error, Exception) and error.args else error
        text = str(found.str() if hasattr(found, "str") else found)
        for value in self._options.values():
            if len(str(value)) > 1:
                # A library may repeat an option in its message, such as a password in a URL.
                text = text.replace(str(value), "…")
        return scrub(re.sub(r"\s+", " ", text))[:MOST_LETTERS]


def require_confluent() -> Any:
    """The module confluent_kafka. Raises MissingExtraError."""
    with needs_extra("Kafka topics need confluent-kafka", "kafka"):
        import confluent_kafka
    return confluent_kafka
