"""The table test: what the papers' catalogue names is there.

Literal on purpose: a parameter or choice of these rules that is added or removed is also said here.
A rule that is not in the papers needs no line: it is held by ``check_rule`` and the tests below.
"""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Iterator
from dataclasses import is_dataclass
from types import FunctionType, ModuleType
from typing import Any

import pytest

from streamomd.config.spec import Spec
from streamomd.losses import all_losses
from streamomd.rules import all_rules
from streamomd.rules.contract import Certificate, Rule
from streamomd.rules.params import Choice, kinds

PARAMETERS = {
    # First order, fixed regularizer
    "perceptron": "C",
    "winnow": "C eta",
    "eg": "U C eta",
    "pnorm": "p C",
    "dual_step": "link C gamma U p",
    "pa": "",
    "pa1": "C",
    "pa2": "C",
    "dual_ascent": "k C tolerance link U p",
    "online_svm": "C tolerance most",
    "aggressive": "p",
    "ogd": "eta schedule ball radius project_every",
    "pnorm_lms": "p",
    # Adaptive FTRL, RDA, composite
    "da": "eta schedule ball radius",
    "rda": "gamma l1 l2 box",
    "composite": "schedule eta l1 l2 box",
    "ftrl_proximal": "alpha beta radius l1 l2 box charge ball",
    "ftrl_centered": "radius l1 l2 L",
    "adagrad": "eta delta l1 l2 box ball radius project_every",
    "adagrad_da": "eta delta l1 l2 box ball radius project_every L",
    "adagrad_full": "update eta delta l1 l2 box ball radius every limit",
    # Scale-free and normalized
    "ng": "eta schedule",
    "nag": "eta",
    "snag": "eta squash",
    "nag_projected": "C passes norm clip project_every p",
    "si_pnorm": "eta L",
    "si_adagrad": "eta L",
    # Second order, and their diagonals
    "vaw": "a limit",
    "rls": "a limit",
    "sop": "limit",
    "aggressive_second_order": "r scale limit",
    "arow": "r limit",
    "cw": "confidence a form limit",
    "ons": "epsilon gamma ball radius limit",
    "sop_diag": "r",
    "aggressive_second_order_diag": "r scale",
    "arow_diag": "r",
    "cw_diag": "confidence a form",
    "ons_diag": "epsilon gamma ball radius project_every",
}
# Those whose weights move in proportion to the step: elsewhere the exact step along the row has no
# closed form.
GRADIENT = ("ogd", "da", "adagrad", "adagrad_full", "ng", "nag", "snag", "ons", "ons_diag")
"""The gradient rules, which all take ``implicit`` too."""
for gradient in GRADIENT:
    PARAMETERS[gradient] += " implicit"
