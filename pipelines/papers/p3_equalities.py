"""P3 (Qian, notes on adaptive FTRL): equalities that its lemmas state, and the AdaGrad bound.

Lemma 1: dual averaging in a set has two forms, the projection of eta theta and the argmin over the
set; RDA's weights are compared with a solver's. Lemma 8: adaptive gradient descent and
FTRL-Proximal take the same way where nothing is projected. Section 5: the regret of AdaGrad in a
box of radius R beside 2 sqrt(2) R sum sqrt(G_i), on a9a.

    python pipelines/papers/p3_equalities.py
"""

from __future__ import annotations

import math
import sys

import numpy as np
import sets
from common import Rows, Section, arguments, csr, learn, missing, progress, read
from comparator import best_logistic, logistic_loss
from scipy.optimize import minimize

from streamomd.rules import all_rules
from streamomd.rules.contract import fields

BOX = 0.3


def takes(rule: str, *params: str) -> bool:
    """Whether the rule is registered and has these parameters."""
    found = all_rules().get(rule)
    return found is not None and set(params) <= set(fields(found.hyper))


def lemma_1(section: Section, rows: Rows) -> None:
    """RDA in a box: its weights are the argmin of beta ||w||^2 / 2 - <theta, w> in the box."""
    if not takes("rda", "gamma", "box"):
        section.say("Lemma 1: rda is not registered.")
        return
    model = learn(rows, "rda", "logistic", {"gamma": 1.0, "box": BOX})
    theta = model.state.slot("theta")[:, 0]
    weights = model.engine.weights(model.state, 0, model.plan.size)[:, 0]
    beta = math.sqrt(len(rows))

    def value(w: np.ndarray) -> tuple[float, np.ndarray]:
        return float(0.5 * (w @ w) - (theta / beta) @ w), w - theta / beta

    bounds = [(-BOX, BOX)] * len(theta)
    start = np.zeros(len(theta))
    found = minimize(value, start, jac=True, method="L-BFGS-B", bounds=bounds, tol=1e-14)
    apart = float(np.abs(found.x - weights).max())
    at_edge = int((np.abs(weights) >= BOX).sum())
    text = (
        f"lemma 1: rda's weights are the solver's, {apart:.1e} apart; {at_edge} on the box's edge"
    )
    section.check(text, apart <= 1e-6)


def lemma_8(section: Section, rows: Rows) -> None:
    """The same margins, row by row, without a box; not so with one."""
    if not takes("ftrl_proximal", "alpha", "beta", "box"):
        section.say("Lemma 8: ftrl_proximal is not registered.")
        return
    params = {"alpha": 0.1, "beta": 1.0}
    one = progress(rows, "adagrad", "logistic", eta=0.1, delta=1.0)
    other = progress(rows, "ftrl_proximal", "logistic", **params)
    apart = float(np.abs(one - other).max())
    text = f"lemma 8: adagrad and ftrl_proximal, {len(rows):,} margins, are {apart:.1e} apart"
    section.check(f"{text} (the largest is {np.abs(one).max():.3g})", apart <= 1e-9)
    if not takes("adagrad", "box"):
        return
    boxed = progress(rows, "ftrl_proximal", "logistic", **params, box=BOX)
    projected = progress(rows, "adagrad", "logistic", eta=0.1, delta=1.0, box=BOX)
    apart = float(np.abs(boxed - projected).max())
    section.check(f"with an active box they part: by {apart:.1e}", apart > 1e-6)


def adagrad_bounds(section: Section, rows: Rows, radii: tuple[float, ...]) -> None:
    """Regret to the best u in the box; P3, section 5 (proximal, centered) and P4, corollary 6."""
    x, y = csr(rows), rows.y
    lines, ok = [], True
    for radius in radii:
        u = best_logistic(rows, box=radius)
        loss_u = logistic_loss(x, y, u)
        runs = {
            "ftrl_proximal": {"radius": radius, "box": radius},
            "adagrad": {"eta": math.sqrt(2.0) * radius, "delta": 0.0, "box": radius},
        }
        for rule, params in runs.items():
            if not takes(rule, *params):
                continue
            model = learn(rows, rule, "logistic", params)
            loss = float(model.metrics.total[1])
            bound = 2.0 * math.sqrt(2.0) * radius * float(np.sqrt(model.state.slot("G")).sum())
            regret = loss - loss_u
            lines.append((rule, radius, loss, loss_u, regret, bound, regret / bound))
            ok = ok and regret <= bound
    section.say("AdaGrad in a box of radius R, log loss; u is the best in the box:")
    section.table(["learner", "R", "loss", "loss of u", "regret", "bound", "ratio"], lines)
    section.check("every regret is at most its bound", ok)


def main(argv: list[str] | None = None) -> int:
    """Run; 1 if a check failed."""
    chosen = arguments(__doc__ or "").parse_args(argv)
    title = "P3: equalities and the AdaGrad bound"
    section = Section(chosen.out, "p3_equalities", title)
    size = 32 if chosen.tiny else 123
    pair = {"indices": "i", "values": "v", "size": size}
    if chosen.tiny:
        shards = sets.shards(chosen.out, "tiny-32", lambda: sets.made_up_text(200, size))
    else:
        missing(section, ["a9a"], chosen.data)
        if not (chosen.data / "a9a").is_dir():
            return section.close()
        shards = sets.shards(chosen.out, "a9a", lambda: sets.a9a(chosen.data))
    rows = read(shards, sparse=pair)
    section.say(f"{'Made-up rows' if chosen.tiny else 'a9a'}, {len(rows):,} rows:")
    lemma_1(section, rows)
    lemma_8(section, rows)
    section.say("")
    adagrad_bounds(section, rows, (0.1, 0.5, 2.0))
    return section.close()


if __name__ == "__main__":
    sys.exit(main())
