"""A class for each rule, whose parameters are the rule's: ``NAGClassifier(eta=0.1)``.

Each is an ``OMDClassifier`` or ``OMDRegressor`` with the rule fixed, made at its first use.
"""

from __future__ import annotations

import functools
import inspect
from typing import Any

from streamomd.core.wording import suggestion
from streamomd.integrations.sklearn.classifier import OMDClassifier
from streamomd.integrations.sklearn.regressor import OMDRegressor
from streamomd.losses import find_loss
from streamomd.rules import all_rules
from streamomd.rules.contract import Rule

KINDS = {"Classifier": OMDClassifier, "Regressor": OMDRegressor}
REPLACED = ("self", "rule", "eta0", "params")
"""Parameters of the base class that the rule and its own parameters replace."""
_NAMES = {"ftrl_proximal": "FTRL", "adagrad": "AdaGrad", "si_adagrad": "SIAdaGrad"}
_WORDS = {
    **{word: word.upper() for word in ("nag", "ng", "ogd", "pa", "pa1", "pa2", "arow", "cw", "sop",
       "ons", "da", "rda", "eg", "rls", "vaw", "ftrl", "si", "lms", "svm", "snag")},
    "adagrad": "AdaGrad",
    "pnorm": "PNorm",
}  # fmt: skip
HOME = "streamomd.integrations.sklearn"


def class_name(rule: str) -> str:
    """The first part of the names of a rule's classes.

    >>> class_name("nag"), class_name("ftrl_proximal"), class_name("adagrad_full")
    ('NAG', 'FTRL', 'AdaGradFull')
    """
    words = rule.split("_")
    return _NAMES.get(rule) or "".join(_WORDS.get(word, word.capitalize()) for word in words)


@functools.cache
def rule_classes() -> dict[str, tuple[Rule, str]]:
    """The rule and the kind, "Classifier" or "Regressor", of each class by its name."""
    found = {}
    for name, rule in all_rules().items():
        for kind in KINDS:
            if kind == "Classifier" or _regresses(rule):
                found[class_name(name) + kind] = (rule, kind)
    return found


def _regresses(rule: Rule) -> bool:
    return not rule.losses.names or not all(find_loss(x).classifies for x in rule.losses.names)


@functools.cache
def rule_class(name: str) -> type[Any]:
    """The class of that name. Raises AttributeError for a name of no rule."""
    if name not in rule_classes():
        raise AttributeError(f"module {HOME!r} has no attribute {name!r}")
    rule, kind = rule_classes()[name]
    base = KINDS[kind]
    own = rule.parse_params({})
    common = [
        parameter for parameter in inspect.signature(base.__init__).parameters.values()
        if parameter.name not in (*REPLACED, *own)
    ]  # fmt: skip
    keyword = inspect.Parameter.KEYWORD_ONLY
    parameters = [
        inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD),
        *(inspect.Parameter(key, keyword, default=value) for key, value in own.items()),
        *(parameter.replace(kind=keyword) for parameter in common),
    ]
    signature = inspect.Signature(parameters)

    def init(self: Any, **given: Any) -> None:
        for key in given:
            if key not in signature.parameters:
                known = [parameter for parameter in signature.parameters if parameter != "self"]
                raise TypeError(f"{name}() has no argument {key!r}; {suggestion(key, known)}")
        bound = signature.bind(self, **given)
        bound.apply_defaults()
        for key, value in bound.arguments.items():
            if key != "self":
                setattr(self, key, value)

    init.__signature__ = signature  # type: ignore[attr-defined]  # scikit-learn reads it
    names = ", ".join(own)
    text = (
        f"{base.__name__} with rule {rule.name!r}: {rule.title}.\n\n    Parameters of the rule, by "
        f"name: {names}. See docs/rules/{rule.name}.md; the others are those of {base.__name__}."
    )
    return type(name, (base,), {
        "__init__": init, "__doc__": text, "__module__": HOME, "rule": rule.name, "eta0": None,
        "params": property(lambda self: {key: getattr(self, key) for key in own}),
    })  # fmt: skip