SCHEDULES, BALLS = ("constant", "sqrt", "inverse"), ("none", "box", "l2", "l1")
CHOICES = {
    "dual_step.link": ("l2", "winnow", "eg", "pnorm"),
    "dual_ascent.link": ("l2", "winnow", "eg", "pnorm"),
    "ogd.schedule": (*SCHEDULES, "adaptive"),
    "da.schedule": SCHEDULES,
    "ng.schedule": SCHEDULES,
    "composite.schedule": ("constant", "sqrt", "strong"),
    "ogd.ball": BALLS,
    "da.ball": ("none", "l2"),
    "ftrl_proximal.ball": ("none", "l1", "l2"),
    "adagrad_full.ball": ("none", "l2"),
    "adagrad.ball": ("none", "l1", "l2"),
    "adagrad_da.ball": ("none", "l1", "l2"),
    "ons.ball": ("none", "l2"),
    "ons_diag.ball": ("none", "l1", "l2"),
    "nag_projected.norm": ("l1", "l2", "lq"),
    "ftrl_proximal.charge": ("every", "once"),
    "adagrad_full.update": ("mirror", "dual"),
    "aggressive_second_order.scale": ("unit", "arow"),
    "aggressive_second_order_diag.scale": ("unit", "arow"),
    "cw.form": ("stdev", "variance"),
    "cw_diag.form": ("stdev", "variance"),
}
# Each row of the catalogue's tables and each option it names: the rule, its parameters, a loss.
ROWS: tuple[tuple[Any, ...], ...] = (
    ("Perceptron (C)", "perceptron", {"C": 2.0}),
    ("Winnow (simplex), on mistakes", "winnow", {"C": 0.5}, "hinge"),
    ("exponentiated gradient on the simplex", "winnow", {"eta": 0.5}, "logistic"),
    ("balanced Winnow", "eg", {"U": 2.0, "C": 0.5}, "hinge"),
    ("EG±", "eg", {"U": 2.0, "eta": 0.5}, "square"),
    ("p-norm, p ≥ 2", "pnorm", {"p": 3.0, "C": 2.0}),
    ("aggressive dual step, L2", "dual_step", {"link": "l2", "C": 0.5, "gamma": 0.5}),
    ("aggressive dual step, Winnow", "dual_step", {"link": "winnow"}),
    ("aggressive dual step, EG±", "dual_step", {"link": "eg", "U": 2.0}),
    ("aggressive dual step, p-norm", "dual_step", {"link": "pnorm", "p": 3.0}),
    ("PA", "pa", {}),
    ("PA-I", "pa1", {"C": 0.5}),
    ("PA-II", "pa2", {"C": 0.5}),
    ("last-k dual ascent, k = 1", "dual_ascent", {"k": 1, "C": 0.5}),
    ("last-k dual ascent, k = 2", "dual_ascent", {"k": 2}),
    ("last-k dual ascent, larger k", "dual_ascent", {"k": 10, "tolerance": 1e-6}),
    ("last-k dual ascent, L2", "dual_ascent", {"link": "l2"}),
    ("last-k dual ascent, Winnow", "dual_ascent", {"link": "winnow"}),
    ("last-k dual ascent, EG±", "dual_ascent", {"link": "eg", "U": 2.0}),
    ("last-k dual ascent, p-norm", "dual_ascent", {"link": "pnorm", "p": 3.0}),
    ("Online-SVM", "online_svm", {"C": 0.5, "tolerance": 0.01}),
    ("optimal aggressive, L2", "aggressive", {"p": 2.0}),
    ("optimal aggressive, p-norm", "aggressive", {"p": 3.0}),
    ("OGD, eta", "ogd", {"eta": 0.5, "schedule": "constant"}),
    ("OGD, eta / sqrt(t)", "ogd", {"schedule": "sqrt"}),
    ("OGD, eta / t", "ogd", {"schedule": "inverse"}),
    ("OGD, scalar adaptive step", "ogd", {"schedule": "adaptive", "ball": "l2", "radius": 1.0}),
    ("OGD in a box", "ogd", {"ball": "box", "radius": 1.0}),
    ("OGD in an L2 ball", "ogd", {"ball": "l2", "radius": 1.0}),
    ("OGD in an L1 ball", "ogd", {"ball": "l1", "radius": 1.0}),
    ("OGD in an L1 ball, above 10^6", "ogd", {"ball": "l1", "radius": 1.0, "project_every": 9}),
    ("LMS (Widrow-Hoff)", "ogd", {"schedule": "constant"}, "square"),
    ("p-norm LMS, adaptive", "pnorm_lms", {"p": 3.0}, "square"),
    ("dual averaging", "da", {"eta": 0.5}),
    ("dual averaging, eta", "da", {"schedule": "constant"}),
    ("dual averaging, eta / sqrt(T)", "da", {"schedule": "sqrt"}),
    ("dual averaging, eta / T", "da", {"schedule": "inverse"}),
    ("dual averaging in an L2 ball", "da", {"ball": "l2", "radius": 1.0}),
    ("RDA, L1", "rda", {"gamma": 2.0, "l1": 0.1}),
    ("RDA, L2 and a box", "rda", {"l2": 0.1, "box": 1.0}),
    ("composite OMD, first schedule", "composite", {"schedule": "constant", "l1": 0.1}),
    ("composite OMD, second", "composite", {"schedule": "sqrt", "eta": 0.5, "box": 1.0}),
    ("composite OMD, third", "composite", {"schedule": "strong", "l2": 0.1}),
    ("FTRL-Proximal, alpha and beta", "ftrl_proximal", {"alpha": 0.5, "beta": 0.5}),
    ("FTRL-Proximal, radius", "ftrl_proximal", {"radius": 1.0, "box": 1.0}),
    ("FTRL-Proximal, k = T", "ftrl_proximal", {"l1": 0.1, "charge": "every"}),
    ("FTRL-Proximal, k = 1", "ftrl_proximal", {"l1": 0.1, "l2": 0.1, "charge": "once"}),
    ("FTRL-Proximal in an L1 ball", "ftrl_proximal", {"ball": "l1", "radius": 1.0}),
    ("FTRL-Proximal in an L2 ball", "ftrl_proximal", {"ball": "l2", "radius": 1.0}),
    ("FTRL-Centered AdaGrad", "ftrl_centered", {"radius": 2.0, "l1": 0.1, "l2": 0.1}),
    ("… with L given", "ftrl_centered", {"L": 2.0}, "square"),
    ("AdaGrad diagonal, mirror descent", "adagrad", {"eta": 0.1, "delta": 0.1}),
    ("… lazily, L1 and L2", "adagrad", {"l1": 0.1, "l2": 0.1}),
    ("… box", "adagrad", {"box": 1.0}),
    ("… φ = L1 ball", "adagrad", {"ball": "l1", "radius": 1.0}),
    ("… φ = L2 ball", "adagrad", {"ball": "l2", "radius": 1.0, "project_every": 9}),
    ("AG, the baseline of P1", "adagrad", {"delta": 0.0}),
    ("AdaGrad diagonal, primal-dual", "adagrad_da", {"eta": 0.1, "delta": 0.1}),
    ("… δ = L max abs(x)", "adagrad_da", {"L": 1.0}),
    ("… L1 and L2", "adagrad_da", {"l1": 0.1, "l2": 0.1}),
    ("… box", "adagrad_da", {"box": 1.0}),
    ("… φ = L1 ball", "adagrad_da", {"ball": "l1", "radius": 1.0, "delta": 0.1}),
    (
        "… φ = L2 ball",
        "adagrad_da",
        {"ball": "l2", "radius": 1.0, "delta": 0.1, "project_every": 9},
    ),
    ("AdaGrad full matrix, mirror descent", "adagrad_full", {"update": "mirror", "eta": 0.1}),
    ("AdaGrad full matrix, primal-dual", "adagrad_full", {"update": "dual", "delta": 0.1}),
    ("… L1", "adagrad_full", {"l1": 0.1}),
    ("… L2", "adagrad_full", {"l2": 0.1}),
    ("… box", "adagrad_full", {"box": 1.0}),
    ("… in an L2 ball", "adagrad_full", {"ball": "l2", "radius": 1.0}),
    ("… the root every k rows", "adagrad_full", {"every": 9}),
    ("NG", "ng", {"eta": 0.1}),
    ("NG, eta_t", "ng", {"schedule": "constant"}),
    ("NG, eta_t", "ng", {"schedule": "sqrt"}),
    ("NG, eta_t", "ng", {"schedule": "inverse"}),
    ("NAG", "nag", {"eta": 0.1}),
    ("sNAG", "snag", {"eta": 0.1}),
    ("… squashed, as NAG", "snag", {"squash": True}),
    ("NAG projected, streaming", "nag_projected", {"C": 2.0, "passes": 1, "norm": "l1"}),
    ("NAG projected, transductive", "nag_projected", {"passes": 2}),
    ("NAG projected, p = 2", "nag_projected", {"norm": "l2"}),
    ("NAG projected, any p", "nag_projected", {"norm": "lq", "p": 3.0}),
    ("NAG projected, yhat clipped", "nag_projected", {"clip": True, "project_every": 9}),
    ("SI p-norm", "si_pnorm", {"eta": 0.1, "L": 1.0}),
    ("SI AdaGrad", "si_adagrad", {"eta": 0.1, "L": 1.0}),
    ("Vovk-Azoury-Warmuth", "vaw", {"a": 2.0}, "square"),
    ("online ridge / RLS", "rls", {"a": 2.0}, "square"),
    ("second-order Perceptron", "sop", {}),
    ("aggressive second-order, yx", "aggressive_second_order", {"r": 2.0, "scale": "unit"}),
    ("aggressive second-order, yx/r", "aggressive_second_order", {"scale": "arow"}),
    ("AROW", "arow", {"r": 2.0}),
    ("CW, stdev", "cw", {"confidence": 0.9, "a": 2.0, "form": "stdev"}),
    ("CW, variance", "cw", {"form": "variance"}),
    ("Online Newton Step", "ons", {"epsilon": 2.0, "gamma": 0.5}),
    ("… projected", "ons", {"ball": "l2", "radius": 1.0}),
    ("diagonal second-order Perceptron", "sop_diag", {"r": 2.0}),
    ("diagonal aggressive, yx", "aggressive_second_order_diag", {"r": 2.0, "scale": "unit"}),
    ("diagonal aggressive, yx/r", "aggressive_second_order_diag", {"scale": "arow"}),
    ("diagonal AROW, mean form", "arow_diag", {"r": 2.0}),
    ("diagonal CW, stdev", "cw_diag", {"confidence": 0.9, "a": 2.0, "form": "stdev"}),
    ("diagonal CW, variance", "cw_diag", {"form": "variance"}),
    ("diagonal ONS", "ons_diag", {"epsilon": 2.0, "gamma": 0.5}),
    ("… projected, L1", "ons_diag", {"ball": "l1", "radius": 1.0}),
    ("… projected, L2", "ons_diag", {"ball": "l2", "radius": 1.0, "project_every": 9}),
    *(("implicit steps", rule, {"implicit": True}) for rule in GRADIENT),
)
UNPROVEN = {"ng", "nag", "snag", "cw", "pa", "pa2", "arow_diag", "cw_diag", "ons_diag"}
"""What has no certificate in the papers."""

