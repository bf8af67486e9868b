"""Oracles: each rule as its paper prints it.

Slow, literal, dense: a row is a whole vector, an update is the paper's line over all coordinates,
the learners of one-against-all are separate runs. Only numpy and math; nothing of streamomd.
P1 is Ross, Mineiro & Langford 2013; P2 Shalev-Shwartz & Singer 2006; P3 Qian's notes on adaptive
FTRL; P4 Duchi, Hazan & Singer 2010. In every rule t counts all rows from 1, also those that teach
nothing; 0/0 = 0; g is importance times the loss's slope, so g * x is the paper's gradient.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
NAN = math.nan
LOSSES = (
    "square", "absolute", "huber", "epsilon_insensitive", "pinball", "hinge", "gamma_hinge",
    "squared_hinge", "logistic", "poisson", "softmax", "gamma", "tweedie", "log_square",
)  # fmt: skip
REGRESSION = (
    "square", "absolute", "huber", "epsilon_insensitive", "pinball", "poisson", "gamma", "tweedie",
    "log_square",
)  # fmt: skip


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
    """The loss of margin p and its derivative by p; at a kink the slope is 0.

    Thresholds are the defaults: Huber 1, epsilon 0.1, tau 1/2, gamma 1, power 3/2.
    """
    m, r = y * p, p - y
    match loss:
        case "square":  # (y - p)^2 / 2
            return r**2 / 2.0, r
        case "absolute":  # |y - p|
            return abs(r), float(np.sign(r))
        case "huber":  # r^2 / 2 up to |r| = 1, |r| - 1/2 beyond
            return (r**2 / 2.0, r) if abs(r) <= 1.0 else (abs(r) - 0.5, float(np.sign(r)))
        case "epsilon_insensitive":  # [|y - p| - 0.1]_+
            return (0.0, 0.0) if abs(r) <= 0.1 else (abs(r) - 0.1, float(np.sign(r)))
        case "pinball":  # tau (y - p) above, (1 - tau) (p - y) below, tau = 1/2
            return abs(r) / 2.0, float(np.sign(r)) / 2.0
        case "hinge" | "gamma_hinge":  # [1 - y p]_+
            return max(0.0, 1.0 - m), -y if m < 1.0 else 0.0
        case "squared_hinge":  # [1 - y p]_+^2 / 2
            return max(0.0, 1.0 - m) ** 2 / 2.0, -y * max(0.0, 1.0 - m)
        case "logistic" if m > 0.0:  # ln(1 + e^-m), slope -y / (1 + e^m), times e^-m / e^-m
            return math.log1p(math.exp(-m)), -y * math.exp(-m) / (1.0 + math.exp(-m))
        case "logistic":  # the same, with ln(1 + e^-m) = -m + ln(1 + e^m)
            return -m + math.log1p(math.exp(m)), -y / (1.0 + math.exp(m))
        case "poisson":  # e^p - y p
            e = math.exp(p) if p < 709.0 else math.inf
            return e - m, e - y
        case "gamma":  # y e^-p + p
            e = math.exp(-p) if p > -709.0 else math.inf
            return y * e + p, 1.0 - y * e
        case "tweedie":  # 2 e^(p/2) + 2 y e^(-p/2), of power 3/2
            up = math.exp(p / 2.0) if p < 1418.0 else math.inf
            down = math.exp(-p / 2.0) if p > -1418.0 else math.inf
            return 2.0 * up + 2.0 * y * down, up - y * down
        case "log_square":  # (ln y - p)^2 / 2
            return (p - math.log(y)) ** 2 / 2.0, p - math.log(y)
    raise ValueError(f"expected a loss of {LOSSES}, got {loss!r}")


def softmax(margins: list[float], y: int) -> list[tuple[float, float]]:
    """ln(sum exp p_k) - p_y, and its derivative by each margin: share of k, less 1 for y."""
    whole = float(np.logaddexp.reduce(margins))
    value = whole - margins[y]
    shares = [math.exp(p - whole) for p in margins]
    others = math.fsum(share for k, share in enumerate(shares) if k != y)  # 1 - p_y cancels
    return [(value, -others if k == y else share) for k, share in enumerate(shares)]


def slope_kink(loss: str, seen: Seen) -> float:
    """Distance to the jump of the slope, relative to max(1, scale).

    A row on which no weight acts is predicted as exactly 0 by every program: no kink is near.
    """
    if seen.scale == 0.0:
        return math.inf
    off, gap = abs(seen.y - seen.p), abs(1.0 - seen.y * seen.p)
    distance = {
        "absolute": off, "pinball": off, "epsilon_insensitive": abs(off - 0.1),
        "hinge": gap, "gamma_hinge": gap,
    }  # fmt: skip
    return distance.get(loss, math.inf) / max(1.0, seen.scale)


def ratio(a: Floats, b: Floats) -> Floats:
    """a / b by coordinate, 0 where b = 0."""
    return np.divide(a, b, out=np.zeros_like(a), where=b != 0.0)


def rate(eta: float, schedule: str, t: int) -> float:
    """eta_t: eta, eta / sqrt(t) or eta / t."""
    return {"constant": eta, "sqrt": eta / math.sqrt(t), "inverse": eta / t}[schedule]


class Learner(ABC):
    """One learner: it observes x, gives its weights (d,), and learns once the label is known.

    shared, own and totals name attributes: slots moved by x alone (times its importance where
    ``weighted_scale``), slots moved by losses, numbers kept once for all coordinates. A parameter
    that a rule needs and was not given is NaN.
    """

    shared: tuple[str, ...] = ()
    own: tuple[str, ...] = ("w",)
    totals: tuple[str, ...] = ()
    weighted_scale = False

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

    def predict(self, t: int, x: Floats) -> tuple[float, float]:
        """The prediction of round t, and the sum of its terms' sizes."""
        products = self.weights(t) * x
        return math.fsum(products), math.fsum(np.abs(products))

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

    P1 is silent on the rest. Here N <- N + sum_i x_i^2 / (s_i / t), and nothing is squashed unless
    ``squash``: then w_i <- w_i b_i / sqrt(s_i / t) where the row's scale is above b_i, the largest
    at the rows so far in which x_i is not 0.
    """

    def __init__(self, d: int, squash: bool = False, **more: Any) -> None:
        super().__init__(d, **more)
        self.squash, self.b = squash, np.zeros(d)

    def observe(self, t: int, x: Floats) -> None:
        self.s = self.s + x**2
        self.N = self.N + math.fsum(ratio(x**2, self.s / t))
        if self.squash:
            scale = np.where(x != 0.0, self.deviation(t), 0.0)
            bigger = scale > self.b
            self.w = np.where(bigger, self.w * ratio(self.b, scale), self.w)
            self.b = np.where(bigger, scale, self.b)

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


LEARNERS: dict[str, Callable[..., Learner]] = {
    "ng": NG, "nag": NAG, "snag": SNAG, "adagrad": AdaGrad, "ogd": OGD, "da": DA,
    "perceptron": Perceptron, "pa1": PA1,
}  # fmt: skip
VARIANTS: dict[str, list[dict[str, Any]]] = {
    "ng": [{}, {"schedule": "constant", "eta": 0.3}, {"schedule": "inverse", "eta": 0.3}],
    "ogd": [{}, {"schedule": "constant", "eta": 0.3}, {"schedule": "inverse", "eta": 0.3}],
    "da": [{}, {"schedule": "constant", "eta": 0.3}, {"schedule": "inverse", "eta": 0.3}],
    "adagrad": [{}, {"eta": 0.3, "delta": 0.7}],
    "nag": [{}, {"eta": 0.2}],
    "snag": [{}, {"eta": 0.2}, {"squash": True}],
    "perceptron": [{}, {"C": 0.05}],
    "pa1": [{}, {"C": 0.05}],
}
DERIVED: dict[str, tuple[str, ...]] = {"snag": ("b",)}
FAMILIES: dict[str, set[str]] = {}
FUNCTIONS: dict[str, Callable[..., Any]] = {}


def family(name: str) -> set[str]:
    """Take in the oracles of another file: classes in LEARNERS, and functions of (d, rows, …)."""
    found = vars(importlib.import_module(name))
    functions = {key: one for key, one in found.items() if is_oracle(one)}
    LEARNERS.update(found["LEARNERS"])
    FUNCTIONS.update(functions)
    VARIANTS.update(found["VARIANTS"])
    DERIVED.update(found["DERIVED"])
    return {*found["LEARNERS"], *functions}


def is_oracle(one: object) -> bool:
    """Whether it is a function as ``check_rule`` calls it; its name is the rule's."""
    return inspect.isfunction(one) and [*inspect.signature(one).parameters][:2] == ["d", "rows"]


