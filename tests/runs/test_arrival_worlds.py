"""Worlds of arrivals: files, listings, clocks and processes do what they like.

Each row is learned once, and the state is that of one run over the order of the ledger.
"""

from __future__ import annotations

import random
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from running import everything, rows, train, write
from scripted import BEGIN, Script
from test_update import Killed, figures, listed

from streamomd.checkpoint.stores.local import LocalStore
from streamomd.core.errors import (
    ConcurrentWriterError,
    InputNotFoundError,
    ResumeRefusedError,
    StoppedError,
    StorageError,
)
from streamomd.runs import update_run as updating
from streamomd.runs.follow import follow_to_end
from streamomd.runs.reporting import Reporting
from streamomd.runs.update_choice import choice_of
from streamomd.runs.update_run import UpdateRun
from streamomd.training.signals import StopRequest

ROWS = 30
SETS = ("checkpoint.every_rows=25", "checkpoint.every_seconds=0", "checkpoint.aside=false")
FLAGS = [word for key in SETS for word in ("--set", key)]
OPERATIONS = ("put", "create", "delete", "read", "names")


class Stores:
    """Operations of a local store until the process ends, or the store does not answer."""

    def __init__(self, patch: pytest.MonkeyPatch, draw: random.Random) -> None:
        self.left: int | None = None
        self.failing = 0.0
        for name in OPERATIONS:
            plain = getattr(LocalStore, name)

            def operate(store: LocalStore, *given: Any, plain: Any = plain) -> Any:
                if self.left is not None:
                    if not self.left:
                        raise Killed
                    self.left -= 1
                fails = draw.random() < self.failing
                if fails and draw.random() < 0.5:
                    raise StorageError("the disk does not answer")
                found = plain(store, *given)
                if fails:
                    raise StorageError("the disk does not answer, and has done it")
                return found

            patch.setattr(LocalStore, name, operate)


