"""Oracle of the learner ``auto``: two predictors on standardised inputs, mixed by one number.

B, online Laplace (Newton): a full matrix over the bias, the dense numeric columns and the first
sparse coordinates; a diagonal for the other coordinates. G: AdaGrad on the same inputs.
As ``oracles``: literal, dense, slow; only numpy and math, nothing of streamomd. Names and order of
steps are the recipe's. Decisions where the recipe leaves a choice are marked "Choice".

Importance h > 0 is relative: a constant factor of all of them changes no prediction. h enters
statistics (n, mu, M2, n_i, q_i, ybar, M2y, mse, N, A, S, H) as h equal rows would. n is the sum of
h and replaces t in means and in the squash; t counts rows. What has a unit of its own is in units
of the mean importance n / t: the priors lam, lam0 and lamS, G's pace (eta sqrt(n / N) over the
root of n / t, which is eta sqrt(t / N)), and the lead, where a row counts 2 h / (h + n / t), twice
at most. A row of h = 0 is predicted from the state before it and changes nothing, t included.

From row 1,024 on most rows are light: of little leverage, by the diagonal of A. A light row's
gradient goes to ``pool`` instead of w, and its curvature to A alone, one row in r with r times the
weight from row 8,192 on. Every 8 to 32 rows w takes the pool, w += P pool; at fixed rows ``settle``
computes P anew from A.

The predictor that ``rests`` names learns from 32 rows in 256 while the lead of the other one is 40
nats and more. The importance of these rows counts eight times, for the lead, too; the other rows
are predicted by the other one alone, and leave it and the lead as they are.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Sparse = Mapping[int, float]
NONE: Sparse = {}
SOLVES = [32 * 2**k for k in range(10)] + [48 * 2**k for k in range(9)]


class Linear(NamedTuple):
    """A linear model in raw units, for each learner: bias (C,), dense (C, p), sparse {i: (C,)}."""

    bias: Floats
    dense: Floats
    sparse: dict[int, Floats]

    def margins(self, x: Floats, sparse: Sparse = NONE) -> Floats:
        """Of one row, (C,)."""
        total = self.bias + self.dense @ x
        for i, value in sparse.items():
            total = total + self.sparse.get(i, 0.0) * value
        return total


class Moments(NamedTuple):
    """Weight n, mean mu and sum of squared deviations M2."""

    n: float
    mu: Floats
    M2: Floats

    def plus(self, b: Moments) -> Moments:
        """Of both samples (Chan, Golub & LeVeque 1983)."""
        n = self.n + b.n
        if n == 0.0:
            return self
        d = b.mu - self.mu
        return Moments(n, self.mu + d * b.n / n, self.M2 + b.M2 + d * d * self.n * b.n / n)

    def minus(self, a: Moments) -> Moments:
        """What was added to a."""
        n = self.n - a.n
        if n == 0.0:
            return Moments(0.0, 0.0 * self.mu, 0.0 * self.M2)
        d = (self.mu - a.mu) * self.n / n
        return Moments(n, a.mu + d, self.M2 - a.M2 - d * d * a.n * n / self.n)


class Auto:
    """One learner for square and logistic loss, ``classes`` learners for softmax.

    y: a number; -1 or 1; or 0 … classes - 1. p: dense numeric columns. K: coordinates of the
    matrix at most, bias and columns included. prefer: "recent" (the mixture), "whole" (B)
    or "first" (G). exact: no row is light, as the certificate needs it.
    """

    FROM, LIGHT, THIN, THINNEST = 1024, 0.1, 4096, 8
    OFTEN, SELDOM = 64, 4096
    RUN, TURNS, DECIDED = 32, 8, 40.0

    def __init__(
        self,
        loss: str,
        p: int,
        classes: int = 1,
        *,
        prefer: str = "recent",
        exact: bool = False,
        lam: float = 1.0,
        lam0: float = 0.01,
        lamS: float = 1.0,
        K: int = 64,
        eta: float = 2.0,
        LEAD: float = 50.0,
    ) -> None:
        self.loss, self.p, self.C, self.prefer = loss, p, classes, prefer
        self.exact = exact
        self.lam, self.lam0, self.K, self.eta, self.LEAD = lam, lam0, K, eta, LEAD
        self.lamS = self.prior_sparse = 3.0 * lamS if loss == "square" else lamS
        C, D = self.C, 1 + p
        # shared, numeric j
        self.mu, self.M2 = np.zeros(p), np.zeros(p)
        # the reference of the matrix's coordinates; that of the bias, 0 and 1, never moves
        self.c, self.s = np.zeros(D), np.zeros(D)
        self.s[0] = 1.0
        # shared, sparse i
        self.n_i: dict[int, float] = {}
        self.q: dict[int, float] = {}
        self.slot: dict[int, int] = {}
        # totals
        self.t, self.n, self.next = 0, 0.0, 1
        self.horizon = 0.0  # importance of the first pass, once another one has begun
        self.ybar = self.M2y = self.n_y = self.c_y = self.s_y = self.mse = self.v = 0.0
        self.ymin, self.ymax = math.inf, -math.inf
        # the strengths of the priors now, in the unit of h
        self.lam_now, self.lam0_now, self.N, self.lead = lam, lam0, 0.0, 0.0
        self.hh = 0.0  # sum of h^2: of standard errors
        # B, per learner
        self.w, self.A = np.zeros((C, D)), np.zeros((C, D, D))
        self.P = np.tile(np.diag(1.0 / self.prior(self.lam_now)), (C, 1, 1))
        # steps of light rows that w has not taken yet; 1 / (A_jj + prior_j) when P was computed
        self.pool, self.d = np.zeros((C, D)), np.zeros((C, D))
        self.out_g = self.out_R = 0.0
        self.w_i: dict[int, Floats] = {}
        self.S: dict[int, Floats] = {}
        # curvature since the last REBASE: sum of a, weight, rows; and of all rows
        self.recent_a, self.recent_n, self.recent_t = np.zeros(C), 0.0, 0
        self.sum_a, self.sum_n = np.zeros(C), 0.0
        self.rho = np.ones(C)  # by what A was recalibrated in all: ``merge`` needs it
        # G, per learner
        self.g, self.H = np.zeros((C, D)), np.zeros((C, D))
        self.g_i: dict[int, Floats] = {}
        self.H_i: dict[int, Floats] = {}
        self.rests = ""  # "B" or "G", set from outside
        # the first rows, which are solved again; None once they are no longer stored
        self.solves = loss != "square" and prefer != "first"
        self.first: list[tuple[Floats, Sparse, float, float]] | None = [] if self.solves else None
        # progressive loss: sums of h and of h * loss
        self.weight_sum = self.loss_sum = 0.0

    @property
    def D(self) -> int:
        """Coordinates of the matrix."""
        return len(self.c)

    def prior(self, lam: float) -> Floats:
        """(lam0, lam, …, lam), in the unit of h."""
        return np.r_[self.lam0_now, np.full(self.D - 1, lam)]

    def mean_h(self) -> float:
        """The unit of importances."""
        return self.n / self.t if self.t > 0 else 0.0

    # Passes over rows seen before

    def begin_pass(self) -> None:
        """From the second pass on G and the lead stay as they are, and B predicts."""
        if self.horizon == 0.0:
            self.horizon, self.next = self.n, self.t + 1
        self.first = None
        self.lead = -self.LEAD

    def passes_held(self) -> float:
        """How many passes A has the rows of; the prior of coordinates outside counts as often."""
        return max(self.sum_n / self.horizon, 1.0) if self.horizon > 0.0 else 1.0

    def forget(self) -> float:
        """A, b and S of three passes at most: by what they are multiplied."""
        if self.horizon == 0.0:
            return 1.0
        r = min(3.0 * self.horizon / self.sum_n, 1.0)
        self.sum_n, self.sum_a, self.rho = r * self.sum_n, r * self.sum_a, r * self.rho
        self.S = {i: r * S for i, S in self.S.items()}
        return r

    def following(self) -> int:
        """The row of the next REBASE; in later passes 32 a pass."""
        if self.horizon == 0.0:
            return following(self.t)
        rows = self.horizon / (self.n / self.t)
        return self.t + max(16, math.ceil(rows / 32.0))

    # Row (x, y, importance h)

    def learn(self, x: Floats, sparse: Sparse, y: float, h: float = 1.0) -> Floats:
        """The row's progressive prediction, (C,): margins, or the number predicted."""
        if h == 0.0:
            return self.shown(self.export().margins(x, sparse))
        # Choice: a row whose value is 0 does not hold the coordinate.
        sparse = {i: value for i, value in sorted(sparse.items()) if value != 0.0}
        before = self.n
        self.observe(x, h)
        due = self.t >= self.next
        if due:
            self.rebase()
            self.next = self.following()
        solved = self.solves and self.t in SOLVES
        if not due and (self.refreshes() or solved):
            self.settle()
        if solved:
            self.solve_first_rows()
        z = self.standardise(x)
        if np.abs(z).max() > max(1e6, math.sqrt(before / h)):
            # Choice: a column has left its reference, see ``squash``. Powers of z would overflow.
            self.rebase()
            self.next = self.following()
            z = self.standardise(x)
        self.squash(z, before / h)
        for i, value in sparse.items():
            self.squash_sparse(i, value, h)
            self.see(i, value, h)
        z = np.r_[z, np.zeros(self.D - len(z))]
        rest = {}
        for i, value in sparse.items():
            if i in self.slot:
                z[self.slot[i]] = value / self.s[self.slot[i]]
            else:
                rest[i] = value

        times, times_G = self.turn("B"), self.turn("G")
        light = self.is_light(z, times * h)
        u = self.d * z if light else self.P @ z  # (C, D)
        m = self.w @ z + sum((self.w_i[i] * value for i, value in rest.items()), np.zeros(self.C))
        chi = u @ z
        for i, value in rest.items():
            chi = chi + value * value / self.precision(i)
        g = self.g @ z0(z, self.p)
        for i, value in sparse.items():
            g = g + self.g_i[i] * value
        wB = self.share_of_B() if times > 0 else 0.0
        if times_G == 0:
            wB = 1.0
        shown = self.shown(self.c_y + wB * m + (1.0 - wB) * g)
        self.weight_sum += h
        self.loss_sum += h * self.row_loss(shown, y)

        if self.loss == "square" and self.t == 1:
            self.c_y = y  # the first label is the reference: the residual is 0
        if times > 0:
            self.sense_prior(rest, m, y, h)
            if times_G > 0:
                self.mix(m, g, y, h)
            self.learn_B(z, rest, u, m, chi, y, times * h, light)
        if times_G > 0:
            self.learn_G(z, sparse, g, y, times_G * h)
        if self.first is not None:
            self.first.append((x, sparse, y, h))
        if self.loss == "square":
            self.n_y += h
            d = y - self.ybar
            self.ybar += d * (h / self.n_y)
            self.M2y += h * d * (y - self.ybar)
            self.ymin, self.ymax = min(self.ymin, y), max(self.ymax, y)
        return shown

    def observe(self, x: Floats, h: float) -> None:
        """Welford's mean and sum of squares (West 1979 for weights), before the prediction."""
        self.t += 1
        self.n += h
        self.hh += h * h
        d = x - self.mu
        self.mu = self.mu + d * (h / self.n)  # h / n = 1 in the first row: its mean is exact
        self.M2 = self.M2 + h * d * (x - self.mu)

    def standardise(self, x: Floats) -> Floats:
        """z of the bias and of the numeric columns; zeros are visited, too."""
        z = np.ones(1 + self.p)
        for j in range(1, 1 + self.p):
            d = x[j - 1] - self.c[j]
            if self.s[j] == 0.0 and d != 0.0:
                self.s[j] = abs(d)  # constant until now: z was 0, so row j of A is 0
            z[j] = d / self.s[j] if self.s[j] > 0.0 else 0.0
        return z

    def squash(self, z: Floats, others: float) -> None:
        """G only: of n + h copies, h of them equal, none is farther from the mean than
        sqrt(n / h) standard deviations (Samuelson): a larger z says that s is too small.

        Choice: sqrt(n / h) for the recipe's sqrt(t - 1), for it depends on ratios of importances
        only. ``others`` is n / h. H stays.
        """
        for j in range(1, 1 + self.p):
            if abs(z[j]) > math.sqrt(others):
                self.g[:, j] *= math.sqrt(others) / abs(z[j])

    def squash_sparse(self, i: int, x: float, h: float) -> None:
        """G only: a row whose x^2 is more than all others' before says that q is too small.

        Choice: the same as ``squash`` for sparse coordinates, with which it is |z| > sqrt(n_i / h)
        over q. Without it a first value near 0 leaves a weight far too large.
        """
        total = self.n_i.get(i, 0.0) * self.q.get(i, 0.0)
        if 0.0 < total < h * x * x:
            self.g_i[i] = self.g_i[i] * (math.sqrt(total / h) / abs(x))

    def see(self, i: int, x: float, h: float) -> None:
        """A sparse coordinate of the row: its slot at first sight, its mean x^2 over non-zeros."""
        if i not in self.n_i:
            self.n_i[i] = self.q[i] = 0.0
            self.g_i[i], self.H_i[i] = np.zeros(self.C), np.zeros(self.C)
            if self.D < self.K:
                self.open_slot(i, abs(x))
            else:
                self.w_i[i], self.S[i] = np.zeros(self.C), np.zeros(self.C)
        self.n_i[i] += h
        self.q[i] += (x * x - self.q[i]) * (h / self.n_i[i])

    def open_slot(self, i: int, scale: float) -> None:
        """One more coordinate of the matrix, uncentred: P_jj = 1 / lam_now, A and w are 0."""
        self.slot[i] = self.D
        self.c, self.s = np.r_[self.c, 0.0], np.r_[self.s, scale]
        self.w = np.pad(self.w, ((0, 0), (0, 1)))
        self.A = np.pad(self.A, ((0, 0), (0, 1), (0, 1)))
        self.P = np.pad(self.P, ((0, 0), (0, 1), (0, 1)))
        self.P[:, -1, -1] = 1.0 / self.lam_now
        self.pool = np.pad(self.pool, ((0, 0), (0, 1)))
        self.d = np.pad(self.d, ((0, 0), (0, 1)), constant_values=1.0 / self.lam_now)
        # G has a weight g_i of each sparse coordinate in raw units, slot or not.
        self.g, self.H = np.pad(self.g, ((0, 0), (0, 1))), np.pad(self.H, ((0, 0), (0, 1)))

    def precision(self, i: int) -> Floats:
        """D_i = lamS q_i + S_i; lamS counts once for each pass that S holds."""
        return self.lamS * self.mean_h() * self.passes_held() * self.q[i] + self.S[i]

    def share_of_B(self) -> float:
        """wB = 1 / (1 + exp(lead)); a positive lead says that G's losses are smaller."""
        if self.prefer == "first":
            return 0.0
        return 1.0 if self.prefer == "whole" else 1.0 / (1.0 + math.exp(self.lead))

    def mix(self, m: Floats, g: Floats, y: float, h: float) -> None:
        """mse, v and the lead, from the losses of B and G that are clipped (square) or smoothed.

        Choice: mse and v are means over all rows, the first one's residual of 0 included; mse is
        of these losses, too, so that an early spike does not stay in lam; v has this row's loss
        in it when k is computed, and k = 0 while v = 0.
        """
        loss_m = self.row_loss(self.shown(self.c_y + m), y)
        loss_g = self.row_loss(self.shown(self.c_y + g), y)
        k = 2.0 * h / (h + self.mean_h())
        if self.loss == "square":
            self.mse += (loss_m - self.mse) * h / self.n
            self.v += (min(loss_m, loss_g) - self.v) * k / self.t
            k = k / (2.0 * self.v) if self.v > 0.0 else 0.0
        else:  # Choice: recent mean losses of B and of G, which say who may rest
            self.mse += (loss_m - self.mse) * k / min(self.t, 8192)
            self.v += (loss_g - self.v) * k / min(self.t, 8192)
        if self.prefer == "recent" and self.horizon == 0.0:
            lead = self.lead + k * max(self.turn("B"), self.turn("G")) * (loss_m - loss_g)
            self.lead = min(max(lead, -self.LEAD), self.LEAD)

    def learn_B(
        self, z: Floats, rest: Sparse, u: Floats, m: Floats, chi: Floats, y: float, h: float,
        light: bool,
    ) -> None:  # fmt: skip
        """The implicit step, and the curvature a of the secant."""
        sg, a = self.solve(m, chi, y, h)
        steepest = 0.0
        for k in range(self.C):
            if light:
                self.pool[k] += sg[k] * z
            else:
                self.w[k] += sg[k] * u[k]
            for at in self.groups():  # Choice: each P by its own chi, so that P (A + prior) = I
                z_g, u_g = z[at], u[k, at]
                if light:
                    self.A[k, at, at] += self.entering() * a[k] * np.outer(z_g, z_g)
                    continue
                steepest = max(steepest, a[k] * (u_g @ z_g))
                self.P[k, at, at] -= a[k] / (1.0 + a[k] * (u_g @ z_g)) * np.outer(u_g, u_g)
                self.A[k, at, at] += a[k] * np.outer(z_g, z_g)
                self.d[k, at] = self.d[k, at] / (1.0 + a[k] * z_g**2 * self.d[k, at])
        self.learn_rest(rest, sg, a, h)
        self.recent_a, self.sum_a = self.recent_a + a, self.sum_a + a
        self.recent_n, self.sum_n = self.recent_n + h, self.sum_n + h
        self.recent_t += 1
        if self.take_pools() or steepest > 1e3:
            self.settle()

    def groups(self) -> list[slice]:
        """Coordinates whose rows of A and P are not zero beyond them: here all are one."""
        return [slice(0, self.D)]

    def turn(self, predictor: str) -> int:
        """By what a predictor multiplies the row's importance."""
        decided = self.lead if predictor == "B" else -self.lead
        if self.rests != predictor or decided < self.DECIDED:
            return 1
        return self.TURNS if self.t // self.RUN % self.TURNS == 0 else 0

    # Light rows

    def is_light(self, z: Floats, h: float) -> bool:
        """Whether the row moves its own margin by little, by the diagonal, for every learner."""
        if self.exact or self.t < self.FROM:
            return False
        return bool(np.all(h * (self.d @ z**2) < self.LIGHT))

    def entering(self) -> float:
        """How often a light row counts in A: of r rows one, chosen by its number, r times."""
        if self.t < 2 * self.THIN:
            return 1.0
        r = min(self.THINNEST, self.t // self.THIN)
        return float(r) if (self.t * 2654435761) % 2**32 < 2**32 / r else 0.0

    def refreshes(self) -> bool:
        """32 times an octave, but at least 64 and at most 4,096 rows apart."""
        if self.t < self.FROM:
            return False
        spacing = min(max(2 ** (int(math.log2(self.t)) - 5), self.OFTEN), self.SELDOM)
        return self.t % spacing == 0

    def take_pools(self) -> bool:
        """w += P pool, every 8, 16 or 32 rows; whether a pool is too large for this P."""
        most = self.mean_h() * (self.mse if self.loss == "square" else 1.0)
        if self.t % (8 if self.t < 4096 else 16 if self.t < 16384 else 32) != 0:
            return False
        large = False
        for k in range(self.C):
            u = self.P[k] @ self.pool[k]
            if self.pool[k] @ u > most:
                large = True
            else:
                self.w[k], self.pool[k] = self.w[k] + u, 0.0 * u
        return large

    def settle(self) -> None:
        """P = (A + prior)^-1, with which w takes the pools."""
        prior = self.prior(self.lam_now)
        for k in range(self.C):
            self.P[k] = self.inverse(self.A[k] + np.diag(prior))
            self.w[k] = self.w[k] + self.P[k] @ self.pool[k]
        self.pool = 0.0 * self.pool
        self.d = 1.0 / (np.diagonal(self.A, axis1=1, axis2=2) + prior)

    def learn_rest(self, rest: Sparse, sg: Floats, a: Floats, h: float) -> None:
        """Of coordinates outside the matrix. In later passes their prior pulls them to 0: of a
        pass n_i / passes copies hold i, and the pull of h of them is their part of it."""
        for i, x in rest.items():
            D, pull = self.precision(i), 0.0
            if self.horizon > 0.0:
                of_pass = self.n_i[i] / (self.n / self.horizon)
                pull = self.pull() * self.mean_h() * self.q[i] * min(h / of_pass, 1.0)
            self.w_i[i] = self.w_i[i] + (sg * x - pull * self.w_i[i]) / D
            self.S[i] = self.S[i] + a * x * x

    def pull(self) -> float:
        """Over q_i, the prior that pulls in a later pass."""
        return self.lamS * {"square": 1.0, "logistic": 1.0 / 3.0, "softmax": 0.0}[self.loss]

    def learn_G(self, z: Floats, sparse: Sparse, g: Floats, y: float, h: float) -> None:
        """AdaGrad, implicit. Choice: with prefer = "whole" it learns nothing; H grows by h (e z)^2,
        as h copies would; it grows even where the pace is 0 (s_y is not known yet); 0/0 = 0."""
        if self.prefer == "whole" or (self.prefer == "recent" and self.horizon > 0.0):
            return
        zz = z0(z, self.p)
        z_i = {i: x / math.sqrt(self.q[i]) for i, x in sparse.items()}
        self.N += h * (zz @ zz + sum(value * value for value in z_i.values()))
        pace = self.eta * math.sqrt(self.t / self.N)
        if self.loss == "square":
            pace *= self.s_y
        e = -self.slope(g, y)
        self.H = self.H + h * np.outer(e, zz) ** 2
        chiG = pace * ratio(zz * zz, np.sqrt(self.H)).sum(axis=1)
        for i, x in sparse.items():
            self.H_i[i] = self.H_i[i] + h * (e * x) ** 2
            chiG = chiG + pace * ratio(x * x, math.sqrt(self.q[i]) * np.sqrt(self.H_i[i]))
        sg, _ = self.solve(g, chiG, y, h)
        self.g = self.g + pace * sg[:, np.newaxis] * ratio(zz, np.sqrt(self.H))
        for i, x in sparse.items():
            size = math.sqrt(self.q[i]) * np.sqrt(self.H_i[i])  # sqrt(q H) would overflow
            self.g_i[i] = self.g_i[i] + pace * sg * ratio(x, size)

    # The first rows again

    def solve_first_rows(self) -> None:
        """Before row t is predicted: w of the block by Newton's method over all rows before it.

        The recipe's start-up solve, for log losses. Choice: at rows 32, 48, 64, … 16,384 instead
        of up to 300; then the rows are dropped, or when most of
        their values are outside of the block. Coordinates outside of it are an offset.
        One class after the other steps along P g, P of the weights before, at most 16 times, until
        no margin moves by 1e-4. A step b d cannot overshoot: the third derivative is at most the
        second, so l(w + b d) <= l - b g'd + d'Hd (exp(b r) - 1 - b r) / r^2, r = max abs(z'd),
        which is least at b = log(1 + r g'd / d'Hd) / r. Then A is of the weights found, and S is
        scaled as by a recalibration.
        """
        if self.first is None:
            return
        held = [i for _, sparse, _, _ in self.first for i in sparse]
        numbers = sum(np.count_nonzero(x) for x, _, _, _ in self.first)
        if 2 * sum(i not in self.slot for i in held) > len(held) + numbers:
            self.first = None  # most of it is outside of the matrix
            return
        Z = np.zeros((len(self.first), self.D), self.c.dtype)
        M = np.zeros((len(self.first), self.C), self.c.dtype)
        for i, (x, sparse, _, _) in enumerate(self.first):
            Z[i, : 1 + self.p] = np.r_[
                1.0, ratio(x - self.c[1 : 1 + self.p], self.s[1 : 1 + self.p])
            ]
            for j, value in sparse.items():
                if j in self.slot:
                    Z[i, self.slot[j]] = value / self.s[self.slot[j]]
                else:
                    M[i] += self.w_i[j] * value
        M += Z @ self.w.T
        h = np.array([h for _, _, _, h in self.first])
        goals = np.array(
            [y > 0.0 if self.loss == "logistic" else int(y) for _, _, y, _ in self.first]
        )
        prior = self.prior(self.lam_now)

        def curvature(k: int) -> tuple[Floats, Floats]:
            """Of class k: h p (1 - p) and h (goal - p)."""
            if self.loss == "logistic":
                p, goal = np.array([sigmoid(m) for m in M[:, 0]]), goals
            else:
                p, goal = np.array([softmax(m)[k] for m in M]), goals == k
            return h * p * (1.0 - p), h * (goal - p)

        def solve_A(k: int, last: bool = False) -> float:
            a, _ = curvature(k)
            if last and self.loss == "softmax":
                a = np.array([h * curvatures(softmax(m))[k] for h, m in zip(h, M, strict=True)])
            self.A[k] = Z.T @ (a[:, np.newaxis] * Z)
            self.P[k] = self.inverse(self.A[k] + np.diag(prior))
            return a.sum()

        for k in range(self.C):
            solve_A(k)
        for _ in range(16):
            moved = 0.0
            for k in range(self.C):
                a, off = curvature(k)
                g = Z.T @ off - prior * self.w[k]
                d = self.P[k] @ g
                gain, bend, r = g @ d, a @ (Z @ d) ** 2 + prior @ d**2, np.abs(Z @ d).max()
                b = np.log1p(r * gain / bend) / r if r > 0.0 and gain > 0.0 and bend > 0.0 else 0.0
                self.w[k], M[:, k] = self.w[k] + b * d, M[:, k] + b * (Z @ d)
                moved = max(moved, b * r)
            if moved < 1e-4:
                break
        found = np.array([solve_A(k, last=True) for k in range(self.C)])
        self.d = 1.0 / (np.diagonal(self.A, axis1=1, axis2=2) + prior)
        by = np.clip(ratio(found, self.sum_a, 1.0), 0.1, 1.0)
        self.S = {i: S * by for i, S in self.S.items()}
        self.sum_a = found
        self.recent_a, self.recent_n, self.recent_t = np.zeros(self.C), 0.0, 0
        if self.t >= 16384:
            self.first = None

    # Losses

    def slope(self, m: Floats, y: float) -> Floats:
        """l'(m); of the square loss, (y - c_y - m)^2 / 2."""
        if self.loss == "square":
            return m - (y - self.c_y)
        if self.loss == "logistic":
            return np.array([-y * sigmoid(-y * m[0])])
        return softmax(m) - one_hot(y, self.C)

    def solve(self, m: Floats, chi: Floats, y: float, h: float) -> tuple[Floats, Floats]:
        """sg = -h l'(m + chi sg) and a, (C,) each."""
        if self.loss == "square":
            return -h * self.slope(m, y) / (1.0 + h * chi), np.full(1, h)
        if self.loss == "logistic":
            size, a = solve_logistic(y * m[0], h * chi[0])
            return np.array([y * h * size]), np.array([h * a])
        s = solve_softmax(m, chi, int(y), h)
        return s, h * (curvatures(softmax(m)) + curvatures(softmax(m + chi * s))) / 2.0

    def shown(self, margins: Floats) -> Floats:
        """The progressive prediction: square loss clips it to [ymin - R, ymax + R]."""
        if self.loss != "square" or self.n_y == 0.0:
            return margins
        R = self.ymax - self.ymin
        return np.clip(margins, self.ymin - R, self.ymax + R)

    def probabilities(self, margins: Floats) -> Floats:
        """(1 - e) p + e / C with e = 1 / (t + 2): of -1 and 1, or of each class.

        Choice: t counts the rows learned and, while a row is learned, that row.
        """
        e = 1.0 / (self.t + 2.0)
        if self.loss == "logistic":
            p = np.array([sigmoid(-margins[0]), sigmoid(margins[0])])
        else:
            p = softmax(margins)
        return (1.0 - e) * p + e / len(p)

    def row_loss(self, prediction: Floats, y: float) -> float:
        """What the metrics and the lead count of a row: squared error, or log loss."""
        if self.loss == "square":
            return float((y - prediction[0]) ** 2)
        at = int(y > 0.0) if self.loss == "logistic" else int(y)
        return -math.log(self.probabilities(prediction)[at])

    # REBASE (c, s, c_y) -> (c', s', c_y')

    def rebase(self) -> None:
        """The reference moves to the mean and standard deviation of the rows observed."""
        self.recalibrate()
        retained = self.forget()
        # Choice: s_y' is of the labels seen, one fewer than the rows observed.
        s_y = math.sqrt(self.M2y / self.n_y) if self.n_y > 0.0 else 0.0
        lam, lam0 = self.next_lam(s_y), self.lam0 * self.mean_h()
        self.change_reference(self.ybar, s_y, lam, lam0, retained)
        self.follow_predictions()

    # The prior of coordinates outside the matrix

    def sense_prior(self, rest: Sparse, m: Floats, y: float, h: float) -> None:
        """Along log lamS: the gradient of -loss at the prediction of B, and its curvature.

        w_i = b_i / D_i moves by -w_i lamS q_i / D_i. The square loss counts in units of its mean
        error so far. Choice: of the first 16,384 rows each, later ever fewer, by a hash.
        """
        stages = (16_384, 65_536, 131_072, 262_144)
        period = 2 ** sum(self.t > stage for stage in stages)
        if self.horizon > 0.0 or (self.t * 2_654_435_761 % 2**32) * period >= 2**32:
            return
        k, prior = 2.0 * h / (h + self.mean_h()) * period, self.lamS * self.mean_h()
        moved = np.zeros(self.C)
        for i, x in rest.items():
            moved = moved - x * self.w_i[i] * prior * self.q[i] / self.precision(i)
        slope = self.slope(self.shown(self.c_y + m) - self.c_y, y)
        bend = np.abs(slope) * (1.0 - np.abs(slope))
        if self.loss == "square":
            if self.mse == 0.0:
                return
            k, bend = k / self.mse, np.ones(1)
        self.out_g += k * float(np.sum(-slope * moved))
        self.out_R += k * float(np.sum(bend * moved * moved))

    def follow_predictions(self) -> None:
        """A Newton step of log lamS, from 5 rows of curvature 1 that say it stays; w_i = b_i / D_i.

        Choice: after the rest of the change, with the S that it recalibrated.
        """
        if self.horizon > 0.0:
            return
        step = float(np.clip(self.out_g / (self.out_R + 5.0), -math.log(4.0), math.log(4.0)))
        self.out_g = self.out_R = 0.0
        D = {i: self.precision(i) for i in self.S}
        one = self.prior_sparse
        most = 100.0 if self.t >= 1000 else 1.0
        self.lamS = one * float(np.clip(self.lamS / one * math.exp(step), 1.0, most))
        self.w_i = {i: self.w_i[i] * (D[i] / self.precision(i)) for i in D}

    def recalibrate(self) -> None:
        """A overstates the curvature of early rows: scale it to that of the recent ones.

        Choice: means are over weights; both sums end with the row before this one. In later passes
        the recent rows are a quarter pass at least.
        """
        if self.loss == "square" or self.recent_t < 8 or self.recent_n < 0.25 * self.horizon:
            return
        abar_w, abar_A = self.recent_a / self.recent_n, self.sum_a / self.sum_n
        r = np.clip(ratio(abar_w, abar_A, 1.0), 0.1, 1.0)
        self.A = self.A * r[:, np.newaxis, np.newaxis]
        self.S = {i: S * r for i, S in self.S.items()}
        self.sum_a, self.rho = self.sum_a * r, self.rho * r
        self.recent_a, self.recent_n, self.recent_t = np.zeros(self.C), 0.0, 0

    def next_lam(self, s_y: float) -> float:
        """lam', from the noise (square) or the evidence (classification, from 100 rows on).

        Choice: the evidence is that of the state before the REBASE, over coordinates with a scale;
        its bounds and its 5 are of lam = 1, and scale with lam. lam counts once for each pass that
        A holds; with softmax once in all, as it was in the first pass. With two classes lam may
        rise to ten times its value from 1,000 rows on.
        """
        held = self.passes_held() * self.mean_h()
        if self.loss == "square":
            by = float(np.clip(self.mse / s_y**2, 1e-6, 1.0)) if s_y > 0 else 1.0
            return held * self.lam * by
        if self.loss == "softmax" and self.horizon > 0.0:
            return self.lam_now
        if self.t < 100:
            return held * self.lam
        scaled = self.s[1:] > 0.0
        diagonal = np.diagonal(self.P, axis1=1, axis2=2)[:, 1:][:, scaled]
        known = float(np.sum(1.0 - self.lam_now * diagonal))
        found = (known + 5.0) / (np.sum(self.w[:, 1:] ** 2) + 5.0 / self.lam)
        most = 10.0 if self.loss == "logistic" and self.t >= 1000 else 1.0
        return held * float(np.clip(found, 1e-3 * self.lam, most * self.lam))

    def change_reference(
        self, c_y: float, s_y: float, lam: float, lam0: float, retained: float = 1.0
    ) -> None:
        """(c, s, c_y) -> (mu, sqrt(M2 / n), c_y'); of slots, (0, sqrt(q)). retained: of A and b."""
        c, s = self.next_reference()
        found = [self.information(k, c, s, c_y) for k in range(self.C)]
        informations = [(retained * A, retained * b) for A, b in found]
        self.change_reference_of_G(c, s, self.c_y - c_y)
        self.c, self.s, self.c_y, self.s_y = c, s, c_y, s_y
        self.lam_now, self.lam0_now = lam, lam0
        self.solve_B(informations)

    def next_reference(self) -> tuple[Floats, Floats]:
        """(c', s')."""
        c, s = np.r_[0.0, self.mu, np.zeros(len(self.slot))], np.ones(self.D)
        s[1 : 1 + self.p] = np.sqrt(self.M2 / self.n)
        for i, j in self.slot.items():
            s[j] = math.sqrt(self.q[i])
        return c, np.where(s > 0.0, s, self.s)  # s'_j = 0 < s_j: keep s_j

    def information(
        self, k: int, c: Floats, s: Floats, c_y: float, share: float = 1.0
    ) -> tuple[Floats, Floats]:
        """(A', b') in another reference, b = A w + prior * w + pool; of ``share`` of A, if not
        all."""
        T = transformation(self.c, self.s, c, s)
        b = share * (self.A[k] @ self.w[k]) + self.prior(self.lam_now) * self.w[k] + self.pool[k]
        A = share * (T @ self.A[k] @ T.T)
        return A, T @ b + A[:, 0] * (self.c_y - c_y)

    def solve_B(self, informations: Sequence[tuple[Floats, Floats]]) -> None:
        """P = (A + prior)^-1 and w = P b."""
        for k, (A, b) in enumerate(informations):
            self.A[k], self.P[k] = A, self.inverse(A + np.diag(self.prior(self.lam_now)))
            self.w[k] = self.P[k] @ b
        self.pool = np.zeros_like(self.w)
        self.d = 1.0 / (np.diagonal(self.A, axis1=1, axis2=2) + self.prior(self.lam_now))

    def inverse(self, A: Floats) -> Floats:
        return np.linalg.inv(A)

    def change_reference_of_G(self, c: Floats, s: Floats, shift: float) -> None:
        """The predictions stay, but for columns whose scale grows: these are squashed."""
        for j in range(1, 1 + self.p):
            if self.s[j] > 0.0:
                self.g[:, j] *= min(1.0, s[j] / self.s[j])
                self.g[:, 0] += self.g[:, j] * (c[j] - self.c[j]) / s[j]
                self.H[:, j] *= (self.s[j] / s[j]) ** 2
        self.g[:, 0] += shift

    def export(self) -> Linear:
        """One linear model in raw units: W_j = wB w_j / s_j + wG g_j / s_j."""
        wB = self.share_of_B()
        inverse = ratio(np.ones(self.D), self.s)
        B, G = wB * self.w * inverse, (1.0 - wB) * self.g * inverse
        W = B + G
        bias = self.c_y + W[:, 0] - W[:, 1:] @ self.c[1:]
        sparse = {i: (1.0 - wB) * g for i, g in self.g_i.items()}
        for i in sparse:
            sparse[i] = sparse[i] + (B[:, self.slot[i]] if i in self.slot else wB * self.w_i[i])
        return Linear(bias, W[:, 1 : 1 + self.p], sparse)

    def part(self) -> Auto:
        """A copy to be trained on other rows and merged: it opens no slots, stores no rows, and its
        rho is 1."""
        part = copy.deepcopy(self)
        part.K, part.rho, part.first = part.D, np.ones(self.C), None
        return part


def merge(start: Auto, parts: Sequence[Auto]) -> Auto:
    """One state of several that were trained from ``start.part()``, each on rows of its own.

    What every part has added to the common start adds up. The recipe adds A and b in raw
    coordinates; here every state moves to the merged reference first, which is the same up to the
    invertible map U and does not cancel digits where means are large. Choice: G's weights are means
    by what each part has added to H. Choice: the result is again a part of the same start, and
    merging parts in pairs is merging them all, but for the bound on the lead. So means are by what
    each part has learned, and G, whose coordinates are averaged one by one, moves without a squash
    and has its bias averaged at the start's reference.
    """
    whole = copy.deepcopy(start)
    whole.first = None
    for name in ("t", "n", "hh", "N", "lead", "n_y", "sum_n"):
        setattr(whole, name, grown(name, start, parts))
    whole.lead = min(max(whole.lead, -whole.LEAD), whole.LEAD)
    merge_recent(whole, start, parts)
    whole.weight_sum = grown("weight_sum", start, parts)
    whole.loss_sum = grown("loss_sum", start, parts)
    merge_statistics(whole, start, parts)
    whole.c, whole.s = whole.next_reference()
    whole.c_y = whole.ybar
    whole.s_y = math.sqrt(whole.M2y / whole.n_y) if whole.n_y > 0.0 else 0.0
    # Choice: the evidence of the parts, for there is none of the whole before it is solved.
    squared = whole.loss == "square"
    shares = shares_of(start, parts)
    means = sum(by * part.lam_now for by, part in zip(shares, parts, strict=True))
    whole.lam_now = whole.next_lam(whole.s_y) if squared else means
    whole.lam0_now = whole.lam0 * whole.mean_h()
    whole.out_g = whole.out_R = 0.0
    whole.lamS = sum(by * part.lamS for by, part in zip(shares, parts, strict=True))
    rhos = zip(shares, parts, strict=True)
    whole.rho = sum((by * part.rho for by, part in rhos), np.zeros(whole.C))
    merge_B(whole, start, parts)
    merge_G(whole, start, parts)
    return whole


def shares_of(start: Auto, parts: Sequence[Auto]) -> list[float]:
    """Of the weight that all parts have learned; of none, equal ones."""
    total = sum(part.n - start.n for part in parts)
    return [(part.n - start.n) / total if total > 0.0 else 1.0 / len(parts) for part in parts]


def grown(name: str, start: Auto, parts: Sequence[Auto]) -> float:
    """A total that adds up."""
    first = getattr(start, name)
    return first + sum(getattr(part, name) - first for part in parts)


def merge_recent(whole: Auto, start: Auto, parts: Sequence[Auto]) -> None:
    """Choice: REBASE is due at the latest of the parts' own; the first row after the merge may be
    beyond it. A part that was recalibrated has none of the start's in its recent sums, and so
    counts fewer rows there than it has learned."""
    whole.next = max(part.next for part in parts)
    alone = [part.recent_t < start.recent_t + part.t - start.t for part in parts]
    for name in ("recent_a", "recent_n", "recent_t"):
        first = getattr(start, name)
        total = first * (not any(alone))
        for part, anew in zip(parts, alone, strict=True):
            total = total + getattr(part, name) - first * (not anew)
        setattr(whole, name, total)


def merge_statistics(whole: Auto, start: Auto, parts: Sequence[Auto]) -> None:
    """Means and sums of squares by Chan's formula, means by weight, extremes."""
    x = [Moments(one.n, one.mu, one.M2) for one in (start, *parts)]
    y = [Moments(one.n_y, np.array(one.ybar), np.array(one.M2y)) for one in (start, *parts)]
    _, whole.mu, whole.M2 = joined(x)
    _, ybar, M2y = joined(y)
    whole.ybar, whole.M2y = float(ybar), float(M2y)
    for name in ("mse", "v"):
        first = start.n * getattr(start, name)
        total = first + sum(part.n * getattr(part, name) - first for part in parts)
        setattr(whole, name, total / whole.n if whole.n > 0.0 else 0.0)
    whole.ymin = min(part.ymin for part in parts)
    whole.ymax = max(part.ymax for part in parts)
    for i in sorted({i for part in parts for i in part.n_i}):
        n = [one.n_i.get(i, 0.0) for one in (start, *parts)]
        nq = [one.n_i.get(i, 0.0) * one.q.get(i, 0.0) for one in (start, *parts)]
        whole.n_i[i] = n[0] + sum(part - n[0] for part in n[1:])
        whole.q[i] = (nq[0] + sum(part - nq[0] for part in nq[1:])) / whole.n_i[i]


def joined(moments: Sequence[Moments]) -> Moments:
    """Of the start, the first, and of what each other one has added to it."""
    whole = start = moments[0]
    for part in moments[1:]:
        whole = whole.plus(part.minus(start))
    return whole


def merge_B(whole: Auto, start: Auto, parts: Sequence[Auto]) -> None:
    """A and b add up, in the merged reference.

    Choice: a part that was recalibrated has only rho A_0 of the start's A left; its rho A_0, not
    A_0, is subtracted, or the sum could lose its positive definiteness. Of the start, the mean
    rho remains. Of the other coordinates b = D w adds up, too: a mean of the parts' w, weighted by
    D, counts the prior once for each part, and held-out loss on text grows with every round.
    """
    none, rho = np.zeros(whole.C), whole.rho
    informations = []
    for k in range(whole.C):
        A, b = start.information(k, whole.c, whole.s, whole.c_y, rho[k])
        for part in parts:
            A_0, b_0 = start.information(k, whole.c, whole.s, whole.c_y, part.rho[k])
            A_k, b_k = part.information(k, whole.c, whole.s, whole.c_y)
            A, b = A + (A_k - A_0), b + (b_k - b_0)
        informations.append((A, b))
    whole.sum_a = rho * start.sum_a
    whole.sum_a += sum((part.sum_a - part.rho * start.sum_a for part in parts), none)
    whole.solve_B(informations)
    for i in sorted({i for part in parts for i in part.S}):
        S_0, q_0, w_0 = start.S.get(i, none), start.q.get(i, 0.0), start.w_i.get(i, none)
        S = rho * S_0
        b = (start.lamS * start.mean_h() * q_0 + S) * w_0
        for part in (one for one in parts if i in one.S):
            D_0 = start.lamS * start.mean_h() * q_0 + part.rho * S_0
            S = S + part.S[i] - part.rho * S_0
            b = b + part.precision(i) * part.w_i[i] - D_0 * w_0
        whole.S[i], whole.w_i[i] = S, b / (whole.lamS * whole.mean_h() * whole.q[i] + S)


def merge_G(whole: Auto, start: Auto, parts: Sequence[Auto]) -> None:
    """H adds up; g is the mean by the growth of H, coordinate by coordinate."""
    shares, c_0 = shares_of(start, parts), np.r_[start.c, np.zeros(whole.D - start.D)]
    first, *others = [at_reference(one, c_0, whole.s, start.c_y) for one in (start, *parts)]
    g, whole.H = mean_by_growth(first[1], others, shares)
    moved = g * ratio(whole.c - c_0, whole.s)
    whole.g = g.copy()
    whole.g[:, 0] += moved.sum(axis=1) + start.c_y - whole.c_y
    none = np.zeros(whole.C)
    for i in sorted({i for part in parts for i in part.H_i}):
        pairs = [(part.g_i.get(i, none), part.H_i.get(i, none)) for part in parts]
        whole.g_i[i], whole.H_i[i] = mean_by_growth(start.H_i.get(i, none), pairs, shares)


def at_reference(one: Auto, c: Floats, s: Floats, c_y: float) -> tuple[Floats, Floats]:
    """(g, H) in another reference; the predictions stay."""
    g, H = one.g * ratio(s, one.s), one.H * ratio(one.s, s) ** 2
    moved = g * ratio(c - one.c, s)
    g[:, 0] += moved.sum(axis=1) + one.c_y - c_y
    return g, H


def mean_by_growth(
    H_0: Floats, parts: Sequence[tuple[Floats, Floats]], shares: Sequence[float]
) -> tuple[Floats, Floats]:
    """(g, H) of all parts; where H has not grown, the mean by rows."""
    growth = [np.maximum(H_k - H_0, 0.0) for _, H_k in parts]
    total, mean = sum(growth, np.zeros_like(H_0)), np.zeros_like(H_0)
    for (g, _), by, share in zip(parts, growth, shares, strict=True):
        mean = mean + g * ratio(by, total, share)
    return mean, H_0 + total


# Numbers


def following(t: int) -> int:
    """The row of the next REBASE."""
    if t < 16:
        return t + 1
    return math.ceil(1.25 * t) if t < 1000 else 2 * t


def transformation(c: Floats, s: Floats, c_new: Floats, s_new: Floats) -> Floats:
    """T: z' = T z, with al on the diagonal and be in the column of the bias.

    A coordinate without a new scale has had one value only: its z and z' are 0.
    """
    al, be = ratio(s, s_new), ratio(c - c_new, s_new)
    T = np.diag(al)
    T[1:, 0] = be[1:]
    return T


def z0(z: Floats, p: int) -> Floats:
    """z of G: slots are none of its coordinates, it has their g_i."""
    return np.r_[z[: 1 + p], np.zeros(len(z) - 1 - p)]


def ratio(a: object, b: Floats, where_zero: float = 0.0) -> Floats:
    """a / b; ``where_zero`` where b is 0."""
    numerator, divides = np.asarray(a), b != 0.0
    return np.where(divides, numerator / np.where(divides, b, 1.0), where_zero)


def sigmoid(u: float) -> float:
    """1 / (1 + exp(-u)), without overflow."""
    x = math.exp(-abs(u))
    return (1.0 if u >= 0.0 else x) / (1.0 + x)


def softmax(m: Floats) -> Floats:
    p = np.exp(m - m.max())
    return p / p.sum()


def curvatures(p: Floats) -> Floats:
    """Of the classes, each for itself: diag H, H = diag(p) - p p', times |H|^2 / |diag H|^2, for
    the margins move together. 2 p (1 - p) for two classes."""
    H = np.diag(p) - np.outer(p, p)
    own = p * np.array([np.delete(p, k).sum() for k in range(len(p))])  # p (1 - p)
    squares = (own**2).sum()
    size = (H**2).sum() - (np.diag(H) ** 2).sum() + squares
    return own * (size / squares if squares > 0.0 else 1.0)


def one_hot(y: float, C: int) -> Floats:
    return np.eye(C)[int(y)]


def solve_logistic(margin: float, X: float) -> tuple[float, float]:
    """q = sigmoid(-(margin + X q)) and the secant's curvature, both for h = 1; X = h chi.

    Bisection, to the last bit. With E = sigmoid(-margin) and d = X q the recipe's (E - q) / d is
    E (1 - q) (1 - exp(-d)) / d, which cancels no digits and has the limit E (1 - E).
    """
    E = sigmoid(-margin)
    low, high = 0.0, E
    while X > 0.0 and low < (middle := (low + high) / 2.0) < high:
        if middle < sigmoid(-(margin + X * middle)):
            low = middle
        else:
            high = middle
    q = high
    d = X * q
    return q, E * (1.0 - q) * (-math.expm1(-d) / d if d > 0.0 else 1.0)


def solve_softmax(m: Floats, chi: Floats, y: int, h: float) -> Floats:
    """s_k = h (y_k - p_k(m + chi * s)) for all k: Newton with step halving."""
    target = one_hot(y, len(m))

    def residual(s: Floats) -> Floats:
        return s - h * (target - softmax(m + chi * s))

    s = np.zeros(len(m))
    F = residual(s)
    for _ in range(100):
        p = softmax(m + chi * s)
        J = np.eye(len(m)) + h * (np.diag(p) - np.outer(p, p)) * chi
        d, length = np.linalg.solve(J, F), 1.0
        while length > 1e-9 and not np.linalg.norm(residual(s - length * d)) < np.linalg.norm(F):
            length /= 2.0
        if length <= 1e-9:  # no digit of the residual can be improved
            break
        s = s - length * d
        F = residual(s)
    return s
