"""Settings of clusters."""

from __future__ import annotations

import subprocess
import sys

SCRIPT = """
import dask
with dask.config.set({"streamomd.mind-seconds": 7}):
    from streamomd.config.settings import seconds
    assert seconds("mind") == 7.0
assert seconds("mind") != 7.0
assert seconds("answer") > 0.0
"""


def test_a_context_of_dasks_configuration_leaves_the_other_settings() -> None:
    """Also one around the first import of the package: Dask removes the defaults when it ends."""
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
