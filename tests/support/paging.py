"""A page as a browser's parser sees it."""

from __future__ import annotations

from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

VOID = {"meta", "br", "hr", "img", "input", "link"}


@dataclass
class Node:
    """An element: its tag, attributes, and what is in it."""

    tag: str
    attributes: dict[str, str | None]
    inside: list[Any] = field(default_factory=list)

    def all(self, tag: str = "") -> list[Node]:
        """Elements below, of a tag."""
        below = [one for one in self.inside if isinstance(one, Node)]
        found = [one for one in below if tag in ("", one.tag)]
        return found + [inner for one in below for inner in one.all(tag)]

    @property
    def text(self) -> str:
        """All text within, in its order."""
        return "".join(one.text if isinstance(one, Node) else one for one in self.inside)


class Parser(HTMLParser):
    """Builds the tree, and fails where an element is left open or closed twice."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.open = [Node("", {})]

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        made = Node(tag, dict(attrs))
        assert len(made.attributes) == len(attrs)
        self.open[-1].inside.append(made)
        if tag not in VOID:
            self.open.append(made)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop().tag == tag

    def handle_data(self, data: str) -> None:
        self.open[-1].inside.append(data)

    def handle_pi(self, data: str) -> None:
        raise AssertionError(data)

    def handle_comment(self, data: str) -> None:
        raise AssertionError(data)


def parsed(page: Path) -> Node:
    """The page's tree."""
    parser = Parser()
    parser.feed(page.read_text("utf-8"))
    parser.close()
    assert len(parser.open) == 1
    return parser.open[0]


def section(root: Node, title: str) -> Node:
    """The part of the page under a heading."""
    return next(one for one in root.all("section") if one.all("h2")[0].text == title)
