"""docs/architecture.md describes the existing packages; README is short and has its commands."""

from __future__ import annotations

import importlib
import re

from documented import ROOT
from test_layers import MODULES, PACKAGES

PAGE = (ROOT / "docs" / "architecture.md").read_text("utf-8")
README = (ROOT / "README.md").read_text("utf-8")
NAV = (ROOT / "mkdocs.yml").read_text("utf-8")
TITLES = (
    "Installation", "Quickstart", "Choosing a rule", "Preprocessing and missing values",
    "Checkpointing and resuming", "Cloud storage", "Training modes", "Dask clusters",
    "Metrics", "Monitoring and experiment tracking", "Export", "Glossary", "Architecture",
    "Performance",
)  # fmt: skip


def rows() -> dict[str, str]:
    """The table of packages: where to look, by package."""
    table = PAGE.split("## Packages")[1].split("\n## ")[0]
    return {row[0]: row[1] for row in re.findall(r"^\| `(\w+)` \|.*\| (.*) \|$", table, re.M)}


def test_the_page_lists_the_packages_from_the_bottom_up() -> None:
    """Its table has the packages of the layer test, in their order, and names the other modules."""
    assert tuple(rows()) == PACKAGES
    assert [name for name in MODULES if f"`{name}`" not in PAGE] == []


def test_the_named_modules_exist() -> None:
    """Each module or package to look at can be imported."""
    named = [(package, name) for package, cell in rows().items()
             for name in re.findall(r"`([a-z_]+)/?`", cell)]  # fmt: skip
    assert len(named) > 30
    for package, name in named:
        importlib.import_module(f"streamomd.{package}.{name}")


def test_the_picture_has_every_package() -> None:
    """The drawing in README and on the page names each package."""
    picture = (ROOT / "docs" / "img" / "architecture.svg").read_text("utf-8")
    assert "img/architecture.svg" in README
    assert "img/architecture.svg" in PAGE
    assert [name for name in PACKAGES if f">{name}</text>" not in picture] == []


def test_readme_is_short_and_has_its_commands() -> None:
    """At most 120 lines; install-and-train and install-and-test are each one line."""
    lines = [line.strip() for line in README.splitlines()]
    assert len(lines) <= 120
    commands = [line for line in lines if line.startswith("python3 -m venv")]
    assert [line.split(" && ")[-1] for line in commands] == [
        ".venv/bin/streamomd train pipelines/quickstart.toml", ".venv/bin/pytest",
    ]  # fmt: skip


def test_pages_have_the_titles_that_people_search_for() -> None:
    """Each title is in the navigation, and is the first heading of its page."""
    pages = dict(re.findall(r"- ([^:\n]+): (\S+\.md)$", NAV, re.M))
    for title in TITLES:
        text = (ROOT / "docs" / pages[title]).read_text("utf-8")
        assert text.startswith(f"# {title}\n"), title
