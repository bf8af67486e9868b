"""What all tests share: threads, and the summary of certificates."""

from __future__ import annotations

import os
import sys
import tempfile
from typing import Any

import pytest

# Two test processes with two threads each would wait for one another in every small matrix product:
# L-BFGS on 10 unknowns then takes 4 ms a step. Read when numpy is first imported.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
# Hundreds of tests start a process. Where Python is not to write bytecode, each of them would
# compile the whole package again.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False
# Text that tests train on is converted there, not in the cache of who runs them.
os.environ.setdefault(
    "STREAMOMD_CACHE_DIR", os.path.join(tempfile.gettempdir(), f"streamomd-tests-{os.getuid()}")
)


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


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """``-m smoke`` leaves slow tests out, also in files whose tests are all marked."""
    if config.option.markexpr == "smoke":
        items[:] = [item for item in items if not item.get_closest_marker("slow")]
