"""Results as text for a terminal."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from streamomd.cli.rule_docs import shown
from streamomd.core.urls import printable, typed

GUIDE = (
    (
        "What are the features like?",
        ("raw units, on scales nobody knows", "nag", "the default; eta 0.5 is a start"),
        ("… with rare, huge values", "snag", "mean squares, not maxima"),
        ("wide and sparse: words, hashed values", "ftrl_proximal adagrad", "a step a coordinate"),
        ("word counts whose rare words tell", "arow_diag", "cw_diag if labels are clean"),
        ("few (to some thousand) and correlated", "vaw rls", "numbers; O(d^2) a row"),
        ("… of classes", "arow ons", "O(d^2) a row"),
        ("on one scale", "ogd da", "baselines; pa: no step size"),
    ),
    (
        "What are the weights like?",
        ("most should be 0", "ftrl_proximal rda", "--set l1=0.01"),
        ("few features of very many matter", "eg winnow", "pnorm: between them and ogd"),
        ("shrunk, or within limits", "adagrad composite", "l2, box, a ball"),
    ),
    (
        "Must there be a proven bound?",
        ("of the regret, raw units", "nag_projected si_adagrad", "also si_pnorm, of sparse rows"),
        ("of the regret, scaled or sparse", "adagrad ogd", "--set model.certificate=true"),
        ("of the mistakes", "perceptron pnorm", "also sop, aggressive"),
    ),
)
"""Questions, each with cases: when, which rules, and what to know of them."""
MOST = 12  # columns named on a line
SHARDS_SHOWN = 8
SLICES_SHOWN = 20


def as_json(result: Any) -> Any:
    """A result as JSON can say it: a number that is not finite is null."""
    if isinstance(result, dict):
        return {key: as_json(value) for key, value in result.items()}
    if isinstance(result, list | tuple):
        return [as_json(value) for value in result]
    return None if isinstance(result, float) and not math.isfinite(result) else result


def figures(result: Mapping[str, Any]) -> str:
    """Rows, loss and error in a line."""
    parts = [f"{result['rows']:,} rows"]
    told = ("loss", "error", "rmse", "mae", "r2")
    known = [name for name in told if result[name] is not None]
    parts += [f"{name} {result[name]:.6f}" for name in known]
    if result["auc"] is not None:
        parts.append(f"auc {result['auc']:.4f} ± {max(result['auc_error'], 5e-5):.4f}")
    if result["loss"] is None:
        parts.append("loss is not a finite number: try a smaller eta, or is every weight 0?")
    if result["skipped"]:
        from streamomd.training.metrics import worded

        left_out = sum(result["skipped"].values())
        parts.append(f"{left_out:,} bad rows left out ({worded(result['skipped'])})")
    parts.append(f"{result['seconds']:.2f} s ({result['rows_per_second']:,.0f} rows/s)")
    return ", ".join(parts)


def evaluated(result: Mapping[str, Any]) -> str:
    """The figures of all rows, and a table for each column of slices."""
    lines = [figures(result)]
    for column, slices in result["slices"].items():
        known = ("loss", "error", "rmse", "auc", "mae", "r2")
        told = [key for key in known if any(one[key] is not None for one in slices)]
        rows = [
            {
                f"by {printable(column)}": "null" if one["value"] is None else one["value"],
                "rows": f"{one['rows']:,}",
                "weight": f"{one['weight']:,.6g}",
                **{key: "" if one[key] is None else f"{one[key]:.6f}" for key in told},
            }
            for one in slices[:SLICES_SHOWN]
        ]
        more = len(slices) - SLICES_SHOWN
        lines += ["", table(rows), *([f"… {more:,} more (--json has all)"] if more > 0 else [])]
    return "\n".join(lines)


def trained(result: Mapping[str, Any], shards: Sequence[str]) -> str:
    """The result of a run, and what to type next."""
    url = result["checkpoint"]["url"]
    lines = [figures(result)]
    if not url:
        return lines[0]
    url = typed(url)
    data = " ".join(map(typed, shards)) if len(shards) <= SHARDS_SHOWN else "SHARDS"
    lines += [
        f"kept in {url}, commit {result['checkpoint']['sequence']}",
        f"state {result['state_sha256']}",
        "next:",
        f"  streamomd inspect {url}",
        f"  streamomd report {url} -o report.html",
        f"  streamomd predict {url} {data} --to predictions/",
        f"  streamomd resume {url} --epochs {len(result['epochs']) + 1}",
    ]
    return "\n".join(lines)


def submitted(name: str, scheduler: str | None) -> str:
    """A job's id, and what to type next."""
    where = f" --scheduler {scheduler}" if scheduler else ""
    lines = [name, "next:"]
    lines += [f"  streamomd {word} {name}{where}" for word in ("status", "logs", "cancel")]
    return "\n".join(lines)