@functools.cache
def families() -> None:
    """Take in every file of oracles here; of two oracles of a rule the later file's counts."""
    for file in sorted(Path(__file__).parent.glob("oracles*.py")):
        found = family(file.stem)
        for names in FAMILIES.values():
            names -= found
        FAMILIES[file.stem] = found


def oracle_of(rule: str) -> Callable[..., dict[str, Floats]]:
    """A rule's oracle as ``streamomd.testing.check_rule`` calls it: the function of the rule's name
    in a file of oracles, or its class here, walked row by row."""
    return FUNCTIONS[rule] if rule in FUNCTIONS else functools.partial(walk, LEARNERS[rule])


def variants(rule: str) -> list[dict[str, Any]] | None:
    """Parameters to try where an oracle names some; None: what ``check_rule`` makes up."""
    return VARIANTS.get(rule)


def walk(make: Callable[..., Learner], d: int, rows: Any, **params: Any) -> dict[str, Floats]:
    """One learner over the rows; its final slots and totals."""
    learner = make(d, **params)
    for row in rows:
        learner.observe(row.t, row.importance * row.x if learner.weighted_scale else row.x)
        p, scale = learner.predict(row.t, row.x)
        g = row.slope_at(p, scale)
        learner.learn(Seen(row.t, row.x, row.y, row.importance, row.margin, scale, g))
    names = (*learner.shared, *learner.own, *learner.totals)
    return {name: np.asarray(getattr(learner, name)) for name in names}


