"""Kafka topics as a source: ranges of offsets are shards, and a run's commit has the offsets."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from streamomd.checkpoint.segments import Facts
from streamomd.core.errors import InputNotFoundError, ResumeRefusedError
from streamomd.core.urls import shown
from streamomd.shards.shard import Listed
from streamomd.sources.contract import OF_CSV, OF_FILES, Request, Source, SourceFiles
from streamomd.sources.kafka.offset_ranges import (
    BROKERS,
    KAFKA,
    START_OVER,
    Range,
    Topic,
    message_count,
    parse_source,
    plan_ranges,
    recorded_ranges,
    refuse_unnamed_brokers,
    with_brokers_named_elsewhere,
    with_typed_brokers,
)

_PARTITION = re.compile(r"[0-9]{1,10}")
_ID = "id"
"""In the place of a partition, where the record has the topic's id."""


def list_topic(
    fs: Any, text: str, ledger: Mapping[str, Facts], versions: Mapping[str, int], *, with_new: bool
) -> tuple[list[Listed], dict[str, int]]:
    """The ranges of a topic, and by URL the offsets at which its partitions began, and its id.

    ledger: of the run, by URL: ranges in it are listed as it has them. with_new: also those after
    them; without a ledger all are new. versions: the offsets as the run recorded them.

    Raises InputNotFoundError for a topic without messages unless ``with_new``, ResumeRefusedError
    for another topic of the same name, and as ``plan_ranges``.
    """
    topic, own = parse_source(text)
    if own is not None:
        return [_listed(topic, own, ledger)], {}
    known = sorted(recorded_ranges(topic, ledger))
    starts = _starts(topic, versions)
    # A resumed run reads what it recorded, and asks no broker what is new.
    if known and not with_new:
        return [_listed(topic, one, ledger) for one in known], _by_url(topic, starts)
    marks = fs.marks(topic)
    # Before new ranges are planned: offsets of another topic would look like its next ones.
    identity = _same_topic(topic, versions, fs.topic_id(topic))
    new = plan_ranges(topic, marks, known, starts or None)
    if not (new or with_new):
        raise InputNotFoundError(f"{shown(topic.url)}: no partition of the topic has a message")
    for one in new:
        # The cache may have a range of a topic of this name that is gone.
        fs.forget(topic, one)
    begin = starts or {number: one.low for number, one in marks.items()}
    ranges = [_listed(topic, one, ledger) for one in (*known, *new)]
    return ranges, {**identity, **_by_url(topic, begin)}


def _same_topic(topic: Topic, versions: Mapping[str, int], number: int | None) -> dict[str, int]:
    """The topic's id for the record, if it is known. Raises ResumeRefusedError for another one."""
    url = f"{topic.url}/{_ID}"
    before = versions.get(url)
    if number is not None and before not in (None, number):
        raise ResumeRefusedError(
            f"Kafka topic {shown(topic.url)}: the topic was deleted and made again since the run "
            f"started, so its offsets are those of other messages. {START_OVER}"
        )
    return {} if number is None else {url: number}


def _starts(topic: Topic, versions: Mapping[str, int]) -> dict[int, int]:
    prefix = f"{topic.url}/"
    parts = {url[len(prefix) :]: at for url, at in versions.items() if url.startswith(prefix)}
    return {int(number): at for number, at in parts.items() if _PARTITION.fullmatch(number)}


def _by_url(topic: Topic, starts: Mapping[int, int]) -> dict[str, int]:
    return {f"{topic.url}/{number}": offset for number, offset in starts.items()}


def _listed(topic: Topic, one: Range, ledger: Mapping[str, Facts]) -> Listed:
    url = topic.url_of(one)
    facts = ledger.get(url, {})
    # As a table's files, ranges never change, and do not have to settle.
    return Listed(
        path=url.split("://", 1)[1],
        url=url,
        name=one.name,
        size=int(facts.get("size", -1)),
        etag=facts.get("etag"),
        partitions=(),
        version=(one.round, one.partition),
    )


def place_in_topic(url: str, row: int) -> str:
    """The partition and offset of a row of a range, and what is wrong with its message; "" if that
    is not known."""
    from streamomd.sources.kafka.file_system import topic_folder  # late: it imports fsspec

    topic, offsets = parse_source(url)
    if offsets is None:
        return ""
    # Notes differ by the types of columns, offsets do not: any of them will do.
    for file in topic_folder(topic).glob(f"{offsets.name}-*.json"):
        with suppress(OSError, ValueError, TypeError, KeyError, IndexError):
            note = json.loads(file.read_text("utf-8"))
            number = row + [ahead for first, ahead in note["offsets"] if first <= row][-1]
            why = note["bad"].get(str(row), "")
            where = f"{shown(topic.url)}, partition {offsets.partition}, offset {number}"
            return f"{where} ({why})" if why else where
    return ""


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
        if recorded:
            return with_brokers_named_elsewhere(options)
        return with_typed_brokers(urls, options)

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
        return message_count(url)

    def place_of(self, url: str, path: str, row: int) -> str:
        """See ``Source``."""
        return place_in_topic(url, row)

    def warnings(self, options: Mapping[str, Any]) -> list[str]:
        """See ``Source``."""
        if str(options.get("security.protocol", "")).lower() != "sasl_plaintext":
            return []
        return ["Kafka brokers get the password unencrypted: SASL_SSL would encrypt it"]
