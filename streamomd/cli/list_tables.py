"""What ``streamomd list`` prints, and the guide to a rule."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from streamomd.cli.formatting import format_table
from streamomd.core.wording import job_word

GUIDE = (
    (
        "What are the features like?",
        ("numbers in any units, categories", "auto", "the default: nothing to tune"),
        ("raw units; one learning rate", "nag", "small state; start with eta 0.5"),
        ("… with rare, huge values", "snag", "mean squares; --set squash=true"),
        (
            "wide and sparse: words, hashed values",
            "ftrl_proximal adagrad",
            "a learning rate per coordinate",
        ),
        ("word counts whose rare words matter", "arow_diag", "cw_diag if labels are clean"),
        ("few (to some thousand) and correlated", "vaw rls", "numbers; O(d^2) per row"),
        ("… of classes", "arow ons", "O(d^2) per row"),
        ("on one scale", "ogd da", "baselines; pa: no step size"),
    ),
    (
        "What are the weights like?",
        ("most should be 0", "ftrl_proximal rda", "--set l1=0.01"),
        ("few features of very many matter", "eg winnow", "pnorm: between these and ogd"),
        ("shrunk or constrained", "adagrad composite", "l2, box, norm ball"),
    ),
    (
        "Do you need a proven bound?",
        ("of the regret, raw units", "nag_projected si_adagrad", "also si_pnorm, for sparse rows"),
        ("of the regret, scaled or sparse", "adagrad ogd", "--set model.certificate=true"),
        ("of the mistakes", "perceptron pnorm", "also sop, aggressive"),
    ),
)
"""Questions, each with cases: when, which rules, a remark."""


def rules() -> list[dict[str, Any]]:
    """Every rule, for a table. needs: parameters that no default fits. also: other names."""
    from streamomd.losses import all_losses
    from streamomd.rules import ALIASES, all_rules
    from streamomd.rules.params import needs

    return [
        {
            "name": rule.name,
            "title": rule.title,
            "certificate": rule.certificate.claims is not None,
            "losses": [*(rule.losses.names or all_losses())],
            "modes": [*rule.modes],
            "params": rule.parse_params({}),
            "needs": needs(rule.hyper),
            "also": [alias for alias, name in ALIASES.items() if name == rule.name],
            "source": rule.source,
        }
        for rule in all_rules().values()
    ]


def losses() -> list[dict[str, Any]]:
    """Every loss, for a table. lipschitz: the bound of its slope with default parameters."""
    from streamomd.losses import all_losses

    return [
        {
            "name": loss.name,
            "title": loss.title,
            "task": "classify" if loss.classifies else "regress",
            "lipschitz": loss.lipschitz(loss.numbers({})) if loss.lipschitz else None,
            "implicit": loss.along is not None,
            "params": loss.parse_params({}),
            "also": [*loss.aliases],
        }
        for loss in all_losses().values()
    ]


def formats() -> list[dict[str, Any]]:
    """Every input format, for a table."""
    return [
        {"name": "parquet", "what": "shards; .parquet", "read by": "train, evaluate, predict"},
        {"name": "arrow", "what": "shards; Arrow IPC files", "read by": "train, evaluate, predict"},
        {"name": "csv", "what": "text, also .gz, .bz2, .xz", "read by": "convert"},
        {"name": "svmlight", "what": "text: label i:v i:v", "read by": "convert"},
        {"name": "vw", "what": "Vowpal Wabbit text: label |ns f:v", "read by": "convert"},
    ]


def modes() -> list[dict[str, Any]]:
    """Every mode, for a table."""
    return [
        {
            "name": "exact",
            "what": "one learner reads every row in order; threads or a cluster decode ahead",
            "bits": "independent of batches, shards and interruptions",
        },
        {
            "name": "averaged",
            "what": "workers learn parts in parallel, then their states merge, in rounds",
            "bits": "depend on train.parts and rounds_per_epoch, not on the number of workers",
        },
        {
            "name": "sharded",
            "what": "workers own ranges of the coordinates and learn micro-batches together",
            "bits": "depend on train.parts and train.batch_rows, not on the number of workers",
        },
    ]


def exports() -> list[dict[str, Any]]:
    """Every export format, for a table."""
    from streamomd.integrations.export import FORMATS

    return [{"name": one.name, "what": one.what, "extra": one.extra} for one in FORMATS.values()]


def format_list(rows: Sequence[Mapping[str, Any]]) -> str:
    """One of the lists as a table, with words for booleans and all losses."""
    from streamomd.losses import all_losses

    def cell(value: Any) -> Any:
        if isinstance(value, Mapping):
            return ", ".join(f"{name}={job_word(one)}" for name, one in value.items())
        if isinstance(value, list):
            return "all" if value == [*all_losses()] else ", ".join(value)
        if isinstance(value, bool):
            return "yes" if value else "no"
        return "none" if value is None else value

    # The sources are in --json and in docs/rules.
    return format_table([{key: cell(row[key]) for key in row if key != "source"} for row in rows])


def format_guide() -> str:
    """Questions that lead to a rule, for --rule without a value."""
    widths = [max(len(case[at]) for _, *cases in GUIDE for case in cases) for at in (0, 1)]
    lines = ["--rule needs a name. Take the first line that fits your data:"]
    for question, *cases in GUIDE:
        lines += ["", question]
        for case, rules, hint in cases:
            names = rules.replace(" ", ", ")
            lines.append(f"  {case:<{widths[0]}}  {names:<{widths[1] + 1}}  {hint}")
    ends = "\n\nAll rules: streamomd list rules. A page for each: docs/rules."
    return "\n".join(lines) + ends


LISTS: dict[str, Callable[[], list[dict[str, Any]]]] = {
    "rules": rules,
    "losses": losses,
    "formats": formats,
    "modes": modes,
    "exports": exports,
}
