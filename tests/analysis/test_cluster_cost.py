"""``streamomd plan --workers``: the model is that of docs/cost-model.md, its counts are exact."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

import pytest
from running import alone, rows, run, write

from streamomd.analysis.cluster_cost import (
    MEASURED,
    MODES,
    Epoch,
    Place,
    RowCost,
    StateCost,
    averaged_terms,
    costs,
    exact_terms,
    sharded_terms,
    total_seconds,
)
from streamomd.config.spec import Spec
from streamomd.engine.layout import Layout
from streamomd.rules import all_rules, find_rule

PAGE = (Path(__file__).parents[2] / "docs" / "cost-model.md").read_text()
ROW_LINE = re.compile(r"^\| (numbers|texts) \| ([\d.]+) µs \| ([\d.]+) µs \| (\d+) bytes \|$", re.M)
STATE_WORDS = re.compile(r"in ([\d.]+) s \(([\d.]+)(?: in `plan`)?\)")
"""Seconds a GiB of state that were measured, and those of ``plan``: as StateCost has them."""
COST_LINE = re.compile(r"^\| (?:(2\^\d+)[^|]*, )?([\d,]+) workers? \|(.*)\|$", re.M)


def documented() -> list[tuple[str, int, int, list[float]]]:
    """Rows, coordinates, workers, and the minutes of the three modes, of the page's table."""
    found, size = [], 0
    for power, workers, cells in COST_LINE.findall(PAGE):
        size = 1 << int(power[2:]) if power else size
        words = [one.strip() for one in cells.split("|")]
        numbers = [float(one) for one in words if re.fullmatch(r"[\d.]+", one)]
        count = int(workers.replace(",", ""))
        if len(numbers) != 6:
            continue  # a line of another table
        found += [("numbers", size, count, numbers[:3]), ("texts", size, count, numbers[3:])]
    return found


ROWS = {
    kind: RowCost(float(decode) * 1e-6, float(learn) * 1e-6, float(nbytes))
    for kind, decode, learn, nbytes in ROW_LINE.findall(PAGE)
}
STATE, PLANNED = (
    StateCost(*(float(seconds) / 2**30 for seconds in column))
    for column in zip(*STATE_WORDS.findall(PAGE), strict=True)
)


def test_the_page_has_both_tables() -> None:
    assert set(ROWS) == {"numbers", "texts"}
    assert PLANNED == MEASURED
    assert len(documented()) == 12
    assert all(len(minutes) == 3 for *_, minutes in documented())


@pytest.mark.parametrize(("kind", "size", "workers", "minutes"), documented())
def test_the_table_of_the_page(kind: str, size: int, workers: int, minutes: list[float]) -> None:
    """The formulas give the printed minutes from the printed terms: 10^9 rows, as many parts as
    workers, rounds of a minute. What is printed with three digits agrees to 6 %."""
    epoch, place = Epoch(1e9, [], 32.0 * size, ROWS[kind], STATE), Place()
    learning = 1e9 * (ROWS[kind].decode + ROWS[kind].learn) / workers
    terms = {
        "exact": exact_terms(epoch, workers, place),
        "averaged": averaged_terms(epoch, workers, place, max(1, round(learning / 60))),
        "sharded": sharded_terms(epoch, workers, place, 256, workers),
    }
    found = [total_seconds(mode, terms[mode]) / 60 for mode in MODES]
    assert found == pytest.approx(minutes, rel=0.06, abs=0.06)


def job(**train: Any) -> Spec:
    return Spec.parse(
        {"data": {"shards": "x", "label": "y"}, "model": {"rule": "nag"}, "train": train}
    )


def layout(size: int) -> Layout:
    return Layout(find_rule("nag"), size, 1, "float64")


def test_requests_and_commits_are_counted() -> None:
    """Literal counts: 3 shards, 1 GiB of state, an hour of one learner with a commit a minute."""
    shape = layout(2**25)
    epoch = Epoch(3600e6, [1, 8 << 20, (32 << 20) + 1], shape.nbytes, RowCost(1e-7, 1e-6, 8.0))
    parts = math.ceil(shape.nbytes / 2**26)
    exact, averaged, sharded = costs(job(rounds_per_epoch=2), shape, epoch, 20, 0.5)
    assert exact["seconds"] == pytest.approx(3600.0)
    assert (exact["limit"], exact["used"]) == ("one learner", 20)
    assert exact["reads"] == 1 + 1 + (3 + 1)
    assert exact["writes"] == 61 * (parts + 1)
    assert exact["money"] == pytest.approx(21 * 0.5)
    assert (averaged["used"], averaged["reads"]) == (16, 6 + parts)
    assert averaged["writes"] == 2 * (parts + 1)
    assert (sharded["used"], sharded["reads"]) == (16, 6)
    assert sharded["worker_bytes"] < exact["driver_bytes"]
    assert costs(job(), shape, epoch, 20)[0]["money"] is None


@pytest.mark.parametrize("name", sorted(all_rules()))
def test_modes_that_the_rule_has(name: str) -> None:
    """A mode that a rule cannot learn in is said to be one."""
    spec = Spec.parse({"data": {"shards": "x", "label": "y"}, "model": {"rule": name}})
    found = costs(spec, layout(8), Epoch(1e3, [10], 256.0, RowCost(1e-6, 1e-6, 8.0)), 2)
    able = spec.rule.modes_with(spec.model.params)
    problems = {mode: "" if mode in able else f"not with {name}" for mode in MODES}
    assert {one["mode"]: one["problem"] for one in found} == problems


def test_the_text_of_the_command(tmp_path: Path) -> None:
    """A line for each mode; workers without work are mentioned; a price needs workers."""
    write(tmp_path / "a.parquet", rows(200))
    flags = [tmp_path, "--label", "y", "--hashed", "h,c", "--rule", "pnorm"]
    words = ["--workers", 100, "--price", 0.05]
    lines = run("plan", *flags, *words).out.splitlines()
    start = lines.index("an epoch on 100 workers, on paper (docs/cost-model.md):")
    assert lines[start + 1].split()[:2] == ["mode", "time"]
    assert [line.split()[0] for line in lines[start + 2 : start + 5]] == list(MODES)
    assert lines[start + 4].split() == ["sharded", "not", "with", "pnorm"]
    assert "16 of 100 workers" in lines[start + 5]
    assert max(map(len, lines[start : start + 6])) <= 80
    found = alone(run("plan", *flags, *words, "--json"))["cluster"]
    assert (found["workers"], found["price"], len(found["modes"])) == (100, 0.05, 3)
    assert alone(run("plan", *flags, "--json"))["cluster"] is None
    refused = run("plan", *flags, "--price", 1)
    assert refused.code == 2
    assert "give --workers" in refused.err
    refused = run("plan", *flags, "--workers", 2, "--price", "nan")
    assert refused.code == 2
    assert "--price is nan" in refused.err


def test_more_workers_never_make_exact_mode_slower() -> None:
    epoch = Epoch(1e9, [1 << 30] * 8, 2.0**23, ROWS["numbers"], MEASURED)
    seconds = [total_seconds("exact", exact_terms(epoch, w, Place())) for w in (1, 3, 10, 1000)]
    assert seconds == sorted(seconds, reverse=True)
