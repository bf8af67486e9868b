"""Compile one loop for one rule, loss and shape: the one place where numba compiles.

A compiled loop is cached on disk under a name of its own that holds a hash of the files of the
functions it reaches and of the constants they read, so a second process compiles nothing, an edited
rule or helper is recompiled, an edit elsewhere recompiles nothing, and no two loops share an index
file (numba's index is read, changed and written back: two loops in one would race). Where no cache
can be written the loop is compiled for this process alone.

To compile one takes 1 to 7 s; a hundred rows in plain Python take less than a second, with the same
bits. So what is not in the disk cache is compiled once this process has done some work without:
a small table needs no compiled loop, and the first rows of a large one do not wait.
"""

from __future__ import annotations

import functools
import hashlib
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

import llvmlite.binding as llvm
import numpy as np
from numba import config, types
from numba.extending import register_jitable

from streamomd.core import jit
from streamomd.engine.loops import (  # fmt: skip
    cache_prefetch,
    sparse,
)
from streamomd.engine.loops.row import Shape
from streamomd.engine.operations import OPERATIONS
from streamomd.losses import Loss
from streamomd.rules.contract import Rule

ENOUGH = 1 << 21
"""Numbers that plain Python looks at in all, in about a second."""
OF_VALUE, OF_SOLVE = 8, 4
"""What a value of a row counts, for a weight has slots, each with a formula; and what a number of a
matrix does that is inverted."""


class _Budget:
    left = float(ENOUGH)


def work_of(rows: int, values: int, learners: int, matrices: tuple[Any, ...]) -> float:
    """Numbers that a loop over rows looks at. values: of all rows. matrices: arrays that each row
    may look at."""
    each = sum(one.size for one in matrices if isinstance(one, np.ndarray))
    return float(rows * each + OF_VALUE * learners * values)


def is_early(work: float, is_saved: Callable[[], bool]) -> bool:
    """Whether plain Python does for this call. is_saved: whether the disk cache has the loop."""
    # While loops are recorded for the cache all of them are wanted, however little they do.
    if _Budget.left < work or jit.is_recording() or is_saved():
        return False
    _Budget.left -= work
    return True


def as_compiled(loop: Callable[..., Any]) -> Callable[..., Any]:
    """A plain loop that, as a compiled one, warns of no overflow, and that Ctrl-C does not end in
    the middle of a row: KeyboardInterrupt is raised after it."""

    @functools.wraps(loop)
    def run(*given: Any) -> Any:
        with np.errstate(all="ignore"), _interrupt_after():
            return loop(*given)

    return run


@contextmanager
def _interrupt_after() -> Iterator[None]:
    """Where Ctrl-C would raise, have it raise at the end."""
    handler = signal.getsignal(signal.SIGINT)
    is_main = threading.current_thread() is threading.main_thread()
    # Only the main thread may set a handler; one that is not Python's own has its reasons.
    if not is_main or handler is not signal.default_int_handler:
        yield
        return
    came: list[int] = []
    signal.signal(signal.SIGINT, lambda number, frame: came.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)
    if came:
        raise KeyboardInterrupt


FOREIGN = ("numpy", "numba", "math")
UNCOUNTED = ("streamomd.engine.loops", "streamomd.losses", "streamomd.rules")
"""Where functions that do not name numpy make no arrays."""
LANES = 4  # float64 of a vector, on most processors
VECTORS = {"-vectorizer-min-trip-count": (4, 16), "-unroll-full-max-count": (2, 2**32 - 1)}
"""Options of LLVM, by which loops of 4, 8 or 12 turns become vector instructions as longer ones do,
and their defaults, by which such loops are written out turn by turn. They change speed and no bit.
"""
OPTIONS = (__file__, jit.__file__, cache_prefetch.__file__)
"""Files that say how every loop is compiled, and one whose function has a compiled form of its own.
"""


