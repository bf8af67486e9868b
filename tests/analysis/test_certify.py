"""streamomd certify: the comparator, the rows it is measured on, what it says, and its silence."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import scipy.optimize
from constrained import problem
from helpers import sparse
from running import rows, run, write

import streamomd
from streamomd.analysis.certify import certify
from streamomd.analysis.comparator import best, cache_batches
from streamomd.core.batch import Batch
from streamomd.core.errors import InputNotFoundError, UsageError
from streamomd.losses import all_losses
from streamomd.losses.contract import smoothed

FLAGS: dict[str, Any] = {"label": "y", "numeric": ["n", "k"], "quiet": True, "loss": "hinge"}
KEPT = {**FLAGS, "rule": "ogd", "eta": 1e-6, "sets": {"model.certificate": True}}
COUNT = 60


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current directory, with two shards of 60 rows in ``data``."""
    monkeypatch.chdir(tmp_path)
    for place, name in enumerate("ab"):
        write(tmp_path / "data" / f"{name}.parquet", rows(COUNT, first=place), row_group_size=25)
    return tmp_path


def trained(**more: Any) -> streamomd.Model:
    return streamomd.train("data", **{**KEPT, "checkpoint": "kept", **more})


def matrix() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The same rows by other means: bias and features, labels, weights."""
    table = pa.concat_tables([pq.read_table(f"data/{name}.parquet") for name in "ab"])
    columns = [np.ones(len(table)), *(table.column(c).to_numpy() for c in ("n", "k"))]
    y = np.where(table.column("y").to_numpy() > 0, 1.0, -1.0)
    return np.column_stack(columns), y, table.column("w").to_numpy()


def hinge(u: np.ndarray, weigh: bool = False) -> float:
    X, y, w = matrix()
    losses = np.maximum(1.0 - y * (X @ u), 0.0)
    return float(losses @ w) if weigh else float(losses.sum())


# ---- the comparator


def noisy(real: bool) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(3)
    X = rng.standard_normal((80, 6)) * 10.0 ** rng.uniform(-3, 3, 6)
    y = X @ (rng.standard_normal(6) / np.abs(X).max(axis=0)) + 0.7 * rng.standard_normal(80)
    return X, (y if real else np.where(y > 0, 1.0, -1.0)), rng.choice([0.5, 1.0, 3.0], 80)


@pytest.mark.smoke
def test_best_is_least_squares() -> None:
    """With the square loss the best u is that of the normal equations, badly scaled or not."""
    X, y, h = noisy(True)
    found = best(problem(X, y, "square", h))
    u = np.linalg.lstsq(X * np.sqrt(h)[:, None], y * np.sqrt(h), rcond=None)[0]
    np.testing.assert_allclose(X @ found.u[:, 0], X @ u, atol=1e-5)
    assert found.loss == pytest.approx(0.5 * h @ (y - X @ u) ** 2, rel=1e-9)


def test_best_is_the_linear_programme() -> None:
    """With the hinge, which has kinks, the loss is within 0.1 % of a linear programme's."""
    X, y, h = noisy(False)
    n, d = X.shape
    Z = X / np.abs(X).max(axis=0)
    fields = scipy.optimize.linprog(
        np.concatenate([np.zeros(d), h]),
        A_ub=np.hstack([-y[:, None] * Z, -np.eye(n)]),
        b_ub=-np.ones(n),
        bounds=[(None, None)] * d + [(0, None)] * n,
    )
    found = best(problem(X, y, "hinge", h))
    assert fields.fun <= found.loss * (1 + 1e-9) <= fields.fun * 1.001


@pytest.mark.parametrize("name", ["absolute", "logistic", "softmax"])
def test_best_beats_what_is_near(name: str) -> None:
    """No small step in any direction loses less (up to a thousandth), for losses of every kind."""
    X, y, h = noisy(name == "absolute")
    task = problem(X, y, name, h)
    found = best(task)
    measure = task.at(task.loss, task.loss_params)
    rng = np.random.default_rng(0)
    for size in (1e-1, 1e-2, 1e-3):
        step = size * rng.standard_normal(found.u.shape) / np.abs(X).max(axis=0)[:, None]
        assert measure(found.u + step)[0] >= found.loss * 0.999
    assert found.loss == pytest.approx(measure(found.u)[0], rel=1e-12)
    assert found.loss < measure(np.zeros_like(found.u))[0]


