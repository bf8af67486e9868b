"""For mkdocs: docstrings are plain text with doctests, and Markdown sees more in them."""

from __future__ import annotations

import re
from typing import Any

from griffe import Extension

DOCTESTS = re.compile(r"^>>> .*(?:\n.+)*", re.M)
CODE = re.compile(r"(```.*?```|`+[^`]+`+)", re.S)


class FencedDoctests(Extension):
    """Puts fences around doctests, as docs/rules has them; stars and brackets mean themselves."""

    def on_instance(self, *, obj: Any, **_: Any) -> None:
        """Called for each object that griffe has read."""
        if obj.docstring:
            parts = CODE.split(DOCTESTS.sub(r"```python\n\g<0>\n```", obj.docstring.value))
            parts[::2] = [re.sub(r"([*<\[])", r"\\\1", part) for part in parts[::2]]
            obj.docstring.value = "".join(parts)
