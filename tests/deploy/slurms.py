"""A Slurm to run scripts in: stand-ins for its commands, or Debian's own where it is installed."""

from __future__ import annotations

import getpass
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from deploying import environment

SBATCH = f"""#!{sys.executable}
import os, pathlib, subprocess, sys
home = pathlib.Path(os.environ["HOME"])
script = pathlib.Path(sys.argv[1]).read_text()
(copy := home / f"script-{{os.getpid()}}").write_text(script)
log = open(home / f"slurm-{{os.getpid()}}.out", "w")
job = subprocess.Popen(["bash", copy], stdout=log, stderr=log, start_new_session=True)
(home / f"job-{{job.pid}}").touch()
print("Submitted batch job", job.pid)
"""
SCANCEL = f"""#!{sys.executable}
import contextlib, os, pathlib, signal, sys
with contextlib.suppress(ProcessLookupError):
    os.killpg(int(sys.argv[1]), signal.SIGTERM)
pathlib.Path(os.environ["HOME"], "job-" + sys.argv[1]).unlink(missing_ok=True)
"""
# One node, of more processors than there are; nobody else is on the machine's own addresses.
CONF = """ClusterName=tests
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={port}
SlurmdPort={node_port}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/none
CredType=cred/none
StateSaveLocation={home}/state
SlurmdSpoolDir={home}/spool
SlurmctldPidFile={home}/slurmctld.pid
SlurmdPidFile={home}/slurmd.pid
SlurmctldLogFile={home}/slurmctld.log
SlurmdLogFile={home}/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SlurmdParameters=config_overrides
NodeName={host} NodeAddr=127.0.0.1 CPUs=16 RealMemory=100000
PartitionName=all Nodes=ALL Default=YES State=UP
"""


@dataclass
class Slurm:
    """Where jobs run: their home and working directory, and the environment to submit from."""

    home: Path
    environment: dict[str, str]
    jobs: Callable[[], set[str]]
    is_real: bool

    def logs(self) -> str:
        """What the jobs said."""
        files = [*self.home.glob("slurm-*.out"), *self.home.glob("*.log")]
        return "\n".join(file.read_text() for file in files)

    def await_jobs(self, *, but: set[str]) -> set[str]:
        """Jobs that are there, once others are than those."""
        deadline = time.monotonic() + 120
        while not (found := self.jobs() - but):
            assert time.monotonic() < deadline, self.logs()
            time.sleep(0.2)
        return found

    def await_none(self) -> None:
        """Wait until every job has gone."""
        deadline = time.monotonic() + 60
        while self.jobs():
            assert time.monotonic() < deadline, self.logs()
            time.sleep(0.2)


@contextmanager
def standin(home: Path) -> Iterator[Slurm]:
    """An sbatch that runs a script at once, and an scancel that ends it."""
    for name, content in (("sbatch", SBATCH), ("scancel", SCANCEL)):
        (home / name).write_text(content)
        (home / name).chmod(0o755)
    given = environment(HOME=str(home))
    given["PATH"] = f"{home}:{given['PATH']}"

    def jobs() -> set[str]:
        return {file.name.removeprefix("job-") for file in home.glob("job-*")}

    try:
        yield Slurm(home, given, jobs, is_real=False)
    finally:
        for job in jobs():
            with suppress(ProcessLookupError):
                os.killpg(int(job), signal.SIGKILL)


def installed() -> bool:
    """Whether this machine has Slurm's daemons."""
    return bool(shutil.which("slurmctld") and shutil.which("slurmd"))


@contextmanager
def real(home: Path) -> Iterator[Slurm]:
    """Slurm itself, on this machine alone, for as long as a test."""
    host = socket.gethostname().split(".")[0]
    ports = []
    for _ in range(2):
        with socket.socket() as bound:
            bound.bind(("127.0.0.1", 0))
            ports.append(bound.getsockname()[1])
    conf = home / "slurm.conf"
    conf.write_text(
        CONF.format(host=host, port=ports[0], node_port=ports[1], user=getpass.getuser(), home=home)
    )
    for name in ("state", "spool"):
        (home / name).mkdir()
    given = environment(HOME=str(home), SLURM_CONF=str(conf))

    def jobs() -> set[str]:
        asked = ["squeue", "-h", "-o", "%i"]
        return set(subprocess.check_output(asked, env=given, text=True).split())

    daemons = []
    try:
        for name in ("slurmctld", "slurmd"):
            daemons.append(subprocess.Popen([name, "-D", "-f", str(conf)], env=given))
        deadline = time.monotonic() + 60
        idle = ["sinfo", "-h", "-o", "%t"]
        while "idle" not in subprocess.run(idle, env=given, capture_output=True, text=True).stdout:
            assert time.monotonic() < deadline, "Slurm does not start"
            time.sleep(0.5)
        yield Slurm(home, given, jobs, is_real=True)
    finally:
        for daemon in reversed(daemons):
            daemon.terminate()
            daemon.wait(30)
