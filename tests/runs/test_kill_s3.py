"""Kill -9 of training from a bucket into a bucket (moto's server), and what it says of secrets."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import boto3
import pyarrow.parquet as pq
import pytest
from botocore.config import Config
from botocore.exceptions import BotoCoreError
from killing import (
    BINARY,
    COMMON,
    EPOCH,
    PATIENCE,
    Bucket,
    Figures,
    Instant,
    Job,
    Landing,
    figures,
    finish,
    newest,
    predict,
    result,
    rows,
    start,
    strike,
    write_shards,
)

pytestmark = pytest.mark.slow  # half a minute to start; tests/faults kills in a bucket, too
CANARIES = {
    "AWS_ACCESS_KEY_ID": "CANARYKEYID0123456789",
    "AWS_SECRET_ACCESS_KEY": "canary/secret+0123456789abcdefghijkl",
    "AWS_SESSION_TOKEN": "canary.token.0123456789abcdefghijkl",
}
WORDS = (*BINARY, *COMMON, "--epochs", "3", "--set", f"checkpoint.every_rows={EPOCH // 7}")
CASES = {
    "early": (Instant("delay", 3, 0.03),),
    "middle": (Instant("delay", 11, 0.07),),
    "late": (Instant("delay", 18, 0.01),),
    "inside": (Instant("parts", 5),),
    "inside, late": (Instant("parts", 11),),
    "twice": (Instant("delay", 6, 0.05), Instant("parts", 6)),
}
BY_FILE = ("middle", "twice")
"""These get credentials and endpoint from a file of storage options, not the environment."""


@dataclass(frozen=True)
class Server:
    """A bucket, and how to reach it."""

    endpoint: str
    client: Any
    options: Path

    @property
    def env(self) -> dict[str, str]:
        """For a process that is to find its credentials by itself."""
        return {**CANARIES, **NO_OTHERS, "AWS_ENDPOINT_URL": self.endpoint}


NO_OTHERS = {
    "AWS_DEFAULT_REGION": "us-east-1",
    "AWS_EC2_METADATA_DISABLED": "true",
    "AWS_CONFIG_FILE": os.devnull,
    "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
    "NO_PROXY": "127.0.0.1",
}


@dataclass
class Trial:
    """What came of a case; ``said``: all that its processes wrote to stdout, stderr and the log."""

    landings: list[Landing] = field(default_factory=list)
    figures: Figures | None = None
    said: bytes = b""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """moto's server on a free port of this machine, with one bucket of shards."""
    folder = tmp_path_factory.mktemp("s3")
    port = free_port()
    endpoint = f"http://127.0.0.1:{port}"
    words = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    with (folder / "server").open("wb") as log:
        process = subprocess.Popen(words, stdout=log, stderr=log)
    client = boto3.client(
        "s3",
        endpoint_url=endpoint,
        region_name="us-east-1",
        aws_access_key_id="test",
        aws_secret_access_key="test",
        config=Config(proxies={}, retries={"max_attempts": 0}),
    )
    try:
        make_bucket(client, process)
        fill(client, folder)
        options = folder / "options.json"
        key, secret, token = CANARIES.values()
        known = {"key": key, "secret": secret, "token": token, "endpoint_url": endpoint}
        options.write_text(json.dumps(known))
        options.chmod(0o600)
        yield Server(endpoint, client, options)
    finally:
        client.close()
        process.terminate()
        process.wait(PATIENCE)


def make_bucket(client: Any, process: subprocess.Popen[bytes]) -> None:
    last = time.monotonic() + PATIENCE
    while True:
        try:
            client.create_bucket(Bucket="canary")
            return
        except BotoCoreError:
            assert process.poll() is None, "moto's server did not start"
            assert time.monotonic() < last, "moto's server does not answer"
            time.sleep(0.05)


def fill(client: Any, folder: Path) -> None:
    for path in sorted(write_shards(folder / "shards").iterdir()):
        client.upload_file(str(path), "canary", f"shards/{path.name}")
    pq.write_table(rows(500, seed=99), str(folder / "new.parquet"))
    client.upload_file(str(folder / "new.parquet"), "canary", "new/rows.parquet")


def outcome(server: Server, url: str, told: dict[str, Any], out: Path) -> Figures:
    return figures(told, predict(url, "s3://canary/new/rows.parquet", out, server.env))


