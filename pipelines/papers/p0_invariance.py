"""P0, section 5, and P1: learners whose predictions do not change when features are rescaled.

Each learner runs twice, on rows as they are and with every column multiplied by a constant of its
own: by powers of 2, where the margins must agree to the bit, and by any numbers. Then theorem 1 of
P0: the regret of SI p-norm and SI AdaGrad beside its bounds (after eq. 16 and eq. 18).

    python pipelines/papers/p0_invariance.py
"""

from __future__ import annotations

import math
import sys
from typing import Any

import numpy as np
import sets
from common import Rows, Section, arguments, csr, learn, missing, progress, read, scaled, shuffled
from comparator import best_logistic, logistic_loss

from streamomd.rules import all_rules

INVARIANT = ("ng", "nag", "snag", "nag_projected", "si_pnorm", "si_adagrad")
NOT = ("adagrad", "ogd", "perceptron")
EXACT = 1e-9


def rescaled(rows: Rows, rule: str, scale: np.ndarray) -> float:
    """The largest change of a margin, in relation to the margin (or to 1, if that is larger)."""
    one, other = progress(rows, rule), progress(scaled(rows, scale), rule)
    change = np.abs(one - other) / np.maximum(1.0, np.abs(one))
    return float(np.nan_to_num(change, nan=math.inf).max())


def invariance(section: Section, rows: Rows) -> None:
    """The table of both kinds of constants."""
    rng = np.random.default_rng(0)
    columns = len(rows.plan.numeric)
    powers = 2.0 ** rng.integers(-20, 21, columns) * rng.choice([-1.0, 1.0], columns)
    numbers = 10.0 ** rng.uniform(-4, 4, columns)
    lines = [
        (rule, rescaled(rows, rule, powers), rescaled(rows, rule, numbers))
        for rule in (*INVARIANT, *NOT)
        if rule in all_rules()
    ]
    section.say("Largest change of a margin when columns are multiplied by constants:")
    heads = ["learner", "powers of 2, some negative", "1e-4 to 1e4"]
    section.table(heads, [(n, f"{p:.1e}", f"{a:.1e}") for n, p, a in lines])
    for rule, by_powers, by_any in lines:
        if rule in INVARIANT:
            text = f"{rule}: bit for bit under powers of 2, to {EXACT:g} under any constants"
            section.check(text, by_powers == 0.0 and by_any <= EXACT)
        else:
            section.check(f"{rule} does depend on the scales", by_any > 1e-3)
    section.say("")


def theorem_1(section: Section, rows: Rows, etas: tuple[float, ...]) -> None:
    """Regret and bounds. The comparator has a ridge of its columns' squares: the bounds grow so."""
    x, y, count = csr(rows), rows.y, len(rows)
    most = np.asarray(abs(x).max(axis=0).todense()).ravel()
    entries = int(np.diff(x.indptr).max())
    d, p = x.shape[1], max(2.0, 2.0 * math.log(entries))
    q = 1.0 / (1.0 - 1.0 / p)
    lines, ok = [], True
    for eta in etas:
        factors = {
            "si_pnorm": math.sqrt(math.e * (count + 1) * (p - 1.0)),
            "si_adagrad": math.sqrt(d * (count + 1)),
        }
        for rule in [name for name in factors if name in all_rules()]:
            loss = _loss(rows, rule, eta)
            for name, ridge in (("loss and bound", factors[rule] / eta), ("loss", 1e-3)):
                u = best_logistic(rows, ridge=ridge * most**2)
                size = float(np.abs(u * most).sum() ** 2)
                if rule == "si_adagrad":
                    size = float(np.square(u * most).sum())
                bound = factors[rule] * (size / (2.0 * eta) + eta)
                regret = loss - logistic_loss(x, y, u)
                lines.append((rule, eta, name, regret, bound, regret / bound))
                ok = ok and regret <= bound
    if not lines:
        section.say("Theorem 1: si_pnorm and si_adagrad are not registered.")
        return
    section.say(
        f"Theorem 1, rows shuffled, log loss (L = 1); {d} coordinates, at most {entries} in a row, "
        f"p = {p:.3g}, q = {q:.3g}. The fixed predictor u has the least loss, or the least "
        "sum of loss and bound, nearly:"
    )
    section.table(["learner", "eta", "u has least", "regret", "bound", "ratio"], lines)
    section.check("every regret is at most its bound", ok)
    section.say("")


def _loss(rows: Rows, rule: str, eta: float) -> float:
    return float(learn(rows, rule, "logistic", {"eta": eta}).metrics.total[1])


def main(argv: list[str] | None = None) -> int:
    """Run; 1 if a check failed."""
    chosen = arguments(__doc__ or "").parse_args(argv)
    section = Section(chosen.out, "p0_invariance", "P0 and P1: rescaled features, theorem 1")
    if chosen.tiny:
        table: Any = lambda: sets.made_up(300, (1e-3, 1.0, 30.0, 1e5), 2)  # noqa: E731
        rows = read(sets.shards(chosen.out, "tiny-two", table))
    else:
        missing(section, ["bank-marketing"], chosen.data)
        if not (chosen.data / "bank-marketing").is_dir():
            return section.close()
        rows = read(sets.shards(chosen.out, "bank", lambda: sets.bank(chosen.data)))
    section.say(f"{len(rows):,} rows, {len(rows.plan.numeric)} numeric columns in raw units.")
    invariance(section, rows)
    theorem_1(section, shuffled(rows, 1), (0.1, 1.0, 10.0))
    return section.close()


if __name__ == "__main__":
    sys.exit(main())
