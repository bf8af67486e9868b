"""Light rows from the 24th on instead of the 1,024th, for comparisons with the oracle."""

from __future__ import annotations

import pytest
from auto import Auto, Floats

from streamomd.rules.common import pooled


class EarlyAuto(Auto):
    """The oracle with small constants, and how many light rows there were."""

    FROM, LIGHT, THIN, THINNEST, OFTEN, SELDOM = 24, 0.4, 24, 4, 8, 16
    light = entered = waits = 0

    def is_light(self, z: Floats, h: float) -> bool:
        found = super().is_light(z, h)
        self.light += found
        return found

    def entering(self) -> float:
        found = super().entering()
        self.entered += found > 0.0
        return found

    def take_pools(self) -> bool:
        found = super().take_pools()
        self.waits += found
        return found


def set_early(monkeypatch: pytest.MonkeyPatch) -> None:
    """The uncompiled engine with the constants of ``EarlyAuto``."""
    for name in ("FROM", "LIGHT", "THIN", "THINNEST", "OFTEN", "SELDOM"):
        monkeypatch.setattr(pooled, name, getattr(EarlyAuto, name))
