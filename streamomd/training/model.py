"""Model, the public face of a trained model: it predicts, explains, evaluates and learns more."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from streamomd.core.errors import UsageError
from streamomd.core.installed import TO_ESTIMATOR, VERDICT
from streamomd.core.wording import counted, named_keywords
from streamomd.sources.tables import TableOptions
from streamomd.training.memory_rows import (
    dicts_of_rows,
    is_shards,
    labels_at,
    learn_in_memory,
    margins_in_memory,
)
from streamomd.training.model_data import ModelData, heaviest
from streamomd.training.model_figures import fill_values_of, result_of, summary_of
from streamomd.training.predict import evaluate, predict, probabilities
from streamomd.training.progress import show
from streamomd.training.scoring.link import each_class

if TYPE_CHECKING:
    from streamomd.training.scoring.scorer import Explanation, Scorer


TOP = 10
"""The heaviest coordinates that a notebook shows with a model."""
MOST_LEARNERS = 8
"""Columns of weights; a table of more classes shows those of the first."""
_METRICS = ("loss", "error", "auc", "rmse", "mae", "r2")


class Coordinates(list[dict[str, Any]]):
    """Coordinates as ``model_data.heaviest`` returns them; in a notebook a table."""

    def _repr_html_(self) -> str:
        """Names, and each learner's weight with its standard error where that is known."""
        rows = []
        for one in self:
            errors = one.get("error", [None] * len(one["weight"]))
            both = zip(one["weight"], errors, strict=True)
            cells = [f"{w:.4g}" if error is None else f"{w:.4g} ± {error:.2g}" for w, error in both]
            rows.append((one["name"], *cells[:MOST_LEARNERS]))
        return _table(f"{counted(len(rows), 'coordinate')} of the largest weights", rows)


def model_table(summary: Mapping[str, Any], verdict: Mapping[str, str]) -> str:
    """summary: as ``Model.summary`` returns it. verdict: its level and text, as in a report."""
    url = summary["checkpoint"]["url"] or "not saved"
    commit = summary["checkpoint"]["sequence"]
    rows = [
        ("rule", summary["rule"]),
        ("rows", f"{summary['rows']:,}"),
        *((name, show(summary[name])) for name in _METRICS if summary.get(name) is not None),
        ("checkpoint", url if url == "not saved" else f"{url}, commit {commit}"),
    ]
    return f"{_table('Model', rows)}<p>{escape(verdict['text'])}</p>"


def _table(caption: str, rows: Iterable[Sequence[str]]) -> str:
    lines = "".join(
        f"<tr><th>{escape(str(row[0]))}</th>"
        f"{''.join(f'<td>{escape(str(cell))}</td>' for cell in row[1:])}</tr>"
        for row in rows
    )
    return f"<table><caption>{escape(caption)}</caption>{lines}</table>"


PUBLIC = (
    "classes", "decision_function", "evaluate", "explain", "fill_values", "inspect", "learn",
    "predict", "predict_proba", "result", "scorer", "state_sha256", "summary", "to_estimator",
)  # fmt: skip
"""What completion offers of a model: the names of the API, see docs/api.md."""


