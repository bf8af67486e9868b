"""What all tests share: threads, and the summary of certificates."""

from __future__ import annotations

import gc
import os
import sys
import tempfile
import zlib
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from _pytest.doctest import DoctestModule

# Two test processes with two threads each would wait for one another in every small matrix product:
# L-BFGS on 10 unknowns then takes 4 ms a step. Read when numpy is first imported.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
# Hundreds of tests start a process. Where Python is not to write bytecode, each of them would
# compile the whole package again.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False
# Compiled loops are named after all that they are made of, so those of earlier runs serve: to
# compile them takes a fifth of a run. Not in a folder of all users: numba executes what it finds.
os.environ.setdefault("NUMBA_CACHE_DIR", os.path.expanduser("~/.cache/streamomd-tests"))
# Text that tests train on is converted there, not in the cache of who runs them.
os.environ.setdefault(
    "STREAMOMD_CACHE_DIR", os.path.join(tempfile.gettempdir(), f"streamomd-tests-{os.getuid()}")
)

# Workers and schedulers that wait for the next test look at their clocks, memory and threads all
# the time: two and a scheduler take a sixteenth of a processor, with these a seventieth.
for name, value in {
    "ADMIN__TICK__INTERVAL": "1s",
    "ADMIN__SYSTEM_MONITOR__INTERVAL": "5s",
    "WORKER__MEMORY__MONITOR_INTERVAL": "2s",
    "WORKER__PROFILE__ENABLED": "False",
}.items():
    os.environ.setdefault(f"DASK_DISTRIBUTED__{name}", value)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Parts of the long run."""
    text = "Run the i-th of n parts of what is selected, about equally long each, e.g. 3/12. [all]"
    parser.addoption("--part", metavar="i/n", help=text)


def is_quick(config: pytest.Config) -> bool:
    """Whether tests that are marked slow are left out."""
    return str(config.option.markexpr) in ("not slow", "smoke")


def pytest_configure(config: pytest.Config) -> None:
    """No example has a deadline, for other work may use the processors. Quick tests compile few
    loops; see ``tests/support/lazy_loops.py``."""
    # Pytest rewrites this package and saves the result only where bytecode is written (above).
    from hypothesis import settings

    settings.register_profile("no deadline", deadline=None)
    settings.load_profile("no deadline")
    config.pluginmanager.register(FewDoctests())
    if is_quick(config):
        # No power is cut while they run; tests/faults has a disk of its own that loses what was not
        # synchronized.
        os.fsync = os.fstat  # which refuses what is not open, as it does
        import lazy_loops

        from streamomd.analysis.plugin_checks.learner import Learner

        lazy_loops.install()
        Learner.__init__.__kwdefaults__["compiled"] = lazy_loops.LAZY
        os.environ.setdefault("DASK_DISTRIBUTED__WORKER__PRELOAD", repr([lazy_loops.__file__]))


def marks(obj: Any) -> list[Any]:
    """The marks of a module, a class or a function."""
    found = getattr(obj, "pytestmark", [])
    return found if isinstance(found, list) else [found]


def pytest_pycollect_makeitem(collector: Any, name: str, obj: Any) -> list[Any] | None:
    """Slow tests cost the quick run nothing: thousands of cases are not made to be deselected."""
    if not is_quick(collector.config):
        return None
    found = [*marks(collector.obj), *marks(obj)]
    slow = any(mark.name == "slow" for mark in found)
    return [] if slow and collector.istestfunction(obj, name) else None


class FewDoctests:
    """Files of the package that have ``>>>`` are searched for doctests, and no other."""

    @pytest.hookimpl(wrapper=True)
    def pytest_collect_file(self, file_path: Path) -> Any:
        """Called for each file, also outside of this folder."""
        found = yield
        if not file_path.is_relative_to(Path(__file__).parent) and b">>>" in file_path.read_bytes():
            return found
        return [one for one in found if not isinstance(one, DoctestModule)]


def pytest_collection() -> None:
    """What is imported and collected is never garbage: do not look through it again and again."""
    gc.disable()


def pytest_collection_finish(session: pytest.Session) -> None:
    """Nor while tests run."""
    gc.collect()
    gc.freeze()
    gc.enable()


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """How near each certificate comes to what was measured."""
    lines = [
        value
        for report in terminalreporter.stats.get("passed", ())
        for key, value in report.user_properties
        if key == "certificate"
    ]
    if lines:
        terminalreporter.section("certificates: median of bound / measured")
        for line in sorted(lines):
            terminalreporter.write_line(line)


@pytest.hookimpl(wrapper=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> Any:
    """Of a test with ``sample(n)`` the quick run has each n-th case, ``-m slow`` the others: which
    ones depends on the test's name, so that each rule has quick cases of some tests.

    ``-m smoke`` leaves slow tests out, also in files whose tests are all marked. ``--part`` deals
    the cases of each test to the parts in turn.
    """
    for item, number in numbered(items):
        mark = item.get_closest_marker("sample")
        if mark is not None and number % mark.args[0]:
            item.add_marker(pytest.mark.slow)
    found = yield
    if config.option.markexpr == "smoke":
        items[:] = [item for item in items if not item.get_closest_marker("slow")]
    if config.option.part:
        part, parts = map(int, config.option.part.split("/"))
        dealt = {item: number % parts == part % parts for item, number in numbered(items)}
        config.hook.pytest_deselected(items=[item for item in items if not dealt[item]])
        items[:] = [item for item in items if dealt[item]]
    return found


def numbered(items: list[pytest.Item]) -> list[tuple[pytest.Item, int]]:
    """Cases of each test, numbered one after another; tests begin at numbers of their own."""
    seen: Counter[str] = Counter()
    found = []
    for item in items:
        name = item.nodeid.partition("[")[0]
        found.append((item, zlib.crc32(name.encode()) + seen[name]))
        seen[name] += 1
    return found
