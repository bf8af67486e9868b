"""What the machine does to a command, as real processes meet it: one line, an exit code, no
traceback; and no output that looks whole."""

from __future__ import annotations

import contextlib
import itertools
import os
import resource
import shutil
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from running import run

from streamomd.checkpoint.stores.local import is_abandoned, temporary_name

COMMAND = (sys.executable, "-m", "streamomd")
# Four attempts, each of which s3fs makes from five, would take eight seconds.
TWO_ATTEMPTS = """
from streamomd.checkpoint.stores import remote

remote.ATTEMPTS = 2
from streamomd.__main__ import main

main()
"""
S3 = [("train", "s3://b/*.parquet", "--label", "y"), ("inspect", "s3://b/r")]
ODD = [("train", "odd", "--label", "y"), ("predict", "run", "odd", "--to", "o")]
TRAIN = ("train", "data", "--label", "y", "--checkpoint", "run")


def command(
    *words: str,
    at: Path,
    before: tuple[str, ...] = (),
    program: tuple[str, ...] = COMMAND,
    **how: Any,
) -> Any:
    """A process that has ended; its output is text, whatever its bytes."""
    env = {**os.environ, **how.pop("env", {})}
    done = subprocess.run(
        [*before, *program, *words],
        cwd=at, env=env, capture_output=True, errors="replace", timeout=240, check=False, **how,
    )  # fmt: skip
    assert "Traceback" not in done.stderr, done.stderr
    return done


def write_shard(folder: Path) -> None:
    """A shard of 2,000 rows."""
    (folder / "data").mkdir()
    draw = np.random.default_rng(0)
    columns = {name: draw.normal(size=2000) for name in "ab"}
    pq.write_table(
        pa.table({**columns, "y": (draw.random(2000) < 0.5).astype(int)}),
        folder / "data" / "0.parquet",
    )


@pytest.fixture
def here(tmp_path: Path) -> Path:
    """A folder with a shard."""
    write_shard(tmp_path)
    return tmp_path