def test_unseen_coordinates_stay_zero() -> None:
    """What no row has is not moved."""
    X, y, _ = noisy(True)
    X[:, 2] = 0.0
    assert best(problem(X, y, "huber")).u[2, 0] == 0.0


@pytest.mark.parametrize("name", ["absolute", "epsilon_insensitive", "hinge", "pinball"])
def test_smoothed_is_the_moreau_envelope(name: str) -> None:
    """It is the minimum of l(q) + (p - q)^2 / (2 s) on a fine grid; its slope is its derivative."""
    loss, smooth = all_losses()[name], smoothed(all_losses()[name])
    fields, more = loss.numbers({}), smooth.numbers({"smoothing": 0.3})
    grid = np.linspace(-4.0, 4.0, 80_001)
    values = np.array([loss.value(q, 1.0, fields) for q in grid])
    for p in np.linspace(-2.0, 2.5, 19):
        least = (values + (grid - p) ** 2 / 0.6).min()
        assert smooth.value(p, 1.0, more) == pytest.approx(least, abs=1e-7)
        unhashed, behind = (smooth.value(p + step, 1.0, more) for step in (1e-5, -1e-5))
        assert smooth.slope(p, 1.0, more) == pytest.approx((unhashed - behind) / 2e-5, abs=1e-4)


@pytest.mark.parametrize("most, times", [(1 << 20, 1), (100, 3)])
def test_rows_are_decoded_once_where_they_have_room(most: int, times: int) -> None:
    """Read three times, not to the end in between: the same batches each time."""
    X, y, _ = noisy(False)
    batches, read = [sparse(X[:50], y[:50]), sparse(X[50:], y[50:])], []

    def decoded() -> Iterator[Batch]:
        read.append(1)
        yield from batches

    again = cache_batches(decoded, most)
    next(iter(again()))
    for _ in range(3):
        assert [*again()] == batches
    assert len(read) == 1 + times


# ---- what is said


@pytest.mark.smoke
def test_regret_is_what_numpy_says(here: Path) -> None:
    """Loss, comparator's loss and regret over the shards; the comparator is the best there is."""
    model = trained()
    [fields] = certify(model, "data")
    total = model.metrics.total
    assert fields["learner"] is None
    assert fields["rows"] == 2 * COUNT
    assert fields["loss"] == total[1]
    assert fields["mistakes"] == total[2]
    assert fields["regret"] == fields["loss"] - fields["comparator_loss"]
    rng = np.random.default_rng(0)
    assert all(
        fields["comparator_loss"] <= hinge(rng.standard_normal(3) * [1, 1e-3, 0.1])
        for _ in range(50)
    )
    [claim] = fields["claims"]
    assert claim["claim"] == "regret"
    assert claim["source"]
    assert claim["measured"] == fields["regret"] <= claim["bound"]
    assert claim["ratio"] == claim["bound"] / claim["measured"]


def test_a_comparator_may_be_given(here: Path) -> None:
    """As an array, a .npy or a Parquet file; its own loss is measured."""
    model, u = trained(), np.array([0.1, 0.002, -0.03])
    np.save("u.npy", u)
    write(here / "weights" / "u.parquet", {"weight": u})
    for given in (u, u[:, None], "u.npy", "weights/u.parquet"):
        [fields] = certify(model, "data", comparator=given)
        assert fields["comparator_loss"] == pytest.approx(hinge(u), rel=1e-12)


