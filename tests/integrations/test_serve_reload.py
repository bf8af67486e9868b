"""New commits while requests are answered: each response is of one commit; a refused commit changes
nothing but what is reported."""

from __future__ import annotations

import json
import math
import re
import shutil
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from diverging import golden
from http_serving import Fixed, Served, numbered, served
from running import everything, rows, run, shards, train, write

import streamomd
from streamomd.core.errors import DivergedError, NoCommitError, StorageError
from streamomd.integrations.serve.model_reloader import (
    GATE,
    NON_FINITE,
    SCHEMA,
    UNREADABLE,
    UNTRAINED,
    CheckpointSource,
    Gate,
    ModelReloader,
    Refused,
    ReloadThread,
    Snapshot,
)

RELOADS, CLIENTS = 1000, 4


class Counting(Fixed):
    """A source whose newest commit is a number that the test sets."""

    def __init__(self) -> None:
        super().__init__(numbered(0))
        self.at = 0
        self.error: Exception | None = None

    def newest(self) -> int:
        return self.at

    def load(self, at: int) -> Snapshot:
        if self.error is not None:
            raise self.error
        return numbered(at)


def test_no_response_mixes_commits() -> None:
    """1,000 reloads while 4 clients ask, with 1 row and with 400: every number of a response is of
    its commit, and a client sees no older commit after a newer one."""
    source, wrong, seen = Counting(), list[Any](), list[set[int]]()
    done = threading.Event()

    def ask(server: Served, many: int) -> None:
        body = json.dumps([{"a": 1.0, "text": "x" * 50}] * many)
        connection, last = server.connect(), 0
        commits = set()
        while not done.is_set() or len(commits) < 2:
            connection.request("POST", "/predict", body, {"Content-Type": "application/json"})
            found = json.loads(connection.getresponse().read())
            numbers = {one[key] for one in found["predictions"] for key in one}
            if numbers != {found["commit"]} or found["commit"] < last:
                wrong.append(found)
            last = found["commit"]
            commits.add(last)
        seen.append(commits)
        connection.close()

    with served(source) as server:
        threads = [
            threading.Thread(target=ask, args=(server, 1 if n % 2 else 400)) for n in range(CLIENTS)
        ]
        for thread in threads:
            thread.start()
        for number in range(1, RELOADS + 1):
            source.at = number
            server.reloader.check()
            assert server.reloader.snapshot is not None
            done.wait(0.001)
        done.set()
        for thread in threads:
            thread.join()
        assert server.reloader.snapshot.commit == RELOADS
        assert server.reloader.results == {"loaded": RELOADS + 1}
    assert wrong == []
    assert len(seen) == CLIENTS
    assert len(set().union(*seen)) > 20


def test_not_ready_before_the_first_load() -> None:
    """/readyz and whatever needs a model is 503; the process answers."""
    with served(numbered(3), load=False) as server:
        for path in ("/readyz", "/model", "/docs", "/openapi.json"):
            answered = server.get(path)
            assert (answered.status, answered.error["code"]) == (503, "not_ready")
            assert answered.headers["retry-after"] == "1"
        assert server.post("/predict", [{"a": 1}]).status == 503
        assert server.get("/healthz").status == 200
        assert b"streamomd_ready 0" in server.get("/metrics").body
        server.reloader.load_first()
        assert server.get("/readyz").json == {"status": "ready", "commit": 3}


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """A run of two shards, to be updated."""
    shards(tmp_path / "data")
    train(tmp_path / "data", *everything(), "--checkpoint", tmp_path / "run")
    return tmp_path