@functools.cache
def compiled_loop(
    operation: str, rule: Rule, loss: Loss, shape: Shape, cell: str, value: str
) -> Any:
    """The loop of an operation, compiled for cells and values of these dtypes."""
    of = OPERATIONS[operation]
    make, signature = of.maker(rule), of.signature(rule, cell, value)
    loop = _named_loop(operation, rule, loss, shape, cell, value)
    if _is_uncounted(loop):
        loop.__dict__["uncounted"] = True
    for function in _reached(loop):
        _name_apart(function, loop.__name__)
        _register(function, function is rule.step or "inlined" in function.__dict__)
    whole = make.__module__ == sparse.__name__ and shape.learners % LANES == 0
    # 8 learners of NAG or SNAG take half the time, of NG the same; of ADAGRAD and OGD, which align
    # nothing, up to a quarter more, and 7 of NAG a tenth more.
    short = _short_vectors() if whole and rule.align is not None else nullcontext()
    with short, _dot_products() if rule.storage.kind == "block" else nullcontext():
        return jit.compile_cached(loop, signature)


@functools.cache
def is_loop_saved(
    operation: str, rule: Rule, loss: Loss, shape: Shape, cell: str, value: str
) -> bool:
    """Whether the disk cache has the loop that ``compiled_loop`` gives."""
    return jit.is_saved(_named_loop(operation, rule, loss, shape, cell, value))


def plain_loop(operation: str, rule: Rule, loss: Loss, shape: Shape) -> Any:
    """The same as plain Python."""
    of = OPERATIONS[OPERATIONS[operation].plain or operation]
    return of.maker(rule)(rule, loss, shape)


@functools.cache
def compiled_function(function: FunctionType, signature: Any) -> Any:
    """A function that serves every rule and loss, compiled."""
    made = _named_function(function)
    for called in _reached(made):
        _register(called, "inlined" in called.__dict__)
    with _dot_products():
        return jit.compile_cached(made, signature)


@functools.cache
def is_function_saved(function: FunctionType) -> bool:
    """Whether the disk cache has what ``compiled_function`` gives."""
    return jit.is_saved(_named_function(function))


@functools.cache
def _named_function(function: FunctionType) -> FunctionType:
    made = FunctionType(function.__code__, function.__globals__, function.__name__)
    digest = _digest(made, *OPTIONS)
    made.__name__ = made.__qualname__ = f"{function.__name__}_{digest.hexdigest()[:10]}"
    return made


@functools.cache
def _named_loop(
    operation: str, rule: Rule, loss: Loss, shape: Shape, cell: str, value: str
) -> FunctionType:
    of = OPERATIONS[operation]
    make, signature = of.maker(rule), of.signature(rule, cell, value)
    loop: FunctionType = make(rule, loss, shape)
    words = [make.__name__, rule.name, loss.name, *(str(int(part)) for part in shape)]
    # The same rule compiles without that code where no learner takes implicit steps.
    words += ["implicit"] * (bool(rule.row.implicit) and loss.along is not None)
    words += [str(part.dtype) for part in signature if isinstance(part, types.Array)]
    loop.__name__ = loop.__qualname__ = "_".join([*words, stamp(rule, loss, loop)])
    return loop


@contextmanager
def _short_vectors() -> Iterator[None]:
    """Compile with ``VECTORS`` while inside."""
    for name, (value, _) in VECTORS.items():
        llvm.set_option("streamomd", f"{name}={value}")
    try:
        yield
    finally:
        for name, (_, default) in VECTORS.items():
            llvm.set_option("streamomd", f"{name}={default}")


@contextmanager
def _dot_products() -> Iterator[None]:
    """Compile statements side by side to vector instructions while inside, as the eight sums of
    ``block_row.dot``: numba alone does so for loops. It changes no bit."""
    settings: Any = config
    before, settings.SLP_VECTORIZE = settings.SLP_VECTORIZE, 1
    try:
        yield
    finally:
        settings.SLP_VECTORIZE = before


def stamp(rule: Rule, loss: Loss, loop: FunctionType) -> str:
    """A hash of all that a loop of this rule and loss is made of: sources, and constants.

    It is the only key of the loop on disk: see ``core.startup.numba_cache``.
    """
    digest = _digest(loop, *OPTIONS)
    # A rule with accounts for its certificate has the name and the file of the one without.
    digest.update(repr((rule.own_slots, rule.shared_slots, rule.total_slots)).encode())
    found: str = digest.hexdigest()[:10]
    return found


