"""A class for each rule, whose parameters are the rule's: ``NAGClassifier(eta=0.1)``.

Each is an ``OMDClassifier`` or ``OMDRegressor`` with the rule fixed, made at its first use. Some
checks of ``check_estimator`` they cannot pass, each for a reason.
"""

from __future__ import annotations

import functools
import inspect
from typing import Any

from streamomd.config.model_table import DEFAULT
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


WEIGHTS = "sample_weight is importance: a row moves clock, scales and sums whatever it weighs"
EQUAL_WEIGHTS = (
    "check_sample_weight_equivalence_on_dense_data",
    "check_sample_weight_equivalence_on_sparse_data",
)
SUMS = ("aggressive_second_order", "rls", "vaw")
"""Rules with nothing but sums over the rows, in which a weight of 2 is the row twice; the first one
also learns no second copy of a row whose margin is 1, of which scikit-learn's rows have none."""

LEARNED = ("check_classifiers_train", "check_regressors_train")
FEW = "with its default parameters, few passes over 200 or 300 rows are not enough for it"
SIGNS = "its weights have one sign, and the classes need two"

# scikit-learn's rows are two columns around 100; at the default step the weights overflow.
FAR = ("check_fit_idempotent", "check_fit_check_is_fitted", "check_n_features_in")
DIVERGES = "its default step diverges on columns far from 0, and that is an error"
DIVERGING = ("composite", "da", "ogd", "rda")

# Of classes weighted 1000 to 0.0001 the heavy one is to win nine times in ten.
HEAVY = "check_class_weight_classifiers"
NO_SWAY = "a thousand times the weight makes its step no thousand times as long, or it has no end"
UNSWAYED = ("aggressive", "cw", "cw_diag", "pa", "perceptron", "pnorm_lms", "winnow")
ENDS = "early stopping ends before the heavier class wins nine times in ten"
ENDING = ("composite", "da", "dual_ascent", "dual_step", "ogd", "ons", "ons_diag", "pa1", "pa2",
          "pnorm", "rda")  # fmt: skip
ROWS = "it saves every row, at most 20,000, and a thousand epochs are more"


def expected_failed_checks(estimator: Any) -> dict[str, str]:
    """For ``check_estimator(estimator, expected_failed_checks=…)``: check and reason.

    It is of estimators with the default parameters of their rule, with and without early stopping.
    Regressors that need a bound on slopes (``L``) cannot be fitted with their defaults.
    """
    rule, classifies = estimator.rule or DEFAULT, estimator._classifies
    stops = bool(estimator.early_stopping)
    checks = {} if rule in SUMS else dict.fromkeys(EQUAL_WEIGHTS, WEIGHTS)
    if rule == "nag_projected" or (rule == "ng" and not classifies and not stops):
        checks[LEARNED[not classifies]] = FEW
    if rule == "winnow" and classifies:
        checks[LEARNED[0]] = SIGNS
    if rule in DIVERGING and not classifies:
        checks |= dict.fromkeys(FAR, DIVERGES)
    if not classifies:
        return checks
    if rule in UNSWAYED:
        checks[HEAVY] = NO_SWAY
    elif rule in ENDING and stops:
        checks[HEAVY] = ENDS
    elif rule == "online_svm" and not stops:
        checks[HEAVY] = ROWS
    return checks
