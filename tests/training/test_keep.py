"""Commits aside: what they hold, when they are made, and what their failures do."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from checkpoint_helpers import DictStore, load_all, plain
from running import everything, rows, train, write

from streamomd.checkpoint import Ledger, Writer, list_commits, write_document
from streamomd.config.spec import Spec
from streamomd.core.batch import DenseBatch
from streamomd.core.errors import ConcurrentWriterError, StorageError, TooLargeError
from streamomd.engine import state
from streamomd.engine.state import State
from streamomd.features import make_plan
from streamomd.shards.order import Cursor
from streamomd.training import checkpoint_manager, training_threads
from streamomd.training.checkpoint_manager import CheckpointManager
from streamomd.training.model import Model
from streamomd.training.model_document import document_of, parts_of

PATIENCE = 60.0
KINDS = ("nag", "arow", "dual_ascent")
"""Cells alone, a matrix beside them, rows that are kept."""


class Gate:
    """A store that keeps who asks waiting while it is shut, or whose parts fail."""

    def __init__(self) -> None:
        self.store = DictStore()
        self.open, self.entered = threading.Event(), threading.Event()
        self.puts: list[str] = []
        self.place = "data/"
        self.fails: Callable[[int], bool] = lambda attempt: False
        self.open.set()
        self.store.before = self._before

    def _before(self, deed: str, name: str) -> None:
        if name.startswith(self.place):
            self.entered.set()
            assert self.open.wait(PATIENCE)
        if deed != "put" or not name.startswith("data/"):
            return
        self.puts.append(name)
        if self.fails(len({put.split("/")[1] for put in self.puts})):
            raise StorageError("the disk is full")

    def shut(self, place: str = "data/") -> None:
        """From now on whoever asks for something there waits."""
        self.place = place
        self.entered.clear()
        self.open.clear()

    def rows(self) -> list[int]:
        """Of each commit."""
        return [one["rows"] for one in list_commits(self.store, deep=True)]


class Run:
    """A model that learns by hand, kept in a gate's store."""

    def __init__(self, rule: str = "nag", **kept: Any) -> None:
        columns = [f"x{at}" for at in range(8)]
        spec = Spec.parse(
            {
                "data": {"label": "y", "numeric": columns},
                "model": {"rule": rule},
                "checkpoint": {"every_seconds": 0, "keep": 99, **kept},
            }
        )
        schema = pa.schema([("y", pa.int64()), *((name, pa.float64()) for name in columns)])
        plan = make_plan(spec.data, spec.model, schema, lambda: [0, 1])
        self.model, self.gate, self._draw = Model.new(spec, plan), Gate(), np.random.default_rng(7)
        store = self.gate.store
        document = document_of(self.model, segments=[], names=write_document(store, "names", {}))
        writer = Writer.begin(
            store, document, parts_of(self.model.state, self.model.metrics), keep=99
        )
        self.gate.puts.clear()
        self.keeper = CheckpointManager(self.model, store, writer, Ledger())

    def learn(self, count: int) -> None:
        """Learn some rows, and tell the keeper."""
        y = self._draw.choice([-1.0, 1.0], count)
        self.model.learn(DenseBatch(self._draw.normal(size=(count, 8)), y, np.ones(count)))
        self.model.cursor = Cursor(0, 0, self.model.metrics.total_rows)
        self.keeper.update(self.model.metrics)

    def now(self) -> list[Any]:
        """What a commit would keep, to the bit."""
        return plain(list(parts_of(self.model.state, self.model.metrics)))


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The keeper's time, in a list."""
    now = [0.0]
    monkeypatch.setattr(checkpoint_manager.time, "monotonic", lambda: now[0])
    return now


@pytest.mark.parametrize("rule", KINDS)
def test_a_commit_is_of_one_edge_whatever_is_learned_meanwhile(rule: str) -> None:
    """State, counters, position and names are those of the row it was due at."""
    run = Run(rule, every_rows=10)
    run.learn(9)
    run.gate.shut("")
    run.keeper._schedule.next_row = 14.0
    run.learn(5)
    edge = run.now()
    assert run.gate.entered.wait(PATIENCE)
    run.learn(4)
    run.model.names.update({3: ("later",)})
    run.gate.open.set()
    run.keeper.commit()
    loaded, parts = load_all(run.gate.store, at=1)
    assert parts == edge != run.now()
    assert loaded.commit.document["rows"] == loaded.commit.document["cursor"]["row"] == 14
    names = {one.commit.document["names"] for one in (loaded, load_all(run.gate.store, at=2)[0])}
    assert len(names) == 2
    assert load_all(run.gate.store, at=2)[1] == run.now()


