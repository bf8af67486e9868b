"""What does a non-zero cost with each rule?

ns a non-zero of every rule that costs O(nnz) a row, as a ratio to NAG's: at 2^18 coordinates in
float64, on the rows of engine.py (about 75 non-zeros, coordinates log-uniform, labels at random),
with the rule's first loss or logistic. All rules run in turn in this process; process CPU time; the
median of the rounds' ratios. Options that change what is computed have a line of their own. Left
out are rules that keep a matrix or rows, and those that project in O(d) (nag_projected: its steps
grow with its set, so that rows always leave it).

Targets: each ≤ 3 times NAG, SI p-norm ≤ 8. The slowest is named.
"""

from __future__ import annotations

import statistics
from typing import Any

import common
import numpy as np

from streamomd.rules import all_rules

TARGET = 3.0
TARGETS = {"si_pnorm": 8.0, "auto": 10.0, "laplace": 8.0, "adagrad_standardized": 5.0}
OPTIONS: dict[str, tuple[dict[str, Any], ...]] = {
    "winnow": ({"C": 1.0},),
    "eg": ({"C": 1.0},),
    "dual_step": ({"link": "l2"}, {"link": "winnow"}, {"link": "eg"}, {"link": "pnorm"}),
    "ogd": ({"ball": "l2", "radius": 1e9}, {"implicit": True}),
    "rda": ({"l1": 1e-3, "l2": 1e-3},),
    "composite": ({"schedule": "strong", "l1": 1e-3, "l2": 1e-3},),
    "ftrl_proximal": ({"l1": 1e-3, "l2": 1e-3},),
    "adagrad": ({"l1": 1e-6}, {"l2": 1e-6}, {"l1": 1e-6, "l2": 1e-6}),
    "adagrad_da": ({"l1": 1e-6, "l2": 1e-6},),
    "cw_diag": ({"form": "variance"},),
}
INSTEAD = {"dual_step"}  # its default is among the options


def cases(wanted: list[str]) -> dict[str, tuple[str, dict[str, Any]]]:
    """Label of each line: the rule and its parameters. NAG comes first, whatever is wanted."""
    found: dict[str, tuple[str, dict[str, Any]]] = {"nag": ("nag", {})}
    for rule in all_rules().values():
        projects = rule.largest(rule.parse_params({})) is not None
        kinds, other = ("coordinates", "block"), wanted and rule.name not in wanted
        if rule.storage.kind not in kinds or projects or other:
            continue
        plain = () if rule.name in INSTEAD else ({},)
        for params in (*plain, *OPTIONS.get(rule.name, ())):
            told = [f"{name}={value}" for name, value in params.items()]
            found[" ".join([rule.name, *told])] = (rule.name, params)
    return found


def main() -> None:
    parser = common.arguments(__doc__)
    parser.add_argument("--rows", type=int, default=20_000, help="rows walked in a round")
    parser.add_argument("--rounds", type=int, default=7, help="rounds; the median counts")
    parser.add_argument("--rules", nargs="+", default=[], help="only these beside nag")
    args = parser.parse_args()
    batch = common.batch(np.random.default_rng(0), args.rows, common.SMALL)
    named = cases(args.rules)
    walks = {
        label: common.Walk(rule, common.SMALL, "float64", batch, **params)
        for label, (rule, params) in named.items()
    }
    found = common.timed(walks, args.rounds, len(batch.values))
    strayed = [label for label, walk in walks.items() if not np.isfinite(walk.margins).all()]
    if strayed:
        raise SystemExit(f"predictions that are not finite: {', '.join(strayed)}")
    figures = {
        label: {
            "ns": statistics.median(found[label]),
            "ratio": common.ratio(found[label], found["nag"]),
            "target": TARGETS.get(rule, TARGET),
        }
        for label, (rule, _) in named.items()
    }
    order = sorted(figures, key=lambda label: figures[label]["ratio"])
    missed = [label for label in order if figures[label]["ratio"] > figures[label]["target"]]
    lines = [
        [label, at["ns"], at["ratio"], f"≤ {at['target']:g}", "missed" if label in missed else ""]
        for label, at in ((label, figures[label]) for label in order)
    ]
    common.table(["rule, 2^18, float64", "ns a non-zero", "÷ nag", "target", ""], lines)
    print(f"slowest: {order[-1]}; missed: {', '.join(missed) or 'none'}", flush=True)
    told = {"rules": figures, "slowest": order[-1], "missed": missed}
    common.finish(told, as_json=args.json)


if __name__ == "__main__":
    main()
