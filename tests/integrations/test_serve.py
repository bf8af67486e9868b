"""The server's responses: the figures of ``streamomd predict``, and errors that say all."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from http_serving import ARROW, JSON, LINES, Served, numbered, served, snapshot
from running import train

import streamomd
from streamomd.core.http_servers import prometheus_text
from streamomd.integrations.serve.http_app import HttpMetrics

FEATURES = ("n", "k", "h", "i", "v")


def table(folder: Path) -> pa.Table:
    """The features of the first shard."""
    return pq.read_table(folder / "data" / "a.parquet").select(list(FEATURES))


def stream(rows: pa.Table, **options: Any) -> bytes:
    """A table as an Arrow IPC stream."""
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, rows.schema, options=pa.ipc.IpcWriteOptions(**options)) as writer:
        writer.write_table(rows)
    return sink.getvalue()


def bodies(rows: pa.Table) -> dict[str, bytes]:
    """The same rows in each content type."""
    dicts = rows.to_pylist()
    return {
        JSON: json.dumps(dicts).encode(),
        f"{JSON}; charset=utf-8": json.dumps({"rows": dicts}).encode(),
        LINES: "\n".join(map(json.dumps, dicts)).encode(),
        ARROW: stream(rows),
    }


@pytest.mark.parametrize("kind", [JSON, f"{JSON}; charset=utf-8", LINES, ARROW])
def test_predictions_are_those_of_predict(server: Served, run_folder: Path, kind: str) -> None:
    """Scores are bit-identical, probabilities within one unit in the last place; by all types."""
    answered = server.post("/predict", bodies(table(run_folder))[kind], kind)
    assert answered.status == 200, answered.body
    expected = pq.read_table(next((run_folder / "out").glob("*a*.parquet"))).to_pylist()
    found = answered.json["predictions"]
    assert answered.json["commit"] == streamomd.load(str(run_folder / "run")).sequence
    assert [set(one) for one in found] == [{"prediction", "score", "probability"}] * len(expected)
    for name in ("prediction", "score"):
        assert [one[name] for one in found] == [one[name] for one in expected]
    likely = [[one["probability"] for one in each] for each in (found, expected)]
    np.testing.assert_array_max_ulp(*map(np.array, likely), maxulp=1)


def test_explanations_sum_to_the_score(server: Served, run_folder: Path) -> None:
    """By feature, the largest first."""
    rows = table(run_folder).slice(0, 5).to_pylist()
    scores = [one["score"] for one in server.post("/predict", rows).json["predictions"]]
    answered = server.post("/explain", rows)
    assert answered.status == 200, answered.body
    for one, score in zip(answered.json["explanations"], scores, strict=True):
        parts = [each["contribution"] for each in one["contributions"]]
        assert one["score"] == score
        assert sum(parts) == pytest.approx(score, rel=1e-9)
        assert parts == sorted(parts, key=abs, reverse=True)
    assert server.post("/explain", rows + rows[:1]).status == 413
    assert server.post("/explain", b"[" + b" " * 60_000 + b"]").status == 413


def test_several_classes_and_regression(tmp_path: Path) -> None:
    """Scores and probabilities of several classes are lists; regression has no probability."""
    draw = np.random.default_rng(0)
    x = draw.normal(size=60)
    for name, y in (("three", np.digitize(x, [-0.5, 0.5])), ("real", 2.5 * x)):
        pq.write_table(pa.table({"x": x, "y": y}), tmp_path / f"{name}.parquet")
        loss = "softmax" if name == "three" else "square"
        train(tmp_path / f"{name}.parquet", "--label", "y", "--rule", "nag", "--loss", loss,
              "--checkpoint", tmp_path / name)  # fmt: skip
        model = streamomd.load(str(tmp_path / name))
        with served(snapshot(model)) as server:
            (one,) = server.post("/predict", [{"x": 1.0, "more": [1]}]).json["predictions"]
            (why,) = server.post("/explain", [{"x": 1.0}]).json["explanations"]
        if name == "three":
            assert len(one["score"]) == len(one["probability"]) == len(why["contributions"]) == 3
            assert sum(one["probability"]) == pytest.approx(1.0)
            assert one["prediction"] in (0, 1, 2)
        else:
            assert one["probability"] is None
            assert one["prediction"] == pytest.approx(one["score"])


ROW = {"n": 1.0, "k": 2, "h": "x", "i": [1], "v": [1.0]}
BAD: dict[str, tuple[Any, str, int, str]] = {
    "no JSON": (b"[{", JSON, 400, "line 1, column 3"),
    "an object": (ROW, JSON, 400, "expected a list of rows"),
    "a number": (b"1", JSON, 400, "expected a list of rows"),
    "rows that are no objects": ([1, ROW, []], JSON, 400, "rows 0, 2: expected an object"),
    "deep": (b"[" * 50_000, JSON, 400, "nested too deeply"),
    "NaN": (b'[{"n": NaN}]', JSON, 400, "NaN is not JSON: send null"),
    "Infinity": (b'[{"n": -Infinity}]', JSON, 400, "-Infinity is not JSON"),
    "an integer of 5,000 digits": (b'[{"n": %s}]' % (b"9" * 5000), JSON, 400, "too many digits"),
    "a key twice": (b'[{"n": 1, "n": 2}]', JSON, 400, "the key 'n' twice"),
    "no UTF-8": (b'[{"h": "\xff"}]', JSON, 400, "byte 8 is not UTF-8"),
    "UTF-16": ("[]".encode("utf-16"), JSON, 400, "byte 0 is not UTF-8"),
    "half a pair": (b'[{"h": "\\ud800"}]', JSON, 400, "half of a surrogate pair"),
    "a line": (b'{"n": 1}\n{"n": \n', LINES, 400, "line 2: no valid JSON"),
    "no Arrow": (b"PAR1", ARROW, 400, "no valid Arrow IPC stream"),
    "too many rows": ([ROW] * 51, JSON, 413, "a request may have 50 rows"),
    "too many lines": (b"{}\n" * 51, LINES, 413, "may have 50 rows"),
    "too many bytes": (b"[" + b" " * 100_000 + b"]", JSON, 413, "may have 100,000 bytes"),
    "no content type": (b"[]", "", 415, "expected a Content-Type of application/json"),
    "a form": (b"a=1", "application/x-www-form-urlencoded", 415, "expected a Content-Type"),
    "Latin 1": (b"[]", "application/json; charset=latin-1", 415, "in UTF-8"),
    "many keys": (b"[{%s}]" % b",".join(b'"k%d":1' % at for at in range(6000)), JSON, 422, "'n'"),
    "an overflowing number": (b'[{"n":1e999,"k":1,"h":"x","i":[],"v":[]}]', JSON, 422, "'n'"),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD)
def test_bad_bodies(server: Served, case: str) -> None:
    """A status, a code for programs and a message; the server answers the next request."""
    body, kind, status, text = BAD[case]
    answered = server.post("/predict", body, kind)
    assert (answered.status, text in answered.error["message"]) == (status, True), answered.body
    assert answered.error["code"]
    assert server.post("/predict", [ROW]).status == 200


def test_all_that_is_wrong_with_rows_is_in_one_response(server: Served) -> None:
    """Missing columns of any row by name, wrong values by row and column."""
    rows = [
        {"n": 1.0, "h": "x", "i": [1]},
        ROW | {"n": "old", "h": {"a": 1}},
        ROW | {"i": "x"},
        ROW | {"i": [100]},
        ROW,
    ]
    answered = server.post("/predict", rows)
    error = answered.error
    assert (answered.status, error["code"], error["missing"]) == (422, "invalid_rows", ["k", "v"])
    assert [(one["row"], one["code"], one["columns"]) for one in error["problems"]] == [
        (1, "wrong_type", ["n", "h"]), (2, "wrong_type", ["i"]), (3, "index", ["i"]),
    ]  # fmt: skip
    assert "missing columns: 'k', 'v' (first in row 0)" in error["message"]
    assert "row 1: column 'n': found \"old\", expected a number" in error["message"]


def test_many_bad_rows_are_counted(server: Served) -> None:
    """The first 20 are described."""
    error = server.post("/predict", [ROW | {"n": "x"}] * 50).error
    assert len(error["problems"]) == 20
    assert error["message"].endswith("30 more rows have problems")


def test_unknown_categories_and_columns_are_fine(server: Served) -> None:
    """They are scored as unseen coordinates, or ignored."""
    assert server.post("/predict", [ROW | {"h": "never seen", "zz": {"a": [1]}}]).status == 200


def test_a_non_finite_number_is_null(server: Served, run_folder: Path) -> None:
    """A response is JSON, whatever the model makes of extreme values."""
    from streamomd.integrations.serve.scored_rows import encoded

    made = encoded({"a": [float("nan"), np.float64("inf"), 1.5, np.int64(3), b"x"]})
    assert json.loads(made) == {"a": [None, None, 1.5, 3, "x"]}


def test_compression_is_refused(server: Served, run_folder: Path) -> None:
    """Of the body and inside Arrow: a few bytes could become many."""
    answered = server.post("/predict", b"x", JSON, **{"Content-Encoding": "gzip"})
    assert (answered.status, answered.error["code"]) == (415, "encoding")
    packed = stream(table(run_folder), compression="zstd")
    answered = server.post("/predict", packed, ARROW)
    assert answered.status == 400
    assert "without compression" in answered.error["message"]


def test_two_lengths_are_refused(server: Served) -> None:
    """A proxy and the server could see different requests."""
    head = b"POST /predict HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    head += b"Content-Length: 2\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n"
    assert server.raw(head + b"2\r\n[]\r\n0\r\n\r\n").startswith(b"HTTP/1.1 400 ")


def test_a_chunked_body_is_limited_too(server: Served) -> None:
    """Although nothing says in advance how long it is."""
    head = b"POST /predict HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    head += b"Transfer-Encoding: chunked\r\nConnection: close\r\n\r\n"
    chunk = b"ffff\r\n" + b" " * 0xFFFF + b"\r\n"
    assert server.raw(head + chunk * 3 + b"0\r\n\r\n").startswith(b"HTTP/1.1 413 ")
    small = b"2\r\n[]\r\n0\r\n\r\n"
    assert server.raw(head + small).startswith(b"HTTP/1.1 200 ")


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [("GET", "/predict", 405), ("POST", "/model", 405), ("GET", "/other", 404),
     ("GET", "/predict/", 404), ("HEAD", "/healthz", 200), ("GET", "/", 200)],
)  # fmt: skip
def test_paths_and_methods(server: Served, method: str, path: str, status: int) -> None:
    """Errors are JSON everywhere."""
    answered = server.ask(method, path, None, {})
    assert answered.status == status
    if status >= 400:
        assert answered.error["message"]


def test_metrics_are_in_prometheus_format(server: Served) -> None:
    """Every sample has a name that is declared, and a number; histograms count up."""
    server.get("/nowhere/" + "x" * 50)
    text = server.get("/metrics").body.decode()
    declared = re.findall(r"^# TYPE (\S+) (counter|gauge|histogram)$", text, re.M)
    kinds = dict(declared)
    assert len(kinds) == len(declared) >= 7
    for line in text.splitlines():
        if not line.startswith("#"):
            found = re.fullmatch(r"(\w+?)(_bucket|_sum|_count)?(\{[^{}]*\})? (\S+)", line)
            assert found, line
            assert found[1] in kinds or f"{found[1]}{found[2]}" in kinds
            float(found[4])
    assert "xxx" not in text
    assert 'path="other",status="404"' in text


def test_a_histogram_counts_up() -> None:
    """Each bucket has those of the smaller ones."""
    metrics = HttpMetrics()
    for seconds in (0.0001, 0.003, 0.003, 0.2, 99.0):
        metrics.count("/predict", 200, seconds)
    text = prometheus_text(metrics.families({})).decode()
    found = [int(one) for one in re.findall(r"_bucket\{.*\} (\d+)\.0", text)]
    assert found == sorted(found)
    assert (found[0], found[-1]) == (1, 5)
    assert '_sum{path="/predict"} 99.2061' in text


def test_a_defect_is_500_and_logged(capsys: pytest.CaptureFixture[str]) -> None:
    """On one line without terminal codes; the response says nothing of it."""
    found = numbered(1)
    found.scorer.many = lambda given: 1 / 0 if given else "\x1b[31m secret \n".index("x")
    with served(found) as server:
        for body in ([{"a": 1}], []):
            answered = server.post("/predict", body)
            assert (answered.status, answered.error["code"]) == (500, "internal")
        assert server.get("/healthz").status == 200
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 2
    assert all(line.isprintable() for line in lines)
    assert "ZeroDivisionError" in lines[0]
