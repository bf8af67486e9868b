"""The history of a run from its checkpoint, and runs side by side.

Metrics are of the first epoch, whose rows were predicted before they were learned, and of hold-out
rows. They are comparable if the runs learned the same rows: the same shards by content, in the same
order, with the same label, filter and hold-out rows.
"""

from __future__ import annotations

import hashlib
import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from streamomd import checkpoint
from streamomd.checkpoint import Store, list_commits, open_store, read_commit, read_ledger
from streamomd.config.spec import Spec
from streamomd.core.errors import CorruptionError, NoCommitError, UsageError
from streamomd.core.urls import absolute, shown
from streamomd.core.wording import named_keywords
from streamomd.training.load_model import load_model
from streamomd.training.metrics import Metrics
from streamomd.training.model_data import ModelData
from streamomd.training.progress import note
from streamomd.training.run_records import UpdateRecord


@dataclass(frozen=True)
class Commit:
    """A commit in the checkpoint: its sequence, rows learned, when it was written, bytes."""

    sequence: int
    rows: int
    written: datetime
    nbytes: int


@dataclass(frozen=True)
class Update:
    """An update of the run: its number, when its last commit was written, and what the metrics had
    before it: rows, and sums of importance, loss and mistakes."""

    number: int
    written: datetime
    rows: int
    sums: tuple[float, float, float]


@dataclass(frozen=True)
class History:
    """commits: oldest first, those that can be used. updates: oldest first, those that commits are
    of. host, started: of the process that wrote the model's own. diverged: what was not finite
    after the model's commit, "" if the run did not diverge. shards: their facts, in the order of
    the run; empty where they cannot be read, and of a model in memory."""

    commits: tuple[Commit, ...] = ()
    updates: tuple[Update, ...] = ()
    host: str = ""
    started: str = ""
    version: str = ""
    diverged: str = ""
    shards: tuple[Mapping[str, Any], ...] = field(default=(), repr=False)

    @property
    def rows(self) -> int:
        """Rows of all shards; 0 if unknown, as for a Dask collection."""
        counts: list[Any] = [shard.get("rows") for shard in self.shards]
        return 0 if None in counts else sum(counts)


def history(model: ModelData, storage_options: Mapping[str, Any] | None = None) -> History:
    """The history of the run that a model was loaded from. Raises as ``streamomd.load`` does."""
    if not model.url:
        return History()
    store = open_store(model.url, storage_options)
    listed = [
        commit
        for commit in list_commits(store)
        if commit["ok"] and commit["sequence"] <= model.sequence
    ]
    newest = read_commit(store, model.sequence)
    commits = tuple(
        Commit(
            commit["sequence"],
            commit["rows"] or 0,
            datetime.fromisoformat(commit["written"]),
            commit["bytes"],
        )
        for commit in listed
        if commit["run"] == newest.run
    )
    version = str(newest.versions.get("streamomd", ""))
    numbers = {
        commit["update"]: commit["sequence"] for commit in listed if commit["run"] == newest.run
    }
    updates = tuple(_updates(store, numbers))
    return History(
        commits,
        updates,
        newest.writer.host,
        newest.writer.started,
        version,
        str(newest.document.get("diverged") or ""),
        _shards(store, newest),
    )


def _updates(store: Store, last: Mapping[int, int]) -> Iterator[Update]:
    """last: the last commit of each update."""
    for number, sequence in sorted(last.items()):
        with suppress(CorruptionError, KeyError, TypeError, ValueError):
            commit = read_commit(store, sequence)
            record = UpdateRecord.from_json(commit.document.get("update"))
            yield Update(number, datetime.fromisoformat(commit.written), record.rows, record.sums)


def _shards(store: Store, commit: checkpoint.Commit) -> tuple[Mapping[str, Any], ...]:
    """Fingerprints of the shards. A report shows the model without them."""
    try:
        return tuple(read_ledger(store, commit).shards)
    except CorruptionError as error:
        note(f"the list of shards is corrupt; the report omits it: {error}")
        return ()


