"""Commands that show a run to a person: report, watch."""

from __future__ import annotations

import itertools
import signal
from typing import Any

import click

from streamomd.cli.options import (
    CODES,
    cache_option,
    checkpoint_options,
    data_options,
    guarded,
    loaded,
    main,
    options_in,
    url,
)
from streamomd.core.errors import StoppedError, UsageError
from streamomd.core.urls import printable, typed


@main.command(epilog=CODES)
@url
@click.argument("shards", nargs=-1)
@click.option("-o", "--to", default="report.html", metavar="FILE", show_default=True, help="Where.")
@click.option("--overwrite", is_flag=True, help="Replace a file that is there.")
@click.option(
    "--certificate/--no-certificate",
    default=True,
    help="With SHARDS: compute what is proven of the run; it takes many readings.  [yes]",
)
@cache_option
@data_options
@checkpoint_options
@guarded
def report(
    url: str,
    shards: tuple[str, ...],
    to: str,
    overwrite: bool,
    certificate: bool,
    cache: str | None,
    storage_options: str,
    checkpoint_storage_options: str,
) -> tuple[Any, str]:
    """Write one HTML page about a run: it opens offline, in light and dark.

    \b
      streamomd report runs/bank                          what the checkpoint tells
      streamomd report runs/bank data/ -o bank.html       and what labelled rows tell

    Verdict first; then what looks broken, loss over rows, features by name, sizes, the job. With
    SHARDS also confusion, calibration, and of the run's own shards the regret.
    """
    from streamomd.analysis.report import write_report

    found = write_report(
        loaded(url, checkpoint_storage_options, cache),
        to,
        list(shards),
        certificate=certificate,
        overwrite=overwrite,
        storage_options=options_in(storage_options),
        checkpoint_storage_options=options_in(checkpoint_storage_options),
    )
    lines = [f"{typed(to)}: {found['bytes'] / 1000:,.0f} kB"]
    lines += [f"look at {printable(one['name'])}: {one['title']}" for one in found["look"]]
    return found, "\n".join(lines)


@main.command(epilog=CODES)
@click.argument("url", metavar="URL | ID")
@click.option("--every", type=click.FloatRange(min=0.1), default=2.0, show_default=True,
              help="Seconds between two looks.")  # fmt: skip
@click.option("--once", is_flag=True, help="Look once, and come back.")
@click.option("--top", type=click.IntRange(min=0), default=10, show_default=True,
              help="Features to show; 0 reads no weights.")  # fmt: skip
@click.option("--scheduler", envvar="DASK_SCHEDULER_ADDRESS", metavar="ADDRESS",
              help="Of the cluster of a submitted job; or DASK_SCHEDULER_ADDRESS.")  # fmt: skip
@checkpoint_options
@guarded
def watch(
    url: str,
    every: float,
    once: bool,
    top: int,
    scheduler: str | None,
    checkpoint_storage_options: str,
) -> tuple[Any, str]:
    """Watch a run from outside, by its checkpoint: rows, loss, speed, heaviest features.

    \b
      streamomd watch runs/bank
      streamomd watch omd-job-1a2b3c4d --scheduler tcp://10.0.0.5:8786

    It ends when the run is finished, or at Ctrl-C, which leaves the run alone. Nothing is written.
    """
    options = options_in(checkpoint_storage_options)
    try:
        if url.startswith("omd-job-"):
            return _watch_job(url, scheduler, every, once, top, options), ""
        return _watch_url(url, every, once, top, options), ""
    except KeyboardInterrupt:
        raise StoppedError(
            "stopped watching; the run goes on as it did", signal=signal.SIGINT
        ) from None


def _watch_url(url: str, every: float, once: bool, top: int, options: Any) -> Any:
    from streamomd.analysis.watch import View, read_view, show_views, views

    if once:
        seen = iter([read_view(View(url), options, top=top)])
    else:
        seen = views(url, options=options, every=every, top=top)
    last = show_views(seen)
    return last.figures() if last else {}


def _watch_job(
    name: str, scheduler: str | None, every: float, once: bool, top: int, options: Any
) -> Any:
    from streamomd.analysis.watch import job_views, show_views

    if not scheduler:
        raise UsageError(f"{printable(name)} is on a cluster: give --scheduler ADDRESS")
    from streamomd.distributed.cluster import connect_client

    with connect_client(None, scheduler) as client:
        seen = job_views(client, name, options=options, every=every, top=top)
        last = show_views(itertools.islice(seen, 1) if once else seen)
    return last.figures() if last else {}
