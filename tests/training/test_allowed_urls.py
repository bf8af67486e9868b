"""URLs of a manifest: printed before they are opened, refused outside an allow-list."""

from __future__ import annotations

import os
import posixpath
import random
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import dask
import pytest
from rogue import forged
from running import everything, run, shards, train
from vault import filled

import streamomd
from streamomd.config.allow_list import VARIABLE, AllowList, refuse_outside
from streamomd.config.settings import configured
from streamomd.core.errors import UsageError
from streamomd.training.url_trust import MOST_LINES, described

assert configured("allowed-urls") == []  # the default is there before a test changes it

INSIDE = [
    ("s3://bucket/rows", "s3://bucket/rows"),
    ("s3://bucket/rows", "s3://bucket/rows/a.parquet"),
    ("s3://bucket/rows", "delta+s3://bucket/rows/table"),
    ("s3://bucket/rows/", "s3://bucket/rows/year=1/*.parquet"),
    ("s3://bucket/rows", "S3://bucket//rows/./a"),
    ("s3://bucket", "s3://bucket/any"),
    ("s3://", "s3://any/any"),
    ("s3://bucket/rows", "s3://bucket/rows/x/../a"),
    ("s3://bucket/50%25", "s3://bucket/50%25/a"),
    ("https://Host.example/rows", "HTTPS://hOST.example:443/rows/a"),
    ("https://host/rows", "https://user:secret@host/rows/a?token=1#x"),
    ("https://host/rows", "https://host/other/../rows/a"),
    ("https://host/r%6Fws", "https://host/%72ows/a%20b"),
    ("http://host:9000", "http://host:9000/a"),
    ("abfss://box@account.example/rows", "abfss://box@account.example/rows/a"),
]
OUTSIDE = [
    ("s3://bucket/rows", "delta+s3://bucket/rows2/table"),
    ("s3://bucket/rows", "delta+/bucket/rows"),
    ("s3://bucket/rows", "s3://bucket/rows2/a.parquet"),
    ("s3://bucket/rows", "s3://bucket/row*/a.parquet"),
    ("s3://bucket/rows", "s3://bucket/rows/../other"),
    ("s3://bucket/rows", "s3://bucket/other/../rows/a"),  # a bucket may take ".." for a name
    ("s3://bucket/rows", "s3://bucket2/rows/a"),
    ("s3://bucket/rows", "s3://other@bucket2/rows/a"),
    ("s3://bucket/rows", "gs://bucket/rows/a"),
    ("s3://bucket/rows", "s3://bucket/%72ows/a"),  # names of a bucket are not encoded
    ("s3://Bucket/rows", "s3://bucket/rows"),
    ("s3://bucket/rows", "s3://bucket"),
    ("https://host/rows", "http://host/rows/a"),
    ("https://host/rows", "https://host:444/rows/a"),
    ("https://host/rows", "https://host.evil/rows/a"),
    ("https://host/rows", "https://host@evil/rows/a"),
    ("https://host/rows", "https://evil/rows?@host/rows/a"),
    ("https://host/rows", "https://evil/#@host/rows/a"),
    ("https://host/rows", "https://evil\\@host/rows/a"),
    ("https://host/rows", "https://host/rows/%2e%2e/a"),
    ("https://host/rows", "https://host/rows/.%2E/a"),
    ("https://host/rows", "https://host/rows/..%2fa"),
    ("https://host/rows", "https://host/rows%2Fa"),
    ("https://host/rows", "https://host/other//../rows/a"),  # an empty name, or none
    ("https://host/rows", "https://host/rows/.\t./a"),
    ("https://host/rows", "https://host/rows/%5c..%5ca"),
    ("https://host/rows", "/rows/a"),
    ("/rows", "https://host/rows/a"),
    ("/rows", "simplecache::https://host/rows/a"),
    ("/rows", "zip://rows/a::https://host/rows"),
    ("abfss://box@account.example", "abfss://other@account.example/a"),
]


@pytest.mark.parametrize("prefix, url", INSIDE)
def test_what_is_inside_a_prefix(prefix: str, url: str) -> None:
    """Scheme, host and whole segments agree, however they are written."""
    assert url in AllowList("list", (prefix,))
    assert url in AllowList("list", ("gs://another", prefix))