@pytest.fixture(scope="module")
def trained_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a shard and a run of it."""
    folder = tmp_path_factory.mktemp("trained")
    write_shard(folder)
    with contextlib.chdir(folder):
        assert run(*TRAIN).code == 0
    return folder


@pytest.fixture
def trained(trained_once: Path, tmp_path: Path) -> Path:
    """A copy of it."""
    return shutil.copytree(trained_once, tmp_path, dirs_exist_ok=True)


@pytest.mark.skipif(not shutil.which("strace"), reason="strace is not installed")
@pytest.mark.parametrize("nth", [1, 2])
@pytest.mark.parametrize("what", ["train", "predict"])
@pytest.mark.sample(2)
def test_a_device_that_fails_is_named_with_the_shard(trained: Path, what: str, nth: int) -> None:
    """EIO while the footer is read (the first read), or rows: exit 1."""
    words = {"train": (*TRAIN[:-1], "other"), "predict": ("predict", "run", "data", "--to", "out")}
    shard = trained / "data" / "0.parquet"
    strace = ("strace", "-qq", "-f", "-o", "/dev/null", "-P", str(shard), "-e")
    inject = (f"inject=pread64,read:error=EIO:when={nth}",)
    done = command(*words[what], at=trained, before=(*strace, *inject))
    assert done.returncode == 1
    assert str(shard) in done.stderr
    assert not [*trained.glob("out/*.parquet")]


def mounted(folder: Path, size: str) -> tuple[str, ...]:
    """What a command is put after, to have a file system of some size at a folder."""
    able = ("unshare", "--mount", "--propagation", "private")
    if not shutil.which("unshare") or subprocess.run([*able, "true"], check=False).returncode:
        pytest.skip("no file system may be mounted here")
    folder.mkdir()
    script = f'mount -t tmpfs -o size={size} tmpfs "$0" && "$@"; code=$?; ls -A "$0"; exit $code'
    return *able, "sh", "-c", script, str(folder)


@pytest.mark.parametrize(
    "words",
    [
        ("predict", "run", "data", "--to", "full/out"),
        pytest.param(("report", "run", "data", "-o", "full/report.html"), marks=pytest.mark.slow),
        ("convert", "rows.csv", "--from", "csv", "--to", "full/out"),
        ("train", "data", "--label", "y", "--checkpoint", "full/run"),
    ],
    ids=["predict", "report", "convert", "train"],
)
def test_a_full_disk_leaves_nothing_that_looks_whole(trained: Path, words: Any) -> None:
    """Exit 1, the place and the reason; no half a page or file is at its name."""
    lines = "".join(f"{i * 0.37},{i % 2}\n" for i in range(20_000))
    (trained / "rows.csv").write_text("a,y\n" + lines)
    done = command(*words, at=trained, before=mounted(trained / "full", "8k"))
    assert done.returncode == 1
    assert "No space left on device" in done.stderr
    assert str(trained / "full") in done.stderr
    assert not {"report.html"} & set(done.stdout.split())


@pytest.mark.parametrize("mib", [117, 124, 350, 500])
def test_too_little_memory_at_start_is_one_line(here: Path, mib: int) -> None:
    """ulimit -v: exit 1, and the limit is named where Python itself comes so far."""
    limit = (mib << 20, mib << 20)
    done = command(
        *TRAIN, at=here, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, limit)
    )
    assert done.returncode == 1
    assert f"ulimit -v allows {mib} MiB" in done.stderr


@pytest.mark.parametrize("files", [6, 12])  # with 4 Python itself does not start everywhere
def test_few_descriptors_are_enough_or_named(here: Path, files: int) -> None:
    """ulimit -n: the run ends well, or exit 1 with "Too many open files"."""
    limit = (files, files)
    done = command(
        *TRAIN, at=here, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, limit)
    )
    assert done.returncode == 0 or "open files" in done.stderr
    assert done.returncode in (0, 1)


@pytest.mark.parametrize("words", S3)
@pytest.mark.slow
def test_an_s3_endpoint_that_answers_garbage(here: Path, words: Any) -> None:
    """Exit 1, with the URL."""
    server = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        with server:
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                with connection:
                    if connection.recv(65536) == b"end":
                        return
                    connection.sendall(b"\x00\xff garbage\r\n\r\n")

    thread = threading.Thread(target=serve)
    thread.start()
    address = server.getsockname()
    keys = {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b", "AWS_DEFAULT_REGION": "x"}
    endpoint = {"AWS_ENDPOINT_URL": f"http://127.0.0.1:{address[1]}"}
    try:
        program = (sys.executable, "-c", TWO_ATTEMPTS)
        done = command(*words, at=here, program=program, env={**keys, **endpoint})
    finally:
        with socket.create_connection(address) as last:
            last.sendall(b"end")
        thread.join()
    assert done.returncode == 1
    assert words[1] in done.stderr


@pytest.mark.parametrize("module", ["click", "numpy", "pydantic", "pyarrow.lib", "numba.core"])
def test_an_interrupt_while_modules_are_imported(here: Path, module: str) -> None:
    """SIGINT as soon as a module was imported: exit 130, no traceback."""
    words = [sys.executable, "-X", "importtime", "-m", "streamomd", *TRAIN]
    # In the background of a shell SIGINT is ignored, and processes inherit that.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    with subprocess.Popen(words, cwd=here, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        for line in process.stderr:
            if line.rstrip().endswith(f" {module}"):
                process.send_signal(signal.SIGINT)
                break
        rest = process.stderr.read()
    signal.signal(signal.SIGINT, before)
    assert process.returncode == 130
    assert "Traceback" not in rest


def test_a_latin_1_header_is_named(tmp_path: Path) -> None:
    """Exit 2: the file, the byte, and how to convert it."""
    (tmp_path / "rows.csv").write_bytes("größe,y\n1,0\n2,1\n".encode("latin-1"))
    done = run("convert", tmp_path / "rows.csv", "--from", "csv", "--to", tmp_path / "out")
    assert done.code == 2
    assert "rows.csv, line 1: the header is not UTF-8 (byte 0xf6" in done.err
    assert "--encoding" in done.err


@pytest.mark.parametrize("words", ODD)
def test_a_shard_whose_name_is_not_utf_8(trained: Path, words: Any) -> None:
    """Exit 2: rename it."""
    (trained / "odd").mkdir()
    odd = os.path.join(trained, "odd", os.fsdecode(b"\xe9.parquet"))
    shutil.copy(trained / "data" / "0.parquet", odd)
    done = command(*words, at=trained)
    assert done.returncode == 2
    assert "its name is not UTF-8" in done.stderr


@pytest.mark.slow
def test_a_checkpoint_whose_name_is_not_utf_8(here: Path) -> None:
    """Such names are as good as others."""
    run = os.fsdecode(b"r\xe9")
    assert command(*TRAIN[:-1], run, at=here).returncode == 0
    assert command("inspect", run, at=here).returncode == 0


CLOCK = """#define _GNU_SOURCE
#include <time.h>
#include <sys/time.h>
#include <dlfcn.h>
#define THEN 253370764800L /* 9999-01-01 */
int clock_gettime(clockid_t c, struct timespec *t) {
  static int (*real)(clockid_t, struct timespec *);
  if (!real) real = dlsym(RTLD_NEXT, "clock_gettime");
  int found = real(c, t);
  if (c == CLOCK_REALTIME || c == CLOCK_REALTIME_COARSE) t->tv_sec = THEN;
  return found;
}
time_t time(time_t *t) { if (t) *t = THEN; return THEN; }
int gettimeofday(struct timeval *t, void *z) { t->tv_sec = THEN; t->tv_usec = 0; return 0; }
"""


@pytest.mark.skipif(not shutil.which("cc"), reason="no C compiler makes the clock")
def test_a_clock_in_the_year_9999(here: Path) -> None:
    """Python's own clock ends in 2262: exit 1, and what to do."""
    (here / "clock.c").write_text(CLOCK)
    words = ["cc", "-shared", "-fPIC", "-o", "clock.so", "clock.c", "-ldl"]
    subprocess.run(words, cwd=here, check=True)
    done = command(*TRAIN, at=here, env={"LD_PRELOAD": str(here / "clock.so")})
    assert done.returncode == 1
    assert "the clock is after the year 2262: set this machine's date" in done.stderr


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077])
def test_directories_of_a_checkpoint_are_for_their_owner_to_write(here: Path, umask: int) -> None:
    """0755 or stricter, whatever the umask."""
    before = os.umask(umask)
    try:
        with contextlib.chdir(here):
            assert run(*TRAIN[:-1], "deep/er/run").code == 0
    finally:
        os.umask(before)
    folders = [here / "deep", *(one for one in (here / "deep").rglob("*") if one.is_dir())]
    assert len(folders) > 5
    assert {one.stat().st_mode & 0o777 for one in folders} == {0o755 & ~umask}


