"""``streamomd.testing.check_source``: built-in sources pass, and so does one of another package,
which trains, updates and resumes."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from documented import ROOT, blocks

import streamomd
from streamomd.core import installed
from streamomd.core.errors import InputNotFoundError, UsageError
from streamomd.sources import Listed, Source, SourceFiles
from streamomd.sources.find import source_of
from streamomd.testing import check_source

PAGE = ROOT / "docs" / "write-your-own-source.md"


def rows(number: int, count: int = 5) -> list[dict[str, Any]]:
    """Rows of a batch, which no other has."""
    return [{"y": k % 2, "x": float(10 * number + k)} for k in range(count)]


@pytest.fixture
def days(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[int], Any]]:
    """The source of docs/write-your-own-source.md, installed; what adds a day to ``tmp_path``."""
    site, points = tmp_path / "site", "[streamomd.sources]\ndays = day_source:DaySource\n"
    home = site / "days-1.0.dist-info"
    home.mkdir(parents=True)
    (home / "METADATA").write_text("Metadata-Version: 2.1\nName: days\nVersion: 1.0\n")
    (home / "entry_points.txt").write_text(points)
    (site / "day_source.py").write_text(blocks(PAGE)[0].text)
    monkeypatch.syspath_prepend(str(site))
    installed._offered.cache_clear()
    installed._made.cache_clear()

    def add(number: int) -> list[dict[str, Any]]:
        (tmp_path / "logs").mkdir(exist_ok=True)
        lines = "".join(json.dumps(row) + "\n" for row in rows(number))
        (tmp_path / "logs" / f"{number:03}.day").write_text(lines)
        return rows(number)

    yield add
    installed._offered.cache_clear()
    installed._made.cache_clear()
    sys.modules.pop("day_source", None)


def test_files_pass(tmp_path: Path) -> None:
    """Files may be written again, so their fingerprints are checked to change."""

    def add(number: int) -> Sequence[dict[str, Any]]:
        pq.write_table(pa.Table.from_pylist(rows(number)), tmp_path / f"{number}.parquet")
        return rows(number)

    def change() -> None:
        pq.write_table(pa.Table.from_pylist(rows(9, 6)), tmp_path / "0.parquet")

    url = str(tmp_path)
    check_source(source_of(url), url, add, missing=f"{url}/none", change=change)


def test_delta_tables_pass(tmp_path: Path) -> None:
    """Marked ones, and directories that are found to be tables."""
    from deltalake import write_deltalake

    for mark in ("delta+", ""):
        root = tmp_path / f"table{mark}"

        def add(number: int, root: Path = root) -> Sequence[dict[str, Any]]:
            write_deltalake(str(root), pa.Table.from_pylist(rows(number)), mode="append")
            return rows(number)

        url = f"{mark}{root}"
        (root / "_delta_log").mkdir(parents=True)
        check_source(source_of(url), url, add, missing=f"{url}-none")


def test_iceberg_tables_pass(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from iceberg_tables import NAME, SCHEMA, catalog

    table = catalog(tmp_path, monkeypatch).create_table("ns.t", SCHEMA)

    def add(number: int) -> Sequence[dict[str, Any]]:
        table.append(pa.Table.from_pylist(rows(number), schema=SCHEMA))
        return rows(number)

    check_source(source_of(NAME), NAME, add, missing=f"{NAME}_none")


def test_kafka_topics_pass(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from kafka_topics import cluster, stream_of

    monkeypatch.setenv("STREAMOMD_CACHE_DIR", str(tmp_path))
    with cluster() as kafka:
        url = kafka.url("t")

        def add(number: int) -> Sequence[dict[str, Any]]:
            kafka.send("t", 0, [stream_of(pa.Table.from_pylist(rows(number)))])
            return rows(number)

        check_source(source_of(url), url, add, missing=f"kafka://{kafka.servers}/t/none")


def test_a_source_of_another_package_passes(tmp_path: Path, days: Callable[[int], Any]) -> None:
    """It is found by its scheme; its keys without effect are refused, as its text says."""
    url = f"days://{tmp_path}/logs"
    check_source(source_of(url), url, days, missing=f"{url}-none")
    with pytest.raises(UsageError, match="is a directory of days, and its days never change"):
        streamomd.train(url, label="y", sets={"data.version": 3}, checkpoint="none", quiet=True)


def test_a_source_of_another_package_updates_and_resumes_bit_identically(
    tmp_path: Path, days: Callable[[int], Any]
) -> None:
    """Two days and an update are four days; another epoch after a resume is as one that never
    stopped, of the days that there were at the start."""
    url, own = f"days://{tmp_path}/logs", {"label": "y", "rule": "ogd", "quiet": True}
    for number in range(2):
        days(number)
    updated, resumed = str(tmp_path / "updated"), str(tmp_path / "resumed")
    streamomd.train(url, checkpoint=updated, **own)
    streamomd.train(url, checkpoint=resumed, **own)
    twice = streamomd.train(url, checkpoint=str(tmp_path / "twice"), epochs=2, **own)
    for number in range(2, 4):
        days(number)
    whole = streamomd.train(url, checkpoint=str(tmp_path / "whole"), **own)
    found = streamomd.update(updated, quiet=True)
    assert found.metrics.total_rows == whole.metrics.total_rows == 20
    assert found.state_sha256 == whole.state_sha256
    assert streamomd.update(updated, quiet=True).metrics.total_rows == 20
    again = streamomd.resume(resumed, sets={"train.epochs": 2}, quiet=True)
    assert again.state_sha256 == twice.state_sha256
    assert found.evaluate(url)["rows"] == 20


def test_entry_points_are_not_read_for_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor for the stores that are usual: a file of every installed package would be read."""
    monkeypatch.setattr(installed, "_offered", lambda: pytest.fail("entry points were read"))
    for url in ("rows.parquet", "/data/*.parquet", "s3://b/rows", "https://h/a.csv", "file:///a"):
        assert source_of(url).name == "file"


