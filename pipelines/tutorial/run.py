"""Run the cells of tutorial.ipynb in this process, in order. ``python run.py`` prints what they
print; ``--write`` also saves it in the notebook, as Jupyter does.

TUTORIAL_ROWS=240000 makes it short; the default is ten million rows: 2.5 GB of files in ``work/``.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import sys
from pathlib import Path
from typing import Any

NOTEBOOK = Path(__file__).with_name("tutorial.ipynb")


class Tee(io.StringIO):
    """Text that is printed and remembered."""

    def write(self, text: str) -> int:
        """Print it, too."""
        sys.__stdout__.write(text)
        sys.__stdout__.flush()
        return super().write(text)


def main() -> None:
    """Stops at the first cell that raises."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help="save the outputs in the notebook")
    given = parser.parse_args()
    notebook = json.loads(NOTEBOOK.read_text("utf-8"))
    space: dict[str, Any] = {"__name__": "__main__"}
    cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    for count, cell in enumerate(cells, 1):
        source, printed = "".join(cell["source"]), Tee()
        with contextlib.redirect_stdout(printed):
            exec(compile(source, f"cell {count}", "exec"), space)  # noqa: S102
        # Names of this machine's folders are of no use to a reader.
        lines = printed.getvalue().replace(f"{Path.cwd()}/", "").splitlines(keepends=True)
        stream = {"name": "stdout", "output_type": "stream", "text": lines}
        cell["outputs"], cell["execution_count"] = [stream] if lines else [], count
    if given.write:
        NOTEBOOK.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n", "utf-8")


if __name__ == "__main__":
    main()
