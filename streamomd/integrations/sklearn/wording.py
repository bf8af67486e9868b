"""Messages about files in the words of a caller who has passed X and y."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from streamomd.core.errors import DivergedError, StreamomdError

P = ParamSpec("P")
T = TypeVar("T")

WORDS = (
    ("first shard: ", "X: "),
    ("in a job file:\n  [data]\n", "as parameters:\n"),
    ("name it in vectors, or in hashed", "name it in hashed"),
    (" in the first shard", " in X"),
    ("the first shard had", "X of the first call had"),
    ("write all shards with the same type", "pass the same type in every call"),
    ("write the shard with that type", "pass that type"),
    ("when the shard is written", "before"),
    ("add it to the shard", "add it to X"),
    ("; add it to ignore", "; pass its name in ignore=[…]"),
    ("or add it to ignore", "or pass it in ignore=[…]"),
    ("name it in hashed", "name it in categorical"),
    (", or pass --on-bad-row skip", ""),
    ("data.nulls = ", "nulls="),
    ("--task classify", "OMDClassifier"),
    ("--loss ", "loss "),
    ("shard X, ", "X, "),
    ("shard X:", "X:"),
    ("shards", "data"),
    ("shard", "X"),
)
"""What is said of files, and what of X. In order: later pairs are less specific."""
NULL = "(found (?:null|nan), expected a number)"
MADE_FOR = "; the model was made for such columns: drop the row, or write a value that it takes"
DIVERGED = "Fit again with a smaller eta0, or scale the columns of X (StandardScaler)"
KEYS = (
    (r"(?m)^as flags: .*\n", ""),
    (r"\bmodel\.params sets\b", "params sets"),
    (r"\(--rule (\w+), model\.rule = '\1'\)", r'(rule="\1")'),
    (r" \(--rule (\w+)\)", r' (rule="\1")'),
    (r"\bmodel\.bias = true", "fit_intercept=True"),
    (r"\bmodel\.bias\b", "fit_intercept"),
    (r" \(--set (\w+)=…\)", r" (\1=…, or params={'\1': …})"),
    (r"\bUse an earlier commit \(.*allow_non_finite=True", DIVERGED),
    (NULL + MADE_FOR, r'\1: drop the row, or fit with nulls="mean", "zero" or "indicator"'),
    (r"(a number float32 can hold)" + MADE_FOR, r'\1: scale the column, or pass dtype="float64"'),
    (MADE_FOR, ": drop the row, or replace the value"),
    (r"\b(is|on) (?:large_)?string\b", r"\1 text"),
    (r"\b(is|on) double\b", r"\1 float64"),
    (r"\btrain\.epochs\b", "max_iter"),
    (r"\bmodel\.(?:loss_)?params\.(\w+)", r"\1"),
    (r"\bdata\.hashed\b", "categorical"),
    (r"\bdata\.(bits|nulls|dates|text|ignore)\b", r"\1"),
    (r"\bmodel\.(rule|loss|dtype|loss_params|params)\b", r"\1"),
    (r" \(streamomd list (rules|losses)\)", r" (docs/\1)"),
    (r" in \[data\]", ""),
    (r"name some in numeric, hashed or vectors", "pass at least one column that is not ignored"),
)
"""Keys of a job, as patterns, and the estimator's parameters."""


def of_arrays(text: str) -> str:
    """A message in these words.

    >>> of_arrays("shard X, row 3, column 'age': found null, expected a number")
    "X, row 3, column 'age': found null, expected a number"
    """
    for of_files, of_x in WORDS:
        text = text.replace(of_files, of_x)
    for key, parameter in KEYS:
        text = re.sub(key, parameter, text)
    return text


def worded(function: Callable[P, T]) -> Callable[P, T]:
    """The method, whose errors speak of X and y."""

    @functools.wraps(function)
    def call(*given: P.args, **keywords: P.kwargs) -> T:
        try:
            return function(*given, **keywords)
        except StreamomdError as error:
            if error.args and isinstance(error.args[0], str):
                text, rest = of_arrays(error.args[0]), error.args[1:]
                if isinstance(error, DivergedError) and DIVERGED not in text:
                    text = f"{text}. {DIVERGED}"
                error.args = (text, *rest)
            raise

    return call
