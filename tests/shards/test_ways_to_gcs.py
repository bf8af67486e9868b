"""Google Cloud Storage: shards are found, learned and compared with what was found."""

from __future__ import annotations

import io
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fsspec.registry import _registry
from later_imports import later

import streamomd
from streamomd.core.errors import ChangedDataError, InputNotFoundError
from streamomd.shards.reader import read_batches
from streamomd.shards.stored_object import WHOLE_BYTES, forget_recent
from streamomd.sources.find import find

sys.path.append(str(Path(__file__).parents[1] / "faults"))
from gcs_server import Bucket, serving

core = later("gcsfs.core", "gcsfs is not installed")
SCHEMES = ("gs", "gcs")
SMALL, LARGE = 500, 200_000
"""Rows of objects on either side of ``WHOLE_BYTES``."""


def parquet(rows: int, seed: int = 0) -> bytes:
    draw, out = np.random.default_rng(seed), io.BytesIO()
    numbers = {f"x{at}": draw.normal(size=rows) for at in range(6)}
    table = pa.table({**numbers, "y": (draw.random(rows) < 0.5).astype("i8")})
    pq.write_table(table, out, row_group_size=rows // 4)
    return out.getvalue()


@pytest.fixture(scope="module")
def service() -> Iterator[tuple[Bucket, dict[str, Any]]]:
    bucket = Bucket()
    # Not the class that asks another service of Google's what kind of bucket it is.
    schemes = mock.patch.dict(_registry, dict.fromkeys(SCHEMES, core.GCSFileSystem))
    with serving(bucket) as (host, port), schemes:
        endpoint = f"http://{host}:{port}"
        yield bucket, {"token": "anon", "project": "p", "endpoint_url": endpoint}


def put(bucket: Bucket, name: str, data: bytes) -> None:
    assert bucket.put(name, data, create=False)[0] == 200


def train(shards: str, options: dict[str, Any] | None = None) -> str:
    """The state's digest of a model that has learned these shards."""
    data = {"shards": shards, "label": "y", "storage_options": options or {}}
    job = {"data": data, "model": {"rule": "nag"}, "checkpoint": {"url": "none"}}
    return streamomd.train(job, quiet=True).state_sha256


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("form", ["rows/", "rows/*.parquet", "rows/k=1"])
def test_a_model_is_that_of_the_files_on_the_disk(
    service: tuple[Bucket, dict[str, Any]], scheme: str, form: str, tmp_path: Path
) -> None:
    """A directory, a glob and a partition, which is a directory of its own."""
    bucket, options = service
    names = ["rows/k=1/a.parquet"] if form == "rows/k=1" else ["rows/a.parquet", "rows/b.parquet"]
    bucket.objects.clear()
    for seed, name in enumerate(names):
        put(bucket, name, parquet(SMALL, seed))
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(parquet(SMALL, seed))
    there = train(f"{scheme}://bucket/{form}", options)
    assert there == train(str(tmp_path / form))


def test_an_object_in_ranges(service: tuple[Bucket, dict[str, Any]], tmp_path: Path) -> None:
    bucket, options = service
    data = parquet(LARGE)
    assert len(data) > WHOLE_BYTES
    put(bucket, "large/a.parquet", data)
    (tmp_path / "a.parquet").write_bytes(data)
    assert train("gs://bucket/large/", options) == train(str(tmp_path))


@pytest.mark.parametrize("change", ["replaced", "removed"])
@pytest.mark.parametrize("count", [SMALL, LARGE])
@pytest.mark.sample(2)
def test_an_object_that_changes_is_refused(
    service: tuple[Bucket, dict[str, Any]], count: int, change: str
) -> None:
    """Between the listing and its first row: by its generation, which a listing has."""
    bucket, options = service
    name = f"changing/{count} {change}.parquet"
    put(bucket, name, parquet(count))
    shards = find(f"gs://bucket/{name}", storage_options=options)
    forget_recent()  # what is in memory is the version that was found
    if change == "replaced":
        put(bucket, name, parquet(count, 1))
    else:
        del bucket.objects[name]
    expected = ChangedDataError if change == "replaced" else InputNotFoundError
    with pytest.raises(expected, match="changing/"):
        list(read_batches(shards, places=[0], columns=["x0"]))