def run(
    rule: str, loss: str, X: Floats, y: Floats, h: Floats, params: dict[str, Any], classes: int = 2
) -> Trace:
    """Run a rule over the rows in order.

    X: (n, d), 0 where a feature is absent. y: (n,), -1 or +1, any number in regression, and with
    more than two classes the index 0 ... classes - 1 (learner k then sees +1 for k, else -1).
    Softmax has a learner for each of two classes as well. h: (n,), importance. params: the rule's
    own (eta, schedule, delta, C), by name.
    """
    count = classes if classes > 2 or loss == "softmax" else 1
    learners = [LEARNERS[rule](X.shape[1], **params) for _ in range(count)]
    number = y if classes > 2 else (y > 0.0)
    margins, scales, losses, kinks = [], [], [], [math.inf]
    for t, (x, label, k, importance) in enumerate(zip(X * 1.0, y, number, h, strict=True), 1):
        told = [float(label)] if count == 1 else [1.0 if k == l else -1.0 for l in range(count)]
        for learner in learners:
            learner.observe(t, float(importance) * x if learner.weighted_scale else x)
        predicted = [learner.predict(t, x) for learner in learners]
        told_apart = [p for p, _ in predicted]
        judged = (
            softmax(told_apart, int(k))
            if loss == "softmax"
            else [value_and_slope(loss, p, aim) for p, aim in zip(told_apart, told, strict=True)]
        )
        for learner, (p, scale), aim, (_, slope) in zip(
            learners, predicted, told, judged, strict=True
        ):
            seen = Seen(t, x, aim, float(importance), p, scale, float(importance) * slope)
            if importance > 0.0:  # else no branch matters
                kinks.append(learner.kink(loss, seen))
            learner.learn(seen)
        margins.append(told_apart)
        scales.append([scale for _, scale in predicted])
        values = [value for value, _ in judged]
        losses.append(importance * (values[0] if loss == "softmax" else math.fsum(values)))
    first = learners[0]
    shared = {name: getattr(first, name) for name in first.shared}
    own = {name: np.stack([getattr(l, name) for l in learners], axis=1) for name in first.own}
    totals = {name: np.array([getattr(l, name) for l in learners]) for name in first.totals}
    shape = (len(X), count)
    return Trace(
        np.array(margins).reshape(shape),
        np.array(scales).reshape(shape),
        {**shared, **own},
        totals,
        math.fsum(losses),
        min(kinks),
    )