def test_new_commits_are_served(checkpoint: Path) -> None:
    """Those of an update, with the figures of predict."""
    with served(CheckpointSource(str(checkpoint / "run"))) as server:
        before = server.get("/readyz").json["commit"]
        server.reloader.check()
        assert server.reloader.results == {"loaded": 1}
        write(checkpoint / "data" / "d.parquet", rows(40, first=3))
        assert run("update", checkpoint / "run", "--settle", "0").code == 0
        server.reloader.check()
        after = server.get("/readyz").json["commit"]
        assert after > before
        assert run("predict", checkpoint / "run", checkpoint / "data", "-o",
                   checkpoint / "out").code == 0  # fmt: skip
        table = pq.read_table(checkpoint / "data" / "d.parquet")
        found = server.post("/predict", table.drop_columns(["y", "w"]).to_pylist()).json
        expected = pq.read_table(next((checkpoint / "out").glob("*d*.parquet")))["score"]
        assert [one["score"] for one in found["predictions"]] == expected.to_pylist()
        assert found["commit"] == after


def test_the_names_of_features_are_not_read(checkpoint: Path) -> None:
    """Of a model of words they are megabytes of JSON, which would keep every request waiting."""
    source, wanted = CheckpointSource(str(checkpoint / "run")), rows(5).to_pylist()
    scores = streamomd.load(str(checkpoint / "run")).decision_function(rows(5)).tolist()
    for document in (checkpoint / "run").rglob("names/*.json"):
        document.write_text("damaged")
    snapshot, refused = source.load_first()
    assert refused is None
    again = source.load(snapshot.commit)
    for one in (snapshot, again):
        assert [one.scorer.score(row) for row in wanted] == scores