@pytest.mark.parametrize("prefix, url", OUTSIDE)
def test_what_is_outside_a_prefix(prefix: str, url: str) -> None:
    """Another scheme, host or segment, also where one reading of the URL would be inside."""
    assert url not in AllowList("list", (prefix,))
    with pytest.raises(UsageError):
        refuse_outside([url], [AllowList("any", ("s3://", "https://", "/")),
                               AllowList("list", (prefix,))])  # fmt: skip


PIECES = (
    "http://", "HTTP://", "https://", "host", "evil", "@", ":80", ":81", "/", "/rows", "rows", "..",
    "%2e", ".", "%2F", "\\", "?", "#", "\t", "\n", "%00", "%09", " ", "%5c", ";", "//", "a", "*",
    "[", "%25", "%252e", "::", "／", "．", "host/rows", "http://host/rows/",
)  # fmt: skip
STARTS = ("http://host", "http://host/rows", "http://", "http://host/rows/", "http://evil/",
          "http://host/x/")  # fmt: skip


@pytest.mark.parametrize("count", [20_000, pytest.param(200_000, marks=pytest.mark.slow)])
def test_an_allowed_url_is_inside_for_the_library_that_opens_it(count: int) -> None:
    """Random URLs, split by the parser of aiohttp: one that is allowed has the host and the path of
    the prefix there too."""
    yarl = pytest.importorskip("yarl")
    draw, allowed, inside = random.Random(1), AllowList("list", ("http://host/rows",)), 0
    for _ in range(count):
        url = draw.choice(STARTS) + "".join(draw.choices(PIECES, k=draw.randrange(7)))
        if url not in allowed:
            continue
        try:
            found = yarl.URL(url)
        except ValueError:  # aiohttp refuses it
            continue
        inside += 1
        path = "/" + posixpath.normpath(unquote(found.raw_path)).lstrip("/")
        assert (found.host, found.port) == ("host", 80), url
        assert f"{path}/".startswith("/rows/"), url
    assert inside > count / 20


def test_local_names_are_compared_as_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """file:// and a path are one scheme; links and ".." lead where they lead, on both sides."""
    inside, outside = tmp_path / "rows", tmp_path / "rows2"
    for folder in (inside, outside):
        (folder / "deep").mkdir(parents=True)
    (tmp_path / "alias").symlink_to(inside)
    (inside / "away").symlink_to(outside)
    (tmp_path / "link").symlink_to(inside / "deep")
    (tmp_path / "all").symlink_to("/")
    monkeypatch.chdir(inside)
    for prefix in (inside, f"file://{inside}", f"LOCAL://{inside}/", tmp_path / "alias"):
        allowed = AllowList("list", (str(prefix),))
        for url in (inside, inside / "a", f"file://{inside}/a", tmp_path / "alias" / "a", "a",
                    "../rows/a", f"{outside}/../rows/a", f"/{inside}//a/*.parquet", inside / "new",
                    tmp_path / "link" / ".." / "a", f"{tmp_path / 'all'}/{inside}/a"):  # fmt: skip
            assert str(url) in allowed, url
        for url in (outside, inside / "away" / "a", "../rows2/a", tmp_path, "/", "..",
                    f"{inside}/../rows2/a", f"{inside}/\0", f"{inside}/away/../rows2/a",
                    tmp_path / "all" / "etc"):  # fmt: skip
            assert str(url) not in allowed, url
    assert str(outside) in AllowList("list", ("/",))


@pytest.mark.parametrize("prefix", ["rows", "../rows", "s3:/bucket", "file:rows", "s3://b/../c",
                                    "http://host/a%2fb", "~/rows"])  # fmt: skip
def test_a_prefix_that_means_nothing_is_an_error(prefix: str) -> None:
    """Exit 2 naming it, never a list that allows less or more than was meant."""
    with pytest.raises(UsageError, match=r"list holds .*expected a prefix of a URL"):
        AllowList("list", ("/data", prefix))


