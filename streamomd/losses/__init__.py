"""The losses. A file here (or an entry point of group ``streamomd.losses``) is its registration."""

from __future__ import annotations

import functools
import importlib
import pkgutil

from streamomd.core.installed import find, load
from streamomd.losses.contract import Loss

__all__ = ["Loss", "all_losses", "find_loss"]


@functools.cache
def all_losses() -> dict[str, Loss]:
    """Every loss by name, in the order of names."""
    names = (module.name for module in pkgutil.iter_modules(__path__))
    modules = [importlib.import_module(f"{__name__}.{name}") for name in names]
    own = [module.LOSS for module in modules if hasattr(module, "LOSS")]
    offered = [*own, *load("streamomd.losses")]
    return {loss.name: loss for loss in sorted(offered, key=lambda loss: loss.name)}


def find_loss(name: str) -> Loss:
    """The loss of that name or alias. Raises UsageError with the nearest name.

    >>> find_loss("log_loss").name
    'logistic'
    """
    known = all_losses()
    aliases = {alias: loss for loss in known.values() for alias in loss.aliases}
    return find("loss", name, {**known, **aliases})
