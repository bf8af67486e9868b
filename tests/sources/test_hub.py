"""Datasets of Hugging Face's hub, ``hf://``: its client, on a server with a part of its API."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

pytest.importorskip("huggingface_hub")

from hub_server import REPO, Hub, hub
from running import run, train

from streamomd.core.errors import InputNotFoundError, StreamomdError, UsageError
from streamomd.shards.stored_object import forget_recent
from streamomd.sources.find import find

URL = f"hf://datasets/{REPO}"


def parquet(first: int) -> bytes:
    sink = io.BytesIO()
    x = [float(n) for n in range(first, first + 10)]
    pq.write_table(pa.table({"y": [0, 1] * 5, "x": x}), sink)
    return sink.getvalue()


@pytest.fixture
def server() -> Iterator[Hub]:
    with hub() as found:
        found.files["main"] = {"data/a.parquet": parquet(0), "data/b.parquet": parquet(10)}
        found.files["v1"] = {"data/a.parquet": parquet(0)}
        yield found


def test_files_are_listed_with_their_versions(server: Hub) -> None:
    """A directory, a file, a glob, and another revision; the hash of a file is its ETag."""
    for name, rows in (("data", 20), ("data/b.parquet", 10), ("data/*.parquet", 20)):
        found = find(f"{URL}/{name}", storage_options=server.options)
        assert found.rows == rows
        assert all(shard.etag and len(shard.etag) == 40 for shard in found)
    assert find(f"{URL}@v1/data", storage_options=server.options).rows == 10


def test_what_is_not_there_is_an_error(server: Hub) -> None:
    """A file, a revision, a repository, a wrong token: with the URL and without the token."""
    for name in (f"{URL}/c.parquet", f"{URL}@v2/data", "hf://datasets/user/other/data"):
        with pytest.raises(InputNotFoundError):
            find(name, storage_options=server.options)
    with pytest.raises(StreamomdError) as caught:
        find(f"{URL}/data", storage_options={**server.options, "token": "hf_secret"})
    assert "hf_secret" not in str(caught.value)


def test_a_run_learns_resumes_and_updates(server: Hub, tmp_path: Path) -> None:
    """Bit-identical to local files; a replaced file is refused; a new one is an update."""
    for name, data in server.files["main"].items():
        (tmp_path / Path(name).name).write_bytes(data)
    options, url = tmp_path / "options.json", tmp_path / "run"
    options.write_text(json.dumps(server.options))
    options.chmod(0o600)
    job = ("--label", "y", "--rule", "nag", "--checkpoint")
    expected = train(f"{tmp_path}/*.parquet", *job, "none")["state_sha256"]
    store = ("--storage-options", options)
    assert train(f"{URL}/data", *job, url, *store)["state_sha256"] == expected
    assert run("resume", url, *store, "--epochs", "2", "--json").result["rows"] == 40
    server.files["main"]["data/c.parquet"] = parquet(20)
    update = ("update", url, *store, "--settle", "0", "--json")
    assert run(*update).result["new_rows"] == 10
    server.files["main"]["data/a.parquet"] = parquet(50)
    done = run(*update)
    assert done.code == 3
    assert "a.parquet" in done.err


def test_a_revision_that_moved_is_detected(server: Hub, tmp_path: Path) -> None:
    """A stopped run resumes if its files are the same in the new commit. A file of other rows, of
    the same size, is refused; so is a revision that is gone."""
    server.files["v1"]["data/a.parquet"] = parquet(50)
    options, url = tmp_path / "options.json", tmp_path / "run"
    options.write_text(json.dumps(server.options))
    options.chmod(0o600)
    store = ("--storage-options", options)
    every = ("--set", "checkpoint.every_rows=4", "--set", "checkpoint.keep=9")
    job = ("--label", "y", "--rule", "nag", "--checkpoint", url, *every, *store)
    expected = train(f"{URL}@v1/data", *job)["state_sha256"]

    def stopped() -> None:
        forget_recent()
        assert run("checkpoint", "restore", url, "--at", "1").code == 0

    stopped()
    server.files["v1"]["README.md"] = b"of a later commit"
    done = run("resume", url, *store, "--json")
    assert done.code == 0, done.err
    assert done.result["state_sha256"] == expected
    before = server.files["v1"]["data/a.parquet"]
    changed = next(one for n in range(1, 99) if len(one := parquet(n)) == len(before))
    stopped()
    server.files["v1"]["data/a.parquet"] = changed
    done = run("resume", url, *store)
    assert done.code == 3, done.err
    assert "a.parquet" in done.err
    del server.files["v1"]
    done = run("resume", url, *store)
    assert done.code == 2, done.err
    assert "@v1" in done.err


def test_only_allowed_repositories_are_opened(
    server: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A checkpoint's URL is checked against the allow-list, as that of any other store."""
    options: Any = tmp_path / "options.json"
    options.write_text(json.dumps(server.options))
    options.chmod(0o600)
    url = tmp_path / "run"
    train(f"{URL}/data", "--label", "y", "--rule", "nag", "--checkpoint", url,
          "--storage-options", options)  # fmt: skip
    monkeypatch.setenv("STREAMOMD_ALLOWED_URLS", "hf://datasets/other")
    server.asked.clear()
    done = run("resume", url, "--epochs", "2", "--storage-options", options)
    assert done.code == UsageError.exit_code
    assert not server.asked
    monkeypatch.setenv("STREAMOMD_ALLOWED_URLS", f"hf://datasets/{REPO}")
    assert run("resume", url, "--epochs", "2", "--storage-options", options).code == 0
