"""P2 (Shalev-Shwartz & Singer 2006): passive against aggressive dual steps, and figure 2.

The passive step raises the dual by one variable set to C, on mistakes only: the Perceptron. The
aggressive one (eq. 28, and PA-I) takes min(loss / curvature, C) whenever there is a loss. Both are
run on rows of length 1, as P2 assumes, without a bias; theorems 1 and 3 are checked on the way.

    python pipelines/papers/p2_passive_aggressive.py
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import sets
from common import Rows, Section, arguments, csr, missing, progress, read, taken
from comparator import best_hinge, hinge_loss

from streamomd.batch import Batch, SparseBatch
from streamomd.rules import all_rules
from streamomd.rules.contract import fields

STEPS = (0.01, 0.1, 1.0)
GAMMA = 1.0
MOST = 10_000  # rows: the comparator's dual ascent is plain Python


def mu(x: Any, C: float) -> Any:
    """P2's mitigating function: near x for small C, below it else.

    >>> [round(float(mu(x, 1.0)), 3) for x in (0.0, 0.5, 1.0, 3.0)]
    [0.0, 0.125, 0.5, 2.5]
    """
    low = np.minimum(x, C)
    return low * (x - 0.5 * low) / C


class Learner(NamedTuple):
    """A rule, whether it is aggressive, and its parameters beside C."""

    rule: str
    aggressive: bool
    params: dict[str, Any]

    @property
    def title(self) -> str:
        """Its name in the table."""
        return " ".join([self.rule, *(str(value) for value in self.params.values())])


class Claim(NamedTuple):
    """What one run gives for the theorems."""

    aggressive: bool
    C: float
    mistakes: int
    mitigated: float
    dual: float
    primal: float


def learners() -> list[Learner]:
    """Those of P2 that are registered."""
    wanted = [
        Learner("perceptron", aggressive=False, params={}),
        Learner("pa1", aggressive=True, params={}),
        Learner("dual_step", aggressive=True, params={"link": "l2"}),
        Learner("dual_ascent", aggressive=True, params={"k": 2}),
        Learner("pnorm", aggressive=False, params={"p": 3.0}),
        Learner("dual_step", aggressive=True, params={"link": "pnorm", "p": 3.0}),
        Learner("eg", aggressive=False, params={}),
        Learner("dual_step", aggressive=True, params={"link": "eg"}),
        Learner("winnow", aggressive=False, params={}),
        Learner("dual_step", aggressive=True, params={"link": "winnow"}),
    ]
    known = all_rules()
    return [
        some
        for some in wanted
        if some.rule in known and set(some.params) <= set(fields(known[some.rule].hyper))
    ]


def of_length_one(rows: Rows) -> Rows:
    """Each row divided by its Euclidean length."""

    def divided(batch: Batch) -> Batch:
        assert isinstance(batch, SparseBatch)
        counts = np.diff(batch.indptr)
        at = np.repeat(np.arange(len(batch)), counts)
        squares = np.bincount(at, np.square(batch.values, dtype=np.float64), len(batch))
        return replace(batch, values=batch.values / np.sqrt(squares)[at])

    return rows.mapped(divided)


def compare(section: Section, name: str, rows: Rows) -> None:
    """A table for one data set, and the theorems for the learners with the L2 link."""
    x, y = csr(rows), rows.y
    section.say(f"{name}, {len(rows):,} rows of length 1, one pass:")
    lines, claims = [], []
    for C in STEPS:
        u = best_hinge(rows, C)
        length, losses_u = 0.5 * float(u @ u), hinge_loss(x, y, u)
        primal = length + C * losses_u
        for some in learners():
            p = progress(rows, some.rule, "hinge", C=C, **some.params)
            loss = np.maximum(0.0, GAMMA - y * p)
            wrong = int((loss >= GAMMA).sum())
            steps = np.where(loss >= GAMMA, C, 0.0) if not some.aggressive else np.minimum(loss, C)
            mitigated, dual = float(mu(loss, C).sum()), None
            if some.rule in ("perceptron", "pa1") or some.params.get("link") == "l2":
                dual = float((steps * (GAMMA - y * p) - 0.5 * steps**2).sum())
                claims.append(Claim(some.aggressive, C, wrong, mitigated, dual, primal))
            updates = int((steps > 0).sum())
            lines.append((f"{C:g}", some.title, wrong, updates, float(loss.sum()), mitigated, dual))
        lines.append((f"{C:g}", "bound, or best fixed", None, None, losses_u, primal / C, primal))
    heads = ["C", "learner", "mistakes", "updates", "loss", "sum of mu(loss)", "dual value"]
    section.table(heads, lines)
    _checks(section, name, claims)


def _checks(section: Section, name: str, claims: list[Claim]) -> None:
    """What theorems 1 and 3 say of the learners with the L2 link, over all C."""
    fits = [_fits(some.dual, some.primal) for some in claims]
    section.check(
        f"{name}: the dual value is at most the primal one in {len(fits)} runs", all(fits)
    )
    fits = [_fits(some.mistakes, some.primal / _rise(some.C)) for some in claims]
    section.check(f"{name}: mistakes are at most theorem 1's bound in {len(fits)} runs", all(fits))
    fits = [_fits(some.mitigated, some.primal / some.C) for some in claims if some.aggressive]
    section.check(
        f"{name}: the sum of mu is at most theorem 3's bound in {len(fits)} runs", all(fits)
    )
    for passive in (some for some in claims if not some.aggressive):
        duals = [some.dual for some in claims if some.aggressive and some.C == passive.C]
        text = f"{name}, C = {passive.C:g}: aggressive steps raise the dual to {min(duals):.4g},"
        text = f"{text} passive ones to {passive.dual:.4g}"
        section.check(text, min(duals) >= passive.dual)
    section.say("")


def _rise(C: float) -> float:
    """How much a mistake raises the dual at least (eq. 30, and eq. 16 with C at most gamma)."""
    return GAMMA * C - 0.5 * C * C if C <= GAMMA else 0.5 * GAMMA**2


def _fits(measured: float, bound: float) -> bool:
    return measured <= bound * (1.0 + 1e-9)


def draw(figure: Any) -> None:
    """P2's figure 2: mu for some C."""
    axes = figure.subplots()
    x = np.linspace(0.0, 4.0, 200)
    axes.plot(x, x, "k:", label="x")
    for C in (0.1, 1.0, 2.0):
        axes.plot(x, mu(x, C), label=f"C = {C:g}")
    axes.set(xlabel="x", ylabel="mu(x)")
    axes.legend()