def test_a_comparator_that_does_not_fit_is_refused(here: Path) -> None:
    """Its shape, type or a missing file is reported, with what is expected."""
    model = trained()
    for given, message in (
        (np.zeros(4), r"shape \(4,\); expected 3 weights, in the order of coordinates"),
        (np.zeros((3, 2)), "expected 3 weights"),
        (np.array(["a", "b", "c"]), "holds <U1; expected"),
        (np.array([1.0, np.nan, 0.0]), "not finite"),
        (str(write(here / "t" / "data.parquet", {"a": [1.0, 2.0]})), r"shape \(2, 1\)"),
    ):
        with pytest.raises(UsageError, match=message):
            certify(model, "data", comparator=given)
    with pytest.raises(InputNotFoundError):
        certify(model, "data", comparator="none.npy")
    Path("text.npy").write_text("weights")
    with pytest.raises(UsageError, match=r"is not a \.npy file"):
        certify(model, "data", comparator="text.npy")


@pytest.mark.slow
def test_one_against_all_adds_up(here: Path) -> None:
    """Each class is a run of its own; the last row is their sum, loss and bounds alike."""
    model = trained(label="c", rule="da", loss="logistic")
    *each, whole = certify(model, "data")
    assert [one["learner"] for one in each] == ["job 0", "job 1", "job 2"]
    assert whole["learner"] == "all"
    assert whole["loss"] == pytest.approx(model.metrics.total[1], rel=1e-12)
    for key in ("loss", "comparator_loss", "regret"):
        assert whole[key] == pytest.approx(sum(one[key] for one in each), rel=1e-12)
    bounds = [one["claims"][0]["bound"] for one in each]
    assert whole["claims"][0]["bound"] == pytest.approx(sum(bounds), rel=1e-12)
    assert all(one["claims"][0]["measured"] <= one["claims"][0]["bound"] for one in (*each, whole))


@pytest.mark.slow
def test_softmax_is_certified_as_a_whole(here: Path) -> None:
    """Its learners share one loss: one row, whose bound is the sum of theirs."""
    model = trained(label="c", rule="da", loss="softmax", eta=1e-7)
    [fields] = certify(model, "data")
    assert fields["learner"] == "all"
    assert fields["loss"] == model.metrics.total[1]
    [claim] = fields["claims"]
    assert claim["measured"] == pytest.approx(fields["regret"], rel=1e-12)
    assert 0.0 < claim["measured"] <= claim["bound"]


def test_a_commit_on_the_way_is_certified_over_its_rows(here: Path) -> None:
    """Of a commit in the middle of a shard, the rows learned until then count."""
    trained(sets={**KEPT["sets"], "checkpoint.every_rows": 70, "checkpoint.keep": 9})
    model = streamomd.load("kept", at=1)
    assert model.metrics.total_rows == 70
    [fields] = certify(model, "data", comparator=np.zeros(3))
    assert fields["rows"] == fields["comparator_loss"] == 70.0
    assert fields["claims"][0]["measured"] <= fields["claims"][0]["bound"]


def test_order_of_shards_is_the_runs(here: Path) -> None:
    """Shuffled shards are walked as they were learned."""
    trained(order="shuffled", sets={**KEPT["sets"], "data.seed": 4, "checkpoint.every_rows": 50})
    model = streamomd.load("kept")
    [fields] = certify(model, "data")
    assert fields["claims"]


def test_weights_count_in_regret(here: Path) -> None:
    """Importance multiplies every loss; a bound on regret stands."""
    model = trained(weight="w")
    u = np.array([0.1, 0.002, -0.03])
    [fields] = certify(model, "data", comparator=u)
    assert fields["comparator_loss"] == pytest.approx(hinge(u, weigh=True), rel=1e-12)
    assert fields["claims"][0]["measured"] <= fields["claims"][0]["bound"]


def test_without_a_checkpoint_the_rows_are_learned_again(here: Path) -> None:
    """A model that was never saved has no fingerprint: an equal state after replay is the proof."""
    model = trained(checkpoint="none")
    assert certify(model, "data")[0]["claims"]
    write(here / "data" / "a.parquet", rows(COUNT, first=7))
    assert "a different state" in certify(model, "data")[0]["reason"]


