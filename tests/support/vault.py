"""A store of this process that takes credentials, to see where they turn up."""

from __future__ import annotations

from typing import Any

import fsspec
import pyarrow.parquet as pq
from fsspec.implementations.memory import MemoryFileSystem
from running import rows


class Vault(MemoryFileSystem):
    """A store of this process that takes a key, a secret and userinfo, and lists well."""

    protocol = "vault"
    store: dict[str, Any] = {}  # noqa: RUF012
    pseudo_dirs = [""]  # noqa: RUF012

    def __init__(self, key: str = "", secret: str = "", **options: Any) -> None:
        super().__init__(**options)
        self.key, self.secret = key, secret

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        path = path.removeprefix("vault://")
        host, slash, rest = path.partition("/")
        path = host.rpartition("@")[2] + slash + rest
        return "/" + path.strip("/") if path else ""

    @staticmethod
    def _get_kwargs_from_urls(path: str) -> dict[str, Any]:
        host = path.removeprefix("vault://").partition("/")[0]
        user, at, _ = host.rpartition("@")
        return {"key": user.partition(":")[0]} if at else {}


def filled() -> Any:
    """The store, known to fsspec, with three shards under ``vault://host/data``."""
    fsspec.register_implementation("vault", Vault, clobber=True)
    Vault.store.clear()
    fs = fsspec.filesystem("vault")
    for place, name in enumerate("abc"):
        with fs.open(f"/host/data/{name}.parquet", "wb") as file:
            pq.write_table(rows(40, first=place), file)
    return fs