class Model(ModelData):
    """What ``streamomd.train`` and ``streamomd.load`` return."""

    def __dir__(self) -> Sequence[str]:
        """The public names alone."""
        return PUBLIC

    def result(self) -> dict[str, Any]:
        """What ``--json`` prints: figures of all rows learned, this process's speed, the commit."""
        return result_of(self)

    def summary(self) -> dict[str, Any]:
        """What a model is, in a few words."""
        return summary_of(self)

    @named_keywords
    def inspect(self, top: int = 20) -> list[dict[str, Any]]:
        """The ``top`` heaviest coordinates: coordinate, name, weight and slots of each learner.

        A notebook shows them as a table.
        """
        return Coordinates(heaviest(self.plan, self.engine, self.state, self.names, top))

    def _repr_html_(self) -> str:
        """What a notebook shows: rule, metrics, whether the model is better than a constant, and
        the heaviest coordinates."""
        verdict = resolve_name(VERDICT)(self, self.result(), diverged=self.state.problem())
        coordinates = Coordinates(self.inspect(TOP))
        return model_table(summary_of(self), verdict) + coordinates._repr_html_()

    @property
    def classes(self) -> tuple[Any, ...]:
        """The labels that it predicts: [negative, positive] or all classes; () in regression."""
        return tuple(self.plan.classes)

    def fill_values(self) -> dict[str, float | list[float]]:
        """What missing numbers are replaced by, by column: 0, or the mean of the values learned.

        It is the mean where data.nulls says "mean"; of a vector a list. Columns whose missing
        numbers are errors have none.
        """
        return fill_values_of(self)

    @named_keywords
    def learn(self, rows: Any, y: Any = None, sample_weight: Any = None) -> Any:
        """Learn rows in their order, after those learned before; returns the model.

        It is bit-identical to training on the same rows as one more shard. rows: as ``predict``
        takes them. y: labels (n,), of ``classes``, or numbers in regression. sample_weight:
        importance (n,), 0 or more; 1 by default. Nothing is learned if a row is bad, whatever the
        job's on_bad_row; nothing is saved to a checkpoint. The rows count for model.calibrate and
        are watched by the job's [alert]: ``result()["alerts"]`` has what it finds; none is raised.

        A batch of encoded rows (``streamomd.core.batch``), with its own labels, is learned, too;
        then the margins before learning are returned, (rows, learners). Their columns are not
        known, so only a rise of the loss is an alert.

        Raises SchemaError and BadRowError as ``predict`` does, BadRowError for a label that is no
        class and a bad weight with its row, DataError for encoded rows that are not canonical or
        not of this model's coordinates, DivergedError if a number of the model is no longer finite.
        """
        return learn_in_memory(self, rows, y, sample_weight)

    def decision_function(self, rows: Any) -> NDArray[np.float64]:
        """Margins of rows in memory: float64 (n,), or (n, classes) with a margin for each class.

        They are bit-identical to the column ``score`` of ``streamomd predict``; above 0 for the
        second of two classes. rows and errors: as ``predict``.
        """
        margins = margins_in_memory(self, rows)
        return margins[:, 0] if margins.shape[1] == 1 else margins

    def predict_proba(self, rows: Any) -> NDArray[np.float64]:
        """Probabilities of rows in memory: float64 (n, classes), in the order of ``classes``.

        rows and errors: as ``predict``; UsageError for a regression and for a loss without
        probabilities.
        """
        if not self.has_probabilities:
            from streamomd.training.scoring.scorer import no_probabilities

            raise no_probabilities(self.engine.loss.name, self.plan.classes)
        margins = margins_in_memory(self, rows)
        return each_class(probabilities(self.engine, self.state, margins, self.calibration))

    def explain(self, rows: Any) -> list[Explanation]:
        """Why rows in memory have their margins: an Explanation for each row.

        ``contributions``: (feature, value, contribution) by size, which sum to ``margin``; with a
        margin for each class a list of them for each. rows and errors: as ``predict``.
        """
        given = dicts_of_rows(self.plan, rows)
        scorer = self.scorer()
        return [scorer.explain(row, f"row {at}") for at, row in enumerate(given)]

    def scorer(self) -> Scorer:
        """This model, as it is now, for rows in memory, one at a time, in microseconds.

        Raises DivergedError for a model that is not finite.
        """
        from streamomd.training.prepare_scorer import scorer_of  # late: see memory_rows

        self.refuse_non_finite()
        return scorer_of(self.plan, self.engine, self.state, self.calibration)

    @named_keywords
    def predict(
        self,
        rows: Any = None,
        to: str = "",
        *,
        shards: str | Sequence[str] = (),
        keep: Sequence[str] = (),
        where: str = "",
        interval: bool = False,
        level: float | None = None,
        overwrite: bool = False,
        storage_options: Mapping[str, Any] | None = None,
        version: int | None = None,
        as_of: str = "",
        as_files: bool = False,
        csv: Mapping[str, Any] | None = None,
        quiet: bool = True,
        allow_non_finite: bool = False,
    ) -> Any:
        """The label of each row in memory, (n,), or its value in regression.

        rows: a pandas or polars DataFrame, an Arrow table, batch or stream, an
        iterator of record batches (one is in memory at a time), a dict or a list of dicts;
        where all features are numbers, or a vector or a pair of lists, also a numpy array or a
        SciPy CSR matrix of them, (n, columns). Columns that are no features are ignored. None and
        NaN are missing values, see data.nulls. Nothing is learned.

        Raises SchemaError that names all missing columns, or all of another type, BadRowError for
        the first bad row, DataError for arrays of another shape, UsageError for anything else,
        DivergedError for a model that is not finite.

        With ``to``, rows are shards (a name or a list of names): write a Parquet file of
        predictions for each shard into directory ``to``; their paths.
        Columns: ``row`` (int64, in its shard), ``prediction`` (a value of the label column, or the
        mean), ``score`` (the margin; of three classes and more a list), ``probability`` (logistic
        and softmax: of the second class, or a list that sums to 1), and those to ``keep``. A list
        has the order of ``model.classes``, which stands in the file's metadata too, as JSON
        under ``classes``. interval: also ``lower`` and ``upper``, where the mean or the probability
        is with 95 % by the weights' errors (rules auto and laplace). level: of 0.5, 0.8, 0.9, 0.95
        and 0.99; also ``new_lower`` and ``new_upper``, where a new value is with this probability,
        see docs/intervals.md (regression). where: a condition, as
        ``data.where``; other rows are not predicted, and ``row`` still counts them. version, as_of,
        as_files, csv: as ``evaluate``. Without ``quiet`` rows and seconds are printed to stderr.
        shards: another name of rows, for shards.

        Raises UsageError for a column to keep that is not there, OutputExistsError unless
        ``overwrite``, DataError and SchemaError for shards that cannot be read as the model's,
        DivergedError for a model that is not finite, unless ``allow_non_finite``.

        Of a Dask collection: ``streamomd.predict_collection(model, ddf)``.
        """
        given = rows if rows is not None else shards
        if rows is None and not shards:
            raise UsageError("Model.predict needs rows in memory, or shards and to=")
        if hasattr(given, "__dask_graph__"):
            raise UsageError(
                "Model.predict takes rows in memory, or shards: for a Dask collection call "
                "streamomd.predict_collection(model, ddf)"
            )
        if not to and not is_shards(given):
            return labels_at(self, margins_in_memory(self, given))
        if not to:
            raise UsageError(
                "Model.predict writes a file of predictions per shard: pass to= with a directory; "
                "or pass rows in memory, a frame or dicts, to get their labels"
            )
        return predict(
            self,
            given,
            to,
            keep=keep,
            where=where,
            interval=interval,
            level=level,
            overwrite=overwrite,
            storage_options=storage_options,
            tables=TableOptions.for_model(
                self.spec.data, self.table_versions, version, as_of, as_files, csv or {}
            ),
            quiet=quiet,
            allow_non_finite=allow_non_finite,
        )

    @named_keywords
    def evaluate(
        self,
        shards: str | Sequence[str],
        *,
        by: Sequence[str] = (),
        where: str = "",
        storage_options: Mapping[str, Any] | None = None,
        version: int | None = None,
        as_of: str = "",
        as_files: bool = False,
        csv: Mapping[str, Any] | None = None,
        quiet: bool = False,
        allow_non_finite: bool = False,
    ) -> dict[str, Any]:
        """Loss and error on labelled shards; the keys of ``result``. Nothing is learned.

        by: columns for whose values metrics are returned under ``slices``; need not be features.
        version, as_of: of a Delta table; the newest otherwise. as_files: as ``data.as_files``.
        csv: how text files are read, as ``data.csv``, where they differ from those of the job.
        where: a condition, as ``data.where``; rows that do not satisfy it are dropped. The job's
        own filter is of its training rows, and is not used here.
        Raises DivergedError for a model that is not finite, unless ``allow_non_finite``.
        """
        if hasattr(shards, "__dask_graph__"):
            raise UsageError(
                "Model.evaluate reads shards, no Dask collection: ddf.to_parquet(URL) writes them"
            )
        figures = evaluate(
            self,
            shards,
            by=[by] if isinstance(by, str) else by,
            where=where,
            storage_options=storage_options,
            tables=TableOptions.for_model(
                self.spec.data, self.table_versions, version, as_of, as_files, csv or {}
            ),
            quiet=quiet,
            allow_non_finite=allow_non_finite,
        )
        return {**self.result(), **figures}

    def to_estimator(self) -> Any:
        """This model, copied, as scikit-learn has it: an OMDClassifier or OMDRegressor.

        ``to_model()`` of it is the way back. Raises MissingExtraError without scikit-learn.
        """
        return resolve_name(TO_ESTIMATOR)(self)
