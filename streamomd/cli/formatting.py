"""Results as text for a terminal."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from streamomd.config.values import join_list
from streamomd.core.urls import printable, typed
from streamomd.core.wording import counted, listed, width_of, worded, worded_means

MAX_NAMES = 12  # columns named on a line
FEWEST_COLUMNS = 3  # of a table, however narrow the terminal is
MAX_SHARDS = 8
MAX_SLICES = 20
MAX_DAYS = 3  # of a run whose rows have times


def as_json(result: Any) -> Any:
    """A result for JSON: a number that is not finite is null."""
    if isinstance(result, dict):
        return {key: as_json(value) for key, value in result.items()}
    if isinstance(result, list | tuple):
        return [as_json(value) for value in result]
    return None if isinstance(result, float) and not math.isfinite(result) else result


def format_metrics(result: Mapping[str, Any]) -> str:
    """Rows, loss and error in a line."""
    parts = [counted(result["rows"], "row"), *_losses(result, "mae", "r2")]
    if result["auc"] is not None:
        parts.append(f"auc {result['auc']:.4f} ± {max(result['auc_error'], 5e-5):.4f}")
    if (likely := (result.get("calibrated") or {}).get("log_loss")) is not None:
        parts.append(f"calibrated log loss {likely:.6f}")
    if result["loss"] is None:
        parts.append(
            "loss is not finite: try a smaller eta, and check that not all row weights are 0"
        )
    if result["skipped"]:
        count = sum(result["skipped"].values())
        parts.append(f"{counted(count, 'bad row')} skipped ({worded(result['skipped'])})")
    if result["filtered"]:
        from streamomd.shards.filtered_shards import worded_filter

        parts.append(worded_filter(result["filtered"]))
    parts.append(f"{result['seconds']:.2f} s ({result['rows_per_second']:,.0f} rows/s)")
    return ", ".join(parts)


def format_short(figures: Mapping[str, Any], *more: str) -> str:
    """The loss of some rows, error or RMSE, and more figures by name."""
    return ", ".join(_losses(figures, *more)) or "no row was learned"


def _losses(figures: Mapping[str, Any], *more: str) -> list[str]:
    names = ("loss", "error", "rmse", *more)
    return [f"{name} {figures[name]:.6f}" for name in names if figures[name] is not None]


def format_evaluation(result: Mapping[str, Any]) -> str:
    """The metrics of all rows, and a table for each column of slices."""
    lines = [format_metrics(result)]
    for column, slices in result["slices"].items():
        names = ("loss", "error", "rmse", "auc", "mae", "r2")
        known = [key for key in names if any(group[key] is not None for group in slices)]
        rows = [
            {
                f"by {printable(column)}": "null" if group["value"] is None else group["value"],
                "rows": f"{group['rows']:,}",
                "weight": f"{group['weight']:,.6g}",
                **{key: "" if group[key] is None else f"{group[key]:.6f}" for key in known},
            }
            for group in slices[:MAX_SLICES]
        ]
        more = len(slices) - MAX_SLICES
        lines += [
            "",
            format_table(rows),
            *([f"… {more:,} more (--json has all)"] if more > 0 else []),
        ]
    return "\n".join(lines)


def format_run(result: Mapping[str, Any], shards: Sequence[str]) -> str:
    """The result of a run in at most five lines, and commands to run next; all with --verbose."""
    from streamomd.training.progress import is_verbose

    url = result["checkpoint"]["url"]
    lines = [format_metrics(result), *_time_lines(result)]
    if not url:
        return "\n".join(lines)
    url = typed(url)
    data = " ".join(map(typed, shards)) if len(shards) <= MAX_SHARDS else "SHARDS"
    lines.append(f"saved to {url}, commit {result['checkpoint']['sequence']}")
    if not is_verbose():
        return "\n".join([*lines, f"next: streamomd report {url} -o report.html"])
    lines += [
        f"state {result['state_sha256']}",
        "next:",
        f"  streamomd inspect {url}",
        f"  streamomd report {url} -o report.html",
        f"  streamomd predict {url} {data} -o predictions/",
        f"  streamomd resume {url} --epochs {len(result['epochs']) + 1}",
    ]
    return "\n".join(lines)


def _time_lines(result: Mapping[str, Any]) -> list[str]:
    """Lines on the rows' times: the last days, late rows, and rows without a label yet."""
    lines = []
    if timed := result.get("by_time"):
        days = [
            f"{day['period']}: {counted(day['rows'], 'row')}, {format_short(day)}"
            for day in timed["day"][-MAX_DAYS:]
        ]
        late = f"; {counted(timed['late'], 'late row')}, {counted(timed['ties'], 'tie')}"
        lines = [*days, f"stream time {timed['latest']}{late if timed['late'] else ''}"]
    if delay := result.get("delay"):
        lines.append(
            f"learned {counted(delay['learned'], 'row')}; {counted(delay['waiting'], 'row')} wait "
            "for their labels (data.delay)"
        )
    return lines


