"""Text that users read has standard terms: README, docs, command help, messages and docstrings.

Code, literal paths and quoted output are exempt: they are code spans and code blocks in Markdown,
and in double backticks in docstrings. docs/glossary.md has the terms to use.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import click
import pytest
from documented import MADE, ROOT
from user_text import markdown_lines, source_lines

from streamomd.cli import main

WORDS = {
    "told|tells?": "reported, logged, printed",
    "heard": "received",
    "kept": "saved, retained",
    "begun": "started",
    "anew": "again; overwrite, start over",
    "mend(s|ed|ing)?": "fix, repair",
    "beside": "next to, in addition to",
    "whoever|somebody|nobody": "the actor, or the passive voice",
    "(go|goes|going|gone|went) on": "resume, continue",
    "tak(e|es|en) up again": "resume",
    "at once": "immediately, in one batch",
    "by hand": "manually",
    "a thing": "the noun",
    "indeed": "nothing",
    "so many": "a number",
    "what there is": "the noun",
    "the very bits": "bit-identical",
    "left out": "skipped, omitted",
    "rows held out": "hold-out rows",
    "in clear": "unencrypted",
    "commonest": "most common",
    "gang": "worker group",
    "is not what it must be": "invalid",
    "times to read the rows": "epochs",
}
FORBIDDEN = re.compile(rf"\b(?:{'|'.join(WORDS)})\b", re.I)

PENDING: dict[str, int] = {}
"""Hits that remain, by page or package. The numbers only fall."""


def pages() -> list[str]:
    """Every page, except those of the rules, which are made from docstrings."""
    found = [
        *ROOT.glob("*.md"), *ROOT.glob("deploy/*.md"), *ROOT.glob("docs/*.md"),
        *ROOT.glob("pipelines/*/README.md"), *ROOT.glob("benchmarks/**/*.md"),
        *ROOT.glob("docs/decisions/*.md"),
    ]  # fmt: skip
    return sorted(
        str(path.relative_to(ROOT))
        for path in found
        if not path.read_text("utf-8").startswith(MADE)
    )


def packages() -> list[str]:
    """Packages and modules of streamomd, by path."""
    found = (ROOT / "streamomd").glob("*")
    return sorted(
        str(path.relative_to(ROOT))
        for path in found
        if path.suffix == ".py" or path.is_dir()
        if not path.name.startswith("__pycache__")
    )


def hits(name: str, lines: Iterator[tuple[int, str]]) -> list[str]:
    """Each forbidden word with file, line and text."""
    return [
        f"{name}:{number}: {found[0]!r} in: {' '.join(text.split())[:90]}"
        for number, text in lines
        for found in FORBIDDEN.finditer(text)
    ]


def hits_of_page(name: str) -> list[str]:
    """Of a Markdown page."""
    return hits(name, markdown_lines((ROOT / name).read_text("utf-8")))


def hits_of_package(name: str) -> list[str]:
    """Of every source file of a package, or of one module."""
    path = ROOT / name
    files = sorted(path.rglob("*.py")) if path.is_dir() else [path]
    return [
        hit for file in files
        for hit in hits(str(file.relative_to(ROOT)), source_lines(file.read_text("utf-8")))
    ]  # fmt: skip


def help_texts(command: click.Command, name: str) -> Iterator[tuple[str, str]]:
    """Help of a command, of its options and of its subcommands, with where it is shown."""
    yield f"{name} --help", command.help or ""
    for option in command.params:
        if isinstance(option, click.Option):
            yield f"{name} {option.opts[-1]}", option.help or ""
    if isinstance(command, click.Group):
        for below, one in command.commands.items():
            yield from help_texts(one, f"{name} {below}")


def found_everywhere() -> dict[str, list[str]]:
    """The hits of each page and package, and of the help of all commands."""
    help_hits = [
        f"{where}: {word[0]!r} in: {text}"
        for where, text in help_texts(main, "streamomd")
        for word in FORBIDDEN.finditer(text)
    ]
    return {
        **{page: hits_of_page(page) for page in pages()},
        **{package: hits_of_package(package) for package in packages()},
        "command help": help_hits,
    }


@pytest.fixture(scope="module")
def found() -> dict[str, list[str]]:
    """Scanned once."""
    return found_everywhere()


def test_user_facing_text_has_standard_terms(found: dict[str, list[str]]) -> None:
    """No page, message, help text or public docstring has a word that the glossary replaces, but
    for those that are pending, which are exactly the hits that remain: lower the numbers with each
    text that is rewritten."""
    counts = {place: len(hits) for place, hits in found.items() if hits}
    differ = [place for place in {*counts, *PENDING} if counts.get(place) != PENDING.get(place)]
    hits = [hit for place in differ for hit in found.get(place, [])]
    assert not differ, "\n".join([*hits, f"set PENDING to {counts}"])


REFERENCE = {"api.md", "job-file.md"}


def test_no_page_is_longer_than_a_reader_in_a_hurry_reads() -> None:
    """1,500 words, but for references; all pages of docs/ 45,000."""
    words = {page.name: len(page.read_text("utf-8").split()) for page in ROOT.glob("docs/*.md")}
    assert not [name for name, count in words.items() if count > 1500 and name not in REFERENCE]
    assert sum(words.values()) <= 45_000


HISTORY = re.compile(
    r"earlier (?:runs? of|versions? (?:had|was|did))|older `auto`|latest version of|that is fixed|"
    r"in an earlier run|release before|unreleased version|before its solve|since then",
    re.I,
)


def test_pages_state_no_unreleased_history() -> None:
    """What is true of this version; the changelog and decisions have what changed, and why."""
    files = [ROOT / "README.md", *ROOT.glob("docs/*.md"), *ROOT.glob("benchmarks/results/*")]
    hits = [
        f"{file.name}: {found[0]}"
        for file in files
        for found in HISTORY.finditer(" ".join(file.read_text("utf-8").split()))
    ]
    assert not hits


PAGE = """# What is told