def load(data: Path, out: Path, *, tiny: bool) -> dict[str, Callable[[], Rows]]:
    """The data sets that are there, hashed or of 0 and 1."""

    def sparse(shards: str, size: int) -> Rows:
        pair = {"indices": "i", "values": "v", "size": size}
        rows = read(shards, bias=False, sparse=pair)
        return of_length_one(taken(rows, np.arange(min(MOST, len(rows)))))

    if tiny:
        make = lambda: sets.made_up_text(200, 64)  # noqa: E731
        return {"tiny": lambda: sparse(sets.shards(out, "tiny-words", make), 64)}
    found: dict[str, Callable[[], Rows]] = {}
    if (data / "a9a").is_dir():
        found["a9a"] = lambda: sparse(sets.shards(out, "a9a", lambda: sets.a9a(data)), 123)
    if (data / "blitzer-sentiment").is_dir():
        books = lambda: sets.blitzer(data, "books", 18)  # noqa: E731
        found["books"] = lambda: sparse(sets.shards(out, "blitzer-18/books", books), 1 << 18)
    return found


def main(argv: list[str] | None = None) -> int:
    """Run; 1 if a check failed."""
    chosen = arguments(__doc__ or "").parse_args(argv)
    section = Section(chosen.out, "p2_passive_aggressive", "P2: passive and aggressive dual steps")
    if not chosen.tiny:
        missing(section, ["a9a", "blitzer-sentiment"], chosen.data)
    section.say(
        "P2 has no experiments; this is what its theorems lead one to expect. Beside each C stands "
        "the fixed predictor of least ||u||^2 / 2 + C loss(u): its loss, theorem 3's bound on the "
        "sum of mu, and the value that no dual can pass."
    )
    for name, rows in load(chosen.data, chosen.out, tiny=chosen.tiny).items():
        compare(section, name, rows())
    section.picture(draw, (5, 4))
    return section.close()


if __name__ == "__main__":
    sys.exit(main())
