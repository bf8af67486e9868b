"""Averaged mode: the start of a round goes from worker to worker; the store is read once a run."""

from __future__ import annotations

import functools
import itertools
import logging
import os
import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from clustered import long, sized, spread
from distributed import Client, LocalCluster
from diverging import shards

import streamomd
from streamomd.core.errors import ClusterError, DivergedError
from streamomd.distributed import averaged, averaged_worker, cluster
from streamomd.distributed.averaged import Averaged
from streamomd.distributed.connect import QuietTaskErrors
from streamomd.distributed.round_tasks import RoundTasks, place_parts, source_of
from streamomd.distributed.worker_monitor import WorkerMonitor

pytestmark = pytest.mark.filterwarnings("ignore")

_reading: list[Any] = []


def count_reads(folder: str) -> None:
    """On a worker: a line in a file for each object that it reads from a local checkpoint."""
    from streamomd.checkpoint.stores.local import LocalStore

    read = LocalStore.read
    _reading.append(read)

    @functools.wraps(read)
    def counted(self: Any, name: str, most: int | None = None) -> bytes:
        data = read(self, name, most)
        with (Path(folder) / f"reads-{os.getpid()}").open("a") as file:
            file.write(f"{name} {len(data)}\n")
        return data

    setattr(LocalStore, "read", counted)  # noqa: B010 - it is a method of another module


def do_not_count() -> None:
    """On a worker: undo that."""
    from streamomd.checkpoint.stores.local import LocalStore

    while _reading:
        setattr(LocalStore, "read", _reading.pop())  # noqa: B010


def reads(folder: Path) -> list[tuple[str, int]]:
    """Name and bytes of each object that a worker has read."""
    lines = [line for file in folder.glob("reads-*") for line in file.read_text().splitlines()]
    return [(name, int(nbytes)) for name, nbytes in (line.rsplit(" ", 1) for line in lines)]


def parts_of(folder: Path) -> Counter[str]:
    """How often each part of a state was read, by any worker."""
    return Counter(name for name, _ in reads(folder) if name.startswith("data/"))


@pytest.fixture
def counting(client: Client, tmp_path: Path) -> Iterator[Path]:
    """A folder with the reads of two workers."""
    folder = tmp_path / "counts"
    folder.mkdir()
    client.run(count_reads, str(folder))
    yield folder
    client.run(do_not_count)


@pytest.mark.parametrize("count", [2, *long(1, 4)])
@pytest.mark.sample(2)
def test_a_run_reads_its_state_from_the_store_once(
    data: Path, workers: LocalCluster, tmp_path: Path, expected: str, count: int
) -> None:
    """O(S) for any number of workers and rounds: the first commit, each object of it once."""
    folder = tmp_path / "counts"
    folder.mkdir()
    sized(workers, count)
    with Client(workers, set_as_default=False) as client:
        client.run(count_reads, str(folder))
        table = spread(data, tmp_path / "run")
        table["checkpoint"]["keep"] = 99
        found = streamomd.train(table, client=client, quiet=True)
        client.run(do_not_count)
    sized(workers, 2)
    assert found.state_sha256 == expected
    first = min((tmp_path / "run" / "data").iterdir())
    names = [f"data/{first.name}/{path.name}" for path in first.iterdir()]
    assert parts_of(folder) == dict.fromkeys(names, 1)
    # And its manifest and documents, by one worker.
    assert len({file.name for file in folder.iterdir()}) == 1


@pytest.mark.slow  # test_averaged has a worker that dies in a merge in the quick run
@pytest.mark.parametrize("number", [1, 2, 3])
def test_a_first_worker_that_dies_is_replaced_by_the_commit(
    data: Path,
    client: Client,
    workers: LocalCluster,
    counting: Path,
    tmp_path: Path,
    expected: str,
    monkeypatch: pytest.MonkeyPatch,
    number: int,
) -> None:
    """Killed after a commit, with the only merged state: another worker loads the commit."""
    took, killed = Averaged._apply, list[str]()

    def kill(self: Any, *given: Any) -> None:
        took(self, *given)
        killed.append("")
        if len(killed) == number:
            pids = client.run(os.getpid)
            killed[-1] = self._first
            os.kill(pids[self._first], signal.SIGKILL)

    monkeypatch.setattr(Averaged, "_apply", kill)
    found = streamomd.train(spread(data, tmp_path / "run"), client=client, quiet=True)
    assert found.state_sha256 == expected
    assert killed[number - 1]
    # By the worker that takes over, once. (Dask may begin to compute the lost result again, which
    # the driver still wanted, from the commit before.)
    taken = {name: n for name, n in parts_of(counting).items() if name[5:17] == f"{number:012d}"}
    assert set(taken.values()) == {1}
    sized(workers, 0)
    sized(workers, 2)


