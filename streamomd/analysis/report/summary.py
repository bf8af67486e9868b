"""The top of the page: the model, its metrics, whether the run is finished, and warnings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from xml.etree.ElementTree import Element

from streamomd.analysis.history import History, rows_passed
from streamomd.analysis.report.charts import brief
from streamomd.analysis.report.data_warnings import DataWarning
from streamomd.analysis.report.learning import day_column
from streamomd.analysis.report.markup import element, folded, paragraph, section, table
from streamomd.analysis.report.verdict import verdict_box
from streamomd.config.spec import Spec
from streamomd.core.urls import shown, typed
from streamomd.core.wording import counted, worded_means
from streamomd.features import describe
from streamomd.training.metrics import Metrics
from streamomd.training.model_data import ModelData
from streamomd.training.model_figures import last_tenth, means_of, mixture_of


def header(
    model: ModelData, run_history: History, figures: Mapping[str, Any], count: int
) -> Element:
    """The heading, the verdict, a summary, and the metrics of ``Model.result``. count: number of
    warnings."""
    means = means_of(model)
    return element(
        "header",
        element("h1", f"{model.plan.label}, learned by {model.spec.model.rule}"),
        element("p", _where(model, run_history), class_="soft"),
        verdict_box(model, figures, diverged=divergence(model, run_history)),
        paragraph(f"{_what_next(count)} {_sentence(model, run_history, figures)}"),
        _boxes(model, run_history, figures),
        *([paragraph(f"Mixture: {text}.")] if (text := mixture_of(model)) else []),
        *([paragraph(f"Missing numbers: {worded_means(means)}.")] if means else []),
    )


def divergence(model: ModelData, run_history: History) -> str:
    """What is not finite of a model, or was not after its last commit; "" of a sound one."""
    metrics = model.metrics
    if metrics.total[0] and metrics.figures(metrics.total)["loss"] is None:
        return "the loss is not a finite number"
    return model.state.problem() or run_history.diverged


def _where(model: ModelData, run_history: History) -> str:
    if not model.url:
        return "A model in memory."
    written = (
        f", written {run_history.commits[-1].written:%Y-%m-%d %H:%M} UTC"
        if run_history.commits
        else ""
    )
    return f"Commit {model.sequence} of {shown(model.url)}{written}."


def _sentence(model: ModelData, run_history: History, figures: Mapping[str, Any]) -> str:
    rows, epochs = model.metrics.total_rows, model.spec.train.epochs
    share = progress_share(model, run_history)
    done = f" ({share:.0%} of {run_history.rows * epochs:,})" if share is not None else ""
    epochs_started = len(model.metrics.rows)
    where = f" in {epochs_started} epochs" if model.finished else f", now in epoch {epochs_started}"
    many = where if epochs_started > 1 else ""
    how = f"; {_by_epoch(model.metrics)}" if many else ""
    if model.finished:
        early = f" of {epochs}: early stopping" if figures["stopped_early"] else ""
        return f"Finished: {rows:,} rows were learned{many}{early}{how}."
    resumes = model.url and not run_history.diverged
    again = f" Resume with: streamomd resume {typed(model.url)}" if resumes else ""
    return f"Not finished: {rows:,} rows{done} were learned so far{many}{how}.{again}"


def _by_epoch(metrics: Metrics) -> str:
    """Returns the error or RMSE of the first epoch, whose rows were new, and of the last, as
    text."""
    first, last = (metrics.figures(metrics.sums[epoch]) for epoch in (0, -1))
    name = "error" if metrics.classifies else "RMSE"
    values = [one[name.lower()] for one in (first, last)]
    before, after = ("unknown" if value is None else brief(value) for value in values)
    return f"{name} {before} in epoch 1, when rows were new, {after} in the last"


def _what_next(count: int) -> str:
    if not count:
        return "No data warnings."
    return f"{counted(count, 'thing')} to look at, below."


def progress_share(model: ModelData, run_history: History) -> float | None:
    """The share of all rows already passed; None if unknown."""
    expected = run_history.rows * model.spec.train.epochs
    return rows_passed(model.metrics) / expected if expected else None


def _boxes(model: ModelData, run_history: History, figures: Mapping[str, Any]) -> Element:
    share = progress_share(model, run_history)
    boxes = [("rows learned", f"{model.metrics.total_rows:,}")]
    boxes += [("of all rows", f"{share:.0%}")] if share is not None and not model.finished else []
    boxes += _last_tenth(model)
    for name, key in (("loss", "loss"), ("RMSE", "rmse"), ("AUC", "auc"), ("R²", "r2")):
        if figures[key] is not None:
            boxes.append((name, brief(figures[key])))
    if figures["error"] is not None:
        boxes.insert(-1, ("error", f"{figures['error']:.2%}"))
    held = figures["holdout"]
    if held is not None and held["loss"] is not None:
        boxes.append(("hold-out loss", brief(held["loss"])))
    boxes.append(("coordinates", f"{model.plan.size:,}"))
    left_out = sum(model.metrics.skipped.values())
    boxes += [("rows skipped", f"{left_out:,}")] if left_out else []
    return element(
        "dl",
        *(element("div", element("dt", name), element("dd", text)) for name, text in boxes),
        class_="figures",
    )


def _last_tenth(model: ModelData) -> list[tuple[str, str]]:
    """The loss of the last rows, of rows with times or dates or in their order: there it differs
    from that of all rows if the relation drifts."""
    timed = model.spec.data.time or model.ordered_by or day_column(model.plan)
    found = last_tenth(model) if timed else None
    return [(f"loss of the last {found[0]:,}", brief(found[1]))] if found else []


def warnings_section(found: Sequence[DataWarning]) -> Element:
    """Each warning: its name, what was found, and what to do."""
    if not found:
        return section(
            "Things to look at",
            paragraph(
                "None: no column is empty, constant, far out of scale or named like an id or a "
                "weight, and no feature dominates all others, as far as the saved data show."
            ),
        )
    items = [
        element("li", element("strong", one.name), f": {one.title}. ", one.text) for one in found
    ]
    return section("Things to look at", element("ul", *items, class_="look"))


MOST_SHARDS = 20


def job_section(model: ModelData, run_history: History) -> Element:
    """Columns, keys, shards and commits."""
    lines = [element("li", line) for line in describe(model.plan)]
    return section(
        "Job and data",
        element("ul", *lines),
        *_shards(run_history),
        *_commits(run_history),
        element("h3", "The job"),
        *_job(model.spec),
    )


def _job(spec: Spec) -> list[Element]:
    """The keys that are not the default's, and all others to open."""
    plain = dict(_keys(Spec().to_json()))
    keys = list(_keys(spec.to_json()))
    own = [(key, value) for key, value in keys if plain.get(key) != value]
    others = [(key, value) for key, value in keys if plain.get(key) == value]
    heads = ["key", "value"]
    rest = table(heads, others, label="Keys of the job with default values", wraps=True)
    return [
        table(heads, own, label="Keys of the job", wraps=True),
        folded(f"{counted(len(others), 'key')} with the default value", rest),
    ]


