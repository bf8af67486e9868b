"""follow: shards are learned as they arrive, each once, and nothing that happens loses a row."""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest
from killing import start, wait_until
from noted import listening
from running import Impatient, rows, run, train, write
from scripted import Script
from test_update import ROWS, figures, listed, shard, update, whole, words

import streamomd
from streamomd.checkpoint.stores.local import LocalStore
from streamomd.core.errors import (
    AlertError,
    ConcurrentWriterError,
    InputNotFoundError,
    ResumeRefusedError,
    StoppedError,
    StorageError,
)
from streamomd.runs import update_run as updating
from streamomd.runs.follow import Follower, follow_to_end
from streamomd.runs.follow_alerts import Landings
from streamomd.runs.reporting import Reporting, log_events
from streamomd.runs.update_run import UpdateRun
from streamomd.shards.shard import Listed
from streamomd.sources import folder_watch
from streamomd.sources.folder_watch import FileWatch, FolderWatch, watch_sources


def begin(tmp_path: Path, count: int = 1, *more: object) -> tuple[Path, Path]:
    """A finished run of some shards: their directory, and its URL."""
    folder, url = tmp_path / "shards", tmp_path / "run"
    for number in range(count):
        shard(folder, number)
    train(*words(folder, url, *more))
    return folder, url


def arrivals(script: Script, folder: Path, numbers: range, every: float) -> None:
    """A shard every so many seconds."""
    for at, number in enumerate(numbers):

        def arrive(number: int = number) -> None:
            script.touched(shard(folder, number))

        script.actions.append((every * (at + 1), arrive))


def followed(follower: Follower) -> tuple[dict[str, Any], list[str]]:
    """The result of following to the end, and the notes."""
    notes: list[str] = []
    with listening(notes.append):
        model, told = follow_to_end(follower)
    return {**model.result(), **told}, notes


def test_what_arrives_is_learned_with_the_bits_of_one_run(tmp_path: Path) -> None:
    folder, url = begin(tmp_path)
    script = Script()
    arrivals(script, folder, range(1, 5), 100.0)
    told, notes = followed(script.follower(url, every=60.0, settle=30.0, idle_exit=500.0))
    assert figures(told) == whole(tmp_path, 5)
    assert (told["new_shards"], told["new_rows"]) == (4, 4 * ROWS)
    assert told["update"]["rows"] == 4 * ROWS
    assert [one.get("update", 0) for one in listed(url)] == [0, 1, 2, 3, 4]
    assert len([line for line in notes if line.startswith("update ")]) == 4
    assert 900 < script.now < 1000  # the last arrived after 400 seconds


def test_a_line_and_an_event_have_lag_and_freshness(tmp_path: Path) -> None:
    """A shard lands 50 s after the start, and is 30 s old when it is learned: a watch wakes it."""
    folder, url = begin(tmp_path)
    script, log = Script(), tmp_path / "log.jsonl"
    arrivals(script, folder, range(1, 2), 50.0)
    follower = script.follower(url, settle=30.0, idle_exit=100.0)
    with log_events(str(log)):
        told, notes = followed(follower)
    events = [json.loads(line) for line in log.read_text().splitlines()]
    (event,) = [one for one in events if one["event"] == "update"]
    assert (event["number"], event["new_shards"], event["new_rows"]) == (1, 1, ROWS)
    assert (event["rows"], event["commit"]) == (2 * ROWS, told["checkpoint"]["sequence"])
    assert event["loss"] == told["loss"]
    assert event["update"] == told["update"]
    assert event["lag"] == 0.0
    assert 30.0 <= event["freshness"] < 31.0
    assert event["freshness"] == told["freshness"]
    (line,) = [line for line in notes if line.startswith("update 1: 1 shard (120 rows), loss ")]
    assert f"freshness {event['freshness']:.1f} s; commit {event['commit']}" in line


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_while_nothing_is_learned_ends_it(tmp_path: Path, number: int) -> None:
    _, url = begin(tmp_path)
    script = Script()
    script.actions.append((100.0, lambda: script.stop.receive(number, None)))
    with pytest.raises(StoppedError, match="commit 2; continue with: streamomd follow") as problem:
        followed(script.follower(url))
    assert problem.value.exit_code == 128 + number
    assert script.now < 101.0


