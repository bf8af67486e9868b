"""From a job file, flags and --set to a Spec: the one place that decides which wins.

Nothing is opened but the job file, and nothing is printed: see ``streamomd.runs.session``.
"""

from __future__ import annotations

import copy
import itertools
import os
import re
import time
import tomllib
from collections.abc import Callable, Collection, Mapping, Sequence
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from streamomd.config.flags import assign, assign_flags, check_key, dotted
from streamomd.config.job_table import canonical_keys
from streamomd.config.spec import Spec
from streamomd.config.values import parse_scalar
from streamomd.core.errors import (
    InputNotFoundError,
    ResumeRefusedError,
    UsageError,
    refuse_rows_in_memory,
)
from streamomd.core.installed import sources
from streamomd.core.urls import (
    absolute,
    is_inside,
    local_name,
    printable,
    redact,
    refuse_output_url,
    shown,
)
from streamomd.core.wording import listed, similar_path
from streamomd.losses import find_loss
from streamomd.rules import find_rule

MAX_LINE = 200  # characters of a line in a message; longer ones are cut


def read_job(path: str) -> dict[str, Any]:
    """The tables of a TOML job file. Raises InputNotFoundError, or UsageError naming the line."""
    try:
        text = Path(path).read_bytes().decode("utf-8")
    except FileNotFoundError:
        raise InputNotFoundError(f"no job file {path!r}{similar_path(path)}") from None
    except ValueError as error:
        raise UsageError(f"job {path!r} is not TOML: {error}") from None
    except OSError as error:
        raise UsageError(f"job {path!r} cannot be read: {error.strerror}") from None
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise UsageError(f"job {path!r} is not TOML: nested too deep") from None
    except ValueError as error:
        raise UsageError(f"job {path!r} is not TOML: {error}{_remedy(text, error)}") from None


def _remedy(text: str, error: ValueError) -> str:
    """The line that is not TOML, and the quotes it may lack; "" if the error names no line.

    >>> print(_remedy("shards = data/", ValueError("Invalid value (at line 1, column 10)")))
    <BLANKLINE>
      shards = data/
    text needs quotes: shards = "data/"
    """
    found = re.search(r"at line (\d+)", str(error))
    lines = text.splitlines()
    if not found or not 0 < int(found[1]) <= len(lines):
        return ""
    line = lines[int(found[1]) - 1].strip()
    if "storage_options" in text:  # a line may be a secret
        return ""
    key, equals, value = (part.strip() for part in line.partition("="))
    bare = equals and value and value[0] not in "\"'[{" and key.replace(".", "").isidentifier()
    remedy = f'\ntext needs quotes: {key} = "{value.rstrip(chr(34))}"' if bare else ""
    return f"\n  {line[:MAX_LINE]}{remedy}"


CHANGEABLE = (
    "train.epochs", "train.prefetch", "train.threads", "checkpoint", "cluster", "update", "alert",
    "data.storage_options", "data.max_bad_rows", "data.cache", "data.cache_gib", "data.arrival",
    "data.on_bad_shard", "data.as_files",
)  # fmt: skip
_SUFFIXES = re.compile(
    r"(\.(parquet|parq|pq|arrow|feather|ipc|csv|tsv|jsonl|ndjson|gz|bz2|xz|zst))+$", re.IGNORECASE
)
_PATTERN = re.compile(r"[*?\[\]{}]")
_UNSAFE = re.compile(r"[^\w.=-]+")
_MAX_NAME = 60
MOST_COLUMNS = 20
"""Columns named in a message."""


def build_job(
    job: str | Path | Sequence[str] | Mapping[str, Any] | Spec | None,
    flags: Mapping[str, Any],
    sets: Mapping[str, Any] | None = None,
    *,
    report: Callable[[str], object] | None = None,
    inherit: Callable[[Mapping[str, Any]], Mapping[str, Any] | None] | None = None,
) -> Spec:
    """The Spec of a job (path of a TOML file, nested tables, a Spec, or none), flags and sets.

    Sets win over flags, flags over the job, the job over defaults. Shard and checkpoint URLs come
    out absolute. A list, or a text without ".toml" at its end, names shards. Raises UsageError
    with the unknown or missing key; a missing label is reported by ``require_label``, after the
    shards were found. report: as in ``Spec.parse``. inherit: gives the tables that a job, given as
    tables, takes over from another (``inherited_tables``), or None.
    """
    data = job.get("data") if isinstance(job, Mapping) else None
    for rows in (job, flags.get("shards"), data.get("shards") if isinstance(data, Mapping) else ()):
        refuse_rows_in_memory(rows)
    if isinstance(job, list | tuple):
        flags = _with_shards([str(shard) for shard in job], flags)
        job = None
    elif isinstance(job, str | Path) and not str(job).endswith(".toml"):
        job, flags = None, _with_shards(str(job), flags)
    tables = _tables(job)
    assign_flags(tables, flags)
    for key, value in (sets or {}).items():
        assign(tables, key, value)
    tables = canonical_keys(tables)
    other = inherit(tables) if inherit else None
    spec = Spec.parse(with_inherited(tables, other) if other else tables, report=report)
    if not spec.data.shards:
        raise UsageError("no shards to read: give files, a directory, a glob or URLs")
    spec = _absolute(spec, _stem(job))
    sources().refuse_without_effect(spec.data.shards, _changed_keys(spec))
    _refuse_checkpoint_among_shards(spec)
    _refuse_cache_among_shards(spec)
    return spec


