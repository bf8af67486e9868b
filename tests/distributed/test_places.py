"""The places that the slow tests strike at."""

from __future__ import annotations

import pkgutil

import places
import pytest


@pytest.mark.parametrize("mode", places.PLACES)
def test_each_place_is_a_function(mode: str) -> None:
    """A renamed function would be found only by the long run."""
    kinds = places.PLACES[mode].values()
    names = [name.removeprefix(places.HERE) for kind in kinds for name, _ in kind]
    assert all(callable(pkgutil.resolve_name(name)) for name in names)