def test_a_signal_while_a_list_is_learned_leaves_it_to_be_finished(tmp_path: Path) -> None:
    folder, url = begin(tmp_path)
    for number in range(1, 5):
        shard(folder, number)
    script = Script()
    follower = script.follower(url, settle=0.0)

    class Stopping(Impatient):
        def update(self, metrics: Any) -> None:
            if metrics.total_rows >= self.next_row:
                script.stop.signal = signal.SIGTERM

    follower.run.watchers = [Stopping(2 * ROWS + 50)]
    with pytest.raises(StoppedError) as problem:
        followed(follower)
    assert problem.value.exit_code == 143
    model = streamomd.load(str(url))
    assert not model.finished
    assert ROWS < model.metrics.total_rows < 5 * ROWS
    shard(folder, 5)
    told, _ = followed(Script().follower(url, settle=0.0, idle_exit=10.0))
    assert figures(told) == whole(tmp_path, 6)
    assert [one.get("update", 0) for one in listed(url)] == [0, 1, 1, 1, 1, 2]


def test_a_first_run_that_was_interrupted_is_finished(tmp_path: Path) -> None:
    folder, url = tmp_path / "shards", tmp_path / "run"
    for number in range(3):
        shard(folder, number)
    with pytest.MonkeyPatch.context() as patch:
        watch = lambda *_: [Impatient(150)]  # noqa: E731
        patch.setattr(Reporting, "watchers", watch)
        run("train", *words(folder, url))
    shard(folder, 3)
    told, notes = followed(Script().follower(url, settle=0.0, idle_exit=10.0))
    assert figures(told) == whole(tmp_path, 4)
    assert (told["new_shards"], told["new_rows"]) == (1, ROWS)
    assert any(line.startswith("first run: 3 shards (360 rows)") for line in notes)


def test_sources_that_cannot_be_reached_are_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With pauses that double up to five minutes; the note comes once."""
    folder, url = begin(tmp_path)
    script, plain, failed = Script(), updating.list_shards, []
    arrivals(script, folder, range(1, 2), 50.0)

    def flaky(*given: Any, **more: Any) -> Any:
        if 20.0 < script.now < 2000.0:
            failed.append(script.now)
            raise StorageError("s3://rows cannot be reached")
        return plain(*given, **more)

    monkeypatch.setattr(updating, "list_shards", flaky)
    follower = script.follower(url, every=10.0, settle=0.0, idle_exit=300.0)
    opened = follower.run
    told, notes = followed(follower)
    pauses = [round(b - a) for a, b in itertools.pairwise(failed)]
    assert pauses == [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300, 300, 300]
    assert len([line for line in notes if "cannot be reached" in line]) == 1
    assert len([line for line in notes if line.startswith("the store answers again, after ")]) == 1
    assert follower.run is opened
    assert figures(told) == whole(tmp_path, 2)


def test_a_directory_that_vanishes_is_an_outage_but_not_at_first(tmp_path: Path) -> None:
    folder, url = begin(tmp_path)
    script, away = Script(), tmp_path / "away"
    script.actions += [(100.0, lambda: folder.rename(away)), (500.0, lambda: away.rename(folder))]
    _, notes = followed(script.follower(url, idle_exit=600.0))
    assert len([line for line in notes if "no such file or directory" in line]) == 1
    folder.rename(away)
    with pytest.raises(InputNotFoundError):
        followed(Script().follower(url))


def outage(monkeypatch: pytest.MonkeyPatch, first: int, count: int) -> list[int]:
    """The store's operations number ``first`` … fail, ``count`` of them; half are carried out."""
    done = [0]
    for name in ("put", "create", "delete", "read", "names"):
        plain = getattr(LocalStore, name)

        def flaky(self: LocalStore, *given: Any, plain: Any = plain) -> Any:
            number, done[0] = done[0], done[0] + 1
            if first <= number < first + count:
                if number % 2:
                    plain(self, *given)
                raise StorageError("the disk does not answer")
            return plain(self, *given)

        monkeypatch.setattr(LocalStore, name, flaky)
    return done