LOSSES = {
    "square": "",
    "absolute": "",
    "huber": "threshold",
    "epsilon_insensitive": "epsilon",
    "pinball": "tau",
    "hinge": "",
    "gamma_hinge": "gamma",
    "squared_hinge": "",
    "logistic": "",
    "poisson": "",
    "gamma": "",
    "tweedie": "power",
    "log_square": "",
    "softmax": "",
}
LIPSCHITZ = {
    "absolute": 1.0, "epsilon_insensitive": 1.0, "hinge": 1.0, "gamma_hinge": 1.0,
    "logistic": 1.0, "softmax": 1.0, "pinball": 0.8, "huber": 2.5,
}  # fmt: skip
IMPLICIT = {"square", "hinge", "logistic"}


def choices() -> dict[str, tuple[str, ...]]:
    """Every parameter of the catalogue's rules that is a choice of words, as it is."""
    found = {}
    for rule in (all_rules()[name] for name in PARAMETERS):
        for name, kind in kinds(rule.hyper).items():
            if isinstance(kind, Choice):
                found[f"{rule.name}.{name}"] = kind.words
    return found


def same(named: set[str], found: set[str]) -> None:
    """Fails naming all that is missing and all that is unlisted."""
    lists = {"missing": sorted(named - found), "unlisted": sorted(found - named)}
    told = [f"{what}: {', '.join(names)}" for what, names in lists.items() if names]
    if told:
        pytest.fail("\n".join(told), pytrace=False)


