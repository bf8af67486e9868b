"""Many shards of a store: how they are listed, and how many of their footers are read at a time."""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Iterator

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from s3_server import PAGE, S3Server, Waves, hold

from streamomd.checkpoint.segments import shorten_facts
from streamomd.core.errors import InputNotFoundError, StreamomdError, UsageError
from streamomd.shards import stored_object
from streamomd.shards.filesystem import CONNECTIONS, LISTINGS_AT_ONCE, connect
from streamomd.shards.list_files import entries
from streamomd.sources.contract import Request
from streamomd.sources.find import find, list_shards
from streamomd.sources.tables import TableOptions

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
    list_shards(
        "s3://bucket/data", Request(storage_options=options(server))
    )  # the client has started
    server.count()
    server.fault = hold(CONNECTIONS, ".parquet")
    shards = find("s3://bucket/data", storage_options=options(server))
    assert len(shards) == shards.rows == 2 * CONNECTIONS
    assert server.most_in_flight(".parquet") == CONNECTIONS
    assert requests(server)["GET"] == 2 * CONNECTIONS
    known = {one["url"]: shorten_facts(one) for one in shards.fingerprint()}
    again = find("s3://bucket/data", storage_options=options(server), known=known)
    assert [one.url for one in again] == [one.url for one in shards]
    assert requests(server)["GET"] == 0
    urls = [one.url for one in shards]
    given = {"order": "given", "storage_options": options(server), "known": known}
    server.fault = hold(CONNECTIONS // 2, ".parquet")
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


def test_directories_of_columns_are_one_listing(server: S3Server) -> None:
    """One request for 1,000 objects in any number of directories, which also says whether a table's
    log is in one of them; by name and by glob."""
    names = [f"data/day={day}/{at}.parquet" for day in range(64) for at in range(20)]
    fill(server, names)
    list_shards("s3://bucket/data/day=1/", Request(storage_options=options(server)))
    # looks: for _delta_log/ and metadata/ of each directory above, and for an object of this name
    for url, looks in (("s3://bucket/data/", 2), ("s3://bucket/data/*/*.parquet", 8)):
        server.count()
        listing = list_shards(url, Request(storage_options=options(server)))
        assert [one.url for one in listing.files] == sorted(f"s3://bucket/{one}" for one in names)
        assert server.count()["LIST"] == 2 + looks
    fill(server, ["data/day=3/_delta_log/0.json"])
    with pytest.raises(UsageError, match="Delta table s3://bucket/data/day=3"):
        list_shards("s3://bucket/data/", Request(storage_options=options(server)))


def test_directories_next_to_much_else_are_listed_at_the_same_time(server: S3Server) -> None:
    """Less than half of the first 1,000 names are data: one request for each directory."""
    names = [f"data/day={day}/{at}.parquet" for day in range(64) for at in range(2)]
    fill(server, names)
    fill(server, [f"data/_temporary/{at}.parquet" for at in range(5 * PAGE)])
    fill(server, [f"data/_temporary/{at}.part" for at in range(10 * PAGE)])
    list_shards("s3://bucket/data/day=1", Request(storage_options=options(server)))
    server.count()
    server.fault = hold(LISTINGS_AT_ONCE, "data/day=")
    listing = list_shards("s3://bucket/data", Request(storage_options=options(server)))
    assert [one.url for one in listing.files] == sorted(f"s3://bucket/{name}" for name in names)
    lists = sorted((begin, end) for operation, _, begin, end in server.log if operation == "LIST")
    at_once = max(sum(low <= begin < high for low, high in lists) for begin, _ in lists)
    assert at_once == LISTINGS_AT_ONCE
    assert requests(server)["LIST"] < 64 + 15


def test_a_match_of_a_glob_takes_no_request(server: S3Server) -> None:
    fill(server, [f"data/day={day}/{at}.parquet" for day in range(3) for at in range(5)])
    fill(server, ["data/day=1/_delta_logs", "data/day=1/a.csv"])
    url = "s3://bucket/data/day=*/*.parquet"
    listing = list_shards(url, Request(storage_options=options(server)))
    assert len(listing.files) == 15
    assert {one.etag for one in listing.files} == {"0"}
    found = requests(server)
    assert found["GET"] == 0
    heads = found["HEAD"]
    fill(server, [f"data/day={day}/{at}.parquet" for day in range(3) for at in range(5, 30)])
    assert len(list_shards(url, Request(storage_options=options(server))).files) == 90
    assert requests(server)["HEAD"] == heads


FOUND = {
    # name in the bucket: requests by operation, besides one GET for each shard, and how many are in
    # each round trip before those. Each directory above takes a LIST for each kind of table.
    "a/b/": ({"LIST": 1 + 2 * 2}, [5]),
    "a/b": ({"HEAD": 1, "LIST": 2 + 2 * 2}, [6, 1]),
    "a/b/0.parquet": ({"HEAD": 1, "LIST": 3 * 2}, [7]),
}


@pytest.mark.parametrize("name", FOUND)
def test_what_finding_takes(server: S3Server, name: str) -> None:
    """A name that says what it is takes one request, and those for tables run next to it: the
    footers are requested next."""
    fill(server, ["a/b/0.parquet", "a/b/1.parquet"])
    server.objects["bucket/a/b/_SUCCESS"] = b""
    given = {"storage_options": options(server)}
    find(f"s3://bucket/{name}", **given)  # the client has started
    stored_object.forget_recent()
    server.count()
    expected, trips = FOUND[name]
    count = 1 if name.endswith(".parquet") else 2
    server.fault = waves = Waves((*trips, count))
    shards = find(f"s3://bucket/{name}", **given)
    assert len(shards) == count
    assert waves.late == 0
    assert requests(server) == {**expected, "GET": len(shards)}


def test_a_marked_directory_of_many_pages_is_listed_once(server: S3Server) -> None:
    """The first page, which is requested early, is a part of the listing."""
    names = [f"data/{at:05}.parquet" for at in range(PAGE + 10)]
    fill(server, names)
    listing = list_shards("s3://bucket/data/", Request(storage_options=options(server)))
    assert [one.url for one in listing.files] == [f"s3://bucket/{name}" for name in names]
    assert requests(server) == {"LIST": 2 + 2}


def test_of_a_table_one_page_of_names_is_listed(server: S3Server) -> None:
    """Its log says which files it has."""
    fill(server, [f"table/{at:05}.parquet" for at in range(3 * PAGE)])
    server.objects["bucket/table/_delta_log/00000000000000000000.json"] = b"{}"
    given = {"storage_options": options(server)}
    with pytest.raises(StreamomdError, match=r"Delta|delta"):
        list_shards("s3://bucket/table/", Request(**given))
    assert requests(server)["LIST"] <= 1 + 2 * 2 + 3  # and what its log takes
    with pytest.raises(UsageError, match="names files of the Delta table"):
        list_shards("s3://bucket/table/00000.parquet", Request(**given))
    files = list_shards(
        "s3://bucket/table/", Request(tables=TableOptions(as_files=True), **given)
    ).files
    assert len(files) == 3 * PAGE


@pytest.mark.parametrize("slash", ["", "/"])
def test_names_that_are_not_what_they_say(server: S3Server, slash: str) -> None:
    """An object without a suffix, a directory with one, both, and what does not exist."""
    fill(server, ["plain", "folder.parquet/0.parquet", "both", "both/0.parquet"])
    given = {"storage_options": options(server)}

    def found(name: str) -> list[str]:
        files = list_shards(f"s3://bucket/{name}{slash}", Request(**given)).files
        return [one.path.removeprefix("bucket/") for one in files]

    assert found("folder.parquet") == ["folder.parquet/0.parquet"]
    assert found("both") == (["both/0.parquet"] if slash else ["both"])
    assert found("plain") == ["plain"]
    with pytest.raises(InputNotFoundError, match="no such file or directory"):
        found("missing")
