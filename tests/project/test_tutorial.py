"""The notebook of pipelines/tutorial runs: quickly with few rows, in the long run with all."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("sklearn")
pytest.importorskip("starlette")

FOLDER = Path(__file__).parents[2] / "pipelines" / "tutorial"


def check(rows: int, work: Path) -> None:
    """The bad day shows in its loss, is undone, and the server has the commit after it."""
    own = {"TUTORIAL_ROWS": str(rows), "TUTORIAL_FOLDER": str(work), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(
        [sys.executable, "run.py"], cwd=FOLDER, env={**os.environ, **own},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    a_day = rows // 12
    losses = re.findall(rf"1 new shard \({a_day:,} rows\): loss ([\d.]+)", done.stdout)
    one, two, bad, repaired = map(float, losses)
    assert bad > 1.2 * max(one, two, repaired)
    assert f"all rows: {12 * a_day:,} rows" in done.stdout
    last = re.findall(r"saved to \S+, commit (\d+)", done.stdout)[-1]
    (served,) = re.findall(r'^\{"predictions".*"commit":(\d+)\}$', done.stdout, re.M)
    assert served == last
    assert "scikit-learn, defaults" in done.stdout


@pytest.mark.skipif(sys.platform != "linux", reason="the notebook sets a limit that Linux has")
def test_the_tutorial(tmp_path: Path) -> None:
    """With 2,000 rows a day."""
    check(24_000, tmp_path / "work")


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.skipif(sys.platform != "linux", reason="the notebook sets a limit that Linux has")
def test_the_tutorial_with_all_rows(tmp_path: Path) -> None:
    """Ten million rows are more than the limit of memory."""
    text = "".join("".join(cell["source"]) for cell in notebook()["cells"])
    limit = int(re.search(r"^LIMIT = ([\d_]+)$", text, re.M)[1])  # type: ignore[index]
    assert limit < 264 * 10_000_000
    check(10_000_000, tmp_path / "work")


def notebook() -> dict:  # type: ignore[type-arg]
    """The notebook's cells and outputs."""
    found: dict = json.loads((FOLDER / "tutorial.ipynb").read_text("utf-8"))  # type: ignore[type-arg]
    return found


def test_the_notebook_shows_what_its_cells_print() -> None:
    """Its outputs were written by ``run.py --write``; cells have names of their own."""
    cells = notebook()["cells"]
    assert len({cell["id"] for cell in cells}) == len(cells)
    code = [cell for cell in cells if cell["cell_type"] == "code"]
    assert all(cell["outputs"] for cell in code)
    assert [cell["execution_count"] for cell in code] == [*range(1, len(code) + 1)]