MOST_PERIODS = 100
"""Lines of a backtest's table."""


def format_backtest(result: Mapping[str, Any]) -> str:
    """A table of the periods, and the figures of all of them."""
    wrong = "rmse" if result["error"] is None else "error"
    with_auc = any(period["auc"] is not None for period in result["periods"])
    likely = ("calibrated log loss",) if "calibrated" in result else ()
    names = ("loss", *likely, wrong, *(("auc",) if with_auc else ()))
    with_likely = [{**period, **_log_loss(period)} for period in [*result["periods"], result]]
    rows = [
        {
            result["by"]: period["period"],
            "learned before": f"{period['learned']:,}",
            "rows": f"{period['rows']:,}",
            **{key: "" if period[key] is None else f"{period[key]:.6f}" for key in names},
        }
        for period in with_likely[:-1][-MOST_PERIODS:]
    ]
    whole = format_short(with_likely[-1], *likely)
    lines = [format_table(rows), f"{counted(result['rows'], 'row')}, {whole}"]
    if more := len(result["periods"]) - len(rows):
        lines.append(f"{counted(more, 'earlier period')} not shown: --json and -o have them")
    if result["rows_before"]:
        lines.append(
            f"{counted(result['rows_before'], 'row')} before them were not evaluated: their model "
            "had learned no row"
        )
    if result["late"]:
        lines.append(f"{counted(result['late'], 'late row')}: times before that of an earlier row")
    if saved := result.get("checkpoint"):
        lines.append(f"saved to {typed(saved['url'])}, commit {saved['sequence']}")
    return "\n".join(lines)


def _log_loss(one: Mapping[str, Any]) -> dict[str, float | None]:
    return {"calibrated log loss": (one.get("calibrated") or {}).get("log_loss")}


def format_temporary_files(paths: Sequence[str]) -> str:
    """Temporary files that no commit uses."""
    lines = [f"temporary: {printable(path)}" for path in paths]
    advice = "delete them once no process on their host writes to this checkpoint"
    return "\n".join([*lines, advice])


def format_inspection(result: Mapping[str, Any]) -> str:
    """A model's summary and its coordinates with the largest weights."""
    checkpoint, classes = result["checkpoint"], result.get("classes")
    shown = {
        **result,
        "checkpoint": checkpoint["url"] and f"{checkpoint['url']}, commit {checkpoint['sequence']}",
    }
    if "means" in result:
        shown["means"] = worded_means(result["means"])
    if result.get("params"):
        shown["params"] = ", ".join(f"{key} = {value}" for key, value in result["params"].items())
    for key in ("classes", "selected"):
        if result.get(key):
            shown[key] = listed([str(one) for one in result[key]], MAX_NAMES)
    lines = [
        f"{key}: {printable(_figure(value))}"
        for key, value in shown.items()
        if key not in ("top", "curves", "pairs") and value is not None
    ]
    several = bool(classes) and any(len(one["weight"]) > 1 for one in result["top"])
    rows = [
        _heaviest_class(one, classes or ()) if several else _coordinate(one)
        for one in result["top"]
    ]
    table = format_table(rows, width_of(sys.stdout))
    more = ["not shown: weights of other classes, slots (--json has all)"] if several else []
    for one in result.get("curves", ())[: len(result["top"])]:
        more += ["", format_table(_knots(one, classes or ()), width_of(sys.stdout))]
    for one in result.get("pairs", ())[: len(result["top"])]:
        more += ["", format_table(_cells(one, classes or ()), width_of(sys.stdout))]
    return "\n".join([*lines, "", table, *more])


