"""P0, figure 1 (Orabona, Crammer & Cesa-Bianchi): word counts against rank on sentiment data.

Few words are frequent, most are rare: why second-order learners with a diagonal matrix, which give
each word its own step, do well on text (P0, section 6.3). The counts are of the Blitzer reviews.

    python pipelines/papers/p0_figure1.py
    python pipelines/papers/p0_figure1.py --domains dvd,electronics
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import sets
from common import Section, arguments, missing


def counts(texts: Iterable[tuple[int, Mapping[str, int]]]) -> np.ndarray:
    """How often each word occurs in all rows, most frequent first."""
    total: Counter[str] = Counter()
    for _, words in texts:
        total.update(words)
    return np.sort(np.array(list(total.values())))[::-1]


def slope(found: np.ndarray) -> float:
    """Of log count by log rank, least squares over ranks evenly spread in the logarithm."""
    ranks = np.unique(np.geomspace(1, len(found), 50).astype(int))
    return float(np.polyfit(np.log(ranks), np.log(found[ranks - 1]), 1)[0])


def made_up(seed: int) -> Iterator[tuple[int, Mapping[str, int]]]:
    """Rows of words with heavy tails, for --tiny."""
    rng = np.random.default_rng(seed)
    for _ in range(300):
        yield 1, Counter(f"w{word}" for word in rng.zipf(1.5, 30))


def draw(found: Mapping[str, np.ndarray]) -> Callable[[Any], None]:
    """Count against rank, both logarithmic."""

    def on(figure: Any) -> None:
        axes = figure.subplots()
        for name, some in found.items():
            axes.loglog(np.arange(1, len(some) + 1), some, label=name)
        axes.set(xlabel="rank of the word", ylabel="times it occurs")
        axes.legend()

    return on


def main(argv: list[str] | None = None) -> int:
    """Run; 1 if a check failed."""
    parser = arguments(__doc__ or "")
    parser.add_argument("--domains", default="books,kitchen", help="which (default: two of four)")
    chosen = parser.parse_args(argv)
    title = "P0, figure 1: the heavy tail of words"
    section = Section(chosen.out, "p0_figure1", title)
    if chosen.tiny:
        found = {name: counts(made_up(seed)) for seed, name in enumerate(("one", "two"))}
    else:
        missing(section, ["blitzer-sentiment"], chosen.data)
        if not (chosen.data / "blitzer-sentiment").is_dir():
            return section.close()
        domains = chosen.domains.split(",")
        found = {name: counts(sets.reviews(chosen.data, name)) for name in domains}
    heads = ["domain", "words", "occurrences", "most frequent", "seen once", "half of all", "slope"]
    lines = []
    for name, some in found.items():
        half = int(np.searchsorted(np.cumsum(some), some.sum() / 2)) + 1
        once = f"{np.mean(some == 1):.0%}"
        lines.append((name, len(some), int(some.sum()), int(some[0]), once, half, slope(some)))
    section.table(heads, lines)
    section.say(
        'Words are single words and pairs of neighbours. "half of all": the number of most '
        "frequent words that make up half of all occurrences. The slope is that of the line in "
        "the plot; the paper shows a plot of the same shape, without numbers."
    )
    section.check("most words occur once", all(np.mean(some == 1) > 0.5 for some in found.values()))
    section.picture(draw(found), (6, 4))
    return section.close()


if __name__ == "__main__":
    sys.exit(main())
