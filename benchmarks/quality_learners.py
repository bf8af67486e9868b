"""The learners of quality.py: rules, estimators, scikit-learn's linear models, Vowpal Wabbit;
and the baseline, ridge or logistic regression of a strength chosen by cross-validation.

All learn the same coordinates: numeric columns and given or one-hot ones, without hashing.
scikit-learn gets the numeric columns standardised by the training part, the others raw values.
"""

from __future__ import annotations

import resource
import subprocess
import sys
import time
import warnings
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import scipy.sparse as sp
from quality_sets import BINARY, CLASSES, REGRESSION, Data
from scipy.special import expit
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression, Ridge, SGDClassifier, SGDRegressor
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import KFold
from sklearn.preprocessing import StandardScaler

import streamomd
from streamomd import OMDClassifier, OMDRegressor
from streamomd.core.errors import DivergedError
from streamomd.rules import find_rule

STRENGTHS = [10.0**exponent for exponent in range(-4, 5)]
FOLDS = 5
LOSS = {BINARY: "logistic", CLASSES: "softmax", REGRESSION: "square"}
WIDE = 1000
"""Above it the baseline's matrix is sparse."""
MOST_NUMBERS = 64
"""Coordinates without columns that are numbers."""
NEWTON = 1e10
"""Multiplications for a Hessian, at most; above them L-BFGS is quicker."""


class Fit(NamedTuple):
    """Test rows as predicted: scores (numbers in regression), (n,) or (n, classes); probabilities
    of the same shape, if the learner has them. seconds: of processors, for training."""

    score: np.ndarray
    probability: np.ndarray | None
    progressive: float | None
    seconds: float


def diverged(split: Split, seconds: float) -> Fit:
    """Without a model: every score is missing."""
    return Fit(np.full(len(split.test), np.nan), None, None, seconds)


class Split:
    """The rows of one split in the forms that learners read, each made when first asked for."""

    def __init__(self, data: Data, at: int, folder: Path) -> None:
        self.data, self.folder = data, folder
        self.train, self.test = data.splits[at]

    def y(self, at: np.ndarray) -> np.ndarray:
        return self.data.y[at]

    @cached_property
    def standardised(self) -> tuple[Any, Any]:
        """Training and test rows: arrays, or CSR where there are many columns."""
        numeric, sparse = self.data.numeric, self.data.sparse
        scale = StandardScaler().fit(numeric[self.train]) if numeric.shape[1] else None
        parts = []
        for at in (self.train, self.test):
            dense = scale.transform(numeric[at]) if scale else numeric[at]
            whole = sp.hstack([sp.csr_matrix(dense), sparse[at]], format="csr")
            parts.append(whole if whole.shape[1] > WIDE else whole.toarray())
        return parts[0], parts[1]

    @cached_property
    def job(self) -> dict[str, Any]:
        """The tables data and model.classes of a job; writes the shards train, test and warm."""
        p, d = self.data.numeric.shape[1], self.data.sparse.shape[1]
        for name, at in (("train", self.train), ("test", self.test), ("warm", self.train[:100])):
            (self.folder / name).mkdir(parents=True, exist_ok=True)
            pq.write_table(self.table(at), self.folder / name / "rows.parquet")
        found: dict[str, Any] = {"label": "y", "numeric": [f"x{j}" for j in range(p)]}
        if d:
            found["sparse"] = {"indices": "indices", "values": "values", "size": d}
        classes = {BINARY: [-1, 1], CLASSES: list(range(self.data.classes)), REGRESSION: []}
        return {"data": found, "classes": classes[self.data.task]}

    @cached_property
    def by_column(self) -> dict[str, Any]:
        """The same with one-hot coordinates, those named column=value, as columns of categories,
        and others, if they are few, as numbers: in the shards train-c, test-c and warm-c."""
        job, d = self.job, self.data.sparse.shape[1]
        p = self.data.numeric.shape[1]
        of = [name.partition("=")[0] for name in self.data.names[p:] if "=" in name]
        if not d or (len(of) != d and d > MOST_NUMBERS):
            return job
        columns = [*dict.fromkeys(of)] if len(of) == d else []
        for name, at in (("train", self.train), ("test", self.test), ("warm", self.train[:100])):
            (self.folder / f"{name}-c").mkdir(parents=True, exist_ok=True)
            table, some = self.table(at).drop_columns(["indices", "values"]), self.data.sparse[at]
            for k, column in enumerate(columns):
                own = np.flatnonzero(np.array(of) == column)
                codes = np.asarray(some[:, own].argmax(axis=1)).ravel()
                found = pa.array([f"{code}" for code in codes])
                table = table.append_column(f"c{k}", found)
            for k in range(d if not columns else 0):
                table = table.append_column(f"s{k}", pa.array(some[:, k].toarray().ravel()))
            pq.write_table(table, self.folder / f"{name}-c/rows.parquet")
        numbers = [f"s{k}" for k in range(d if not columns else 0)]
        data = {"label": "y", "numeric": [*job["data"]["numeric"], *numbers]}
        data["hashed"] = [f"c{k}" for k in range(len(columns))]
        return {**job, "data": data, "part": "-c"}

    def table(self, at: np.ndarray) -> pa.Table:
        """Rows as columns x0, x1, …, indices, values and y."""
        columns = {f"x{j}": column for j, column in enumerate(self.data.numeric[at].T)}
        if self.data.sparse.shape[1]:
            some = self.data.sparse[at]
            for name, flat, kind in (
                ("indices", some.indices, pa.int32()),
                ("values", some.data, pa.float64()),
            ):
                offsets = pa.array(some.indptr, pa.int32())
                columns[name] = pa.ListArray.from_arrays(offsets, pa.array(flat, kind))
        y = self.y(at)
        columns["y"] = y if self.data.task == REGRESSION else y.astype(np.int32)
        return pa.table(columns)

    def text(self, part: str) -> Path:
        """The rows train or test as Vowpal Wabbit reads them."""
        file = self.folder / f"{part}.vw"
        if file.exists():
            return file
        self.folder.mkdir(parents=True, exist_ok=True)
        first = 1 if self.data.task == CLASSES else 0
        at = self.train if part == "train" else self.test
        with file.open("w") as out:
            for row in at:
                dense = self.data.numeric[row]
                some = self.data.sparse[int(row)]
                label = self.data.y[row] + first
                numbers = " ".join(f"x{j}:{dense[j]:.9g}" for j in np.flatnonzero(dense))
                pairs = zip(some.indices, some.data, strict=True)
                named = " ".join(f"{i}:{value:.9g}" for i, value in pairs)
                out.write(f"{label:.9g} |n {numbers} |s {named}\n")
        return file