def test_rows_are_a_promise() -> None:
    """Each multiple is committed, also where the store is slower than the learner."""
    run = Run(every_rows=5)
    run.gate.store.after = lambda deed, name: time.sleep(0.003)
    for _ in range(9):
        run.learn(5)
    run.learn(3)
    run.keeper.commit()
    assert run.gate.rows() == [0, 5, 10, 15, 20, 25, 30, 35, 40, 45, 48]
    assert run.model.sequence == 10


def test_time_is_not(clock: list[float]) -> None:
    """While one is under way nothing waits; however often it was due, one more follows."""
    run = Run(every_seconds=10.0)
    run.learn(1)
    run.keeper._committer.outcome()
    run.gate.shut()
    for _ in range(7):
        clock[0] += 11.0
        run.learn(1)
    assert run.gate.entered.wait(PATIENCE)
    run.gate.open.set()
    run.keeper._committer._thread.join(PATIENCE)
    run.learn(1)
    run.keeper.close()
    for _ in range(3):
        run.learn(1)
    run.keeper.close()
    assert run.gate.rows() == [0, 2, 9]


@pytest.mark.parametrize("aside", [True, False])
def test_time_takes_a_twentieth_at_most(
    aside: bool, clock: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of what learning waits for: the copy, or the whole commit."""
    run = Run(every_seconds=1.0, aside=aside)
    home, name = (State, "take") if aside else (Writer, "commit")
    slow = getattr(home, name)

    def taking(*given: Any) -> Any:
        clock[0] += 2.0
        return slow(*given)

    monkeypatch.setattr(home, name, taking)
    found = []
    for _ in range(90):
        clock[0] += 1.0
        if run.keeper._committer:
            run.keeper._committer._thread.join(PATIENCE)
        before = clock[0]
        run.learn(1)
        if clock[0] > before:
            found.append(before)
    gaps = np.diff(found)
    assert len(gaps) == 2
    assert all(40.0 <= gap <= 41.0 for gap in gaps)


def test_two_failures_are_told_and_the_third_is_an_error(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """One that succeeds in between is a new beginning; the last good commit stands."""
    run = Run(every_rows=5)
    run.gate.fails = lambda attempt: attempt in (1, 2, 4, 5, 6)
    for _ in range(6):
        run.learn(5)
    with pytest.raises(StorageError, match="the disk is full"):
        run.learn(1)
        run.keeper._committer._thread.join(PATIENCE)
        run.learn(1)
    assert run.gate.rows() == [0, 15]
    said = capsys.readouterr().err
    assert said.count("the disk is full; training continues (last good commit: 0)") == 2
    assert said.count("the disk is full; training continues (last good commit: 1)") == 3


def test_the_last_commit_tells_its_own_failure() -> None:
    """Failures before it are past; its own is raised at once."""
    run = Run(every_rows=5)
    run.gate.fails = lambda attempt: attempt <= 2
    for _ in range(2):
        run.learn(5)
    run.keeper.commit()
    assert run.gate.rows() == [0, 10]
    run.gate.fails = lambda attempt: True
    with pytest.raises(StorageError):
        run.keeper.commit()


def test_who_was_overtaken_hears_of_it_at_the_next_edge() -> None:
    """Whether or not another commit is due there; and what the other committed stands."""
    run = Run(every_rows=5)
    run.learn(4)
    other = Writer.take_over(run.gate.store, load_all(run.gate.store)[0])
    run.learn(1)
    run.keeper._committer._thread.join(PATIENCE)
    with pytest.raises(ConcurrentWriterError):
        run.learn(1)
    run.keeper.close()
    assert load_all(run.gate.store)[0].commit.writer.uuid == other.last.writer.uuid


@pytest.mark.parametrize("hurry", [True, False])
def test_a_signal_does_not_wait_for_a_whole_commit(
    hurry: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a hurry it waits for one part; what was put of the rest is deleted with the next."""
    monkeypatch.setattr(state, "CHUNK_BYTES", 64)
    run = Run(every_rows=5)
    expected = len(run.now())
    assert expected > 3
    run.learn(4)
    run.gate.shut()
    run.learn(1)
    assert run.gate.entered.wait(PATIENCE)

    def open_when_asked() -> None:
        while hurry and not run.keeper._committer._hurry.is_set():
            time.sleep(0.001)
        run.gate.open.set()

    opener = threading.Thread(target=open_when_asked)
    opener.start()
    run.keeper.commit(hurry=hurry)
    opener.join()
    assert run.gate.rows() == ([0, 5] if hurry else [0, 5, 5])
    assert len(run.gate.puts) == (1 + expected if hurry else 2 * expected)
    data = [name for name in run.gate.store.objects if name.startswith("data/")]
    assert len(data) == len(run.gate.rows()) * expected


def test_a_commit_under_way_is_made_when_learning_ends_with_an_error() -> None:
    """Nothing comes after it, so it is waited for."""
    run = Run(every_rows=5)
    run.gate.shut()
    run.learn(5)
    threading.Timer(0.05, run.gate.open.set).start()
    run.keeper.close()
    assert run.gate.rows() == [0, 5]


def test_a_copy_has_memory_of_its_own_and_keeps_it() -> None:
    """Twice the state, however many commits."""
    one = Run().model.state
    copy = training_threads.async_committer(one, 2.0 * one.nbytes)
    assert copy is not None
    assert copy.outcome() is None
    places = {copy.copy_state(one).cells.ctypes.data for _ in range(3)}
    assert len(places) == 1
    assert not np.shares_memory(copy.copy_state(one).cells, one.cells)
    other = one.copy()
    other.totals += 1.0
    assert copy.copy_state(other).totals.tolist() == other.totals.tolist()


@pytest.mark.parametrize("why", ["told", "spare", "limit", "none to be had"])
def test_where_there_is_no_room_learning_waits(
    why: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Because it was told to, or a copy would not fit: a commit is there when it was due."""
    run = Run(every_rows=5, aside=why != "told")
    if why == "spare":
        run.keeper.spare = 2.0 * run.model.state.nbytes - 1
    if why == "limit":
        (tmp_path / "limit").write_text("1000\n")
        monkeypatch.setattr(training_threads, "LIMITS", (str(tmp_path / "limit"),))
    if why == "none to be had":

        def full(_: State) -> State:
            raise TooLargeError("all taken")

        monkeypatch.setattr(State, "copy", full)
        run.learn(1)
    run.gate.store.after = lambda deed, name: time.sleep(0.003)
    for wanted in ([0, 5], [0, 5, 10]):
        run.learn(5 - run.model.metrics.total_rows % 5)
        assert run.keeper._committer is None
        assert run.gate.rows() == wanted


OFTEN = [(1, 0.0, "true"), (0, 1e-4, "true"), (7, 1e-4, "false")]


@pytest.mark.parametrize(
    "rule", [KINDS[0], *(pytest.param(rule, marks=pytest.mark.slow) for rule in KINDS[1:])]
)
def test_no_bit_depends_on_how_or_how_often(rule: str, tmp_path: Path) -> None:
    """Aside or not, at every frequency: the state of the run that keeps nothing."""
    path = write(tmp_path / "a.parquet", rows(20), row_group_size=7)
    words = [path, *everything(), "--set", "data.bits=4", "--rule", rule, "--epochs", "2"]
    expected = train(*words, "--checkpoint", "none")
    for at, (every, seconds, aside) in enumerate(OFTEN):
        sets = [f"every_rows={every}", f"every_seconds={seconds}", f"aside={aside}"]
        kept = [word for key in sets for word in ("--set", f"checkpoint.{key}")]
        told = train(*words, *kept, "--checkpoint", tmp_path / str(at))
        for key in ("state_sha256", "loss", "error", "rows", "epochs"):
            assert told[key] == expected[key]
