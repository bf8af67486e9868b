"""Defaults for the optional functions of a rule. Most are never called: the compiler removes the
calls, but compiled code needs a function to refer to."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def has(group: object, name: str) -> bool:
    """Whether an optional group is there and has the function of this name."""
    return getattr(group, name, None) is not None


def of(group: object, name: str) -> Callable[..., Any]:
    """The function of this name of an optional group, or its default."""
    found: Callable[..., Any] = getattr(group, name, None) or DEFAULTS[name]
    return found


def observe(shared: Any, x: float, clock: float, h: Any) -> Any:
    return shared, ()


def align(own: Any, old: Any, new: Any, totals: Any, clock: float, h: Any) -> Any:
    return own


def rejoin(own: Any, w: float, shared: Any, totals: Any, clock: float, h: Any) -> Any:
    return own


def prepare(q: Any, totals: Any, clock: float, h: Any) -> Any:
    return totals


def part(own: Any, shared: Any, x: float, totals: Any, clock: float, h: Any) -> float:
    return 0.0


def terms(own: Any, shared: Any, x: float, totals: Any, clock: float, h: Any) -> Any:
    return ()


def mass(own: Any, shared: Any, totals: Any, clock: float, h: Any) -> Any:
    return ()


def stale(totals: Any, clock: float, h: Any) -> bool:
    return False


def peak(own: Any, shared: Any, totals: Any, clock: float, h: Any) -> float:
    return 0.0


def rebase(totals: Any, peak: float, clock: float, h: Any) -> Any:
    return totals


def refresh(own: Any, shared: Any, totals: Any, clock: float, h: Any) -> Any:
    return own


def outside(totals: Any, clock: float, h: Any) -> bool:
    return False


def start_scale(h: Any) -> float:
    return 1.0


def foresee(m: float, chi: float, h: Any) -> float:
    return m


def reach(own: Any, shared: Any, mu: float, totals: Any, clock: float, h: Any) -> float:
    return 0.0


def radius(h: Any) -> float:
    return 0.0


def project(own: Any, shared: Any, mu: float, totals: Any, clock: float, h: Any) -> Any:
    return own


def settle(totals: Any, mu: float, h: Any) -> Any:
    return totals


def clamp(margin: float, totals: Any, h: Any) -> float:
    return margin


def change(context: Any, row: Any, move: Any, whole: Any, clock: float, h: Any, k: int) -> float:
    return 0.0


def stretch(move: Any, factor: float) -> Any:
    return move


def along(margin: float, y: float, change: float, p: Any) -> float:
    return 1.0


def couple(margins: Any, i: int, y: int, slopes: Any) -> float:
    return 0.0


DEFAULTS: dict[str, Callable[..., Any]] = {
    "function": observe,
    "align": align,
    "rejoin": rejoin,
    "prepare": prepare,
    "catch_up": align,
    "part": part,
    "terms": terms,
    "clamp": clamp,
    "stretch": stretch,
    "mass": mass,
    "stale": stale,
    "peak": peak,
    "rebase": rebase,
    "refresh": refresh,
    "outside": outside,
    "reach": reach,
    "radius": radius,
    "project": project,
    "settle": settle,
    "start_scale": start_scale,
    "foresee": foresee,
}