Runs are kept, and `streamomd` resumes what `was told`.

| a | b |
|---|---|
| x | mended |

```text
kept in runs/a
```

    kept in runs/b

[a link](decisions/016-metrics.md)
"""

SOURCE = '''"""A run is begun."""

def learn(rows):
    """Told ``kept in`` nobody.

    >>> "told"
    """
    # a comment is told
    note(f"commit {rows} kept")
    raise ValueError(f"{rows} is not kept", "at once")

def _hidden():
    """Told."""

option(help="Begin anew.")
'''


def test_words_are_found_with_file_and_line() -> None:
    """In headings, text, tables, docstrings, messages and help; not in code, links or output."""
    places = [hit.split(" in: ")[0] for hit in hits("a.md", markdown_lines(PAGE))]
    assert places == ["a.md:1: 'told'", "a.md:3: 'kept'", "a.md:7: 'mended'"]
    places = [hit.split(" in: ")[0] for hit in hits("a.py", source_lines(SOURCE))]
    assert sorted(places) == sorted([
        "a.py:1: 'begun'", "a.py:4: 'Told'", "a.py:4: 'nobody'", "a.py:9: 'kept'",
        "a.py:10: 'kept'", "a.py:10: 'at once'", "a.py:15: 'anew'",
    ])  # fmt: skip


@pytest.mark.parametrize("word", WORDS)
def test_every_word_can_be_found(word: str) -> None:
    """Each pattern matches its own words, and not a part of a longer one."""
    example = re.sub(r"\(([^)|]*)\|[^)]*\)\??|\|.*|\?", r"\1", word)
    assert FORBIDDEN.search(f"It is {example}.")
    assert not FORBIDDEN.search(f"x{example.replace(' ', '')}x")
