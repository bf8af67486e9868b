"""Text, for which P4 (AdaGrad) and P0's diagonal learners are made: all learners in one table.

Blitzer's reviews of four kinds of goods, within a kind and on a kind left out of training; and 20
newsgroups by date, one against all and softmax. Parameters are chosen by the progressive error on
the training rows; the test rows are looked at once, afterwards.

    python pipelines/papers/p4_text.py
    python pipelines/papers/p4_text.py --part blitzer --bits 20
"""

from __future__ import annotations

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


def compare(
    section: Section, splits: Mapping[str, Split], entries: list[Learner]
) -> dict[str, float]:
    """A table of test errors, a line for each learner; the mean by rule."""
    lines: list[tuple[Any, ...]] = []
    slow = []
    for entry in entries:
        first = next(iter(splits.values()))[0]
        seconds = seconds_a_pass(first, entry)
        if seconds > SLOW_SECONDS:
            slow.append(f"{entry.rule.name} ({seconds:.0f} s a pass)")
            continue
        errors, chosen = [], []
        for train, test in splits.values():
            params = choose(train, entry)
            model = learn(train, entry.rule.name, entry.loss, params)
            errors.append(test_error(model, test))
            chosen.append(params)
        mean = sum(errors) / len(errors)
        lines.append((entry.rule.name, entry.loss, *errors, mean, told(chosen)))
        print(f"  {entry.rule.name}, {entry.loss}: {mean:.4f}", flush=True)
    lines.sort(key=lambda line: line[-2])
    heads = ["learner", "loss", *splits, "mean", "chosen"]
    if len(splits) == 1:
        heads = ["learner", "loss", "error", "chosen"]
        lines = [(*line[:3], line[-1]) for line in lines]
    section.table(heads, lines)
    if slow:
        section.say(f"Left out, above {SLOW_SECONDS:.0f} s a pass: {', '.join(slow)}.")
    return {line[0]: line[-2] for line in lines}


def expect(section: Section, means: Mapping[str, float], better: str, worse: str) -> None:
    """What a paper leads one to expect; it need not hold on every data set."""
    if better in means and worse in means:
        text = f"{better} {means[better]:.4f} is at most {worse} {means[worse]:.4f}"
        section.check(text, means[better] <= means[worse], ours=False)


def blitzer(section: Section, domains: Mapping[str, str], bits: int, only: list[str]) -> None:
    """Both tables of the reviews."""
    entries = list(learners(1 + (1 << bits), only))
    section.say(f"Test error within a domain: {TRAIN:.0%} of it train, the rest test.")
    means = compare(section, dict(within(domains, bits)), entries)
    section.say("Test error on a domain that was not trained on; the three others were.")
    compare(section, dict(left_out(domains, bits)), entries)
    section.say("What the papers lead one to expect (mean within a domain):")
    expect(section, means, "adagrad", "ogd")
    expect(section, means, "arow_diag", "perceptron")
    expect(section, means, "sop_diag", "perceptron")
    expect(section, means, "pa1", "perceptron")
    section.say("")


def newsgroups(section: Section, paths: tuple[str, str], bits: int, only: list[str]) -> None:
    """Both tables of the newsgroups."""
    train, test = (sparse(path, bits) for path in paths)
    splits = {"error": (train, test)}
    classes = len(train.plan.classes)
    section.say(
        f"{classes} newsgroups by date: {len(train):,} rows train, {len(test):,} later ones test. "
        "One against all:"
    )
    compare(section, splits, list(learners(1 + (1 << bits), only)))
    section.say("Softmax, for the rules that take any loss:")
    compare(section, splits, list(learners(1 + (1 << bits), only, coupled=True)))


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
    parser.add_argument("--rules", default="", help="only these, with commas (default: all)")
    chosen = parser.parse_args(argv)
    only = [name for name in chosen.rules.split(",") if name]
    only = only or (["adagrad", "nag", "pa1"] if chosen.tiny else [])
    section = Section(chosen.out, "p4_text", "P4 and P0 on text: all learners")
    section.say(
        "P4's experiments are not in the copy of the paper that we have, and P0 has none but its "
        "figure 1; so there are no figures of theirs to set beside these. One pass; parameters "
        "chosen by the progressive error on the training rows, each alone, one after the other."
    )
    data, out, bits = chosen.data, chosen.out, 8 if chosen.tiny else chosen.bits
    if chosen.tiny:
        names = ("one", "two")
        domains = {n: _tiny_shards(out, n, 120, 2, seed, bits) for seed, n in enumerate(names)}
        blitzer(section, domains, bits, only)
        news = [_tiny_shards(out, n, 120, 3, 1, bits) for n in ("train", "test")]
        newsgroups(section, (news[0], news[1]), bits, only)
        return section.close()
    missing(section, ["blitzer-sentiment", "20newsgroups"], data)
    if chosen.part != "newsgroups" and (data / "blitzer-sentiment").is_dir():
        blitzer(section, _domain_shards(data, out, bits), bits, only)
    if chosen.part != "blitzer" and (data / "20newsgroups").is_dir():
        newsgroups(section, _news_shards(data, out, bits), bits, only)
    return section.close()


if __name__ == "__main__":
    sys.exit(main())
