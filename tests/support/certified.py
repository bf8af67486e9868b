"""Runs on made-up streams, and what their certificates say of them."""

from __future__ import annotations

import contextlib
import math
from collections import Counter
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import oracles
from helpers import Learner, legal, sparse
from scipy.optimize import minimize

from streamomd.analysis.certify.claims import arrays_of
from streamomd.analysis.comparator import Problem, best
from streamomd.core.errors import UsageError
from streamomd.losses import Loss, all_losses
from streamomd.rules.certificates.certificate import Claim, Run
from streamomd.rules.common.sets import ComparatorSet, Free
from streamomd.rules.contract import Rule

oracles.families()
KINDS = (
    "dense", "sparse", "scales", "noise", "zeros", "repeats", "rare", "adverse", "few", "weights",
    "heavy", "tiny", "huge",
)  # fmt: skip
CALM = {  # theorems about small predictions: rows of length 1 at most, and parameters for them
    "ons": [
        {"gamma": 0.03, "epsilon": 1.0, "ball": "l2", "radius": 1.0},
        {"gamma": 0.03, "epsilon": 1000.0},
    ]
}  # fmt: skip
LONGEST = 1e60  # a run whose loss passes it has taken steps that no one would


class Stream(NamedTuple):
    """Rows, labels, importances, and the truth they were planted with."""

    X: np.ndarray
    y: np.ndarray
    h: np.ndarray
    truth: np.ndarray