class RuleLearner:
    """A rule with its defaults through ``streamomd.train``, on Parquet shards.

    more: other keys of the table [model], of two classes unless they are of ``every`` task. named:
    whether rows have ``Split.by_column``.
    """

    def __init__(self, rule: str, *, every: bool = False, named: bool = False, **more: Any) -> None:
        self.rule, self.more, self.every, self.named = rule, more, every, named

    def fit(self, split: Split, passes: int) -> Fit | None:
        """None where the rule has no loss for the task."""
        job = split.by_column if self.named else split.job
        task, names, kind = split.data.task, find_rule(self.rule).losses.names, job.get("part", "")
        loss = LOSS[task] if not names or LOSS[task] in names else names[0]
        if loss != LOSS[task] and task == REGRESSION:
            return None
        if self.more and task != BINARY and not self.every:
            return None
        model = {"rule": self.rule, "loss": loss, "classes": job["classes"], **self.more}

        def train(part: str, epochs: int) -> streamomd.Model:
            tables = {
                "data": {**job["data"], "shards": [str(split.folder / f"{part}{kind}")]},
                "model": model,
                "train": {"epochs": epochs, "detail": False},
                "checkpoint": {"url": "none"},
            }
            return streamomd.train(tables, quiet=True)

        train("warm", 1)  # compiles
        began = time.process_time()
        try:
            trained = train("train", passes)
        except DivergedError:
            return diverged(split, time.process_time() - began)
        seconds = time.process_time() - began
        out = split.folder / "predictions"
        shards = str(split.folder / f"test{kind}")
        [file] = trained.predict(shards, str(out), overwrite=True)
        table = pq.read_table(file)
        columns = {name: np.array(table[name].to_pylist()) for name in table.column_names}
        first = trained.result()["epochs"][0]
        progressive = first["rmse"] if task == REGRESSION else first["loss"]
        exact = loss == LOSS[task]
        return Fit(
            columns["score"], columns.get("probability"), progressive if exact else None, seconds
        )


class SGD:
    """scikit-learn's SGD at its defaults; ``epochs``: as many as there are passes, else its own."""

    def __init__(self, *, epochs: bool) -> None:
        self.epochs = epochs

    def fit(self, split: Split, passes: int) -> Fit | None:
        if not self.epochs and passes > 1:
            return None  # it stops by itself
        x, test = split.standardised
        given = {"max_iter": passes, "tol": None} if self.epochs else {}
        task = split.data.task
        if task == REGRESSION:
            model = SGDRegressor(random_state=0, **given)
        else:
            model = SGDClassifier(loss="log_loss", random_state=0, **given)
        began = time.process_time()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            try:
                model.fit(x, split.y(split.train))
            except ValueError as error:
                if "overflow" not in str(error):
                    raise
                return diverged(split, time.process_time() - began)
        seconds = time.process_time() - began
        return Fit(*predicted(model, test, task), None, seconds)


