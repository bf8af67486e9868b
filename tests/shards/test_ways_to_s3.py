"""S3 by an endpoint and keys of the environment, by an assumed role, and with requester pays."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from moto_bucket import moto_bucket

import streamomd
from streamomd.shards.reader import read_batches
from streamomd.shards.stored_object import forget_recent
from streamomd.sources.find import find

s3fs = pytest.importorskip("s3fs", reason="s3fs is not installed")
BUCKET = "ways"
ROLE = "arn:aws:iam::123456789012:role/reader"
KEYS = {"AWS_ACCESS_KEY_ID": "id", "AWS_SECRET_ACCESS_KEY": "canary"}


@pytest.fixture(scope="module")
def endpoint(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server whose bucket has two shards."""
    with moto_bucket(BUCKET) as options:
        fs = s3fs.S3FileSystem(**options)
        for name, path in rows(tmp_path_factory.mktemp("rows")).items():
            fs.pipe_file(f"{BUCKET}/rows/{name}", path.read_bytes())
        yield options["endpoint_url"]


def rows(folder: Path) -> dict[str, Path]:
    draw = np.random.default_rng(0)
    found = {f"{name}.parquet": folder / f"{name}.parquet" for name in "ab"}
    for path in found.values():
        table = pa.table({"x": draw.normal(size=50), "y": draw.integers(0, 2, 50)})
        pq.write_table(table, str(path))
    return found


def train(folder: Path, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """In a process that knows the environment alone."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
    words = ["train", f"s3://{BUCKET}/rows/", "--label", "y", "--rule", "nag"]
    return subprocess.run(
        [sys.executable, "-m", "streamomd", *words, "--checkpoint", str(folder / "run")],
        capture_output=True, text=True, timeout=120,
        env={**clean, "AWS_EC2_METADATA_DISABLED": "true", "AWS_DEFAULT_REGION": "us-east-1",
             **environment},
    )  # fmt: skip


def local_hash(folder: Path) -> str:
    (folder / "here").mkdir()
    paths = [str(path) for path in rows(folder / "here").values()]
    return streamomd.train(paths, label="y", rule="nag", checkpoint="none", quiet=True).state_sha256


@pytest.mark.slow
def test_an_endpoint_and_keys_of_the_environment(endpoint: str, tmp_path: Path) -> None:
    done = train(tmp_path, {"AWS_ENDPOINT_URL": endpoint, **KEYS})
    assert done.returncode == 0, done.stderr
    assert streamomd.load(str(tmp_path / "run")).state_sha256 == local_hash(tmp_path)
    assert "canary" not in done.stdout + done.stderr


@pytest.mark.slow
def test_an_assumed_role(endpoint: str, tmp_path: Path) -> None:
    """Of a profile: the client asks for keys of the role, and uses them."""
    from moto.sts.models import sts_backends

    config = tmp_path / "config"
    config.write_text(
        f"[profile base]\naws_access_key_id = id\naws_secret_access_key = canary\n"
        f"[profile reader]\nrole_arn = {ROLE}\nsource_profile = base\n"
        "role_session_name = streamomd\n"
    )
    named = {"AWS_CONFIG_FILE": str(config), "AWS_PROFILE": "reader"}
    done = train(tmp_path, {"AWS_ENDPOINT_URL": endpoint, **named})
    assert done.returncode == 0, done.stderr
    assert streamomd.load(str(tmp_path / "run")).state_sha256 == local_hash(tmp_path)
    roles = [role for backends in sts_backends.values() for role in backends["aws"].assumed_roles]
    assert ROLE in {role.role_arn for role in roles}


def test_requester_pays(endpoint: str) -> None:
    """Every request that lists or reads says who pays."""
    options: dict[str, Any] = {
        "key": "id", "secret": "canary", "endpoint_url": endpoint, "requester_pays": True,
        "skip_instance_cache": True,
    }  # fmt: skip
    shards = find(f"s3://{BUCKET}/rows/", storage_options=options)
    payers: list[tuple[str, str | None]] = []

    def noted(request: Any, operation_name: str, **_: Any) -> None:
        payers.append((operation_name, request.headers.get("x-amz-request-payer")))

    forget_recent()  # small objects are in memory since their footers were read
    fs: Any = shards.fs
    fs._s3.meta.events.register("before-sign.s3", noted)
    found = read_batches(shards, places=[0, 1], columns=["x"])
    assert sum(one.batch.num_rows for one in found) == 100
    assert len(fs.ls(f"{BUCKET}/rows", refresh=True)) == 2
    assert {name for name, _ in payers} == {"GetObject", "ListObjectsV2"}
    assert {payer for _, payer in payers} == {"requester"}
