"""For mkdocs: doctests of a docstring are code, not text with brackets that look like links."""

from __future__ import annotations

import re
from typing import Any

from griffe import Extension

EXAMPLES = re.compile(r"^>>> .*(?:\n.+)*", re.M)


class FencedDoctests(Extension):
    """Puts fences around them, as docs/rules has them."""

    def on_instance(self, *, obj: Any, **_: Any) -> None:
        """Called for each object that griffe has read."""
        if obj.docstring:
            fenced = EXAMPLES.sub(r"```python\n\g<0>\n```", obj.docstring.value)
            obj.docstring.value = fenced
