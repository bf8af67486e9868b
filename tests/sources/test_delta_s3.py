"""Delta tables and their files in S3, as far as a server in this process behaves like it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from delta_tables import PROTOCOL, add, commit, metadata, shard
from moto_bucket import moto_bucket

from streamomd.core.errors import UsageError
from streamomd.sources.contract import Request
from streamomd.sources.find import find, list_shards

s3fs = pytest.importorskip("s3fs", reason="s3fs is not installed")


@pytest.fixture(scope="module")
def options(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """Storage options of a server with a table of 3 commits, and 12 files in 3 directories."""
    root: Path = tmp_path_factory.mktemp("s3") / "table"
    for version in range(3):
        name = shard(root, f"k=a%20b/{'cab'[version]}.parquet", 4 * version)
        first = (PROTOCOL, metadata(["k"])) if version == 0 else ()
        path = add(name.replace("%", "%25"), partitions={"k": "a b"})
        commit(root, version, *first, path)
    with moto_bucket() as made:
        fs = s3fs.S3FileSystem(**made)
        for path in root.rglob("*.*"):
            fs.pipe(f"bucket/lake/table/{path.relative_to(root)}", path.read_bytes())
        for number in range(12):
            data = (root / "k=a%20b" / "c.parquet").read_bytes()
            fs.pipe(f"bucket/lake/files/p={number % 3}/{number}.parquet", data)
        yield made


def test_a_table_in_a_bucket_is_read(options: dict[str, Any]) -> None:
    """Through the storage options of the user alone, in the order of its commits."""
    for text in ("delta+s3://bucket/lake/table", "s3://bucket/lake/table/"):
        found = find(text, storage_options=options)
        assert [one.name for one in found] == [f"k=a%20b/{name}.parquet" for name in "cab"]
        assert found.shards[0].url == "s3://bucket/lake/table/k=a%20b/c.parquet"
        assert found.table_versions == {"s3://bucket/lake/table": 2}
        assert found.rows == 12


def test_files_of_a_table_in_a_bucket_are_refused(options: dict[str, Any]) -> None:
    """A glob and a file, with the URL to use."""
    for text in ("**/*.parquet", "k=*/a.parquet", "k=a%20b/a.parquet"):
        with pytest.raises(UsageError, match=r"delta\+s3://bucket/lake/table\. "):
            find(f"s3://bucket/lake/table/{text}", storage_options=options)


def test_each_directory_is_asked_for_once(
    options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of 12 files in 3 directories: no request twice for a log above them, and few in all."""
    asked: Counter[str] = Counter()
    call = s3fs.S3FileSystem._call_s3

    async def counted(self: Any, method: str, *args: Any, **given: Any) -> Any:
        key = str(given.get("Key") or given.get("Prefix"))
        if key.rstrip("/").endswith(("_delta_log", "metadata")):
            asked[f"{method} {key}"] += 1
        return await call(self, method, *args, **given)

    monkeypatch.setattr(s3fs.S3FileSystem, "_call_s3", counted)
    assert len(list_shards("s3://bucket/lake/files", Request(storage_options=options)).files) == 12
    assert set(asked.values()) == {1}
    assert sum(asked.values()) <= 12  # two objects, two requests each: source, lake, bucket
