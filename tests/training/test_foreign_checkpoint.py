"""What a foreign checkpoint makes a command do: nothing outside its own folder and data.

The author of a manifest names a cluster, a cache, a log and trackers; a rogue scheduler waits for
connections, and answers them with a pickled payload.
"""

from __future__ import annotations

import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import dask
import pytest
from caching import settled
from rogue import Rogue, forge, forged, rogue
from running import Ran, everything, rows, run, shards, train, write

import streamomd
from streamomd.config.settings import seconds
from streamomd.integrations.mlflow import dataset_fingerprint
from streamomd.integrations.serve.model_reloader import CheckpointSource
from streamomd.runs import modes

assert seconds("connect")  # the defaults are there before a test changes them


@pytest.fixture
def scheduler(tmp_path: Path) -> Iterator[Rogue]:
    """A rogue scheduler."""
    with rogue(tmp_path / "trace") as found, dask.config.set({"streamomd.connect-seconds": 3}):
        yield found


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three shards."""
    folder = tmp_path_factory.mktemp("foreign") / "data"
    shards(folder)
    return folder


@pytest.fixture(scope="module")
def honest(data: Path) -> Path:
    """The unchanged checkpoint of a finished run."""
    train(data, *everything(), "--checkpoint", data.parent / "run")
    return data.parent / "run"


@pytest.fixture
def foreign(honest: Path, tmp_path: Path, scheduler: Rogue) -> Path:
    """The same with a cluster and a cache in its manifests."""
    return hostile(honest, tmp_path, scheduler)


def hostile(kept: Path, folder: Path, scheduler: Rogue) -> Path:
    """A copy that names the rogue scheduler, a cache, and a learner on a worker."""
    cluster = {"scheduler": scheduler.address, "learner": "worker", "decode": "remote"}
    return forged(kept, folder / "evil", cluster=cluster, data={"cache": str(folder / "filled")})


def untouched(scheduler: Rogue, folder: Path) -> bool:
    """Whether there was no connection, nothing was unpickled, and the named cache was not made."""
    made = [folder / "trace", folder / "filled"]
    return not scheduler.connections and not any(path.exists() for path in made)


def test_the_rogue_scheduler_runs_code_of_whoever_connects(
    foreign: Path, scheduler: Rogue, tmp_path: Path
) -> None:
    """A person who names it on the command line unpickles its payload: so the tests below can
    fail."""
    done = run("resume", foreign, "--epochs", 2, "--scheduler", scheduler.address)
    assert done.code == 1
    assert scheduler.connections
    assert scheduler.trace.exists()


def test_a_process_that_resumes_connects_nowhere(
    foreign: Path, scheduler: Rogue, tmp_path: Path
) -> None:
    """As a person starts it, with nothing but the URL: it learns here, and exits with 0."""
    words = [sys.executable, "-m", "streamomd", "resume", str(foreign), "--epochs", "2"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert f"this run used the cluster {scheduler.address}" in done.stderr
    assert untouched(scheduler, tmp_path)


COMMANDS: dict[str, list[str]] = {
    "resume": ["resume", "URL"],
    "resume --epochs": ["resume", "URL", "--epochs", "2"],
    "evaluate": ["evaluate", "URL", "DATA"],
    "evaluate --by": ["evaluate", "URL", "DATA", "--by", "h"],
    "predict": ["predict", "URL", "DATA", "--to", "OUT"],
    "inspect": ["inspect", "URL"],
    "certify": ["certify", "URL", "DATA"],
    "report": ["report", "URL", "DATA", "-o", "OUT"],
    "watch": ["watch", "URL", "--once"],
    "export": ["export", "URL", "--as", "parquet", "--to", "OUT.parquet"],
    "checkpoint list": ["checkpoint", "list", "URL"],
    "checkpoint verify": ["checkpoint", "verify", "URL"],
    "checkpoint shards": ["checkpoint", "shards", "URL"],
    "checkpoint restore": ["checkpoint", "restore", "URL", "--at", "1"],
    "train --start": ["train", "DATA", *everything(), "--start", "URL", "--checkpoint", "OUT"],
    "plan --start": ["plan", "DATA", *everything(), "--start", "URL"],
    "sweep --start": ["sweep", "DATA", *everything(), "--start", "URL", "--grid", "eta=0.5",
                      "--checkpoint", "OUT"],
}  # fmt: skip


@pytest.mark.parametrize("name", COMMANDS)
@pytest.mark.sample(2)
def test_no_command_obeys_a_foreign_cluster_or_cache(
    name: str, foreign: Path, data: Path, scheduler: Rogue, tmp_path: Path
) -> None:
    """Every command that opens a checkpoint succeeds without a connection to the scheduler that it
    names, and without the folder that it names. All but resume succeed without its shards."""
    if name != "resume --epochs":
        gone = {"shards": [str(tmp_path / "gone.parquet"), "http://127.0.0.1:1/x"]}
        foreign = forged(foreign, tmp_path / "gone", data=gone)
    places = {"URL": foreign, "DATA": data, "OUT": tmp_path / "out", "OUT.parquet": tmp_path / "o"}
    done = run(*[places.get(word, word) for word in COMMANDS[name]])
    assert done.code == 0, done.err
    assert ("the checkpoint names the shards" in done.err) == name.startswith("resume")
    assert untouched(scheduler, tmp_path)


PYTHON: dict[str, Callable[[Path, Path], object]] = {
    "load": lambda url, data: streamomd.load(str(url)),
    "load at": lambda url, data: streamomd.load(str(url), at=1),
    "resume": lambda url, data: streamomd.resume(str(url), sets={"train.epochs": 2}, quiet=True),
    "evaluate": lambda url, data: streamomd.load(str(url)).evaluate(str(data), quiet=True),
    "serve": lambda url, data: CheckpointSource(str(url)).load_first(),
    "fingerprint": lambda url, data: dataset_fingerprint(streamomd.load(str(url))),
    "to_estimator": lambda url, data: streamomd.load(str(url)).to_estimator().to_model(),
}


@pytest.mark.parametrize("name", PYTHON)
def test_no_function_obeys_a_foreign_cluster_or_cache(
    name: str, foreign: Path, data: Path, scheduler: Rogue, tmp_path: Path
) -> None:
    """The same of Python's functions; a loaded model's job has neither cluster nor cache."""
    PYTHON[name](foreign, data)
    assert untouched(scheduler, tmp_path)
    spec = streamomd.load(str(foreign)).spec
    assert (spec.cluster, spec.data.cache) == (type(spec.cluster)(), "")
    assert spec.checkpoint.url == str(foreign)


@pytest.mark.parametrize("mode", ["sharded", pytest.param("averaged", marks=pytest.mark.slow)])
def test_the_other_modes_learn_here(
    mode: str, data: Path, scheduler: Rogue, tmp_path: Path
) -> None:
    """Without --scheduler sharded mode resumes in this process, averaged mode on a local cluster:
    with the bits of a run that names no cluster."""
    small = ["--set", "train.parts=2", "--mode", mode]
    url = tmp_path / "run"
    train(data, *everything(), *small, "--checkpoint", url)
    evil = hostile(url, tmp_path, scheduler)
    expected = run("resume", url, "--epochs", 2, "--json").result["state_sha256"]
    found = run("resume", evil, "--epochs", 2, "--json")
    assert found.result["state_sha256"] == expected
    assert untouched(scheduler, tmp_path)
    assert ("cluster tls://127.0.0.1" in found.err.split(scheduler.address)[-1]) == (
        mode == "averaged"
    )


def test_sharded_mode_refuses_a_state_larger_than_memory(
    data: Path, scheduler: Rogue, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Exit 2 with the bytes needed and available, before the state is read or a commit made; a
    finished run still prints its result."""
    url = tmp_path / "run"
    result = train(data, *everything(), "--mode", "sharded", "--checkpoint", url)
    needed = streamomd.load(str(url)).state.layout.nbytes
    before = sorted(url.rglob("*"))
    monkeypatch.setattr(modes, "available_memory", lambda: needed - 1)
    done = run("resume", url, "--epochs", 2)
    assert done.code == 2
    assert f"needs {needed:,} bytes, and {needed - 1:,} bytes of memory are available" in done.err
    assert "--scheduler" in done.err
    assert sorted(url.rglob("*")) == before
    assert run("resume", url, "--json").result["state_sha256"] == result["state_sha256"]
    monkeypatch.setattr(modes, "available_memory", lambda: needed)
    assert run("resume", url, "--epochs", 2).code == 0