def _knots(one: Mapping[str, Any], classes: Sequence[Any]) -> list[dict[str, Any]]:
    """Rows of a table of a curve: at each knot what the column adds to the margin, of a model with
    a weight for each class to that of each."""
    several = len(one["effect"][0]) > 1
    names = [f"effect on {printable(str(name))}" for name in classes] if several else ["effect"]
    return [
        {
            f"knot of {printable(one['column'])}": f"{knot:.6g}",
            **{name: f"{value:.4g}" for name, value in zip(names, one["effect"][at], strict=True)},
            **({"error": f"{one['error'][at][0]:.3g}"} if "error" in one and not several else {}),
            **({"share of rows": f"{one['share'][at]:.1%}"} if "share" in one else {}),
        }
        for at, knot in enumerate(one["knots"])
    ]


def _cells(one: Mapping[str, Any], classes: Sequence[Any]) -> list[dict[str, Any]]:
    """Rows of a table of a pair: what both columns add together, of several classes to the margin
    of the one where that varies most."""
    first, second = map(printable, one["columns"])
    of_class = f" to {printable(str(classes[one['learner']]))}" if len(classes) > 2 else ""
    return [
        {
            f"{first} × {second}{of_class}": printable(value),
            **{
                printable(name): "" if effect is None else f"{effect:.3g}"
                for name, effect in zip(one["values"][1], effects, strict=True)
            },
        }
        for value, effects in zip(one["values"][0], one["effect"], strict=True)
    ]


def _coordinate(one: Mapping[str, Any]) -> dict[str, Any]:
    """A row of the table: weight, its error and z if they are known, and the slots."""
    return {
        "coordinate": one["coordinate"],
        "name": one["name"],
        "weight": " ".join(f"{weight:.6g}" for weight in one["weight"]),
        **{
            name: " ".join("-" if number is None else f"{number:.3g}" for number in one[name])
            for name in ("error", "z")
            if name in one
        },
        **{
            name: " ".join(f"{number:.6g}" for number in slot)
            for name, slot in one["slots"].items()
            if name != "w"
        },
    }


def _heaviest_class(one: Mapping[str, Any], classes: Sequence[Any]) -> dict[str, Any]:
    """A row of the table of a model with a weight for each class: the largest of them."""
    weights = one["weight"]
    at = max(range(len(weights)), key=lambda number: abs(weights[number]))
    known = {name: one[name][at] for name in ("error", "z") if name in one}
    return {
        "coordinate": one["coordinate"],
        "name": one["name"],
        "weight": f"{weights[at]:.6g}",
        **{name: "-" if number is None else f"{number:.3g}" for name, number in known.items()},
        "class": classes[at],
    }


def _figure(value: Any) -> str:
    """A number with separators or six decimals, or a text."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    return f"{value:,}" if isinstance(value, int) else f"{value:.6f}"


def format_certificate(result: Mapping[str, Any]) -> str:
    """A table of a run's claims, or the reason why there is none."""
    learners = result["learners"]
    lines = [f"rule {result['rule']}, loss {result['loss']}, {learners[0]['rows']:,} rows"]
    rows = []
    for learner in learners:
        name = "" if learner["learner"] is None else f"learner {learner['learner']}: "
        if learner["loss"] is not None:
            lines.append(
                f"{name}loss {learner['loss']:.6g}, comparator's {learner['comparator_loss']:.6g}, "
                f"regret {learner['regret']:.6g}"
            )
            if learner["comparator_gap"] is not None:
                gap = learner["comparator_gap"]
                lines[-1] += f" (at most {gap:.3g} too low)"
        if learner["claims"] is None:
            same = len({other["reason"] for other in learners}) == 1
            line = f"{'' if same else name}no certificate: {learner['reason']}"
            lines += [] if line in lines else [line]
        for claim in learner["refused"] if learner["claims"] else ():
            lines.append(f"{name}refused: {claim['claim']} ({claim['source']}): {claim['reason']}")
        for claim in learner["claims"] or ():
            ratio = "" if claim["ratio"] is None else f"{claim['ratio']:.3g}"
            numbers = {key: f"{claim[key]:.6g}" for key in ("measured", "bound")}
            label = {} if learner["learner"] is None else {"learner": learner["learner"]}
            note = {"note": claim["note"]} if claim["note"] else {}
            shown = {"claim": claim["claim"], **numbers, "ratio": ratio, "source": claim["source"]}
            rows.append({**label, **shown, **note})
    return "\n".join([*lines, "", format_table(rows)] if rows else lines)