def rows_passed(metrics: Metrics) -> int:
    """Rows passed: learned, held out, skipped as bad, or dropped by a filter."""
    held = sum(metrics.held.rows) if metrics.held is not None else 0
    return metrics.total_rows + held + int(metrics.bad.sum())


def speeds(commits: tuple[Commit, ...]) -> list[tuple[Commit, float]]:
    """Rows per second between consecutive commits, if both rows and time differ."""
    found = []
    for before, after in itertools.pairwise(commits):
        seconds = (after.written - before.written).total_seconds()
        if seconds > 0.0 and after.rows > before.rows:
            found.append((after, (after.rows - before.rows) / seconds))
    return found


METRICS = ("loss", "error", "rmse", "auc", "r2")
ROWS_KEYS = (
    "label", "weight", "where", "partitions", "holdout", "seed", "order", "on_bad_row", "nulls",
)  # fmt: skip
"""Keys of ``data`` that choose the rows, their order and their labels."""
OWN_KEYS = ("checkpoint.url", "data.shards")
"""Keys that differ in most runs: which run it is, and where the shards are."""
MAX_TEXT = 40  # characters of a value in the table
Options = Mapping[str, Any] | None


@named_keywords
def compare_runs(
    runs: Sequence[str], *, checkpoint_storage_options: Options = None
) -> dict[str, Any]:
    """The runs at these URLs, from their newest commits; their weights are not loaded.

    runs: a dict for each: run (as given), url, sequence, finished, rows, epochs, rule,
    loss_function, loss, error, rmse, auc, r2 (of the first epoch; auc and r2 only of runs with one
    epoch), holdout (loss, error, rmse, auc, r2 and rows, or None), seconds (from the start of the
    last process to its last commit), data (the fingerprint of the rows), comparable (whether they
    are those of the first run). keys: the job keys in which runs differ, with a value for each.

    Raises UsageError for fewer than two runs, NoCommitError with all URLs that have no commit, and
    what ``streamomd.load`` raises.
    """
    urls = {absolute(url): url for url in reversed(runs)}
    names = [url for url in runs if urls.pop(absolute(url), None) is not None]
    if len(names) < 2:
        raise UsageError("compare takes two or more different runs, by URL")
    models = _load(names, checkpoint_storage_options)
    figures = [
        {"run": shown(name), **_run(model, history(model, checkpoint_storage_options))}
        for name, model in zip(names, models, strict=True)
    ]
    for run in figures:
        run["comparable"] = run["data"] == figures[0]["data"]
    return {"runs": figures, "keys": _differences([model.spec for model in models])}


def _load(urls: Sequence[str], options: Options) -> Sequence[ModelData]:
    models, missing = [], []
    for url in urls:
        try:
            models.append(load_model(url, storage_options=options, remote=lambda _: True)[0])
        except NoCommitError as error:
            missing.append(str(error))
    if missing:
        raise NoCommitError("\n".join(missing))
    return models


def _run(model: ModelData, run_history: History) -> dict[str, Any]:
    metrics, spec = model.metrics, model.spec
    epochs = len(metrics.rows)
    first = metrics.figures(metrics.sums[0]) if epochs else {}
    detail = (
        metrics.detailed(model.engine.loss, model.plan.classes) if epochs == 1 else {}
    )  # with more epochs it counts rows that were learned before
    return {
        "url": model.url,
        "sequence": model.sequence,
        "finished": model.finished,
        "rows": metrics.total_rows,
        "epochs": epochs,
        "rule": spec.model.rule,
        "loss_function": spec.model.loss,
        **{key: {**first, **detail}.get(key) for key in METRICS},
        "holdout": _holdout(model),
        "seconds": _seconds(run_history),
        "data": _fingerprint(model, run_history),
    }


