"""Commands that come before a run: plan describes its job, warm compiles its loops."""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

import click

from streamomd.cli.command_group import CODES, guarded, main
from streamomd.cli.formatting import format_table
from streamomd.cli.job_flags import JobCommand
from streamomd.cli.options import (
    checkpoint_options,
    data_options,
    import_runs,
    job_and_shards,
    python_arguments,
    set_option,
    what,
)
from streamomd.core.errors import UsageError
from streamomd.core.run_events import phase
from streamomd.core.urls import harmless, printable, shown, typed
from streamomd.core.wording import counted


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
    what: tuple[str, ...], scan_labels: bool, workers: int | None, price: float | None, **given: Any
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
            from streamomd.analysis.preview import scan_labels as count_labels
        job, given = job_and_shards(what, given)
        counts = count_labels(job, **python_arguments(given))
        return counts, format_labels(counts)
    with phase("starting"):
        from streamomd.analysis.preview import preview
    if price is not None and workers is None:
        raise UsageError("--price is that of a worker for an hour: give --workers, e.g. 10")
    if price is not None and math.isnan(price):  # which no range of click's excludes
        raise UsageError("--price is nan: expected that of a worker for an hour, e.g. 0.05")
    command = _train_command(what, given)
    job, given = job_and_shards(what, given)
    figures = preview(job, workers=workers or 0, price=price, **python_arguments(given))
    result = {**figures, "next": command}
    return result, format_plan(result, command)


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


MAX_COLUMNS = 40  # columns with a line each


def format_plan(plan: Mapping[str, Any], command: str) -> str:
    """What a job would do, and the command to run next."""
    unit = plan["unit"]
    return "\n".join(
        [
            *plan["plan"],
            f"{counted(plan['rows'], 'row')} in {counted(plan['shards'], 'shard')}, "
            f"{_bytes(plan['bytes'])}",
            "",
            *_columns(plan["columns"], unit["rows"]),
            f"counted in all {counted(unit['rows'], 'row')}"
            if unit["rows"] == plan["rows"]
            else f"counted in the first {unit['rows']:,} rows, from {shown(unit['shard'])}",
            "",
            *_hashed(plan["hashed"]),
            *_memory(plan["memory"]),
            *_time(plan["time"]),
            *_cluster(plan["cluster"]),
            *plan["advice"],
            "next:",
            f"  {command}",
        ]
    )


def format_labels(labels: Mapping[str, Any]) -> str:
    """The rows of each label, and the line of a job file that names the classes."""
    rows, missing = labels["rows"], labels["missing"]
    lines = [f"label {printable(labels['label'])!r}: {labels['values']:,} values in {rows:,} rows"]
    shown_rows = [
        {"value": one["value"], "rows": f"{one['rows']:,}", "share": f"{one['rows'] / rows:.2%}"}
        for one in labels["by_value"][:MAX_COLUMNS]
    ]
    more = labels["values"] - len(shown_rows)
    lines += [format_table(shown_rows)] if shown_rows else []
    lines += [f"… {more:,} more (--json has {len(labels['by_value']):,})"] if more > 0 else []
    if missing:
        lines.append(f"{counted(missing, 'row')} without a label: bad rows")
    if labels["rare"] and not labels["regression"]:
        from streamomd.features.labels import FEWEST_ROWS

        some = ", ".join(printable(str(one)) for one in labels["rare"][:MAX_COLUMNS])
        lines.append(f"classes of fewer than {FEWEST_ROWS} rows: {some}")
    if labels["regression"]:
        lines.append(f"these are targets of a regression: {labels['regression']}")
    elif labels["classes"]:
        lines += ["in the job file:", "  [model]", f"  {labels['classes']}"]
    else:
        lines.append("training needs two classes")
    return "\n".join(lines)


def _columns(columns: Sequence[Mapping[str, Any]], rows: int) -> list[str]:
    rows_shown = [
        {
            "name": one["name"],
            "type": _short_type(one["type"]),
            "kind": one["kind"],
            "coordinates": _count(one["coordinates"]),
            f"in {counted(rows, 'row')}": _count(one["seen"]),
            "expected": _count(one["expected"]),
        }
        for one in columns[:MAX_COLUMNS]
    ]
    more = len(columns) - MAX_COLUMNS
    return [format_table(rows_shown), *([f"… {more} more (--json has all)"] if more > 0 else [])]


def _short_type(name: str) -> str:
    """Arrow's name of a type, without what no reader needs.

    >>> _short_type("dictionary<values=string, indices=int32, ordered=0>"), _short_type("int64")
    ('dictionary<string>', 'int64')
    >>> _short_type("list<element: string>"), _short_type("decimal128(12, 2)")
    ('list<string>', 'decimal128(12, 2)')
    """
    coded = re.fullmatch(r"dictionary<values=(.*), indices=\w+, ordered=\d>", name)
    return re.sub(r"<(element|item): ", "<", f"dictionary<{coded[1]}>" if coded else name)


