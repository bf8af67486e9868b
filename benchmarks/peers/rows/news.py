"""20 newsgroups: 18,846 raw messages, the groups of comp.* against the others; ten times over."""

from __future__ import annotations

import re
import tarfile
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
from choose_rule import message
from modes import DATA

SOURCE = DATA / "20newsgroups/20news-bydate.tar.gz"
ONE = 18_846
ROWS, FEW, TINY, GROUP = 10 * ONE, ONE, 4_000, 5_000
WORD = re.compile(r"\w+")


def tables(count: int) -> Iterator[pa.Table]:
    """Columns text (subject and body) and y (0 or 1).

    In each copy but the first every text begins at another place, and its beginning stands at its
    end: else equal texts would be cut into words once for all copies.
    """
    if not SOURCE.exists():
        raise FileNotFoundError("no 20news-bydate.tar.gz in ../shared/data/20newsgroups")
    read = messages()
    order = np.random.default_rng(4).permutation(len(read))
    chance = np.random.default_rng(5)
    for low in range(0, count, GROUP):
        texts, labels = [], []
        for at in range(low, min(low + GROUP, count)):
            text, label = read[order[at % ONE]]
            texts.append(text if at < ONE else turned(text, chance.random()))
            labels.append(label)
        yield pa.table({"text": texts, "y": pa.array(labels, pa.int8())})


def messages() -> list[tuple[str, int]]:
    """Text and label of all."""
    found = []
    with tarfile.open(SOURCE) as archive:
        for member in archive:
            opened = archive.extractfile(member) if member.isfile() else None
            if opened:
                group = member.name.split("/")[-2]
                text = message(opened.read().decode("latin-1"))
                found.append((text, int(group.startswith("comp."))))
    return found


def turned(text: str, share: float) -> str:
    """The text from the first space after a share of it on, then what stood before.

    >>> turned("to be or not", 0.3)
    'or not\\nto be'
    """
    cut = text.find(" ", int(share * len(text)))
    return text if cut < 0 else f"{text[cut + 1 :]}\n{text[:cut]}"


def features(found: pa.Table) -> pa.Array:
    """What stands after the label in Vowpal Wabbit's text: it gets the words cut already."""
    words = (" ".join(WORD.findall(text.lower())) for text in found["text"].to_pylist())
    return pa.array([f"|t {text}" for text in words])
