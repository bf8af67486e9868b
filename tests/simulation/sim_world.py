"""A world from one seed: a job, a cluster, a store, drivers begun again and again, and misfortunes.

A world ends when a driver says that the run is finished, and everybody else has ended too. Its loop
raises if what was kept then is not what the undisturbed run gives, and at any moment before if what
must always hold does not (see ``sim_store.Disk``).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

from sim_client import SimClient
from sim_cluster import Cluster
from sim_loop import Fiber, Loop, Process
from sim_star import Net
from sim_store import Disk, SimStore, Weather
from sim_tiny import Job, described, expected, new
from sim_tiny import receive as receiving

from streamomd.checkpoint import Ledger, Writer, load, write_document
from streamomd.core.errors import NoCommitError, StreamomdError
from streamomd.distributed.averaged import Averaged
from streamomd.distributed.sharded import PartitionOwners
from streamomd.distributed.star import HEARTBEAT_TIMEOUT_SECONDS
from streamomd.training import checkpoint_manager
from streamomd.training.model_document import document_of, parts_of
from streamomd.training.signals import StopRequest

LIMIT = 4_000.0
"""Simulated seconds after which a run that has not ended never will."""


class SimWriter(Writer):
    """A writer whose successes are looked at."""

    def commit(self, document: Any, parts: Any, *more: Any) -> Any:
        commit = super().commit(document, parts, *more)
        assert isinstance(self.store, SimStore)
        self.store.disk.heard(commit)
        return commit


@dataclass(frozen=True)
class Misfortune:
    """What happens to whom, when, for how long."""

    at: float
    what: str
    whom: float
    seconds: float

    def __str__(self) -> str:
        return f"{self.what}, {self.seconds:.1f} s"


class World:
    """All there is, from a seed."""

    now: World

    def __init__(self, seed: int) -> None:
        World.now = self
        self.loop = Loop(seed, LIMIT)
        draw = self.loop.draw
        self.job = a_job(draw)
        rough = draw.choice((0.0, 0.0, 0.001, 0.004))
        self.disk = Disk(
            self.loop,
            Weather(
                error=rough, lost=rough, late=rough, lag=draw.choice((0.0, 0.0, 2.0)), slow=0.02
            ),
        )
        slow = draw.choice((0.002, 0.02, 1.0))
        self.cluster = Cluster(self.loop, draw.randint(1, 4), slow, draw.random() < 0.5)
        lost, strange = draw.choice((0.0, 0.0, 0.003)), draw.choice((0.0, 0.2))
        self.net = Net(self.loop, draw.choice((0.001, 0.05)), lost, strange)
        self.drivers: list[tuple[Process, Fiber, StopRequest]] = []
        self.ended: list[str] = []
        self.misfortunes = some(draw)
        self.finished = False
        for one in self.misfortunes:
            self.loop.at(one.at, partial(self.strike, one))
        Fiber(self.loop.process("operator"), self.whole)

    def whole(self) -> None:
        """From the first driver to the last look."""
        try:
            self.operate()
        except Exception as error:
            self.loop.fail(error)

    def operate(self) -> None:
        """Begin drivers until one has finished; and wait until all others have ended."""
        loop = self.loop
        while not self.finished:
            process, fiber, _ = self.start()
            patience = loop.draw.uniform(1.0, 20.0)
            while not fiber.ended and not process.dead:
                fiber.done.wait(1.0)
                if process.paused:
                    patience -= 1.0
                if patience < 0.0:
                    break  # it seems to be dead
            if not self.finished:
                loop.sleep(loop.draw.uniform(0.1, 8.0))
        while any(not fiber.ended for _, fiber, _ in self.drivers) or self.busy():
            loop.sleep(2.0)
        loop.sleep(10.0)  # for what was on its way to the store
        self.check()
        loop.over = True

    def busy(self) -> bool:
        """Whether a worker does something yet, for whoever it thinks."""
        return any(one.process.fibers for one in self.cluster.everyone if not one.process.dead)

    @property
    def gangs(self) -> int:
        """How many were begun."""
        return sum(
            task.key.startswith("omd-owner") and task.key.endswith("-0")
            for task in self.cluster.submitted
        )

    def start(self) -> tuple[Process, Fiber, StopRequest]:
        """Another driver, as a process of its own."""
        process, stop = self.loop.process(f"driver {len(self.drivers)}"), StopRequest()
        fiber = Fiber(process, partial(self.drive, process, stop))
        self.drivers.append((process, fiber, stop))
        return self.drivers[-1]

    def drive(self, process: Process, stop: StopRequest) -> None:
        """A driver's life: what ``train`` and ``resume`` do."""
        try:
            self.learn(process, stop)
            self.ends(process, "done")
            self.finished = True
        except StreamomdError as error:
            self.ends(process, type(error).__name__)
        except Exception as error:
            self.loop.fail(error)

    def ends(self, process: Process, how: str) -> None:
        """A driver comes to its end."""
        self.ended.append(how)
        self.disk.tell(f"{process.name} ends: {how}")

    def learn(self, process: Process, stop: StopRequest) -> None:
        spec, _, shards = described(self.job)
        store, models = SimStore(self.disk), list[Any]()
        names = write_document(store, "names", {})
        before = self.disk.made
        try:
            loaded = load(store, receiving(models, self.job, self.work))
        except NoCommitError:
            model = new(self.job, self.work)
            document = document_of(model, segments=[], names=names)
            made: Writer = SimWriter.begin(store, document, parts_of(model.state, model.metrics))
            last = -1
        else:
            self.disk.loaded(loaded, before)
            model, last = models[-1], loaded.commit.sequence
            if model.finished:
                return
            made = SimWriter.take_over(store, loaded)
        self.disk.took_over(made, last)
        self.disk.tell(f"{process.name} is {made._self.uuid[:4]}, after commit {last}")
        keeper = checkpoint_manager.CheckpointManager(model, store, made, Ledger())
        told: Any = (model, shards, keeper, [], stop, SimClient(self.cluster, process))
        (Averaged if spec.train.mode == "averaged" else PartitionOwners)(*told).run()
        model.finished = True
        keeper.commit()

    def work(self, rows: int) -> None:
        """Learning takes a while."""
        self.loop.sleep(rows * self.loop.draw.uniform(0.0, 0.05))

    def strike(self, one: Misfortune) -> None:
        """A misfortune, if there is anybody left for it."""
        self.disk.tell(str(one))
        if one.what == "another driver":
            if self.drivers and not self.finished:
                self.start()
            return
        if one.what.endswith("driver"):
            running = [(p, s) for p, f, s in self.drivers if not f.ended and not p.dead]
            if not running:
                return
            process, stop = running[int(one.whom * len(running))]
            if one.what == "kill driver":
                process.kill()
            elif one.what == "pause driver":
                process.pause(one.seconds)
            else:
                stop.signal = 15
            return
        workers = [*self.cluster.workers.values()]
        if workers:
            worker = workers[int(one.whom * len(workers))]
            if one.what == "kill worker":
                worker.process.kill()
            else:
                worker.silent(one.seconds, paused=one.what == "pause worker")
                self.loop.at(
                    HEARTBEAT_TIMEOUT_SECONDS, partial(self.noticed, worker, worker.silent_since)
                )

    def noticed(self, worker: Any, since: float) -> None:
        """Its peers have not heard of a worker for too long."""
        if worker.silent_since == since:
            self.net.cut(worker.process)

    def check(self) -> None:
        """What was kept is what the undisturbed run gives."""
        models: list[Any] = []
        found = load(Quiet(self.disk), receiving(models, self.job, self.work))
        self.disk.loaded(found, self.disk.made)
        model: Any = models[-1]
        assert model.finished, "the newest commit is not of a finished run"
        got = (model.state.cells.tobytes(), model.state.clock, tuple(model.metrics.rows))
        assert got == expected(self.job), "other bits than those of the undisturbed run"


