"""The command that compiles a job's loops before it runs: warm."""

from __future__ import annotations

from typing import Any

from streamomd.cli.job_flags import JobCommand
from streamomd.cli.options import (
    CODES,
    checkpoint_options,
    data_options,
    guarded,
    import_runs,
    job_and_shards,
    main,
    python_arguments,
    set_option,
    what,
)
from streamomd.core.counted import counted
from streamomd.core.urls import harmless


@main.command(cls=JobCommand, epilog=CODES)
@what
@data_options
@checkpoint_options
@set_option
@guarded
def warm(what: tuple[str, ...], **given: Any) -> tuple[Any, str]:
    """Compile all loops that a job needs, so that its run, and others like it, start fast.

    \b
      streamomd warm job.toml
      streamomd warm rows/ --label y --rule nag

    It reads footers and a unit of rows. Only the disk cache of compiled loops changes:
    NUMBA_CACHE_DIR, or __pycache__ of the package. Loops depend on the rule, loss, number of
    classes, types and kinds of columns, and the processor.
    """
    job, given = job_and_shards(what, given)
    import_runs()
    from streamomd.analysis.warm_loops import warm as warm_job

    found = warm_job(job, **python_arguments(given))
    return found, _line(found)


def _line(found: dict[str, Any]) -> str:
    loaded = found["loops"] - found["compiled"]
    text = (
        f"{counted(found['compiled'], 'loop')} compiled, {loaded} compiled before, "
        f"in {found['seconds']:.1f} s"
    )
    return f"{text}: {harmless(found['folder'])}" if found["folder"] else text
