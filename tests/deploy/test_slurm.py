"""The Slurm scripts: read, linted, and run: in stand-ins for Slurm, in the long run in itself."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from deploying import DEPLOY, ROOT, environment, tool
from slurms import Slurm, installed, real, standin

import streamomd
from streamomd.core.errors import StreamomdError

SCRIPT = DEPLOY / "slurm" / "train.sbatch"
WITH_WORKERS = [sys.executable, str(DEPLOY / "slurm" / "with_workers.py")]
BANK = ROOT / "pipelines" / "data" / "bank"

# Flags of sbatch that the scripts may use, with the form of their values.
KNOWN = {
    "job-name": r"[\w-]+",
    "nodes": r"\d+",
    "ntasks": r"\d+",
    "cpus-per-task": r"\d+",
    "mem": r"\d+[KMGT]",
    "time": r"(\d+-)?\d+(:\d\d){0,2}",
    "output": r"\S+",
    "open-mode": r"append|truncate",
    "requeue": r"",
    "signal": r"([BR]:)?(TERM|INT|USR[12])(@\d+)?",
    "J": r"[\w-]+",
    "n": r"\d+",
    "t": r"(\d+-)?\d+(:\d\d){0,2}",
    "p": r"\S+",
    "A": r"\S+",
    "e": r"\S+",
    "o": r"\S+",
}


def directives(script: str) -> dict[str, str]:
    """The #SBATCH lines of a script, before its first command, as sbatch reads them."""
    found = {}
    for line in script.splitlines():
        if line.startswith("#SBATCH "):
            long = re.fullmatch(r"#SBATCH --([\w-]+)(?:=(\S+))?", line)
            short = re.fullmatch(r"#SBATCH -(\w) (\S+)", line)
            match = long or short
            assert match, f"sbatch would not read {line!r}"
            found[match[1]] = match[2] or ""
        elif line and not line.startswith("#"):
            break
    assert script.count("#SBATCH") == len(found), "a line comes too late, or twice"
    return found


@pytest.fixture(params=[pytest.param(one, marks=pytest.mark.slow) for one in ("standin", "real")])
def slurm(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Slurm]:
    """A Slurm of a test's own."""
    if request.param == "real" and not installed():
        pytest.skip("no slurmctld and slurmd here: apt-get install slurmctld slurmd slurm-client")
    home = tmp_path / "slurm"
    home.mkdir()
    with {"standin": standin, "real": real}[request.param](home) as made:
        yield made


def job(folder: Path, epochs: int = 1) -> Path:
    """A job on the rows that are here, whose workers decode."""
    made = folder / "job.toml"
    made.write_text(
        f"[data]\nshards = {json.dumps(str(BANK))}\nlabel = 'y'\n"
        f"[train]\nepochs = {epochs}\n[cluster]\ndecode = 'remote'\n"
        "[checkpoint]\nevery_seconds = 2\n"
    )
    return made


def test_the_script_is_what_sbatch_reads() -> None:
    """Every line of #SBATCH by name and form; the bash behind it parses, and has no findings."""
    for flag, value in directives(SCRIPT.read_text()).items():
        assert re.fullmatch(KNOWN[flag], value), f"--{flag}={value}"
    subprocess.run(["bash", "-n", SCRIPT], check=True)
    scripts = [SCRIPT, DEPLOY / "bin" / "go-on", DEPLOY / "bin" / "warm"]
    subprocess.run([tool("shellcheck"), *scripts], check=True)


@pytest.mark.parametrize("given", [["job.toml"], []])
def test_the_scripts_say_what_they_want(given: list[str]) -> None:
    """Too few arguments: exit 2, and how it is called."""
    for script in (SCRIPT, DEPLOY / "bin" / "go-on"):
        ended = subprocess.run([script, *given], capture_output=True, text=True, env=environment())
        assert ended.returncode == 2, script
        assert ended.stderr.startswith("usage:")


def test_workers_come_as_jobs_and_go(slurm: Slurm, tmp_path: Path) -> None:
    """From the sbatch script on: the bits of one process, and no job or key left."""
    alone = streamomd.train(str(job(tmp_path)), checkpoint="none", quiet=True)
    submitted = ["sbatch", "--wait"] if slurm.is_real else []
    environment = {"WORKER_JOBS": "1", "STREAMOMD_DEPLOY": str(DEPLOY)}
    ended = subprocess.run(
        [*submitted, SCRIPT, job(tmp_path), tmp_path / "run", "--json"],
        env=slurm.environment | environment,
        cwd=slurm.home,
        capture_output=True,
        text=True,
        check=False,
    )
    said = ended.stdout + ended.stderr + slurm.logs()
    assert ended.returncode == 0, said
    assert f'"state_sha256": "{alone.state_sha256}"' in said
    assert "cluster tls://" in said
    slurm.await_none()
    assert list(slurm.home.glob(".streamomd-*")) == []
    for script in slurm.home.glob("script-*"):
        for flag, value in directives(script.read_text()).items():
            assert re.fullmatch(KNOWN[flag], value), f"--{flag}={value}"


def kept(url: Path) -> int:
    """Rows in a run's last commit."""
    try:
        return streamomd.load(str(url)).metrics.total_rows
    except StreamomdError:
        return 0


@pytest.mark.slow
def test_a_lost_job_is_asked_for_again_and_a_signal_is_handed_on(
    slurm: Slurm, tmp_path: Path
) -> None:
    """A worker's job ends: another comes. SIGTERM: a commit, 143, and no job left."""
    described, url = job(tmp_path, epochs=4000), tmp_path / "run"
    command = [*WITH_WORKERS, "--jobs", "1", "--", "go-on", str(described), str(url)]
    running = subprocess.Popen(
        command, env=slurm.environment, cwd=slurm.home, stderr=subprocess.PIPE, text=True
    )
    try:
        first = slurm.await_jobs(but=set())
        deadline = time.monotonic() + 120
        while not kept(url):
            assert time.monotonic() < deadline, slurm.logs()
            time.sleep(0.2)
        subprocess.run(["scancel", *first], env=slurm.environment, check=True)
        slurm.await_jobs(but=first)
        running.terminate()
        said = running.communicate(timeout=120)[1]
    finally:
        running.kill()
    assert running.returncode == 143, said + slurm.logs()
    slurm.await_none()
    assert "stopped after row" in said


@pytest.mark.slow
def test_a_client_without_the_certificate_is_refused(slurm: Slurm) -> None:
    """Another user's, who knows the address."""
    asked = (
        "import sys, distributed; "
        "distributed.Client(sys.argv[-1], timeout=5, security=distributed.Security.temporary())"
    )
    command = [*WITH_WORKERS, "--jobs", "1", "--", sys.executable, "-c", asked]
    ended = subprocess.run(
        command,
        env=slurm.environment,
        cwd=slurm.home,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 1
    assert "waiting for a worker" in ended.stderr
    assert "CERTIFICATE_VERIFY_FAILED" in ended.stderr
    slurm.await_none()
