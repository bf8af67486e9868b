"""How good are models without tuning, compared with the tuned batch optimum?

For each data set and learner, at its defaults: held-out log loss (RMSE), error (R²) and AUC after 1
and 3 passes, progressive loss of the first pass, CPU seconds of training. The baseline is ridge or
logistic regression with the best of nine strengths, 10^-4 … 10^4, by 5-fold validation of the
training part. Sets and split seeds are in quality_sets.py, learners in quality_learners.py.

    python benchmarks/quality.py --sets diabetes,california --rules nag,adagrad,sgd-epochs,vw
    python benchmarks/quality.py --out quality.json        # all: hours; run again to continue

Figures are saved in --out after each run and not measured again; the baselines next to it. Vowpal
Wabbit is measured where its package is installed. Seconds of streamomd and Vowpal Wabbit include
reading the rows, those of scikit-learn do not.

Required, of sets with at least 5,000 shuffled training rows, after one pass: RMSE at most 1 % above
the baseline's on 95 % of the regression sets; at most 3 % of the attainable log loss (constant -
baseline) lost on 95 % of the others, and an error within 0.003 on 90 %; nowhere more than 1 % worse
than nag or one-epoch SGD.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import common
import numpy as np
from quality_learners import Split, constant_loss, figures, fit_baseline, has_vowpal_wabbit, learner
from quality_sets import REGRESSION, SETS, Data
from threadpoolctl import threadpool_limits

DATA = Path(__file__).parents[2] / "shared/data"
RULES = ("nag", "adagrad", "ftrl_proximal", "arow_diag", "sgd-epochs", "sgd", "vw", "vw-coin")
LARGE = 5000
PEERS = ("nag", "sgd-epochs")
"""No rule may be more than 1 % worse."""

Figures = dict[str, Any]


class Saved:
    """Figures by key, saved in a file after each change."""

    def __init__(self, file: Path | None) -> None:
        self.file = file
        self.found: Figures = json.loads(file.read_text()) if file and file.exists() else {}

    def add(self, key: str, found: Figures) -> Figures:
        self.found[key] = found
        if self.file:
            part = self.file.with_suffix(".part")
            part.write_text(json.dumps(self.found, indent=1))
            part.replace(self.file)
        return found


def mean(found: list[Figures]) -> Figures:
    """Of splits, figure by figure."""
    return {
        name: None if any(one[name] is None for one in found)
        else float(np.mean([one[name] for one in found]))
        for name in found[0]
    }  # fmt: skip


def measure_baseline(data: Data, splits: list[Split]) -> Figures:
    """Figures of the baseline and of the constant, and the set's size."""
    found, strengths = [], []
    for split in splits:
        fit, strength = fit_baseline(split)
        strengths.append(strength)
        found.append({**figures(split, fit), "constant": constant_loss(split)})
    train, test = data.splits[0]
    known = {"task": data.task, "train": len(train), "test": len(test), "strengths": strengths}
    columns = {"dense": data.numeric.shape[1], "sparse": data.sparse.shape[1]}
    return {**mean(found), **known, **columns, "shuffled": data.shuffled}


def measure(name: str, passes: int, splits: list[Split]) -> Figures:
    """Figures of a learner; none where it does not apply."""
    found = []
    for split in splits:
        fit = learner(name).fit(split, passes)
        if fit is None:
            return {}
        found.append(figures(split, fit))
    return mean(found)


def gap(found: Figures, base: Figures) -> float | None:
    """By how many per cent the loss is above the baseline's."""
    loss = found.get("loss")
    return None if loss is None else 100.0 * (loss / base["loss"] - 1.0)


def lost(found: Figures, base: Figures) -> float:
    """The share of the attainable log loss that is lost, in per cent."""
    return 100.0 * (found["loss"] - base["loss"]) / (base["constant"] - base["loss"])


def shown(value: float | None, form: str = ".4g") -> str:
    return "–" if value is None else format(value, form)


def percent(value: float | None) -> str:
    """Of a gap; it says little how far a diverged model is away."""
    return "> +999" if value is not None and value > 999.0 else shown(value, "+.1f")


def gap_table(bases: Figures, results: Figures, names: list[str], passes: int) -> None:
    """Per cent above the baseline."""
    print(f"\nHeld-out loss after {passes} pass(es), % above the tuned batch baseline\n")
    print("| set | rows | constant | baseline | " + " | ".join(names) + " |")
    print("|---|---|---|---|" + "---|" * len(names))
    for name, base in bases.items():
        cells = [percent(gap(results.get(f"{name}/{rule}/{passes}", {}), base)) for rule in names]
        loss = [shown(base["constant"]), shown(base["loss"])]
        print(f"| {name} | {base['train']:,} | " + " | ".join([*loss, *cells]) + " |")


def detail_table(bases: Figures, results: Figures, names: list[str], all_passes: list[int]) -> None:
    """Every figure; lost: the share of the attainable log loss, in per cent."""
    print("\n| set | learner | passes | loss | lost | error or R² | AUC | progressive | CPU s |")
    print("|---|---|---|---|---|---|---|---|---|")
    for name, base in bases.items():
        lines = [("baseline", "", base)]
        lines += [
            (rule, str(passes), results.get(f"{name}/{rule}/{passes}"))
            for rule in names
            for passes in all_passes
        ]
        for rule, passes, found in lines:
            if not found:
                continue
            regression = base["task"] == REGRESSION
            quality = found["r2"] if regression else found["error"]
            share = None if regression or found["loss"] is None else lost(found, base)
            cells = [shown(found["loss"]), percent(share), shown(quality), shown(found.get("auc"))]
            cells += [shown(found["progressive"]), shown(found["seconds"], ".2f")]
            print(f"| {name} | {rule} | {passes} | " + " | ".join(cells) + " |")


