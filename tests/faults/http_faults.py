"""What can happen to one HTTP request and its reply, and which of it suits which operation."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

Schedule = Callable[[str], str]
"""``schedule(operation)``: the name of the fault for this request, or "" for none."""


@dataclass(frozen=True)
class Fault:
    """What happens to one request, and to the reply."""

    carried_out: bool = True
    """Whether the store hears of the request."""
    torn: bool = False
    """The connection is reset in the middle of the request's body."""
    status: int = 0
    """Said in place of the store's reply …"""
    code: str = ""
    """… with this error code."""
    head: bool = True
    """Whether the reply is begun at all."""
    sent: float = 1.0
    """So much of the reply's body is sent."""
    claimed: float = 1.0
    """So much of it is promised in Content-Length."""
    bare: bool = False
    """The reply does not tell which condition failed: only AWS does."""
    end: str = ""
    """"close", "reset" or "stall" after it; else the connection stays."""


FAULTS = {
    "": Fault(),
    "500": Fault(carried_out=False, status=500, code="InternalError"),
    "503": Fault(carried_out=False, status=503, code="SlowDown"),
    "403": Fault(carried_out=False, status=403, code="AccessDenied"),
    "expired": Fault(carried_out=False, status=400, code="ExpiredToken"),
    "500 after the deed": Fault(status=500, code="InternalError"),
    "reply lost": Fault(head=False, end="close"),
    "stall": Fault(carried_out=False, head=False, end="stall"),
    "stall after the deed": Fault(head=False, end="stall"),
    "reset": Fault(sent=0.5, end="reset"),
    "cut": Fault(sent=0.5, end="close"),
    "stall in the body": Fault(sent=0.5, end="stall"),
    "longer claimed": Fault(claimed=1.5, end="close"),
    "shorter": Fault(sent=0.5, claimed=0.5),
    "empty": Fault(sent=0.0, claimed=0.0),
    "bare": Fault(bare=True),
    "torn": Fault(carried_out=False, torn=True),
    "not done": Fault(carried_out=False, status=200),
}
ANYWHERE = ("500", "503", "403", "expired", "500 after the deed", "reply lost", "stall")
ANYWHERE += ("stall after the deed",)
IN_BODY = ("reset", "cut", "stall in the body", "longer claimed")
LYING = ("shorter", "empty", "longer claimed", "not done")
"""Replies that are well-formed and untrue: what is read may seem corrupt, or not there."""
SUITED = {
    "GET": (*ANYWHERE, *IN_BODY, "shorter", "empty"),
    "LIST": (*ANYWHERE, *IN_BODY, "shorter", "empty"),
    "HEAD": (*ANYWHERE, "shorter", "longer claimed"),
    "PUT": (*ANYWHERE, "torn", "not done"),
    "DELETE": (*ANYWHERE, "not done"),
    "START": (*ANYWHERE, *IN_BODY),
    "PART": (*ANYWHERE, "torn", "not done"),
    "COMPLETE": (*ANYWHERE, *IN_BODY),
    "ABORT": ANYWHERE,
}


def peace(operation: str) -> str:
    """No fault."""
    return ""


def seeded(draw: random.Random, chance: float, *, lying: bool) -> Schedule:
    """Each request is struck with this chance, by any fault that suits it."""
    faults = {
        operation: [one for one in suited if lying or one not in LYING]
        for operation, suited in SUITED.items()
    }
    return lambda operation: draw.choice(faults[operation]) if draw.random() < chance else ""


def directed(operation: str, fault: str, first: int, times: int) -> Schedule:
    """Requests ``first`` … ``first + times - 1`` of an operation are struck by one fault."""
    seen = 0

    def schedule(asked: str) -> str:
        nonlocal seen
        seen += asked == operation
        return fault if asked == operation and first < seen <= first + times else ""

    return schedule
