"""What is a word worth that stands in a text several times? 1, its count, or log(1 + count).

20 newsgroups (subject and body) and Amazon's reviews of four domains (the bag of words that is
published), from ../shared/data beside the checkout, permuted: one pass of five rules, all at their
defaults; progressive log loss and error. Prints the figures of decision 15. Two minutes.
"""

from __future__ import annotations

import gzip
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import common
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from choose_rule import newsgroups
from modes import DATA

import streamomd
from streamomd.features.plan_columns import COUNTED

DOMAINS = ("books", "dvd", "electronics", "kitchen")
REVIEWS = DATA / "blitzer-sentiment/processed_acl"
RULES = ("nag", "snag", "adagrad", "ftrl_proximal", "ogd")


def groups(folder: Path) -> pa.Table:
    """Messages of the training part and their 20 groups."""
    newsgroups(folder)
    return pq.read_table(folder / "train").select(["message", "group"])


def computers(folder: Path) -> pa.Table:
    """The same, comp.* against the others."""
    found = groups(folder)
    labels = [int(group.startswith("comp.")) for group in found["group"].to_pylist()]
    return found.set_column(1, "group", pa.array(labels))


def reviews(*domains: str) -> Callable[[Path], pa.Table]:
    """Reviews of these domains, for or against."""

    def read(folder: Path) -> pa.Table:
        texts, labels = [], []
        for domain in domains:
            for label, side in enumerate(("negative", "positive")):
                path = REVIEWS / domain / f"{side}.review.gz"
                with gzip.open(path, "rt", encoding="utf8") as lines:
                    texts += map(words_of, lines)
                labels += [label] * (len(texts) - len(labels))
        order = np.random.default_rng(4).permutation(len(texts))
        return pa.table({"message": texts, "group": labels}).take(pa.array(order))

    return read


def words_of(line: str) -> str:
    """The words of a published bag, each as often as it was there; pairs of words left out.

    >>> words_of("good:2 good_film:1 #label#:positive")
    'good good'
    """
    counted = (token.rsplit(":", 1) for token in line.split()[:-1])
    return " ".join(" ".join([word] * int(n)) for word, n in counted if "_" not in word)


SETS: dict[str, Callable[[Path], pa.Table]] = {
    "20 newsgroups": groups,
    "comp.* or not": computers,
    **{domain: reviews(domain) for domain in DOMAINS},
    "all reviews": reviews(*DOMAINS),
}


def measure(shard: Path, rule: str) -> dict[str, tuple[float, float]]:
    """Loss and error by what a word is worth."""
    found = {}
    for how in COUNTED:
        text = [{"column": "message", "counts": how}]
        job = {
            "data": {"shards": [str(shard)], "label": "group", "text": text},
            "model": {"rule": rule},
            "checkpoint": {"url": "none"},
        }
        got = streamomd.train(job, quiet=True).result()
        found[how] = got["loss"], got["error"]
    return found


def main() -> int:
    args = common.arguments(__doc__).parse_args()
    if not REVIEWS.exists():
        print("skipped: no blitzer-sentiment in ../shared/data")
        return 0
    figures = {}
    for name, read in SETS.items():
        with tempfile.TemporaryDirectory() as folder:
            table, shard = read(Path(folder)), Path(folder) / "rows.parquet"
            pq.write_table(table, shard)
            figures[name] = {rule: measure(shard, rule) for rule in RULES}
        lines = [
            [rule, *(f"{loss:.3f}, {error:.3f}" for loss, error in found.values())]
            for rule, found in figures[name].items()
        ]
        common.table([f"{name}: loss, error", *COUNTED], lines)
    common.finish(figures, as_json=args.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
