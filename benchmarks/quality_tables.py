"""The tables of quality.py: every figure, the gaps, errors, the summary
of the README, and what is required."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
from quality_sets import BINARY, CLASSES, REGRESSION

LARGE = 5000
"""Training rows, at least, of sets with requirements."""
PEERS = ("nag", "sgd-epochs")
"""No rule may be more than 1 % worse."""
HEADS = {BINARY: "two classes", CLASSES: "several classes", REGRESSION: "regression"}

Figures = dict[str, Any]


def gap(found: Figures, base: Figures) -> float | None:
    """By how many per cent the loss is above the baseline's."""
    loss = found.get("loss")
    return None if loss is None else 100.0 * (loss / base["loss"] - 1.0)


def lost(found: Figures, base: Figures) -> float | None:
    """The share of the attainable log loss that is lost, in per cent."""
    loss = found.get("loss")
    if loss is None or base["task"] == REGRESSION:
        return None
    return 100.0 * (loss - base["loss"]) / (base["constant"] - base["loss"])


def shown(value: float | None, form: str = ".4g") -> str:
    return "–" if value is None else format(value, form)


def percent(value: float | None) -> str:
    """Of a gap; it says little how far a diverged model is away."""
    return "> +999" if value is not None and value > 999.0 else shown(value, "+.1f")


def write(head: Iterable[str], lines: Iterable[Sequence[str]]) -> None:
    """A table in Markdown."""
    head = list(head)
    print("\n| " + " | ".join(head) + " |")
    print("|" + "---|" * len(head))
    for line in lines:
        print("| " + " | ".join(line) + " |")


def required(base: Figures) -> bool:
    """Whether the requirements are about this set."""
    return bool(base["shuffled"] and base["train"] >= LARGE)


def detail_table(bases: Figures, results: Figures, names: list[str], passes: list[int]) -> None:
    lines = []
    for name, base in bases.items():
        parts = [("baseline", "", base)]
        parts += [(r, str(p), results.get(f"{name}/{r}/{p}")) for r in names for p in passes]
        for rule, count, found in parts:
            if not found:
                continue
            quality = found["r2"] if base["task"] == REGRESSION else found["error"]
            gaps = [gap(found, base), lost(found, base)]
            values = [quality, found.get("auc"), found["progressive"]]
            cells = [shown(found["loss"]), *map(percent, gaps), *map(shown, values)]
            lines.append([name, rule, count, *cells, shown(found["seconds"], ".2f")])
    print("\nEvery figure; lost: the share of constant - baseline, in per cent")
    write(["set", "learner", "passes", "loss or RMSE", "gap, %", "lost, %", "error or R²", "AUC",
           "progressive", "CPU s"], lines)  # fmt: skip


def by_kind(bases: Figures, cells: Callable[[str, Figures], Sequence[str]]) -> list[list[str]]:
    """A line for each set, with its rows, in the order of kinds."""
    return [
        [name if required(base) else f"{name} *", f"{base['train']:,}", *cells(name, base)]
        for kind in HEADS
        for name, base in bases.items()
        if base["task"] == kind
    ]


def gap_table(bases: Figures, results: Figures, names: list[str], passes: list[int]) -> None:
    """Of the learners that have probabilities, % above the baseline."""

    def gaps(name: str, rule: str, base: Figures) -> list[float | None]:
        return [gap(results.get(f"{name}/{rule}/{count}", {}), base) for count in passes]

    def cell(found: list[float | None]) -> str:
        return "–" if set(found) == {None} else " / ".join(map(percent, found))

    def cells(name: str, base: Figures) -> list[str]:
        found = [cell(gaps(name, rule, base)) for rule in names]
        return [shown(base["constant"]), shown(base["loss"]), *found]

    names = [
        rule for rule in names
        if any(set(gaps(name, rule, base)) != {None} for name, base in bases.items())
    ]  # fmt: skip

    counts = " / ".join(map(str, passes))
    print(f"\nHeld-out log loss or RMSE, % above the tuned batch baseline, after {counts} pass(es)")
    print(f"*: fewer than {LARGE:,} training rows, or in an order; without requirements")
    write(["set", "rows", "constant", "baseline", *names], by_kind(bases, cells))


