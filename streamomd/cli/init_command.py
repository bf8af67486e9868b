"""The command that proposes a job for data: init."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import click

from streamomd.cli.command_group import CODES, Choice, guarded, main
from streamomd.cli.job_flags import complete_shards
from streamomd.cli.options import csv_options, data_options, import_runs, read_options_file
from streamomd.core.errors import OutputExistsError, UsageError
from streamomd.core.urls import (
    protocol,
    refuse_ambiguous,
    refuse_output_url,
    shown,
    typed,
    userinfo,
)
from streamomd.core.wording import counted

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
    from streamomd.config.build_job import build_job, suggest_checkpoint
    from streamomd.core.run_events import phase
    from streamomd.runs.session import Session, find_shards
    from streamomd.shards.output_files import open_atomic
    from streamomd.sources.column_facts import look
    from streamomd.sources.text.text_cache import text_notes
    from streamomd.training.progress import note

    options = read_options_file(storage_options)
    given = {"storage_options": options}
    data = {"shards": list(sources), "csv": csv}
    looked_at = build_job({"data": data, "checkpoint": {"url": "none"}}, given)
    shards = find_shards(looked_at)
    for line in text_notes([shard.path for shard in shards]):
        note(line)
    with phase("looking at the first rows"):
        facts = look(shards, looked_at.data.store_options)
    asking = not yes and sys.stdin.isatty() and sys.stderr.isatty()

    reason = "as asked for"
    if label is None:
        label, reason = propose_job.suggest_label(facts)
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
        facts, sources, label=label, label_reason=reason, task=task or "auto", checkpoint=url
    )
    proposal = replace(proposal, csv=csv)
    classes = Session.open(proposal.tables(), given).plan().classes
    proposal = propose_job.with_task_reason(proposal, classes, target)
    if classes:
        proposal = replace(proposal, classes=propose_job.negative_first(target))
    with open_atomic(to, overwrite=overwrite) as file:
        file.write(proposal.toml().encode())
    command = f"streamomd train {typed(to)}"
    if storage_options:
        command += f" --storage-options {typed(storage_options)}"
    wrote = f"wrote {typed(to)}, from {counted(facts.seen, 'row')} of {facts.rows:,}"
    lines = [wrote, *proposal.summary(), f"next: {command}"]
    return {**propose_job.job_figures(proposal, facts), "to": to, "next": command}, "\n".join(lines)


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