class Quiet(SimStore):
    """A store for who looks at it in the end."""

    def _asked(self, deed: str, name: str, act: Any, *, changes: bool = False) -> Any:
        return act()


def a_job(draw: Any) -> Job:
    """Some job; few kinds, so that what each must give is computed once."""
    mode = draw.choice(("averaged", "sharded", "sharded"))
    parts, shards = draw.choice((2, 3, 5)), draw.choice(((7, 12), (20,), (5, 0, 9)))
    epochs, rounds = draw.choice((1, 2)), draw.choice((1, 2))
    return Job(mode, parts, epochs, rounds, draw.choice((0, 4, 8)), draw.choice((1, 3)), shards)


KINDS = {
    "kill worker": 4,
    "pause worker": 4,
    "cut worker": 2,
    "kill driver": 3,
    "pause driver": 3,
    "another driver": 1,
    "stop driver": 1,
}


def some(draw: Any) -> list[Misfortune]:
    """None to five misfortunes."""
    last = draw.choice((1.5, 4.0, 12.0, 60.0))
    whats = draw.choices([*KINDS], [*KINDS.values()], k=draw.randint(0, 5))
    return [
        Misfortune(
            draw.uniform(0.0, last),
            what,
            draw.random(),
            draw.choice((1.0, 5.0, 20.0, 45.0, 90.0)) * draw.uniform(0.5, 1.0),
        )
        for what in whats
    ]
