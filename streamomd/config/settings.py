"""Settings of clusters: Dask's configuration under the key ``streamomd``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import dask

from streamomd.config.values import seconds as in_seconds
from streamomd.core.errors import UsageError

(DEFAULTS,) = dask.config.collect_yaml([str(Path(__file__).with_name("streamomd.yaml"))])
dask.config.update_defaults(DEFAULTS)


def configured(name: str) -> Any:
    """A setting, as the configuration has it."""
    # A dask.config.set around the first import of this module removes the defaults when it ends.
    return dask.config.get(f"streamomd.{name}", DEFAULTS["streamomd"][name])


def scheduler_address() -> Any:
    """The scheduler that Dask's configuration names, for all programs; None if it names none."""
    return dask.config.get("scheduler-address", None)


def seconds(name: str) -> float:
    """The setting ``name-seconds``, a number or a duration such as "5m"; see streamomd.yaml."""
    value = configured(f"{name}-seconds")
    try:
        return float(in_seconds(value))
    except (TypeError, ValueError) as error:
        raise UsageError(f"streamomd.{name}-seconds = {value!r}: {error}") from None
