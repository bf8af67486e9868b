"""Certificates: their claims about a finished run, and the data they use."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple


class Claim(NamedTuple):
    """One statement of a paper about a finished run: ``measured`` is at most ``bound``.

    given: the assumptions that were checked on the rows, in words. limit: what ``measured`` cannot
    exceed whatever the rule does; a bound above it is trivially true.
    """

    name: str
    measured: float
    bound: float
    source: str
    given: str = ""
    limit: float = math.inf


@dataclass(frozen=True)
class Run:
    """The data of a certificate: one learner's run of one pass, and a comparator.

    own, shared, totals: slots by name, (d,) arrays and floats. w: weights as the next row would
    use them, (d,). h: hyper-parameters. rows: T. loss, mistakes: sums over the rows of loss and 0-1
    error of what was predicted. u: comparator, (d,), in the rule's set. loss_u: sum of the loss of
    u. hinge_u: ``hinge_u(gamma)`` is the sum of [gamma - y <u, x>]_+ (classification). square_u:
    sum of (y - <u, x>)^2. widest_u: the largest abs(<u, x>). lipschitz: the loss's, or NaN.
    longest: ``longest()`` is the largest ||x||^2 of a row, the bias included.
    """

    own: Mapping[str, Any]
    shared: Mapping[str, Any]
    totals: Mapping[str, float]
    w: Any
    h: Any
    rows: int
    loss: float
    mistakes: float
    u: Any
    loss_u: float
    hinge_u: Callable[[float], float]
    square_u: float
    lipschitz: float
    widest_u: float = math.nan
    longest: Callable[[], float] = lambda: math.inf
    extra: Mapping[str, Any] = field(default_factory=dict)
