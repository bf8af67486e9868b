"""Run a command beside a Dask scheduler whose workers are Slurm jobs; take them away at its end.

    python with_workers.py --jobs 4 --cores 2 --memory 8GB -- go-on job.toml /scratch/me/run

The command is given ``--scheduler ADDRESS`` as well. Other users of these machines could reach the
scheduler, and whoever does runs any code: so it speaks TLS, with a certificate made for this run,
in a directory that only its owner reads and that all nodes must see.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from types import FrameType
from typing import Any

from dask_jobqueue import SLURMCluster
from distributed import Security

ROLES = ("scheduler", "worker", "client")


def main() -> int:
    """Parse, start, run. The command's exit code; 128 and the signal's number if one ended it."""
    given = parsed(sys.argv[1:])
    signal.signal(signal.SIGTERM, _leave)
    with tempfile.TemporaryDirectory(prefix=".streamomd-", dir=given.shared) as folder:
        security, environment = secured(Path(folder))
        with SLURMCluster(**described(given), security=security) as cluster:
            print(f"{cluster.scheduler_address}: waiting for a worker", file=sys.stderr, flush=True)
            # Not scale(): a job whose node fails, or whose time is over, is then asked for again.
            cluster.adapt(minimum_jobs=given.jobs, maximum_jobs=given.jobs)
            cluster.wait_for_workers(1)
            command = [*given.command, "--scheduler", cluster.scheduler_address]
            return run(command, os.environ | environment)


def parsed(arguments: list[str]) -> argparse.Namespace:
    """What was typed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--jobs", type=int, default=2, help="Slurm jobs of workers  [2]")
    parser.add_argument("--cores", type=int, default=2, help="processors of a job  [2]")
    parser.add_argument("--processes", type=int, default=1, help="workers of a job  [1]")
    parser.add_argument("--memory", default="8GB", help="memory of a job  [8GB]")
    parser.add_argument("--walltime", default="04:00:00", help="time of a job  [04:00:00]")
    parser.add_argument("--partition", help="where the jobs run  [Slurm's default]")
    parser.add_argument("--account", help="who pays  [Slurm's default]")
    parser.add_argument("--interface", help="network of scheduler and workers, such as ib0")
    parser.add_argument("--shared", default=Path.home(), help="a directory all nodes see  [~]")
    parser.add_argument("--logs", help="directory of the workers' logs  [here]")
    parser.add_argument("--sbatch", action="append", default=[], help="a line of #SBATCH more")
    parser.add_argument("command", nargs="+", help="after --: what to run")
    return parser.parse_args(arguments)


def described(given: argparse.Namespace) -> dict[str, Any]:
    """The workers' jobs, and where the scheduler listens, as dask-jobqueue calls it."""
    return {
        "job_name": "streamomd-worker",
        "queue": given.partition,
        "account": given.account,
        "cores": given.cores,
        "processes": given.processes,
        "memory": given.memory,
        "walltime": given.walltime,
        "interface": given.interface,
        "log_directory": given.logs,
        "job_extra_directives": given.sbatch,
        "worker_extra_args": ["--dashboard-address", "127.0.0.1:0"],
        "scheduler_options": {"dashboard_address": "127.0.0.1:0"},
    }


def secured(folder: Path) -> tuple[Security, dict[str, str]]:
    """A certificate in a folder: for scheduler and workers, and as environment for the command."""
    made = Security.temporary()
    contents = {"ca.pem": made.tls_ca_file, "key.pem": made.tls_client_key}
    for name, content in contents.items():
        (folder / name).touch(mode=0o600)
        (folder / name).write_text(str(content))
    ca, key = str(folder / "ca.pem"), str(folder / "key.pem")
    # It signed itself, so it is authority and certificate in one.
    files = {f"tls_{role}_cert": ca for role in ROLES} | {f"tls_{role}_key": key for role in ROLES}
    told = {"REQUIRE_ENCRYPTION": "true", "TLS__CA_FILE": ca}
    told |= {"TLS__CLIENT__CERT": ca, "TLS__CLIENT__KEY": key}
    environment = {f"DASK_DISTRIBUTED__COMM__{name}": value for name, value in told.items()}
    return Security(tls_ca_file=ca, require_encryption=True, **files), environment


def run(command: list[str], environment: dict[str, str]) -> int:
    """A command, and signals handed on to it: it commits and leaves."""
    with subprocess.Popen(command, env=environment, start_new_session=True) as child:  # noqa: S603
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda which, _: child.send_signal(which))
        code = child.wait()
    return code if code >= 0 else 128 - code


def _leave(number: int, _: FrameType | None) -> None:
    sys.exit(128 + number)


if __name__ == "__main__":
    sys.exit(main())
