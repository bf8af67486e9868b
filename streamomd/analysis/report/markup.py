"""HTML and SVG as a tree of elements: all text is escaped."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Sequence
from importlib.resources import files
from typing import Any
from xml.etree.ElementTree import Element, tostring

from streamomd.core.urls import printable

Inside = Element | str | None
NUMBER = "number"


def element(tag: str, *inside: Inside, **attributes: Any) -> Element:
    """An element; in attribute names a trailing "_" is removed, and others become "-".

    >>> cell = element("td", "a < b", element("b", "job=<script>"), class_="name", aria_label='"')
    >>> tostring(cell, encoding="unicode", method="html")
    '<td class="name" aria-label="&quot;">a &lt; b<b>job=&lt;script&gt;</b></td>'
    """
    names = {key.rstrip("_").replace("_", "-"): value for key, value in attributes.items()}
    made = Element(tag, {key: printable(f"{value}") for key, value in names.items()})
    for one in inside:
        if isinstance(one, str):
            _append_text(made, printable(one))
        elif one is not None:
            made.append(one)
    return made


def _append_text(made: Element, text: str) -> None:
    if len(made):
        made[-1].tail = (made[-1].tail or "") + text
    else:
        made.text = (made.text or "") + text


def section(title: str, *inside: Inside) -> Element:
    """A section of the page under a heading."""
    return element("section", element("h2", title), *inside)


def paragraph(text: str) -> Element:
    """A paragraph of text."""
    return element("p", text)


def grid(*inside: Inside) -> Element:
    """Charts side by side if the page is wide enough."""
    return element("div", *inside, class_="grid")


def folded(title: str, *inside: Inside) -> Element:
    """What a reader opens with a click; printed open."""
    return element("details", element("summary", title), *inside)


def table(
    heads: Sequence[str],
    rows: Iterable[Sequence[Inside]],
    *,
    numbers: Sequence[int] = (),
    label: str = "",
    wraps: bool = False,
) -> Element:
    """A table that scrolls in its box. numbers: the right-aligned columns. label: what it shows,
    for a screen reader. wraps: long texts break into lines."""

    def line(tag: str, cells: Sequence[Inside]) -> Element:
        right_aligned = [
            {"class": NUMBER} if column in numbers else {} for column in range(len(cells))
        ]
        return element(
            "tr",
            *(element(tag, cell, **kind) for cell, kind in zip(cells, right_aligned, strict=True)),
        )

    body = element("tbody", *(line("td", row) for row in rows))
    style = {"class_": "wraps"} if wraps else {}
    made = element("table", element("thead", line("th", heads)), body, **style)
    named = label or f"Table of {', '.join(head for head in heads if head)}"
    return element("div", made, class_="scroll", tabindex=0, role="region", aria_label=named)


def page(title: str, *inside: Inside) -> str:
    """The whole document. Its content security policy forbids to load or run anything."""
    style = files("streamomd.analysis.report").joinpath("page.css").read_text("utf-8")
    known = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'sha256-{known}'; base-uri 'none'; form-action 'none'"
    sheet = Element("style")
    sheet.text = style  # unescaped: the policy contains its hash
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=policy),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="color-scheme", content="light dark"),
        element("meta", name="referrer", content="no-referrer"),
        element("title", title),
        sheet,
    )
    whole = element("html", head, element("body", element("main", *inside)), lang="en")
    return "<!doctype html>\n" + tostring(whole, encoding="unicode", method="html") + "\n"
