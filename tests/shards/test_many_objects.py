"""Many shards of a store: how they are listed, and how many of their footers are read at a time."""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Iterator

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from s3_server import PAGE, S3Server

from streamomd.checkpoint.segments import shorten_facts
from streamomd.shards.filesystem import CONNECTIONS, LISTINGS_AT_ONCE, connect, entries
from streamomd.shards.find import find, list_shards
from streamomd.shards.table_finder import TableOptions

pytest.importorskip("s3fs", reason="s3fs is not installed")


def shard() -> bytes:
    out = io.BytesIO()
    pq.write_table(pa.table({"x": [1.0], "y": [0]}), out)
    return out.getvalue()


@pytest.fixture
def server() -> Iterator[S3Server]:
    with S3Server() as running:
        yield running


def fill(server: S3Server, names: Iterator[str] | list[str]) -> None:
    data = shard()
    server.objects.update({f"bucket/{name}": data for name in names})


def options(server: S3Server) -> dict[str, object]:
    """As a user gives them: nothing about connections."""
    return {key: one for key, one in server.options.items() if key != "config_kwargs"}


def requests(server: S3Server) -> Counter[str]:
    """By operation; those for shards and listings."""
    found = Counter(operation for operation, *_ in server.log)
    server.count()
    return found


def test_footers_are_requested_64_at_a_time(server: S3Server) -> None:
    """Of shards that were listed in one request; each is one request, as it has its ETag."""
    fill(server, [f"data/{at:03}.parquet" for at in range(2 * CONNECTIONS)])
    list_shards("s3://bucket/data", storage_options=options(server))  # the client has started
    server.count()
    server.latency = 0.3
    shards = find("s3://bucket/data", storage_options=options(server))
    assert len(shards) == shards.rows == 2 * CONNECTIONS
    assert server.most_in_flight(".parquet") == CONNECTIONS
    assert requests(server)["GET"] == 2 * CONNECTIONS
    server.latency = 0.0
    known = {one["url"]: shorten_facts(one) for one in shards.fingerprint()}
    again = find("s3://bucket/data", storage_options=options(server), known=known)
    assert [one.url for one in again] == [one.url for one in shards]
    assert requests(server)["GET"] == 0
    urls = [one.url for one in shards]
    given = {"order": "given", "storage_options": options(server), "known": known}
    server.latency = 0.1
    again = find(urls, tables=TableOptions(as_files=True), **given)
    assert [one.url for one in again] == urls
    assert server.most_in_flight(".parquet") >= CONNECTIONS / 2
    assert requests(server) == {"HEAD": 2 * CONNECTIONS}


def test_a_listing_is_read_a_page_at_a_time(server: S3Server) -> None:
    """What is in memory of a directory of any size is one answer of the store."""
    fill(server, [f"data/{at:05}.parquet" for at in range(2 * PAGE + 300)])
    fs = connect("s3://bucket/data", options(server))
    found = entries(fs, "bucket/data", "s3://bucket/data", lambda name: True)
    first = next(found)
    assert (first.path, first.kind, first.etag) == ("bucket/data/00000.parquet", "file", "0")
    assert requests(server) == {"LIST": 1}
    assert len(list(found)) == 2 * PAGE + 299
    assert requests(server) == {"LIST": 2}
    assert not dict(fs.dircache)


def test_directories_of_columns_are_listed_at_the_same_time(server: S3Server) -> None:
    """One request for each; what is in a directory says whether a table's log is."""
    names = [f"data/day={day}/{at}.parquet" for day in range(64) for at in range(2)]
    fill(server, names)
    list_shards("s3://bucket/data/day=1", storage_options=options(server))
    server.count()
    server.latency = 0.1
    listing = list_shards("s3://bucket/data", storage_options=options(server))
    assert [one.url for one in listing.files] == sorted(f"s3://bucket/{name}" for name in names)
    lists = sorted((begin, end) for operation, _, begin, end in server.log if operation == "LIST")
    at_once = max(sum(low <= begin < high for low, high in lists) for begin, _ in lists)
    assert LISTINGS_AT_ONCE / 2 <= at_once <= LISTINGS_AT_ONCE
    assert requests(server)["LIST"] < 64 + 12


def test_a_match_of_a_glob_takes_no_request(server: S3Server) -> None:
    fill(server, [f"data/day={day}/{at}.parquet" for day in range(3) for at in range(5)])
    fill(server, ["data/day=1/_delta_logs", "data/day=1/a.csv"])
    url = "s3://bucket/data/day=*/*.parquet"
    listing = list_shards(url, storage_options=options(server))
    assert len(listing.files) == 15
    assert {one.etag for one in listing.files} == {"0"}
    found = requests(server)
    assert found["GET"] == 0
    heads = found["HEAD"]
    fill(server, [f"data/day={day}/{at}.parquet" for day in range(3) for at in range(5, 30)])
    assert len(list_shards(url, storage_options=options(server)).files) == 90
    assert requests(server)["HEAD"] == heads
