"""The compose file: its schema, what it must not do, and its commands as they are, run here."""

from __future__ import annotations

import json
import logging
import re
import shlex
import shutil
import socket
import subprocess
import time
import tomllib
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import psutil
import pytest
from deploying import DEPLOY, ROOT, documents, environment, shipped
from jsonschema import Draft202012Validator

import streamomd
from streamomd.config.spec import Spec

FILE = DEPLOY / "compose.yaml"
(COMPOSE,) = documents(FILE)
SERVICES = COMPOSE["services"]
OURS = [name for name in SERVICES if name != "store"]
KEYS = {"STORE_KEY": "id", "STORE_SECRET": "canary"}


def schema() -> Any:
    """Of the compose specification, as check-jsonschema ships it."""
    (found,) = shipped("check-jsonschema", "vendor/compose-spec.json")
    return json.loads(found.read_text())


def test_the_schema_takes_the_file() -> None:
    """And sees a wrong key in it."""
    check = Draft202012Validator(schema())
    assert [f"{error.json_path}: {error.message}" for error in check.iter_errors(COMPOSE)] == []
    wrong = {**COMPOSE, "services": {**SERVICES, "worker": {"imagee": "x"}}}
    assert not check.is_valid(wrong)


@pytest.mark.parametrize("name", SERVICES)
def test_a_service_is_pinned_and_shut_in(name: str) -> None:
    """An image of a named version, no port on the host, one network that ends here."""
    service = SERVICES[name]
    assert re.fullmatch(r"[\w/]+:\d[\w.-]*", service["image"])
    assert service["networks"] == ["cluster"]
    assert "ports" not in service
    assert "network_mode" not in service
    assert COMPOSE["networks"]["cluster"]["internal"] is True


@pytest.mark.parametrize("name", OURS)
def test_our_services_have_no_rights(name: str) -> None:
    """Neither capabilities nor a way to get some; an init, so that signals arrive."""
    service = SERVICES[name]
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert service["init"] is True
    assert "user" not in service
    assert "privileged" not in service


def test_credentials_come_from_outside_to_those_who_need_them() -> None:
    """By name, refused when they are not set; the scheduler has none; no job holds any."""
    for name, service in SERVICES.items():
        given = service.get("environment", {})
        secret = {key for key in given if "ACCESS_KEY" in key}
        assert len(secret) == (0 if name == "scheduler" else 2), name
        assert all(re.fullmatch(r"\$\{STORE_\w+:\?[^}]+\}", given[key]) for key in secret)
    job = Spec.parse(tomllib.loads((DEPLOY / "job.toml").read_text()))
    assert job.data.storage_options == job.checkpoint.storage_options == {}
    assert ".env" in (DEPLOY / ".gitignore").read_text().split()


def free_port() -> int:
    """A port that nobody has."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        return int(bound.getsockname()[1])


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, str]]:
    """The addresses of the file, and what stands for them here: moto for the store."""
    moto_server = pytest.importorskip("moto.server", reason="moto[server] is not installed")
    store = moto_server.ThreadedMotoServer("127.0.0.1", port=0)
    store.start()
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    ports = {port: str(free_port()) for port in ("8786", "8787", "8788")}
    yield {
        "http://store:8333": "http://{}:{}".format(*store.get_host_and_port()),
        "scheduler:8786": f"127.0.0.1:{ports['8786']}",
        "0.0.0.0": "127.0.0.1",
        **ports,
    }
    store.stop()


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """What the image holds of its user's home, and what compose mounts there."""
    shutil.copytree(ROOT / "pipelines" / "data" / "bank", tmp_path / "pipelines" / "data" / "bank")
    for held in SERVICES["learner"]["configs"]:
        target = tmp_path / Path(held["target"]).relative_to("/home/streamomd")
        shutil.copy(DEPLOY / COMPOSE["configs"][held["source"]]["file"], target)
    return tmp_path


def command(name: str, names: dict[str, str]) -> tuple[list[str], dict[str, str]]:
    """A service's command and environment, with what stands for its names here."""

    def here(text: str) -> str:
        text = re.sub(r"\$\{(\w+):\?[^}]*\}", lambda match: KEYS[match[1]], text)
        for known, stand_in in names.items():
            text = text.replace(known, stand_in)
        return text

    service = SERVICES[name]
    words = service["command"]
    words = shlex.split(words) if isinstance(words, str) else words
    given = {key: here(value) for key, value in service.get("environment", {}).items()}
    return [here(word) for word in words], environment(**given)


def started(name: str, names: dict[str, str], home: Path) -> subprocess.Popen[str]:
    """A service that stays, once the image's own health check says so."""
    words, given = command(name, names)
    process = subprocess.Popen(words, env=given, cwd=home, stderr=subprocess.DEVNULL, text=True)
    deadline = time.monotonic() + 120
    while subprocess.run(["healthy"], env=given, stderr=subprocess.DEVNULL).returncode:
        assert process.poll() is None, f"{name} has ended"
        assert time.monotonic() < deadline, f"{name} is not healthy"
        time.sleep(0.2)
    return process


def ended(name: str, names: dict[str, str], home: Path, *more: str) -> str:
    """What a service that ends has written."""
    words, given = command(name, names)
    found = subprocess.run([*words, *more], env=given, cwd=home, capture_output=True, text=True)
    assert found.returncode == 0, found.stderr
    return found.stdout


def listening(process: subprocess.Popen[str]) -> set[tuple[str, str]]:
    """Where a process and its children listen: host and port."""
    family = [whole := psutil.Process(process.pid), *whole.children(recursive=True)]
    found = [conn for one in family for conn in one.net_connections("tcp")]
    return {(conn.laddr.ip, str(conn.laddr.port)) for conn in found if conn.status == "LISTEN"}


@pytest.mark.slow
def test_the_commands_do_what_they_say(names: dict[str, str], home: Path) -> None:
    """Scheduler, worker and learner, in order: healthy, the bits of one process, and again."""
    described = tomllib.loads((DEPLOY / "job.toml").read_text())
    described["data"]["shards"] = str(home / "pipelines" / "data" / "bank")
    alone = streamomd.train(described, checkpoint="none", quiet=True)
    with ExitStack() as stack:
        scheduler = stack.enter_context(started("scheduler", names, home))
        stack.callback(scheduler.terminate)
        assert listening(scheduler) == {("127.0.0.1", names["8786"]), ("127.0.0.1", names["8787"])}
        worker = stack.enter_context(started("worker", names, home))
        stack.callback(worker.terminate)
        ended("rows", names, home)
        ended("rows", names, home)  # compose runs it before every learner
        first = json.loads(ended("learner", names, home, "--json").splitlines()[-1])
        again = json.loads(ended("learner", names, home, "--json").splitlines()[-1])
    assert first["state_sha256"] == alone.state_sha256
    assert first["checkpoint"]["url"] == "s3://streamomd/runs/bank"
    assert again["state_sha256"] == first["state_sha256"]
    assert again["rows"] == first["rows"]
