"""The curve: sums at fixed numbers of rows, the same however the rows were cut."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from running import Impatient, rows, write
from sweeping import plain

import streamomd
from streamomd.core.errors import StoppedError
from streamomd.training.metrics import Metrics, next_point

FLAGS = {"label": "y", "weight": "w", "numeric": ["n", "k"], "hashed": ["h"], "bits": 8}
COUNT = 1500


def points(last: int) -> list[int]:
    """Powers of two up to 1,024, and eight points an octave above, as far as ``last``."""
    octaves = [1024 << octave for octave in range(20)]
    above = [octave + eighth * (octave // 8) for octave in octaves for eighth in range(8)]
    return [point for point in (*(1 << power for power in range(10)), *above) if point <= last]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A shard of 1,500 rows in row groups of 200, and one of its first 1,152."""
    write(tmp_path / "all" / "a.parquet", rows(COUNT), row_group_size=200)
    write(tmp_path / "some" / "a.parquet", rows(COUNT).slice(0, 1152))
    return tmp_path


def learned(shards: Path, **more: object) -> streamomd.Model:
    return streamomd.train(str(shards), **{"checkpoint": "none", "quiet": True, **FLAGS, **more})


def test_points_are_a_function_of_rows() -> None:
    """From any number of rows the next point is the first one above it."""
    known = points(100_000)
    for before, after in pairwise([0, *known]):
        assert {next_point(before), next_point(after - 1), next_point((before + after) // 2)} == {
            after
        }


def test_exact_mode_stands_at_every_point(data: Path) -> None:
    """Points are at the very rows, over all epochs, with the sums of a run that ended there."""
    model = learned(data / "all", epochs=2)
    assert model.metrics.curve[:, 0].tolist() == points(2 * COUNT)
    some = learned(data / "some")
    at = some.metrics.curve[:, 0].tolist().index(1152)
    expected = [1152.0, *some.metrics.total]
    assert some.metrics.curve[at].tolist() == model.metrics.curve[at].tolist() == expected


def test_cuts_and_interruptions_leave_no_trace(data: Path) -> None:
    """Commits every 90 rows, a stop at row 700 and a resume: the same curve, to the bit."""
    whole = learned(data / "all", epochs=2)
    kept = str(data / "kept")
    often = {"checkpoint.every_rows": 90}

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("streamomd.runs.reporting.progress", lambda *_: Impatient(700))
        with pytest.raises(StoppedError):
            learned(data / "all", epochs=2, checkpoint=kept, sets=often, quiet=False)
    assert streamomd.load(kept).metrics.total_rows < 700
    resumed = streamomd.resume(kept, quiet=True)
    assert resumed.metrics.curve.tobytes() == whole.metrics.curve.tobytes()
    assert streamomd.load(kept).metrics.curve.tobytes() == whole.metrics.curve.tobytes()


def test_sharded_mode_has_a_point_at_the_first_micro_batch_past_each(data: Path) -> None:
    """A point is where the rows first are at or past the next of the fixed ones."""
    with plain():
        model = learned(data / "all", mode="sharded", sets={"train.batch_rows": 100})
    found = model.metrics.curve[:, 0].astype(int).tolist()
    expected, at = [], 0
    for seen in range(100, COUNT + 1, 100):
        if seen >= next_point(at):
            expected.append(seen)
        at = seen
    assert found == expected


def test_a_checkpoint_from_before_has_no_curve() -> None:
    """What was kept without one loads with an empty one, and its hash is the same."""
    metrics = Metrics(classifies=True)
    metrics.begin(0)
    metrics.current[:] = 3.0, 2.0, 1.0
    metrics.count(3)
    arrays = metrics.arrays()
    del arrays["metrics.curve"]
    assert Metrics.from_arrays(arrays, classifies=True).curve.shape == (0, 4)
    assert metrics.curve.tolist() == [[3.0, 3.0, 2.0, 1.0]]
    assert np.array_equal(metrics.copy().curve, metrics.curve)