def test_a_sweep_obeys_no_foreign_cluster_or_cache(
    data: Path, scheduler: Rogue, tmp_path: Path
) -> None:
    """Neither do its learners, each of which has a manifest of its own."""
    words = [data, *everything(), "--grid", "eta=0.1,0.5", "--checkpoint", tmp_path / "sweep"]
    assert run("sweep", *words).code == 0
    evil = hostile(tmp_path / "sweep", tmp_path, scheduler)
    done = run("resume", evil, "--epochs", 2)
    assert done.code == 0, done.err
    assert untouched(scheduler, tmp_path)
    folder = tmp_path / "filled"
    assert f"--cache {folder}" in done.err
    settled(data)
    assert run("resume", evil, "--epochs", 3, "--cache", folder).code == 0
    assert list(folder.iterdir())


def test_logs_and_trackers_of_a_manifest_are_refused(honest: Path, tmp_path: Path) -> None:
    """No key of a job holds a log or a tracker; elsewhere in a manifest they mean nothing."""
    log = tmp_path / "log.jsonl"
    evil = forged(honest, tmp_path / "evil")
    found = {"log": str(log), "track": [f"tensorboard:{log}"], "callbacks": [str(log)]}
    forge(evil, lambda document: document.update(found))
    assert run("resume", evil, "--epochs", 2).code == 0
    evil = forged(honest, tmp_path / "worse", train={"log": str(log)})
    assert run("resume", evil).code == 2
    assert not log.exists()


