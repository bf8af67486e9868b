"""SECURITY.md lists every command that opens a checkpoint, and what it trusts."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import click
import pytest

from streamomd.cli import main

SECURITY = Path(__file__).parents[2] / "SECURITY.md"
OPENS = {"url", "start", "checkpoint_storage_options"}
"""Parameters of commands that open a checkpoint."""
OPEN_NONE = {"convert", "demo", "init", "list", "logs"}


def commands(group: click.Group, above: str = "") -> Iterator[tuple[str, click.Command]]:
    """Every command with its whole name."""
    for name, command in group.commands.items():
        if isinstance(command, click.Group):
            yield from commands(command, f"{above}{name} ")
        else:
            yield above + name, command


def rows(text: str) -> dict[str, str]:
    """The table's last cell by command."""
    section = text.split("## What each command trusts")[1].split("\n## ")[0]
    lines = [line.strip("| ").split(" | ") for line in section.splitlines() if "|" in line]
    return {cells[0].strip("`"): cells[-1] for cells in lines if cells[0].startswith("`")}


def problems(group: click.Group, text: str) -> list[str]:
    """Commands that are missing in the table, or wrongly there or in OPEN_NONE."""
    found, listed = dict(commands(group)), rows(text)
    opens = {name for name, one in found.items() if OPENS & {p.name for p in one.params}}
    return [
        *(f"{name} opens a checkpoint and has no row" for name in sorted(opens - {*listed})),
        *(f"{name} has neither a row nor a place in OPEN_NONE"
          for name in sorted({*found} - {*listed} - OPEN_NONE)),
        *(f"{name} is no command that opens a checkpoint" for name in sorted({*listed} - opens)),
    ]  # fmt: skip


def test_every_command_that_opens_a_checkpoint_is_in_the_table() -> None:
    """No command is missing, none is there that opens none; OPEN_NONE holds all others."""
    assert not problems(main, SECURITY.read_text("utf-8"))
    assert {name for name, _ in commands(main)} == {*rows(SECURITY.read_text("utf-8"))} | OPEN_NONE


def altered(**more: click.Command) -> click.Group:
    """The commands with others in addition."""
    return click.Group("streamomd", commands={**main.commands, **more})


URL, START = click.Argument(["url"]), click.Option(["--start"])
OPTIONS = click.Option(["--checkpoint-storage-options"])
MUTANTS: Mapping[str, tuple[click.Group, str, str]] = {
    "a row removed": (main, r"\| `watch` .*\n", "watch opens a checkpoint and has no row"),
    "a row of a subcommand removed": (
        main, r"\| `checkpoint list` .*\n", "checkpoint list opens a checkpoint and has no row"
    ),
    "a new command with a URL": (
        altered(study=click.Command("study", params=[URL])), "", "study opens"
    ),
    "a new command with a start": (
        altered(study=click.Command("study", params=[START])), "", "study opens"
    ),
    "a new command with storage options": (
        altered(judge=click.Command("judge", params=[OPTIONS])), "", "judge opens"
    ),
    "a new command with other parameters": (
        altered(probe=click.Command("probe")), "", "probe has neither a row nor a place"
    ),
    "a new group": (
        altered(runs=click.Group("runs", commands={"show": click.Command("show", params=[URL])})),
        "", "runs show opens",
    ),
}  # fmt: skip


@pytest.mark.parametrize("mutant", MUTANTS)
def test_a_missing_command_is_found(mutant: str) -> None:
    """The check can fail: without a row, and with a command that has none."""
    group, pattern, expected = MUTANTS[mutant]
    text = SECURITY.read_text("utf-8")
    changed = re.sub(pattern, "", text) if pattern else text
    assert any(problem.startswith(expected) for problem in problems(group, changed))


def test_only_resume_update_and_follow_open_a_url_that_a_manifest_names() -> None:
    """By the table's last column; test_foreign_checkpoint shows it of each command."""
    opening = {name for name, cell in rows(SECURITY.read_text("utf-8")).items() if "opened" in cell}
    assert opening == {"resume", "update", "follow"}