def suggest_checkpoint(shards: Sequence[str]) -> str:
    """The URL of a first run on these shards: an unused directory in runs/, named by the data."""
    return _unused(f"runs/{_data_name([absolute(shard) for shard in shards]) or 'run'}")


def require_label(spec: Spec, columns: Sequence[str]) -> None:
    """Raises UsageError for a job without a label, whose shards were found and have columns."""
    if not spec.data.label:
        known = listed([*map(repr, columns)], MOST_COLUMNS) or "no columns"
        raise UsageError(
            'no label: name the column to predict (--label y, or data.label = "y"), or write a job '
            f"with streamomd init; there are: {printable(known)}"
        )


def change_job(
    saved: Mapping[str, Any],
    sets: Mapping[str, Any],
    more: Sequence[str] = (),
    given: Collection[str] = (),
) -> Spec:
    """A saved job with the keys that a resumed run may change; more: keys that this run may, too.

    given: other keys that this command has values of. Raises ResumeRefusedError for other keys,
    UsageError for those without effect on the sources.
    """
    tables, changeable = copy.deepcopy(dict(saved)), (*CHANGEABLE, *more)
    for key, value in ((dotted(key), value) for key, value in sets.items()):
        check_key(key)
        if not may_change(key, changeable):
            raise ResumeRefusedError(
                f"{key} may not change on resume; what may: {', '.join(changeable)}. "
                "For another job, start a new run from this state (--start URL)"
            )
        assign(tables, key, value)
    spec = Spec.parse(tables)
    sources().refuse_without_effect(spec.data.shards, {*map(dotted, sets), *given})
    _refuse_cache_among_shards(spec)
    return spec


def may_change(key: str, changeable: Sequence[str] = CHANGEABLE) -> bool:
    """Whether a key may change when a run is resumed, by itself or as one of a table that may."""
    return any(key == free or key.startswith(free + ".") for free in changeable)


def parse_sets(pairs: tuple[str, ...]) -> dict[str, Any]:
    """``key=value`` texts; a value is TOML where it can be, else text.

    >>> parse_sets(("model.rule=ng", "eta=0.5", "data.numeric=['a', 'b']"))
    {'model.rule': 'ng', 'eta': 0.5, 'data.numeric': ['a', 'b']}
    """
    sets = {}
    for pair in pairs:
        key, equals, text = pair.partition("=")
        if not equals:
            raise UsageError(f"--set {pair}: expected key=value, e.g. model.params.eta=0.5")
        sets[key] = parse_scalar(text)
    return sets


def _with_shards(shards: str | list[str], flags: Mapping[str, Any]) -> dict[str, Any]:
    if flags.get("shards"):
        raise UsageError(f"shards are given twice: {shards!r} and {flags['shards']!r}")
    return {**flags, "shards": shards}


def _tables(job: Any) -> dict[str, Any]:
    if job is None:
        return {}
    if isinstance(job, Spec):
        return job.to_json(secrets=True)
    if isinstance(job, Mapping):
        return copy.deepcopy(dict(job))
    return read_job(str(job))


def _stem(job: object) -> str:
    return Path(job).stem if isinstance(job, str | Path) else ""


def _refuse_checkpoint_among_shards(spec: Spec) -> None:
    refuse_output_url(spec.checkpoint.url)
    for shard in spec.data.shards:
        if spec.checkpoint.url != "none" and is_inside(spec.checkpoint.url, shard):
            raise UsageError(
                f"checkpoint {shown(spec.checkpoint.url)} is inside the data, {shown(shard)}: its "
                "files would be taken for shards; choose another directory"
            )


def _refuse_cache_among_shards(spec: Spec) -> None:
    cache = spec.data.cache
    for shard in spec.data.shards:
        pattern = local_name(shard).replace("**/", "*")
        if cache and (is_inside(cache, shard) or fnmatch(f"{cache}/0.arrow", pattern)):
            raise UsageError(
                f"data.cache {shown(cache)} is inside the data, {shown(shard)}: its files would be "
                "taken for shards; choose another directory"
            )


