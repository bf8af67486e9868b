"""An option's value that is one of a few words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from streamomd.core.nearest import nearest


class Choice(click.ParamType[str]):
    """One of a few words, or another name of one; an unknown word gets the nearest one."""

    name = "choice"

    def __init__(self, words: Sequence[str], others: dict[str, str] | None = None) -> None:
        self.words, self.others = tuple(words), others or {}

    def get_metavar(self, param: click.Parameter, ctx: click.Context) -> str:
        """Called by click for the help."""
        words = "|".join(self.words)
        return f"{{{words}}}" if param.param_type_name == "argument" else f"[{words}]"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Called by click."""
        word = self.others.get(value, value)
        if word not in self.words:
            found = nearest(value, [*self.words, *self.others])
            hint = f"; did you mean {found!r}?" if found else ""
            self.fail(f"{value!r} is not one of {', '.join(self.words)}{hint}")
        return word

    def get_missing_message(self, param: click.Parameter, ctx: click.Context | None) -> str:
        """Called by click for the end of the message about a missing option."""
        return f"Choose from: {', '.join(self.words)}."

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[Any]:
        """Called by click."""
        from click.shell_completion import CompletionItem

        return [CompletionItem(word) for word in self.words if word.startswith(incomplete)]
