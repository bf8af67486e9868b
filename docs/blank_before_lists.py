"""For mkdocs: a list may directly follow a line of text, as it may where the repository is read."""

from __future__ import annotations

import re
from typing import Any

FENCED = re.compile(r"(^```.*?^```$)", re.M | re.S)
TEXT_THEN_LIST = re.compile(r"^(?![\s|-])(.+)\n(?=- )", re.M)


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Called for each page; code stays as it is."""
    parts = FENCED.split(markdown)
    parts[::2] = [TEXT_THEN_LIST.sub(r"\1\n\n", part) for part in parts[::2]]
    return "".join(parts)
