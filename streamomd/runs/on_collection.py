"""Runs on a Dask collection: no job can hold one, so it goes beside the job."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from streamomd.config.spec import Spec, read_job
from streamomd.core.errors import UnsupportedError, UsageError
from streamomd.features import describe
from streamomd.runs.modes import connected, record_cluster, run
from streamomd.shards.dataset import COLLECTION, Dataset
from streamomd.training.allowed_urls import find_recorded
from streamomd.training.callbacks import Callback
from streamomd.training.model import Model
from streamomd.training.progress import note
from streamomd.training.session import begin, begun
from streamomd.training.signals import StopRequest

if TYPE_CHECKING:
    from streamomd.distributed.collections.collection import Collection


def is_collection(given: Any) -> bool:
    """Whether something is Dask's, or a tuple of such: told without importing Dask."""
    parts = given if isinstance(given, tuple | list) else (given,)
    return any(hasattr(part, "__dask_graph__") for part in parts)


def set_apart(job: Any, flags: Mapping[str, Any]) -> tuple[Any, dict[str, Any], Collection | None]:
    """The job and flags with a name in the place of a collection, and the collection if any."""
    flags = dict(flags)
    tables = job if isinstance(job, Mapping) else {}
    places = [flags.get("shards"), job, dict(tables.get("data") or {}).get("shards")]
    given = [one for one in places if is_collection(one)]
    if not given:
        return job, flags, None
    if len(given) > 1 or (given[0] is job and flags.get("shards")):
        raise UsageError("shards are given twice: once is enough")
    from streamomd.distributed.collections.collection import Collection

    collection = Collection(given[0])
    flags.pop("shards", None)
    tables = {} if given[0] is job else _tables(job)
    data = {**collection.columns, **dict(tables.get("data") or {}), "shards": [collection.name]}
    return {**tables, "data": data}, flags, collection


def refuse_collection(job: Any, flags: Mapping[str, Any], what: str) -> None:
    """Raise UnsupportedError if shards are a collection."""
    if set_apart(job, flags)[2] is not None:
        raise UnsupportedError(f"{what} {_INSTEAD}")


_INSTEAD = (
    "needs shards, which a worker can open by itself: write the collection with "
    "ddf.to_parquet(URL), then train on URL"
)


def refuse_other_modes(spec: Spec) -> None:
    """Raise UnsupportedError for what is not done with a collection, and say what to do."""
    if spec.train.mode != "exact":
        raise UnsupportedError(f"mode {spec.train.mode!r} {_INSTEAD}")
    if spec.cluster.learner == "worker":
        raise UnsupportedError(f'cluster.learner = "worker" {_INSTEAD}')


def train_on(
    collection: Collection,
    spec: Spec,
    client: Any,
    stop: StopRequest,
    weights: Any = None,
    *,
    restart: bool,
    log: str | None,
    quiet: bool,
    callbacks: Sequence[Callback] = (),
) -> Model:
    """As ``train``, on a collection, with the cluster that holds it if it is persisted.

    weights: a fitted linear model to start from.
    """
    from streamomd.distributed.collections.partition_source import make_collection_plan

    refuse_other_modes(spec)
    with connected(spec, client or collection.client, stop) as connection:
        model = begun(spec, make_collection_plan(collection, spec, connection), weights)
        for line in describe(model.plan):
            note(line)
        record_cluster(model, client)
        keeper = begin(model, collection, restart=restart)
        told: Any = {"log": log, "quiet": quiet, "callbacks": callbacks}
        return run(model, collection, keeper, stop, connection, **told)


def again(spec: Spec, given: Any) -> tuple[Dataset, Any]:
    """What a run that is taken up walks over, its shards or the collection given for them; and the
    client of the cluster that holds it, if one does.

    Raises UsageError where a collection is missing, or given in the place of shards.
    """
    data, saved = spec.data, spec.data.shards[0]
    collection = set_apart(None, {"shards": given})[2]
    if not saved.startswith(COLLECTION):
        if given is not None:
            raise UsageError(
                "a run goes on with the shards it was begun on: shards= is for those begun on a "
                "Dask collection. On other rows, train with start= this run's URL"
            )
        return find_recorded(data), None
    if collection is None:
        raise UsageError(
            "this run was begun on a Dask collection, whose graph a checkpoint does not keep: "
            "make it again and pass it, streamomd.resume(URL, shards=ddf)"
        )
    refuse_other_modes(spec)
    return collection, collection.client


def _tables(job: Any) -> dict[str, Any]:
    if isinstance(job, Spec):
        return job.to_json(secrets=True)
    if isinstance(job, str | Path):
        return read_job(str(job))
    return dict(job or {})
