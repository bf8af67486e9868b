"""Bad rows left out on workers: the bits of shards without them, and one count, in every mode."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from clustered import QUIET, REMOTE, job, spread
from distributed import Client
from running import rows, with_column, write
from sharded_jobs import sharded_job

import streamomd
from streamomd.core.errors import TooManyBadRowsError
from streamomd.distributed.decode import DecodeRequest, Decoders
from streamomd.sources.find import find

# Dask's own warnings of workers that die are what is provoked here.
pytestmark = pytest.mark.filterwarnings("ignore")

SHARDS, ROWS = 4, 1_500
BAD = {"n": (7, float("nan"), "nan"), "y": (11, 2, "label"), "w": (601, -1.0, "negative_weight")}


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, dict[str, int]]:
    """Shards with bad rows, the same without them, one row group each; and how many are bad why."""
    folder = tmp_path_factory.mktemp("rows")
    counts: dict[str, int] = {}
    for at in range(SHARDS):
        table = rows(ROWS, first=at)
        wrong = set()
        for name, (step, value, reason) in BAD.items():
            values = table.column(name).to_pylist()
            places = [place for place in range(at, ROWS, step) if place not in wrong]
            for place in places:
                values[place] = value
            counts[reason] = counts.get(reason, 0) + len(places)
            wrong.update(places)
            table = with_column(table, name, values)
        write(folder / "bad" / f"{at}.parquet", table)
        good = table.take([place for place in range(ROWS) if place not in wrong])
        write(folder / "good" / f"{at}.parquet", good)
    return folder / "bad", folder / "good", counts


def skipping(table: dict[str, Any], **data: Any) -> dict[str, Any]:
    """The job with bad rows left out, two epochs, classes given."""
    table["data"] |= {"on_bad_row": "skip", **data}
    table["model"] = {"classes": [0, 1]}
    return table


def same(found: Any, expected: Any, counts: dict[str, int]) -> None:
    assert found.state_sha256 == expected.state_sha256
    assert found.result()["epochs"] == expected.result()["epochs"]
    passes = len(found.result()["epochs"])  # of rule auto in exact mode the second is undone
    assert found.result()["skipped"] == {reason: passes * n for reason, n in counts.items()}
    assert expected.result()["skipped"] == {}


def test_workers_that_decode(pair: Any, client: Client, small_tasks: None) -> None:
    """Exact mode, rows decoded by workers."""
    bad, good, counts = pair
    expected = streamomd.train(skipping(job(good)), **QUIET)
    found = streamomd.train(skipping(job(bad, cluster=REMOTE)), client=client, **QUIET)
    same(found, expected, counts)
    with pytest.raises(TooManyBadRowsError, match="at most 5 are"):
        table = skipping(job(bad, cluster=REMOTE), max_bad_rows=5)
        streamomd.train(table, client=client, **QUIET)


def test_pieces_count_all_their_rows(pair: Any, client: Client, small_tasks: None) -> None:
    """A piece is as long as the rows it was made of, so that the next one begins where it ends."""
    bad, _, counts = pair
    model = streamomd.train(skipping(job(bad)), **QUIET)
    shards = find(str(bad))
    decoders = Decoders(client, DecodeRequest(model.plan, {}), shards, window_bytes=1 << 20)
    places, row, left_out = list(range(SHARDS)), 0, 0
    for piece in decoders.rows(places):
        assert (piece.position, piece.row) == divmod(row, ROWS)
        row += piece.rows
        left_out += len(piece.value.batch.skipped)
    assert (row, left_out) == (SHARDS * ROWS, sum(counts.values()))


@pytest.mark.slow
def test_a_learner_on_a_worker(pair: Any, client: Client, tmp_path: Path) -> None:
    """Its counts come back, and so does what stopped it."""
    bad, good, counts = pair
    away = {"cluster": {"learner": "worker"}, "checkpoint": {"url": str(tmp_path / "kept")}}
    expected = streamomd.train(skipping(job(good)), **QUIET)
    same(streamomd.train(skipping(job(bad, **away)), client=client, quiet=True), expected, counts)
    away["checkpoint"] = {"url": str(tmp_path / "other")}
    with pytest.raises(TooManyBadRowsError):
        streamomd.train(skipping(job(bad, **away), max_bad_rows=5), client=client, quiet=True)


@pytest.mark.slow
def test_averaged(pair: Any, client: Client, tmp_path: Path) -> None:
    """Where the parts are cut at the edges of shards, which bad rows do not move."""
    bad, good, counts = pair
    cut = {"parts": SHARDS, "rounds_per_epoch": 1}
    there = {"client": client, "quiet": True}
    expected = streamomd.train(skipping(spread(good, tmp_path / "good", cut)), **there)
    same(streamomd.train(skipping(spread(bad, tmp_path / "bad", cut)), **there), expected, counts)
    assert streamomd.load(str(tmp_path / "bad")).result()["skipped"]
    with pytest.raises(TooManyBadRowsError):
        table = skipping(spread(bad, tmp_path / "some", cut), max_bad_rows=5)
        streamomd.train(table, **there)
    assert streamomd.load(str(tmp_path / "some")).metrics.total_rows == 0


@pytest.mark.slow
def test_sharded(pair: Any, client: Client, tmp_path: Path) -> None:
    """By owners, and by one process."""
    bad, good, counts = pair

    def table(data: Path, name: str, **more: Any) -> dict[str, Any]:
        url = "none" if name == "none" else tmp_path / name
        return skipping(sharded_job(data, url, every_rows=1000), **more)

    expected = streamomd.train(table(good, "none"), quiet=True)
    same(streamomd.train(table(bad, "none"), quiet=True), expected, counts)
    same(streamomd.train(table(bad, "kept"), client=client, quiet=True), expected, counts)
    same(streamomd.load(str(tmp_path / "kept")), expected, counts)
    with pytest.raises(TooManyBadRowsError):
        streamomd.train(table(bad, "some", max_bad_rows=1000), client=client, quiet=True)
    model = streamomd.load(str(tmp_path / "some"))
    assert 0 < model.metrics.bad.sum() <= 1000
    done = streamomd.resume(
        str(tmp_path / "some"), client=client, sets={"data.max_bad_rows": 3000}, quiet=True
    )
    same(done, expected, counts)