def test_resume_names_the_flags_that_use_the_cluster_and_the_cache_again(
    foreign: Path, scheduler: Rogue, tmp_path: Path
) -> None:
    """On stderr, to be pasted; also by the next resume, after commits that used neither."""
    for epochs in (2, 3):
        printed = run("resume", foreign, "--epochs", epochs).err
        assert f"this run used the cluster {scheduler.address}; a checkpoint does not" in printed
        flags = f"--scheduler {scheduler.address} --set cluster.learner=worker"
        assert f"streamomd resume {foreign} {flags} --set cluster.decode=remote\n" in printed
        assert f"streamomd resume {foreign} --cache {tmp_path / 'filled'}\n" in printed
    printed = run("resume", foreign, "--epochs", 4, "--scheduler", "", "--cache", "").err
    assert "this run used" not in printed
    assert "this run used" not in run("resume", foreign).err  # it is finished


@pytest.mark.parametrize(
    "address", ["tcp://h:1; touch /tmp/x", "tcp://h:1\nstreamomd: ok\x1b[31m", "tcp://u:pass@h:1"]
)
def test_a_hint_is_text_and_no_command(address: str, honest: Path, tmp_path: Path) -> None:
    """Whatever the manifest records, the line can be printed and pasted: one word, no secret."""
    evil = forged(honest, tmp_path / "evil", cluster={"scheduler": address})
    lines = run("resume", evil, "--epochs", 2).err.splitlines()
    [line] = [line for line in lines if "this run used the cluster" in line]
    assert line.isprintable()
    assert "pass" not in line
    words = shlex.split(line.rpartition("streamomd resume ")[2].replace("$'", "'"))
    assert words[1] == "--scheduler"
    assert len(words) == 3


@pytest.mark.parametrize(
    "cluster", [7, {"scheduler": 7}, {"scheduler": ["x"]}, {"cluster": "os:abort"}]
)
def test_a_cluster_that_makes_no_sense_means_nothing(
    cluster: Any, honest: Path, tmp_path: Path
) -> None:
    """It is not obeyed, so it is no reason to refuse a model."""
    evil = forged(honest, tmp_path / "evil")
    forge(evil, lambda document: document["job"].update(cluster=cluster))
    done = run("resume", evil, "--epochs", 2)
    assert done.code == 0, done.err
    assert "this run used" not in done.err


def figures_of(done: Ran) -> dict[str, Any]:
    """Figures that the same rows give, however they are read."""
    result = done.result
    return {key: result[key] for key in ("rows", "loss", "error")}


def test_evaluate_certify_and_report_read_the_cache_that_is_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """--cache reads decoded rows from a folder, to the same figures; that of the manifest is left
    alone, even if it is there."""
    from streamomd.shards.cache.cached_reader import Cache

    opened: list[str] = []
    made = Cache.__init__

    def counted(self: Any, folder: Any) -> None:
        opened.append(str(folder.path))
        made(self, folder)

    data = write(tmp_path / "data" / "a.parquet", rows(40)).parent
    settled(data)
    url, kept = tmp_path / "run", tmp_path / "kept"
    train(data, *everything(), "--checkpoint", url, "--cache", kept)
    monkeypatch.setattr(Cache, "__init__", counted)
    figures = figures_of(run("evaluate", url, data, "--json"))
    for words in (["certify", url, data], ["report", url, data, "-o", tmp_path / "a.html"]):
        assert run(*words).code == 0
    assert not opened
    assert figures_of(run("evaluate", url, data, "--cache", kept, "--json")) == figures
    assert run("certify", url, data, "--cache", kept).code == 0
    assert run("report", url, data, "-o", tmp_path / "b.html", "--cache", kept).code == 0
    assert len(opened) >= 3
    assert set(opened) == {str(kept)}
    assert run("evaluate", url, data, "--cache", "s3://bucket/kept").code == 2


@pytest.mark.parametrize(
    ("table", "key", "value", "code"),
    [
        ("plan", "weight", True, 2),
        ("plan", "numeric", [10**6, "x1"], 2),
        ("plan", "hash_seed", "0", 2),
        ("data", "holdout", 29, 4),
    ],
)
def test_values_that_a_plan_cannot_have_are_refused(
    table: str, key: str, value: Any, code: int, honest: Path, tmp_path: Path
) -> None:
    """Columns that are not text, and a hold-out without metrics, are refused before resuming."""

    def change(document: dict[str, Any]) -> None:
        (document["plan"] if table == "plan" else document["job"][table])[key] = value

    evil = forge(forged(honest, tmp_path / "evil"), change)
    done = run("resume", evil, "--epochs", 2)
    assert done.code == code
    assert done.err.startswith("streamomd: ")
