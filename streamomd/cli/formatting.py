"""Results as text for a terminal."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from streamomd.cli.rule_docs import shown as parameter
from streamomd.config.values import join_list
from streamomd.core.urls import printable, typed

GUIDE = (
    (
        "What are the features like?",
        ("raw units, on unknown scales", "nag", "the default; start with eta 0.5"),
        ("… with rare, huge values", "snag", "mean squares, not maxima"),
        (
            "wide and sparse: words, hashed values",
            "ftrl_proximal adagrad",
            "a learning rate per coordinate",
        ),
        ("word counts whose rare words matter", "arow_diag", "cw_diag if labels are clean"),
        ("few (to some thousand) and correlated", "vaw rls", "numbers; O(d^2) per row"),
        ("… of classes", "arow ons", "O(d^2) per row"),
        ("on one scale", "ogd da", "baselines; pa: no step size"),
    ),
    (
        "What are the weights like?",
        ("most should be 0", "ftrl_proximal rda", "--set l1=0.01"),
        ("few features of very many matter", "eg winnow", "pnorm: between these and ogd"),
        ("shrunk or constrained", "adagrad composite", "l2, box, norm ball"),
    ),
    (
        "Do you need a proven bound?",
        ("of the regret, raw units", "nag_projected si_adagrad", "also si_pnorm, for sparse rows"),
        ("of the regret, scaled or sparse", "adagrad ogd", "--set model.certificate=true"),
        ("of the mistakes", "perceptron pnorm", "also sop, aggressive"),
    ),
)
"""Questions, each with cases: when, which rules, a remark."""
MAX_NAMES = 12  # columns named on a line
MAX_SHARDS = 8
MAX_SLICES = 20


def as_json(result: Any) -> Any:
    """A result for JSON: a number that is not finite is null."""
    if isinstance(result, dict):
        return {key: as_json(value) for key, value in result.items()}
    if isinstance(result, list | tuple):
        return [as_json(value) for value in result]
    return None if isinstance(result, float) and not math.isfinite(result) else result


def figures(result: Mapping[str, Any]) -> str:
    """Rows, loss and error in a line."""
    parts = [f"{result['rows']:,} rows"]
    names = ("loss", "error", "rmse", "mae", "r2")
    parts += [f"{name} {result[name]:.6f}" for name in names if result[name] is not None]
    if result["auc"] is not None:
        parts.append(f"auc {result['auc']:.4f} ± {max(result['auc_error'], 5e-5):.4f}")
    if result["loss"] is None:
        parts.append(
            "loss is not finite: try a smaller eta, and check that not all row weights are 0"
        )
    if result["skipped"]:
        from streamomd.training.metrics import worded

        count = sum(result["skipped"].values())
        parts.append(f"{count:,} bad rows skipped ({worded(result['skipped'])})")
    parts.append(f"{result['seconds']:.2f} s ({result['rows_per_second']:,.0f} rows/s)")
    return ", ".join(parts)


def evaluated(result: Mapping[str, Any]) -> str:
    """The metrics of all rows, and a table for each column of slices."""
    lines = [figures(result)]
    for column, slices in result["slices"].items():
        names = ("loss", "error", "rmse", "auc", "mae", "r2")
        known = [key for key in names if any(one[key] is not None for one in slices)]
        rows = [
            {
                f"by {printable(column)}": "null" if one["value"] is None else one["value"],
                "rows": f"{one['rows']:,}",
                "weight": f"{one['weight']:,.6g}",
                **{key: "" if one[key] is None else f"{one[key]:.6f}" for key in known},
            }
            for one in slices[:MAX_SLICES]
        ]
        more = len(slices) - MAX_SLICES
        lines += ["", table(rows), *([f"… {more:,} more (--json has all)"] if more > 0 else [])]
    return "\n".join(lines)


def trained(result: Mapping[str, Any], shards: Sequence[str]) -> str:
    """The result of a run, and commands to run next."""
    url = result["checkpoint"]["url"]
    lines = [figures(result)]
    if not url:
        return lines[0]
    url = typed(url)
    data = " ".join(map(typed, shards)) if len(shards) <= MAX_SHARDS else "SHARDS"
    lines += [
        f"saved to {url}, commit {result['checkpoint']['sequence']}",
        f"state {result['state_sha256']}",
        "next:",
        f"  streamomd inspect {url}",
        f"  streamomd report {url} -o report.html",
        f"  streamomd predict {url} {data} -o predictions/",
        f"  streamomd resume {url} --epochs {len(result['epochs']) + 1}",
    ]
    return "\n".join(lines)


def submitted(name: str, scheduler: str | None) -> str:
    """A job's id, and commands to run next."""
    where = f" --scheduler {scheduler}" if scheduler else ""
    lines = [name, "next:"]
    lines += [f"  streamomd {word} {name}{where}" for word in ("status", "logs", "cancel")]
    return "\n".join(lines)


