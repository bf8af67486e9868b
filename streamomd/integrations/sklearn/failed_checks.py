"""The checks of ``check_estimator`` that an estimator cannot pass, each with its reason."""

from __future__ import annotations

from typing import Any

from streamomd.config.model_table import DEFAULT

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