def test_only_what_a_dead_process_of_this_host_left_is_removed(trained: Path) -> None:
    """The next writer removes that; checkpoint verify reports the others."""
    with subprocess.Popen([sys.executable, "-c", "pass"]) as dead:
        dead.wait()
    mine, uuid = temporary_name(), "0" * 32
    host = mine.removeprefix(".tmp-").rsplit("-", 2)[0]
    left = {
        f".tmp-{host}-{dead.pid}-{uuid}": False,  # dead, ours
        f".tmp-{host}-{os.getpid()}-{uuid}": True,  # alive
        f".tmp-{host}.elsewhere-{dead.pid}-{uuid}": True,  # another host's
        f".tmp-{uuid}": True,  # an older streamomd's
    }
    folders = [trained / "run", trained / "run" / "commits"]
    for folder, name in itertools.product(folders, left):
        (folder / name).write_bytes(b"half")
    (trained / "run" / "commits" / f".tmp-{host}-1x-{uuid}").write_bytes(b"a person's")
    verified = run("checkpoint", "verify", trained / "run")
    assert verified.code == 0
    assert verified.out.count("temporary: ") == 2 * len(left)
    with contextlib.chdir(trained):
        assert run("resume", "run", "--epochs", 2).code == 0
    for folder, (name, stays) in itertools.product(folders, left.items()):
        assert (folder / name).exists() == stays
    assert (trained / "run" / "commits" / f".tmp-{host}-1x-{uuid}").exists()
    verified = run("checkpoint", "verify", trained / "run")
    assert verified.out.count("temporary: ") == 2 * (len(left) - 1)
    assert not is_abandoned(mine)
