"""The command that describes a job before it runs: plan."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import Any

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
from streamomd.core.urls import typed


@main.command(cls=JobCommand, epilog=CODES)
@what
@data_options
@checkpoint_options
@set_option
@guarded
def plan(what: tuple[str, ...], **given: Any) -> tuple[Any, str]:
    """Print what a job would do: columns, coordinates, collisions, memory, time.

    \b
      streamomd plan job.toml
      streamomd plan rows/ --label y --bits 20

    It reads footers and one row group, and writes nothing.
    """
    from streamomd.analysis.preview import preview
    from streamomd.cli.format_preview import format_plan

    command = _train_command(what, given)
    job, given = job_and_shards(what, given)
    found = {**preview(job, **python_arguments(given)), "next": command}
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