def test_the_scheduler_does_not_carry_the_states(
    data: Path, workers: LocalCluster, client: Client, tmp_path: Path, expected: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """The driver fetches a round's result from its worker; through the scheduler only if that does
    not answer, and then always."""
    handlers, carried = workers.scheduler.handlers, list[str]()
    gather = handlers["gather"]

    def carrying(*given: Any, **named: Any) -> Any:
        carried.extend(key for key in named["keys"] if str(key).startswith("omd-merge"))
        return gather(*given, **named)

    monkeypatch.setitem(handlers, "gather", carrying)
    found = streamomd.train(spread(data, tmp_path / "run"), client=client, quiet=True)
    assert found.state_sha256 == expected
    assert not carried
    wait, routes = averaged.wait_for_result, list[bool | None]()

    def unreachable(*given: Any, direct: bool | None = None) -> Any:
        routes.append(direct)
        if direct:
            raise cluster.ResultTimeoutError("no answer in 60 s")
        return wait(*given, direct=direct)

    monkeypatch.setattr(averaged, "wait_for_result", unreachable)
    found = streamomd.train(spread(data, tmp_path / "other"), client=client, quiet=True)
    assert found.state_sha256 == expected
    assert routes == [True, None, None, None, None]
    assert len(carried) == 4


def test_a_large_state_is_merged_in_pieces(
    data: Path, client: Client, tmp_path: Path, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each on one of the workers that have it, bit-identical to whole states."""
    monkeypatch.setattr(averaged_worker, "PIECE_BYTES", 1 << 10)
    sent, send = Counter[str](), RoundTasks.send

    def counted(self: RoundTasks, key: str, workers: Any, *given: Any) -> Any:
        if key.startswith("omd-merge"):
            sent[workers[0]] += 1
        return send(self, key, workers, *given)

    monkeypatch.setattr(RoundTasks, "send", counted)
    found = streamomd.train(spread(data, tmp_path / "run"), client=client, quiet=True)
    assert found.state_sha256 == expected
    assert [*sent.values()] == [4 * 8 * 3 // 2] * 2  # rounds, pieces, merges; of two workers


@pytest.mark.parametrize("unusable", [{}, {"tcp://10.0.0.9:4000": "it has streamomd 0.0"}])
def test_a_task_that_went_to_an_unusable_worker_restarts_its_round(
    data: Path,
    client: Client,
    tmp_path: Path,
    expected: str,
    monkeypatch: pytest.MonkeyPatch,
    unusable: dict[str, str],
) -> None:
    """Dask may move a lost worker's task to it. Where there is none, the error is the job's."""
    wait, failed = averaged.wait_for_result, list[str]()

    def moved(at: Any, future: Any, *given: Any, **more: Any) -> Any:
        found = wait(at, future, *given, **more)
        if not failed:
            failed.append(future.key)
            future._state.set_error(ImportError("No module named 'streamomd'"), None)
            raise ImportError("No module named 'streamomd'")
        return found

    monkeypatch.setattr(averaged, "wait_for_result", moved)
    monkeypatch.setattr(WorkerMonitor, "unusable", unusable)
    if unusable:
        found = streamomd.train(spread(data, tmp_path / "run"), client=client, quiet=True)
        assert found.state_sha256 == expected
    else:
        with pytest.raises(ImportError, match="No module"):
            streamomd.train(spread(data, tmp_path / "run"), client=client, quiet=True)


@pytest.mark.parametrize("parts", [1, 2, 7, 16, 100])
@pytest.mark.parametrize("workers", [1, 2, 3, 16, 40])
def test_parts_are_divided_evenly_and_neighbours_are_together(parts: int, workers: int) -> None:
    """By threads; each worker has consecutive parts, the first part is where it was."""
    threads = {f"w{number:02d}": 1 + number % 2 for number in range(workers)}
    first = f"w{workers // 2:02d}"
    places = place_parts(threads, parts, first)
    assert len(places) == parts
    assert places[0] == first
    changes = [a for a, b in itertools.pairwise(places) if a != b]
    assert len(changes) == len(set(changes)) == len(set(places)) - 1
    share = parts / sum(threads.values())
    for place, count in Counter(places).items():
        assert abs(count - share * threads[place]) < 1.0 + 1e-9
    assert place_parts(threads, parts)[0] == "w00"


@pytest.mark.parametrize("workers", [1, 2, 3, 100, 1000])
def test_the_start_reaches_every_worker_in_a_tree(workers: int) -> None:
    """Each sends at most two copies; the last one is as far from the first as log2 of them."""
    sources = [source_of(number) for number in range(1, workers)]
    assert all(source < number for number, source in enumerate(sources, 1))
    assert max(Counter(sources).values(), default=0) <= 2
    depth = [0]
    for source in sources:
        depth.append(depth[source] + 1)
    assert depth[-1] == workers.bit_length() - 1


@pytest.mark.slow
def test_a_named_error_of_a_part_is_one_line_on_a_local_cluster(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Without Dask's "Compute Failed" and its traceback."""
    table = {
        "data": {"shards": [str(shards(tmp_path / "data"))], "label": "y"},
        "model": {"rule": "adagrad", "loss": "square"},
        "train": {"mode": "averaged", "parts": 2},
        "checkpoint": {"url": str(tmp_path / "run")},
    }
    with pytest.raises(DivergedError):
        streamomd.train(table, quiet=True)
    assert "Compute Failed" not in capfd.readouterr().err


@pytest.mark.parametrize(
    ("error", "logged"),
    [(DivergedError("not finite"), False), (ClusterError("x"), False), (ValueError("x"), True)],
)
def test_only_errors_with_a_name_of_ours_are_quiet(error: Exception, logged: bool) -> None:
    """As Dask logs them; and all other records."""
    logger = logging.getLogger("distributed.worker")
    message = "Compute Failed\nKey:       %s\nException: %r\n"
    before = list(logger.filters)
    QuietTaskErrors().setup(None)
    try:
        make = functools.partial(logger.makeRecord, logger.name, logging.ERROR, "worker.py", 1)
        assert bool(logger.filter(make(message, ("omd-part-1", repr(error)), None))) == logged
        assert logger.filter(make("%r", (repr(error),), None))
        assert logger.filter(make("Compute Failed", (), None))
    finally:
        logger.filters = before