def _digest(function: FunctionType, *more: str) -> hashlib._Hash:
    """A hash of a function, of all that it reaches, and of more files.

    Files count whole, because a function made inside another depends on both. What a function reads
    from other files counts by its value, and those files do not.
    """
    reached = (function, *_reached(function))
    files = sorted({called.__code__.co_filename for called in reached} | {*more})
    digest = hashlib.sha256(b"".join(map(_text, files)))
    made = [(_given_name(called), _constants(called)) for called in reached]
    digest.update(repr(made).encode())
    return digest


@functools.cache
def _text(file: str) -> bytes:
    return Path(file).read_bytes()


def _constants(function: FunctionType) -> list[str]:
    """What a function closes over and reads of modules, in words that are the same in every
    process. Functions among it are reached, and named there."""
    closed = [cell.cell_contents for cell in function.__closure__ or ()]
    return [_in_words(value) for value in (*_read(function), *closed)]


def _in_words(value: Any) -> str:
    if isinstance(value, type):
        return f"{value.__name__}{getattr(value, '_fields', ())}"
    if isinstance(value, FunctionType):
        return _given_name(value)
    # By its bytes: repr would shorten a long table.
    if isinstance(value, np.ndarray):
        return value.tobytes().hex()
    if isinstance(value, (list, tuple)):
        return f"({', '.join(_in_words(one) for one in value)})"
    if value is None or isinstance(value, (int, float, str)):
        return repr(value)
    return type(value).__name__


def _name_apart(function: FunctionType, loop: str) -> None:
    """Name a function made inside another after the loop it is made for.

    A compiled function's symbol is its name and a number that each process counts for itself. Of
    two equal symbols, one loaded from the disk and one compiled here, the linker takes the first:
    what a factory makes with other constants must not have the same name.
    """
    if "<locals>" in function.__qualname__:
        function.__dict__["given_name"] = function.__qualname__
        function.__name__ = function.__qualname__ = f"{function.__name__}_{loop}"


def _given_name(function: FunctionType) -> str:
    """A function's name as it was made: which loop it was first compiled for says nothing."""
    found: str = function.__dict__.get("given_name", function.__qualname__)
    return found


@functools.cache
def _register(function: FunctionType, inline: bool) -> None:
    """Let compiled code call a plain function.

    No C code calls it: without a wrapper for that a loop compiles in four fifths of the time.
    """
    counts = not _is_uncounted(function)
    register_jitable(no_cfunc_wrapper=True, forceinline=inline, _nrt=counts)(function)


def _is_uncounted(function: FunctionType) -> bool:
    """Whether compiled code need not count references to arrays: a loop's function that makes none.

    Atomic, the counts took 40 % of the time of loops that give slices of arrays to functions.
    """
    return function.__module__.startswith(UNCOUNTED) and "np" not in function.__code__.co_names


def _reached(loop: FunctionType) -> dict[FunctionType, None]:
    """Every plain function of ours that a loop calls, directly or through another."""
    found: dict[FunctionType, None] = {}
    ahead = [loop]
    while ahead:
        for called in _called(ahead.pop()):
            if called not in found:
                found[called] = None
                ahead.append(called)
    return found


def _read(function: FunctionType) -> list[Any]:
    """What a function reads of its module, and of the modules that it names."""
    names = function.__code__.co_names
    named = [function.__globals__[name] for name in names if name in function.__globals__]
    # A name after a dot is a name of the code, too: it may be one of that module.
    modules = [module for module in named if isinstance(module, ModuleType)]
    inside = [vars(module)[name] for module in modules for name in names if name in vars(module)]
    return [value for value in (*named, *inside) if not isinstance(value, ModuleType)]


def _called(function: FunctionType) -> Iterator[FunctionType]:
    """The plain functions that a function names, or closes over."""
    closed = [cell.cell_contents for cell in function.__closure__ or ()]
    for called in (*_read(function), *closed):
        # The prefetch has a compiled form of its own.
        ours = isinstance(called, FunctionType) and not called.__module__.startswith(FOREIGN)
        if ours and called.__module__ != cache_prefetch.__name__:
            yield called
