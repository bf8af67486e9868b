"""The pipelines that redo the papers: each runs on a made-up sample; P1's checks on Bank."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAPERS = ROOT / "pipelines" / "papers"
DATA = ROOT / ".." / "shared" / "data"
SCRIPTS = sorted(path.stem for path in PAPERS.glob("p*_*.py"))
MANY_LOOPS = (  # each is compiled: 20 s or more
    "p0_invariance", "p1_figure1", "p1_tables", "p2_passive_aggressive", "p3_equalities",
    "p4_streams", "p4_text",
)  # fmt: skip


def run(script: str, *words: str) -> subprocess.CompletedProcess[str]:
    """A script, as README says to run it."""
    command = [sys.executable, str(PAPERS / f"{script}.py"), *words]
    single = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.run(command, capture_output=True, text=True, check=False, env=single)


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where all scripts write."""
    return tmp_path_factory.mktemp("papers")


@pytest.mark.parametrize(
    "script",
    [
        pytest.param(script, marks=[pytest.mark.slow] if script in MANY_LOOPS else [])
        for script in SCRIPTS
    ],
)
def test_it_runs_without_the_data(script: str, out: Path) -> None:
    """On a tiny sample every check holds, and a section is written, of what was printed."""
    done = run(script, "--tiny", "--out", str(out))
    assert done.returncode == 0, done.stderr
    section = (out / f"{script}.md").read_text(encoding="utf-8")
    assert section.startswith("## ")
    said = [line for line in section.splitlines() if line]
    assert set(said) <= set(done.stdout.splitlines())
    assert "nan" not in section.lower().split()


def test_what_is_missing_is_said(tmp_path: Path) -> None:
    """Without data a script ends well and names what it looked for."""
    done = run("p1_tables", "--data", str(tmp_path / "none"), "--out", str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert "bank-marketing, census-income-kdd, covertype" in done.stdout


@pytest.mark.slow
def test_the_report_joins_the_sections(tmp_path: Path) -> None:
    """In their order, under one heading."""
    for name in ("p3_equalities", "p1_tables"):
        (tmp_path / f"{name}.md").write_text(f"## {name}\n", encoding="utf-8")
    done = run("report", "--out", str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert re.findall("^#.*", done.stdout, re.M)[1:] == ["## p1_tables", "## p3_equalities"]


@pytest.mark.parametrize("module", ["common", "sets", "tune", "p2_passive_aggressive"])
@pytest.mark.sample(2)
def test_what_docstrings_show_is_so(module: str) -> None:
    """Doctests: these modules are not in the package that pytest collects them from."""
    command = [sys.executable, "-m", "doctest", str(PAPERS / f"{module}.py")]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=PAPERS)
    assert done.returncode == 0, done.stdout + done.stderr


def test_readme_tells_of_every_script() -> None:
    """A line of its table for each."""
    text = (PAPERS / "README.md").read_text(encoding="utf-8")
    assert [name for name in SCRIPTS if f"| `{name}.py` |" not in text] == []


@pytest.mark.skipif(
    not (DATA / "bank-marketing").is_dir(), reason=f"no bank-marketing in {DATA}: see SOURCES.md"
)
@pytest.mark.slow
def test_p1_on_bank(tmp_path: Path) -> None:
    """Raw and pre-normalised NAG alike, NAG at most AG in raw units; figures near those kept."""
    done = run("p1_tables", "--sets", "bank", "--data", str(DATA), "--out", str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert "holds: bank: NAG's best error" in done.stdout
    assert "| bank | 45,211 | 45,212 | 7 | 7 | 31 … 102127 | 31 … 102127 |" in done.stdout
    found = {
        (line[0], line[1]): float(line[4])
        for line in (
            re.findall(r"[^|\s][^|]*[^|\s]|[^|\s]", row) for row in done.stdout.split("\n")
        )
        if len(line) == 8 and line[1] in ("NAG", "AG", "sNAG")
    }
    assert found["bank", "NAG"] == found["bank, max", "NAG"]
    assert found["bank", "NAG"] == pytest.approx(0.112, abs=0.002)
    assert found["bank", "AG"] == pytest.approx(0.114, abs=0.002)
    assert found["bank", "sNAG"] == pytest.approx(0.115, abs=0.002)
