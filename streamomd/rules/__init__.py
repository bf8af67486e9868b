"""The rules. A file here (or an entry point of group ``streamomd.rules``) is its registration."""

from __future__ import annotations

import functools
import importlib
import pkgutil

from streamomd.core.registry import find, load, offers
from streamomd.rules.contract import Rule

GROUP = "streamomd.rules"


@functools.cache
def all_rules() -> dict[str, Rule]:
    """Every rule by name, in the order of names."""
    names = (module.name for module in pkgutil.iter_modules(__path__))
    modules = [importlib.import_module(f"{__name__}.{name}") for name in names]
    own = [module.RULE for module in modules if hasattr(module, "RULE")]
    return {rule.name: rule for rule in sorted([*own, *load(GROUP)], key=lambda rule: rule.name)}


def find_rule(name: str) -> Rule:
    """The rule of that name. Raises UsageError with the nearest name.

    >>> find_rule("nag").source
    'Ross, Mineiro & Langford 2013, algorithm 2'
    """
    return _own(name) or find("rule", name, all_rules())


@functools.cache
def _own(name: str) -> Rule | None:
    """The rule in the file of that name: to read all of them takes 0.1 s more.

    None where packages offer rules, too: one of theirs may have that name.
    """
    files = (module.name for module in pkgutil.iter_modules(__path__))
    if name not in files or offers(GROUP):
        return None
    return getattr(importlib.import_module(f"{__name__}.{name}"), "RULE", None)
