"""Programming errors, which are raised as they are and never reported as errors of data."""

from __future__ import annotations

import re
from types import NoneType

PROGRAMMING = (TypeError, AttributeError, NameError)
"""Errors of the program, or of a library whose version does not fit."""
_VALUES = (NoneType, bool, int, float, str, bytes, list, tuple, dict)
_CALL = re.compile(
    r"unexpected keyword|required (positional|keyword-only) argument|takes .*argument|"
    r"multiple values for"
)
"""What Python says of a call that does not fit a function."""


def is_mistake(error: BaseException, parser: str = "") -> bool:
    """Whether it is a programming error, among errors that a library raises of the data it parses.

    parser: the package that may raise any type of error of data; empty: any package but this one.
    A call that does not fit, or an attribute that no module or class has, is a mistake there, too.
    """
    if not isinstance(error, PROGRAMMING):
        return False
    at = error.__traceback__
    while at is not None and at.tb_next is not None:
        at = at.tb_next
    package = str(at.tb_frame.f_globals.get("__name__", "")).split(".")[0] if at else ""
    if package == __package__.split(".")[0] or (parser and package != parser):
        return True
    if isinstance(error, AttributeError):
        return error.name is None or not isinstance(error.obj, _VALUES)
    return isinstance(error, NameError) or _CALL.search(str(error)) is not None