def stream(rng: np.random.Generator, kind: str, loss: Loss, light: bool) -> Stream:
    """12 to 60 rows of 3 to 9 features. ``light``: no importance above 1."""
    n, d = int(rng.integers(12, 61)), int(rng.integers(3, 10))
    if kind == "few":
        n = int(rng.integers(1, 4))
    X = rng.standard_cauchy((n, d)) if kind == "heavy" else rng.standard_normal((n, d))
    if kind in ("sparse", "zeros") or (kind in ("weights", "adverse") and rng.random() < 0.5):
        X[rng.random((n, d)) < 0.6] = 0.0
    if kind == "zeros":
        X[rng.random(n) < 0.2] = 0.0
    if kind == "rare":  # feature i with probability i^-a, as the words of texts
        X = (rng.random((n, d)) < np.arange(1, d + 1.0) ** -rng.uniform(0.5, 2.0)).astype(float)
    if kind == "repeats":
        X = X[rng.integers(0, max(1, n // 6), n)]
    truth = rng.standard_normal(d)
    margins = X @ truth
    y = labels(rng, margins + rng.standard_normal(n) * rng.choice([0.0, 0.3]), loss)
    if kind == "noise":
        y = y[rng.permutation(n)] if rng.random() < 0.5 else np.where(rng.random(n) < 0.3, -y, y)
        y = np.maximum(y, loss.least) if loss.least is not None else y
    scales = np.ones(d)
    if kind == "scales":
        scales = 10.0 ** rng.uniform(-4.0, 4.0, d)
    if kind == "tiny":
        scales = 10.0 ** rng.uniform(-60.0, -5.0, d if rng.random() < 0.5 else 1) * scales
    if kind == "huge":
        scales = 10.0 ** rng.uniform(4.0, 20.0, d if rng.random() < 0.5 else 1) * scales
    h = np.ones(n)
    if kind == "weights":
        h = rng.choice([0.0, 0.3, 1.0] if light else [0.0, 0.3, 1.0, 2.0, 7.0], n)
    return Stream(X * scales, y, h, truth / scales)


def calmed(made: Stream) -> Stream:
    """Rows and targets of length 1 at most."""
    length = max(float(np.sqrt(np.square(made.X).sum(axis=1)).max(initial=0.0)), 1e-300)
    y = made.y / max(1.0, float(np.abs(made.y).max(initial=0.0)))
    return Stream(made.X / length, y, made.h, made.truth * length)


def labels(rng: np.random.Generator, scores: np.ndarray, loss: Loss) -> np.ndarray:
    if loss.classifies:
        return np.where(scores > 0.0, 1.0, -1.0)
    if loss.least is not None:
        counts = rng.poisson(np.exp(np.clip(scores, -3.0, 2.0))).astype(float)
        return np.maximum(counts, loss.least)
    return scores


class Made(NamedTuple):
    """A run that has ended: its stream with the labels it met, and the margins it predicted."""

    rule: Rule
    loss: Loss
    learner: Learner
    stream: Stream
    margins: np.ndarray
    told: Any

    def costs(self, function: Any, p: np.ndarray) -> np.ndarray:
        return np.array([function(a, y, self.told) for a, y in zip(p, self.stream.y, strict=True)])


def learn(rule: Rule, loss: Loss, made: Stream, params: dict[str, Any], kind: str) -> Made:
    """One pass, plain Python. A rule with accounts keeps them."""
    keeping, given = rule.certificate.accounted or rule, legal(rule, loss, params)
    learner = Learner(
        keeping, loss, made.X.shape[1], classes=2 if loss.classifies else 1, params=given,
        compiled=False,
    )  # fmt: skip
    y = made.y.copy()
    if rule.looks(given):
        learner.engine.look(learner.state, sparse(made.X, y, made.h))
    if kind != "adverse":
        margins = learner.learn(sparse(made.X, y, made.h))[:, 0]
    else:
        margins = np.empty(len(y))
        for i in range(len(y)):  # each label is the one that the learner does not expect
            row = (made.X[i : i + 1], y[i : i + 1], made.h[i : i + 1])
            p = learner.engine.predict(learner.state, np.zeros(3), sparse(*row))[0, 0]
            y[i] = opposite(p, loss)
            margins[i] = learner.learn(sparse(made.X[i : i + 1], y[i : i + 1], row[2]))[0, 0]
    return Made(rule, loss, learner, made._replace(y=y), margins, loss.numbers({}))


def opposite(p: float, loss: Loss) -> float:
    if loss.least is not None:
        return 0.0 if p > 1.0 else 4.0
    return -1.0 if p > 0.0 else 1.0


def tamed(rule: Rule, loss: Loss, made: Stream, params: dict[str, Any], kind: str) -> Made | None:
    """As ``learn``, with steps short enough for the stream's numbers to stay numbers.

    None where no eta helps: with a slope that has no bound a run may leave all numbers.
    """
    for _ in range(8):
        try:
            done = learn(rule, loss, made, params, kind)
            spent = float(done.learner.sums[1])
        except OverflowError:
            spent = math.inf
        if math.isfinite(spent) and spent < LONGEST:
            return done
        assert loss.lipschitz is None, (rule.name, loss.name, kind, spent)
        known = legal(rule, loss, params)
        if "eta" not in known:
            return None
        params = {**params, "eta": known["eta"] * 1e-3}
    return None


def comparators(rng: np.random.Generator, done: Made) -> Iterator[tuple[str, np.ndarray]]:
    """Weights to compare with: none, the truth, the best there are, random ones."""
    X, truth = done.stream.X, done.stream.truth
    yield "best", lowest(done)
    yield "constrained", constrained(done)
    yield "zero", np.zeros(X.shape[1])
    yield "truth", truth
    yield "long truth", truth * 10.0
    size = 1.0 / np.maximum(np.abs(X).max(axis=0, initial=0.0), 1e-12)
    yield "random", rng.standard_normal(X.shape[1]) * size * 10.0 ** rng.uniform(-2.0, 2.0)
    yield "sparse", np.where(rng.random(X.shape[1]) < 0.3, rng.standard_normal(len(size)), 0) * size


def lowest(done: Made) -> np.ndarray:
    """Nearly the best fixed weights: L-BFGS in units of the features' lengths."""
    X, h = done.stream.X, done.stream.h
    lengths = np.sqrt(np.square(X).sum(axis=0))
    Z = np.divide(X, lengths, out=np.zeros_like(X), where=lengths > 0.0)
    slope, value = done.loss.slope, done.loss.value

    def objective(z: np.ndarray) -> tuple[float, np.ndarray]:
        p = np.clip(Z @ z, -1e100, 1e100)
        if done.loss.least is not None:
            p = np.clip(p, -300.0, 300.0)
        return float(h @ done.costs(value, p)), Z.T @ (h * done.costs(slope, p))

    options = {"maxiter": 60, "maxfun": 80}
    z = minimize(objective, np.zeros(X.shape[1]), jac=True, method="L-BFGS-B", options=options).x
    return np.divide(z, lengths, out=np.zeros_like(z), where=lengths > 0.0)


def constrained(done: Made) -> np.ndarray:
    """The best weights in the rule's set, as ``streamomd certify`` finds them."""
    rows = sparse(done.stream.X, done.stream.y, done.stream.h)
    size, sides = done.stream.X.shape[1], 2 if done.loss.classifies else 1
    problem = Problem(lambda: [rows], done.loss, {}, size, sides, 1, bias=False)
    return best(problem, [set_of(done)], passes=30).u[:, 0]


def set_of(done: Made) -> ComparatorSet:
    """The rule's constraint, as it is after the run."""
    state, rule = done.learner.state, done.learner.state.layout.rule
    feasible = rule.certificate.feasible or done.rule.certificate.feasible
    if feasible is None:
        return Free()
    slots = {slot.name: np.array(state.slot(slot.name)) for slot in rule.shared_slots}
    return feasible(slots, rule.hyper_of(done.learner.engine.params))


def run_of(done: Made, u: np.ndarray) -> Run:
    """What a certificate is shown; u moved into the rule's set."""
    learner, state, (X, y, h, _) = done.learner, done.learner.state, done.stream
    rule = learner.state.layout.rule
    numbers = rule.hyper_of(learner.engine.params)
    own = {slot.name: np.array(state.slot(slot.name)[:, 0]) for slot in rule.own_slots}
    shared = {slot.name: np.array(state.slot(slot.name)) for slot in rule.shared_slots}
    names = [slot.name for slot in rule.total_slots]
    totals = dict(zip(names, state.totals[0].tolist(), strict=True))
    u = set_of(done).nearest(u)
    p = X @ u
    bound = done.loss.lipschitz(done.told) if done.loss.lipschitz else math.nan
    return Run(
        own=own,
        shared=shared,
        totals=totals,
        w=learner.weights()[:, 0],
        h=numbers,
        rows=len(y),
        loss=float(learner.sums[1]),
        mistakes=float(learner.sums[2]) if done.loss.classifies else math.nan,
        u=np.concatenate([np.zeros(state.layout.size - len(u)), u]),  # no bias
        loss_u=float(h @ done.costs(done.loss.value, p)),
        hinge_u=lambda gamma: float(h @ np.maximum(gamma - y * p, 0.0)),
        square_u=float(h @ (y - p) ** 2),
        lipschitz=float(bound),
        extra=arrays_of(state, 0),
        longest=lambda: float(np.square(X).sum(axis=1).max(initial=0.0)),
        widest_u=float(np.abs(p).max(initial=0.0)),
    )


def certificate(rule: Rule) -> Any:
    accounted = rule.certificate.accounted
    return (accounted and accounted.certificate.claims) or rule.certificate.claims


def steep(done: Made) -> bool:
    """Whether a slope passes the bound L that the rule was given: then nothing is claimed."""
    given = getattr(done.learner.engine.params, "get", lambda name: None)("L")
    if given is None:
        return False
    slopes = done.stream.h * np.abs(done.costs(done.loss.slope, done.margins))
    return bool(slopes.max(initial=0.0) > given * (1.0 + 1e-12))


def holds(claim: Claim, run: Run) -> bool:
    """Whether measured is at most the bound, up to rounding; a bound must be a number."""
    if not (math.isfinite(claim.measured) and math.isfinite(claim.bound)):
        return False
    rounding = 1e-9 * abs(claim.bound) + 1e-11 * (1.0 + abs(run.loss) + abs(run.loss_u))
    return claim.measured <= claim.bound + rounding


class Tally(NamedTuple):
    """What came of a rule's streams."""

    count: Counter[str]
    ratios: dict[str, list[float]]
    failures: list[str]
    outside: Counter[str]


def losses_of(rule: Rule) -> list[Loss]:
    known = [loss for loss in all_losses().values() if not loss.coupled]
    if rule.storage.kind == "block":  # of other losses nothing is claimed
        return [loss for loss in known if loss.name == "square"]
    return [loss for loss in known if not rule.losses.names or loss.name in rule.losses.names]


def examine(rule: Rule, streams: int) -> Tally:
    """Every claim of a rule on so many streams, over all kinds, losses and variants."""
    tally = Tally(Counter(), {}, [], Counter())
    losses = losses_of(rule)
    variants = CALM.get(rule.name) or oracles.VARIANTS.get(rule.name) or [{}]
    for seed in range(3 * streams + 30):
        if tally.count["streams"] == streams:
            break
        rng = np.random.default_rng([seed, *rule.name.encode()])
        kind, loss = KINDS[seed % len(KINDS)], losses[rng.integers(len(losses))]
        params = variants[rng.integers(len(variants))]
        where = f"seed {seed}, {kind}, {loss.name}, {params}"
        try:
            made = stream(rng, kind, loss, rule.losses.lipschitz)
            made = calmed(made) if rule.name in CALM else made
            done = tamed(rule, loss, made, params, kind)
        except UsageError as error:
            tally.outside[str(error)] += 1
            continue
        if done is None:
            tally.outside["left all numbers"] += 1
            continue
        if steep(done):
            tally.outside["a slope above L"] += 1
            continue
        before = tally.count["claims"]
        judge(done, comparators(rng, done), where, tally)
        tally.count["streams"] += tally.count["claims"] > before or bool(np.any(done.stream.h != 1))
    return tally


def judge(done: Made, tried: Iterator[tuple[str, np.ndarray]], where: str, tally: Tally) -> None:
    """Every claim about a run, for each comparator."""
    weighted = bool(np.any(done.stream.h != 1.0))
    for name, u in tried:
        run = run_of(done, u)
        if not math.isfinite(run.loss_u):  # of such a u nothing is claimed
            continue
        try:
            claims = certificate(done.rule)(run)
        except ValueError as error:
            tally.outside[str(error)] += 1
            continue
        for claim in claims:
            tally.count["claims"] += 1
            if not holds(claim, run):
                text = f"{claim.measured!r} > {claim.bound!r}"
                tally.failures.append(f"{where}, u {name}: {claim.name} ({claim.source}) {text}")
            if name == "best" and claim.measured > 0.0 and not weighted:
                ratio = claim.bound / claim.measured
                tally.ratios.setdefault(f"{claim.name} ({claim.source})", []).append(ratio)


def planted(rule: Rule) -> tuple[float, str]:
    """The least bound / (rows * loss of predicting 0) of a rule on one easy stream, and which.

    1000 rows of 4 features, the first of which alone decides, with the classes well apart.
    """
    loss = next(one for one in losses_of(rule) if one.name in ("hinge", "logistic", "square"))
    rng = np.random.default_rng([7, *rule.name.encode()])
    X = rng.choice([0.0, 0.3, -0.3], (1000, 4))
    y = rng.choice([-1.0, 1.0], 1000)
    X[:, 0] = y * rng.uniform(0.8, 1.0, 1000)
    truth = np.array([1.0, 0.0, 0.0, 0.0])
    made = Stream(X, y if loss.classifies else X[:, 0], np.ones(1000), truth)
    least = (math.inf, "no claim")
    for params in CALM.get(rule.name) or [*oracles.VARIANTS.get(rule.name, [{}]), {}]:
        for more in etas(rule):
            try:
                done = learn(rule, loss, made, {**params, **more}, "dense")
            except UsageError:
                continue
            zero = float(done.costs(loss.value, np.zeros(1000)).sum())
            for size in (1.0, 0.5, 2.0, 4.0):
                with contextlib.suppress(ValueError):
                    for claim in certificate(rule)(run_of(done, truth * size)):
                        text = f"{claim.name}, {params | more}, u {size:g}"
                        least = min(least, (claim.bound / zero, text))
            if least[0] < 1.0:
                return least
    return least


def etas(rule: Rule) -> list[dict[str, Any]]:
    return [{}, *({"eta": 10.0**e} for e in (-2, -1, 0) if "eta" in rule.hyper._fields)]
