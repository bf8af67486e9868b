"""What of a job others on the network may read or change on the way."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from streamomd.config.spec import Spec
from streamomd.core.urls import is_unencrypted, protocol, shown
from streamomd.sources.known_sources import by_source

ENDPOINTS = ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "STORAGE_EMULATOR_HOST")
UNCHECKED = (
    ("verify", False), ("use_ssl", False), ("ssl", False),
)  # fmt: skip


def transport_warnings(spec: Spec, environment: Mapping[str, str]) -> list[str]:
    """What of a job goes over a network so that others may read or change it, a line each.

    It is said and not refused: inside a private network it may be meant.
    """
    stores = {"data": spec.data.storage_options, "checkpoint": spec.checkpoint.storage_options}
    given = [*spec.data.shards, spec.checkpoint.url, spec.model.start]
    if any(map(protocol, given)):
        given += [environment.get(name, "") for name in ENDPOINTS]
    given += [text for options in stores.values() for text in _texts(options)]
    places = dict.fromkeys(
        shown(url) for url in given if protocol(url) == "http" and is_unencrypted(url)
    )
    lines = [
        f"{place} is read and written unencrypted: https:// would encrypt it" for place in places
    ]
    sources = by_source(spec.data.shards)
    unchecked = (*UNCHECKED, *(off for source in sources for off in source.unchecked))
    for name, options in stores.items():
        if any(_has(options, *off) for off in unchecked):
            lines.append(f"{name}.storage_options switch TLS or its check of certificates off")
    return lines + [line for source in sources for line in source.warnings(stores["data"])]


def scheduler_warnings(spec: Spec, address: str) -> list[str]:
    """The same of a job that goes to the workers of a scheduler."""
    options = spec.data.storage_options, spec.checkpoint.storage_options
    addresses = {name for source in by_source(spec.data.shards) for name in source.addresses}
    if not (is_unencrypted(address) and any(one.keys() - addresses for one in options)):
        return []
    return [f"storage options go to {shown(address)} unencrypted: use tls://"]


def _texts(options: Any) -> list[str]:
    """Every text in nested options."""
    if isinstance(options, Mapping):
        return [text for value in options.values() for text in _texts(value)]
    return [options] if isinstance(options, str) else []


def _has(options: Any, key: str, value: object) -> bool:
    if not isinstance(options, Mapping):
        return False
    given = options.get(key)
    same = given.lower() == value if isinstance(given, str) else given is value
    return same or any(_has(one, key, value) for one in options.values())
