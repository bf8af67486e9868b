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
from common import Rows, Section, arguments, csr, learn, missing, read, taken
from comparator import best_hinge, hinge_loss
from scipy.special import logsumexp

from streamomd.core.batch import Batch, SparseBatch
from streamomd.rules import all_rules
from streamomd.rules.contract import fields

STEPS = (0.01, 0.1, 1.0)
P = 4.0
U = 10.0
MOST = 10_000  # rows: the comparator's dual ascent is plain Python


def mu(x: Any, C: float) -> Any:
    """P2's mitigating function: near x for small C, below it else.

    >>> [round(float(mu(x, 1.0)), 3) for x in (0.0, 0.5, 1.0, 3.0)]
    [0.0, 0.125, 0.5, 2.5]
    """
    low = np.minimum(x, C)
    return low * (x - 0.5 * low) / C


class Learner(NamedTuple):
    """A rule, its link, whether it is aggressive, and its parameters beside C."""

    rule: str
    link: str
    aggressive: bool
    params: dict[str, Any]

    @property
    def title(self) -> str:
        """Its name in the table."""
        return " ".join([self.rule, *(str(value) for value in self.params.values())])


LEARNERS = (
    Learner("perceptron", "l2", aggressive=False, params={}),
    Learner("pa1", "l2", aggressive=True, params={}),
    Learner("dual_ascent", "l2", aggressive=True, params={"k": 2}),
    Learner("pnorm", "pnorm", aggressive=False, params={"p": P}),
    Learner("dual_step", "pnorm", aggressive=True, params={"link": "pnorm", "p": P}),
    Learner("eg", "eg", aggressive=False, params={"U": U}),
    Learner("dual_step", "eg", aggressive=True, params={"link": "eg", "U": U}),
)


def registered() -> list[Learner]:
    """Those that are there, with these parameters."""
    known = all_rules()
    return [
        some
        for some in LEARNERS
        if some.rule in known and {"C", *some.params} <= set(fields(known[some.rule].hyper))
    ]


class Found(NamedTuple):
    """One run: what the theorems speak of, and the primal value no dual can pass."""

    learner: Learner
    C: float
    mistakes: int
    updates: int
    loss: float
    mitigated: float
    dual: float
    primal: float


def conjugate(link: str, theta: np.ndarray) -> float:
    """f*(theta)."""
    if link == "l2":
        return 0.5 * float(theta @ theta)
    if link == "pnorm":
        return 0.5 * float(np.linalg.norm(theta, P)) ** 2
    both = np.concatenate([theta, -theta])
    return U * float(logsumexp(both) - np.log(len(both)))


def regularizer(link: str, u: np.ndarray) -> tuple[np.ndarray, float]:
    """u moved into the link's set, and f(u) or a bound on it."""
    if link == "l2":
        return u, 0.5 * float(u @ u)
    if link == "pnorm":
        return u, 0.5 * float(np.linalg.norm(u, P / (P - 1.0))) ** 2
    size = float(np.abs(u).sum())
    return u * min(1.0, U / size) if size else u, U * float(np.log(2 * len(u)))


def run(rows: Rows, some: Learner, C: float, u: np.ndarray) -> Found:
    """One pass, from its margins and theta."""
    seen: list[np.ndarray] = []
    model = learn(rows, some.rule, "hinge", {"C": C, **some.params}, margins=seen)
    y, p = rows.y, np.concatenate(seen)[:, 0]
    loss, wrong = np.maximum(0.0, 1.0 - y * p), y * p <= 0.0
    totals = {
        slot.name: float(number)
        for slot, number in zip(model.spec.rule.total_slots, model.state.totals[0], strict=True)
    }
    if some.rule == "dual_ascent":
        dual = totals["D"]
    else:
        steps = C * int(wrong.sum())
        if some.aggressive:
            steps = totals["steps"] if "steps" in totals else float(np.minimum(loss, C).sum())
        dual = steps - conjugate(some.link, model.state.slot("theta")[:, 0])
    inside, size = regularizer(some.link, u)
    primal = size + C * hinge_loss(csr(rows), y, inside)
    updates = int((loss > 0.0).sum()) if some.aggressive else int(wrong.sum())
    mitigated = float(mu(loss, C).sum())
    return Found(some, C, int(wrong.sum()), updates, float(loss.sum()), mitigated, dual, primal)


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
    """A table for one data set, and the theorems."""
    section.say(f"{name}, {len(rows):,} rows of length 1, one pass:")
    found = []
    for C in STEPS:
        u = best_hinge(rows, C)
        found += [run(rows, some, C, u) for some in registered()]
    heads = ["C", "learner", "mistakes", "rows with a step", "loss", "sum of mu(loss)"]
    lines = [(f"{some.C:g}", some.learner.title, *some[2:]) for some in found]
    section.table([*heads, "dual value", "primal"], lines)
    _checks(section, name, found)


def _checks(section: Section, name: str, found: list[Found]) -> None:
    """What theorems 1 and 3 say, over all C."""
    fits = [_fits(some.dual, some.primal) for some in found]
    section.check(f"{name}: the dual value is at most the primal one, {len(fits)} runs", all(fits))
    plain = [some for some in found if some.learner.rule in ("perceptron", "pa1")]
    fits = [_fits(some.mistakes, some.primal / _rise(some.C)) for some in plain]
    section.check(f"{name}: mistakes within theorem 1's bound, {len(fits)} runs", all(fits))
    plain = [some for some in plain if some.learner.aggressive]
    fits = [_fits(some.mitigated, some.primal / some.C) for some in plain]
    section.check(f"{name}: the sum of mu within theorem 3's bound, {len(fits)} runs", all(fits))
    for passive in (some for some in found if not some.learner.aggressive):
        link, C = passive.learner.link, passive.C
        bold = [s for s in found if s.learner.aggressive and (s.learner.link, s.C) == (link, C)]
        if bold:
            least = min(some.dual for some in bold)
            text = f"{name}, {link}, C = {C:g}: aggressive steps raise the dual to {least:.4g}, "
            text += f"passive ones to {passive.dual:.4g}"
            section.check(text, least >= passive.dual, ours=False)
    section.say("")


def _rise(C: float) -> float:
    """How much a mistake raises the dual at least (eq. 30; gamma is 1)."""
    return C - 0.5 * C * C if C <= 1.0 else 0.5


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
        "P2 has no experiments; this is what its theorems lead one to expect. The primal value is "
        "f(u) + C loss(u) of the u for which ||u||^2 / 2 + C loss(u) is least: no dual value can "
        "pass it, and over C it bounds the sum of mu (theorem 3). p-norm: p = 4; EG: U = 10."
    )
    for name, rows in load(chosen.data, chosen.out, tiny=chosen.tiny).items():
        compare(section, name, rows())
    section.picture(draw, (5, 4))
    return section.close()


if __name__ == "__main__":
    sys.exit(main())
