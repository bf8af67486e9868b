"""Clients that send slowly, too much, or nothing; tokens; hosts; the end of the process."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from http_serving import Served, all_of, numbered, served
from running import everything, run, shards, train

from streamomd.core.errors import InputNotFoundError, UsageError
from streamomd.integrations.serve.request_rows import VARIABLE, Limits, find_token

TOKEN = "correct-horse-battery-staple"
QUICK = Limits(
    head_seconds=0.4, body_seconds=0.4, request_seconds=1.0, idle_seconds=1.0, connections=8
)
ERRORS = (b"400", b"413", b"421", b"431", b"501")
POST = b"POST /predict HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"


@pytest.fixture(scope="module")
def server() -> Iterator[Served]:
    """A server with short time limits."""
    with served(numbered(1), limits=QUICK) as found:
        yield found


def works(server: Served) -> bool:
    """Whether a client is answered."""
    return server.post("/predict", [{"a": 1}]).status == 200


def trickled(server: Served, data: bytes, *, pause: float = 0.05) -> tuple[bytes, float]:
    """What comes back if a byte is sent at a time, and after how long."""
    began = time.monotonic()
    with socket.create_connection(("127.0.0.1", server.port), timeout=60) as talk:
        try:
            for byte in data:
                talk.sendall(bytes([byte]))
                time.sleep(pause)
        except OSError:
            pass
        return all_of(talk), time.monotonic() - began


def test_slow_headers_are_cut_off(server: Served) -> None:
    """However often a byte comes."""
    found, seconds = trickled(server, POST + b"X-A: " + b"b" * 1000)  # 50 s
    assert found == b""
    assert seconds < 40
    assert works(server)


def test_slow_headers_of_a_second_request_are_cut_off(server: Served) -> None:
    """A connection that was used is no exception."""
    found = server.raw(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\nGET /hea")
    assert found.startswith(b"HTTP/1.1 200 ")
    assert found.count(b"HTTP/1.1") == 1


def test_a_slow_body_is_408(server: Served) -> None:
    """And its bytes are no longer counted as buffered."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=60) as talk:
        talk.sendall(POST + b"Content-Length: 5000\r\n\r\n[")
        assert talk.recv(4096).startswith(b"HTTP/1.1 408 ")
    assert works(server)
    assert server.app._buffered == 0


def test_a_silent_connection_is_closed(server: Served) -> None:
    """One that never sends a byte, and one that is idle after a request."""
    assert server.raw(b"") == b""
    found = server.raw(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert found.startswith(b"HTTP/1.1 200 ")


def test_a_client_that_reads_nothing_is_cut_off(server: Served) -> None:
    """Its connection does not stay: responses of several MB that are never read."""
    body = json.dumps([{"a": 1}] * 10_000).encode()
    request = POST + b"Content-Length: %d\r\n\r\n" % len(body) + body
    with socket.socket() as talk:
        talk.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        talk.connect(("127.0.0.1", server.port))
        talk.settimeout(5)
        with pytest.raises(OSError):
            for _ in range(100):
                talk.sendall(request)
                time.sleep(0.02)
    assert works(server)


def test_too_many_connections_make_room(server: Served) -> None:
    """100 silent ones, where 8 may be open: a client is answered."""
    with ExitStack() as stack:
        for _ in range(100):
            talk = socket.create_connection(("127.0.0.1", server.port), timeout=60)
            stack.enter_context(talk)
        assert works(server)


@pytest.mark.parametrize(
    "data",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\x00" * 100,
        b"GET / HTTP/9.9\r\n\r\n",
        b"GET  /  HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"GET /\xff\xfe HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: localhost\r\nX: " + b"a" * 100_000 + b"\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: localhost\r\n" + b"X: a\r\n" * 20_000 + b"\r\n",
        b"GET /healthz HTTP/1.1\r\n" + b"Host: localhost\r\n" * 2 + b"\r\n",
        b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n",
        POST + b"Content-Length: 2\r\nContent-Length: 3\r\n\r\n[]",
        POST + b"Content-Length: -1\r\n\r\n[]",
        POST + b"Content-Length: " + b"9" * 30 + b"\r\n\r\n[]",
        POST + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n",
        POST + b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
        POST + b"Transfer-Encoding: chunked\r\n\r\n1;" + b"x" * 100_000,
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    ],
)
def test_no_valid_http(server: Served, data: bytes) -> None:
    """An error status, or the connection is closed; the next client is answered."""
    found = server.raw(data)
    assert found == b"" or found.split()[1] in ERRORS, found[:80]
    assert works(server)


