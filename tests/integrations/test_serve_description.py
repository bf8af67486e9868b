"""What a server says of its model: job, schema, OpenAPI document and page, without places."""

from __future__ import annotations

import html
import json
import re
import subprocess
from collections.abc import Iterator
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from http_serving import Served, served, snapshot

import streamomd
from streamomd.integrations.serve.model_reloader import published_job
from streamomd.integrations.serve.openapi import (
    CONTENT_SECURITY_POLICY,
    column_schemas,
    example_row,
)
from streamomd.training.scoring.description import Description, VectorColumn

SECRET = "hunter2"


@pytest.mark.parametrize("path", ["/model", "/openapi.json", "/readyz", "/metrics", "/docs"])
def test_no_places(server: Served, run_folder: Path, path: str) -> None:
    """No response names the checkpoint, the shards or their folder."""
    answered = server.get(path)
    assert answered.status == 200
    assert "secret-place" not in answered.body.decode()
    assert str(run_folder) not in answered.body.decode()


def test_the_model_is_described(server: Served) -> None:
    """Job, commit and schema."""
    found = server.get("/model").json
    assert found["job"]["model"]["rule"] == "nag"
    assert found["schema"]["columns"]["n"] == "number"
    assert found["schema"]["required"] == list(found["schema"]["columns"])
    assert (found["schema"]["task"], len(found["schema"]["classes"])) == ("classify", 2)


def test_a_job_is_published_without_places_at_any_depth() -> None:
    """Only keys that are listed; of a rule's own parameters no text with a path in it."""
    options = {"key": SECRET, "nested": {"token": SECRET}}
    job = {
        "data": {"shards": [SECRET], "storage_options": options, "where": SECRET, "label": "y",
                 "cache": SECRET, "partitions": {SECRET: SECRET}},
        "model": {"rule": "nag", "start": SECRET, "params": {
            "eta": 0.1, "file": f"s3://{SECRET}", "deep": {"a": [f"/{SECRET}", 1], "b": "c:\\x"},
        }},
        "checkpoint": {"url": SECRET, "storage_options": options},
        "cluster": {"scheduler": SECRET},
        "update": {"until": SECRET},
        SECRET: {"a": SECRET},
    }  # fmt: skip
    found = published_job(job)
    assert SECRET not in json.dumps(found)
    assert found["model"] == {"rule": "nag", "params": {"eta": 0.1, "deep": {"a": [None, 1]}}}


def test_the_openapi_document(server: Served) -> None:
    """Its references resolve, it lists every path, and its example is a request that works."""
    document = server.get("/openapi.json").json
    for reference in re.findall(r'"\$ref": "#/([^"]*)"', json.dumps(document)):
        found = document
        for key in reference.split("/"):
            found = found[key]
    for path, methods in document["paths"].items():
        for method in methods:
            body = document["components"]["schemas"]["Row"]["examples"]
            answered = server.post(path, body) if method == "post" else server.get(path)
            assert answered.status == 200, (path, answered.body)


def test_the_command_of_the_page_works(server: Served) -> None:
    """Pasted into a shell it predicts; a host that is not one word of a shell is not shown."""
    text = html.unescape(server.get("/docs").body.decode())
    command = text.partition("<pre>")[2].partition("</pre>")[0]
    done = subprocess.run(["bash", "-c", f"curl -s {command[5:]}"], capture_output=True, check=True)
    assert set(json.loads(done.stdout)) == {"predictions", "commit"}
    odd = server.get("/docs", Host="localhost:1;$(id)").body.decode()
    assert "$(id)" not in odd