def test_another_schema_is_refused(checkpoint: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The old commit is served; /readyz and /metrics report the other one, the log does once."""
    with served(CheckpointSource(str(checkpoint / "run"))) as server:
        old = server.get("/readyz").json["commit"]
        train(checkpoint / "data", *everything("n"), "--set", "data.ignore=[\"k\",\"c\"]",
              "--checkpoint", checkpoint / "run", "--restart")  # fmt: skip
        capsys.readouterr()
        for _ in range(3):
            server.reloader.check()
        found = server.get("/readyz").json
        assert found["commit"] == old
        assert found["refused"]["reason"] == SCHEMA
        lines = capsys.readouterr().err.splitlines()
        assert len(lines) == 1
        assert "columns -k" in lines[0]
        assert f"still serving commit {old}" in lines[0]
        metrics = server.get("/metrics").body.decode()
        assert f"streamomd_commit {float(old)}\n" in metrics
        assert f"streamomd_commit_refused {float(found['refused']['commit'])}\n" in metrics
        assert 'streamomd_reloads_total{result="refused"} 1.0\n' in metrics


def test_a_run_that_starts_over_is_not_served_before_it_learned(checkpoint: Path) -> None:
    """Its first commit predicts the same for every row; the last one is served."""
    with served(CheckpointSource(str(checkpoint / "run"))) as server:
        old = server.get("/readyz").json["commit"]
        bad = rows(40)
        none = pa.nulls(40, bad.schema.field("n").type)
        bad = bad.set_column(bad.schema.get_field_index("n"), "n", none)
        write(checkpoint / "bad" / "a.parquet", bad)
        assert run("train", checkpoint / "bad", *everything(), "--checkpoint", checkpoint / "run",
                   "--restart").code == 2  # fmt: skip
        server.reloader.check()
        found = server.get("/readyz").json
        assert (found["commit"], found["refused"]["reason"]) == (old, UNTRAINED)
        train(checkpoint / "data", *everything(), "--checkpoint", checkpoint / "run")
        server.reloader.check()
        assert server.get("/readyz").json["commit"] > old


def bad_day(checkpoint: Path, seed: int) -> Path:
    """A shard whose labels are the others'."""
    table = rows(60, first=seed)
    swapped = pa.array([1 - one for one in table["y"].to_pylist()])
    table = table.set_column(table.schema.get_field_index("y"), "y", swapped)
    return write(checkpoint / "data" / f"u{seed}.parquet", table)


@pytest.mark.parametrize("is_evaluated", [False, True])
def test_a_bad_day_is_not_served(
    checkpoint: Path, is_evaluated: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    """By the loss of the update's rows, or of given rows; also by a server that starts later. The
    next commit within the bound is served."""
    url, good = str(checkpoint / "run"), write(checkpoint / "good.parquet", rows(60, first=5))
    figures = run("evaluate", url, good, "--json").result
    most = 1.2 * figures["loss"] if is_evaluated else 1.2 * streamomd.load(url).result()["loss"]
    gate = Gate.parse(f"loss <= {most}", (str(good),) if is_evaluated else ())
    with served(CheckpointSource(url, gate=gate)) as server:
        old = server.get("/readyz").json["commit"]
        for number in range(3):
            bad_day(checkpoint, 20 + number)
        assert run("update", url, "--settle", "0").code == 0
        capsys.readouterr()
        for _ in range(3):
            server.reloader.check()
        found = server.get("/readyz").json
        assert (found["commit"], found["refused"]["reason"]) == (old, GATE)
        (line,) = capsys.readouterr().err.splitlines()
        assert re.search(r"commit \d+ refused: its loss on the rows of .* is [\d.]+, over", line)
        metrics = server.get("/metrics").body.decode()
        assert f"streamomd_commit_refused {float(found['refused']['commit'])}\n" in metrics
        assert 'streamomd_reloads_total{result="refused"} 1.0\n' in metrics
        later = ModelReloader(CheckpointSource(url, gate=gate))
        later.load_first()
        assert later.snapshot is not None
        assert later.refused == Refused(found["refused"]["commit"], GATE)
        # An update begins with a commit of the model before it.
        assert later.snapshot.rows == server.reloader.snapshot.rows
        without = ModelReloader(CheckpointSource(url))
        without.load_first()
        assert without.snapshot.commit == found["refused"]["commit"]
        for number in range(2):
            good_days = [rows(200, first=10 * number + one) for one in range(9)]
            write(checkpoint / "data" / f"v{number}.parquet", pa.concat_tables(good_days))
            assert run("update", url, "--settle", "0").code == 0
        server.reloader.check()
        found = server.get("/readyz").json
        assert found["commit"] > old
        assert "refused" not in found


def test_no_commit_within_the_bound(checkpoint: Path) -> None:
    """A server that starts serves none, and says so."""
    source = CheckpointSource(str(checkpoint / "run"), gate=Gate.parse("error<=1e-9"))
    with pytest.raises(NoCommitError, match="no commit that passes --gate"):
        ModelReloader(source).load_first()


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["--gate", "loss<0.3"], "--gate 'loss<0.3': expected loss, error or rmse"),
        (["--gate", "loss<=1.2.3"], "--gate"),
        (["--gate", "loss<=nan"], "--gate"),
        (["--gate-rows", "x"], "--gate-rows is for --gate"),
        (["--gate", "rmse<=1", "--port", "0"], "this model has no rmse; use loss"),
        (["--gate", "loss<=1", "--gate-rows", "nowhere", "--port", "0"], "nowhere"),
    ],
)
def test_what_is_no_gate(checkpoint: Path, words: list[str], text: str) -> None:
    """Each is refused before anything is served."""
    done = run("serve", checkpoint / "run", *words)
    assert (done.code, text in done.err) == (2, True), done.err