@pytest.mark.parametrize("path", [b"/healthz", b"/readyz", b"/predict", b"/model", b"/nowhere"])
@pytest.mark.parametrize("method", [b"GET", b"POST"])
def test_two_lengths_are_refused_and_the_connection_is_closed(
    server: Served, method: bytes, path: bytes
) -> None:
    """On every path, whichever length comes first: the rest of the body is no second request."""
    second = b"GET /model HTTP/1.1\r\nHost: localhost\r\n\r\n"
    body = b"0\r\n\r\n" + second
    both = [b"Content-Length: %d\r\n" % len(body), b"transfer-encoding: chunked\r\n"]
    for lengths in (both, both[::-1]):
        head = method + b" " + path + b" HTTP/1.1\r\nHost: localhost\r\n"
        found = server.raw(head + b"".join(lengths) + b"\r\n" + body)
        assert found.startswith(b"HTTP/1.1 400 ")
        assert b"connection: close" in found
        assert b'"code":"lengths"' in found
        assert found.count(b"HTTP/1.1 ") == 1


@pytest.mark.parametrize(
    "lines",
    [
        b"a:\r\n" * 5_000,
        b"a:b\r\n" * 5_000,
        b"a:\r\n" * 100,
        b"X:" + b" " * 17_000 + b"a\r\n",
        b"X: a\r\n" + b" b\r\n" * 100,
        b"X: " + b"a" * 17_000 + b"\r\n",
    ],
)
@pytest.mark.parametrize("path", [b"/healthz", b"/model"])
def test_headers_are_limited_as_they_are_sent(server: Served, path: bytes, lines: bytes) -> None:
    """16 KiB and 100 lines with separators, spaces and folded lines, in one packet or several."""
    head = b"GET " + path + b" HTTP/1.1\r\nHost: localhost\r\n"
    found = server.raw(head + lines + b"\r\n")
    assert found == b"" or found.startswith(b"HTTP/1.1 431 "), found[:80]
    with socket.create_connection(("127.0.0.1", server.port), timeout=60) as talk:
        # After a first request on the same connection.
        talk.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n" + head + lines + b"\r\n")
        found = all_of(talk)
    assert found.count(b"HTTP/1.1 200 ") <= 1
    assert found.count(b"HTTP/1.1 ") == found.count(b" 200 OK") + found.count(b"HTTP/1.1 431 ")


def test_97_headers_are_answered(server: Served) -> None:
    """Just below both limits."""
    head = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
    assert server.raw(head + b"a:b\r\n" * 96 + b"\r\n").startswith(b"HTTP/1.1 200 ")
    filled = head + b"X: " + b"a" * (16_384 - len(head) - 7) + b"\r\n\r\n"
    assert len(filled) == 16_384
    assert server.raw(filled).startswith(b"HTTP/1.1 200 ")


@pytest.mark.parametrize(
    "host",
    [
        b"evil.example", b"", b"localhost.evil.example", b"10.0.0.1:80", b"localhost:80@evil",
        b"localhost:abc", b"localhost:", b"localhost:99999", b"localhost:80:80", b"[::1]evil",
        b"[::1]:80@evil", b"[::1", b"::1", b"[localhost]", b"user@localhost", b"localhost/evil",
        b"localhost, evil", b"localhost\xa0",
    ],
)  # fmt: skip
def test_another_host_name_is_refused(server: Served, host: bytes) -> None:
    """A web page cannot make a browser ask this server (DNS rebinding)."""
    close = b"\r\nConnection: close\r\n\r\n"
    found = server.raw(b"GET /model HTTP/1.1\r\nHost: " + host + close)
    assert found.startswith(b"HTTP/1.1 421 ")
    for good in (b"localhost:8080", b"127.0.0.1", b"[::1]:80", b"LOCALHOST"):
        found = server.raw(b"GET /model HTTP/1.1\r\nHost: " + good + close)
        assert found.startswith(b"HTTP/1.1 200 "), good


def test_a_token_is_needed_where_one_is_set() -> None:
    """For everything but the probes; not a prefix of it, not two of them."""
    with served(numbered(1), token=TOKEN) as server:
        for path in ("/healthz", "/readyz"):
            assert server.get(path).status == 200
        for path in ("/model", "/metrics", "/docs", "/", "/openapi.json", "/nowhere"):
            answered = server.get(path)
            assert (answered.status, answered.error["code"]) == (401, "unauthorized")
            assert answered.headers["www-authenticate"] == "Bearer"
        for given in ("", TOKEN, "Bearer", f"Bearer {TOKEN[:-1]}", f"Bearer {TOKEN}x",
                      f"Basic {TOKEN}", "Bearer \xe9", f"Bearer {TOKEN.upper()}"):  # fmt: skip
            assert server.get("/model", Authorization=given).status == 401
        assert server.post("/predict", [{"a": 1}]).status == 401
        for given in (f"Bearer {TOKEN}", f"bearer {TOKEN}"):
            assert server.get("/model", Authorization=given, Host="models.example").status == 200
        twice = f"Authorization: Bearer {TOKEN}\r\n".encode() * 2
        found = server.raw(b"GET /model HTTP/1.1\r\nHost: a\r\nConnection: close\r\n" + twice
                           + b"\r\n")  # fmt: skip
        assert found.startswith(b"HTTP/1.1 401 ")


