"""Claims: trivial and refused ones, and those of pa1 and ons."""

from __future__ import annotations

import math
import shlex
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from certified import Made, Tally, calmed, comparators, judge, learn, run_of, stream
from running import run, write

import streamomd
from streamomd.analysis.certify import certify
from streamomd.losses import find_loss
from streamomd.rules import find_rule
from streamomd.rules.common.links import few_mistakes

WEIGHTS = np.array([1.0, -2.0, 0.3])
pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> np.ndarray:
    """150 rows of three features, of length 1 at most, in ``data``; the rows."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(11)
    X = rng.standard_normal((150, 3))
    X /= np.sqrt(np.square(X).sum(axis=1)).max()
    save(X, "data")
    return X


def save(X: np.ndarray, folder: str) -> None:
    noise = 0.1 * np.random.default_rng(1).standard_normal(len(X)) * np.abs(X).max()
    y = np.where(X @ WEIGHTS + noise > 0.0, 1, -1)
    columns = {"y": y, **{name: X[:, i] for i, name in enumerate("abc")}}
    write(Path(folder) / "rows.parquet", columns)


def trained(rule: str, params: Any = None, **more: Any) -> streamomd.Model:
    """A run without a bias, saved to ``run``."""
    sets = {
        "model.certificate": True, "model.params": params or {}, "model.bias": False,
        "checkpoint.url": "run",
    }  # fmt: skip
    given = {"label": "y", "numeric": ["a", "b", "c"], "loss": "hinge", "quiet": True}
    folder = more.pop("folder", "data")
    return streamomd.train(folder, rule=rule, sets=sets, restart=True, **{**given, **more})


@pytest.mark.slow
def test_each_claim_says_which_comparator_it_is_about(data: np.ndarray) -> None:
    """Its loss, so that bound and measured can be checked; measured is at most the bound."""
    [told] = certify(trained("adagrad"), "data")
    for one in told["claims"]:
        assert one["measured"] == pytest.approx(told["loss"] - one["comparator_loss"], rel=1e-9)
        assert one["measured"] <= one["bound"]


def test_a_bound_that_holds_for_any_run_is_marked(data: np.ndarray) -> None:
    """Mistakes: at least the rows. Regret: at least the loss. In JSON and in the table."""
    model = trained("perceptron")
    for u, trivial in ((1000.0 * WEIGHTS, True), (3.0 * WEIGHTS, False)):
        [told] = certify(model, "data", comparator=u)
        [one] = [one for one in told["claims"] if one["claim"] == "mistakes"]
        assert one["limit"] == 150.0
        assert one["trivial"] == trivial == (one["bound"] >= 150.0)
    model = trained("ogd")
    [told] = certify(model, "data", comparator=1000.0 * WEIGHTS)
    assert told["claims"][0]["limit"] == told["loss"]
    assert told["claims"][0]["trivial"]
    np.save("u.npy", 1000.0 * WEIGHTS)
    done = run("certify", "run", "data", "--comparator", "u.npy")
    assert "trivial: at most" in done.out
    json = run("certify", "run", "data", "--comparator", "u.npy", "--json").result
    assert json["learners"][0]["claims"][0]["trivial"] is True


def test_a_claim_that_is_not_finite_is_refused(data: np.ndarray) -> None:
    """With what is not finite; the others stand. Nothing is left: null, and that reason."""
    [told] = certify(trained("ogd"), "data", comparator=1e200 * WEIGHTS)
    assert told["claims"] is None
    assert "the bound is inf" in told["reason"]
    assert told["refused"][0]["claim"] == "regret"
    np.save("u.npy", 1e200 * WEIGHTS)
    text = run("certify", "run", "data", "--comparator", "u.npy").out
    assert "no certificate: the bound is inf: numbers that are not finite" in text
    [told] = certify(trained("si_adagrad"), "data", comparator=1e200 * WEIGHTS)
    for one in told["claims"] or ():
        assert math.isfinite(one["bound"])
        assert math.isfinite(one["measured"])
    assert told["refused"]


# ---- pa1: never worse than the Perceptron

NAME = "mistakes, never worse than the Perceptron"


def claim_of(model: streamomd.Model, folder: str, u: Any) -> dict[str, Any] | None:
    [told] = certify(model, folder, comparator=u)
    return next((one for one in told["claims"] if one["claim"] == NAME), None)


def test_pa1_has_the_perceptrons_bound_on_short_rows(data: np.ndarray) -> None:
    """With ||x|| <= 1 and C = 1 it is the Perceptron's for X = 1; with longer rows or C, none."""
    model, u = trained("pa1"), 4.0 * WEIGHTS
    one = claim_of(model, "data", u)
    assert one is not None
    y = np.where(data @ WEIGHTS > 0.0, 1, -1)
    assert y.shape == (150,)
    [perceptron] = [
        other
        for other in certify(trained("perceptron"), "data", comparator=u)[0]["claims"]
        if other["claim"] == "mistakes"
    ]
    assert one["bound"] == pytest.approx(perceptron["bound"], rel=1e-9)  # the longest row is 1
    assert one["measured"] <= one["bound"]
    assert one["given"].startswith("C max ||x||^2 = 1 <= 1")
    assert claim_of(trained("pa1", {"C": 2.0}), "data", u) is None
    assert claim_of(trained("pa1", {"C": 0.5}), "data", u) is not None
    save(2.0 * data, "longer")
    assert claim_of(trained("pa1", folder="longer"), "longer", u) is None
    assert claim_of(trained("pa1", {"C": 0.25}, folder="longer"), "longer", u) is not None


