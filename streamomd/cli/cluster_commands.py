"""Commands for a Dask cluster: submit, status, logs, cancel, doctor."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from streamomd.cli import formatting
from streamomd.cli.command_group import CODES, guarded, main
from streamomd.cli.job_flags import JobCommand
from streamomd.cli.options import (
    checkpoint_options,
    cluster_option,
    data_options,
    job_and_shards,
    job_cluster_options,
    metrics_options,
    python_arguments,
    read_options_file,
    run_options,
    set_option,
)
from streamomd.core.errors import ClusterError

name = click.argument("name", metavar="ID")


@main.command(cls=JobCommand, epilog=CODES)
@run_options
@cluster_option
@click.option("--follow", is_flag=True, help="Then learn shards as they arrive, until cancelled.")
@metrics_options
@guarded
def submit(what: tuple[str, ...], **given: Any) -> tuple[Any, str]:
    """Submit a job to a Dask cluster, which runs it without this machine.

    \b
      streamomd submit job.toml --scheduler tcp://10.0.0.5:8786
      streamomd status omd-job-1a2b3c4d --scheduler tcp://10.0.0.5:8786
    """
    from streamomd.runs.train import submit

    job, given = job_and_shards(what, given)
    name = submit(job, **python_arguments(given))
    return {"id": name}, formatting.format_submission(name, given["scheduler"], given["client"])


def _job_command(command: Callable[..., Any]) -> Callable[..., Any]:
    return main.command(epilog=CODES)(name(job_cluster_options(command)))


@_job_command
@checkpoint_options
@guarded
def status(
    name: str, scheduler: str | None, client: Any, checkpoint_storage_options: str
) -> tuple[Any, str]:
    """Print the state of a submitted job; any machine that reaches the scheduler can ask."""
    from streamomd.distributed import jobs
    from streamomd.runs.connection import connect_needed

    with connect_needed(client, scheduler) as connection:
        job = jobs.find(connection, name)
        found = jobs.status(job, read_options_file(checkpoint_storage_options))
    return found, formatting.format_status(found)


@_job_command
@click.option("--follow", is_flag=True, help="Keep printing until the job ends.")
@guarded
def logs(name: str, scheduler: str | None, client: Any, follow: bool) -> tuple[Any, str]:
    """Print the messages of a submitted job and the course of its loss."""
    from streamomd.distributed import jobs
    from streamomd.distributed.scheduler import report_lost_scheduler
    from streamomd.runs.connection import connect_needed

    count = 0
    with connect_needed(client, scheduler) as connection:
        job = jobs.find(connection, name)
        with report_lost_scheduler(connection, job.url):
            for line in jobs.lines(job, follow=follow):
                click.echo(line)
                count += 1
    return {"id": name, "lines": count}, ""


@_job_command
@checkpoint_options
@guarded
def cancel(
    name: str, scheduler: str | None, client: Any, checkpoint_storage_options: str
) -> tuple[Any, str]:
    """Stop a submitted job after a commit; streamomd resume continues it."""
    from streamomd.distributed import jobs
    from streamomd.runs.connection import connect_needed

    with connect_needed(client, scheduler) as connection:
        job = jobs.cancel(jobs.find(connection, name))
        found = jobs.status(job, read_options_file(checkpoint_storage_options))
    return found, formatting.format_status(found)


@main.command(epilog=CODES)
@click.argument("job", required=False, metavar="[JOB.toml]")
@job_cluster_options
@data_options
@checkpoint_options
@set_option
@guarded
def doctor(job: str | None, **given: Any) -> tuple[Any, str]:
    """Check every worker before a job starts: versions, memory, shards and checkpoint.

    \b
      streamomd doctor job.toml --scheduler tcp://10.0.0.5:8786
    """
    from streamomd.runs.train import diagnose

    found = diagnose(job, **python_arguments(given))
    text = formatting.format_diagnosis(found)
    if not all(one["ok"] for one in found):
        raise ClusterError("some workers are not fit for the job\n" + text)
    return {"workers": found}, text
