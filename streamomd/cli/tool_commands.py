"""Commands that need no model: init, convert, list."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from typing import Any

import click

from streamomd.cli import formatting, list_tables
from streamomd.cli.command_group import CODES, Choice, guarded, main
from streamomd.cli.job_flags import LIST, NULLS, SHARES, complete_shards
from streamomd.cli.options import (
    csv_options,
    data_options,
    import_runs,
    joined,
    output_option,
    python_arguments,
    read_options_file,
)
from streamomd.core.errors import (
    DataError,
    OutputExistsError,
    SchemaError,
    TooLargeError,
    UsageError,
)
from streamomd.core.run_events import phase
from streamomd.core.urls import (
    protocol,
    refuse_ambiguous,
    refuse_output_url,
    shown,
    typed,
    userinfo,
)
from streamomd.core.wording import counted, workbook

TASKS = ("auto", "classify", "regress")


def init_csv_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """How text is read, for the job as well."""
    for option in csv_options("found in the text, or that of convert"):
        function = option(function)
    return function


@main.command(epilog=CODES)
@click.argument("sources", nargs=-1, required=True, shell_complete=complete_shards)
@click.option(
    "-o", "--output", "--to", "to", metavar="JOB.toml", default="job.toml", show_default=True,
    help="Job file to write.",
)  # fmt: skip
@click.option("--label", metavar="COLUMN", help="Column to predict.  [by its name, else the last]")
@click.option("--task", type=Choice(TASKS), help="What the label is.  [auto: by its values]")
@click.option("--ignore", type=LIST, default=(), metavar="COLUMNS", help="Columns to leave out.")
@click.option("--checkpoint", metavar="URL", help="Where the run is saved.  [runs/DATA]")
@click.option("-y", "--yes", is_flag=True, help="Ask nothing, as without a terminal.")
@click.option("--overwrite", is_flag=True, help="Overwrite an existing job file.")
@init_csv_options
@data_options
@guarded
def init(
    sources: tuple[str, ...],
    to: str,
    label: str | None,
    task: str | None,
    ignore: Sequence[str],
    checkpoint: str | None,
    yes: bool,
    overwrite: bool,
    storage_options: str | None,
    csv: dict[str, str],
) -> tuple[Any, str]:
    """Look at data and write a commented job file that trains on it.

    \b
      streamomd init rows.csv
      streamomd init rows/ -o bank.toml --label y --yes

    On a terminal it asks for the label, for the task if it is unclear, and for the checkpoint.
    """
    _check_output(to, overwrite=overwrite)
    for source in [*sources, checkpoint or ""]:
        refuse_ambiguous(source)
        if userinfo(source):
            raise UsageError(
                f"{shown(source)} was given with credentials, which a job file must not have: "
                "pass them with --storage-options or --checkpoint-storage-options"
            )
    import_runs()
    from streamomd.analysis import propose_job
    from streamomd.config.build_job import suggest_checkpoint
    from streamomd.runs.session import Session
    from streamomd.shards.output_files import open_atomic
    from streamomd.sources.tables import ending
    from streamomd.sources.text.text_cache import is_text

    options = read_options_file(storage_options)
    given = {"storage_options": options}
    facts, csv = _look(sources, given, csv, label)
    asking = not yes and sys.stdin.isatty() and sys.stderr.isatty()

    reason = "as asked for"
    if label is None:
        label, reason = propose_job.suggest_label(propose_job.without(facts, ignore))
        if asking:
            answer = _ask("label", label, lambda text: propose_job.require_column(facts, text))
            label, reason = (label, reason) if answer == label else (answer, "as asked for")
    target = propose_job.require_column(facts, label)
    if task is None and asking and propose_job.is_task_unclear(target):
        text = f"{counted(target.distinct, 'value')}: classify or regress"
        task = _ask(text, "classify", _check_task)
    url = checkpoint or suggest_checkpoint(sources)
    if checkpoint is None and asking:
        url = _ask("checkpoint", url, lambda text: None)

    proposal = propose_job.propose(
        facts, sources, label=label, label_reason=reason, task=task or "auto", checkpoint=url,
        ignore=ignore,
    )  # fmt: skip
    proposal = replace(proposal, csv=csv)
    session = Session.open(proposal.tables(), given)
    plan = session.plan()
    proposal = propose_job.with_task_reason(proposal, plan.classes, target)
    if plan.classes:
        proposal = replace(proposal, classes=propose_job.negative_first(target))
    proposal = replace(proposal, advice=_on_shapes(session, plan, to))
    with open_atomic(to, overwrite=overwrite) as file:
        file.write(proposal.toml().encode())
    command = f"streamomd train {typed(to)}"
    if storage_options:
        command += f" --storage-options {typed(storage_options)}"
    wrote = f"wrote {typed(to)}, from {counted(facts.seen, 'row')} of {facts.rows:,}"
    lines = [wrote, *proposal.summary(), f"next: {command}"]
    if is_text(sources[0]) and os.path.isfile(sources[0]):
        every = os.path.join(os.path.dirname(sources[0]), f"*{ending(sources[0])}")
        later = f"streamomd update {typed(proposal.checkpoint)} FILE"
        lines.append(f"a later file: {later} (or, for all that arrive: init {typed(every)})")
    figures = {"job": proposal.tables(), "rows": facts.rows, "rows_seen": facts.seen,
               "advice": [*proposal.advice]}  # fmt: skip
    return {**figures, "to": to, "next": command}, "\n".join(lines)


def _on_shapes(session: Any, plan: Any, to: str) -> tuple[str, ...]:
    """What curves and pairs of columns would bring, or the command that measures it."""
    from streamomd.training.choose_shapes import quick_advice

    # `train` reports rows that cannot be learned; the job file is written in any case.
    with suppress(DataError, TooLargeError):
        advice = quick_advice(session.spec.of_classes(len(plan.classes)), plan, session.shards)
        if advice is None:
            return (f"`streamomd plan {typed(to)}` measures curves and pairs of columns",)
        return tuple(advice)
    return ()


def _look(
    sources: tuple[str, ...], given: dict[str, Any], csv: dict[str, Any], label: str | None
) -> tuple[Any, dict[str, Any]]:
    """The facts of the data and how text is read: as given, and as its first reading suggests."""
    from streamomd.analysis.propose_job import suggest_csv
    from streamomd.config.build_job import build_job
    from streamomd.core.run_events import phase
    from streamomd.runs.session import find_shards
    from streamomd.sources.column_facts import look
    from streamomd.sources.text.csv_source import NO_HEADER
    from streamomd.sources.text.text_cache import is_csv, text_notes
    from streamomd.training.progress import note

    while True:
        data = {"shards": list(sources), "csv": csv}
        job = build_job({"data": data, "checkpoint": {"url": "none"}}, given)
        try:
            shards = find_shards(job)
        except SchemaError as error:
            if error.message.code != NO_HEADER:
                raise
            csv = {**csv, "header": False}
            continue
        with phase("looking at some rows"):
            facts = look(shards, job.data.store_options)
        paths = [shard.path for shard in shards]
        more = suggest_csv(facts, csv, label) if is_csv(paths[0]) else {}
        if not more:
            break
        note(f"reading the text again: {', '.join(f'{key} = {more[key]!r}' for key in more)}")
        csv = {**csv, **more}
    for line in text_notes(paths):
        note(line)
    return facts, csv


def _check_output(to: str, *, overwrite: bool) -> None:
    """Before the data are read. Raises UsageError or OutputExistsError."""
    refuse_output_url(to)
    if not to.endswith(".toml") or protocol(to):
        raise UsageError(f"-o {shown(to)}: expected a local file whose name ends in .toml")
    if os.path.isdir(to):
        raise UsageError(f"-o {shown(to)} is a directory: name a file in it")
    if os.path.lexists(to) and not overwrite:
        raise OutputExistsError(f"{shown(to)} already exists; --overwrite replaces it")


def _ask(text: str, default: str, check: Callable[[str], Any]) -> str:
    """An answer that ``check`` accepts; it raises UsageError."""

    def checked(answer: str) -> str:
        try:
            check(answer)
        except UsageError as error:
            raise click.UsageError(str(error)) from None
        return answer

    try:
        answer: str = click.prompt(text, default=default, value_proc=checked, err=True)
    except click.Abort:  # Ctrl-C, or the end of the input
        raise KeyboardInterrupt from None
    return answer


def _check_task(text: str) -> None:
    if text not in TASKS:
        raise UsageError("answer classify or regress")


TEXT_FORMATS = {
    "libsvm": "svmlight", "svm": "svmlight", "vowpal_wabbit": "vw", "tsv": "csv", "ndjson": "jsonl",
}  # fmt: skip
"""Other names of formats of text."""


@main.command(epilog=CODES)
@click.argument("sources", nargs=-1, required=True)
@click.option(
    "--from", "source_format",
    type=Choice(["csv", "jsonl", "svmlight", "vw", "arrows", "shards"], TEXT_FORMATS),
    help="Format of the sources; shards: what train reads.  [by the name of the first]",
)  # fmt: skip
@output_option("DIR", "Directory or URL to write the shards to.", required=True)
@click.option(
    "--as",
    "form",
    type=Choice(["parquet", "arrow"]),
    default="parquet",
    show_default=True,
    help="Format of the shards; arrow: larger, faster to read if rows are sparse.",
)
@click.option(
    "--lists-as",
    type=Choice(["list", "binary"]),
    default="list",
    show_default=True,
    help="Type of the list columns of svmlight and vw; binary: faster to read from Parquet.",
)
@click.option(
    "--compression",
    type=Choice(["lz4", "zstd", "none"]),
    help="Compression of Parquet shards; zstd: smaller, slower to read.  [lz4]",
)
@click.option("--shards", type=int, help="Number of shards to write; reads the sources twice.")
@click.option("--rows-per-shard", type=int, help="Number of rows per shard.  [1,000,000]")
@click.option(
    "--shuffle", type=int, metavar="SEED", help="Seed of a permutation of all rows.  [none]"
)
@click.option(
    "--split", type=SHARES, metavar="80,20",
    help="Write parts to DIR/train and DIR/test; others by name: fit=80,check=20.",
)  # fmt: skip
@click.option("--split-by", metavar="COLUMN", help="Rows of one value of it are in one part.")
@click.option("--split-time", metavar="COLUMN", help="The earliest rows are in the first part.")
@click.option("--split-seed", type=int, metavar="SEED", help="Seed of the hash of a split.  [0]")
@click.option("--overwrite", is_flag=True, help="Overwrite existing shards.")
@click.option("--append", is_flag=True, help="Add to existing shards, as a new day's rows.")
@click.option("--no-header", is_flag=True, help="csv: the first line has values, not names.")
@click.option("--delimiter", help="csv: character between values.  [found in the first line]")
@click.option("--decimal", metavar="CHAR", help="csv: decimal mark of numbers, . or a comma.  [.]")
@click.option("--date-format", metavar="FORMAT", help="csv: of dates, e.g. %d.%m.%Y.  [ISO 8601]")
@click.option("--encoding", help="Encoding of the text, e.g. latin-1.  [utf-8; utf-16 by its mark]")
@click.option("--no-quotes", is_flag=True, help="csv: quotes are part of the values.")
@click.option(
    "--type", "types", multiple=True, type=LIST, metavar="COL=TYPE,…",
    help="Types of columns of csv and jsonl, e.g. zip=string.",
)  # fmt: skip
@click.option(
    "--null", "--null-values", "null_values", multiple=True, type=NULLS, metavar="A,B,…",
    help="csv: texts that mean a missing value.  [NA, N/A, NaN, null, …]",
)  # fmt: skip
@click.option(
    "--one-based/--zero-based", default=None, help="svmlight: whether the first index is 1 or 0."
)
@click.option("--size", type=int, help="svmlight: number of coordinates.  [largest index + 1]")
@click.option("--bits", type=int, help="vw: number of coordinates, as a power of 2.  [18]")
@click.option("--hash-seed", type=int, help="vw: seed of the hash function.  [0]")
@data_options
@guarded
def convert(
    sources: tuple[str, ...],
    no_header: bool,
    no_quotes: bool,
    types: tuple[list[str], ...],
    null_values: tuple[list[str], ...],
    one_based: bool | None,
    **given: Any,
) -> tuple[Any, str]:
    """Convert text files, Arrow streams or shards of any size to shards; - is standard input.

    \b
      streamomd convert covtype.csv.gz -o covertype/ --rows-per-shard 36314
      streamomd convert preise.csv -o prices/ --decimal , --encoding latin-1
      streamomd convert rows.svm --from svmlight -o rows/ --shuffle 1
      streamomd convert sorted/ -o shuffled/ --shuffle 0
      streamomd convert visits.csv -o visits/ --split 80,20 --split-time day
    """
    with phase("starting"):
        from streamomd.core.platform_calls import stopping_promptly
        from streamomd.sources.text.convert import convert
        from streamomd.training.progress import copying

    given = python_arguments(given)
    given |= {"header": False} if no_header else {}
    given |= {"quotes": False} if no_quotes else {}
    given |= {"types": _pairs(joined(types))} if types else {}
    given |= {"null_values": tuple(joined(null_values))} if null_values else {}
    given["source_format"] = given["source_format"] or _assumed(sources)
    given |= {"zero_based": not one_based} if one_based is not None else {}
    wanted = {key: value for key, value in given.items() if value not in (None, ())}
    with stopping_promptly(f"converting {sources[0]}"):
        done = convert(sources, progress=copying(), **wanted)
    added = bool(wanted.get("append"))
    return asdict(done), formatting.format_conversion(asdict(done), added=added)


@main.command("list", epilog=CODES)
@click.argument("kind", type=Choice(["rules", "losses", "formats", "modes", "exports"]))
@guarded
def list_command(kind: str) -> tuple[Any, str]:
    """List the rules, losses, formats, modes or export formats."""
    rows = list_tables.LISTS[kind]()
    return {kind: rows}, list_tables.format_list(rows)


def _assumed(sources: tuple[str, ...]) -> str:
    """The format that the first source's name says."""
    from streamomd.sources.files.paths import is_shard_name
    from streamomd.sources.tables import assumed_format

    if found := assumed_format(sources[0]):
        return found
    if is_shard_name(sources[0]) or sources[0].endswith("/") or os.path.isdir(sources[0]):
        return "shards"
    if what := workbook(sources[0]):
        raise UsageError(f"{sources[0]!r} is {what}")
    raise UsageError(
        f"{sources[0]!r} does not say its format: pass --from csv, jsonl, svmlight, vw, arrows or "
        "shards"
    )


def _pairs(texts: list[str]) -> dict[str, str]:
    for text in texts:
        if "=" not in text:
            raise UsageError(f"--type {text}: expected COLUMN=TYPE, e.g. zip=string")
    return dict(text.rsplit("=", 1) for text in texts)
