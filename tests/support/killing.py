"""Killing a real training process at chosen instants, and telling where each kill landed."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import streamomd

PATIENCE = 120.0
"""Seconds after which a process that is waited for is given up; nothing else is timed."""
SHARDS, GROUPS, GROUP_ROWS = 4, 5, 3_000
EPOCH = SHARDS * GROUPS * GROUP_ROWS
CODES = 3_000


class Place(Protocol):
    """A checkpoint as seen from outside: its files, not the library's reading of them."""

    url: str
    glance: float
    """Seconds between two looks: few enough that looking does not hold up who is looked at."""

    def list(self, folder: str) -> list[str]:
        """Names directly inside ``commits`` or ``data``."""

    def read(self, name: str) -> bytes:
        """One object; FileNotFoundError if it is gone."""


@dataclass(frozen=True)
class Folder:
    """A checkpoint on the local disk."""

    url: str
    glance = 0.0005

    def list(self, folder: str) -> list[str]:
        """See ``Place``."""
        try:
            return os.listdir(os.path.join(self.url, folder))
        except FileNotFoundError:
            return []

    def read(self, name: str) -> bytes:
        """See ``Place``."""
        return Path(self.url, name).read_bytes()


@dataclass(frozen=True)
class Bucket:
    """A checkpoint in a bucket; ``client``: boto3's, for S3."""

    url: str
    client: Any
    glance = 0.02

    def list(self, folder: str) -> list[str]:
        """See ``Place``."""
        prefix = f"{self._key}/{folder}/"
        return sorted({key.removeprefix(prefix).split("/")[0] for key in self.keys(prefix)})

    def read(self, name: str) -> bytes:
        """See ``Place``."""
        try:
            found = self.client.get_object(Bucket=self._bucket, Key=f"{self._key}/{name}")
        except self.client.exceptions.NoSuchKey:
            raise FileNotFoundError(name) from None
        return bytes(found["Body"].read())

    def keys(self, prefix: str = "") -> list[str]:
        """Keys of all objects that begin so."""
        pages = self.client.get_paginator("list_objects_v2")
        found = pages.paginate(Bucket=self._bucket, Prefix=prefix)
        return [one["Key"] for page in found for one in page.get("Contents", ())]

    @property
    def _bucket(self) -> str:
        return self.url.split("/")[2]

    @property
    def _key(self) -> str:
        return self.url.split("/", 3)[3]


@dataclass(frozen=True)
class Landing:
    """What a dead process left: its newest commit, and the parts of one that it was making."""

    instant: str
    sequence: int
    rows: int
    finished: bool
    unpublished: int
    exit_code: int

    @property
    def killed(self) -> bool:
        """Whether it was the kill that ended it."""
        return self.exit_code == -signal.SIGKILL

    @property
    def between(self) -> bool:
        """After the first commit of data and before the last."""
        return self.killed and self.rows > 0 and not self.finished

    @property
    def inside(self) -> bool:
        """In the middle of a commit: parts are there that no manifest names yet."""
        return self.killed and self.unpublished > self.sequence

    @property
    def at_epoch_end(self) -> bool:
        """Just after the commit of an epoch's last row."""
        return self.between and self.rows % EPOCH == 0

    def __str__(self) -> str:
        where = "inside a commit" if self.inside else "between commits"
        where += ", at an epoch's end" if self.at_epoch_end else ""
        where += ", finished" if self.finished else ""
        return f"{self.instant:<34} commit {self.sequence:>4}, row {self.rows:>7,}: {where}"


@dataclass(frozen=True)
class Instant:
    """When to kill: ``commits`` after those that were there, then when ``what`` is seen.

    what: "delay" (some milliseconds later), "parts" (a commit's parts are being written),
    "manifest" (its manifest is written aside, not yet in its place), "linked" (it is in its place,
    and still aside), "epoch" (an epoch's last row is committed), "start" (milliseconds after the
    process began).
    """

    what: str
    commits: int = 1
    delay: float = 0.0

    def __str__(self) -> str:
        after = f" + {self.delay * 1000:.1f} ms"
        if self.what == "start":
            return f"process start{after}"
        return f"{self.commits:+d} commits{after if self.what == 'delay' else ', ' + self.what}"


