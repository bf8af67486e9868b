"""A model out of a checkpoint: its description, then its parts, each proven before it counts.

Memory for a state is taken when the manifest's parts are those of its layout, and are in the store.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import Any

import numpy as np

from streamomd.checkpoint import (
    Commit,
    Loaded,
    Part,
    PartEntry,
    Store,
    StoredParts,
    load,
    open_store,
)
from streamomd.checkpoint.documents import bytes_of
from streamomd.checkpoint.manifest import HOLDOUT_BY, TREES, TRIED
from streamomd.checkpoint.parts import DTYPES
from streamomd.checkpoint.sealed_json import parse
from streamomd.config.recorded import split_recorded
from streamomd.config.spec import Spec
from streamomd.core.errors import (
    CorruptionError,
    DivergedError,
    NoCommitError,
    StreamomdError,
    SweepError,
)
from streamomd.core.finite import NOT_FINITE, part_problem
from streamomd.core.installed import upgrade_hint
from streamomd.core.urls import absolute, printable, shown
from streamomd.engine.layout import Layout
from streamomd.features import Names, Plan
from streamomd.rules import refuse_other_state
from streamomd.shards.filtered_shards import Unread
from streamomd.shards.order import Cursor
from streamomd.training.drift_alerts import check_counters
from streamomd.training.metrics import Metrics
from streamomd.training.model import Model
from streamomd.training.model_data import layout_of
from streamomd.training.model_document import RemoteState
from streamomd.training.run_records import Teaching, TriedPass, UpdateRecord

COUNTERS = re.compile(r"((held|period)\.)?(metrics|detail)\.[a-z]+(\.(at|value|of|ends))?")
"""Arrays of the first part in addition to those of the state: see ``Metrics.arrays``."""


def load_model(
    url: str,
    *,
    storage_options: Mapping[str, Any] | None = None,
    at: int | None = None,
    remote: Callable[[Spec], bool] | None = None,
    needs: Collection[str] = ("names",),
    finite: bool = False,
) -> tuple[Model, Loaded]:
    """The model of the newest commit that is whole, or of commit ``at``, and that commit.

    remote: whether to verify its state and leave it in the store until it is needed. needs: kinds
    of shared documents without which a commit is not whole; only ``resume`` needs the shards'.
    Without "names" the model has none: predictions need none.
    finite: commits with a number that is not finite, of versions that made such, count as not
    whole. Raises NoCommitError if there is none, DivergedError if there is none that is finite,
    StorageError if the store does not answer.
    """
    store = open_store(absolute(url), storage_options)
    models: list[Model] = []
    problems: list[str] = []

    def refused(part: Part) -> None:
        low, _, arrays = part
        if problem := part_problem(low, arrays):
            problems.append(problem)
            raise CorruptionError(f"{NOT_FINITE}{problem}")

    def receive(commit: Commit) -> Callable[[Part], None]:
        if "sweep" in commit.document:
            raise SweepError(
                f"{(place := shown(store.url))} is a sweep, of many models: pass {place}/best "
                f"(saved when the sweep is finished), or a model such as {place}/learners/000"
            )
        with _hint(commit), _legible():
            models.append(_described(commit, store, remote))
        left = isinstance(models[-1].state, RemoteState)
        take = partial(fill_figures if left else fill, models[-1])

        def taken(part: Part) -> None:
            if finite:
                refused(part)
            with _hint(commit):
                take(part)

        return taken

    try:
        loaded = load(store, receive, at=at, needs=needs)
    except NoCommitError as error:
        if not problems:
            raise
        raise DivergedError(
            f"{error}. The run diverged, and no finite commit is left: start over, with a smaller "
            "learning rate or without extreme values (train --restart)"
        ) from None
    model, document = models[-1], loaded.commit.document
    if "names" in needs:
        with _hint(loaded.commit), _legible():
            names = bytes_of(loaded.store, loaded.commit, "names", document["names"])
            model.names = Names.from_json(parse(names))
    model.url, model.sequence = store.url, loaded.commit.sequence
    return model, loaded


def _described(commit: Commit, store: Store, remote: Callable[[Spec], bool] | None) -> Model:
    """A model that is to be filled. Its job has no setting of a machine: see ``recorded``."""
    document = commit.document
    job, recorded = split_recorded(document["job"], store.url)
    described = dict(document["plan"])
    if TREES in document:
        described[TREES] = parse(bytes_of(store, commit, TREES, document[TREES]))
    spec, plan = Spec.parse(job), Plan.from_json(described)
    refuse_other_state(spec.rule, spec.saved(document.get("state_version", 1)))
    if plan.bits != spec.data.bits:
        raise CorruptionError(f"its plan has {plan.bits} bits, its job {spec.data.bits}")
    if bool(plan.classes) != spec.model.classifies:
        known = "no classes" if spec.model.classifies else "classes"
        raise CorruptionError(f"its plan has {known}, its loss is {spec.model.loss}")
    layout = layout_of(spec, plan)
    _check_parts(layout, commit.parts)
    state = None
    if remote is not None and remote(spec):  # no memory is taken for it here
        state = RemoteState(layout, store, StoredParts(commit.directory, commit.parts))
    model = Model.new(spec, plan, state)
    model.recorded = recorded
    model.cursor = Cursor.from_json(document["cursor"])
    model.teaching = Teaching.from_json(document.get("teaching"))
    if TRIED in document:
        model.tried = TriedPass.from_json(document[TRIED])
    model.update = UpdateRecord.from_json(document.get("update"))
    model.table_versions = _table_versions(document.get("table_versions", {}))
    model.ordered_by = document.get("ordered_by", "")
    if not isinstance(model.ordered_by, str):
        text = printable(repr(model.ordered_by)[:40])
        raise CorruptionError(f"its rows are in order of {text}: expected the name of a column")
    model.finished = document["finished"]
    model.unread = Unread(**document.get("filter", {}))
    model.holdout_by = document.get(HOLDOUT_BY, "position")
    if model.holdout_by not in ("name", "position"):
        raise CorruptionError(f"its hold-out is by {printable(repr(model.holdout_by)[:40])}")
    return model


def _table_versions(given: Any) -> dict[str, int]:
    """Versions of tables by URL. Raises CorruptionError for anything else."""
    found = dict(given)
    for url, version in found.items():
        if not isinstance(url, str) or type(version) is not int or version < 0:
            text = printable(repr((url, version)))[:200]
            raise CorruptionError(f"its table_versions hold {text}")
    return found


def _check_parts(layout: Layout, parts: tuple[PartEntry, ...]) -> None:
    """Raises CorruptionError unless the parts of a manifest are those of a state of this layout."""
    ranges = [(0, 0), *((part.lo, part.hi) for part in parts)]
    whole = all(before[1] == after[0] for before, after in itertools.pairwise(ranges))
    if not whole or ranges[-1][1] != layout.size:
        raise CorruptionError(f"its parts are not coordinates 0 to {layout.size - 1} in order")
    for part in parts:
        expected = layout.arrays(part.lo, part.hi)
        strange = [
            name for name, found in part.arrays.items() if not _is_array(found, expected, name)
        ]
        missing = [name for name in expected if name not in part.arrays]
        if part.lo == 0:
            strange = [name for name in strange if name in expected or not COUNTERS.fullmatch(name)]
        if strange or missing:
            names = printable(", ".join([*strange, *missing][:5]))
            raise CorruptionError(f"{part.name} has other arrays than this model's: {names}")


def _is_array(
    found: tuple[str, tuple[int, ...]],
    expected: Mapping[str, tuple[str, tuple[int | None, ...]]],
    name: str,
) -> bool:
    """Whether an array of a manifest has the dtype and shape that are expected of its name."""
    if name not in expected:
        return False
    dtype, shape = expected[name]
    same = len(found[1]) == len(shape) and all(
        wanted in (None, length) for length, wanted in zip(found[1], shape, strict=True)
    )
    return same and np.dtype(DTYPES[found[0]]) == np.dtype(dtype)


def fill(model: Model, part: Part) -> None:
    """Put a part's coordinates into the state; the first has the counters, too."""
    with _legible():
        model.state.fill(*part)
    fill_figures(model, part)


def fill_figures(model: Model, part: Part) -> None:
    """The counters alone."""
    low, _, arrays = part
    with _legible():
        if low == 0:
            model.metrics = Metrics.from_arrays(arrays, classifies=model.metrics.classifies)
            check_counters(model)
            if model.spec.data.holds_out and model.metrics.held is None:
                raise CorruptionError(
                    "data.holdout is set, but metrics of validation rows are missing"
                )


def _hint(commit: Commit) -> AbstractContextManager[None]:
    return upgrade_hint(commit.versions.get("streamomd", ""), f"commit {commit.sequence} was ")


@contextmanager
def _legible() -> Iterator[None]:
    """A hash proves that a document is as it was written, not that it makes sense."""
    try:
        yield
    except StreamomdError:
        raise
    except (LookupError, TypeError, ValueError, AttributeError, OverflowError) as error:
        text = printable(f"{type(error).__name__}: {error}")
        raise CorruptionError(f"it describes no known model: {text}") from None