def error_table(bases: Figures, results: Figures, names: list[str]) -> None:
    """After one pass."""

    def quality(found: Figures) -> str:
        r2 = found.get("r2")
        return "< -1" if r2 is not None and r2 < -1.0 else shown(found.get("error", r2), ".3f")

    def cells(name: str, base: Figures) -> list[str]:
        return [quality(base), *(quality(results.get(f"{name}/{rule}/1", {})) for rule in names)]

    print("\nHeld-out error, of regression R², after one pass")
    write(["set", "rows", "baseline", *names], by_kind(bases, cells))


REQUIRED = {
    "RMSE ≤ baseline + 1 %": (1.0, 0.95),
    "≤ 3 % of the attainable log loss lost": (3.0, 0.95),
    "error ≤ baseline + 0.003": (0.003, 0.90),
    f"≤ 1 % worse than {' and '.join(PEERS)}": (1.0, 1.0),
}
"""The amount, at most, and the share of the sets on which that must hold."""


def amounts(bases: Figures, results: Figures, rule: str) -> list[dict[str, float]]:
    """For each requirement, how much it is by set; a learner without probabilities has errors."""
    close, little, errors, peers = {}, {}, {}, {}
    for name, base in bases.items():
        found = results.get(f"{name}/{rule}/1", {})
        if not found or not required(base):
            continue
        if base["task"] != REGRESSION:
            errors[name] = found["error"] - base["error"]
        if found["loss"] is None:
            continue
        if base["task"] == REGRESSION:
            close[name] = gap(found, base)
        else:
            little[name] = lost(found, base)
        others = [results.get(f"{name}/{peer}/1", {}).get("loss") for peer in PEERS if peer != rule]
        least = min((other for other in others if other is not None), default=np.inf)
        peers[name] = 100.0 * (found["loss"] / least - 1.0) if least < np.inf else 0.0
    return [close, little, errors, peers]


def verdict(found: dict[str, float], limit: float, share: float) -> str:
    """On how many sets a requirement holds."""
    if not found:
        return "–"
    count = sum(amount <= limit + 1e-9 for amount in found.values())  # errors are rounded
    return f"{count} of {len(found)}{'' if count >= share * len(found) else ', missed'}"


def summary_table(bases: Figures, found: Figures, results: Figures, names: list[str]) -> None:
    """Of the README."""
    lines = []
    for rule in names:
        medians = [percent(float(np.median([*sets.values()])) if sets else None)
                   for sets in [*found[rule].values()][:2]]  # fmt: skip
        counts = [verdict(found[rule][text], *needed) for text, needed in REQUIRED.items()]
        pairs = [(results.get(f"{name}/{rule}/1"), bases[name]) for name in bases]
        costs = [one["seconds"] / base["train"] for one, base in pairs if one and required(base)]
        cost = 1e6 * float(np.median(costs)) if costs else None
        lines.append([rule, *medians, *counts, shown(cost, ".1f")])
    heads = [f"{text} ({share:.0%} of sets)" for text, (_, share) in REQUIRED.items()]
    middles = ["median RMSE, % above the baseline", "median log loss lost, %"]
    print(f"\nAfter one pass, on sets with at least {LARGE:,} shuffled training rows")
    write(["learner", *middles, *heads, "median CPU µs per row"], lines)


def missed_list(found: Figures) -> None:
    """The sets on which requirements do not hold, and the amounts."""
    for rule, requirements in found.items():
        for text, (limit, _) in REQUIRED.items():
            above = {n: amount for n, amount in requirements[text].items() if amount > limit + 1e-9}
            parts = [
                f"{name} {percent(amount) if limit >= 1.0 else shown(amount, '+.3f')}"
                for name, amount in above.items()
            ]
            if parts:
                print(f"\n{rule} misses “{text}” on {len(parts)}: {', '.join(parts)}")


def print_tables(
    bases: Figures, results: Figures, names: list[str], passes: list[int], *, detail: bool
) -> Figures:
    """All of them; the amounts of the requirements, by learner and set."""
    if detail:
        detail_table(bases, results, names, passes)
    gap_table(bases, results, names, passes)
    error_table(bases, results, names)
    found = {
        rule: dict(zip(REQUIRED, amounts(bases, results, rule), strict=True)) for rule in names
    }
    summary_table(bases, found, results, names)
    missed_list(found)
    return found
