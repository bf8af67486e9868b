"""Bytes spoilt at random: an error of streamomd's own or rows; no crash, no hang, little memory.

What cannot be promised: where a format has no checksum (Parquet's page headers and footer, pages
written without one, Arrow files), spoilt bytes may decode to other rows. A footer that changed
between a run and its resume is noticed by its SHA-256; one that was spoilt before is not.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamomd.cli.options import read_options_file
from streamomd.config.build_job import build_job, change_job, parse_sets, read_job
from streamomd.config.spec import Spec
from streamomd.core.errors import StreamomdError

SUPPORT = Path(__file__).parents[1] / "support"
MORE = [pytest.param(seed, 5_000, marks=pytest.mark.slow) for seed in range(1, 9)]


FOUND = [
    # pyarrow ends the process where it is asked for a column chunk whose histograms were forged.
    ("shards", 1, 2658),
    ("shards", 2, 1859),
    # numpy warns of a signalling NaN.
    ("shards", 2, 3728),
]
"""Cases that once did harm, as pyarrow 26 writes the shards they spoil."""


def run(kind: str, seed: int, cases: int, capsys: Any, first: int = 0) -> dict[str, int]:
    """The result of cases in a child process; its output if it crashed."""
    numbers = [str(number) for number in (seed, cases, first)]
    words = [sys.executable, "-W", "error", str(SUPPORT / "fuzzing.py"), kind, *numbers]
    done = subprocess.run(words, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, f"{words[-3:]} ended with {done.returncode}: {done.stderr[-3000:]}"
    found: dict[str, int] = json.loads(done.stdout)
    with capsys.disabled():
        print(f"\n  {kind}, seed {seed}: {found}")
    assert sum(found.values()) == cases
    return found


@pytest.mark.parametrize("kind, seed, case", FOUND)
def test_cases_that_once_did_harm(kind: str, seed: int, case: int, capsys: Any) -> None:
    """Each is an error or rows now."""
    assert sum(run(kind, seed, 1, capsys, case).values()) == 1


@pytest.mark.parametrize("seed, cases", [(0, 100), *MORE])
def test_bytes_of_a_shard(seed: int, cases: int, capsys: Any) -> None:
    """Parquet and Arrow, plain and compressed, whole files, pages or footers alone."""
    found = run("shards", seed, cases, capsys)
    assert found["refused"] > cases // 3


@pytest.mark.parametrize("seed, cases", [(0, 100), *MORE])
def test_a_page_with_a_checksum(seed: int, cases: int, capsys: Any) -> None:
    """Whatever is spoilt of its payload: refused, each time."""
    assert run("pages", seed, cases, capsys) == {"refused": cases}


@pytest.mark.parametrize("seed, cases", [(0, 80), *MORE])
@pytest.mark.slow
def test_a_checkpoint_that_was_sealed_again(seed: int, cases: int, capsys: Any) -> None:
    """Any field of a manifest and any byte of a part's header, hashes made right again."""
    found = run("checkpoints", seed, cases, capsys)
    assert found["refused"] > cases // 3


TEXTS = st.text(max_size=40).map(lambda text: text.encode("utf-8", "replace"))
LEAVES = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=9),
    st.sampled_from(["nag", "logistic", "y", "a.parquet", "none", "s3://b/c", 0, 1, -1, 2**70]),
)  # fmt: skip
VALUES = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=5,
)
KEYS = [f"{table}.{key}" for table, keys in Spec().to_json().items() for key in keys]
DOTTED = st.sampled_from([*KEYS, *KEYS, "model.params.eta", "data.sparse.size"]) | st.text()
GOOD = {"data": {"shards": ["a.parquet"], "label": "y"}}


def code_of(parse: Callable[[], Any]) -> int:
    """0, or the exit code of an error that is ours; any other error fails the test."""
    try:
        parse()
    except StreamomdError as error:
        return error.exit_code
    return 0


@pytest.mark.parametrize("cases", [40, pytest.param(3000, marks=pytest.mark.slow)])
def test_any_job(cases: int) -> None:
    """Values of any kind at any key: a job that survives JSON, or an error that is ours."""
    sets = st.dictionaries(DOTTED, VALUES, max_size=4)
    settings(max_examples=cases, deadline=None, database=None)(given(sets)(legal_or_refused))()


def legal_or_refused(sets: dict[str, Any]) -> None:
    def again(spec: Spec) -> None:
        saved = json.loads(json.dumps(spec.to_json(), allow_nan=False))
        assert Spec.parse(saved).to_json() == saved

    assert code_of(lambda: again(build_job(GOOD, {}, sets))) in (0, 2)
    assert code_of(lambda: again(change_job(Spec.parse(GOOD).to_json(), sets))) in (0, 2, 3)


@settings(max_examples=80, deadline=None)
@given(st.binary(max_size=40) | TEXTS)
def test_any_bytes_of_a_job_file(tmp_path_factory: Any, content: bytes) -> None:
    """A job file and an options file of any bytes: tables, or an error that is ours."""
    path = tmp_path_factory.getbasetemp() / "job.toml"
    path.write_bytes(content)
    for read in (read_job, read_options_file):
        assert code_of(lambda read=read: dict(read(str(path)))) in (0, 2)


@given(st.lists(st.text(max_size=30), max_size=3))
def test_any_set(pairs: list[str]) -> None:
    """--set of any text: values, or an error that is ours."""
    assert code_of(lambda: dict(parse_sets(tuple(pairs)))) in (0, 2)


@pytest.mark.parametrize("value", ["[" * 5000, "{a=" * 5000, "[" * 50 + "]" * 50])
def test_deep_nesting(value: str, tmp_path: Path) -> None:
    """TOML nested deeper than Python's stack is refused as a file, and text as a set."""
    path = tmp_path / "job.toml"
    path.write_text(f"a={value}")
    for read in (read_job, read_options_file):
        assert code_of(lambda read=read: read(str(path))) == (0 if len(value) == 100 else 2)
    assert len(parse_sets((f"a={value}",))) == 1