def test_every_url_is_described() -> None:
    """One by one, or where there are many, by folder: no URL hides among others."""
    many = [f"s3://bucket/rows/{at}.parquet" for at in range(500)]
    assert described(many[:MOST_LINES]) == many[:MOST_LINES]
    evil = ["http://evil", "http://evil2/a?b", "/etc/passwd"]
    assert described([*many[:250], *evil, *many[250:]]) == [
        "s3://bucket/rows/ (500 names)", "http://evil (1 names)", "http://evil2/ (1 names)",
        "/etc/ (1 names)",
    ]  # fmt: skip
    assert described(["s3://user:secret@bucket/\x1b[31m\n"]) == ["s3://bucket/\\x1b[31m\\n"]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Three shards."""
    shards(tmp_path / "data")
    return tmp_path / "data"


@pytest.fixture
def url(data: Path) -> Path:
    """A run on them."""
    train(data, *everything(), "--checkpoint", data.parent / "run")
    return data.parent / "run"


@pytest.fixture
def served(data: Path) -> Iterator[tuple[str, list[str]]]:
    """The shards behind http://, and the paths that were asked for."""
    asked: list[str] = []

    class Handler(SimpleHTTPRequestHandler):
        def __init__(self, *given: Any) -> None:
            super().__init__(*given, directory=str(data.parent))

        def log_message(self, *given: Any) -> None:
            asked.append(self.path)

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}", asked
        server.shutdown()