def status(found: Mapping[str, Any]) -> str:
    """The state of a submitted job."""
    share = f" of {found['expected']:,} ({found['rows'] / found['expected']:.0%})"
    loss = "" if found["loss"] is None else f", loss {found['loss']:.6f}"
    lines = [f"{found['id']}: {found['state']}", f"rows {found['rows']:,}{share}{loss}"]
    if found["error"]:
        lines.append(found["error"])
    if found["heard"] is not None:
        lines.append(f"last report {found['heard']:.0f} s ago")
    commit = found["commit"]
    lines.append(
        f"commit {commit['sequence']} after row {commit['rows']:,}, {commit['written']}"
        if commit
        else "its checkpoint cannot be read from this machine"
    )
    return "\n".join(
        [*lines, f"saved to {printable(found['url'])}", f"submitted {found['submitted']}"]
    )


def diagnosed(found: Sequence[Mapping[str, Any]]) -> str:
    """A line for each worker, followed by its problems."""
    lines = []
    for one in found:
        memory = f"{one['memory'] / 2**30:.1f} GiB" if one["memory"] else "unlimited memory"
        state = "fit" if one["ok"] else "NOT fit"
        lines.append(f"{one['worker']}: {state}; {one['threads']} threads, {memory}")
        lines += [f"  {text}" for text in one["unfit"]]
        lines += [f"  {text} (results may not be bit-identical)" for text in one["differs"]]
    return "\n".join(lines)


def temporary_files(paths: Sequence[str]) -> str:
    """Temporary files that no commit uses."""
    lines = [f"temporary: {printable(path)}" for path in paths]
    advice = "delete them once no process on their host writes to this checkpoint"
    return "\n".join([*lines, advice])