def newest(place: Place) -> int:
    """The highest number of a manifest, −1 if there is none."""
    found = (re.fullmatch(r"(\d{12})\.json", name) for name in place.list("commits"))
    return max((int(match[1]) for match in found if match), default=-1)


def making(place: Place) -> int:
    """The highest number of a folder of parts, −1 if there is none."""
    found = (re.match(r"(\d{12})-", name) for name in place.list("data"))
    return max((int(match[1]) for match in found if match), default=-1)


def document(place: Place, sequence: int) -> dict[str, Any]:
    """What a commit says of its model."""
    line = place.read(f"commits/{sequence:012d}.json").splitlines()[0]
    return dict(json.loads(line)["document"])


def look(place: Place, instant: object, exit_code: int) -> Landing:
    """Where a process that has ended left its checkpoint."""
    sequence = newest(place)
    told = document(place, sequence) if sequence >= 0 else {"rows": 0, "finished": False}
    unpublished = making(place)
    return Landing(str(instant), sequence, told["rows"], told["finished"], unpublished, exit_code)


def command(*words: object) -> list[str]:
    """streamomd's command with these words."""
    return [sys.executable, "-m", "streamomd", *map(str, words)]


def start(
    words: Sequence[object], log: Path, env: Mapping[str, str] | None = None
) -> subprocess.Popen[bytes]:
    """A streamomd process in a session of its own; what it says is appended to ``log``."""
    with log.open("ab") as file:
        return subprocess.Popen(
            command(*words),
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=file,
            env={**os.environ, **(env or {})},
            start_new_session=True,
        )


def finish(
    words: Sequence[object], env: Mapping[str, str] | None = None, *, code: int = 0
) -> subprocess.CompletedProcess[str]:
    """A streamomd process run to its end, which must have this exit code."""
    done = subprocess.run(
        command(*words),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        env={**os.environ, **(env or {})},
        timeout=PATIENCE,
    )
    assert done.returncode == code, f"exit code {done.returncode}, not {code}:\n{done.stderr}"
    return done


def result(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    """The JSON object in the last line of stdout."""
    return dict(json.loads(done.stdout.splitlines()[-1]))


def wait_until(
    seen: Callable[[], bool], process: subprocess.Popen[bytes], glance: float = Folder.glance
) -> None:
    """Return when something is seen, or when the process has ended."""
    last = time.monotonic() + PATIENCE
    while process.poll() is None and not seen():
        assert time.monotonic() < last, "a process that was waited for does not go on"
        time.sleep(glance)


def pause(process: subprocess.Popen[bytes]) -> None:
    """Stop a process, and wait until it has stopped; or ended, which it may have done before."""
    if process.poll() is not None:
        return
    process.send_signal(signal.SIGSTOP)
    os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)


def strike(process: subprocess.Popen[bytes], place: Place, instant: Instant, base: int) -> Landing:
    """Kill a process at an instant; ``base``: the newest commit when it was started."""
    try:
        if instant.what == "start":
            time.sleep(instant.delay)
        else:
            wait_until(lambda: newest(place) >= base + instant.commits, process, place.glance)
            if instant.what == "delay":
                time.sleep(instant.delay)
            else:
                _stop_where(process, place, instant.what)
    finally:
        process.kill()
        code = process.wait(PATIENCE)
    return look(place, instant, code)


def _stop_where(process: subprocess.Popen[bytes], place: Place, what: str) -> None:
    """Leave the process stopped where ``what`` holds: seen, stopped, and seen again."""
    seen = {
        "parts": lambda: making(place) > newest(place),
        "manifest": lambda: making(place) > newest(place) and _aside(place),
        "linked": lambda: making(place) == newest(place) and _aside(place),
        "epoch": lambda: _rows(place) > 0 and _rows(place) % EPOCH == 0,
    }[what]
    while process.poll() is None:
        wait_until(seen, process, place.glance)
        pause(process)
        if process.poll() is not None or seen():
            return
        process.send_signal(signal.SIGCONT)


def _aside(place: Place) -> bool:
    return any(name.startswith(".tmp-") for name in place.list("commits"))


def _rows(place: Place) -> int:
    try:
        return int(document(place, newest(place))["rows"])
    except FileNotFoundError:  # retired in between
        return 0