def test_a_foreign_host_is_printed_and_refused_unasked(
    url: Path, served: tuple[str, list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a list a URL is printed before it is opened; outside a list it is never opened, and
    no commit is made."""
    root, asked = served
    evil = forged(url, tmp_path / "evil", data={"shards": [f"{root}/data/a.parquet"]})
    done = run("resume", evil, "--epochs", 2)
    assert done.code == 3  # opened, and not the shards of the run
    assert f"the checkpoint names the shards: {root}/data/a.parquet" in done.err
    assert asked
    asked.clear()
    server_gone = forged(url, tmp_path / "gone", data={"shards": ["http://127.0.0.1:1/a.parquet"]})
    done = run("resume", server_gone, "--epochs", 2)
    printed, refused = (
        done.err.index("names the shards: http://127.0.0.1:1/a"),
        done.err.index("cannot"),
    )
    assert printed < refused
    before = sorted(evil.rglob("*"))
    for allowed in (str(tmp_path), f"{root}/dat", f"{root}1/data", "https://127.0.0.1"):
        monkeypatch.setenv(VARIABLE, f"s3://bucket, {allowed}")
        done = run("resume", evil, "--epochs", 2)
        assert done.code == 2
        assert f"outside {VARIABLE} (s3://bucket, {allowed}):\n  {root}/data/a.parquet" in done.err
        assert "add a prefix of each" in done.err
    assert not asked
    assert sorted(evil.rglob("*")) == before
    monkeypatch.setenv(VARIABLE, f"s3://bucket,{root}/data")
    assert run("resume", evil, "--epochs", 2).code == 3
    assert asked


def test_all_urls_outside_are_named_together(
    url: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the order of the manifest, with what they lead to."""
    (tmp_path / "link").symlink_to("/etc")
    names = ["http://evil/a", str(tmp_path / "data"), str(tmp_path / "link" / "x"), "gs://b/c"]
    evil = forged(url, tmp_path / "evil", data={"shards": names})
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    printed = run("resume", evil, "--epochs", 2).err
    lines = ["  http://evil/a", f"  {tmp_path}/link/x, which is /etc/x", "  gs://b/c"]
    assert "\n".join(lines) in printed
    assert "\n  " + str(tmp_path / "data") not in printed


@pytest.mark.parametrize("given", ["folder", "glob", "file", "linked folder"])
def test_a_link_that_leaves_an_allowed_folder_is_refused(
    given: str, data: Path, url: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its name is inside, its file is not: exit 2 before a file is opened; as a plain file it is
    read."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (data / "c.parquet").rename(outside / "c.parquet")
    if given == "linked folder":
        (data / "c.parquet").symlink_to(outside)  # a directory named like a shard
    else:
        (data / "c.parquet").symlink_to(outside / "c.parquet")
    names = {"folder": data, "glob": data / "*.parquet", "file": data / "c.parquet",
             "linked folder": data}  # fmt: skip
    evil = forged(url, tmp_path / "evil", data={"shards": [str(names[given])]})
    monkeypatch.setenv(VARIABLE, str(data))
    opened: list[str] = []
    monkeypatch.setattr(
        "streamomd.shards.read_footers.read_shard", lambda fs, path, url: opened.append(path)
    )
    done = run("resume", evil, "--epochs", 2)
    assert done.code == 2
    assert f"c.parquet, which is {outside}/c.parquet" in done.err
    assert not opened
    monkeypatch.undo()
    monkeypatch.setenv(VARIABLE, f"{data},{outside}")
    assert run("resume", evil, "--epochs", 2).code == (0 if given in ("folder", "glob") else 3)


def test_what_a_store_lists_elsewhere_is_refused(
    url: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files found in a store are compared too, by their URLs."""
    fs = filled()
    evil = forged(url, tmp_path / "evil", data={"shards": ["vault://host/data"]})
    monkeypatch.setenv(VARIABLE, "vault://host/data")
    assert run("resume", evil, "--epochs", 2).code == 3  # read, and not those of the run
    listed = type(fs).ls

    def elsewhere(self: Any, path: str, **options: Any) -> Any:
        return [{**one, "name": one["name"].replace("/data/", "/other/")}
                for one in listed(self, path, **options)]  # fmt: skip

    monkeypatch.setattr(type(fs), "ls", elsewhere)
    fs.cp("/host/data", "/host/other", recursive=True)
    done = run("resume", evil, "--epochs", 2)
    assert done.code == 2
    assert "  vault://host/other/a.parquet" in done.err


def test_both_lists_must_allow(url: Path, data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The environment's and Dask's; each alone restricts, an empty one does not."""
    cases: list[tuple[str, Any, int]] = [
        ("", [], 0), (f"{data}", [], 0), ("", [str(data)], 0), ("", f"s3://b,{data}", 0),
        (str(data), [str(data.parent)], 0), (str(data), ["s3://b"], 2), ("s3://b", [str(data)], 2),
        ("", ["s3://b"], 2), ("", {"a": 1}, 2), ("", [7], 2), (",", [], 2), ("rows", [], 2),
    ]  # fmt: skip
    for epochs, (environment, configuration, code) in enumerate(cases, 2):
        monkeypatch.setenv(VARIABLE, environment)
        with dask.config.set({"streamomd.allowed-urls": configuration}):
            done = run("resume", url, "--epochs", epochs)
        assert done.code == code, (environment, configuration, done.err)


def test_the_list_of_dasks_configuration_is_read_from_its_file(url: Path, tmp_path: Path) -> None:
    """A process that is given neither flag nor variable finds it, as it finds Dask's other keys."""
    (tmp_path / "config").mkdir()
    text = "streamomd:\n  allowed-urls:\n    - s3://bucket/rows\n"
    (tmp_path / "config" / "any.yaml").write_text(text)
    environment = {**os.environ, "DASK_CONFIG": str(tmp_path / "config")}
    words = [sys.executable, "-m", "streamomd", "resume", str(url), "--epochs", "2"]
    done = subprocess.run(words, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert (
        "outside streamomd.allowed-urls of Dask's configuration (s3://bucket/rows)" in done.stderr
    )


def test_a_sweep_is_restricted_too(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its manifests name the shards as those of a run do."""
    words = [data, *everything(), "--grid", "eta=0.1,0.5", "--checkpoint", tmp_path / "sweep"]
    assert run("sweep", *words).code == 0
    monkeypatch.setenv(VARIABLE, "s3://bucket")
    done = run("resume", tmp_path / "sweep", "--epochs", 2)
    assert done.code == 2
    assert f"  {data}\n" in done.err
    monkeypatch.setenv(VARIABLE, str(data))
    done = run("resume", tmp_path / "sweep", "--epochs", 2)
    assert done.code == 0
    assert f"the checkpoint names the shards: {data}\n" in done.err


def test_what_a_person_names_is_not_restricted(
    data: Path, url: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The list is for URLs of manifests: commands that open none, and URLs that were typed, work;
    so does a finished run's result."""
    monkeypatch.setenv(VARIABLE, "s3://bucket")
    for words in (["evaluate", url, data], ["inspect", url], ["resume", url],
                  ["predict", url, data, "--to", tmp_path / "out"],
                  ["train", data, *everything(), "--start", url, "--checkpoint", "none"],
                  ["certify", url, data]):  # fmt: skip
        assert run(*words).code == 0
    assert streamomd.load(str(url)).metrics.total_rows


def test_a_resumed_warm_start_does_not_open_where_it_started(
    data: Path, url: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """model.start in a manifest is a record: the state is in the run's own commits."""
    again = tmp_path / "again"
    train(data, *everything(), "--start", url, "--checkpoint", again)
    for start in ("http://127.0.0.1:1/x", "http://127.0.0.1:1/x.parquet", "s3://evil/x"):
        evil = forged(again, tmp_path / start[-9:].replace("/", "-"), model={"start": start})
        done = run("resume", evil, "--epochs", 2)
        assert done.code == 0, done.err
