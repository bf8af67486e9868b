"""Iceberg tables in S3, as far as a server in this process behaves like it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from moto_bucket import moto_bucket

s3fs = pytest.importorskip("s3fs", reason="s3fs is not installed")
pytest.importorskip("pyiceberg")
pytest.importorskip("sqlalchemy")

from iceberg_tables import NAME, SCHEMA, catalog, rows  # noqa: E402

from streamomd.core.errors import StreamomdError, UsageError  # noqa: E402
from streamomd.sources.contract import Request  # noqa: E402
from streamomd.sources.find import find, list_shards  # noqa: E402

pytestmark = pytest.mark.slow


@pytest.fixture
def options() -> Iterator[dict[str, Any]]:
    """Storage options of a server with a bucket."""
    with moto_bucket() as made:
        yield made


def test_a_table_in_a_bucket_is_read(
    options: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Written by pyiceberg with settings of its own, read through the storage options alone: those
    of the catalog and the table are not used."""
    monkeypatch.setenv("PYICEBERG_CATALOG__TESTS__S3__ENDPOINT", options["endpoint_url"])
    monkeypatch.setenv("PYICEBERG_CATALOG__TESTS__S3__ACCESS_KEY_ID", "id")
    monkeypatch.setenv("PYICEBERG_CATALOG__TESTS__S3__SECRET_ACCESS_KEY", "canary")
    monkeypatch.setenv("PYICEBERG_CATALOG__TESTS__S3__REGION", "eu-west-1")
    tables = catalog(tmp_path, monkeypatch)
    table = tables.create_table("ns.t", SCHEMA, location="s3a://bucket/lake/t")
    table.append(rows(0))
    first = table.current_snapshot().snapshot_id
    table.append(rows(4))
    found = find(NAME, storage_options=options)
    assert found.rows == 8
    assert all(shard.url.startswith("s3://bucket/lake/t/data/") for shard in found)
    url = table.metadata_location.replace("s3a://", "s3://")
    versions = find(url, storage_options=options).table_versions
    assert versions.keys() == {url, f"{url}#schema"}
    listing = list_shards(NAME, Request(storage_options=options, since={NAME: first}))
    assert len(listing.files) == 1
    monkeypatch.setenv("STREAMOMD_ALLOWED_URLS", "s3://bucket/lake/u")
    with pytest.raises(UsageError, match="outside"):
        find(NAME, storage_options=options)
    monkeypatch.delenv("STREAMOMD_ALLOWED_URLS")
    with pytest.raises(StreamomdError) as caught:
        find(NAME, storage_options={**options, "endpoint_url": "http://127.0.0.1:1"})
    assert "canary" not in str(caught.value)
