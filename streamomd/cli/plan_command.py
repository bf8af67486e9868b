"""The command that looks at a job before it is begun: plan."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from streamomd.cli.options import (
    CODES,
    checkpoint_options,
    data_options,
    described,
    guarded,
    job_options,
    main,
    parsed,
    set_option,
    what,
)
from streamomd.core.urls import typed


@main.command(epilog=CODES)
@what
@job_options
@data_options
@checkpoint_options
@set_option
@guarded
def plan(what: tuple[str, ...], **given: Any) -> tuple[Any, str]:
    """What a job would do: columns, coordinates, collisions, memory, time; nothing is written.

    \b
      streamomd plan job.toml
      streamomd plan rows/ --label y --bits 20
    """
    from streamomd.analysis.preview import preview
    from streamomd.cli.format_preview import planned

    command = _train(what, given)
    job, given = described(what, given)
    found = {**preview(job, **parsed(given)), "next": command}
    return found, planned(found, command)


def _train(what: Sequence[str], given: Mapping[str, Any]) -> str:
    """The command that trains the job that is looked at."""
    words = ["streamomd train", *map(typed, what)]
    for flag, value in given.items():
        if flag == "sets":
            words += [f"--set {shlex.quote(pair)}" for pair in value]
        elif value not in (None, ()):
            words.append(f"--{flag.replace('_', '-')} {shlex.quote(str(value))}")
    return " ".join(words)
