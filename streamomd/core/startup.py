"""Shortcuts that make a process start and end fast, all behind one switch.

Each reaches into another package where that package loads more than a run needs. Set the
environment variable ``STREAMOMD_FAST_START=0`` to switch all of them off: results are
bit-identical, and a command takes about a second longer. ``benchmarks/startup.py`` measures them;
docs/decisions/024-start-up.md has the figures.

Nothing is imported here but the standard library, until a function needs it.
"""

from __future__ import annotations

import atexit
import functools
import gc
import os
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, NoReturn

VARIABLE = "STREAMOMD_FAST_START"
_waiting: list[Callable[[], None]] = []
_commands: list[int] = []  # processes: this one, if it is a command's own
_DEFAULTS = {
    # 2^n clocks that OpenBLAS' threads wait for work without sleeping; by default 2^26 each.
    "OPENBLAS_THREAD_TIMEOUT": "4",
    # To find plug-ins, pydantic reads a file of every installed package.
    "PYDANTIC_DISABLE_PLUGINS": "__all__",
}


def is_fast() -> bool:
    """Whether the shortcuts are taken."""
    return os.environ.get(VARIABLE, "1") != "0"


def set_environment() -> None:
    """Set what other packages read from the environment when they are imported.

    For a command's own process, before numpy and pydantic are imported; what is set already stays.
    """
    _commands.append(os.getpid())
    for name, value in _DEFAULTS.items() if is_fast() else ():
        os.environ.setdefault(name, value)


def is_command() -> bool:
    """Whether this process is a command's own, and not one of a program that imports streamomd."""
    return os.getpid() in _commands


@contextmanager
def no_garbage_collection() -> Iterator[None]:
    """Python's garbage collector is off inside, where many objects are made that stay."""
    was_enabled = gc.isenabled()
    if is_fast():
        gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def freeze_objects() -> None:
    """Exempt all objects of this process from garbage collection: modules are never garbage."""
    if is_fast():
        gc.freeze()


@contextmanager
def hide_module(name: str) -> Iterator[None]:
    """Importing a module raises ModuleNotFoundError inside, in this thread, if it is not imported.

    For packages that only try whether another one is installed.
    """
    finder = _MissingModule(name)
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)


class _MissingModule:
    def __init__(self, name: str) -> None:
        self._name, self._thread = name, threading.get_ident()

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: object = None
    ) -> None:
        """Called by Python for each module that is imported."""
        if name == self._name and threading.get_ident() == self._thread:
            raise ModuleNotFoundError(f"{name} is hidden while another module starts", name=name)


def start_pyarrow_without_pandas() -> None:
    """Have pyarrow look for pandas now, and find none unless it is imported.

    pyarrow imports pandas, where it is installed, at the first number or list it is given, to see
    whether that is a Series: 0.2 s of processor time before the first row. A DataFrame that is
    needed later is created: then pyarrow looks again.
    """
    if is_fast():
        import pyarrow as pa

        # dateutil would convert its own intervals, which no column has.
        with hide_module("pandas"), hide_module("dateutil"):
            pa.scalar(0)


def start_numba() -> None:
    """Import numba without packages that it only looks at: a version, a file, colours.

    Each is imported when something needs it.
    """
    if not is_fast() or "numba" in sys.modules:
        return
    unused = ["scipy", "colorama"]
    unused += [] if os.path.exists(".numba_config.yaml") else ["yaml"]
    with ExitStack() as stack:
        for name in unused:
            stack.enter_context(hide_module(name))
        import numba  # noqa: F401


def arrow_function() -> Callable[[str, list[Any]], Any]:
    """pyarrow's ``call_function``, without ``pyarrow.compute``, which writes 300 docstrings."""
    if is_fast():
        from pyarrow._compute import call_function
    else:
        from pyarrow.compute import call_function
    found: Callable[[str, list[Any]], Any] = call_function
    return found


def arrow_cast(array: Any, to: Any) -> Any:
    """``array.cast(to)`` without ``pyarrow.compute``."""
    if not is_fast():
        return array.cast(to)
    from pyarrow._compute import CastOptions, call_function

    return call_function("cast", [array], CastOptions.safe(to))


@functools.cache
def load_numba_arrays() -> None:
    """Load what numba knows of arrays without SciPy's linear algebra, which is half of the time.

    numba only tries whether SciPy is installed; where ``np.dot`` is compiled, SciPy is loaded.
    """
    if not is_fast():
        return
    with hide_module("scipy.linalg"):
        from numba.np import arraymath
    found: Any = arraymath
    found._HAVE_BLAS = True


