"""docs/rules says what the rules say."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
import rule_docs

from streamomd.rules import all_rules
from streamomd.rules.params import kinds, needs

DOCS = Path(__file__).parents[2] / "docs" / "rules"
README = DOCS.parents[1] / "README.md"
PAGES = rule_docs.pages()
REMEDY = "run: python -m tests.support.rule_docs docs/rules"


def test_committed_pages_are_these() -> None:
    """Every page of the repository is what its rule says now, and there is no other."""
    there = {path.name: path.read_text("utf-8") for path in DOCS.glob("*.md")}
    stale = sorted(name for name in {*there, *PAGES} if there.get(name) != PAGES.get(name))
    if stale:
        pytest.fail(f"stale: {', '.join(stale)}; {REMEDY}", pytrace=False)


def test_the_table_names_every_rule() -> None:
    """README.md has a line for each rule, and each line leads to a page."""
    links = re.findall(r"^\| \[(\w+)\]\((\w+\.md)\)", PAGES["README.md"], re.M)
    assert [name for name, _ in links] == list(all_rules())
    assert {page for _, page in links} == set(PAGES) - {"README.md"}


@pytest.mark.parametrize("name", all_rules())
def test_a_page_has_all_of_a_rule(name: str) -> None:
    """The docstring's formulas and score, every parameter and what to set it to, every slot and
    total, cost and source."""
    rule, page = all_rules()[name], PAGES[f"{name}.md"]
    assert page.startswith(f"{rule_docs.MADE}\n\n# `{name}`: ")
    assert re.search(rf'```python\n(>>>.*\n)*>>> .*score\("{name}"', page)
    for named in (*kinds(rule.hyper), *(slot.name for slot in rule.own_slots)):
        assert f"| `{named}` |" in page
    for named, text in needs(rule.hyper).items():
        assert re.search(rf"^\| `{named}` \|.*\| {re.escape(text)} \|$", page, re.M)
    assert f"| cost of a row | {rule_docs.cost(rule)} |" in page
    assert rule_docs.cost(rule)
    assert f"| source | {rule.source} |" in page
    assert ("| certificate | yes" in page) == (rule.certificate.claims is not None)


def test_pages_are_tidy() -> None:
    """Fences close, no line is left indented or doubled into code by accident."""
    for name, page in PAGES.items():
        assert page.count("```") % 2 == 0, name
        outside = "…".join(re.split(r"```.*?```", page, flags=re.S))
        assert not re.search(r"^(    |>>>)", outside, re.M), name
        assert "\n\n\n" not in outside, name
        assert page.endswith("\n")
        assert not page.endswith("\n\n")


def test_running_it_prints_nothing(tmp_path: Path) -> None:
    """The command that CONTRIBUTING.md names writes the pages and prints no warning."""
    command = [sys.executable, "-m", "tests.support.rule_docs", str(tmp_path)]
    done = subprocess.run(command, cwd=README.parent, capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("", "")


def test_documentation_counts_the_rules() -> None:
    """Where README and docs say how many rules there are, it is their number."""
    counts = re.compile(r"\b(\d+) (?:learning )?rules\b|\bof the (\d+) (?:rules )?cover\b")
    pages = [README, *DOCS.parent.glob("*.md"), DOCS / "README.md"]
    found = {page.name: counts.findall(page.read_text("utf-8")) for page in pages}
    assert found["README.md"]
    assert found["choosing-a-rule.md"]
    for name, numbers in found.items():
        for either in numbers:
            assert int("".join(either)) == len(all_rules()), name


def test_writing(tmp_path: Path) -> None:
    """``main`` writes just these pages."""
    rule_docs.main(str(tmp_path / "new" / "rules"))
    there = {path.name: path.read_text("utf-8") for path in (tmp_path / "new").rglob("*")
             if path.is_file()}  # fmt: skip
    assert there == PAGES
