"""Trackers: callbacks that log a run's metrics to MLflow or TensorBoard.

    from streamomd.integrations.trackers import MLflow, TensorBoard

    streamomd.train("job.toml", callbacks=[MLflow("http://mlflow:5000"), TensorBoard("logs/bank")])

On the command line: ``--track mlflow:URI``, ``--track tensorboard:DIR``.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from streamomd.core.errors import UsageError
from streamomd.core.installed import needs_extra
from streamomd.core.urls import scrub
from streamomd.core.wording import nearest
from streamomd.training.progress import Callback

TABLES = ("data", "model", "train")
"""Tables of a job whose keys are logged as parameters."""
MOST_LETTERS = 6000
"""Maximum length of a parameter: MLflow refuses more, and a list of columns may be long."""
_ENDS = {"finished": "FINISHED", "stopped": "KILLED"}


class MLflow:
    """An MLflow run: the job as parameters, metrics with the number of rows as step.

    uri: of the tracking server, empty: MLflow's own (MLFLOW_TRACKING_URI). experiment, run_name:
    names; empty: MLflow's experiment Default, and a generated name. run_id: of a run to continue,
    for example after ``resume``; empty: a new one. Its status is FINISHED, or KILLED if the
    training was stopped.
    Raises MissingExtraError without ``streamomd[mlflow]``.
    """

    def __init__(
        self, uri: str = "", *, experiment: str = "", run_name: str = "", run_id: str = ""
    ) -> None:
        with needs_extra("MLflow is not installed", "mlflow"):
            from mlflow import entities
            from mlflow.tracking import MlflowClient
        with _usable(f"mlflow:{uri}"):
            self._client = MlflowClient(tracking_uri=uri or None)
        self._entities = entities
        self._experiment, self._run_name = experiment, run_name
        self.run_id = run_id

    def on_progress(self, figures: dict[str, Any]) -> None:
        """Log in one request; the first call creates the run."""
        if not self.run_id:
            self.run_id = self._begin(figures)
        now, rows = int(time.time() * 1000), figures["rows"]
        metrics = [self._entities.Metric(*one, now, rows) for one in numbers(figures)]
        self._client.log_batch(self.run_id, metrics=metrics)
        if figures["state"] in _ENDS:
            self._client.set_terminated(self.run_id, _ENDS[figures["state"]])

    def _begin(self, figures: Mapping[str, Any]) -> str:
        known = self._experiment and self._client.get_experiment_by_name(self._experiment)
        if self._experiment and not known:
            experiment = self._client.create_experiment(self._experiment)
        else:
            experiment = known.experiment_id if known else "0"
        run = self._client.create_run(experiment, run_name=self._run_name or None)
        identity: str = run.info.run_id
        pairs = parameters(figures["job"])
        params = [self._entities.Param(key, value[:MOST_LETTERS]) for key, value in pairs]
        self._client.log_batch(identity, params=params)
        self._client.set_tag(identity, "streamomd.checkpoint", figures["checkpoint"])
        return identity


class TensorBoard:
    """Event files in ``logdir``: metrics as scalars over rows, the job as text.

    Raises MissingExtraError without ``streamomd[tensorboard]``.
    """

    def __init__(self, logdir: str) -> None:
        with needs_extra("tensorboardX is not installed", "tensorboard"):
            from tensorboardX import SummaryWriter
        with _usable(f"tensorboard:{logdir}"):
            self._writer = SummaryWriter(logdir)
        self._begun = False

    def on_progress(self, figures: dict[str, Any]) -> None:
        """Write and flush, so that TensorBoard shows current values."""
        if not self._begun:
            lines = (f"    {key} = {value}" for key, value in parameters(figures["job"]))
            self._writer.add_text("job", "\n".join(lines), figures["rows"])
            self._begun = True
        for name, number in numbers(figures):
            self._writer.add_scalar(name, number, figures["rows"])
        self._writer.flush()
        if figures["state"] in _ENDS:
            self._writer.close()


@contextmanager
def _usable(what: str) -> Iterator[None]:
    """Raise UsageError for arguments a library rejects, whatever it raises."""
    try:
        yield
    except Exception as error:
        text = scrub(f"{type(error).__name__}: {error}")
        raise UsageError(f"tracker {scrub(what)}: {text}") from None


TRACKERS = {"mlflow": MLflow, "tensorboard": TensorBoard}


def tracker(text: str) -> Callback:
    """A tracker by its text, ``mlflow:URI`` or ``tensorboard:DIR``. Raises UsageError for others.

    >>> tracker("wandb:x")
    Traceback (most recent call last):
    streamomd.core.errors.UsageError: --track 'wandb:x': expected mlflow:URI or tensorboard:DIR
    >>> tracker("tensorbord:logs")
    Traceback (most recent call last):
    streamomd.core.errors.UsageError: --track 'tensorbord:logs': expected mlflow:URI or \
tensorboard:DIR; did you mean 'tensorboard'?
    """
    kind, colon, place = text.partition(":")
    if kind not in TRACKERS or not colon or (kind == "tensorboard" and not place):
        near = None if kind in TRACKERS else nearest(kind, TRACKERS)
        hint = f"; did you mean {near!r}?" if near else ""
        raise UsageError(f"--track {text!r}: expected mlflow:URI or tensorboard:DIR{hint}")
    made: Callback = TRACKERS[kind](place)
    return made


def numbers(figures: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    """The metrics that are finite numbers; bad rows by reason as skipped.REASON.

    >>> list(numbers({"loss": 0.5, "rmse": None, "state": "running", "skipped": {"nan": 2}}))
    [('loss', 0.5), ('skipped.nan', 2.0)]
    """
    skipped = {f"skipped.{reason}": count for reason, count in figures["skipped"].items()}
    for name, value in {**figures, **skipped}.items():
        if isinstance(value, int | float) and math.isfinite(value):
            yield name, float(value)


def parameters(job: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """A job's dotted keys and their values as text; empty ones are omitted.

    >>> list(parameters({"model": {"rule": "nag", "start": "", "params": {"eta": 0.5}}}))
    [('model.rule', 'nag'), ('model.params.eta', '0.5')]
    """
    for table in TABLES:
        for key, value in job.get(table, {}).items():
            if isinstance(value, Mapping):
                yield from ((f"{table}.{key}.{name}", str(one)) for name, one in value.items())
            elif value not in ("", [], None):
                yield f"{table}.{key}", str(value)