@pytest.mark.parametrize(
    ("error", "reason", "result"),
    [(DivergedError("slot 'w' of coordinate 3 is nan"), NON_FINITE, "refused"),
     (StorageError("no answer from s3://key:secret@bucket/x"), UNREADABLE, "failed"),
     (NoCommitError("torn"), UNREADABLE, "failed"), (MemoryError(), UNREADABLE, "failed"),
     (ZeroDivisionError("a defect"), UNREADABLE, "failed")],
)  # fmt: skip
def test_whatever_a_commit_does_the_old_one_is_served(
    error: Exception, reason: str, result: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """A commit that is not finite is looked at once, one that cannot be read until it can."""
    source = Counting()
    with served(source) as server:
        source.at, source.error = 1, error
        for _ in range(3):
            server.reloader.check()
        assert server.reloader.refused == Refused(1, reason)
        assert server.get("/readyz").json["refused"] == {"commit": 1, "reason": reason}
        assert server.post("/predict", [{"a": 1.0}]).json["commit"] == 0
        assert server.reloader.results[result] == (1 if result == "refused" else 3)
        lines = capsys.readouterr().err.splitlines()
        assert len(lines) == 1, lines
        assert "secret" not in lines[0]
        source.at, source.error = 2, None
        server.reloader.check()
        assert server.get("/readyz").json == {"status": "ready", "commit": 2}


def test_a_diverged_run_serves_its_last_finite_commit(tmp_path: Path) -> None:
    """The newer ones are reported."""
    reloader = ModelReloader(CheckpointSource(str(golden(tmp_path / "run"))))
    reloader.load_first()
    assert reloader.snapshot is not None
    assert (reloader.snapshot.commit, reloader.refused) == (2, Refused(5, NON_FINITE))


def test_a_damaged_commit_is_tried_again(checkpoint: Path) -> None:
    """A part that is not there yet: the old commit is served until it is."""
    url = checkpoint / "run"
    with served(CheckpointSource(str(url))) as server:
        old = server.reloader.snapshot.commit
        write(checkpoint / "data" / "d.parquet", rows(40, first=3))
        assert run("update", url, "--settle", "0").code == 0
        (part,) = sorted(url.rglob("*.safetensors*"))[-1:]
        shutil.move(part, checkpoint / "part")
        server.reloader.check()
        assert server.reloader.refused.reason == UNREADABLE
        assert server.get("/readyz").json["commit"] == old
        shutil.move(checkpoint / "part", part)
        server.reloader.check()
        assert server.get("/readyz").json["commit"] > old
        assert server.reloader.refused is None


def test_a_row_with_an_infinite_score_is_null() -> None:
    """A finite model of extreme values, too."""
    found = numbered(1)
    found.scorer.many = lambda given: ([None], np.array([math.nan]), np.array([math.inf]))
    with served(found) as server:
        one = {"prediction": None, "score": None, "probability": None}
        assert server.post("/predict", [{"a": 1}]).json == {"predictions": [one], "commit": 1}


@pytest.mark.slow
def test_threads_switch_often_while_a_commit_is_loaded() -> None:
    """So an answer waits less for the interpreter; afterwards the interval is the former one."""
    before, seen = sys.getswitchinterval(), list[float]()

    class Slow(Counting):
        def newest(self) -> int:
            seen.append(sys.getswitchinterval())
            raise StorageError("made up")

    thread = ReloadThread(ModelReloader(Slow()), 0.001, lambda: None)
    thread.start()
    while not seen:
        time.sleep(0.001)
    thread.stop()
    thread.join()
    assert seen[0] < before / 10
    assert sys.getswitchinterval() == before


def test_a_run_is_updated_under_load(checkpoint: Path) -> None:
    """12 updates, while a thread reloads and 3 clients ask: equal rows have one score in a
    response, and one in all responses of a commit."""
    body = rows(1).drop_columns(["y", "w", "c"]).to_pylist() * 20
    scores, wrong, done = dict[int, Any](), list[Any](), threading.Event()

    def ask(server: Served) -> None:
        while not done.is_set():
            found = server.post("/predict", body).json
            (one,) = {each["score"] for each in found["predictions"]}
            if scores.setdefault(found["commit"], one) != one:
                wrong.append(found)

    with served(CheckpointSource(str(checkpoint / "run")), load=False) as server:
        thread = ReloadThread(server.reloader, 0.01, lambda: None)
        thread.start()
        while server.reloader.snapshot is None:
            done.wait(0.01)
        clients = [threading.Thread(target=ask, args=(server,)) for _ in range(3)]
        for client in clients:
            client.start()
        for number in range(12):
            write(checkpoint / "data" / f"u{number:03}.parquet", rows(40, first=10 + number))
            assert run("update", checkpoint / "run", "--settle", "0").code == 0
        newest = server.reloader.source.newest()
        while server.reloader.snapshot.commit != newest:
            done.wait(0.01)
        done.wait(0.2)
        done.set()
        for client in clients:
            client.join()
        thread.stop()
        thread.join()
    assert wrong == []
    assert len(scores) > 5
    assert newest in scores