def inspected(result: Mapping[str, Any]) -> str:
    """A model's summary and its coordinates with the largest weights."""
    at = result["checkpoint"]
    shown = {**result, "checkpoint": at["url"] and f"{at['url']}, commit {at['sequence']}"}
    lines = [
        f"{key}: {printable(_figure(value))}"
        for key, value in shown.items()
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
    """A number with separators or six decimals, or a text."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    return f"{value:,}" if isinstance(value, int) else f"{value:.6f}"


def certified(result: Mapping[str, Any]) -> str:
    """A table of a run's claims, or the reason why there is none."""
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
                lines[-1] += f" (at most {gap:.3g} too low)"
        if one["claims"] is None:
            same = len({other["reason"] for other in learners}) == 1
            line = f"{'' if same else name}no certificate: {one['reason']}"
            lines += [] if line in lines else [line]
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
    """Rows as a table, one column per key."""
    if not rows:
        return "(none)"
    keys: list[str] = max(([*row] for row in rows), key=len)
    cells = [keys, *([printable(str(row.get(key, ""))) for key in keys] for row in rows)]
    widths = [max(len(row[at]) for row in cells) for at in range(len(keys))]
    form = "  ".join(f"{{:<{width}}}" for width in widths)
    return "\n".join(form.format(*row).rstrip() for row in cells)


def converted(result: Mapping[str, Any]) -> str:
    """The shards that were written, and the command to run next."""
    files, names = result["shards"], result["columns"]
    shards = "1 shard" if len(files) == 1 else f"{len(files)} shards"
    folder = files[0].rpartition("/")[0] if files else ""
    more = ", …" if len(names) > MAX_NAMES else ""
    return "\n".join(
        [
            f"{result['rows']:,} rows in {shards}, {result['seconds']:.1f} s",
            f"columns: {printable(', '.join(names[:MAX_NAMES]))}{more}",
            *_almost_numbers(result.get("almost_numbers", {})),
            "next:",
            f"  streamomd train {typed(folder)} {_flags(names, result['size'])}",
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


def _flags(columns: Sequence[str], size: int | None) -> str:
    """The flags to train on converted shards; their sparse pair comes last and must be named."""
    if size is None:
        return "--label COLUMN"
    weight = "--weight weight " if "weight" in columns else ""
    indices, values = columns[-2:]
    pair = printable(f'data.sparse={{indices="{indices}", values="{values}"}}')
    return f"--label label {weight}--set '{pair}'"


def rules() -> list[dict[str, Any]]:
    """Every rule, for a table. also: other names."""
    from streamomd.losses import all_losses
    from streamomd.rules import ALIASES, all_rules

    return [
        {
            "name": rule.name,
            "title": rule.title,
            "certificate": rule.certificate is not None,
            "losses": [*(rule.losses or all_losses())],
            "modes": [*rule.modes],
            "params": rule.parse_params({}),
            "also": [alias for alias, name in ALIASES.items() if name == rule.name],
            "source": rule.source,
        }
        for rule in all_rules().values()
    ]


def losses() -> list[dict[str, Any]]:
    """Every loss, for a table. lipschitz: the bound of its slope with default parameters."""
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
    """Every input format, for a table."""
    return [
        {"name": "parquet", "what": "shards; .parquet", "read by": "train, evaluate, predict"},
        {"name": "arrow", "what": "shards; Arrow IPC files", "read by": "train, evaluate, predict"},
        {"name": "csv", "what": "text, also .gz, .bz2, .xz", "read by": "convert"},
        {"name": "svmlight", "what": "text: label i:v i:v", "read by": "convert"},
        {"name": "vw", "what": "Vowpal Wabbit text: label |ns f:v", "read by": "convert"},
    ]


def modes() -> list[dict[str, Any]]:
    """Every mode, for a table."""
    return [
        {
            "name": "exact",
            "what": "one learner reads every row in order; threads or a cluster decode ahead",
            "bits": "independent of batches, shards and interruptions",
        },
        {
            "name": "averaged",
            "what": "workers learn parts in parallel, then their states merge, in rounds",
            "bits": "depend on train.parts, not on the number of workers",
        },
        {
            "name": "sharded",
            "what": "workers own ranges of the coordinates and learn micro-batches together",
            "bits": "depend on train.parts and train.batch_rows, not on the number of workers",
        },
    ]


def exports() -> list[dict[str, Any]]:
    """Every export format, for a table."""
    from streamomd.integrations.export import FORMATS

    return [{"name": one.name, "what": one.what, "extra": one.extra} for one in FORMATS.values()]


def listed(rows: Sequence[Mapping[str, Any]]) -> str:
    """One of the lists as a table, with words for booleans and all losses."""
    from streamomd.losses import all_losses

    def cell(value: Any) -> Any:
        if isinstance(value, Mapping):
            return ", ".join(f"{name}={parameter(one)}" for name, one in value.items())
        if isinstance(value, list):
            return "all" if value == [*all_losses()] else ", ".join(value)
        if isinstance(value, bool):
            return "yes" if value else "no"
        return "none" if value is None else value

    # The sources are in --json and in docs/rules.
    return table([{key: cell(row[key]) for key in row if key != "source"} for row in rows])


def guide() -> str:
    """Questions that lead to a rule, for --rule without a value."""
    widths = [max(len(case[at]) for _, *cases in GUIDE for case in cases) for at in (0, 1)]
    lines = ["--rule needs a name. Take the first line that fits your data:"]
    for question, *cases in GUIDE:
        lines += ["", question]
        for case, rules, hint in cases:
            names = rules.replace(" ", ", ")
            lines.append(f"  {case:<{widths[0]}}  {names:<{widths[1] + 1}}  {hint}")
    ends = "\n\nAll rules: streamomd list rules. A page for each: docs/rules."
    return "\n".join(lines) + ends


LISTS: dict[str, Callable[[], list[dict[str, Any]]]] = {
    "rules": rules,
    "losses": losses,
    "formats": formats,
    "modes": modes,
    "exports": exports,
}
