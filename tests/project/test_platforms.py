"""The core paths without what only Linux or POSIX has, as on Windows: bit-identical results."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from streamomd.core import platform_calls
from streamomd.core.platform_calls import FILE, FOLDER, NO_LINK, NamedFolders

REMOVE = """
import asyncio, ctypes, os, signal, subprocess, sys, tempfile, threading, urllib.request
import dask, fsspec.implementations.local, numba, pyarrow.parquet, scipy.special, starlette.routing
import uvicorn, uvicorn.protocols.http.h11_impl, prometheus_client

NAMES = (
    "O_DIRECTORY", "O_NOFOLLOW", "O_CLOEXEC", "O_NONBLOCK", "fork", "kill", "geteuid", "getuid",
    "sched_getaffinity", "posix_fadvise", "preadv", "pread", "getloadavg", "sysconf", "fchmod",
)
for name in NAMES:
    delattr(os, name)
os.supports_dir_fd = set()
for name in ("resource", "fcntl", "pwd", "grp", "termios", "isal", "isal.isal_zlib"):
    sys.modules[name] = None

def refuses(name):
    real = getattr(os, name)
    def call(*given, dir_fd=None, src_dir_fd=None, dst_dir_fd=None, **more):
        if (dir_fd, src_dir_fd, dst_dir_fd) != (None, None, None):
            raise NotImplementedError(f"{name}: dir_fd")
        if name == "open" and not isinstance(given[0], int) and os.path.isdir(given[0]):
            raise PermissionError(13, "Permission denied", given[0])
        if name == "listdir" and given and isinstance(given[0], int):
            raise TypeError("listdir: path should be string")
        return real(*given, **more)
    setattr(os, name, call)

for name in ("open", "stat", "unlink", "rmdir", "mkdir", "replace", "link", "listdir"):
    refuses(name)

import builtins, io
real_open = io.open
def opened(file, *given, **more):
    if str(file).startswith(("/proc", "/sys")):
        raise FileNotFoundError(2, "No such file or directory", str(file))
    return real_open(file, *given, **more)
io.open = builtins.open = opened
"""
PATHS = """
import sys
import streamomd
from streamomd.core import platform_calls
if "lacking" in sys.argv:
    platform_calls.POSIX = False
    assert isinstance(platform_calls.folder_calls(), platform_calls.NamedFolders)
    from streamomd.shards.formats import column_pages
    assert column_pages.crc32.__module__ == "zlib"

import json, shutil, threading, urllib.request
from pathlib import Path
from streamomd.errors import OutputExistsError

found = {}
job = {"data": {"shards": "rows/", "label": "y", "cache": "cache"}, "checkpoint": {"url": "run"}}
model = streamomd.train(job, quiet=True)
model = streamomd.resume("run", sets={"train.epochs": 2}, quiet=True)
shutil.copy("later.parquet", "rows/c.parquet")
model = streamomd.update("run", settle=0, quiet=True)
found["state"] = model.result()["state_sha256"]
model.predict("rows/", "predictions/")
found["predictions"] = sorted(path.name for path in Path("predictions").iterdir())
text = streamomd.train("rows.csv", label="y", checkpoint="text", quiet=True)
found["text"] = text.result()["rows"]
try:
    streamomd.train(job, quiet=True)
except OutputExistsError:
    found["refused"] = True

def ask():
    import signal, time
    for _ in range(200):
        time.sleep(0.05)
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{sys.argv[1]}/healthz") as answer:
                found["health"] = answer.status
                break
        except OSError:
            pass
    signal.raise_signal(signal.SIGTERM)

threading.Thread(target=ask, daemon=True).start()
from streamomd.cli import main
try:
    main(["serve", "run", "--port", sys.argv[1]], prog_name="streamomd")
except SystemExit as end:
    found["exit"] = end.code