def dotted(table: dict[str, Any]) -> set[str]:
    """owner.name of every name."""
    return {f"{owner}.{name}" for owner, names in table.items() for name in names}


def test_every_rule_is_named() -> None:
    """No rule of the catalogue is missing."""
    same(set(PARAMETERS), set(all_rules()) & set(PARAMETERS))


def test_every_parameter_is_named() -> None:
    """Their parameters; a rule that is missing is told above."""
    found = {name: list(kinds(all_rules()[name].hyper)) for name in PARAMETERS}
    named = {name: words.split() for name, words in PARAMETERS.items()}
    same(dotted(named), dotted(found))


def test_every_choice_is_named() -> None:
    """The words that a parameter may be."""
    found = choices()
    named = {name: words for name, words in CHOICES.items() if name.split(".")[0] in all_rules()}
    same(dotted(named), dotted(found))


def test_every_row_can_be_asked_for() -> None:
    """Each row of the tables is a rule with parameters that a job may name, and that can begin."""
    for title, rule, params, *loss in ROWS:
        table = {"rule": rule, "loss": (loss or [""])[0], "params": params}
        model, found = Spec.parse({"model": table}).model, all_rules()[rule]
        for name, value in params.items():
            assert model.params[name] == value, title
        if found.state.begin is not None:
            found.state.begin(10.0, found.hyper_of(model.params))