# Each column: its type as Arrow has it, a value, and how the job reads it.
COLUMNS: dict[str, tuple[pa.DataType, Any, str]] = {
    "whole": (pa.int32(), 3, "numeric"),
    "real": (pa.float32(), 0.5, "numeric"),
    "flag": (pa.bool_(), True, "numeric"),
    "money": (pa.decimal128(8, 2), Decimal("1.25"), "numeric"),
    "took": (pa.duration("ms"), timedelta(seconds=2), "numeric"),
    "clock": (pa.time64("us"), time(12), "numeric"),
    "missing": (pa.float64(), 0.5, "numeric"),
    "shop": (pa.string(), "a", "hashed"),
    "code": (pa.int64(), 7, "hashed"),
    "rate": (pa.float64(), 0.25, "hashed"),
    "member": (pa.bool_(), True, "hashed"),
    "raw": (pa.binary(), b"a", "hashed"),
    "tags": (pa.list_(pa.string()), ["a"], "hashed"),
    "day": (pa.date32(), date(2026, 1, 31), "dates"),
    "local": (pa.timestamp("us"), datetime(2026, 1, 31), "dates"),
    "utc": (pa.timestamp("us", "UTC"), datetime(2026, 1, 31, tzinfo=UTC), "dates"),
    "review": (pa.string(), "good film", "text"),
    "embedding": (pa.list_(pa.float32(), 3), [0.5, 0.5, 0.5], "vectors"),
    "address.city": (pa.string(), "Köln's", "hashed"),
}


@pytest.fixture(scope="module")
def wide_document(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Any, Served]]:
    """The OpenAPI document of a model with a column of every kind."""
    folder = tmp_path_factory.mktemp("kinds")
    made = {name: pa.array([value] * 40, kind) for name, (kind, value, _) in COLUMNS.items()}
    pq.write_table(pa.table({**made, "y": [0, 1] * 20}), folder / "rows.parquet")
    roles: dict[str, Any] = {}
    for name, (_, _, role) in COLUMNS.items():
        roles.setdefault(role, []).append(name)
    model = streamomd.train(
        [str(folder / "rows.parquet")], label="y", rule="nag", checkpoint="none", quiet=True,
        nulls={"missing": "mean"}, **roles,
    )  # fmt: skip
    with served(snapshot(model)) as server:
        yield server.get("/openapi.json").json["components"]["schemas"]["Row"], server


def test_each_kind_of_column_is_described(wide_document: tuple[Any, Served]) -> None:
    """Null is allowed where it is no error, a vector has its width, and dates say their form."""
    properties = {
        name: {key: value for key, value in one.items() if key not in ("examples", "description")}
        for name, one in wide_document[0]["properties"].items()
    }
    text, number = {"type": ["string", "null"]}, {"type": ["number"]}
    assert properties == {
        **dict.fromkeys(["whole", "real", "money", "took", "clock"], number),
        "flag": {"type": ["boolean"]},
        "missing": {"type": ["number", "null"]},
        **dict.fromkeys(["shop", "raw", "review", "address.city", "local"], text),
        "code": {"type": ["integer", "null"]},
        "rate": {"type": ["number", "null"]},
        "member": {"type": ["boolean", "null"]},
        "tags": {"type": ["array", "null"], "items": {**text, "examples": ["a"]}},
        "day": {**text, "format": "date"},
        "utc": {**text, "format": "date-time"},
        "embedding": {"type": ["array"], "items": number, "minItems": 3, "maxItems": 3},
    }


def test_examples_and_nulls_are_as_described(wide_document: tuple[Any, Served]) -> None:
    """The example is predicted, and a null is refused exactly where the schema has none."""
    row, server = wide_document
    (example,) = row["examples"]
    assert server.post("/predict", [example]).status == 200
    for name, one in row["properties"].items():
        answered = server.post("/predict", [{**example, name: None}])
        assert answered.status == (200 if "null" in one["type"] else 422), name


def test_a_long_vector_is_not_written_out() -> None:
    """A model of wide vectors has no example, and its page takes rows from a file."""
    vector = VectorColumn("v", 100_000, "float", "error")
    schemas = column_schemas(Description(bias=True, vectors=(vector,)))
    assert example_row(schemas) is None
    assert len(json.dumps(schemas)) < 200


def test_the_page_loads_nothing(server: Served) -> None:
    """No script, no address, and a policy that forbids both."""
    answered = server.get("/docs")
    assert answered.headers["content-security-policy"] == CONTENT_SECURITY_POLICY
    assert CONTENT_SECURITY_POLICY.startswith("default-src 'none'; style-src 'sha256-")
    text = answered.body.decode()
    assert not re.search(r"<(script|link|img|iframe|object|form)|src=|url\(|@import|//", text)
    assert set(re.findall(r'href="([^"]*)"', text)) == {"openapi.json"}
