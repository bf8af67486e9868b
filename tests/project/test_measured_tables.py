"""Each table of figures in README and docs names the script that prints it, and
benchmarks/tables.py runs that script."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[2]
sys.path.append(str(ROOT / "benchmarks"))

from tables import ENTRIES, RESULTS  # noqa: E402

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
SCRIPT = re.compile(r"`(?:python )?([\w/]+\.py)\b")
NUMBER = re.compile(r"[-−+<≤~]?\.?\d")
LIMITS = {
    "| rules | float64 slots | float32 slots |",  # ranges that the code checks
    "| shard | requests to find it | requests to read it in an epoch |",  # counted by a test
}
"""First lines of tables whose numbers are statements about the code, not measurements."""


class Table(NamedTuple):
    """where: page and line. section: the text from heading to heading."""

    where: str
    head: str
    cells: list[str]
    section: str


def tables(page: Path) -> Iterator[Table]:
    """Those outside of blocks of code; cells without titles of rows and columns of exit codes."""
    lines = page.read_text("utf-8").splitlines()
    fences = [at for at, line in enumerate(lines) if line.lstrip().startswith("```")]
    heads = [at for at, line in enumerate(lines) if re.match("#+ ", line)]
    at = 0
    while at < len(lines):
        end = at
        while end < len(lines) and lines[end].startswith("|"):
            end += 1
        if end > at and not sum(fence < at for fence in fences) % 2:
            head, _, *rows = [cells_of(line) for line in lines[at:end]]
            kept = [i for i, title in enumerate(head) if i and title != "exit code"]
            cells = [row[i] for row in rows for i in kept if i < len(row) and row[i]]
            begin = max((one for one in heads if one < at), default=0)
            until = min((one for one in heads if one > at), default=len(lines))
            text = "\n".join(lines[begin:until])
            yield Table(f"{page.relative_to(ROOT)}:{at + 1}", lines[at], cells, text)
        at = max(end, at + 1)


def cells_of(line: str) -> list[str]:
    return [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]


def measured(page: Path) -> list[Table]:
    """Tables with six cells or more, and two of five, that begin with a number."""
    found = []
    for table in tables(page):
        numbers = [cell for cell in table.cells if NUMBER.match(cell)]
        many = len(numbers) >= max(6, 0.4 * len(table.cells))
        if many and table.head not in LIMITS:
            found.append(table)
    return found


def named(text: str) -> set[str]:
    """Scripts that a text names, as entries call them; report.py runs those of the papers."""
    folders = ("benchmarks", "benchmarks/peers", "pipelines/papers", "")
    paths = [Path(folder, name) for name in SCRIPT.findall(text) for folder in folders]
    files = [path for path in paths if (ROOT / path).is_file() and path.parts[0] != "tests"]
    scripts = [path for path in files if "__main__" in (ROOT / path).read_text("utf-8")]
    papers = Path("pipelines", "papers")
    return {str(papers / "report.py" if path.parent == papers else path) for path in scripts}


def test_each_table_of_figures_names_its_script() -> None:
    """In its section; the script is an entry that lists the page."""
    found = [(page, table) for page in PAGES for table in measured(page)]
    assert len(found) > 12
    for page, table in found:
        name = page.name if page.name == "README.md" else page.stem
        shown = {entry.script for entry in ENTRIES if name in entry.pages}
        assert named(table.section) & shown, (
            f"{table.where} names no script of benchmarks/tables.py"
        )


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_each_script_that_a_page_names_is_run(page: Path) -> None:
    name = page.name if page.name == "README.md" else page.stem
    shown = {entry.script for entry in ENTRIES if name in entry.pages}
    # Entries of a page may name it in a section of another one: index names performance.
    assert named(page.read_text("utf-8")) <= {*shown, "benchmarks/tables.py"}


def test_entries_name_what_exists() -> None:
    known = {page.name if page.name == "README.md" else page.stem: page for page in PAGES}
    assert len({entry.name for entry in ENTRIES}) == len(ENTRIES)
    for entry in ENTRIES:
        assert (ROOT / entry.script).is_file(), entry.script
        for page in entry.pages:
            assert entry.script in named(known[page].read_text("utf-8")), (entry.name, page)


def test_no_figure_has_a_dagger() -> None:
    """A dagger would mark a figure of another run than its table's."""
    files = [*PAGES, *RESULTS.glob("*.md"), *RESULTS.glob("*.txt")]
    assert not [str(file) for file in files if "†" in file.read_text("utf-8")]
