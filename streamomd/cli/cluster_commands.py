"""Commands for a Dask cluster: submit, status, logs, cancel, doctor."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from streamomd.cli import formatting
from streamomd.cli.options import (
    CODES,
    begin_options,
    checkpoint_options,
    data_options,
    described,
    guarded,
    main,
    options_in,
    parsed,
    set_option,
)
from streamomd.core.errors import ClusterError

name = click.argument("name", metavar="ID")
scheduler_option = click.option(
    "--scheduler",
    required=True,
    envvar="DASK_SCHEDULER_ADDRESS",
    metavar="ADDRESS",
    help="Of the Dask scheduler, tcp://… or tls://…; or set DASK_SCHEDULER_ADDRESS.",
)


@main.command(epilog=CODES)
@begin_options
@guarded
def submit(what: tuple[str, ...], **given: Any) -> tuple[Any, str]:
    """Leave a job to a cluster: it is checked, begun, and goes on without this machine.

    \b
      streamomd submit job.toml --scheduler tcp://10.0.0.5:8786
      streamomd status omd-job-1a2b3c4d --scheduler tcp://10.0.0.5:8786
    """
    from streamomd.runs.submit import submit

    job, given = described(what, given)
    given["scheduler"] = given["scheduler"] or _default_scheduler()
    if not given["scheduler"] and job is None:
        raise ClusterError("no scheduler: give --scheduler ADDRESS, or set DASK_SCHEDULER_ADDRESS")
    name = submit(job, **parsed(given))
    return {"id": name}, formatting.submitted(name, given["scheduler"])


def _default_scheduler() -> str | None:
    import os

    return os.environ.get("DASK_SCHEDULER_ADDRESS")


def _on_a_job(command: Callable[..., Any]) -> Callable[..., Any]:
    return main.command(epilog=CODES)(name(scheduler_option(command)))


@_on_a_job
@checkpoint_options
@guarded
def status(name: str, scheduler: str, checkpoint_storage_options: str) -> tuple[Any, str]:
    """How a submitted job is, from any machine that reaches the scheduler."""
    from streamomd.distributed import cluster, jobs

    with cluster.connect_client(None, scheduler) as client:
        found = jobs.status(jobs.find(client, name), options_in(checkpoint_storage_options))
    return found, formatting.status(found)


@_on_a_job
@click.option("--follow", is_flag=True, help="Go on until the job ends.")
@guarded
def logs(name: str, scheduler: str, follow: bool) -> tuple[Any, str]:
    """What a submitted job said, and how its loss went."""
    from streamomd.distributed import cluster, jobs
    from streamomd.distributed.scheduler import report_lost_scheduler

    told = 0
    with cluster.connect_client(None, scheduler) as client:
        job = jobs.find(client, name)
        with report_lost_scheduler(client, job.url):
            for line in jobs.lines(job, follow=follow):
                click.echo(line)
                told += 1
    return {"id": name, "lines": told}, ""


@_on_a_job
@checkpoint_options
@guarded
def cancel(name: str, scheduler: str, checkpoint_storage_options: str) -> tuple[Any, str]:
    """Stop a submitted job: it commits and leaves; streamomd resume goes on from there."""
    from streamomd.distributed import cluster, jobs

    with cluster.connect_client(None, scheduler) as client:
        job = jobs.cancel(jobs.find(client, name))
        found = jobs.status(job, options_in(checkpoint_storage_options))
    return found, formatting.status(found)


@main.command(epilog=CODES)
@click.argument("job", required=False, metavar="[JOB.toml]")
@scheduler_option
@data_options
@checkpoint_options
@set_option
@guarded
def doctor(job: str | None, scheduler: str, **given: Any) -> tuple[Any, str]:
    """Look at every worker before a job is begun: versions, memory, shards and checkpoint.

    \b
      streamomd doctor job.toml --scheduler tcp://10.0.0.5:8786
    """
    from streamomd.runs.submit import diagnose

    found = diagnose(job, scheduler=scheduler, **parsed(given))
    text = formatting.diagnosed(found)
    if not all(one["ok"] for one in found):
        raise ClusterError("not every worker is fit\n" + text)
    return {"workers": found}, text
