"""How many requests a commit and a load make, exactly, by kind of store and number of parts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from checkpoint_helpers import begin, load_all, make_store, numbers

from streamomd.checkpoint import Store, open_store, write_document
from streamomd.checkpoint.stores.local import LocalStore

pytest.importorskip("s3fs", reason="s3fs is not installed")
from s3_server import S3Server

Count = Callable[[], dict[str, int]]
METHODS = ("read", "size", "put", "create", "names", "sizes", "delete")
WORDS = {"cat_file": "GET", "info": "HEAD", "pipe_file": "PUT", "ls": "LIST", "rm_file": "DELETE"}
"""What a file system is asked, by the request that it stands for."""


@contextmanager
def counted(kind: str, folder: Path) -> Iterator[tuple[Store, Count]]:
    """A store of a kind, and the requests made since the last count.

    S3: what a server hears. Others: calls of the file system, or of the store on a disk.
    """
    if kind.startswith("s3"):
        with S3Server(proof=kind.removeprefix("s3 ").replace("nothing", "")) as server:
            yield open_store("s3://bucket/run", server.options), server.count
        return
    store, calls = make_store(kind, folder), Counter[str]()

    def watch(name: str, word: Callable[..., str]) -> None:
        real = getattr(store, name)

        def call(*given: Any, **options: Any) -> Any:
            calls[word(*given)] += 1
            return real(*given, **options)

        setattr(store, name, call)

    def count() -> dict[str, int]:
        found = dict(sorted(calls.items()))
        calls.clear()
        return found

    if isinstance(store, LocalStore):
        for method in METHODS:
            watch(method, lambda *_, method=method: method)
    else:
        watch("_call", lambda method, *_: WORDS[method])
    yield store, count


def commits(kind: str, parts: int) -> dict[str, int]:
    """Of a commit that replaces one of the same number of parts."""
    # Two listings: is there a later commit, and which are to be deleted? Each is followed by asking
    # for the next number by its name; of S3 one listing answers all of it, and one request deletes.
    asked = 0 if kind in ("s3 sha256", "s3 md5") else parts
    if kind.startswith("s3"):
        read_back = {"GET": 1, "HEAD": 1 + asked} if asked else {}
        return {**read_back, "LIST": 1, "POST": 1, "PUT": parts + 1}
    if kind == "local":
        return {
            "create": 1,
            "delete": parts + 1,
            "names": 2,
            "put": parts,
            "read": 1,
            "size": asked + 3,
        }
    return {"DELETE": parts + 1, "GET": 1, "HEAD": asked + 3, "LIST": 2, "PUT": parts + 1}


def loads(kind: str, parts: int) -> dict[str, int]:
    """The format, the manifest, its parent's (twice: retention deleted it), and each part.

    Listings: of commits, restarts and parts. Of S3 one of all, the manifest, and each part; the
    parent's manifest too, unless the commit says that its sequence had one winner.
    """
    if kind == "local":
        return {"names": 2, "read": 4 + parts, "size": 1, "sizes": 1}
    if kind.startswith("s3"):
        return {"GET": 1 + parts, "LIST": 1}
    return {"GET": 4 + parts, "HEAD": 1, "LIST": 3}


@pytest.mark.parametrize("kind", ["local", "memory", "s3 sha256", "s3 md5", "s3 nothing"])
def test_requests_of_a_commit_and_a_load(kind: str, tmp_path: Path) -> None:
    """One PUT a part, one DELETE for all of S3 or for each, and a HEAD only if the answer to the PUT
    proved nothing; one GET a part. The rest does not depend on the number of parts."""
    for parts in (1, 2, 20):
        with counted(kind, tmp_path / str(parts)) as (store, count):
            writer = begin(store, keep=1)
            writer.commit({"rows": 10}, numbers(1, ranges=parts))
            count()
            for at in (2, 3):
                writer.commit({"rows": 10 * at}, numbers(at, ranges=parts))
                assert count() == commits(kind, parts)
            load_all(store)
            assert count() == loads(kind, parts)


@pytest.mark.parametrize("kind", ["s3 sha256", "s3 md5", "s3 nothing", "memory"])
def test_requests_of_a_shared_document(kind: str, tmp_path: Path) -> None:
    """Two copies: two PUTs, and a HEAD each only if the answers proved nothing."""
    with counted(kind, tmp_path) as (store, count):
        begin(store)
        count()
        write_document(store, "names", {"1": ["a name"]})
        asked = {} if kind in ("s3 sha256", "s3 md5") else {"HEAD": 2}
        assert count() == {**asked, "PUT": 2}