@pytest.fixture(scope="module")
def undisturbed(server: Server, tmp_path_factory: pytest.TempPathFactory) -> Figures:
    """What the run gives that nobody kills."""
    url = "s3://canary/undisturbed"
    done = finish(Job("s3://canary/shards/", WORDS).train(url), server.env)
    return outcome(server, url, result(done), tmp_path_factory.mktemp("out"))


def attempt(server: Server, name: str, folder: Path) -> Trial:
    """``trial``, begun anew where a run ended before its instant was seen."""
    for again in range(3):
        found = trial(server, name, folder, again)
        if all(landing.killed for landing in found.landings):
            break
    return found


def trial(server: Server, name: str, folder: Path, again: int) -> Trial:
    """Train, kill, resume, kill … and resume to the end."""
    place = Bucket(f"s3://canary/runs/{name.replace(', ', '-')}-{again}", server.client)
    env, more = server.env, ["--log", str(folder / "log.jsonl")]
    if name in BY_FILE:
        env = NO_OTHERS
        more += ["--storage-options", str(server.options)]
        more += ["--checkpoint-storage-options", str(server.options)]
    words = Job("s3://canary/shards/", WORDS).train(place.url, *more)
    told = Trial()
    for instant in CASES[name]:
        base = newest(place)
        process = start(words, folder / "said", env)
        told.landings.append(strike(process, place, instant, base))
        if not told.landings[-1].killed:
            return told
        words = ["resume", place.url, *more, "--json"]
    done = finish(words, env)
    told.figures = outcome(server, place.url, result(done), folder / "out")
    told.said = (folder / "said").read_bytes() + (folder / "log.jsonl").read_bytes()
    verified = finish(["checkpoint", "verify", place.url, "--json"], server.env)
    told.said += f"{done.stdout}{done.stderr}{verified.stdout}{verified.stderr}".encode()
    return told


@pytest.fixture(scope="module")
def trials(
    server: Server, undisturbed: Figures, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, Future[Trial]]]:
    """Cases, two at once; a failure is raised by the test of its own case."""
    assert undisturbed.told["rows"] == 3 * EPOCH

    class Trials(dict[str, Future[Trial]]):
        """Each is begun when it is first asked for."""

        def __missing__(self, name: str) -> Future[Trial]:
            folder = tmp_path_factory.mktemp("case")
            self[name] = pool.submit(attempt, server, name, folder)
            return self[name]

    with ThreadPoolExecutor(2) as pool:
        yield Trials()


@pytest.mark.parametrize("name", CASES)
def test_a_run_killed_in_a_bucket_ends_as_one_that_nobody_killed(
    name: str, trials: dict[str, Future[Trial]], undisturbed: Figures
) -> None:
    """State, loss of each epoch and predictions are equal to the bit."""
    assert trials[name].result().figures == undisturbed


def test_the_kills_landed_where_they_are_said_to(
    trials: dict[str, Future[Trial]], capsys: pytest.CaptureFixture[str]
) -> None:
    """In all at least 5 kills between the first data commit and the last, 2 of them inside one."""
    running = {name: trials[name] for name in CASES}
    done = {name: one.result() for name, one in running.items()}
    landings = [landing for trial in done.values() for landing in trial.landings]
    with capsys.disabled():
        print()
        for name, trial in done.items():
            for landing in trial.landings:
                print(f"  s3 {name:<13} {landing}")
    assert sum(landing.between for landing in landings) >= 5
    assert sum(landing.inside for landing in landings) >= 2
    assert all(trial.landings[-1].killed for trial in done.values())


def test_no_credential_is_kept_or_said(trials: dict[str, Future[Trial]], server: Server) -> None:
    """Neither an object of a checkpoint, nor its name, nor stdout, stderr or the log holds one."""
    texts = [trials[name].result().said for name in CASES]
    assert all(texts)
    keys = Bucket("s3://canary/", server.client).keys()
    kept = [key for key in keys if not key.startswith(("shards/", "new/"))]
    assert sum("/commits/" in key for key in kept) > len(CASES)
    for key in kept:
        found = server.client.get_object(Bucket="canary", Key=key)["Body"].read()
        texts += [key.encode(), found]
    for name, secret in {**CANARIES, "endpoint": server.endpoint}.items():
        assert not any(secret.encode() in text for text in texts), name
