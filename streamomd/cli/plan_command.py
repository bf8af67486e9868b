"""The command that describes a job before it runs: plan."""

from __future__ import annotations

import math
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

import click

from streamomd.cli.job_flags import JobCommand
from streamomd.cli.options import (
    CODES,
    checkpoint_options,
    data_options,
    guarded,
    job_and_shards,
    main,
    python_arguments,
    set_option,
    what,
)
from streamomd.core.errors import UsageError
from streamomd.core.phases import phase
from streamomd.core.urls import typed


@main.command(cls=JobCommand, epilog=CODES)
@what
@data_options
@checkpoint_options
@set_option
@click.option(
    "--scan-labels", is_flag=True,
    help="Read all labels instead, and print the rows of each class.",
)  # fmt: skip
@click.option(
    "--workers",
    type=click.IntRange(1, 100_000),
    metavar="N",
    help="Print also what an epoch would cost on N workers, by mode.",
)
@click.option(
    "--price", type=click.FloatRange(0.0, 1e6), metavar="PRICE",
    help="Price of a worker for an hour, with --workers.",
)  # fmt: skip
@guarded
def plan(
    what: tuple[str, ...],
    scan_labels: bool,
    workers: int | None,
    price: float | None,
    **given: Any,
) -> tuple[Any, str]:
    """Print what a job would do: columns, coordinates, collisions, memory, time.

    \b
      streamomd plan job.toml
      streamomd plan rows/ --label y --bits 20
      streamomd plan rows/ --label y --scan-labels
      streamomd plan rows/ --label y --workers 100 --price 0.05

    It reads footers and one row group, and writes nothing.
    """
    if scan_labels:
        with phase("starting"):
            from streamomd.analysis import label_counts
        from streamomd.cli.format_preview import format_labels

        job, given = job_and_shards(what, given)
        counts = label_counts.scan_labels(job, **python_arguments(given))
        return counts, format_labels(counts)
    with phase("starting"):
        from streamomd.analysis.preview import preview
    from streamomd.cli.format_preview import format_plan

    if price is not None and workers is None:
        raise UsageError("--price is that of a worker for an hour: give --workers, e.g. 10")
    if price is not None and math.isnan(price):  # which no range of click's excludes
        raise UsageError("--price is nan: expected that of a worker for an hour, e.g. 0.05")
    command = _train_command(what, given)
    job, given = job_and_shards(what, given)
    figures = preview(job, workers=workers or 0, price=price, **python_arguments(given))
    found = {**figures, "next": command}
    return found, format_plan(found, command)


def _train_command(what: Sequence[str], given: Mapping[str, Any]) -> str:
    """The command that runs the same job."""
    words = ["streamomd train", *map(typed, what)]
    for flag, value in given.items():
        if flag == "sets":
            words += [f"--set {shlex.quote(pair)}" for pair in value]
        elif value is True:
            words.append(f"--{flag.replace('_', '-')}")
        elif value not in (None, ()):
            words.append(f"--{flag.replace('_', '-')} {shlex.quote(str(value))}")
    return " ".join(words)