class World:
    """A directory of shards, its run, and what happens to them."""

    def __init__(self, folder: Path, seed: int, patch: pytest.MonkeyPatch) -> None:
        self.draw = random.Random(seed)
        self.folder, self.archive, self.url = folder / "shards", folder / "all", folder / "run"
        self.count, self.now, self.late = 0, 0.0, set[str]()
        self.met: Counter[str] = Counter()
        self.incomplete: set[Path] = set()
        for _ in range(self.draw.randint(1, 3)):
            self.arrive()
        train(self.folder, *everything(), *FLAGS, "--checkpoint", self.url)
        self.stores = Stores(patch, self.draw)
        plain = updating.list_shards

        def listing(*given: Any, **more: Any) -> Any:
            """Some files are listed later, and in another order."""
            found = plain(*given, **more)
            files = [file for file in found.files if file.path not in self.late]
            self.draw.shuffle(files)
            return found._replace(files=files)

        patch.setattr(updating, "list_shards", listing)

    def touched(self, path: Path) -> None:
        script = Script()
        script.now = self.now
        script.touched(path)

    def arrive(self) -> None:
        """A new shard, by its name anywhere among the others, possibly listed late."""
        self.count += 1
        name = f"part={self.draw.randrange(1000)}-{self.count}.parquet"
        file = write(self.archive / name, rows(ROWS, first=self.count), row_group_size=10)
        shutil.copy(file, self.touchable(name))
        self.touched(self.folder / name)
        if self.draw.random() < 0.2:
            self.late.add(str(self.folder / name))

    def touchable(self, name: str) -> Path:
        self.folder.mkdir(exist_ok=True)
        return self.folder / name

    def begin_writing(self) -> None:
        """A shard without its end, which comes later."""
        self.arrive()
        path = (
            self.folder
            / sorted(self.archive.iterdir(), key=lambda one: one.stat().st_mtime_ns)[-1].name
        )
        path.write_bytes(path.read_bytes()[:-20])
        self.touched(path)
        self.incomplete.add(path)

    def end_writing(self) -> None:
        for path in self.incomplete:
            shutil.copy(self.archive / path.name, path)
            self.touched(path)
        self.incomplete.clear()

    def learned(self) -> list[Path]:
        return [Path(str(one["url"])) for one in listed(self.url)]

    def delete(self) -> None:
        there = [path for path in self.learned() if path.exists()]
        if there:
            self.draw.choice(there).unlink()

    def touch(self) -> None:
        there = [path for path in self.learned() if path.exists()]
        for path in self.draw.sample(there, min(2, len(there))):
            self.touched(path)

    def appear(self) -> None:
        """What was listed late is listed."""
        self.late.clear()

    def jump(self) -> None:
        """The clock goes backwards, or on."""
        self.now = max(0.0, self.now + self.draw.choice([-3600.0, 40.0, 7200.0]))

    def change(self) -> None:
        """Something happens to the files."""
        actions: list[Callable[[], None]] = [
            *([self.arrive] * 4), self.begin_writing, self.end_writing, self.delete, self.touch,
            self.appear, self.jump,
        ]  # fmt: skip
        self.draw.choice(actions)()

    def opened(self, **given: Any) -> tuple[UpdateRun, Any]:
        found = UpdateRun.open(
            str(self.url), {}, None, None, stop=StopRequest(), reporting=Reporting(quiet=True)
        )
        now = int((BEGIN + self.now) * 1e9)
        found.clock = lambda: now
        return found, choice_of(found.model.spec, {"settle": self.draw.choice([0, 30]), **given})

    def update(self) -> None:
        """An update; it may be killed, or the store may fail."""
        if self.draw.random() < 0.6:
            self.stores.left = self.draw.randrange(60)
        elif self.draw.random() < 0.5:
            self.stores.failing = 0.05
        one, choice = self.opened()
        one.catch_up(choice)

    def race(self) -> None:
        """Two updates find the same shards: the one that writes later loses, and has to say so."""
        one, choice = self.opened(settle=0)
        other, _ = self.opened()
        one.finish()
        found = [each.find(choice) for each in (one, other)]
        before = one.model.sequence
        one.learn(found[0])
        wrote = one.model.sequence > before or one.manager is not None
        try:
            other.learn(found[1])
        except ConcurrentWriterError:
            assert wrote
            self.met["5"] += 1
        else:
            assert not wrote or not len(found[1].shards)

    def follow(self) -> None:
        """A follower, while files change; it may be killed, stopped, or its store may fail."""
        script = Script()
        script.now = self.now
        for _ in range(self.draw.randint(0, 3)):
            script.actions.append((self.now + self.draw.uniform(0.0, 200.0), self.arrive))
        if self.draw.random() < 0.4:
            self.stores.left = self.draw.randrange(20, 120)
        elif self.draw.random() < 0.5:
            self.stores.failing = 0.03
        if self.draw.random() < 0.3:
            when = self.now + self.draw.uniform(0.0, 300.0)
            script.actions.append((when, lambda: setattr(script.stop, "signal", 15)))
        script.actions.sort(key=lambda one: one[0])
        settle = self.draw.choice([0.0, 30.0])
        follower = script.follower(self.url, settle=settle, idle_exit=400.0)
        try:
            follow_to_end(follower)
        finally:
            self.now = script.now

    def refuse(self) -> None:
        """A copy of a learned shard, or a rewritten one, is refused by name; then it is undone."""
        there = [path for path in self.learned() if path.exists() and str(path) not in self.late]
        if not there:
            return
        one, choice = self.opened(settle=0)
        one.finish()
        path = self.draw.choice(there)
        copied = self.draw.random() < 0.5
        wrong = self.folder / f"copy-{self.count}.parquet" if copied else path
        if copied:
            shutil.copy(path, wrong)
        else:
            write(wrong, rows(7, first=self.count + 500))
        self.touched(wrong)
        with pytest.raises(ResumeRefusedError) as problem:
            one.find(choice)
        assert problem.value.exit_code == 3
        assert wrong.name in str(problem.value)
        self.met["3"] += 1
        if copied:
            wrong.unlink()
        else:
            shutil.copy(self.archive / path.name, path)

    def step(self) -> None:
        """Files change, and a process runs; what ends it is one of the documented errors."""
        for _ in range(self.draw.randint(0, 3)):
            self.change()
        process = self.draw.choice([self.update, self.update, self.race, self.follow, self.refuse])
        try:
            process()
            self.met["0"] += 1
        except Killed:
            self.met["killed"] += 1
        except StoppedError:
            self.met["143"] += 1
        except StorageError:
            assert self.stores.failing
            self.met["1"] += 1
        except InputNotFoundError:
            self.met["2"] += 1
            self.restore()
        except ConcurrentWriterError:
            assert self.stores.failing  # its own take-over had succeeded
            self.met["5"] += 1
        finally:
            self.stores.left, self.stores.failing = None, 0.0

    def restore(self) -> None:
        """A shard was deleted whose list is recorded and not finished: it has to come back."""
        self.stores.left, self.stores.failing = None, 0.0
        for path in [path for path in self.learned() if not path.exists()]:
            shutil.copy(self.archive / path.name, path)
            self.touched(path)

    def check(self) -> None:
        """All is listed and complete: one more update, and the truths."""
        self.end_writing()
        self.appear()
        self.restore()
        one, choice = self.opened(settle=0)
        one.catch_up(choice)
        order = self.learned()
        there = {path.name for path in self.folder.iterdir()}
        names = [path.name for path in order]
        assert len(set(names)) == len(names)
        assert there <= set(names) <= {path.name for path in self.archive.iterdir()}
        numbers = [int(one.get("update", 0)) for one in listed(self.url)]
        assert numbers == sorted(numbers)
        files = [self.archive / name for name in names]
        given = ("--set", 'data.order="given"', "--checkpoint", "none")
        expected = figures(train(*files, *everything(), *FLAGS[:4], *given))
        assert figures(one.model.result()) == expected


def worlds(
    count: int, steps: int, tmp_path: Path, patch: pytest.MonkeyPatch
) -> Iterator[Counter[str]]:
    for seed in range(count):
        with patch.context() as here:
            here.setattr("os.fsync", lambda _: None)  # no world loses its power
            world = World(tmp_path / str(seed), seed, here)
            for _ in range(steps):
                world.step()
            world.check()
            yield world.met
        shutil.rmtree(tmp_path / str(seed))


@pytest.mark.parametrize(
    ("count", "steps"), [(15, 3), pytest.param(1000, 6, marks=pytest.mark.slow)]
)
def test_each_row_is_learned_once_whatever_happens(
    tmp_path: Path, count: int, steps: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    met = sum(worlds(count, steps, tmp_path, monkeypatch), Counter[str]())
    print(met)
    for what in ("0", "3", "5", "143", "killed"):
        assert met[what] > count // 100