@contextmanager
def before_compiling(call: Callable[[], None]) -> Iterator[None]:
    """Inside, ``call`` is called once, before the first function that the disk cache does not have
    is compiled; not where the cache is missing or the shortcuts are off."""
    _waiting.append(call)
    try:
        yield
    finally:
        if call in _waiting:
            _waiting.remove(call)


def skip_masks(dispatcher: Any) -> None:
    """A compiled function finds the types of its arrays without ``numpy.ma``.

    numba imports it, 0.007 s, at the first array that a process passes, to refuse masked ones.
    """
    if not is_fast():
        return
    import numpy as np

    numba_own = dispatcher.typeof_pyval

    def typeof_pyval(value: Any) -> Any:
        plain = type(value) is np.ndarray and value.dtype.isnative
        if not plain or value.dtype.char not in "fdbBhHiIlLqQ?":
            return numba_own(value)
        flags = value.flags
        layout = "C" if flags.c_contiguous else "F" if flags.f_contiguous else "A"
        return _array_type(value.dtype, value.ndim, layout, readonly=not flags.writeable)

    dispatcher.typeof_pyval = typeof_pyval


@functools.cache  # numba finds a type by its address: it has to stay
def _array_type(dtype: Any, ndim: int, layout: str, *, readonly: bool) -> Any:
    import numba

    array: Any = numba.types.Array
    return array(numba.from_dtype(dtype), ndim, layout, readonly=readonly)


@functools.cache
def _name_memory_functions() -> None:
    """Give the linker the addresses of numba's functions that allocate and free memory.

    numba gives them together with four functions that it compiles in each process, 0.018 s; saved
    machine code contains its own copies of those.
    """
    import llvmlite.binding as llvm
    from numba.core.runtime import _nrt_python  # type: ignore[attr-defined]

    for name, address in _nrt_python.c_helpers.items():
        llvm.add_symbol(name if name.startswith("_") else f"NRT_{name}", address)


@functools.cache
def numba_cache() -> Any:
    """The class of numba's cache of one function on disk.

    numba's key of a function holds a pickle of its closure, in which a class that was made at run
    time is another one in each process: such a loop would be compiled in every process. Our
    functions' names hold a hash of all that they are made of (see ``core.jit`` and
    ``engine.compile``), so the key holds argument types and machine only.

    Before numba looks into its cache it loads all that a compiler knows, SciPy's linear algebra
    included: 0.4 s of processor time where loading the machine code takes 0.02. A loop that is
    found needs the addresses of numba's functions in C and nothing else; what is not found is
    compiled, which loads the rest.
    """
    from numba.core.caching import FunctionCache

    class NamedCache(FunctionCache):
        """Finds a function by its name, its argument types and the machine."""

        def _index_key(self, sig: Any, codegen: Any) -> Any:
            return sig, codegen.magic_tuple()

    if not is_fast():
        return NamedCache

    class LoopCache(NamedCache):
        """Looks into the folder before it loads the compiler."""

        def load_overload(self, sig: Any, target_context: Any) -> Any:
            """The machine code for these argument types, or None."""
            _name_memory_functions()
            numba_own: Any = super()
            overload: Any = None
            try:
                with numba_own._guard_against_spurious_io_errors():
                    overload = numba_own._load_overload(sig, target_context)
            except OSError:
                raise
            except Exception:  # a damaged pickle raises anything; the file is written again
                numba_own.flush()
            if overload is None:
                while _waiting:
                    _waiting.pop()()
                load_numba_arrays()
            return overload

    return LoopCache


def exit_now(code: int) -> NoReturn:
    """End the process from a signal handler: no exception passes through other packages' code.

    The switch does not change this one.
    """
    os._exit(code)


def end_process(code: int) -> NoReturn:
    """End the process when its threads have ended, after exit functions and a flush of streams.

    Objects are not freed one by one: after pyarrow, numba and LLVM that takes a quarter of a second
    of processor time, for memory that the system takes back anyway.
    """
    if not is_fast():
        sys.exit(code)
    ending: Any = (threading, atexit)
    ending[0]._shutdown()
    ending[1]._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        try:
            if stream is not None:  # closed before the process started
                stream.flush()
        except OSError:  # the reader has closed its end, or the disk is full
            code = code or 1
    os._exit(code)