def test_where_a_token_comes_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A file, else the environment; other hosts are refused without one."""
    monkeypatch.delenv(VARIABLE, raising=False)
    assert find_token(None, "127.0.0.1") == ""
    for host in ("0.0.0.0", "::", "10.1.2.3", "box.example", ""):
        with pytest.raises(UsageError, match=VARIABLE):
            find_token(None, host)
    monkeypatch.setenv(VARIABLE, TOKEN)
    assert find_token(None, "0.0.0.0") == find_token(None, "localhost") == TOKEN
    file = tmp_path / "token"
    file.write_text("another-token-of-the-file\n")
    file.chmod(0o600)
    assert find_token(str(file), "0.0.0.0") == "another-token-of-the-file"
    assert capsys.readouterr().err == ""
    file.chmod(0o644)
    find_token(str(file), "0.0.0.0")
    assert "chmod 600" in capsys.readouterr().err
    for mode in (0o620, 0o602):
        file.chmod(mode)
        with pytest.raises(UsageError, match=r"other users can write it.*chmod 600"):
            find_token(str(file), "127.0.0.1")
    file.chmod(0o600)
    for bad in ("", "short", "with a space in it, long", "é" * 20, "two-lines-of\nit-is-bad"):
        file.write_text(bad)
        with pytest.raises(UsageError, match="at least 16 ASCII characters") as raised:
            find_token(str(file), "127.0.0.1")
        assert not bad or bad not in str(raised.value)
    with pytest.raises(InputNotFoundError):
        find_token(str(tmp_path / "none"), "127.0.0.1")
    with pytest.raises(UsageError):
        find_token(str(tmp_path), "127.0.0.1")
    monkeypatch.setenv(VARIABLE, "short")
    with pytest.raises(UsageError, match="16 ASCII") as raised:
        find_token(None, "127.0.0.1")


@pytest.mark.parametrize(
    ("words", "code", "text"),
    [
        (["--host", "0.0.0.0"], 2, "can be reached from other machines: set STREAMOMD_SERVE_TOKEN"),
        (["--reload", "soon"], 2, "--reload 'soon'"),
        (["--reload", "-1"], 2, "--reload"),
        (["--reload", "nan"], 2, "--reload"),
        (["--port", "70000"], 2, "--port"),
        (["--host", "no.such.host.invalid", "--token-file", "TOKEN"], 2, "cannot listen on"),
        (["--port", "PORT"], 2, "choose another --port"),
        ([], 4, "no commit"),
    ],
)
def test_what_keeps_a_server_from_starting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], code: int, text: str
) -> None:
    """A line that says what to do, and the exit code of its kind."""
    monkeypatch.delenv(VARIABLE, raising=False)
    (tmp_path / "token").write_text(TOKEN)
    (tmp_path / "token").chmod(0o600)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        names = {"TOKEN": str(tmp_path / "token"), "PORT": str(taken.getsockname()[1])}
        more = [names.get(word, word) for word in words]
        done = run("serve", tmp_path / "nothing", *(more or ["--port", "0"]))
    assert (done.code, text in done.err) == (code, True), done.err


def test_a_missing_package_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before anything is opened."""
    monkeypatch.delitem(sys.modules, "streamomd.integrations.serve.run_server", raising=False)
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    done = run("serve", "nowhere")
    assert done.code == 2
    assert "pip install 'streamomd[serve]'" in done.err


def test_a_real_process_ends_gracefully(tmp_path: Path) -> None:
    """SIGTERM: the request under way is answered, then the process ends with 143."""
    shards(tmp_path / "data")
    train(tmp_path / "data", *everything(), "--checkpoint", tmp_path / "run")
    command = [sys.executable, "-m", "streamomd", "serve", str(tmp_path / "run"), "--port", "0"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env={**os.environ})
    try:
        assert process.stderr is not None
        lines = [process.stderr.readline()]
        while "endpoints: " not in lines[-1]:
            lines.append(process.stderr.readline())
            assert lines[-1], lines
        place = lines[-1].split()[1].removesuffix("/docs;")
        with urllib.request.urlopen(f"{place}/readyz", timeout=60) as answered:
            assert json.load(answered)["status"] == "ready"
        port = int(place.rpartition(":")[2])
        with socket.create_connection(("127.0.0.1", port), timeout=60) as talk:
            talk.sendall(POST + b"Content-Length: 2\r\nExpect: 100-continue\r\n\r\n")
            assert talk.recv(4096).startswith(b"HTTP/1.1 100 ")  # the request is under way
            process.send_signal(signal.SIGTERM)
            time.sleep(0.3)
            talk.sendall(b"[]")
            assert all_of(talk).startswith(b"HTTP/1.1 200 ")
        rest = process.stderr.read()
        assert process.wait(20) == 143
        assert "stopped; 2 requests answered" in rest
        assert "Traceback" not in rest
    finally:
        process.kill()
        process.wait()
        process.stderr.close()
