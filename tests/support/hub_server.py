"""A server in this process with the part of Hugging Face's API that reading a dataset needs."""

from __future__ import annotations

import hashlib
import json
import posixpath
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit

REPO, TOKEN = "user/rows", "hf_test"
_API = re.compile(rf"/api/datasets/{REPO}(?:/(revision|tree)/([^/]+)(?:/(.*))?)?")
_FILE = re.compile(rf"/datasets/{REPO}/resolve/([^/]+)/(.*)")


@dataclass
class Hub:
    """files: by revision and path. asked: method and path of each request."""

    url: str = ""
    files: dict[str, dict[str, bytes]] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)

    @property
    def options(self) -> dict[str, Any]:
        """Storage options."""
        return {"endpoint": self.url, "token": TOKEN}


def _tree(files: dict[str, bytes], folder: str) -> list[dict[str, Any]] | None:
    found: dict[str, dict[str, Any]] = {}
    for path, data in files.items():
        name = posixpath.relpath(path, folder) if folder else path
        if name.startswith(".."):
            continue
        first, *rest = name.split("/")
        own = posixpath.join(folder, first)
        oid = hashlib.sha1(own.encode() + data).hexdigest()
        found[own] = (
            {"type": "directory", "path": own, "oid": oid, "size": 0}
            if rest
            else {"type": "file", "path": own, "oid": oid, "size": len(data)}
        )
    return [*found.values()] or None


class _Handler(BaseHTTPRequestHandler):
    hub: Hub

    def log_message(self, *_: object) -> None: ...

    def do_GET(self) -> None:
        path = unquote(urlsplit(self.path).path)
        self.hub.asked.append(f"{self.command} {path}")
        if self.headers.get("authorization") != f"Bearer {TOKEN}":
            self._answer(401, b"{}")
        elif match := _API.fullmatch(path):
            self._api(match[1], match[2] or "main", match[3] or "")
        elif match := _FILE.fullmatch(path):
            self._file(self.hub.files.get(match[1], {}).get(match[2]))
        else:
            self._answer(404, b"{}", {"X-Error-Code": "RepoNotFound"})

    do_HEAD = do_GET

    def _api(self, what: str | None, revision: str, folder: str) -> None:
        files = self.hub.files.get(revision)
        if files is None:
            self._answer(404, b"{}", {"X-Error-Code": "RevisionNotFound"})
        elif what == "tree":
            tree = _tree(files, folder.strip("/"))
            if tree is None:
                self._answer(404, b"{}", {"X-Error-Code": "EntryNotFound"})
            else:
                self._answer(200, json.dumps(tree).encode())
        else:
            about = {"id": REPO, "sha": "0" * 40, "private": False, "tags": [], "siblings": []}
            self._answer(200, json.dumps({**about, "downloads": 0, "likes": 0}).encode())

    def _file(self, data: bytes | None) -> None:
        if data is None:
            self._answer(404, b"", {"X-Error-Code": "EntryNotFound"})
            return
        span = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("range", ""))
        low, high = (int(span[1]), int(span[2]) + 1) if span else (0, len(data))
        self._answer(206 if span else 200, data[low:high])

    def _answer(self, code: int, body: bytes, headers: dict[str, str] | None = None) -> None:
        self.send_response(code)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)


@contextmanager
def hub() -> Iterator[Hub]:
    """A running server."""
    found = Hub()
    handler = type("Handler", (_Handler,), {"hub": found})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    found.url = f"http://127.0.0.1:{server.server_port}"
    try:
        yield found
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
