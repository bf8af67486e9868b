"""Text, for which P4 (AdaGrad) and P0's diagonal learners are made: all learners in one table.

Blitzer's reviews of four kinds of goods, within a kind and on a kind left out of training; and 20
newsgroups by date, one against all and softmax. Parameters are chosen by the progressive error on
the training rows; the test rows are looked at once, afterwards.

    python pipelines/papers/p4_text.py
    python pipelines/papers/p4_text.py --part blitzer --bits 20
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import sets
from common import Rows, Section, arguments, learn, missing, read, shuffled, taken, test_error
from tune import SLOW_SECONDS, Learner, choose, learners, seconds_a_pass, told

TRAIN = 0.8
Split = tuple[Rows, Rows]


def sparse(shards: str | list[str], bits: int) -> Rows:
    """Rows of a sparse pair."""
    return read(shards, sparse={"indices": "i", "values": "v", "size": 1 << bits})


def within(domains: Mapping[str, str], bits: int) -> Iterator[tuple[str, Split]]:
    """Each domain cut in two."""
    for name, path in domains.items():
        rows = sparse(path, bits)
        cut = int(TRAIN * len(rows))
        yield name, (taken(rows, np.arange(cut)), taken(rows, np.arange(cut, len(rows))))


def left_out(domains: Mapping[str, str], bits: int) -> Iterator[tuple[str, Split]]:
    """Each domain tested, the others trained on, mixed."""
    for name, path in domains.items():
        others = [other for other in domains.values() if other != path]
        yield name, (shuffled(sparse(others, bits), 0), sparse(path, bits))


class Kept:
    """Errors and chosen parameters of learners, in OUT/p4_text.json as they are found."""

    def __init__(self, out: Path, *, go_on: bool) -> None:
        self.path = out / "p4_text.json"
        self.found: dict[str, Any] = {}
        if go_on and self.path.exists():
            self.found = json.loads(self.path.read_text(encoding="utf-8"))

    def ask(self, key: str, run: Callable[[], Any]) -> Any:
        """What was kept under the key, or what ``run`` gives."""
        if key not in self.found:
            self.found[key] = run()
            self.path.write_text(json.dumps(self.found), encoding="utf-8")
        return self.found[key]


def run(splits: Mapping[str, Split], entry: Learner) -> dict[str, Any]:
    """Chosen on each training part, the test error; or the seconds of a pass that is too long."""
    seconds = seconds_a_pass(next(iter(splits.values()))[0], entry)
    if seconds > SLOW_SECONDS:
        return {"seconds": seconds}
    errors, chosen = [], []
    for train, test in splits.values():
        chosen.append(choose(train, entry))
        errors.append(test_error(learn(train, entry.rule.name, entry.loss, chosen[-1]), test))
    return {"errors": errors, "chosen": told(chosen)}


def compare(
    section: Section, kept: Kept, title: str, splits: Mapping[str, Split], entries: list[Learner]
) -> dict[str, float]:
    """A table of test errors, a line for each learner; the mean by rule."""
    section.say(title)
    lines, slow, means = [], [], {}
    for entry in entries:
        name, loss = entry.rule.name, entry.loss
        found = kept.ask(f"{title} {name}, {loss}", partial(run, splits, entry))
        if "seconds" in found:
            slow.append(f"{name} ({found['seconds']:.0f} s per pass)")
            continue
        means[name] = mean = sum(found["errors"]) / len(found["errors"])
        print(f"  {name}, {loss}: {mean:.4f}", flush=True)
        every = [] if len(splits) == 1 else found["errors"]
        lines.append((mean, name, loss, *every, mean, found["chosen"]))
    heads = ["learner", "loss", *([] if len(splits) == 1 else splits), "mean error", "chosen"]
    section.table(heads, [line[1:] for line in sorted(lines)])
    section.say(
        "Not tried: full matrices (too many coordinates), online_svm (visits all rows for each "
        "row)."
    )
    if slow:
        section.say(f"Omitted, more than {SLOW_SECONDS:.0f} s per pass: {', '.join(slow)}.")
    return means


def expect(section: Section, means: Mapping[str, float], better: str, worse: str) -> None:
    """What a paper leads one to expect; it need not hold on every data set."""
    if better in means and worse in means:
        text = f"{better} {means[better]:.4f} is at most {worse} {means[worse]:.4f}"
        section.check(text, means[better] <= means[worse], ours=False)


def blitzer(
    section: Section, kept: Kept, domains: Mapping[str, str], bits: int, only: list[str]
) -> None:
    """Both tables of the reviews."""
    entries = list(learners(1 + (1 << bits), only))
    title = f"Reviews, test error within a domain: {TRAIN:.0%} of it train, the rest test."
    means = compare(section, kept, title, dict(within(domains, bits)), entries)
    title = "Reviews, test error on the domain named; the three others train."
    compare(section, kept, title, dict(left_out(domains, bits)), entries)
    section.say("What the papers suggest (mean within a domain):")
    expect(section, means, "adagrad", "ogd")
    expect(section, means, "arow_diag", "perceptron")
    expect(section, means, "sop_diag", "perceptron")
    expect(section, means, "pa1", "perceptron")
    section.say("")


def newsgroups(
    section: Section, kept: Kept, paths: tuple[str, str], bits: int, only: list[str]
) -> None:
    """Both tables of the newsgroups."""
    train, test = (sparse(path, bits) for path in paths)
    classes = len(train.plan.classes)
    title = (
        f"{classes} newsgroups by date, {len(train):,} rows train, {len(test):,} later ones test"
    )
    entries = list(learners(1 + (1 << bits), only))
    compare(section, kept, f"{title}; one against all.", {"": (train, test)}, entries)
    entries = list(learners(1 + (1 << bits), only, coupled=True))
    title = f"{title}; softmax, for the rules that take any loss."
    compare(section, kept, title, {"": (train, test)}, entries)


def _domain_shards(data: Path, out: Path, bits: int) -> dict[str, str]:
    return {
        name: sets.shards(out, f"blitzer-{bits}/{name}", partial(sets.blitzer, data, name, bits))
        for name in sets.DOMAINS
    }


def _news_shards(data: Path, out: Path, bits: int) -> tuple[str, str]:
    made: list[Any] = []

    def part(place: int) -> Callable[[], Any]:
        def table() -> Any:
            made[:] = made or sets.newsgroups(data, bits)
            return made[place]

        return table

    train = sets.shards(out, f"newsgroups-{bits}/train", part(0))
    return train, sets.shards(out, f"newsgroups-{bits}/test", part(1))


def _tiny_shards(out: Path, name: str, rows: int, classes: int, seed: int, bits: int) -> str:
    make = sets.made_up_text
    return sets.shards(
        out, f"tiny-text-{name}-{classes}", partial(make, rows, 1 << bits, classes, seed)
    )


def main(argv: list[str] | None = None) -> int:
    """Run; 1 if a check failed."""
    parser = arguments(__doc__ or "")
    parser.add_argument("--part", choices=("both", "blitzer", "newsgroups"), default="both")
    parser.add_argument("--bits", type=int, default=18, help="2^bits coordinates (default: 18)")
    parser.add_argument(
        "--go-on", action="store_true", help="take what OUT/p4_text.json holds as it is"
    )
    parser.add_argument("--rules", default="", help="only these, with commas (default: all)")
    chosen = parser.parse_args(argv)
    only = [name for name in chosen.rules.split(",") if name]
    only = only or (["adagrad", "nag", "pa1"] if chosen.tiny else [])
    section = Section(chosen.out, "p4_text", "P4 and P0 on text: all learners")
    section.say(
        "The copy of P4 that we have contains no experiments, and P0 has only its figure 1, so "
        "there are no published figures to compare with. One pass; parameters chosen by the "
        "progressive error on the training rows, one after the other."
    )
    kept = Kept(chosen.out, go_on=chosen.go_on)
    data, out, bits = chosen.data, chosen.out, 8 if chosen.tiny else chosen.bits
    if chosen.tiny:
        names = ("one", "two")
        domains = {n: _tiny_shards(out, n, 120, 2, seed, bits) for seed, n in enumerate(names)}
        blitzer(section, kept, domains, bits, only)
        news = [_tiny_shards(out, n, 120, 3, 1, bits) for n in ("train", "test")]
        newsgroups(section, kept, (news[0], news[1]), bits, only)
        return section.close()
    missing(section, ["blitzer-sentiment", "20newsgroups"], data)
    if chosen.part != "newsgroups" and (data / "blitzer-sentiment").is_dir():
        blitzer(section, kept, _domain_shards(data, out, bits), bits, only)
    if chosen.part != "blitzer" and (data / "20newsgroups").is_dir():
        newsgroups(section, kept, _news_shards(data, out, bits), bits, only)
    return section.close()


if __name__ == "__main__":
    sys.exit(main())
