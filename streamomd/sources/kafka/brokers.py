"""Kafka brokers that a run may connect to: those that its user names now.

A checkpoint names topics with their brokers, and may be anyone's. Brokers are named by the URL of a
topic that the user gives, by ``bootstrap.servers`` of storage options, or by the environment.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from typing import Any

from streamomd.core.errors import UsageError
from streamomd.core.urls import printable, shown

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
