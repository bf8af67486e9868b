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

import common
import numpy as np
from quality_learners import Split, constant_loss, figures, fit_baseline, has_vowpal_wabbit, learner
from quality_sets import SETS, Data
from quality_tables import Figures, gap, percent, print_tables
from threadpoolctl import threadpool_limits

DATA = Path(__file__).parents[2] / "shared/data"
RULES = ("nag", "adagrad", "ftrl_proximal", "arow_diag", "sgd-epochs", "sgd", "vw", "vw-coin")
"""Names of rules, and those of quality_learners.LEARNERS."""


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


def main() -> None:
    parser = common.arguments(__doc__)
    parser.add_argument("--data", type=Path, default=DATA, help="folder of data sets")
    parser.add_argument("--sets", default=",".join(SETS), help="some of the data sets")
    parser.add_argument("--rules", default=",".join(RULES), help="rules and other learners")
    parser.add_argument("--passes", default="1,3", help="numbers of passes")
    parser.add_argument("--out", type=Path, help="JSON file of figures, continued if it exists")
    parser.add_argument("--saved", action="store_true", help="measure nothing: print saved figures")
    parser.add_argument("--brief", action="store_true", help="print no table of every figure")
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
        if args.saved or (not missing and name in baselines.found):
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
    found = print_tables(bases, results.found, names, all_passes, detail=not args.brief)
    figures_of = {"baselines": bases, "results": results.found, "required": found}
    common.finish(figures_of, as_json=args.json)


if __name__ == "__main__":
    main()