class Faulty(Source):
    """A source of one Parquet file for each batch, in a local directory, with a fault."""

    name = "faulty"
    without_effect = ("data.version",)
    fault = ""
    calls = 0

    def locate(self, url: str) -> str:
        return url.removeprefix("faulty://")

    def list_files(self, fs: Any, urls: Sequence[str], request: Any) -> list[SourceFiles]:
        type(self).calls += 1
        return [self._list(self.locate(url), url, request) for url in urls]

    def _list(self, folder: str, url: str, request: Any) -> SourceFiles:
        names = sorted(Path(folder).glob("*.parquet"), reverse=self.fault == "order")
        if self.fault == "unstable" and self.calls % 2:
            names = names[::-1]
        if not names and self.fault != "missing":
            where = "there" if self.fault == "unnamed" else url
            raise InputNotFoundError(f"{where}: no such directory")
        if self.fault == "twice":
            names += names[:1]
        since = 0 if self.fault == "again" else request.since.get(url, 0)
        last = len(names) if self.fault == "later" else request.versions.get(url, len(names))
        key = "x" if self.fault == "key" else url
        files = [
            Listed(str(one), str(one), one.name, one.stat().st_size, partitions=(), version=(at, 0))
            for at, one in enumerate(names)
        ]
        return SourceFiles(files[since:last], "", {key: len(names)})


FAULTS = {
    "": "",
    "order": "row 0 of all shards",
    "unstable": "two listings differ",
    "twice": "a URL is listed twice",
    "again": "after its position are listed files",
    "later": "the position lists",
    "key": "does not begin with the URL",
    "unnamed": "does not name it",
    "missing": "is listed without an error",
}


@pytest.mark.parametrize(("fault", "problem"), FAULTS.items())
def test_faults_are_named(tmp_path: Path, fault: str, problem: str) -> None:
    """Each fault of a source is found, and its message says which."""
    source = Faulty()
    source.fault, source.title, source.reason = fault, "a directory", "it has no versions"

    def add(number: int) -> Sequence[dict[str, Any]]:
        (tmp_path / "d").mkdir(exist_ok=True)
        pq.write_table(pa.Table.from_pylist(rows(number)), tmp_path / "d" / f"{number}.parquet")
        return rows(number)

    url = f"faulty://{tmp_path}/d"
    with pytest.raises(AssertionError, match=problem) if problem else nullcontext():
        check_source(source, url, add, missing=f"{url}-none")


def test_a_source_does_not_take_every_url() -> None:
    """The check is of what a source is found by."""
    with pytest.raises(AssertionError, match="it does not take /data"):
        check_source(Faulty(), "/data", rows, missing="faulty://none")