def _keys(tables: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, str]]:
    for name, value in tables.items():
        if isinstance(value, Mapping):
            yield from _keys(value, f"{above}{name}.")
        elif value not in ("", [], None):
            yield f"{above}{name}", _text(value)


def _text(value: Any) -> str:
    if isinstance(value, list):
        some = ", ".join(_text(one) for one in value[:MOST_SHARDS])
        return some + (f", … {len(value) - MOST_SHARDS} more" if len(value) > MOST_SHARDS else "")
    if isinstance(value, Mapping):
        return ", ".join(f"{key} = {_text(one)}" for key, one in value.items())
    return str(value).lower() if isinstance(value, bool) else str(value)


def _shards(run_history: History) -> list[Element]:
    if not run_history.shards:
        return []
    size = sum(int(shard.get("size") or 0) for shard in run_history.shards)
    some = [
        (
            shown(str(facts["url"])),
            f"{facts.get('rows') or 0:,}",
            f"{brief(facts.get('size') or 0)}B",
        )
        for facts in run_history.shards[:MOST_SHARDS]
    ]
    text = f"{counted(len(run_history.shards), 'shard')}, {counted(run_history.rows, 'row')}, "
    text += f"{brief(size)}B."
    if len(run_history.shards) > MOST_SHARDS:
        text += f" The first {MOST_SHARDS}:"
    return [
        element("h3", "Shards"), paragraph(text),
        table(["shard", "rows", "size"], some, numbers=(1, 2), label="Shards"),
    ]  # fmt: skip


def _commits(run_history: History) -> list[Element]:
    rows = []
    for one in run_history.commits:
        when = f"{one.written:%Y-%m-%d %H:%M:%S}"
        rows.append((f"{one.sequence}", f"{one.rows:,}", when, f"{brief(one.nbytes)}B"))
    if not rows:
        return []
    text = f"Written by streamomd {run_history.version} on {run_history.host}, "
    text += f"in a process started {run_history.started}."
    rows_table = table(
        ["commit", "rows", "written (UTC)", "size"], rows, numbers=(0, 1, 3), label="Commits"
    )
    return [element("h3", "Commits"), paragraph(text), rows_table]