@dataclass(frozen=True)
class Job:
    """A run that is told by the words of its command."""

    shards: str
    words: tuple[str, ...]

    def train(self, url: str, *more: str) -> list[str]:
        """The words that train into ``url``."""
        return ["train", self.shards, *self.words, "--checkpoint", url, *more, "--json"]


FIGURES = ("rows", "loss", "error", "rmse", "epochs", "skipped", "state_sha256")


@dataclass(frozen=True)
class Figures:
    """All that must be equal: what is told of a run, and what it predicts, byte by byte."""

    told: dict[str, Any]
    predictions: bytes


def figures(told: Mapping[str, Any], predictions: Sequence[str | Path]) -> Figures:
    """What a finished run told (``--json``) and the files it predicted."""
    table = pa.concat_tables(pq.read_table(path) for path in predictions)
    assert table.num_rows > 0
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table.combine_chunks())
    return Figures({key: told[key] for key in FIGURES}, sink.getvalue().to_pybytes())


def predict(url: str, new_rows: str, out: Path, env: Mapping[str, str] | None = None) -> list[str]:
    """The files of predictions that ``streamomd predict`` wrote."""
    return list(result(finish(["predict", url, new_rows, "--to", out, "--json"], env))["files"])


def heaviest(url: str) -> list[dict[str, Any]]:
    """What ``inspect`` shows; names of one coordinate are in no order."""
    top = streamomd.load(url).inspect(50)
    return [{**one, "name": sorted(one["name"].split(" | "))} for one in top]


def rows(count: int, *, seed: int) -> pa.Table:
    """Seeded rows: y (0, 1), z (three texts), three numbers, two texts, a sparse pair i and v."""
    draw = np.random.default_rng(seed)
    n = draw.normal(size=(count, 3)) * [1.0, 1e3, 1e-3]
    city, job = draw.integers(0, 400, count), draw.integers(0, 12, count)
    lengths = draw.integers(0, 12, count)
    indices = draw.integers(0, CODES, lengths.sum())
    offsets = pa.array(np.concatenate([[0], np.cumsum(lengths)]), pa.int32())
    margin = n[:, 0] + n[:, 1] / 1e3 + np.sin(city) + draw.normal(size=count)
    return pa.table(
        {
            "y": (margin > 0.0).astype(np.int64),
            "z": np.array(["low", "mid", "high"])[np.digitize(margin, [-1.0, 1.0])],
            "a": n[:, 0],
            "b": n[:, 1],
            "c": n[:, 2].astype(np.float32),
            "city": np.char.add("city ", city.astype(str)),
            "job": np.char.add("job ", job.astype(str)),
            "i": pa.ListArray.from_arrays(offsets, pa.array(indices, pa.int32())),
            "v": pa.ListArray.from_arrays(offsets, pa.array(draw.exponential(size=len(indices)))),
        }
    )


def with_gaps(table: pa.Table, *, seed: int) -> pa.Table:
    """The rows with a fifth of the numbers missing; in column a, all of the first 100 as well."""
    draw = np.random.default_rng(seed)
    for place, name in enumerate(("a", "b", "c"), 2):
        gone = draw.random(len(table)) < 0.2
        gone[: 100 * (name == "a")] = True
        values = pa.array(table.column(name).to_numpy(), mask=gone)
        table = table.set_column(place, name, values)
    return table


def write_shards(
    folder: Path, *, shards: int = SHARDS, groups: int = GROUPS, gaps: bool = False
) -> Path:
    """Parquet shards of several row groups."""
    folder.mkdir(parents=True)
    for place in range(shards):
        table = rows(groups * GROUP_ROWS, seed=place)
        table = with_gaps(table, seed=place) if gaps else table
        pq.write_table(table, str(folder / f"{place:02d}.parquet"), row_group_size=GROUP_ROWS)
    return folder


BINARY = ("--label", "y", "--set", "data.ignore=['z']")
CLASSES = ("--label", "z", "--set", "data.ignore=['y']")
COMMON = (
    *("--rule", "nag", "--loss", "logistic"),
    *("--numeric", "a,b,c", "--hashed", "city,job", "--bits", "11"),
    *("--set", f'data.sparse={{indices="i", values="v", size={CODES}}}'),
    *("--set", "checkpoint.every_seconds=0"),
)
