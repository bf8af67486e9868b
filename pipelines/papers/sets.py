"""The data sets as Parquet shards, made once under OUT/shards and read from there afterwards."""

from __future__ import annotations

import bz2
import gzip
import tarfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import mmh3
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import csv

DOMAINS = ("books", "dvd", "electronics", "kitchen")
CENSUS_NUMERIC = (0, 2, 3, 5, 16, 17, 18, 24, 30, 36, 38, 39, 40)
BANK_NUMERIC = ("age", "balance", "day", "duration", "campaign", "pdays", "previous")


def shards(out: Path, name: str, make: Callable[[], pa.Table]) -> str:
    """The directory of a data set's shards; ``make`` is asked for its rows the first time."""
    folder = out / "shards" / name
    if not folder.exists():
        part = folder.with_name(f".{name.replace('/', '-')}.part")
        part.mkdir(parents=True, exist_ok=True)
        pq.write_table(make(), part / "rows.parquet", compression="zstd", row_group_size=100_000)
        folder.parent.mkdir(parents=True, exist_ok=True)
        part.rename(folder)
    return str(folder)


def bank(data: Path) -> pa.Table:
    """Bank Marketing: the 7 numeric columns in raw units, y = 1 for "yes"."""
    path = data / "bank-marketing" / "bank-full.csv.gz"
    table = csv.read_csv(path, parse_options=csv.ParseOptions(delimiter=";"))
    return _labelled(table.select(BANK_NUMERIC), table.column("y").to_numpy() == "yes")


def census(data: Path) -> pa.Table:
    """Census-Income (KDD), the training file: its 13 columns of numbers; y = 1 above 50,000."""
    path = data / "census-income-kdd" / "census-income.data.gz"
    names = [f"c{place:02}" for place in range(42)]
    table = csv.read_csv(path, read_options=csv.ReadOptions(column_names=names))
    above = np.array([label.strip() == "50000+." for label in table.column("c41").to_pylist()])
    return _labelled(table.select([names[place] for place in CENSUS_NUMERIC]), above)


def covertype(data: Path) -> pa.Table:
    """Covertype: 54 columns, y = 1 … 7."""
    table = csv.read_csv(data / "covertype" / "covtype.csv.gz")
    return table.rename_columns([*table.column_names[:-1], "y"])


def a9a(data: Path, part: str = "trn") -> pa.Table:
    """a9a, "trn" or "tst": 123 features of 0 and 1 as a sparse pair."""
    with bz2.open(data / "a9a" / f"adult.{part}.bz2", "rt") as lines:
        return sparse_table(_svmlight(lines), 123)


def _svmlight(lines: Iterable[str]) -> Iterator[tuple[int, dict[int, float]]]:
    for line in lines:
        label, *entries = line.split()
        pairs = (entry.split(":") for entry in entries)
        yield int(float(label)), {int(place): float(value) for place, value in pairs}


def reviews(data: Path, domain: str) -> Iterator[tuple[int, dict[str, int]]]:
    """One domain's reviews: ±1 and how often each word or pair of words occurs."""
    for y, name in ((1, "positive"), (-1, "negative")):
        path = data / "blitzer-sentiment" / "processed_acl" / domain / f"{name}.review.gz"
        with gzip.open(path, "rt", encoding="utf-8") as lines:
            for line in lines:
                entries = (entry.rpartition(":") for entry in line.split())
                yield y, {word: int(n) for word, _, n in entries if word != "#label#"}


def blitzer(data: Path, domain: str, bits: int) -> pa.Table:
    """One domain, hashed; a word is there or not; the order of rows is a fixed shuffle."""
    found = [(y, dict.fromkeys(hashed(words, bits), 1.0)) for y, words in reviews(data, domain)]
    order = np.random.default_rng(0).permutation(len(found))
    return sparse_table((found[at] for at in order), 1 << bits)