def outages(step: int) -> Iterator[tuple[int, int]]:
    for first in range(0, 75, step):
        yield first, 1 + first % 7


@pytest.mark.parametrize("step", [18, pytest.param(1, marks=pytest.mark.slow)])
def test_a_checkpoint_that_cannot_be_reached_loses_nothing(
    tmp_path: Path, step: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whichever operations of its store fail, and whether they were carried out."""
    expected, reached = whole(tmp_path, 4), 0
    for first, count in outages(step):
        folder, url = begin(tmp_path / str(first))
        script = Script()
        arrivals(script, folder, range(1, 4), 5.0)
        follower = script.follower(url, every=1.0, settle=0.0, idle_exit=700.0)
        with monkeypatch.context() as patch:
            done = outage(patch, first, count)
            try:
                told, notes = followed(follower)
            except ConcurrentWriterError:
                # Its own take-over had succeeded; a process that is started again continues.
                told, notes = followed(Script().follower(url, settle=0.0, idle_exit=9.0))
        assert figures(told) == expected
        reached += done[0] > first
        assert len([line for line in notes if "trying again" in line]) <= count
        assert [Path(one["url"]).name for one in listed(url)] == [
            f"part={number}.parquet" for number in range(4)
        ]
    assert reached > 2


def test_lag_is_reported_once_until_it_is_below(tmp_path: Path) -> None:
    """A shard without a footer cannot be learned; it is repaired later."""
    folder, url = begin(tmp_path)
    script, log = Script(), tmp_path / "log.jsonl"
    path = folder / "part=1.parquet"

    def incomplete() -> None:
        path.write_bytes(b"PAR1")
        script.touched(path)

    script.actions += [
        (100.0, incomplete),
        (2000.0, lambda: script.touched(shard(folder, 1))),
        (4000.0, lambda: path.with_name("part=2.parquet").write_bytes(b"PAR1")),
    ]
    follower = script.follower(url, max_lag="10m", idle_exit="2h")
    with log_events(str(log)):
        told, notes = followed(follower)
    events = [json.loads(line) for line in log.read_text().splitlines()]
    lags = [one for one in events if one["event"] == "lag"]
    assert [600 < one["lag"] < 700 for one in lags] == [True, True]
    assert [(one["max_lag"], Path(one["url"]).name) for one in lags] == [
        (600.0, "part=1.parquet"), (600.0, "part=2.parquet"),
    ]  # fmt: skip
    assert len([line for line in notes if "above update.max_lag = 600 s" in line]) == 3
    assert len([line for line in notes if line.startswith("skipped")]) == 2
    assert told["lag"] > 7000
    assert told["new_shards"] == 1


def test_an_alert_ends_it_where_the_job_says_so(tmp_path: Path) -> None:
    folder, url = begin(tmp_path)
    path = folder / "part=1.parquet"
    path.write_bytes(b"PAR1")
    script = Script()
    script.touched(path)
    with pytest.raises(AlertError, match=r"lag 6\d\d s is above") as problem:
        followed(script.follower(url, max_lag=600.0, fail_on_alert=True))
    assert problem.value.exit_code == 7
    assert "commit 2" in str(problem.value)


def test_a_slow_list_is_an_alert_after_its_commit(tmp_path: Path) -> None:
    folder, url = begin(tmp_path)
    script = Script()
    follower = script.follower(url, settle=0.0, max_lag=60.0, fail_on_alert=True)
    script.touched(shard(folder, 1))

    class Slow(Impatient):
        def update(self, metrics: Any) -> None:
            script.now += 100.0

    follower.run.watchers = [Slow(float("inf")), *follower.run.watchers]
    with pytest.raises(AlertError):
        followed(follower)
    assert streamomd.load(str(url)).finished
    assert figures(update(url)) == whole(tmp_path, 2)


def test_a_writer_that_took_over_ends_it(tmp_path: Path) -> None:
    folder, url = begin(tmp_path)
    script = Script()
    arrivals(script, folder, range(1, 2), 100.0)
    script.actions.append((101.0, lambda: update(url)))
    with pytest.raises(ConcurrentWriterError) as problem:
        followed(script.follower(url))
    assert problem.value.exit_code == 5
    assert figures(update(url)) == whole(tmp_path, 2)


def test_a_rewritten_shard_ends_it(tmp_path: Path) -> None:
    folder, url = begin(tmp_path, 2)
    script = Script()
    script.actions.append((100.0, lambda: write(folder / "part=0.parquet", rows(9, first=77))))
    with pytest.raises(ResumeRefusedError, match=r"part=0\.parquet") as problem:
        followed(script.follower(url))
    assert problem.value.exit_code == 3
    followed(Script().follower(url, ignore_rewritten=True, idle_exit=200.0))


def test_notes_of_a_listing_come_once(tmp_path: Path) -> None:
    """Of deleted and touched shards, and of the sources; and a touched one is opened once."""
    folder, url = begin(tmp_path, 3)
    (folder / "part=0.parquet").unlink()
    os.utime(folder / "part=1.parquet")
    _, notes = followed(Script().follower(url, idle_exit=1000.0))
    for text in ("the checkpoint names", "1 learned shard no longer", "copied or touched"):
        assert len([line for line in notes if text in line]) == 1


def test_a_clock_that_goes_backwards_learns_each_shard_once(tmp_path: Path) -> None:
    folder, url = begin(tmp_path)
    script = Script()
    plain, jumps = script.clock.now_ns, [0]
    script.clock = replace(script.clock, now_ns=lambda: plain() - jumps[0])
    arrivals(script, folder, range(1, 4), 100.0)
    script.actions.append((150.0, lambda: jumps.__setitem__(0, 3_600 * 10**9)))
    told, _ = followed(script.follower(url, idle_exit=9_000.0))
    assert figures(told) == whole(tmp_path, 4)


def test_at_most_so_many_shards_an_update(tmp_path: Path) -> None:
    folder, url = begin(tmp_path)
    for number in range(1, 6):
        shard(folder, number)
    told, _ = followed(Script().follower(url, settle=0.0, max_shards=2, idle_exit=5.0))
    assert figures(told) == whole(tmp_path, 6)
    assert [one.get("update", 0) for one in listed(url)] == [0, 1, 1, 2, 2, 3]


class Recorder:
    """A callback that raises at the end of the second update."""

    def __init__(self, fails: bool = False) -> None:
        self.got: list[dict[str, Any]] = []
        self.fails = fails

    def on_progress(self, figures: dict[str, Any]) -> None:
        self.got.append(figures)
        if self.fails:
            raise ValueError("no")


def test_callbacks_see_one_run_with_lag_and_freshness(tmp_path: Path) -> None:
    folder, url = begin(tmp_path)
    recorder, failing = Recorder(), Recorder(fails=True)
    for number in range(1, 4):
        shard(folder, number)
    model = streamomd.follow(
        str(url), settle=0, max_shards=1, every=0.1, idle_exit=0.2, quiet=True,
        callbacks=[recorder, failing],
    )  # fmt: skip
    assert model.metrics.total_rows == 4 * ROWS
    states = [one["state"] for one in recorder.got]
    assert (states[-1], states.count("finished")) == ("finished", 1)
    assert set(states[:-1]) == {"running"}
    assert {one["rows"] for one in recorder.got} >= {2 * ROWS, 3 * ROWS, 4 * ROWS}
    assert recorder.got[-1]["lag"] == 0.0
    assert recorder.got[-1]["freshness"] > 0.0
    assert len(failing.got) == 1


def test_the_command(tmp_path: Path) -> None:
    folder, url = begin(tmp_path)
    shard(folder, 1)
    log = tmp_path / "log.jsonl"
    flags = ("--every", "100ms", "--settle", "0", "--idle-exit", "300ms", "--max-lag", "1h")
    ran = run("follow", url, *flags, "--fail-on-alert", "--log", log, "--json")
    told = ran.result
    assert figures(told) == whole(tmp_path, 2)
    assert (told["new_shards"], told["new_rows"]) == (1, ROWS)
    assert told["freshness"] > 0.0
    assert "update 1: 1 shard (120 rows)" in ran.err
    assert "no new shard in 0.3 s" in ran.err
    assert '"event": "update"' in log.read_text()
    assert len(ran.err.splitlines()) == 3
    assert run("follow", url, "--every", "0").code == 2


def test_a_process_is_stopped_by_a_signal(tmp_path: Path) -> None:
    folder, url = begin(tmp_path)
    log = tmp_path / "log.jsonl"
    process = start(["follow", str(url), "--settle", "0", "--log", str(log)], tmp_path / "out")
    shard(folder, 1)
    wait_until(lambda: log.exists() and '"update"' in log.read_text(), process)
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == 143
    assert "continue with: streamomd follow" in (tmp_path / "out").read_text()
    assert figures(update(url)) == whole(tmp_path, 2)


# Watched directories


def watch(folder: Path, *, writes: bool = False) -> FolderWatch:
    found = watch_sources([str(folder)], {}, writes=writes, report=pytest.fail)
    assert isinstance(found, FolderWatch)
    return found


def test_a_renamed_file_is_complete_and_a_written_one_is_not(tmp_path: Path) -> None:
    folder = tmp_path / "shards"
    shard(folder, 0)
    files = watch(folder)
    renamed, late = folder / "part=1.parquet", folder / "part=2.parquet"
    other = shard(tmp_path, 1)
    time.sleep(0.05)  # the clock of files has ticks
    other.rename(renamed)
    assert files.wait(10.0)
    assert files.complete() == {str(renamed): renamed.stat().st_ctime_ns}
    with late.open("wb") as file:
        file.write(b"PAR1")
        file.flush()
        assert files.wait(10.0)
        assert str(late) not in files.complete()
        time.sleep(0.2)
        file.write(b"more")
        file.flush()
        assert not files.wait(folder_watch.QUIET + 0.3)
        assert files.complete().keys() == {str(renamed)}
    with renamed.open("ab") as file:
        file.write(b"more")
    assert files.written([str(renamed)])
    assert files.complete() == {}
    files.close()


def test_a_file_renamed_within_a_tick_is_complete_after_a_second(tmp_path: Path) -> None:
    folder = tmp_path / "shards"
    folder.mkdir()
    files = watch(folder)
    path = folder / "a.parquet"
    path.write_bytes(b"PAR1")
    os.utime(path, ns=(path.stat().st_ctime_ns + 10**9,) * 2)  # no rename after the last write
    assert files.wait(10.0)
    assert files.complete() == {}
    assert files.wait(10.0)
    assert files.complete().keys() == {str(path)}
    files.forget([str(path)])
    assert files.complete() == {}
    files.close()


def test_a_renamed_shard_need_not_settle(tmp_path: Path) -> None:
    """The job's settle is an hour; a shard that was written in its place waits for that."""
    folder, url = begin(tmp_path)
    script, passed = Script(), []

    class Renaming(FolderWatch):
        def wait(self, seconds: float) -> bool:
            passed.append(seconds)
            if len(passed) == 1:
                shard(tmp_path, 1).rename(folder / "part=1.parquet")
                shard(folder, 2)
            elif len(passed) == 3:
                os.utime(folder / "part=2.parquet")  # before it was left alone for a second
            elif len(passed) > 8:
                script.stop.signal = signal.SIGTERM
            return super().wait(seconds)

    reporting = Reporting(quiet=True)
    opening = partial(
        UpdateRun.open, str(url), {}, None, None, stop=script.stop, reporting=reporting
    )
    watching = lambda *_: Renaming([str(folder)], recursive=True, writes=False)  # noqa: E731
    with pytest.raises(StoppedError):
        followed(Follower(opening, {"settle": 3600.0}, script.stop, watching))
    assert [Path(one["url"]).name for one in listed(url)] == ["part=0.parquet", "part=1.parquet"]
    assert figures(run("resume", url, "--json").result) == whole(tmp_path, 2)


def test_without_watchfiles_files_are_polled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "watchfiles", None)
    notes: list[str] = []
    found = watch_sources([str(tmp_path)], {}, writes=False, report=notes.append)
    assert type(found) is FileWatch
    assert "pip install 'streamomd[follow]'" in notes[0]
    assert found.complete() == {}
    assert not found.wait(0.01)