def _hashed(hashed: Mapping[str, Any] | None) -> list[str]:
    if hashed is None:
        return []
    lines = [
        f"hashed values: {hashed['seen']:,} seen, about {hashed['expected']:,} expected, in about "
        f"{hashed['used_expected']:,.0f} of 2^{hashed['bits']} coordinates",
        f"expected collisions: {_few(hashed['share_seen'])} of the values seen, "
        f"{_few(hashed['share_expected'])} of all",
    ]
    if hashed["share_expected"] > 0.1 * hashed["expected"]:
        more = hashed["bits"] + 2
        lines.append(
            f"more than a tenth collide: data.bits = {more} has four times as many coordinates"
        )
    return lines


def _memory(memory: Mapping[str, Any]) -> list[str]:
    copied = f" plus a copy for commits ({_bytes(memory['copy'])})"
    needed = memory["state"] + memory["copy"] + memory["decoding"]
    free = f"; {_bytes(memory['free'])} available" if memory["free"] < 2**60 else ""
    lines = [
        f"memory: state {_bytes(memory['state'])}{copied if memory['copy'] else ''}, decoded "
        f"rows up to {_bytes(memory['decoding'])}{free}"
    ]
    if needed > memory["free"]:
        lines.append("that is more than available: lower data.bits, or set model.dtype to float32")
    return lines


def _time(time: Mapping[str, Any]) -> list[str]:
    decoding = f"{1e6 * time['decode_per_row']:.2f} µs per row to read and decode"
    if time["seconds"] is None:
        return [f"time: {decoding}; the state is too large to measure learning"]
    learning = f"{1e6 * time['learn_per_row']:.2f} to learn"
    return [
        f"time: about {_seconds(time['seconds'])} for {counted(time['epochs'], 'epoch')} in one "
        f"process on {counted(time['cores'], 'core')}, after {time['compile_seconds']:.1f} s of "
        f"compiling ({decoding}, {learning})"
    ]


def _cluster(cluster: Mapping[str, Any] | None) -> list[str]:
    """The cost of an epoch on a cluster, a line for each mode."""
    if cluster is None:
        return []
    workers, modes = cluster["workers"], cluster["modes"]
    rows = [_mode_cost(one) for one in modes]
    used = modes[1]["used"]
    few = [f"{used} of {workers:,} workers are used by averaged and sharded mode; set train.parts"]
    return [
        "",
        f"an epoch on {counted(workers, 'worker')}, on paper (docs/cost-model.md):",
        format_table(rows),
        *(few if used < workers else []),
        "",
    ]


def _mode_cost(one: Mapping[str, Any]) -> dict[str, str]:
    """A mode's line; without figures if the rule cannot learn in it."""
    figures = {
        "time": _seconds(one["seconds"]),
        "a worker": _bytes(one["worker_bytes"]),
        "driver": _bytes(one["driver_bytes"]),
        "reads": f"{one['reads']:,}",
        "writes": f"{one['writes']:,}",
        **({} if one["money"] is None else {"price": f"{one['money']:,.2f}"}),
    }
    if one["problem"]:
        figures = dict.fromkeys(figures, "")
    return {"mode": one["mode"], **figures, "limit": one["problem"] or one["limit"]}


def _count(number: int | None) -> str:
    return "" if number is None else f"{number:,}"


def _few(number: float) -> str:
    return f"{number:,.0f}" if number >= 10 else f"{number:.2g}"


def _seconds(seconds: float) -> str:
    """A time with a suitable unit.

    >>> _seconds(0.25), _seconds(75), _seconds(7_500), _seconds(200_000)
    ('0.25 s', '75 s', '125 min', '55.6 h')
    """
    if seconds < 180:
        return f"{seconds:.3g} s"
    return f"{seconds / 60:.0f} min" if seconds < 10_800 else f"{seconds / 3600:.1f} h"


def _bytes(number: float) -> str:
    """A size with a suitable unit.

    >>> _bytes(800), _bytes(3 << 20), _bytes(5 << 30)
    ('800 bytes', '3.0 MiB', '5.0 GiB')
    """
    for size, unit in ((2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB")):
        if number >= size:
            return f"{number / size:.1f} {unit}"
    return f"{number:.0f} bytes"


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

    result = warm_job(job, **python_arguments(given))
    return result, _line(result)


def _line(found: dict[str, Any]) -> str:
    loaded = found["loops"] - found["compiled"]
    text = (
        f"{counted(found['compiled'], 'loop')} compiled, {loaded} compiled before, "
        f"in {found['seconds']:.1f} s"
    )
    return f"{text}: {harmless(found['folder'])}" if found["folder"] else text