print(json.dumps(found))
"""


def made(folder: Path) -> Path:
    """Two small shards, one for later, and text: so few rows that nothing is compiled."""
    rng = np.random.default_rng(1)
    (folder / "rows").mkdir(parents=True)
    for name in ("rows/a.parquet", "rows/b.parquet", "later.parquet"):
        x = rng.normal(size=(24, 3))
        columns = {f"x{at}": x[:, at] for at in range(3)} | {"y": (x[:, 0] > 0).astype(np.int8)}
        pq.write_table(pa.table(columns), folder / name, write_page_checksum=True)
    lines = [f"{x:.3f},{x > 0:d}" for x in rng.normal(size=24)]
    (folder / "rows.csv").write_text("\n".join(["x,y", *lines]) + "\n")
    return folder


def free_port() -> int:
    """A port that was free a moment ago."""
    import socket

    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def run(folder: Path, code: str, *words: str) -> dict[str, Any]:
    """What the paths print in a process of its own."""
    own = {**os.environ, "STREAMOMD_CACHE_DIR": str(folder / "own")}
    command = [sys.executable, "-c", code, str(free_port()), *words]
    done = subprocess.run(
        command, cwd=folder, env=own, capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, done.stderr[-4000:]
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def test_the_core_paths_need_nothing_of_linux(tmp_path: Path) -> None:
    """Train with a cache, resume, update, predict, text, and a server: the results are the same."""
    lacking = run(made(tmp_path / "lacking"), REMOVE + PATHS, "lacking")
    assert lacking == run(made(tmp_path / "ordinary"), PATHS)
    assert lacking["refused"]
    assert lacking["health"] == 200
    assert lacking["predictions"] == ["a.parquet", "b.parquet", "c.parquet"]


def test_folders_by_their_names(tmp_path: Path) -> None:
    """Files relative to a folder; symbolic links are refused, what is there is not overwritten."""
    disk = NamedFolders()
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    folder = disk.open(str(tmp_path), FOLDER)
    inner = disk.open("real", FOLDER | NO_LINK, dir_fd=folder)
    handle = disk.open("one", os.O_RDWR | os.O_CREAT | os.O_EXCL | FILE, 0o644, dir_fd=inner)
    disk.write(handle, b"1\n")
    disk.fsync(handle)
    disk.close(handle)
    disk.link("one", "two", src_dir_fd=inner, dst_dir_fd=inner)
    with pytest.raises(FileExistsError):
        disk.link("one", "two", src_dir_fd=inner, dst_dir_fd=inner)
    assert sorted(disk.listdir(inner)) == ["one", "two"]
    assert (tmp_path / "real" / "two").read_bytes() == b"1\n"
    with pytest.raises(OSError, match="symbolic links"):
        disk.open("link", FOLDER | NO_LINK, dir_fd=folder)
    with pytest.raises(NotADirectoryError):
        disk.open("one", FOLDER, dir_fd=inner)
    with pytest.raises(FileNotFoundError):
        disk.open("none", FOLDER, dir_fd=inner)
    disk.fsync(inner)
    disk.close(inner)
    disk.close(folder)


def test_replacing_waits_for_a_reader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a file that is open cannot be replaced; after a second it is an error."""
    (tmp_path / "a").write_text("new")
    (tmp_path / "b").write_text("old")
    real, refused = os.replace, [PermissionError(13, "in use")] * 3

    def replace(source: Any, target: Any) -> None:
        if refused:
            raise refused.pop()
        real(source, target)

    monkeypatch.setattr(platform_calls, "POSIX", False)
    monkeypatch.setattr(platform_calls, "PAUSE", 0.0)
    monkeypatch.setattr(os, "replace", replace)
    platform_calls.replace(tmp_path / "a", tmp_path / "b")
    assert (tmp_path / "b").read_text() == "new"
    refused += [PermissionError(13, "in use")] * 99
    (tmp_path / "a").write_text("newer")
    with pytest.raises(PermissionError):
        platform_calls.replace(tmp_path / "a", tmp_path / "b")


def test_without_figures_of_the_system(monkeypatch: pytest.MonkeyPatch) -> None:
    """No limit is known, and processes count as running: nothing of theirs is removed."""
    monkeypatch.setattr(platform_calls, "resource", None)
    monkeypatch.setattr(platform_calls, "POSIX", False)
    for name in ("geteuid", "getloadavg", "preadv", "sched_getaffinity"):
        monkeypatch.delattr(os, name)
    assert platform_calls.address_space_limit() is None
    assert platform_calls.open_files(1 << 30) == 1 << 30
    assert platform_calls.process_exists(2**22 + 1)
    assert platform_calls.load_average() == 0.0
    assert platform_calls.reader_at() is None
    assert platform_calls.usable_cores() == os.cpu_count()
    assert not platform_calls.others_can_write(os.stat("/tmp"))


ONLY_HERE = (
    "os.O_DIRECTORY", "os.O_NOFOLLOW", "os.O_CLOEXEC", "os.O_NONBLOCK", "os.fork", "os.kill",
    "os.geteuid", "os.getuid", "os.sched_", "os.posix_", "os.pread", "os.pwrite", "os.getloadavg",
    "os.sysconf", "os.replace", "import resource", "import fcntl", "import pwd", "import grp",
    '"/proc', "sys.platform", "os.name",
)  # fmt: skip


def test_one_module_asks_the_system() -> None:
    """No other file uses what only some systems have."""
    package = Path(platform_calls.__file__).parents[1]
    for file in sorted(package.rglob("*.py")):
        if file != Path(platform_calls.__file__):
            text = file.read_text("utf-8")
            assert not [word for word in ONLY_HERE if word in text], file
