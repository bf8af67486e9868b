"""--on-bad-row=skip, end to end: the bits of the rows that are left, counts that survive."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from running import ROWS, everything, rows, run, train, with_column, write

import streamomd
from streamomd.core.batch import REASONS

NAN, INF = float("nan"), float("inf")
FIGURES = ("rows", "loss", "error", "epochs", "skipped", "state_sha256")
# Of a its last row, of b rows at the edges of groups and a whole group, of c the first and last.
PLACES = {"a": [39], "b": [0, 7, *range(10, 20), 29, 30], "c": [0, 1, 39]}
BAD = sum(map(len, PLACES.values()))
SKIP = ["--on-bad-row", "skip"]
EVERY = ["--set", "checkpoint.every_rows=16", "--set", "checkpoint.every_seconds=0"]
SPOILS: dict[str, tuple[dict[str, Any], str]] = {
    "null": ({"n": None}, "null"),
    "nan": ({"n": NAN}, "nan"),
    "inf": ({"n": -INF}, "inf"),
    "integer": ({"k": 2**53 + 1}, "overflow"),
    "label": ({"y": 2}, "label"),
    "null label": ({"y": None}, "null"),
    "weight": ({"w": -1.0}, "negative_weight"),
    "ragged": ({"i": [1], "v": [1.0, 2.0]}, "ragged"),
    "negative index": ({"i": [-1], "v": [1.0]}, "negative_index"),
    "index": ({"i": [100], "v": [1.0]}, "index"),
    "sum": ({"i": [3, 3], "v": [1.7e308, 1.7e308]}, "out_of_range"),
    "null element": ({"i": [None], "v": [1.0]}, "null"),
}
DENSE = ["--label", "y", "--weight", "w", "--numeric", "n,k"]
CASES = [
    (name, flags)
    for name, (values, _) in SPOILS.items()
    for flags in ("dense", "sparse")
    if flags == "sparse" or not set(values) & {"i", "v"}
]


def flags_of(kind: str) -> list[str]:
    return [*(DENSE if kind == "dense" else everything()), "--set", "model.classes=[0, 1]"]


def spoilt(table: pa.Table, places: list[int], values: dict[str, Any]) -> pa.Table:
    for name, value in values.items():
        column = table.column(name).to_pylist()
        for place in places:
            column[place] = value
        table = with_column(table, name, pa.array(column, table.schema.field(name).type))
    return table


def both_ways(folder: Path, values: dict[str, Any]) -> tuple[Path, Path]:
    """Shards with bad rows, and the same without these rows, both in groups of 10."""
    for first, (name, places) in enumerate(PLACES.items()):
        table = rows(ROWS, first=first)
        bad = spoilt(table, places, values)
        write(folder / "bad" / f"{name}.parquet", bad, row_group_size=10)
        good = table.take([at for at in range(ROWS) if at not in places])
        write(folder / "good" / f"{name}.parquet", good, row_group_size=10)
    return folder / "bad", folder / "good"


def figures(result: dict[str, Any]) -> dict[str, Any]:
    return {key: result[key] for key in FIGURES}


QUICKLY = [case for case in CASES if case[1] == "sparse" or case[0] == "nan"]


@pytest.mark.parametrize(
    "name, kind",
    [pytest.param(*case, marks=() if case in QUICKLY else pytest.mark.slow) for case in CASES],
)
@pytest.mark.sample(5)
def test_bits_are_those_of_the_rows_that_are_left(name: str, kind: str, tmp_path: Path) -> None:
    """Every reason, dense and sparse: state and figures of shards without the bad rows."""
    values, reason = SPOILS[name]
    bad, good = both_ways(tmp_path, values)
    flags = [*flags_of(kind), "--checkpoint", "none"]
    found, expected = train(bad, *flags, *SKIP), train(good, *flags)
    assert figures(found) == {**figures(expected), "skipped": {reason: BAD}}
    refused = run("train", bad, *flags)
    assert refused.code == 2
    column = "v" if name == "sum" else next(iter(values))
    assert f"a.parquet, row 39, column {column!r}" in refused.err


def mixed(folder: Path) -> tuple[Path, Path, dict[str, int]]:
    """Bad rows of all reasons in turn, the shards without them, and the counts of one epoch."""
    bad, good = both_ways(folder, {})
    kinds = itertools.cycle(SPOILS.values())
    counts = dict.fromkeys(REASONS, 0)
    for name, places in PLACES.items():
        table = rows(ROWS, first="abc".index(name))
        for place in places:
            values, reason = next(kinds)
            table = spoilt(table, [place], values)
            counts[reason] += 1
        write(bad / f"{name}.parquet", table, row_group_size=10)
    return bad, good, {reason: count for reason, count in counts.items() if count}


WALKS = {
    "exact": [],
    "two passes": ["--rule", "nag_projected", "--set", "model.params.passes=2"],
    "sharded": ["--mode", "sharded", "--set", "train.batch_rows=7"],
}


QUICK, ALL = [12], range(BAD)


@pytest.mark.parametrize(
    "walk, limits",
    [(walk, QUICK) for walk in WALKS if walk != "two passes"]
    + [pytest.param(walk, ALL, marks=pytest.mark.slow) for walk in WALKS],
)
def test_every_limit_then_resume(walk: str, limits: Any, tmp_path: Path) -> None:
    """Stopped above any number of bad rows, then resumed with room for all: nothing shows of it."""
    bad, good, counts = mixed(tmp_path)
    flags = [*flags_of("sparse"), *WALKS[walk], "--epochs", "2"]
    expected = figures(train(good, *flags, "--checkpoint", "none"))
    expected["skipped"] = {reason: 2 * count for reason, count in counts.items()}
    kept = tmp_path / "kept"
    for limit in limits:
        most = ["--max-bad-rows", limit, "--restart"]
        stopped = run("train", bad, *flags, *SKIP, *most, "--checkpoint", kept, *EVERY)
        assert stopped.code == 2, limit
        assert f"and at most {limit} are allowed" in stopped.err
        before = streamomd.load(str(kept)).metrics
        assert before.bad.sum() <= limit
        again = run("resume", kept, "--set", f"data.max_bad_rows={BAD}", "--json")
        assert figures(again.result) == expected, limit
        assert figures(run("resume", kept, "--json").result) == expected


@pytest.mark.parametrize(
    "walk", ["exact", pytest.param("two passes", marks=pytest.mark.slow), "sharded"]
)
@pytest.mark.parametrize("at", ["a", "c"])
def test_a_shard_of_bad_rows_alone(walk: str, at: str, tmp_path: Path) -> None:
    """First or last, where a micro-batch ends just before it: its rows are counted and no more."""
    for first, name in enumerate("abc"):
        table = rows(ROWS, first=first)
        bad = spoilt(table, [*range(ROWS)], {"n": NAN}) if name == at else table
        write(tmp_path / "bad" / f"{name}.parquet", bad, row_group_size=10)
        if name != at:
            write(tmp_path / "good" / f"{name}.parquet", table, row_group_size=10)
    flags = [*flags_of("sparse"), *WALKS[walk], "--set", "train.batch_rows=40"]
    flags += ["--checkpoint", "none", "--epochs", "2"]
    found = figures(train(tmp_path / "bad", *flags, *SKIP))
    assert found == {**figures(train(tmp_path / "good", *flags)), "skipped": {"nan": 2 * ROWS}}


def test_counts_do_not_depend_on_where_commits_fall(tmp_path: Path) -> None:
    """Each commit counts the bad rows before its row, and a copy resumed from it ends alike."""
    bad, _, counts = mixed(tmp_path)
    kept = tmp_path / "kept"
    keep = ["--set", "checkpoint.keep=99", "--set", "checkpoint.every_rows=5"]
    result = train(bad, *flags_of("sparse"), *SKIP, "--checkpoint", kept, *keep)
    table = [(name, at) for name in "abc" for at in range(ROWS)]
    wrong = {(name, at) for name, places in PLACES.items() for at in places}
    assert result["checkpoint"]["sequence"] > 20
    for sequence in range(1, result["checkpoint"]["sequence"]):
        model = streamomd.load(str(kept), at=sequence)
        passed = ROWS * model.cursor.place + model.cursor.row
        assert sum(one not in wrong for one in table[:passed]) == model.metrics.total_rows
        assert sum(one in wrong for one in table[:passed]) == model.metrics.bad.sum()
    assert result["skipped"] == counts


def test_where_counts_are_told(tmp_path: Path) -> None:
    """By reason in the progress, the report, the JSON log, the commit and the evaluation."""
    bad, good = both_ways(tmp_path, {"n": NAN})
    kept, log = tmp_path / "kept", tmp_path / "log.jsonl"
    done = run("train", bad, *flags_of("sparse"), *SKIP, "--checkpoint", kept, "--log", log, "-v")
    assert "bad rows are skipped and counted" in done.err
    assert f"; skipped nan {BAD}\n" in done.err
    assert f", {BAD} bad rows skipped (nan {BAD})" in done.out
    events = [json.loads(line) for line in log.read_text().splitlines()]
    last = [event for event in events if event["event"] == "progress"][-1]
    assert last["skipped"] == {"nan": BAD}
    assert streamomd.load(str(kept)).result()["skipped"] == {"nan": BAD}
    told = run("evaluate", kept, bad, "--json").result
    expected = run("evaluate", kept, good, "--json").result
    assert figures(told) == {**figures(expected), "skipped": {"nan": BAD}}
    refused = run("predict", kept, bad, "--to", tmp_path / "out")
    assert refused.code == 2
    assert "a.parquet, row 39, column 'n': found nan" in refused.err


def test_what_may_change_on_resume(tmp_path: Path) -> None:
    """on_bad_row changes what is learned: refused with exit 3. The limit may change."""
    bad, _ = both_ways(tmp_path, {"n": NAN})
    kept = tmp_path / "kept"
    assert run("train", bad, *flags_of("sparse"), "--checkpoint", kept).code == 2
    done = run("resume", kept, "--set", "data.on_bad_row=skip")
    assert done.code == 3
    assert "data.on_bad_row may not change on resume" in done.err


def test_a_limit_is_of_an_epoch(tmp_path: Path) -> None:
    """As many bad rows as allowed, in each of three epochs, are allowed."""
    bad, _ = both_ways(tmp_path, {"n": NAN})
    flags = [*flags_of("dense"), *SKIP, "--checkpoint", "none", "--epochs", "3"]
    done = train(bad, *flags, "--max-bad-rows", BAD)
    assert done["skipped"] == {"nan": 3 * BAD}


def test_rows_that_are_all_bad(tmp_path: Path) -> None:
    """A run that learned nothing is no run: exit 2 with the counts."""
    path = write(tmp_path / "a.parquet", spoilt(rows(ROWS), [*range(ROWS)], {"n": NAN}))
    done = run("train", path, *flags_of("dense"), *SKIP, "--checkpoint", "none")
    assert done.code == 2
    assert f"every row is bad (nan {ROWS})" in done.err


def test_another_start_may_treat_bad_rows_otherwise(tmp_path: Path) -> None:
    """Whether bad rows were left out does not change what the state means."""
    bad, good = both_ways(tmp_path, {"n": NAN})
    assert train(good, *flags_of("dense"), "--checkpoint", tmp_path / "kept")["rows"]
    more = ["--start", tmp_path / "kept", "--checkpoint", "none"]
    assert train(bad, *flags_of("dense"), *SKIP, *more)["skipped"] == {"nan": BAD}


def test_a_run_before_there_was_a_choice_has_no_counts() -> None:
    """Metrics that were kept without counts of bad rows are read as none."""
    from streamomd.training.metrics import Metrics

    kept = {"metrics.rows": np.array([3]), "metrics.sums": np.ones((1, 3))}
    assert Metrics.from_arrays(kept, classifies=True).result()["skipped"] == {}