def test_stores_and_the_whole_disk_are_polled() -> None:
    for source in ("memory://rows/", "/*/a.parquet"):
        found = watch_sources([source], {}, writes=False, report=pytest.fail)
        assert type(found) is FileWatch


def test_directories_that_cannot_be_watched_are_polled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any, **__: Any) -> Any:
        raise OSError("the limit of inotify watches was reached")

    monkeypatch.setattr("watchfiles.watch", full)
    notes: list[str] = []
    found = watch_sources([str(tmp_path)], {}, writes=False, report=notes.append)
    assert type(found) is FileWatch
    assert "cannot be watched, new files are polled: the limit of inotify" in notes[0]


def file(name: str, mtime: float | None) -> Listed:
    return Listed(name, name, name, 1, None if mtime is None else int(mtime * 1e9))


def test_a_shard_lands_after_the_listing_that_did_not_have_it() -> None:
    """Whatever its modification time, which a copy may have from its source."""
    landings, second = Landings(), 10**9
    assert landings.look([file("a", 3.0), file("b", None)], 10 * second, {}) == 2
    assert landings.lag(11 * second) == 8.0
    assert landings.oldest() == "a"
    listing = [file("b", None), file("old", 1.0), file("new", 15.0), file("renamed", 2.0)]
    assert landings.look(listing, 20 * second, {"renamed": 18 * second}) == 3
    assert landings.landed == {
        "b": 10 * second, "old": 10 * second, "new": 15 * second, "renamed": 18 * second,
    }  # fmt: skip
    assert landings.learned(["old", "new"], 25 * second) == 15.0
    assert landings.learned(["unknown"], 25 * second) is None
    assert landings.look([file("future", 99.0)], 30 * second, {}) == 1
    assert landings.lag(30 * second) == 0.0
    assert landings.look([], 31 * second, {}) == 0
    assert (landings.lag(40 * second), landings.oldest()) == (0.0, "")


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_memory_does_not_grow_with_the_number_of_updates(tmp_path: Path) -> None:
    """2,000 updates of 20 rows: what the second thousand adds is the ledger's, a few KB a shard."""
    folder, url = begin(tmp_path)
    script, sizes = Script(), []
    for number in range(1, 2_001):

        def arrive(number: int = number) -> None:
            script.touched(write(folder / f"part={number}.parquet", rows(20, first=number)))
            if number % 500 == 0:
                sizes.append(psutil.Process().memory_info().rss >> 10)

        script.actions.append((10.0 * number, arrive))
    told, _ = followed(script.follower(url, every=10.0, settle=0.0, idle_exit=50.0))
    assert told["new_shards"] == 2_000
    print("KiB after 500, 1,000, 1,500 and 2,000 updates:", sizes)
    assert sizes[3] - sizes[1] < 8_000


@pytest.mark.slow
def test_kills_while_files_arrive_change_no_bit(tmp_path: Path) -> None:
    """60 files in 30 seconds, and kill -9 every two; benchmarks/freshness.py is the soak."""
    script = Path(__file__).parents[2] / "benchmarks" / "freshness.py"
    flags = ("--files", "60", "--rows", "1000", "--seconds", "30", "--kill-every", "2")
    done = subprocess.run(
        [sys.executable, str(script), "--soak", *flags, "--json"],
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["ok"]
    assert found["kills"] > 4
