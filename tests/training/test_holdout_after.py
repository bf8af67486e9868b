"""``data.holdout`` as a table: which rows are held out by time, and what refuses them."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from running import run
from timed import DAY, DAYS, START, seconds_of, timed_shards, train

import streamomd
from streamomd.config.spec import Spec
from streamomd.core.errors import DataError, UnsupportedError, UsageError

AFTER = "2026-01-05T06:00:00"


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Six days of rows, some late."""
    return timed_shards(tmp_path_factory.mktemp("after") / "data", late=True)


@pytest.mark.parametrize(
    "given, saved",
    [
        ({"every": 0.1}, 10),
        ({"every": 10, "after": ""}, 10),
        ({}, 0),
        ({"after": AFTER}, {"every": 0, "after": AFTER}),
        ({"every": 0.25, "after": AFTER}, {"every": 4, "after": AFTER}),
        ({"after": datetime.date(2026, 1, 5)}, {"every": 0, "after": "2026-01-05"}),
        (f'{{ every = 4, after = "{AFTER}" }}', {"every": 4, "after": AFTER}),
    ],
)
def test_forms(given: Any, saved: Any) -> None:
    """A table, also as text, is saved as it means; it parses back to the same job."""
    spec = Spec.parse({"data": {"holdout": given, "time": "ts"}})
    assert spec.to_json()["data"]["holdout"] == saved
    assert Spec.parse(spec.to_json()) == spec


@pytest.mark.parametrize(
    "given, message",
    [
        ({"every": 1, "after": AFTER}, "would hold out every row"),
        ({"before": AFTER}, "unknown key 'before'; expected every and after"),
        ({"after": "soon"}, "data.holdout.after = 'soon': expected a date or a time as ISO 8601"),
        ({"every": "x", "after": AFTER}, "data.holdout.every = 'x': expected a whole number"),
        ([1], "a table such as { every = 10"),
        (float("inf"), "data.holdout = inf: expected a whole number"),
    ],
)
def test_refused_forms(given: Any, message: str) -> None:
    """What is no hold-out is named with its value."""
    with pytest.raises(UsageError) as refused:
        Spec.parse({"data": {"holdout": given, "time": "ts"}})
    assert message in str(refused.value)


def test_after_needs_times() -> None:
    """Without data.time the key is refused."""
    with pytest.raises(UsageError, match=r"data\.holdout\.after needs the rows' times"):
        Spec.parse({"data": {"holdout": {"after": AFTER}}})


def test_rows_at_or_after_it_are_held_out(data: Path) -> None:
    """A row at the time is held out, one before is learned, wherever it is; in UTC."""
    edge = START + 4 * DAY + 6 * 3600
    times = np.concatenate([seconds_of(day, late=True) for day in range(DAYS)])
    for text in (AFTER, f"{AFTER}Z", "2026-01-05T07:00:00+01:00"):
        model = train(data, sets={"data.holdout": {"after": text}})
        assert model.result()["holdout"]["rows"] == np.count_nonzero(times >= edge)
        assert model.result()["rows"] == np.count_nonzero(times < edge)
    at = datetime.datetime.fromtimestamp(int(np.sort(times)[-40]), datetime.UTC)
    model = train(data, sets={"data.holdout": {"after": at.isoformat()}})
    assert model.result()["holdout"]["rows"] == np.count_nonzero(times >= at.timestamp())


def test_every_holds_out_rows_before_it_too(data: Path) -> None:
    """The rows of both keys together; those of ``every`` are the ones of the number alone."""
    every = train(data, sets={"data.holdout": 4}).result()["holdout"]["by_time"]["day"]
    both = train(data, sets={"data.holdout": {"every": 4, "after": "2026-01-05"}})
    days = both.result()["holdout"]["by_time"]["day"]
    before = [one["rows"] for one in every if one["period"] < "2026-01-05"]
    assert [one["rows"] for one in days if one["period"] < "2026-01-05"] == before
    learned = both.result()["by_time"]["day"]
    assert all(one["period"] < "2026-01-05" for one in learned)


def test_a_time_before_all_rows_leaves_none(data: Path) -> None:
    """The error says that every row is held out."""
    with pytest.raises(DataError, match=r"every row is held out \(data\.holdout\): 360 rows"):
        train(data, sets={"data.holdout": {"after": "2000-01-01"}})


def test_update_and_follow_refuse_it(data: Path, tmp_path: Path) -> None:
    """They would hold out everything new; a resumed run is as before."""
    url = str(tmp_path / "run")
    model = train(data, checkpoint=url, sets={"data.holdout": {"after": AFTER}})
    for refused in (streamomd.update, streamomd.follow):
        with pytest.raises(UnsupportedError, match="every new row would be held out"):
            refused(url, quiet=True)
    assert run("update", url).code == 2
    assert streamomd.resume(url, quiet=True).result()["holdout"] == model.result()["holdout"]


def test_a_sweep_compares_on_them(data: Path) -> None:
    """Each learner has the hold-out rows of one trained alone."""
    from timed import FLAGS

    flags = {**FLAGS, "time": "ts", "sets": {"data.holdout": {"after": AFTER}}}
    found = streamomd.sweep([str(data)], grid={"eta": "0.5,1"}, **flags)
    alone = train(data, eta=0.5, sets={"data.holdout": {"after": AFTER}})
    held = next(iter(found)).result()["holdout"]
    assert held["loss"] == alone.result()["holdout"]["loss"]