def status(found: Mapping[str, Any]) -> str:
    """How a job is, in some lines."""
    share = f" of {found['expected']:,} ({found['rows'] / found['expected']:.0%})"
    loss = "" if found["loss"] is None else f", loss {found['loss']:.6f}"
    lines = [f"{found['id']}: {found['state']}", f"rows {found['rows']:,}{share}{loss}"]
    if found["error"]:
        lines.append(found["error"])
    if found["heard"] is not None:
        lines.append(f"heard of {found['heard']:.0f} s ago")
    commit = found["commit"]
    lines.append(
        f"commit {commit['sequence']} after row {commit['rows']:,}, {commit['written']}"
        if commit
        else "its checkpoint is not reached from here"
    )
    return "\n".join(
        [*lines, f"kept in {printable(found['url'])}", f"submitted {found['submitted']}"]
    )


def diagnosed(found: Sequence[Mapping[str, Any]]) -> str:
    """A line for each worker, and under it what is wrong."""
    lines = []
    for one in found:
        memory = f"{one['memory'] / 2**30:.1f} GiB" if one["memory"] else "memory without limit"
        fit = "fit" if one["ok"] else "NOT fit"
        lines.append(f"{one['worker']}: {fit}; {one['threads']} threads, {memory}")
        lines += [f"  {text}" for text in one["unfit"]]
        lines += [f"  {text} (the last bits may differ)" for text in one["differs"]]
    return "\n".join(lines)


def list_temporary_files(paths: Sequence[str]) -> str:
    """Temporary files that belong to no commit."""
    lines = [f"temporary: {printable(path)}" for path in paths]
    advice = "remove these once no process of their host writes to this checkpoint"
    return "\n".join([*lines, advice])


def inspected(result: Mapping[str, Any]) -> str:
    """A model's summary and its heaviest coordinates."""
    kept = result["checkpoint"]
    told = {**result, "checkpoint": kept["url"] and f"{kept['url']}, commit {kept['sequence']}"}
    lines = [
        f"{key}: {printable(_figure(value))}"
        for key, value in told.items()
        if key != "top" and value is not None
    ]
    rows = [
        {
            "coordinate": one["coordinate"],
            "name": one["name"],
            "weight": " ".join(f"{weight:.6g}" for weight in one["weight"]),
            **{
                name: " ".join(f"{number:.6g}" for number in slot)
                for name, slot in one["slots"].items()
                if name != "w"
            },
        }
        for one in result["top"]
    ]
    return "\n".join([*lines, "", table(rows)])


def _figure(value: Any) -> str:
    """A number as people write it, or a text."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    return f"{value:,}" if isinstance(value, int) else f"{value:.6f}"


def certified(result: Mapping[str, Any]) -> str:
    """A run's claims in a table, or why there is none."""
    learners = result["learners"]
    lines = [f"rule {result['rule']}, loss {result['loss']}, {learners[0]['rows']:,} rows"]
    rows = []
    for one in learners:
        name = "" if one["learner"] is None else f"learner {one['learner']}: "
        if one["loss"] is not None:
            lines.append(
                f"{name}loss {one['loss']:.6g}, comparator's {one['comparator_loss']:.6g}, "
                f"regret {one['regret']:.6g}"
            )
            if one["comparator_gap"] is not None:
                gap = one["comparator_gap"]
                lines[-1] += f" (at most {gap:.3g} too small)"
        if one["claims"] is None:
            same = len({other["reason"] for other in learners}) == 1
            said = f"{'' if same else name}no certificate: {one['reason']}"
            lines += [] if said in lines else [said]
        for claim in one["refused"] if one["claims"] else ():
            lines.append(f"{name}refused: {claim['claim']} ({claim['source']}): {claim['reason']}")
        for claim in one["claims"] or ():
            ratio = "" if claim["ratio"] is None else f"{claim['ratio']:.3g}"
            numbers = {key: f"{claim[key]:.6g}" for key in ("measured", "bound")}
            label = {} if one["learner"] is None else {"learner": one["learner"]}
            note = {"note": claim["note"]} if claim["note"] else {}
            shown = {"claim": claim["claim"], **numbers, "ratio": ratio, "source": claim["source"]}
            rows.append({**label, **shown, **note})
    return "\n".join([*lines, "", table(rows)] if rows else lines)


