"""A model out of a checkpoint: its description, then its parts, each proven before it counts."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any

from streamomd.checkpoint import Commit, Loaded, Part, Put, load, open_store, read_document
from streamomd.errors import CorruptionError, StreamomdError, SweepError
from streamomd.far import Far
from streamomd.features import Names, Plan
from streamomd.metrics import Metrics
from streamomd.model import Model
from streamomd.shards.cursor import Cursor
from streamomd.spec import Spec
from streamomd.urls import absolute, printable, shown


def load_model(
    url: str,
    *,
    storage_options: Mapping[str, Any] | None = None,
    at: int | None = None,
    far: Callable[[Spec], bool] | None = None,
) -> tuple[Model, Loaded]:
    """The model of the newest commit that is whole, or of commit ``at``, and that commit.

    far: whether its state is to be proven, and left where it is until it is asked for.
    Raises NoCommitError if there is none, StorageError if the store does not answer.
    """
    store = open_store(absolute(url), storage_options)
    models: list[Model] = []

    def receive(commit: Commit) -> Callable[[Part], None]:
        if "sweep" in commit.document:
            raise SweepError(
                f"{(place := shown(store.url))} is a sweep, of many models: take {place}/best "
                f"when it is finished, or one of {place}/learners; Python goes on with a sweep "
                "by streamomd.resume_sweep"
            )
        with _legible():
            models.append(_described(commit))
        left = far is not None and far(models[-1].spec)
        return partial(fill_figures if left else fill, models[-1])

    loaded = load(store, receive, at=at)
    model, document = models[-1], loaded.commit.document
    with _legible():
        model.names = Names.from_json(read_document(store, "names", document["names"]))
        if far is not None and far(model.spec):
            put = Put(loaded.commit.directory, loaded.commit.parts)
            model.state = Far(model.state.layout, store, put)
    model.url, model.sequence = store.url, loaded.commit.sequence
    return model, loaded


def _described(commit: Commit) -> Model:
    """A model that is to be filled."""
    document = commit.document
    spec, plan = Spec.parse(document["job"]), Plan.from_json(document["plan"])
    ranges = [(0, 0), *((part.lo, part.hi) for part in commit.parts)]
    whole = all(before[1] == after[0] for before, after in itertools.pairwise(ranges))
    if plan.bits != spec.data.bits or not whole or plan.size != ranges[-1][1]:
        raise CorruptionError("its job, plan and parts do not tell of the same coordinates")
    model = Model.new(spec, plan)
    model.cursor = Cursor.from_json(document["cursor"])
    model.finished = document["finished"]
    return model


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


@contextmanager
def _legible() -> Iterator[None]:
    """A hash proves that a document is as it was written, not that it makes sense."""
    try:
        yield
    except StreamomdError:
        raise
    except (LookupError, TypeError, ValueError, AttributeError, OverflowError) as error:
        text = printable(f"{type(error).__name__}: {error}")
        raise CorruptionError(f"it tells of no model that is known here: {text}") from None
