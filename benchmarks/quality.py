"""How good are models without tuning, compared with the tuned batch optimum?

For each data set and learner, at its defaults: held-out log loss (RMSE), error (R²) and AUC after 1
and 3 passes, progressive loss of the first pass, CPU seconds of training. The baseline is ridge or
logistic regression with the best of nine strengths, 10^-4 … 10^4, by 5-fold validation of the
training part. Sets and split seeds are in quality_sets.py and, never used to choose anything, in
quality_fresh.py and quality_second.py; learners are in quality_learners.py.

    python benchmarks/quality.py --sets diabetes,california --rules nag,adagrad,sgd-epochs,vw
    python benchmarks/quality.py --out quality.json        # all: an hour; run again to continue
    python benchmarks/quality.py --fresh --out fresh.json  # sets on which nothing was chosen
    python benchmarks/quality.py --second --out second.json  # further ones
    python benchmarks/quality.py --out quality.json --saved --brief --rules nag,vw
    python benchmarks/quality.py --mistakes --sets bank --rules nag  # a look at misclassified rows
    python benchmarks/quality.py --shapes --fresh --out shapes.json  # curves: see quality_shapes.py

Figures are saved in --out after each run and not measured again; the baselines next to it: remove
a rule's figures after a change to it. A set whose folder or package is missing is skipped, and the
reason printed; so is Vowpal Wabbit. Seconds of streamomd and Vowpal Wabbit include
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
from quality_fresh import FRESH
from quality_learners import Split, constant_loss, figures, fit_baseline, has_vowpal_wabbit, learner
from quality_mistakes import print_mistakes
from quality_second import SECOND
from quality_sets import SETS, Data
from quality_shapes import compare, print_shapes
from quality_tables import Figures, gap, percent, print_tables
from threadpoolctl import threadpool_limits

DATA = Path(__file__).parents[2] / "shared/data"
RULES = (
    "auto", "nag", "adagrad", "ftrl_proximal", "arow_diag", "sgd-epochs", "sgd", "vw", "vw-coin",
)  # fmt: skip
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
        fit, strength, _ = fit_baseline(split)
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


def load(name: str, folder: Path, skipped: dict[str, str]) -> Data | None:
    """A set; None where its folder or package is missing, which is printed."""
    try:
        return {**SETS, **FRESH, **SECOND}[name](folder)
    except (FileNotFoundError, ModuleNotFoundError) as error:
        skipped[name] = str(error)
        print(f"skipped: {name}: {error}", file=sys.stderr, flush=True)
        return None


def show_mistakes(name: str, data: Data, rules: list[str], base: Figures | None) -> None:
    """Of the first split, after one pass."""
    with tempfile.TemporaryDirectory() as temporary, threadpool_limits(1):
        split = Split(data, 0, Path(temporary))
        fit, _, model = fit_baseline(split, base and base["strengths"][0])
        for rule in rules:
            found = learner(rule).fit(split, 1)
            if found:
                print_mistakes(name, rule, split, found, fit, model)


def measure_all(
    name: str, data: Data, missing: list[tuple[str, int]], results: Saved, baselines: Saved
) -> None:
    with tempfile.TemporaryDirectory() as temporary, threadpool_limits(1):
        parts = [Split(data, at, Path(temporary) / str(at)) for at in range(len(data.splits))]
        base = baselines.found.get(name) or baselines.add(name, measure_baseline(data, parts))
        print(f"{name}: baseline {base['loss']:.4g}", file=sys.stderr, flush=True)
        for rule, passes in missing:
            found = results.add(f"{name}/{rule}/{passes}", measure(rule, passes, parts))
            above = percent(gap(found, base))
            print(f"{name} {rule} {passes}: {above} %", file=sys.stderr, flush=True)


def main() -> None:
    parser = common.arguments(__doc__)
    parser.add_argument("--data", type=Path, default=DATA, help="folder of data sets")
    parser.add_argument("--sets", help="some of the data sets")
    parser.add_argument("--fresh", action="store_true", help="the sets of quality_fresh.py")
    parser.add_argument("--second", action="store_true", help="the sets of quality_second.py")
    parser.add_argument("--rules", default=",".join(RULES), help="rules and other learners")
    parser.add_argument("--passes", default="1,3", help="numbers of passes")
    parser.add_argument("--out", type=Path, help="JSON file of figures, continued if it exists")
    parser.add_argument("--saved", action="store_true", help="measure nothing: print saved figures")
    parser.add_argument("--brief", action="store_true", help="print no table of every figure")
    parser.add_argument("--mistakes", action="store_true", help="measure nothing: show mistakes")
    parser.add_argument("--shapes", action="store_true", help="curves of columns, and a booster")
    args = parser.parse_args()
    names = args.rules.split(",")
    listed = SECOND if args.second else FRESH if args.fresh else SETS
    sets = args.sets.split(",") if args.sets else [*listed]
    all_passes = [int(passes) for passes in args.passes.split(",")]
    results = Saved(args.out)
    baselines = Saved(args.out and args.out.with_name(f"{args.out.stem}-baseline.json"))
    if not args.saved and any(name.startswith("vw") for name in names) and not has_vowpal_wabbit():
        print("skipped: vowpalwabbit is not installed", file=sys.stderr)
        names = [name for name in names if not name.startswith("vw")]
    skipped: dict[str, str] = {}
    if args.shapes:
        for name in sets if not args.saved else ():
            if (data := load(name, args.data, skipped)) is not None:
                results.add(name, compare(name, data, results.found.get(name) or {}) or {})
        known = {name: one for name, one in results.found.items() if one}
        common.finish({"sets": known, "summary": print_shapes(known)}, as_json=args.json)
        return
    if args.mistakes:
        for name in sets:
            if (data := load(name, args.data, skipped)) is not None:
                show_mistakes(name, data, names, baselines.found.get(name))
        return
    for name in sets:
        wanted = [(rule, passes) for rule in names for passes in all_passes]
        missing = [one for one in wanted if f"{name}/{one[0]}/{one[1]}" not in results.found]
        if args.saved or (not missing and name in baselines.found):
            continue
        if (data := load(name, args.data, skipped)) is not None:
            measure_all(name, data, missing, results, baselines)
    bases = {name: baselines.found[name] for name in sets if name in baselines.found}
    found = print_tables(bases, results.found, names, all_passes, detail=not args.brief)
    for name, reason in skipped.items():
        print(f"\nskipped: {name}: {reason}")
    figures_of = {"baselines": bases, "results": results.found, "required": found}
    common.finish({**figures_of, "skipped": skipped}, as_json=args.json)


if __name__ == "__main__":
    main()