@pytest.mark.parametrize("many", [40, pytest.param(1000, marks=pytest.mark.slow)])
@pytest.mark.slow
def test_pa1_never_makes_more_mistakes_than_that(many: int) -> None:
    """On streams of every kind with C ||x||^2 <= 1, for comparators good and bad."""
    kinds = ("dense", "sparse", "noise", "zeros", "repeats", "rare", "adverse", "few")
    rule, loss = find_rule("pa1"), find_loss("hinge")
    tally = Tally(Counter(), {}, [], Counter())
    for seed in range(many):
        rng = np.random.default_rng([seed, 17])
        kind = kinds[seed % len(kinds)]
        made = calmed(stream(rng, kind, loss, False))
        C = float(rng.choice([1.0, 0.3, 0.9]))
        done: Made = learn(rule, loss, made, {"C": C}, kind)
        judge(done, comparators(rng, done), f"seed {seed}", tally)
        ran = run_of(done, 3.0 * made.truth)
        claim = next(one for one in rule.certificate.claims(ran) if one.name == NAME)
        assert claim.bound == few_mistakes(ran.hinge_u(1.0), float(ran.u @ ran.u) / C)
    assert not tally.failures, tally.failures[:5]
    assert any(NAME in name for name in tally.ratios)


# ---- ons: the gamma that has a claim


@pytest.mark.parametrize("scale", [1.0, 30.0])
@pytest.mark.slow
def test_ons_names_the_flags_that_have_a_claim(scale: float, data: np.ndarray) -> None:
    """The default has none with the logistic loss; the run with the flags it names has one."""
    save(scale * data, "data")
    [told] = certify(trained("ons", loss="logistic"), "data")
    assert told["claims"] is None
    flags = told["reason"].partition("train with ")[2].partition(" for a claim")[0]
    assert "model.params.gamma=" in flags
    again = run(
        "train", "data", "--label", "y", "--rule", "ons", "--loss", "logistic", "--checkpoint",
        "again", "--set", "model.bias=false", *shlex.split(flags),
    )  # fmt: skip
    assert again.code == 0, again.err
    [told] = run("certify", "again", "data", "--json").result["learners"]
    assert told["claims"], told["reason"]
    assert all(one["measured"] <= one["bound"] for one in told["claims"])


def test_ons_names_the_gamma_of_its_own_ball(data: np.ndarray) -> None:
    """With a ball but too large a gamma, only gamma is named, for that radius."""
    params = {"ball": "l2", "radius": 3.0, "gamma": 0.9}
    [told] = certify(trained("ons", params, loss="logistic"), "data")
    assert "train with --set model.params.gamma=0.0497 for a claim" in told["reason"]


def test_the_lemma_of_ons_holds_for_that_gamma() -> None:
    """l(v) >= l(p) + g (v - p) + gamma (g (v - p))^2 / 2 for all margins in [-B, B], logistic."""
    loss = find_loss("logistic")
    for B in (0.1, 1.0, 3.0, 10.0):
        gamma, grid = math.exp(-B), np.linspace(-B, B, 81)
        for p in grid:
            l, g = loss.value(p, 1.0, ()), loss.slope(p, 1.0, ())
            for v in grid:
                least = l + g * (v - p) + 0.5 * gamma * (g * (v - p)) ** 2
                assert loss.value(v, 1.0, ()) >= least - 1e-12, (B, p, v)
