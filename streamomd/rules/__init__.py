"""The rules. A file here (or an entry point of group ``streamomd.rules``) is its registration."""

from __future__ import annotations

import functools
import importlib
import pkgutil

from streamomd._plugins import find, load
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
    return find("rule", name, all_rules())
