"""A scheduler that dies: one message, with the command that resumes the run, and nothing else."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from clustered import long
from distributed import Client
from elsewhere import elsewhere, newest
from mode_runs import MODES, table
from test_jobs import toml

import streamomd
from streamomd.core.errors import SchedulerLostError

# Dask's own warnings of workers that die are what is provoked here.
pytestmark = pytest.mark.filterwarnings("ignore")
EPOCHS = 300
LOST = (
    r"streamomd: the scheduler (at tcp://127\.0\.0\.1:\d+ was lost|has not answered for 30 s); "
    r"the last commit is intact\. Resume, with --scheduler ADDRESS on a cluster: "
)
PROGRESS = re.compile(r" *[\d,]+ +\d+% +[\d.]+ +[\d.]+ +[\d.]+ +[\d,]+$")


def longer(mode: str, data: Path, url: Path) -> dict[str, Any]:
    """The job of a mode, of so many epochs that it is under way when the scheduler dies."""
    described = table(mode, data, url)
    described["train"] = {**described.get("train", {}), "epochs": EPOCHS}
    return described


@pytest.mark.parametrize("mode", ["sharded", *long(*(one for one in MODES if one != "sharded"))])
@pytest.mark.parametrize("later", [0.0, *long(0.3, 1.1)])
@pytest.mark.slow
def test_a_lost_scheduler_is_one_line_and_it_resumes_the_run(
    data: Path, tmp_path: Path, mode: str, later: float
) -> None:
    """kill -9 after a commit: after the progress one line on stderr, no traceback and no warning;
    the command in it, as a shell reads it, names the run."""
    url = tmp_path / "a run"  # the space must be quoted
    job = toml(longer(mode, data, url), tmp_path / "job.toml")
    words = [sys.executable, "-m", "streamomd", "train", str(job), "--verbose", "--scheduler"]
    pipes: Any = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with elsewhere(tmp_path, 2) as (address, scheduler):
        ran = subprocess.Popen([*words, address], **pipes)
        while newest(url) < 1:
            assert ran.poll() is None, ran.communicate()
            time.sleep(0.01)
        time.sleep(later)
        scheduler.kill()
        out, err = ran.communicate(timeout=200)
    assert ran.returncode == 1
    assert out == ""
    lines = err.splitlines()
    # The last line on the job; the head of the progress follows if a row was reported.
    job_lines = max(n for n, line in enumerate(lines) if line.startswith("rule "))
    said = [line for line in lines[job_lines + 1 :] if not PROGRESS.match(line)]
    said = [line for line in said if line.split()[:2] != ["rows", "done"]]
    said = [line for line in said if line != "learning on a worker" and "owners of" not in line]
    assert len(said) == 1, err
    assert re.match(LOST, said[0])
    command = said[0].rsplit(": ", 1)[1]
    program, *rest = shlex.split(command)
    assert (program, *rest) == ("streamomd", "resume", str(url))
    assert not streamomd.load(rest[1]).finished


@pytest.mark.slow  # test_clusters has the error itself in the quick run
def test_from_python_the_same_error_comes_with_a_client_of_the_user_s(
    data: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """SchedulerLostError, and nothing on stderr while the run lasts."""
    url = tmp_path / "run"
    with elsewhere(tmp_path, 1) as (address, scheduler):
        client = Client(address, set_as_default=False)
        described = longer("averaged", data, url)

        class Strike:
            def on_progress(self, figures: Any) -> None:
                scheduler.kill()

        with pytest.raises(SchedulerLostError, match="streamomd resume"):
            streamomd.train(described, client=client, callbacks=[Strike()], quiet=True)
        assert capfd.readouterr().err == ""
        client.close()
    assert not streamomd.load(str(url)).finished


@pytest.mark.slow
def test_logs_follow_reports_a_lost_scheduler_in_one_line(data: Path, tmp_path: Path) -> None:
    """``logs --follow`` of a job whose scheduler dies: exit 1, one line, the job's URL in it."""
    url = tmp_path / "run"
    job = toml(longer("averaged", data, url), tmp_path / "job.toml")
    command = [sys.executable, "-m", "streamomd"]
    pipes: Any = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with elsewhere(tmp_path, 2) as (address, scheduler):
        words = [*command, "submit", str(job), "--scheduler", address, "--json"]
        done = subprocess.run(words, check=True, capture_output=True, text=True)
        name = json.loads(done.stdout.splitlines()[-1])["id"]
        words = [*command, "logs", name, "--follow", "--scheduler", address]
        ran = subprocess.Popen(words, **pipes)
        assert ran.stdout is not None
        ran.stdout.readline()
        scheduler.kill()
        _, err = ran.communicate(timeout=200)
    assert ran.returncode == 1
    assert len(err.splitlines()) == 1, err
    [line] = err.splitlines()
    assert re.match(LOST, line)
    assert line.endswith(f"streamomd resume {url}")
