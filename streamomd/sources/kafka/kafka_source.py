"""Kafka topics as a source: ranges of offsets are shards, and a run's commit has the offsets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from streamomd.sources.contract import OF_CSV, OF_FILES, Request, Source, SourceFiles
from streamomd.sources.kafka.brokers import (
    BROKERS,
    KAFKA,
    refuse_unnamed_brokers,
    with_brokers_named_elsewhere,
    with_typed_brokers,
)


class KafkaSource(Source):
    """``kafka://host:port/topic``. What needs a client of Kafka is imported when it is used."""

    name = KAFKA
    title = "a Kafka topic"
    reason = "messages are known by their offsets and never change"
    without_effect = ("data.version", "data.as_of", *OF_FILES, "update.appends_only", *OF_CSV)
    unit = "message"
    verifies_rows = True
    lists_by_ledger = True
    unchecked = (
        ("enable.ssl.certificate.verification", False),
        ("enable.ssl.certificate.verification", "false"),
        ("ssl.endpoint.identification.algorithm", "none"),
    )
    addresses = (BROKERS,)

    def list_files(self, fs: Any, urls: Sequence[str], request: Request) -> Sequence[SourceFiles]:
        """See ``Source``."""
        from streamomd.sources.kafka.topic_files import list_topic

        known = {**request.versions, **request.since}
        found = [
            list_topic(fs, url, request.ledger, known, with_new=request.with_new) for url in urls
        ]
        paths = [str(fs._strip_protocol(url)).rstrip("/") for url in urls]
        return [
            SourceFiles(files, f"{path}/", position)
            for (files, position), path in zip(found, paths, strict=True)
        ]

    def file_system(self) -> Any:
        """See ``Source``."""
        from streamomd.sources.kafka.file_system import KafkaFileSystem

        return KafkaFileSystem

    def options(
        self, urls: Sequence[str], options: Mapping[str, Any], *, recorded: bool
    ) -> Mapping[str, Any]:
        """With the brokers that the user names: a run connects to no others."""
        return (with_brokers_named_elsewhere if recorded else with_typed_brokers)(urls, options)

    def refuse_recorded(self, urls: Sequence[str], options: Mapping[str, Any]) -> None:
        """See ``Source``."""
        refuse_unnamed_brokers(urls, options)

    def read_options(
        self, options: Mapping[str, Any], types: Mapping[str, str]
    ) -> Mapping[str, Any]:
        """With the types of columns, which JSON has not."""
        return {**options, "types": dict(types)} if types else options

    def count(self, url: str) -> int:
        """See ``Source``."""
        from streamomd.sources.kafka.offset_ranges import message_count

        return message_count(url)

    def place_of(self, url: str, path: str, row: int) -> str:
        """See ``Source``."""
        from streamomd.sources.kafka.file_system import place_in_topic

        return place_in_topic(url, row)

    def warnings(self, options: Mapping[str, Any]) -> list[str]:
        """See ``Source``."""
        if str(options.get("security.protocol", "")).lower() != "sasl_plaintext":
            return []
        return ["Kafka brokers get the password unencrypted: SASL_SSL would encrypt it"]
