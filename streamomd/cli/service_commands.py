"""Commands for what runs elsewhere: submit, status, logs, cancel, doctor; serve."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import click

from streamomd.cli.command_group import (
    CODES,
    exit_on_error,
    guarded,
    log_format_option,
    main,
    showing_messages,
)
from streamomd.cli.job_flags import JobCommand
from streamomd.cli.options import (
    checkpoint_options,
    cluster_option,
    data_options,
    import_runs,
    job_and_shards,
    job_cluster_options,
    metrics_options,
    python_arguments,
    read_options_file,
    run_options,
    set_option,
    url,
)
from streamomd.core.errors import ClusterError, MissingExtraError, UsageError
from streamomd.core.urls import printable, typed

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
    return {"id": name}, _submission_text(name, given["scheduler"], given["client"])


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
    return found, _status_text(found)


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
    return found, _status_text(found)


@main.command(epilog=CODES)
@click.argument("job", required=False, metavar="[JOB.toml]")
@click.option(
    "--report", is_flag=True,
    help="Print versions and this machine, without secrets, to paste into an issue.",
)  # fmt: skip
@job_cluster_options
@data_options
@checkpoint_options
@set_option
@guarded
def doctor(job: str | None, report: bool, **given: Any) -> tuple[Any, str]:
    """Check every worker before a job starts: versions, memory, shards and checkpoint.

    \b
      streamomd doctor job.toml --scheduler tcp://10.0.0.5:8786
      streamomd doctor --report
    """
    if report:
        if job is not None or any(given.values()):
            raise UsageError("--report is about this machine: leave out the job and other options")
        from streamomd.core.installed import format_installation_report, installation_report

        installed = installation_report()
        return {"report": installed}, format_installation_report(installed)
    from streamomd.runs.train import diagnose

    workers = diagnose(job, **python_arguments(given))
    text = _diagnosis_text(workers)
    if not all(one["ok"] for one in workers):
        raise ClusterError("some workers are not fit for the job\n" + text)
    return {"workers": workers}, text


@main.command(epilog=CODES)
@url
@click.option(
    "--port", type=click.IntRange(0, 65_535), default=8080, show_default=True,
    help="Port to listen on; 0: any free one, which is printed.",
)  # fmt: skip
@click.option(
    "--host", default="127.0.0.1", show_default=True, metavar="ADDRESS",
    help="Address to listen on; one that other machines can reach needs a token.",
)  # fmt: skip
@click.option(
    "--reload", default="30s", show_default=True, metavar="TIME",
    help="Time between two looks for a newer commit; 0: none.",
)  # fmt: skip
@click.option(
    "--token-file", metavar="FILE",
    help="File with the token that clients send; else STREAMOMD_SERVE_TOKEN of the environment.",
)  # fmt: skip
@click.option(
    "--gate", metavar="BOUND",
    help="Serve only commits that keep it, such as 'loss<=0.3'; also error, rmse.",
)  # fmt: skip
@click.option(
    "--gate-rows", metavar="SHARDS", multiple=True,
    help="Labelled rows to evaluate a commit on for --gate.  [the rows of its last update]",
)  # fmt: skip
@data_options
@checkpoint_options
@log_format_option
def serve(
    url: str,
    port: int,
    host: str,
    reload: str,
    token_file: str | None,
    gate: str | None,
    gate_rows: tuple[str, ...],
    storage_options: str | None,
    checkpoint_storage_options: str | None,
    log_format: str,
) -> None:
    """Serve predictions over HTTP, and load newer commits as they appear.

    \b
      streamomd serve runs/bank
      curl -H 'Content-Type: application/json' \\
        -d '[{"age": 41, "job": "nurse"}]' localhost:8080/predict
      streamomd serve s3://bucket/run --host 0.0.0.0 --token-file token --reload 1m

    \b
    POST /predict    rows as a JSON list, JSON lines or an Arrow stream, by Content-Type
    POST /explain    the same rows: contribution of each feature to the score
    GET  /model      job, commit and schema       GET /docs      the endpoints as a page
    GET  /healthz    the process answers          GET /readyz    a model is loaded (else 503)
    GET  /metrics    for Prometheus

    The server never learns. Run streamomd follow next to it: a new commit is loaded while the old
    one is served, and each response is of one commit, whose number it has. A commit that is not
    finite, that changes the columns or classes, or is worse than --gate, is refused; /readyz and
    /metrics say so. Without --gate, a commit that learned a bad day is served.
    Make a token with: openssl rand -hex 32
    """
    with showing_messages(log_format), exit_on_error():
        wait = _seconds(reload)
        if gate_rows and not gate:
            raise UsageError("--gate-rows is for --gate: pass --gate 'loss<=0.3'")
        options = read_options_file(checkpoint_storage_options)
        rows = gate_rows, read_options_file(storage_options)
        import_runs()
        _run(url, options, host, port, wait, token_file, gate, *rows)


def _seconds(text: str) -> float:
    from streamomd.config.values import seconds

    try:
        found = float(seconds(text))
    except ValueError as error:
        raise UsageError(f"--reload {text!r}: {error}") from None
    if not 0.0 <= found <= 1e7:
        raise UsageError(f"--reload {text!r}: expected a time such as 30s, or 0")
    return found


def _run(
    url: str,
    options: Any,
    host: str,
    port: int,
    wait: float,
    file: str | None,
    gate: str | None,
    rows: tuple[str, ...],
    row_options: Any,
) -> None:
    try:
        from streamomd.integrations.serve.model_reloader import Gate
        from streamomd.integrations.serve.run_server import ServeSettings, run_server
    except ModuleNotFoundError as error:
        raise MissingExtraError(
            f"streamomd serve needs {error.name}: pip install 'streamomd[serve]'"
        ) from None
    bound = Gate.parse(gate, rows, row_options) if gate else None
    run_server(url, ServeSettings(host, port, wait, file, bound), options)


def _submission_text(name: str, scheduler: str | None, factory: Any = None) -> str:
    """A job's id, and commands to run next. factory: the cluster's, if one was given."""
    where = f" --scheduler {typed(scheduler)}" if scheduler else f" {factory}" if factory else ""
    lines = [name, "next:"]
    lines += [f"  streamomd {word} {name}{where}" for word in ("status", "logs", "cancel")]
    return "\n".join(lines)


def _status_text(status: Mapping[str, Any]) -> str:
    """The state of a submitted job."""
    share = ""
    if status["expected"]:  # unknown of a job that follows
        share = f" of {status['expected']:,} ({status['rows'] / status['expected']:.0%})"
    loss = "" if status["loss"] is None else f", loss {status['loss']:.6f}"
    lines = [f"{status['id']}: {status['state']}", f"rows {status['rows']:,}{share}{loss}"]
    if status["error"]:
        lines.append(status["error"])
    if "last_report" in status:
        lines.append(f"last report {status['last_report']:.0f} s ago")
    commit = status["commit"]
    lines.append(
        f"commit {commit['sequence']} after row {commit['rows']:,}, {commit['written']}"
        if commit
        else "its checkpoint cannot be read from this machine"
    )
    return "\n".join(
        [*lines, f"saved to {printable(status['url'])}", f"submitted {status['submitted']}"]
    )


def _diagnosis_text(found: Sequence[Mapping[str, Any]]) -> str:
    """A line for each worker, followed by its problems."""
    lines = []
    for one in found:
        memory = f"{one['memory'] / 2**30:.1f} GiB" if one["memory"] else "unlimited memory"
        state = "fit" if one["ok"] else "NOT fit"
        name = f" ({printable(one['name'])})" if one["name"] != one["worker"] else ""
        lines.append(f"{one['worker']}{name}: {state}; {one['threads']} threads, {memory}")
        lines += [f"  {text}" for text in one["unfit"]]
        lines += [f"  {text} (results may not be bit-identical)" for text in one["differs"]]
    return "\n".join(lines)
