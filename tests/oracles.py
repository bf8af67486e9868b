"""Oracles: each rule as its paper prints it, and streams of rows to try it on.

Slow, literal, dense: a row is a whole vector, an update is the paper's line over all coordinates,
the learners of one-against-all are separate runs. Only numpy and math; nothing of streamomd.
P1 is Ross, Mineiro & Langford 2013; P2 Shalev-Shwartz & Singer 2006; P3 Qian's notes on adaptive
FTRL; P4 Duchi, Hazan & Singer 2010. In every rule t counts all rows from 1, also those that teach
nothing; 0/0 = 0; g is importance times the loss's slope, so g * x is the paper's gradient.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
NAN = math.nan
LOSSES = ("square", "absolute", "hinge", "logistic")
KINDS = ("dense", "sparse", "scales", "zeros", "repeats", "unseen", "weights")
TARGETS = ("binary", "classes", "real")


class Trace(NamedTuple):
    """What a run leaves behind; L learners side by side (1, or the number of classes).

    margins: (n, L), the prediction of each row before learning from it.
    scale: (n, L), sum_i |w_i x_i| of each row, the yardstick for comparing margins.
    slots: final slots by name, shared ones (d,), own ones (d, L). totals: by name, (L,).
    loss: sum of h * loss over rows and learners, of the margins above.
    kink: the smallest relative distance of a row to a flip of a branch; infinity if there is none.
    """

    margins: Floats
    scale: Floats
    slots: dict[str, Floats]
    totals: dict[str, Floats]
    loss: float
    kink: float


class Seen(NamedTuple):
    """A row once predicted: t from 1, x (d,), margin p, scale = sum_i |w_i x_i|, g = h * slope."""

    t: int
    x: Floats
    y: float
    h: float
    p: float
    scale: float
    g: float


def value_and_slope(loss: str, p: float, y: float) -> tuple[float, float]:
    """The loss of margin p and its derivative by p; at a kink the slope is 0."""
    m = y * p
    match loss:
        case "square":  # (y - p)^2 / 2
            return (y - p) ** 2 / 2.0, p - y
        case "absolute":  # |y - p|
            return abs(y - p), float(np.sign(p - y))
        case "hinge":  # [1 - y p]_+
            return max(0.0, 1.0 - m), -y if m < 1.0 else 0.0
        case "logistic" if m > 0.0:  # ln(1 + e^-m), slope -y / (1 + e^m), times e^-m / e^-m
            return math.log1p(math.exp(-m)), -y * math.exp(-m) / (1.0 + math.exp(-m))
        case "logistic":  # the same, with ln(1 + e^-m) = -m + ln(1 + e^m)
            return -m + math.log1p(math.exp(m)), -y / (1.0 + math.exp(m))
    raise ValueError(f"expected a loss of {LOSSES}, got {loss!r}")


def slope_kink(loss: str, seen: Seen) -> float:
    """Distance to the jump of the slope, relative to max(1, scale).

    A row on which no weight acts is predicted as exactly 0 by every program: no kink is near.
    """
    if seen.scale == 0.0:
        return math.inf
    distance = {"absolute": abs(seen.y - seen.p), "hinge": abs(1.0 - seen.y * seen.p)}
    return distance.get(loss, math.inf) / max(1.0, seen.scale)


def ratio(a: Floats, b: Floats) -> Floats:
    """a / b by coordinate, 0 where b = 0."""
    return np.divide(a, b, out=np.zeros_like(a), where=b != 0.0)


def rate(eta: float, schedule: str, t: int) -> float:
    """eta_t: eta, eta / sqrt(t) or eta / t."""
    return {"constant": eta, "sqrt": eta / math.sqrt(t), "inverse": eta / t}[schedule]


class Learner(ABC):
    """One learner: it observes x, gives its weights (d,), and learns once the label is known.

    shared, own and totals name attributes: slots moved by x alone, slots moved by losses, numbers
    kept once for all coordinates. A parameter that a rule needs and was not given is NaN.
    """

    shared: tuple[str, ...] = ()
    own: tuple[str, ...] = ("w",)
    totals: tuple[str, ...] = ()

    def __init__(
        self, d: int, eta: float = NAN, schedule: str = "sqrt", delta: float = 0.0, C: float = NAN
    ) -> None:
        self.eta, self.schedule, self.delta, self.C = eta, schedule, delta, C
        self.w, self.theta, self.s, self.G, self.reach = np.zeros((5, d))
        self.N = 0.0

    def observe(self, t: int, x: Floats) -> None:  # noqa: B027  most need nothing here
        """What happens from x alone, before the prediction of round t."""

    def weights(self, t: int) -> Floats:
        """The weights of round t."""
        return self.w

    @abstractmethod
    def learn(self, seen: Seen) -> None:
        """What happens after the prediction."""

    def kink(self, loss: str, seen: Seen) -> float:
        """Relative distance of the row to a jump of ``learn``."""
        return slope_kink(loss, seen)


class NG(Learner):
    """Normalized gradient, P1 algorithm 1.

    2(a) if |x_i| > s_i: w_i <- w_i s_i^2 / |x_i|^2, s_i <- |x_i|. 2(b) predict.
    2(c) N <- N + sum_i x_i^2 / s_i^2. 2(d) w_i <- w_i - eta_t (t / N) (1 / s_i^2) g x_i.
    """

    shared, totals = ("s",), ("N",)
    power = 2  # of s_i / |x_i| in the squash

    def observe(self, t: int, x: Floats) -> None:
        bigger = np.abs(x) > self.s
        self.w = np.where(bigger, self.w * ratio(self.s, np.abs(x)) ** self.power, self.w)
        self.s = np.where(bigger, np.abs(x), self.s)
        self.N = self.N + math.fsum(ratio(x**2, self.s**2))

    def learn(self, seen: Seen) -> None:
        if self.N > 0.0:  # else no feature was ever seen
            pace = rate(self.eta, self.schedule, seen.t) * (seen.t / self.N)
            self.w = self.w - pace * ratio(seen.g * seen.x, self.s**2)


class NAG(NG):
    """Normalized adaptive gradient, P1 algorithm 2.

    2(a) if |x_i| > s_i: w_i <- w_i s_i / |x_i|, s_i <- |x_i|. 2(b), 2(c) as in NG.
    2(d) G_i <- G_i + (g x_i)^2, w_i <- w_i - eta sqrt(t / N) 1 / (s_i sqrt(G_i)) g x_i.
    """

    own = ("w", "G")
    power = 1

    def deviation(self, t: int) -> Floats:
        """What stands for s_i in the update."""
        return self.s

    def learn(self, seen: Seen) -> None:
        if self.N > 0.0:  # else no feature was ever seen
            self.G = self.G + (seen.g * seen.x) ** 2
            pace = self.eta * math.sqrt(seen.t / self.N)
            step = ratio(seen.g * seen.x, self.deviation(seen.t) * np.sqrt(self.G))
            self.w = self.w - pace * step


class SNAG(NAG):
    """sNAG, the end of P1 section 3: s_i = sum of x_i^2, and sqrt(s_i / t) in NAG's update.

    P1 is silent on the rest. Here N <- N + sum_i x_i^2 / (s_i / t), and nothing is squashed.
    """

    def observe(self, t: int, x: Floats) -> None:
        self.s = self.s + x**2
        self.N = self.N + math.fsum(ratio(x**2, self.s / t))

    def deviation(self, t: int) -> Floats:
        return np.sqrt(self.s / t)


class AdaGrad(Learner):
    """AdaGrad, diagonal mirror descent: P4 eq. 6 with phi = 0 (eq. 2 for delta = 0, without a set).

    G_i <- G_i + (g x_i)^2, H_i = delta + sqrt(G_i), w_i <- w_i - eta g x_i / H_i.
    """

    own = ("w", "G")

    def learn(self, seen: Seen) -> None:
        self.G = self.G + (seen.g * seen.x) ** 2
        self.w = self.w - self.eta * ratio(seen.g * seen.x, self.delta + np.sqrt(self.G))


class OGD(Learner):
    """Online gradient descent (with the square loss, Widrow-Hoff's LMS): w <- w - eta_t g x."""

    def learn(self, seen: Seen) -> None:
        self.w = self.w - rate(self.eta, self.schedule, seen.t) * seen.g * seen.x


class DA(Learner):
    """Dual averaging, P3 section 4 with Psi = 0: theta = -sum of g x over finished rounds,
    w = eta_T theta; T = t - 1 rounds are finished when row t is predicted.
    """

    own = ("theta",)

    def weights(self, t: int) -> Floats:
        T = max(1, t - 1)  # T = 0: any rate will do, theta is still 0
        return rate(self.eta, self.schedule, T) * self.theta

    def learn(self, seen: Seen) -> None:
        self.theta = self.theta - seen.g * seen.x


class Perceptron(Learner):
    """Perceptron, P2 section 4 example 1: on a mistake theta <- theta + C y x; w = theta.

    A margin of 0 is a mistake. The importance h multiplies C.
    """

    own = ("theta",)

    def weights(self, t: int) -> Floats:
        return self.theta

    def learn(self, seen: Seen) -> None:
        if seen.y * seen.p <= 0.0:
            step = seen.h * self.C * seen.y * seen.x
            self.theta = self.theta + step
            self.reach = self.reach + np.abs(step)

    def kink(self, loss: str, seen: Seen) -> float:
        """The sign of the margin has no unit: relative to all that was ever added into it."""
        reach = math.fsum(self.reach * np.abs(seen.x))
        return abs(seen.p) / reach if seen.scale > 0.0 else math.inf


class PA1(Perceptron):
    """PA-I: P2 eq. 28 divided by the bound |x|^2 on the Hessian, or eq. 31 with k = 1.

    When l = [1 - y p]_+ > 0 and x is not 0: theta <- theta + a y x, a = min(h C, l / |x|^2).
    """

    def learn(self, seen: Seen) -> None:
        loss, square = max(0.0, 1.0 - seen.y * seen.p), math.fsum(seen.x**2)
        if loss > 0.0 and square > 0.0:
            self.theta = self.theta + min(seen.h * self.C, loss / square) * seen.y * seen.x

    def kink(self, loss: str, seen: Seen) -> float:
        """Nowhere: min(h C, l / ||x||^2) is continuous, at l = 0 and where the ceiling binds."""
        return math.inf


GRADIENT: dict[str, Callable[..., Learner]]
GRADIENT = {"ng": NG, "nag": NAG, "snag": SNAG, "adagrad": AdaGrad, "ogd": OGD, "da": DA}
LEARNERS = {**GRADIENT, "perceptron": Perceptron, "pa1": PA1}
LOSSES_OF = {rule: LOSSES if rule in GRADIENT else ("hinge",) for rule in LEARNERS}


def run(
    rule: str, loss: str, X: Floats, y: Floats, h: Floats, params: dict[str, Any], classes: int = 2
) -> Trace:
    """Run a rule over the rows in order.

    X: (n, d), 0 where a feature is absent. y: (n,), -1 or +1, any number in regression, and with
    more than two classes the index 0 ... classes - 1 (learner k then sees +1 for k, else -1).
    h: (n,), importance. params: the rule's own (eta, schedule, delta, C), by name.
    """
    if loss not in LOSSES_OF[rule]:
        raise ValueError(f"{rule} goes with {LOSSES_OF[rule]}, got {loss!r}")
    targets = [y] if classes <= 2 else [np.where(y == k, 1.0, -1.0) for k in range(classes)]
    traces = [run_one(rule, loss, X, target, h, params) for target in targets]
    margins, scale, slots, totals, losses, kinks = zip(*traces, strict=True)
    return Trace(
        np.hstack(margins),
        np.hstack(scale),
        {k: a if a.ndim == 1 else np.hstack([s[k] for s in slots]) for k, a in slots[0].items()},
        {name: np.hstack([total[name] for total in totals]) for name in totals[0]},
        math.fsum(losses),
        min(kinks),
    )


def run_one(rule: str, loss: str, X: Floats, y: Floats, h: Floats, params: dict[str, Any]) -> Trace:
    """One learner over the rows in order; L = 1."""
    learner = LEARNERS[rule](X.shape[1], **params)
    rows: list[tuple[float, ...]] = []
    for t, (x, label, importance) in enumerate(zip(X.astype(float), y, h, strict=True), start=1):
        learner.observe(t, x)
        products = learner.weights(t) * x
        p, scale = math.fsum(products), math.fsum(np.abs(products))
        value, slope = value_and_slope(loss, p, float(label))
        seen = Seen(t, x, float(label), float(importance), p, scale, float(importance) * slope)
        kink = learner.kink(loss, seen) if seen.h > 0.0 else math.inf  # h = 0: no branch matters
        learner.learn(seen)
        rows.append((p, scale, seen.h * value, kink))
    shared = {name: getattr(learner, name) for name in learner.shared}
    own = {name: getattr(learner, name)[:, np.newaxis] for name in learner.own}
    totals = {name: np.array([getattr(learner, name)]) for name in learner.totals}
    columns = np.array(rows).reshape(-1, 4)
    margins, scales, losses, kinks = columns[:, :1], columns[:, 1:2], columns[:, 2], columns[:, 3]
    slots, kink = {**shared, **own}, float(kinks.min(initial=math.inf))
    return Trace(margins, scales, slots, totals, math.fsum(losses), kink)


class Stream(NamedTuple):
    """Rows to learn from.

    X: (n, d), 0 where absent. y: (n,), in the form ``run`` takes. h: (n,), importance.
    stored: bool (n, d), the entries a sparse file holds; they include explicit zeros in "zeros".
    classes: 2, also in regression, or the number of classes.
    """

    X: Floats
    y: Floats
    h: Floats
    stored: NDArray[np.bool_]
    classes: int


def streams(rng: np.random.Generator, kind: str, target: str = "binary") -> Stream:
    """A random stream of a kind: 60 to 200 rows, 5 to 40 features, a linear truth plus noise.

    Rows have a norm near 1 (before "scales" multiplies the features), so that ordinary step sizes
    do not diverge; with "scales", "ogd", "da", "perceptron" and "pa1" see the large features only.
    """
    if kind not in KINDS or target not in TARGETS:
        raise ValueError(f"expected {KINDS} and {TARGETS}, got {kind!r} and {target!r}")
    n, d = int(rng.integers(60, 201)), int(rng.integers(5, 41))
    present = presence(rng, kind, n, d)
    Z = rng.standard_normal((n, d)) / math.sqrt(max(1.0, present.sum() / n))
    Z[~present] = 0.0
    if kind == "repeats":
        Z = repeated(rng, Z)
    y, classes = labels(rng, Z, target)
    h = importances(rng, n) if kind == "weights" else np.ones(n)
    X = Z * 10.0 ** rng.uniform(-12.0, 12.0, d) if kind == "scales" else Z
    stored = X != 0.0
    if kind == "zeros":
        stored |= rng.random((n, d)) < 0.2
    return Stream(X, y, h, stored, classes)


def presence(rng: np.random.Generator, kind: str, n: int, d: int) -> NDArray[np.bool_]:
    """Which features each row has."""
    dense = kind == "dense" or (kind in ("scales", "repeats", "weights") and rng.random() < 0.5)
    present = np.ones((n, d), dtype=bool) if dense else rng.random((n, d)) < rng.uniform(0.1, 0.5)
    if kind == "zeros":
        present[rng.random(n) < 0.2] = False
        present[[int(rng.integers(3, n)), *range(int(rng.integers(0, 3)))]] = False
    if kind == "unseen":
        never, *late = rng.permutation(d)[: 2 + d // 5]
        present[:, never] = False
        for i in late:
            present[: int(rng.integers(n // 2, n - 1)), i] = False
        present[-1, late] = True
    return present


def repeated(rng: np.random.Generator, Z: Floats) -> Floats:
    """The first rows over and over: some twice running, others far apart."""
    order = rng.integers(0, len(Z) // 6, len(Z))
    again = np.flatnonzero(rng.random(len(Z) - 1) < 0.3)
    order[again + 1] = order[again]
    return Z[order]


def importances(rng: np.random.Generator, n: int) -> Floats:
    """Mostly near 1; some 0, the first among them; a few large, one of them 100."""
    h = rng.gamma(2.0, 0.5, n)
    none, *large = rng.permutation(np.arange(1, n))[: n // 20 + 2]
    h[large] = rng.uniform(10.0, 100.0, len(large))
    h[rng.random(n) < 0.15] = 0.0
    h[[0, none]], h[large[0]] = 0.0, 100.0
    return h


def labels(rng: np.random.Generator, Z: Floats, target: str) -> tuple[Floats, int]:
    """What a planted linear truth says of the rows, with noise; and the number of classes."""
    n, d = Z.shape
    if target == "classes":
        classes = 3
        scores = Z @ rng.standard_normal((d, classes)) + 0.3 * rng.standard_normal((n, classes))
        return np.argmax(scores, axis=1).astype(np.float64), classes
    scores = Z @ rng.standard_normal(d) + 0.3 * rng.standard_normal(n)
    return (scores if target == "real" else np.where(scores > 0.0, 1.0, -1.0)), 2