def test_every_rule_and_option_is_in_a_row() -> None:
    """No rule, parameter or word without a row. Being off is none, nor is a guard of size."""
    asked = {rule: set[str]() for _, rule, *_ in ROWS}
    for _, rule, params, *_ in ROWS:
        asked[rule] |= set(params) | {f"{name}={value}" for name, value in params.items()}
    wanted = {rule: set(names.split()) - {"limit", "most"} for rule, names in PARAMETERS.items()}
    for choice, words in CHOICES.items():
        rule, name = choice.split(".")
        wanted[rule] |= {f"{name}={word}" for word in words if word != "none"}
    same(dotted(wanted), dotted(wanted) & dotted(asked))


def test_every_loss_is_named() -> None:
    """The losses and their parameters."""
    same(set(LOSSES), set(all_losses()))
    found = {name: list(loss.parse_params({})) for name, loss in all_losses().items()}
    assert found == {name: words.split() for name, words in LOSSES.items()}


def test_slopes_are_bounded_as_named() -> None:
    """L of each loss that has one, of parameters away from their defaults where it depends."""
    given = {"pinball": {"tau": 0.2}, "huber": {"threshold": 2.5}}
    found = {
        name: loss.lipschitz(loss.numbers(given.get(name, {})))
        for name, loss in all_losses().items()
        if loss.lipschitz is not None
    }
    assert found == LIPSCHITZ


def test_implicit_steps_have_their_losses() -> None:
    """Square, hinge and logistic are followed exactly along a row."""
    assert {name for name, loss in all_losses().items() if loss.along is not None} >= IMPLICIT


@pytest.mark.parametrize("name", all_rules())
def test_a_rule_says_what_it_is(name: str) -> None:
    """Title, source, docstring with cost and a score, and a certificate or why there is none."""
    rule = all_rules()[name]
    doc = inspect.getdoc(importlib.import_module(f"streamomd.rules.{name}")) or ""
    assert rule.title
    assert rule.source
    assert re.search(rf'^>>> .*score\("{name}"', doc, re.M)
    assert "O(" in doc
    if name in PARAMETERS:
        assert (rule.certificate.claims is None) == (name in UNPROVEN)
    assert rule.certificate.claims or rule.certificate.reason


NOT_COMPILED = {"begin", "ahead", "largest", "narrowed", "reduced", "older"}


def functions(group: object) -> Iterator[FunctionType]:
    """The functions of a rule, or of a group of it, that loops call."""
    for name, part in vars(group).items():
        if isinstance(part, FunctionType) and name not in NOT_COMPILED:
            yield part
        elif is_dataclass(part) and not isinstance(part, Certificate | Rule):
            yield from functions(part)


def compiled(rule: Rule) -> Iterator[FunctionType]:
    """Every function of a rule that a loop calls, directly or through another, its accounts too."""
    forms = (rule, rule.certificate.accounted)
    ahead = [function for form in forms if form for function in functions(form)]
    seen = set[FunctionType]()
    while ahead:
        function = ahead.pop()
        if function not in seen:
            seen.add(function)
            yield function
            named = [function.__globals__.get(name) for name in function.__code__.co_names]
            ahead += [called for called in named if isinstance(called, FunctionType)]


@pytest.mark.parametrize("rule", all_rules().values(), ids=lambda rule: rule.name)
def test_rules_call_by_name(rule: Rule) -> None:
    """What is compiled names its helpers, and no module but math: ``module.helper`` would be
    neither compiled nor counted when a cached loop is looked up.
    """
    modules = {
        f"{function.__name__} names module {name}"
        for function in compiled(rule)
        for name in function.__code__.co_names
        if isinstance(function.__globals__.get(name), ModuleType) and name != "math"
    }
    assert not modules, ", ".join(sorted(modules))
