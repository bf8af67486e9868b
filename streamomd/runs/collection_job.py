"""Jobs whose rows are a Dask collection: no job file can hold one, so it is passed next to it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from streamomd.checkpoint.segments import Facts
from streamomd.config.build_job import read_job
from streamomd.config.spec import Spec
from streamomd.core.errors import UnsupportedError, UsageError
from streamomd.shards.order import COLLECTION, Dataset
from streamomd.training.allowed_urls import find_recorded
from streamomd.training.shard_views import view_shards

if TYPE_CHECKING:
    from streamomd.distributed.collections.collection import Collection
    from streamomd.training.model_data import ModelData


def is_collection(given: Any) -> bool:
    """Whether something is Dask's, or a tuple of such. Dask is not imported for that."""
    parts = given if isinstance(given, tuple | list) else (given,)
    return any(hasattr(part, "__dask_graph__") for part in parts)


def split_collection(
    job: Any, flags: Mapping[str, Any]
) -> tuple[Any, dict[str, Any], Collection | None]:
    """The job and flags with a name in the place of a collection, and the collection if any."""
    flags = dict(flags)
    tables = job if isinstance(job, Mapping) else {}
    places = [flags.get("shards"), job, dict(tables.get("data") or {}).get("shards")]
    given = [place for place in places if is_collection(place)]
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
    if split_collection(job, flags)[2] is not None:
        raise UnsupportedError(f"{what} {_INSTEAD}")


_INSTEAD = (
    "needs shards, which a worker can open by itself: write the collection with "
    "ddf.to_parquet(URL), then train on URL"
)


def refuse_other_modes(spec: Spec) -> None:
    """Raise UnsupportedError for what is not done with a collection, and say what to do."""
    if spec.train.mode != "exact":
        raise UnsupportedError(f"mode {spec.train.mode!r} {_INSTEAD}")
    if spec.data.where:
        raise UnsupportedError(
            f"data.where = {spec.data.where!r} reads shards: filter the collection, e.g. "
            "ddf[ddf.day >= day]"
        )
    if spec.data.rename:
        raise UnsupportedError(
            "data.rename reads shards: rename the columns of the collection, "
            f"ddf.rename(columns={spec.data.rename!r})"
        )
    if spec.data.time:
        raise UnsupportedError(f"data.time = {spec.data.time!r} {_INSTEAD}")
    if spec.cluster.learner == "worker":
        raise UnsupportedError(f'cluster.learner = "worker" {_INSTEAD}')


def find_recorded_rows(model: ModelData, given: Any, facts: Sequence[Facts]) -> Dataset:
    """The rows of a run to resume: its recorded shards, or the collection given for them. facts: of
    its ledger.

    Raises UsageError where a collection is missing, or given in the place of shards.
    """
    spec, data, saved = model.spec, model.spec.data, model.spec.data.shards[0]
    collection = split_collection(None, {"shards": given})[2]
    if not saved.startswith(COLLECTION):
        if given is not None:
            raise UsageError(
                "a run resumes on the shards it started with: pass shards= only for a run that "
                "started on a Dask collection. For other rows: train with start= this run's URL"
            )
        listing = find_recorded(data, model.plan, model.table_versions, facts)
        return view_shards(listing, data, model.plan)
    if collection is None:
        raise UsageError(
            "this run started on a Dask collection, whose graph is not in the checkpoint: make the "
            "collection again and pass it, streamomd.resume(URL, shards=ddf)"
        )
    refuse_other_modes(spec)
    return collection


def _tables(job: Any) -> dict[str, Any]:
    if isinstance(job, Spec):
        return job.to_json(secrets=True)
    if isinstance(job, str | Path):
        return read_job(str(job))
    return dict(job or {})
