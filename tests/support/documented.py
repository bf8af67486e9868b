"""The code blocks of README and docs: what each one is, and whether it is of its language.

A block is run, after the others of its page, unless an HTML comment stands right before it:
``<!-- not run: REASON -->`` (it is parsed), ``<!-- slow: REASON -->`` (run in the long run), or
``<!-- run as: COMMAND -->`` (what of it can be run here). A block of ``text`` after commands is
what they print, where ``…`` stands for anything.
"""

from __future__ import annotations

import ast
import contextlib
import doctest
import json
import re
import shlex
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
from markdown_it import MarkdownIt

from streamomd.cli import main
from streamomd.cli.options import job_and_shards
from streamomd.config.build_job import build_job, parse_sets
from streamomd.config.flags import all_flags
from streamomd.runs.sweep.grid import parse_grid

ROOT = Path(__file__).parents[2]
MADE = "<!-- Made by python -m tests.support.rule_docs"  # their blocks are doctests of the rules
PAGES = {
    str(path.relative_to(ROOT)): path
    for path in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")))
    if not path.read_text("utf-8").startswith(MADE)
}
MARK = re.compile(r"<!-- (not run|slow|run as): (.+?) -->\s*")
SHELL = ("", "bash")
MARKDOWN = MarkdownIt("commonmark").enable("table")
SPECIAL = re.compile(r"^[();<>|&]+$")


@dataclass(frozen=True)
class Block:
    """A block of code: its first line, its language, and its mark: which, and what it says."""

    line: int
    language: str
    text: str
    mark: str = ""
    reason: str = ""


def blocks(page: Path) -> list[Block]:
    """The blocks of a page, in order."""
    found, mark, reason = [], "", ""
    for token in MARKDOWN.parse(page.read_text("utf-8")):
        if token.type in ("fence", "code_block"):
            assert token.map
            found.append(Block(token.map[0] + 1, token.info.strip(), token.content, mark, reason))
        comment = MARK.fullmatch(token.content) if token.type == "html_block" else None
        mark, reason = comment.groups() if comment else ("", "")
    return found


def to_run(page: str, *, slow: bool) -> Iterator[Block]:
    """The blocks of a page that are to be run, in order."""
    for block in blocks(PAGES[page]):
        if block.mark != "not run" and (slow or block.mark != "slow"):
            yield block


def inline(page: Path) -> list[str]:
    """Commands in the midst of a text, or of a table."""
    tokens = [
        child for one in MARKDOWN.parse(page.read_text("utf-8")) for child in one.children or ()
    ]
    code = [token.content for token in tokens if token.type == "code_inline"]
    return [text for text in code if text.startswith("streamomd ")]


def lines_of(text: str) -> list[str]:
    """Lines to type: those that a backslash continues are one, comments are left out."""
    lines = text.replace("\\\n", " ").splitlines()
    return [line for line in lines if line.strip() and not line.lstrip().startswith("#")]


def commands(line: str) -> list[list[str]]:
    """The words of each simple command of a line, without what it is joined by."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
    lexer.whitespace_split, lexer.commenters = True, "#"
    found: list[list[str]] = [[]]
    for word in lexer:
        if SPECIAL.match(word):
            found.append([])
        else:
            found[-1].append(word)
    return [words for words in found if words]


def parse_command(words: list[str]) -> None:
    """Raises click's UsageError for a command, option or argument that there is not, and
    streamomd's for a job that is not legal."""
    command: click.Command = main
    # With main's own settings: a command keeps the names of its help from the first context it has.
    context = click.Context(main, info_name="streamomd", **main.context_settings)
    while isinstance(command, click.Group) and words and not words[0].startswith("-"):
        name, found, words = command.resolve_command(context, words)
        assert found
        command, context = found, click.Context(found, info_name=name, parent=context)
    if not isinstance(command, click.Group):
        with contextlib.suppress(click.exceptions.Exit):
            made = command.make_context(context.info_name, [*words], parent=context.parent)
            _build(made.params)


def _build(given: dict[str, Any]) -> None:
    """Raises streamomd's UsageError for a job that is not legal, where flags describe all of it."""
    job, given = job_and_shards(given["what"], given) if "what" in given else ("", given)
    if job is None:
        flags = {
            key: value
            for key, value in given.items()
            if key in all_flags() and "options" not in key
        }
        build_job(None, flags, parse_sets(given["sets"]))
        parse_grid(given.get("texts", ()))


def parse_shell(text: str) -> None:
    """Every ``streamomd`` command in it parses."""
    for line in lines_of(text):
        for words in commands(line):
            while words and re.fullmatch(r"\w+=.*", words[0]):
                words = words[1:]
            for at, word in enumerate(words[:2]):
                if word.rpartition("/")[2] == "streamomd" and not word.endswith("/"):
                    parse_command(words[at + 1 :])
                    break


def parse(block: Block) -> None:
    """Raises if a block is not of its language."""
    if block.language in SHELL:
        parse_shell(block.text)
    elif block.language == "python":
        ast.parse(source(block.text))
    elif block.language == "toml":
        tomllib.loads(block.text)
    elif block.language == "json":
        json.loads(block.text)
    else:
        assert block.language == "text", f"a block of {block.language!r}: nobody knows to read it"


def source(text: str) -> str:
    """Python to be compiled: of doctests what is typed."""
    examples = doctest.DocTestParser().get_examples(text)
    return "".join(example.source for example in examples) if examples else text