class Defaults:
    """Estimators at their defaults, on standardised rows; after one pass only: they choose when to
    stop."""

    def __init__(self, classifier: Any, regressor: Any) -> None:
        self.of_task = {REGRESSION: regressor, BINARY: classifier, CLASSES: classifier}

    def fit(self, split: Split, passes: int) -> Fit | None:
        if passes > 1:
            return None
        x, test = split.standardised
        model = clone(self.of_task[split.data.task])
        began = time.process_time()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            model.fit(x, split.y(split.train))
        seconds = time.process_time() - began
        return Fit(*predicted(model, test, split.data.task), None, seconds)


def predicted(model: Any, test: Any, task: str) -> tuple[np.ndarray, np.ndarray | None]:
    """Scores and probabilities of an estimator of scikit-learn."""
    if task == REGRESSION:
        return model.predict(test), None
    with np.errstate(over="ignore", invalid="ignore"):
        probability = np.nan_to_num(model.predict_proba(test))
    return model.decision_function(test), probability[:, 1] if task == BINARY else probability


class VowpalWabbit:
    """At its defaults, or with ``--coin``; several classes: one against all."""

    def __init__(self, *options: str) -> None:
        self.options = options

    def fit(self, split: Split, passes: int) -> Fit | None:
        if not has_vowpal_wabbit():
            return None
        task, model = split.data.task, split.folder / "model.vw"
        loss = "squared" if task == REGRESSION else "logistic"
        several = ["--oaa", str(split.data.classes)] if task == CLASSES else []
        again = ["--passes", str(passes), "--cache", "-k", "--holdout_off"] if passes > 1 else []
        options = ["--loss_function", loss, "-b", "22", *self.options, *several, *again]
        text, test = split.text("train"), split.text("test")
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        output = vowpal_wabbit("-d", str(text), *options, "-f", str(model))
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        file = split.folder / "scores.txt"
        vowpal_wabbit("-t", "-i", str(model), "-d", str(test), "-r", str(file))
        rows = [line.split() for line in file.read_text().splitlines()]
        score = np.array([[float(pair.rpartition(":")[2]) for pair in row] for row in rows if row])
        if task == CLASSES:
            sigmoids = expit(score)
            return Fit(score, sigmoids / sigmoids.sum(axis=1, keepdims=True), None, seconds)
        progressive = None
        if passes == 1:
            progressive = float(output.split("average loss = ")[1].split()[0])
            progressive = progressive**0.5 if task == REGRESSION else progressive
        score = score[:, 0]
        return Fit(score, None if task == REGRESSION else expit(score), progressive, seconds)


def vowpal_wabbit(*arguments: str) -> str:
    """What it prints. Raises CalledProcessError."""
    command = [sys.executable, "-m", "vowpalwabbit", *arguments]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return done.stdout + done.stderr


def has_vowpal_wabbit() -> bool:
    """Whether its package is installed for this interpreter."""
    from importlib.util import find_spec

    return find_spec("vowpalwabbit") is not None


BALANCED = {"class_weight": "balanced"}
LEARNERS: dict[str, Any] = {
    "auto-sigmoid": RuleLearner("auto", calibrate="sigmoid"),
    "auto-isotonic": RuleLearner("auto", calibrate="isotonic"),
    "auto-balanced": RuleLearner("auto", **BALANCED),
    "auto-balanced-sigmoid": RuleLearner("auto", **BALANCED, calibrate="sigmoid"),
    "auto-balanced-isotonic": RuleLearner("auto", **BALANCED, calibrate="isotonic"),
    "auto-curves": RuleLearner("auto", every=True, shapes="columns"),
    "auto-pairs": RuleLearner("auto", every=True, named=True, shapes="pairs"),
    "auto-trees": RuleLearner("auto", every=True, named=True, shapes="all"),
    "nag-sigmoid": RuleLearner("nag", calibrate="sigmoid"),
    "nag-isotonic": RuleLearner("nag", calibrate="isotonic"),
    "pa1-sigmoid": RuleLearner("pa1", calibrate="sigmoid"),
    "sgd-epochs": SGD(epochs=True),
    "sgd": SGD(epochs=False),
    "estimator": Defaults(OMDClassifier(random_state=0), OMDRegressor(random_state=0)),
    "linear": Defaults(LogisticRegression(), Ridge()),
    "vw": VowpalWabbit(),
    "vw-coin": VowpalWabbit("--coin"),
}
"""Those that are no rules, and rules with other keys than their defaults."""


def learner(name: str) -> Any:
    """One of LEARNERS, or a rule."""
    return LEARNERS.get(name) or RuleLearner(name)


# The baseline


