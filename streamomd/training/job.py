"""From a job file, flags and --set to a Spec: the one place that knows which wins."""

from __future__ import annotations

import copy
import json
import os
import time
import tomllib
from collections.abc import Mapping, Sequence
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from streamomd.config.flags import assign, assign_flags, check_key, dotted
from streamomd.config.run_names import run_name
from streamomd.config.spec import Spec, read_job
from streamomd.config.values import parse_scalar
from streamomd.core.errors import InputNotFoundError, ResumeRefusedError, UsageError
from streamomd.core.urls import absolute, is_inside, local_name, scrub, shown
from streamomd.shards.find import find
from streamomd.training.progress import note
from streamomd.training.transport_warnings import exposed

CHANGEABLE = (
    "train.epochs", "train.prefetch", "checkpoint", "cluster", "data.storage_options",
    "data.max_bad_rows", "data.cache", "data.cache_gib",
)  # fmt: skip


def build(
    job: str | Path | Mapping[str, Any] | Spec | None,
    flags: Mapping[str, Any],
    sets: Mapping[str, Any] | None = None,
) -> Spec:
    """The Spec of a job (path of a TOML file, nested tables, a Spec, or none), flags and sets.

    Sets win over flags, flags over the job, the job over defaults. Shard and checkpoint URLs come
    out absolute. A job that is a text without ".toml" at its end names shards. Raises UsageError
    naming what is unknown or missing, and without a label what ``find`` raises of the shards.
    """
    if isinstance(job, str | Path) and not str(job).endswith(".toml"):
        job, flags = None, _with_shards(str(job), flags)
    tables = _tables(job)
    assign_flags(tables, flags)
    for key, value in (sets or {}).items():
        assign(tables, key, value)
    spec = Spec.parse(tables)
    if not spec.data.shards:
        raise UsageError("no shards to read: give files, a directory, a glob or URLs")
    if not spec.data.label:
        find(
            spec.data.shards, storage_options=spec.data.storage_options
        )  # a slip there comes first
        raise UsageError('no label: name the column to predict (--label y, or data.label = "y")')
    spec = _absolute(spec, _stem(job))
    _refuse_checkpoint_among_shards(spec)
    _refuse_cache_among_shards(spec)
    for line in exposed(spec, os.environ):
        note(line)
    return spec


def change(saved: Mapping[str, Any], sets: Mapping[str, Any], more: Sequence[str] = ()) -> Spec:
    """A saved job with what a resumed run may change; more: of this run also these keys.

    Raises ResumeRefusedError for other keys.
    """
    tables, changeable = copy.deepcopy(dict(saved)), (*CHANGEABLE, *more)
    for key, value in ((dotted(key), value) for key, value in sets.items()):
        check_key(key)
        if not any(key == free or key.startswith(free + ".") for free in changeable):
            raise ResumeRefusedError(
                f"{key} may not change on resume; what may: {', '.join(changeable)}. "
                "For another job, start a new run from this state (--start URL)"
            )
        assign(tables, key, value)
    spec = Spec.parse(tables)
    _refuse_cache_among_shards(spec)
    for line in exposed(spec, os.environ):
        note(line)
    return spec


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


def read_options(path: str | None) -> dict[str, Any] | None:
    """Storage options from a JSON or TOML file."""
    if path is None:
        return None
    try:
        text = Path(path).read_text("utf-8")
        if Path(path).stat().st_mode & 0o077:
            note(f"others may read the storage options in {shown(path)}: chmod 600 would end that")
        options = json.loads(text) if path.endswith(".json") else tomllib.loads(text)
    except FileNotFoundError:
        raise InputNotFoundError(f"no storage options file {path!r}") from None
    except (ValueError, OSError, RecursionError) as error:
        raise UsageError(f"storage options {path!r}: {scrub(str(error))}") from None
    if not isinstance(options, dict):
        raise UsageError(f"storage options {path!r}: expected a table of options")
    return options


def _with_shards(shards: str, flags: Mapping[str, Any]) -> dict[str, Any]:
    if flags.get("shards"):
        raise UsageError(f"shards are given twice: {shards!r} and {flags['shards']!r}")
    return {**flags, "shards": shards}


def _tables(job: str | Path | Mapping[str, Any] | Spec | None) -> dict[str, Any]:
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
    for shard in spec.data.shards:
        if spec.checkpoint.url != "none" and is_inside(spec.checkpoint.url, shard):
            raise UsageError(
                f"checkpoint {shown(spec.checkpoint.url)} is inside the data, {shown(shard)}: its "
                "files would be taken for shards; keep it elsewhere"
            )


def _refuse_cache_among_shards(spec: Spec) -> None:
    cache = spec.data.cache
    for shard in spec.data.shards:
        pattern = local_name(shard).replace("**/", "*")
        if cache and (is_inside(cache, shard) or fnmatch(f"{cache}/0.arrow", pattern)):
            raise UsageError(
                f"data.cache {shown(cache)} is inside the data, {shown(shard)}: its files would be "
                "taken for shards; keep it elsewhere"
            )


def _absolute(spec: Spec, stem: str) -> Spec:
    shards = tuple(absolute(shard) for shard in spec.data.shards)
    name = run_name(stem, shards, time.strftime("%Y%m%d-%H%M%S"))
    url = spec.checkpoint.url or f"runs/{name}"
    places = {
        "data": {"shards": shards},
        "model": {"start": absolute(spec.model.start) if spec.model.start else ""},
        "checkpoint": {"url": url if url == "none" else absolute(url)},
    }
    tables = {
        name: getattr(spec, name).model_copy(update=changed) for name, changed in places.items()
    }
    return spec.model_copy(update=tables)