def newsgroups(data: Path, bits: int) -> tuple[pa.Table, pa.Table]:
    """20 newsgroups by date, (train, test): words of subject and body, hashed, y the group."""
    rows: dict[str, list[tuple[str, dict[int, float]]]] = {"train": [], "test": []}
    with tarfile.open(data / "20newsgroups" / "20news-bydate.tar.gz") as archive:
        for member in archive:
            if member.isfile():
                _, part, group, _ = member.name.rsplit("/", 3)
                opened = archive.extractfile(member)
                assert opened
                words = Counter(tokens(message(opened.read().decode("latin-1"))))
                counts = {at: 1.0 + np.log(n) for at, n in hashed(words, bits).items()}
                rows[part.rpartition("-")[2]].append((group, counts))
    order = np.random.default_rng(0).permutation(len(rows["train"]))
    train = [rows["train"][at] for at in order]
    return sparse_table(train, 1 << bits), sparse_table(rows["test"], 1 << bits)


def message(text: str) -> str:
    """Subject and body: other header lines tell of the sender, often the same in one group.

    In the copy that we have, line ends of the training part have become tabs.
    """
    lines = text.replace("\r\n", "\n")
    if "\n\n" not in lines:
        lines = lines.replace("\t", "\n")
    head, _, body = lines.partition("\n\n")
    subjects = [line[8:] for line in head.split("\n") if line.startswith("Subject:")]
    return "\n".join([*subjects, body])


def tokens(text: str) -> list[str]:
    """Runs of letters, in lower case, two letters or more.

    >>> tokens("Re: Isn't it X-rated?")
    ['re', 'isn', 'it', 'rated']
    """
    letters = "".join(c if c.isalpha() else " " for c in text.lower())
    return [word for word in letters.split() if len(word) > 1]


def hashed(words: dict[str, int], bits: int) -> dict[int, float]:
    """Counts by coordinate: the lowest bits of murmur3; words that meet add up."""
    counts: Counter[int] = Counter()
    for word, n in words.items():
        counts[mmh3.hash(word, signed=False) & ((1 << bits) - 1)] += n
    return {at: float(counts[at]) for at in sorted(counts)}


def sparse_table(rows: Iterable[tuple[int | str, dict[int, float]]], size: int) -> pa.Table:
    """Rows as y and the sparse pair i, v; i ascends."""
    y, indices, values, ends = [], [], [], [0]
    for label, entries in rows:
        y.append(label)
        places = sorted(entries)
        indices += places
        values += [entries[place] for place in places]
        ends.append(len(indices))
    assert all(0 <= place < size for place in indices)
    offsets = pa.array(ends, pa.int32())
    columns = {
        "y": pa.array(y),
        "i": pa.ListArray.from_arrays(offsets, pa.array(indices, pa.int32())),
        "v": pa.ListArray.from_arrays(offsets, pa.array(values, pa.float32())),
    }
    return pa.table(columns)


def _labelled(table: pa.Table, positive: np.ndarray) -> pa.Table:
    return table.append_column("y", pa.array(np.where(positive, 1, -1).astype(np.int8)))


def made_up(rows: int, scales: Iterable[float], classes: int, seed: int = 0) -> pa.Table:
    """Numeric columns of the given scales; y = ±1, or 1 … classes. For --tiny."""
    rng = np.random.default_rng(seed)
    scale = np.array(list(scales))
    x = rng.normal(size=(rows, len(scale)))
    margins = x @ rng.normal(size=(len(scale), classes)) + rng.normal(size=(rows, classes))
    y = margins.argmax(axis=1) + 1 if classes > 2 else np.where(margins[:, 0] > 0, 1, -1)
    columns = {f"x{at}": pa.array(column) for at, column in enumerate((x * scale).T)}
    return pa.table({**columns, "y": pa.array(y.astype(np.int8))})


def made_up_text(rows: int, size: int, classes: int = 2, seed: int = 0) -> pa.Table:
    """Rows of few words, frequent and rare ones; y = ±1, or a name. For --tiny."""
    rng = np.random.default_rng(seed)
    w = rng.normal(size=(size, classes))
    rows_made: list[tuple[int | str, dict[int, float]]] = []
    for _ in range(rows):
        places = np.unique(np.minimum(rng.zipf(1.3, 20) - 1, size - 1))
        margins = w[places].sum(axis=0)
        y: int | str = f"group{margins.argmax()}" if classes > 2 else (1 if margins[0] > 0 else -1)
        rows_made.append((y, dict.fromkeys(map(int, places), 1.0)))
    return sparse_table(rows_made, size)