def fit_baseline(split: Split, strength: float | None = None) -> tuple[Fit, float, Any]:
    """Ridge or logistic regression of a strength (alpha or C), else of the best one; the strength;
    the estimator."""
    x, test = split.standardised
    y, task = split.y(split.train), split.data.task
    began = time.process_time()
    strength = strength or best_strength(x, y, task)
    model = estimator(task, x, y)
    fit(model, strength, x, y)
    seconds = time.process_time() - began
    return Fit(*predicted(model, test, task), None, seconds), strength, model


def best_strength(x: Any, y: np.ndarray, task: str) -> float:
    """Of STRENGTHS, by the log loss or squared error of FOLDS folds.

    C grows, from a start at the weights of the C before; once the log loss has been 2 % above the
    least for two C in a row, the larger ones are not tried.
    """
    folds = list(KFold(FOLDS, shuffle=True, random_state=0).split(x))
    models = [estimator(task, x, y) for _ in folds]
    losses: dict[float, float] = {}
    for strength in STRENGTHS:
        losses[strength] = 0.0
        for model, (inner, outer) in zip(models, folds, strict=True):
            fit(model, strength, x[inner], y[inner])
            score, probability = predicted(model, x[outer], task)
            if probability is None:
                losses[strength] += ((score - y[outer]) ** 2).sum()
                continue
            seen = np.searchsorted(model.classes_, y[outer]).clip(max=len(model.classes_) - 1)
            known = model.classes_[seen] == y[outer]
            losses[strength] += log_losses(probability, np.where(known, seen, -1)).sum()
        last = list(losses.values())[-2:]
        if task != REGRESSION and min(last) > 1.02 * min(losses.values()):
            break
    return min(losses, key=losses.__getitem__)


def estimator(task: str, x: Any, y: np.ndarray) -> Any:
    """By Newton's method where the Hessian is quickly computed."""
    if task == REGRESSION:
        return Ridge(tol=1e-8)
    size = x.shape[1] * (len(np.unique(y)) if task == CLASSES else 1)
    solver = "newton-cholesky" if x.shape[0] * size**2 < NEWTON else "lbfgs"
    # Several classes by L-BFGS, which is 20news alone: some 30 CPU minutes; at 1e-7 hours.
    tol = 1e-5 if solver == "lbfgs" and task == CLASSES else 1e-7
    return LogisticRegression(solver=solver, max_iter=1000, tol=tol, warm_start=True)


def fit(model: Any, strength: float, x: Any, y: np.ndarray) -> None:
    model.set_params(**{"alpha" if isinstance(model, Ridge) else "C": strength})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of convergence: the strength is then not the best
        model.fit(x, y)


# Figures


def log_losses(probability: np.ndarray, at: np.ndarray) -> np.ndarray:
    """-ln of the probability of class ``at``; -1: of a class that no training row has."""
    if probability.ndim == 1:
        probability = np.column_stack([1.0 - probability, probability])
    p = np.where(at >= 0, probability[np.arange(len(at)), at], 0.0)
    return -np.log(np.maximum(p, np.finfo(float).eps))


def class_numbers(y: np.ndarray, task: str) -> np.ndarray:
    return (y > 0).astype(int) if task == BINARY else y.astype(int)


def figures(split: Split, found: Fit) -> dict[str, float | None]:
    """Held-out loss (rmse in regression), error (R²), AUC, progressive loss, CPU seconds.

    Of a model that diverged the loss is infinite.
    """
    y, task = split.y(split.test), split.data.task
    more = {"progressive": found.progressive, "seconds": found.seconds}
    if np.isnan(found.score).any():
        worst = {"r2": -np.inf} if task == REGRESSION else {"error": 1.0, "auc": None}
        return {"loss": np.inf, **worst, **more}
    if task == REGRESSION:
        squares = float(np.mean((found.score - y) ** 2))
        r2 = 1.0 - squares / float(np.var(y))
        return {"loss": squares**0.5, "r2": r2, **more}
    at = class_numbers(y, task)
    loss = None
    if found.probability is not None:
        loss = float(log_losses(found.probability, at).mean())
    if task == BINARY:
        error = float(np.mean((found.score > 0) != (at > 0)))
        auc = float(roc_auc_score(at, found.score)) if 0 < at.sum() < len(at) else None
        return {"loss": loss, "error": error, "auc": auc, **more}
    error = float(np.mean(found.score.argmax(axis=1) != at))
    return {"loss": loss, "error": error, **more}


def constant_loss(split: Split) -> float:
    """Of the mean or the frequencies of the training part."""
    y, task = split.y(split.train), split.data.task
    if task == REGRESSION:
        return float(np.mean((split.y(split.test) - y.mean()) ** 2)) ** 0.5
    share = np.bincount(class_numbers(y, task), minlength=split.data.classes) / len(y)
    at = class_numbers(split.y(split.test), task)
    return float(log_losses(np.tile(share, (len(at), 1)), at).mean())