REQUIRED = {
    "RMSE ≤ baseline + 1 %": 0.95,
    "≤ 3 % of the attainable log loss lost": 0.95,
    "error ≤ baseline + 0.003": 0.90,
    f"≤ 1 % worse than {' and '.join(PEERS)}": 1.0,
}
"""And the share of sets on which it must hold."""


def criteria(bases: Figures, results: Figures, rule: str) -> list[dict[str, bool]]:
    """For each requirement, the sets that it is about and whether it holds."""
    close, little, errors, peers = {}, {}, {}, {}
    for name, base in bases.items():
        found = results.get(f"{name}/{rule}/1", {})
        if not found or not base["shuffled"] or base["train"] < LARGE:
            continue
        if base["task"] != REGRESSION:
            errors[name] = found["error"] <= base["error"] + 0.003
        if found["loss"] is None:  # no probabilities: only its error counts
            continue
        if base["task"] == REGRESSION:
            close[name] = gap(found, base) <= 1.0
        else:
            little[name] = lost(found, base) <= 3.0
        others = [results.get(f"{name}/{peer}/1", {}).get("loss") for peer in PEERS if peer != rule]
        peers[name] = all(other is None or found["loss"] <= 1.01 * other for other in others)
    return [close, little, errors, peers]


def criteria_table(bases: Figures, results: Figures, names: list[str]) -> Figures:
    """On how many sets each requirement holds, and where it does not."""
    print(f"\nSets with at least {LARGE:,} shuffled training rows, one pass\n")
    heads = [f"{text} (on {share:.0%})" for text, share in REQUIRED.items()]
    print("| learner | " + " | ".join(heads) + " |")
    print("|---|" + "---|" * len(heads))
    holding = {rule: criteria(bases, results, rule) for rule in names}
    for rule, found in holding.items():
        cells = []
        for sets, needed in zip(found, REQUIRED.values(), strict=True):
            holds = sum(sets.values())
            verdict = "" if holds >= needed * len(sets) else ", missed"
            cells.append(f"{holds} of {len(sets)}{verdict}" if sets else "–")
        print(f"| {rule} | " + " | ".join(cells) + " |")
    for rule, found in holding.items():
        for text, sets in zip(REQUIRED, found, strict=True):
            missed = [name for name, holds in sets.items() if not holds]
            if missed:
                print(f"\n{rule}, {text}: not on {', '.join(missed)}", end="")
    print()
    return {rule: dict(zip(REQUIRED, found, strict=True)) for rule, found in holding.items()}


def main() -> None:
    parser = common.arguments(__doc__)
    parser.add_argument("--data", type=Path, default=DATA, help="folder of data sets")
    parser.add_argument("--sets", default=",".join(SETS), help="some of the data sets")
    parser.add_argument("--rules", default=",".join(RULES), help="rules and other learners")
    parser.add_argument("--passes", default="1,3", help="numbers of passes")
    parser.add_argument("--out", type=Path, help="JSON file of figures, continued if it exists")
    args = parser.parse_args()
    names = args.rules.split(",")
    all_passes = [int(passes) for passes in args.passes.split(",")]
    results = Saved(args.out)
    baselines = Saved(args.out and args.out.with_name(f"{args.out.stem}-baseline.json"))
    if any(name.startswith("vw") for name in names) and not has_vowpal_wabbit():
        print("skipped: vowpalwabbit is not installed", file=sys.stderr)
        names = [name for name in names if not name.startswith("vw")]
    for name in args.sets.split(","):
        wanted = [(rule, passes) for rule in names for passes in all_passes]
        missing = [one for one in wanted if f"{name}/{one[0]}/{one[1]}" not in results.found]
        if not missing and name in baselines.found:
            continue
        try:
            data = SETS[name](args.data)
        except (FileNotFoundError, ModuleNotFoundError) as error:
            print(f"skipped: {name}: {error}", file=sys.stderr)
            continue
        with tempfile.TemporaryDirectory() as temporary, threadpool_limits(1):
            parts = [Split(data, at, Path(temporary) / str(at)) for at in range(len(data.splits))]
            base = baselines.found.get(name)
            base = base or baselines.add(name, measure_baseline(data, parts))
            print(f"{name}: baseline {base['loss']:.4g}", file=sys.stderr, flush=True)
            for rule, passes in missing:
                found = measure(rule, passes, parts)
                results.add(f"{name}/{rule}/{passes}", found)
                above = percent(gap(found, base))
                print(f"{name} {rule} {passes}: {above} %", file=sys.stderr, flush=True)
    bases = {
        name: baselines.found[name] for name in args.sets.split(",") if name in baselines.found
    }
    for passes in all_passes:
        gap_table(bases, results.found, names, passes)
    detail_table(bases, results.found, names, all_passes)
    holding = criteria_table(bases, results.found, names)
    figures_of = {"baselines": bases, "results": results.found, "criteria": holding}
    common.finish(figures_of, as_json=args.json)


if __name__ == "__main__":
    main()