def table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Rows in columns, one a key."""
    if not rows:
        return "(none)"
    keys: list[str] = max(([*row] for row in rows), key=len)
    cells = [keys, *([printable(str(row.get(key, ""))) for key in keys] for row in rows)]
    widths = [max(len(row[at]) for row in cells) for at in range(len(keys))]
    form = "  ".join(f"{{:<{width}}}" for width in widths)
    return "\n".join(form.format(*row).rstrip() for row in cells)


def converted(result: Mapping[str, Any]) -> str:
    """What was written, and what to type next."""
    files, names = result["shards"], result["columns"]
    shards = "1 shard" if len(files) == 1 else f"{len(files)} shards"
    folder = files[0].rpartition("/")[0] if files else ""
    return "\n".join(
        [
            f"{result['rows']:,} rows in {shards}, {result['seconds']:.1f} s",
            f"columns: {printable(', '.join(names[:MOST]))}{', …' if len(names) > MOST else ''}",
            *_almost_numbers(result.get("almost_numbers", {})),
            "next:",
            f"  streamomd train {typed(folder)} {_flags(names, result['size'])}",
        ]
    )


def _almost_numbers(columns: Mapping[str, Sequence[str]]) -> Iterator[str]:
    """Columns that one word made text, and how to have them as numbers."""
    for name, words in columns.items():
        column, found = printable(name), printable(", ".join(word[:20] for word in words))
        nulls = " ".join(typed(f"--null={word[:20]}") for word in words)
        yield f"look at {column}: most values are numbers, but it became text, as there is {found};"
        yield f"  if that means missing: {printable(nulls)}; if it is wrong: mend it, or"
        yield f"  {typed(f'--type={name}=double')} refuses it by its line (with --overwrite)"


def _flags(columns: Sequence[str], size: int | None) -> str:
    """How to learn what ``convert`` wrote: its sparse pair comes last, and needs to be named."""
    if size is None:
        return "--label COLUMN"
    weight = "--weight weight " if "weight" in columns else ""
    indices, values = columns[-2:]
    pair = printable(f'data.sparse={{indices="{indices}", values="{values}"}}')
    return f"--label label {weight}--set '{pair}'"


def rules() -> list[dict[str, Any]]:
    """Every rule, for a table."""
    from streamomd.losses import all_losses
    from streamomd.rules import all_rules

    return [
        {
            "name": rule.name,
            "title": rule.title,
            "certificate": rule.certificate is not None,
            "losses": [*(rule.losses or all_losses())],
            "modes": [*rule.modes],
            "params": rule.parse_params({}),
            "source": rule.source,
        }
        for rule in all_rules().values()
    ]


def losses() -> list[dict[str, Any]]:
    """Every loss, for a table. lipschitz: what bounds its slope, of its default parameters."""
    from streamomd.losses import all_losses

    return [
        {
            "name": loss.name,
            "title": loss.title,
            "task": "classify" if loss.classifies else "regress",
            "lipschitz": loss.lipschitz(loss.numbers({})) if loss.lipschitz else None,
            "implicit": loss.along is not None,
            "params": loss.parse_params({}),
            "also": [*loss.aliases],
        }
        for loss in all_losses().values()
    ]


def formats() -> list[dict[str, Any]]:
    """What can be read, for a table."""
    return [
        {"name": "parquet", "what": "shards; .parquet", "read by": "train, evaluate, predict"},
        {"name": "arrow", "what": "shards; Arrow IPC files", "read by": "train, evaluate, predict"},
        {"name": "csv", "what": "text, also .gz, .bz2, .xz", "read by": "convert"},
        {"name": "svmlight", "what": "text: label i:v i:v", "read by": "convert"},
        {"name": "vw", "what": "Vowpal Wabbit text: label |ns f:v", "read by": "convert"},
    ]


def modes() -> list[dict[str, Any]]:
    """The ways to walk the rows, for a table."""
    return [
        {
            "name": "exact",
            "what": "one learner, every row in order; threads or a cluster decode ahead",
            "bits": "the same however batches, shards and interruptions fall",
        },
        {
            "name": "averaged",
            "what": "in a round parts learn side by side on a cluster, then merge",
            "bits": "of the job (train.parts), with any number of workers",
        },
        {
            "name": "sharded",
            "what": "workers own partitions of the coordinates, and learn micro-batches together",
            "bits": "of the job (train.parts, train.batch_rows), with any number of workers",
        },
    ]


def exports() -> list[dict[str, Any]]:
    """What a model can be exported to, for a table."""
    from streamomd.integrations.export import FORMATS

    return [{"name": one.name, "what": one.what, "extra": one.extra} for one in FORMATS.values()]


def listed(rows: Sequence[Mapping[str, Any]]) -> str:
    """One of the lists as a table: words for yes and no, for all losses and for parameters."""
    from streamomd.losses import all_losses

    def cell(value: Any) -> Any:
        if isinstance(value, Mapping):
            return ", ".join(f"{name}={shown(one)}" for name, one in value.items())
        if isinstance(value, list):
            return "all" if value == [*all_losses()] else ", ".join(value)
        if isinstance(value, bool):
            return "yes" if value else "no"
        return "none" if value is None else value

    # The sources are in --json and in docs/rules.
    return table([{key: cell(row[key]) for key in row if key != "source"} for row in rows])


def guide() -> str:
    """Questions that lead to a rule, for one who does not know which to name."""
    widths = [max(len(case[at]) for _, *cases in GUIDE for case in cases) for at in (0, 1)]
    lines = ["--rule needs a name. The first line that fits your rows:"]
    for question, *cases in GUIDE:
        lines += ["", question]
        for case, rules, hint in cases:
            names = rules.replace(" ", ", ")
            lines.append(f"  {case:<{widths[0]}}  {names:<{widths[1] + 1}}  {hint}")
    ends = "\n\nall of them: streamomd list rules; a page of each: docs/rules"
    return "\n".join(lines) + ends


LISTS: dict[str, Callable[[], list[dict[str, Any]]]] = {
    "rules": rules,
    "losses": losses,
    "formats": formats,
    "modes": modes,
    "exports": exports,
}