def test_a_moved_copy_of_the_shards_will_do(here: Path) -> None:
    """What is in the shards is compared, not where they are."""
    model = trained()
    (here / "data").rename(here / "elsewhere")
    assert certify(model, "elsewhere")[0]["claims"]


# ---- when it is silent


def silent(model: streamomd.Model, shards: Any = "data") -> str:
    [fields] = certify(model, shards, comparator=np.zeros(3))
    assert fields["claims"] is None
    return str(fields["reason"])


@pytest.mark.slow
def test_outside_the_theorem_there_is_null_and_the_reason(here: Path) -> None:
    """Several epochs, another start, float32, a rule without a proof, a run without accounts."""
    names = iter("abcdefgh")

    def reason(**more: Any) -> str:
        return silent(trained(**{"checkpoint": f"kept-{next(names)}", **more}))

    assert "2 epochs" in reason(epochs=2)
    assert "model.certificate = true" in reason(sets={})
    assert "float32" in reason(dtype="float32")
    assert "projected" in reason(rule="nag", sets={})
    trained()
    assert "another state" in reason(start="kept")


def test_other_rows_are_refused(here: Path) -> None:
    """A part of the shards, a changed one, another order: nothing is measured."""
    model = trained()
    assert "120 rows were learned, and the shards have 60" in silent(model, "data/a.parquet")
    write(here / "data" / "b.parquet", rows(COUNT, first=9), row_group_size=25)
    assert "not those of the run" in silent(model)
    [fields] = certify(model, "data")
    assert fields["loss"] is None
    assert fields["regret"] is None


def test_mistakes_count_by_importance(here: Path) -> None:
    """Theorem 2 with k = ||u||^2 max h ||x||^2 over mistakes, as the Perceptron's page has it."""
    flags = {**FLAGS, "rule": "perceptron", "weight": "w", "sets": KEPT["sets"]}
    model = streamomd.train("data", **flags, checkpoint="none")
    u = np.array([0.1, 0.002, -0.03])
    [fields] = certify(model, "data", comparator=u)
    (X, y, w), theta = matrix(), np.zeros(3)
    mistakes = longest = 0.0
    for x, label, h in zip(X, y, w, strict=True):
        if label * (theta @ x) <= 0.0:
            theta += h * label * x
            mistakes, longest = mistakes + h, max(longest, h * (x @ x))
    k, loss = (u @ u) * longest, hinge(u, weigh=True)
    claim = next(one for one in fields["claims"] if one["claim"] == "mistakes")
    assert claim["measured"] == pytest.approx(mistakes, rel=1e-9)
    assert claim["bound"] == pytest.approx(loss + k / 2 + np.sqrt(k * k + 4 * k * loss) / 2)


# ---- the command


def test_the_command_prints_a_table(here: Path) -> None:
    """Claim, measured, bound, bound / measured and source, with both losses."""
    trained()
    done = run("certify", "kept", "data")
    assert done.code == 0, done.err
    lines = done.out.splitlines()
    assert lines[0] == "rule ogd, loss hinge, 120 rows"
    assert lines[1].startswith("loss ")
    assert "comparator's " in lines[1]
    assert lines[3].split() == ["claim", "measured", "bound", "ratio", "source", "note"]
    assert lines[4].startswith("regret ")
    assert "lemma 1  trivial: at most " in lines[4]


def test_the_command_gives_json(here: Path) -> None:
    """--json has what ``certify`` returns; null and the reason where nothing is proven."""
    model = trained()
    np.save("u.npy", np.zeros(3))
    done = run("certify", "kept", "data", "--comparator", "u.npy", "--json").result
    assert done["rule"] == "ogd"
    assert done["comparator"] == "u.npy"
    assert done["learners"] == json.loads(json.dumps(certify(model, "data", comparator="u.npy")))
    part = run("certify", "kept", "data/a.parquet", "--json").result["learners"][0]
    assert part["claims"] is None
    assert "120 rows were learned" in part["reason"]
    text = run("certify", "kept", "data/a.parquet").out
    assert "no certificate: 120 rows were learned" in text