def _absolute(spec: Spec, stem: str) -> Spec:
    shards = tuple(absolute(shard) for shard in spec.data.shards)
    name = _run_name(stem, shards, time.strftime("%Y%m%d-%H%M%S"))
    url = spec.checkpoint.url or _unused(f"runs/{name}")
    places = {
        "data": {
            "shards": shards,
            "storage_options": sources().options_for(shards, spec.data.storage_options),
        },
        "model": {"start": absolute(spec.model.start) if spec.model.start else ""},
        "checkpoint": {"url": url if url == "none" else absolute(url)},
    }
    tables = {
        name: getattr(spec, name).model_copy(update=changed) for name, changed in places.items()
    }
    return spec.model_copy(update=tables)


def _unused(url: str) -> str:
    """The URL, numbered if another run of this second has it."""
    numbered = (f"{url}-{number}" for number in itertools.count(2))
    return next(one for one in itertools.chain([url], numbered) if not os.path.lexists(one))


def _run_name(job: str, shards: Sequence[str], time: str) -> str:
    """The job file's name, that of the data, and the time. job: "" if there is no file.

    >>> _run_name("", ["/data/bank/*.parquet"], "20260102-030405")
    'bank-20260102-030405'
    >>> _run_name("nightly", ["s3://bucket/clicks.parquet"], "20260102-030405")
    'nightly-clicks-20260102-030405'
    """
    names = dict.fromkeys(name for name in (job, _data_name(shards)) if name)
    return "-".join([*names, time]) if names else f"run-{time}"


def _data_name(shards: Sequence[str]) -> str:
    """The last part of the first shard's URL that is not a pattern; "" if every part is one.

    >>> _data_name(["a/train.parquet", "a/test.parquet"]), _data_name(["s3://b/year=2026/x y/"])
    ('train', 'x_y')
    """
    for part in reversed(local_name(redact(shards[0])).split("/")) if shards else ():
        name = _UNSAFE.sub("_", _SUFFIXES.sub("", part)).strip("._")
        if name and not _PATTERN.search(part):
            return name[:_MAX_NAME]
    return ""


def _changed_keys(spec: Spec) -> set[str]:
    """The keys of a job's tables [data] and [update] that are not the defaults."""
    tables = spec.model_dump(exclude_defaults=True, include={"data", "update"})
    return set(_dotted("", tables))


def _dotted(above: str, table: dict[str, Any]) -> list[str]:
    found = [f"{above}{name}" for name in table]
    for name, value in table.items():
        if isinstance(value, dict):
            found += _dotted(f"{above}{name}.", value)
    return found


COLUMNS = (
    "label", "weight", "numeric", "hashed", "vectors", "text", "dates", "sparse", "crosses",
    "ignore", "nulls", "standardize", "bits", "hash_seed", "partitions", "rename", "csv",
    "on_bad_row",
)  # fmt: skip
"""Keys of [data] that make coordinates, and what to do with rows that do not."""
MODEL = (
    "rule", "loss", "loss_params", "certificate", "task", "classes", "bias", "dtype", "params",
    "scale_target",
)  # fmt: skip
"""Keys of [model] that a state depends on."""


def inherited_tables(job: Mapping[str, Any], plan: Mapping[str, Any]) -> dict[str, Any]:
    """The tables that a job may take over. job, plan: of the other run's manifest.

    Columns and classes that were found are named: other shards may have others.
    """
    data = {key: job["data"][key] for key in COLUMNS if key in job["data"]}
    model = {key: job["model"][key] for key in MODEL if key in job["model"]}
    if not data.get("numeric") and not data.get("hashed"):
        data |= {key: plan[key] for key in ("numeric", "hashed") if plan.get(key)}
    if plan.get("classes"):
        model["classes"] = plan["classes"]
    return {"data": data, "model": model}


def with_inherited(tables: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    """A job with the keys of another that it does not set.

    Parameters are of a rule and a loss: those of others are not taken over.
    """
    own, theirs = dict(tables.get("model") or {}), dict(other["model"])
    same_rule = "rule" not in own or find_rule(str(own["rule"])).name == theirs["rule"]
    same_loss = not own.get("loss") or find_loss(str(own["loss"])).name == theirs["loss"]
    for key, same in (("params", same_rule), ("loss_params", same_loss), ("loss", same_rule)):
        if not same:
            del theirs[key]
    merged = {**theirs, **own}
    for key in {"params", "loss_params"} & theirs.keys():
        if isinstance(own.get(key, {}), Mapping):
            merged[key] = {**theirs[key], **own.get(key, {})}
    data = {**other["data"], **(tables.get("data") or {})}
    if isinstance(data.get("csv"), Mapping):
        data["csv"] = {**other["data"].get("csv", {}), **data["csv"]}
    return {**tables, "data": data, "model": merged}
