"""Help as a newcomer meets it: whole sentences, and a slip of the finger is understood."""

from __future__ import annotations

import click
import pytest
from running import run

from streamomd.cli import main

pytestmark = pytest.mark.smoke


def commands(group: click.Group, before: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    """Every command there is, as it is typed."""
    found = []
    for name, command in group.commands.items():
        found.append((*before, name))
        if isinstance(command, click.Group):
            found += commands(command, (*before, name))
    return found


@pytest.mark.parametrize("words", commands(main), ids=" ".join)
def test_an_unknown_command_names_the_nearest(words: tuple[str, ...]) -> None:
    """Every command, two letters of it swapped: exit 2, and what was meant."""
    *before, name = words
    done = run(*before, name[0] + name[2] + name[1] + name[3:])
    assert done.code == 2
    assert f"'{name}'" in done.err.partition("Did you mean")[2]


@pytest.mark.parametrize("words", commands(main), ids=" ".join)
def test_an_unknown_option_names_the_nearest(words: tuple[str, ...]) -> None:
    """So does an option of every command."""
    done = run(*words, "--hlep")
    assert done.code == 2
    assert "'--help'" in done.err.partition("Did you mean")[2]


def test_commands_are_listed_with_whole_sentences() -> None:
    """The first sentence of each, however long, and each command once."""
    text = " ".join(run("--help").out.partition("Commands:")[2].split())
    for name, command in main.commands.items():
        sentence = " ".join(str(command.help).split("\n\n")[0].split()).removesuffix(".")
        assert f"{name} {sentence}" in text