def format_table(rows: Sequence[Mapping[str, Any]], width: int | None = None) -> str:
    """Rows as a table, one column per key. width: the last columns that do not fit are named below
    instead."""
    if not rows:
        return "(none)"
    keys: list[str] = max(([*row] for row in rows), key=len)
    cells = [keys, *([printable(str(row.get(key, ""))) for key in keys] for row in rows)]
    widths = [max(len(row[at]) for row in cells) for at in range(len(keys))]
    ends = [sum(widths[: at + 1]) + 2 * at for at in range(len(keys))]
    fitting = sum(end <= width for end in ends) if width else len(keys)
    fitting = max(fitting, FEWEST_COLUMNS)
    form = "  ".join(f"{{:<{width}}}" for width in widths[:fitting])
    lines = [form.format(*row[:fitting]).rstrip() for row in cells]
    left = ", ".join(keys[fitting:])
    return "\n".join([*lines, *([f"not shown: {left} (--json has all)"] if left else [])])


def format_conversion(result: Mapping[str, Any], *, added: bool = False) -> str:
    """The shards that were written, and the command to run next. added: to those of earlier days,
    which a run may have learned.
    """
    files, names = result["shards"], result["columns"]
    folder, parts = files[0].rpartition("/")[0] if files else "", result.get("parts", {})
    above = folder.rpartition("/")[0]
    more = ", …" if len(names) > MAX_NAMES else ""
    return "\n".join(
        [
            f"{counted(result['rows'], 'row')} in {counted(len(files), 'shard')}, "
            f"{result['seconds']:.1f} s",
            *(
                f"{name}: {counted(rows, 'row')} in {typed(f'{above}/{name}')}"
                for name, rows in parts.items()
            ),
            f"columns: {printable(', '.join(names[:MAX_NAMES]))}{more}",
            *map(printable, result.get("notes", ())),
            *_almost_numbers(result.get("almost_numbers", {})),
            "next:",
            f"  {_after_conversion(typed(folder), names, result['size'])}",
            *["  or, of a run that learned earlier shards: streamomd update URL"] * added,
        ]
    )


def _almost_numbers(columns: Mapping[str, Sequence[str]]) -> Iterator[str]:
    """Columns that a few words made text, and how to convert them to numbers."""
    for name, words in columns.items():
        column, found = printable(name), printable(", ".join(word[:20] for word in words))
        as_number = join_list([f"{name}=double"])
        nulls = typed(f"--null={join_list(word[:20] for word in words)}")
        yield f"check {column}: most values are numbers, but it became text because of {found};"
        yield f"  if that means missing: {printable(nulls)}; if it is an error: fix it, or"
        yield f"  {typed(f'--type={as_number}')} reports its line (with --overwrite)"


def _after_conversion(folder: str, columns: Sequence[str], size: int | None) -> str:
    """The command for converted shards; a sparse pair comes last and must be named."""
    if size is None:
        return f"streamomd init {folder}"
    weight = "--weight weight " if "weight" in columns else ""
    indices, values = columns[-2:]
    pair = printable(f'data.sparse={{indices="{indices}", values="{values}"}}')
    return f"streamomd train {folder} --label label {weight}--set '{pair}'"