def _holdout(model: ModelData) -> dict[str, Any] | None:
    held = model.metrics.held
    if held is None or not held.rows or not held.rows[-1]:
        return None
    detail = held.detailed(model.engine.loss, model.plan.classes, last=True)
    figures = {**held.figures(held.current), **detail}
    return {"rows": held.rows[-1], **{key: figures.get(key) for key in METRICS}}


def _seconds(run_history: History) -> float | None:
    try:
        started = datetime.fromisoformat(run_history.started)
    except ValueError:
        return None
    if not run_history.commits:
        return None
    return max((run_history.commits[-1].written - started).total_seconds(), 0.0)


def _fingerprint(model: ModelData, run_history: History) -> str:
    """A hash of the shards' contents and of the keys that choose rows; without their URLs."""
    shards = [
        [one.get(key) for key in ("format", "size", "rows", "footer_sha256")]
        for one in run_history.shards
    ]
    data = model.spec.to_json()["data"]
    chosen = {key: data.get(key) for key in ROWS_KEYS}
    first = model.metrics.rows[:1]
    text = json.dumps([shards, chosen, first], sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _differences(specs: Sequence[Spec]) -> dict[str, list[Any]]:
    """Keys whose values differ, and are not the default's of all runs that have them."""
    flat = [_flat(spec.to_json()) for spec in specs]
    plain = [_flat(_defaults(spec).to_json()) for spec in specs]
    chosen = {
        name
        for own, default in zip(flat, plain, strict=True)
        for name, value in own.items()
        if default.get(name) != value
    }
    names = dict.fromkeys(key for one in flat for key in one if key in chosen.difference(OWN_KEYS))
    values = {name: [one.get(name) for one in flat] for name in names}
    return {name: some for name, some in values.items() if any(one != some[0] for one in some)}


def _defaults(spec: Spec) -> Spec:
    """The defaults of a job with this rule and loss."""
    return Spec.parse({"model": {"rule": spec.model.rule, "loss": spec.model.loss}})


def _flat(table: Mapping[str, Any], above: str = "") -> dict[str, Any]:
    """Nested tables as one, with dotted keys."""
    found: dict[str, Any] = {}
    for key, value in table.items():
        name = f"{above}{key}"
        found |= _flat(value, f"{name}.") if isinstance(value, Mapping) else {name: value}
    return found


def format_comparison(result: Mapping[str, Any]) -> list[list[dict[str, str]]]:
    """Two tables for a terminal: the runs, and the keys in which they differ."""
    runs = result["runs"]
    known = [key for key in METRICS if any(run[key] is not None for run in runs)]
    held = [
        key for key in METRICS if any((run["holdout"] or {}).get(key) is not None for run in runs)
    ]
    losses = len({run["loss_function"] for run in runs})
    rows = [
        {
            "": str(number),
            "run": run["run"],
            "rows": f"{run['rows']:,}" + ("" if run["finished"] else " (not finished)"),
            "epochs": str(run["epochs"]),
            "rule": run["rule"],
            **({"loss function": run["loss_function"]} if losses > 1 else {}),
            **{key: _short(run[key]) for key in known},
            **{f"hold-out {key}": _short((run["holdout"] or {}).get(key)) for key in held},
            "seconds": "" if run["seconds"] is None else f"{run['seconds']:.1f}",
            "same rows": "yes" if run["comparable"] else "NO",
        }
        for number, run in enumerate(runs, 1)
    ]
    keys = [
        {"key": key, **{str(number): _cut(_text(value)) for number, value in enumerate(values, 1)}}
        for key, values in result["keys"].items()
        if key not in ("model.rule", "model.loss")  # columns of the first table
    ]
    return [rows, keys]


def _short(number: float | None) -> str:
    return "" if number is None else f"{number:.4g}"


def _cut(text: str) -> str:
    return text if len(text) <= MAX_TEXT else f"{text[: MAX_TEXT - 1]}…"


def _text(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, list):
        return ", ".join(map(_text, value)) or "-"
    return str(value).lower() if isinstance(value, bool) else str(value) or "-"
