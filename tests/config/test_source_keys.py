"""Keys that have no effect on a source are refused, all of them in one message."""

from __future__ import annotations

from typing import Any

import pytest
from running import run

from streamomd.config.build_job import build_job, change_job
from streamomd.config.data_table import Csv, Data
from streamomd.config.run_tables import Update
from streamomd.core.errors import UsageError
from streamomd.sources.find import refuse_without_effect
from streamomd.sources.tables import TableOptions
from streamomd.training.row_stream import find_for_model

TOPIC, TABLE = "kafka://127.0.0.1:1/t", "iceberg://none/ns.t"
ANY = {
    "as_files": True, "partitions": "none", "arrival": "modified",
    "csv": {
        "delimiter": ";", "decimal": ",", "encoding": "latin-1", "date_format": "%d",
        "null_values": ["-"], "header": False, "quotes": False,
    },
}  # fmt: skip
FILES = {
    "settle": 5, "until": "2026-01-31", "ignore_rewritten": True, "moved": True,
    "accept_duplicates": True,
}  # fmt: skip
OF_FILES = (
    "data.as_files (--as-files), data.partitions (--partitions), data.arrival, "
    "update.settle (--settle), update.until (--until), "
    "update.ignore_rewritten (--ignore-rewritten), update.moved (--moved), "
    "update.accept_duplicates (--accept-duplicates), "
)
OF_CSV = (
    "data.csv.delimiter (--delimiter), data.csv.decimal (--decimal), "
    "data.csv.encoding (--encoding), data.csv.date_format (--date-format), "
    "data.csv.null_values (--null-values), data.csv.header, data.csv.quotes"
)
REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    TOPIC: (
        {"data": {**ANY, "version": 3}, "update": {**FILES, "appends_only": True}},
        f"data.version (--version), {OF_FILES}update.appends_only (--appends-only), {OF_CSV}",
    ),
    TABLE: (
        {
            "data": {**ANY, "csv": {**ANY["csv"], "types": {"x": "double"}}},  # type: ignore[dict-item]
            "update": {**FILES, "retry_skipped": True},
        },
        f"{OF_FILES}update.retry_skipped (--retry-skipped), {OF_CSV}, data.csv.types (--type)",
    ),
}
SUPPORTED = {
    TOPIC: {"retry_skipped", "types"},
    TABLE: {"version", "as_of", "appends_only"},
}
OF_ROWS = {
    "shards", "storage_options", "csv", "label", "weight", "numeric", "hashed", "vectors", "text",
    "dates", "sparse", "crosses", "ignore", "rename", "where", "sample", "nulls", "standardize",
    "on_bad_row", "max_bad_rows", "bits", "hash_seed", "order", "seed", "on_bad_shard",
    "cache", "cache_gib", "holdout", "time", "delay", "max_shards", "every", "idle_exit", "max_lag",
    "fail_on_alert", "select",
}  # fmt: skip
"""Keys of [data] and [update] that mean the same for every source."""


def job(source: str) -> dict[str, Any]:
    """A job with every key that is refused. version and as_of are not given together."""
    tables, _ = REFUSED[source]
    return {**tables, "data": {**tables["data"], "shards": [source], "label": "y"}}


@pytest.mark.parametrize("source", REFUSED)
def test_a_job_is_refused_with_all_such_keys(source: str) -> None:
    with pytest.raises(UsageError) as raised:
        build_job(job(source), {})
    assert str(raised.value).endswith(f"Leave out what has no effect on it: {REFUSED[source][1]}")


def test_a_time_of_a_table_is_no_key_of_topics() -> None:
    with pytest.raises(UsageError, match=r"effect on it: data\.as_of \(--as-of\)$"):
        build_job({"data": {"shards": [TOPIC], "as_of": "2026-01-31"}}, {})


@pytest.mark.parametrize("source", REFUSED)
def test_every_key_is_known_to_be_refused_or_supported(source: str) -> None:
    """A new key of [data], [data.csv] or [update] has to be put in one of the lists."""
    names = {*Data.model_fields, *Csv.model_fields, *Update.model_fields}
    text = REFUSED[source][1] + ", data.as_of" * (source == TOPIC)
    refused = {one for one in names if f".{one} " in f"{text} ".replace(",", " ")}
    assert refused | SUPPORTED[source] | OF_ROWS == names
    assert not refused & (SUPPORTED[source] | OF_ROWS)


@pytest.mark.parametrize("source", REFUSED)
def test_a_resumed_run_is_refused_with_all_such_keys(source: str) -> None:
    """Those that may change then, wherever they are given; a value that is the default, too."""
    saved = build_job({"data": {"shards": [source], "label": "y"}}, {}).to_json()
    with pytest.raises(UsageError, match=r": data\.arrival, update\.settle .*, update\.until \(--"):
        change_job(saved, {"data.arrival": "path", "update.until": ""}, (), {"update.settle"})


@pytest.mark.parametrize("source", REFUSED)
@pytest.mark.parametrize(
    "words",
    [
        ("train",), ("plan",), ("warm",), ("submit",),
        ("sweep", "--rule", "nag", "--grid", "eta=1,2"),
        ("backtest", "--by", "day", "--time", "t"),
    ],
)  # fmt: skip
def test_every_command_with_a_job_refuses(source: str, words: tuple[str, ...]) -> None:
    """Before it opens anything: there are no brokers and there is no catalog."""
    more = ("--set", "data.arrival=modified", "--set", "update.until=2026-01-31")
    done = run(*words, source, "--label", "y", "--as-files", *more)
    assert done.code == 2, done.err
    assert "data.as_files (--as-files), data.arrival, update.until (--until)" in done.err


@pytest.mark.parametrize("source", REFUSED)
def test_rows_for_a_model_are_refused_with_all_such_keys(source: str) -> None:
    """Of the command, not of the job that the model was trained with."""
    data = Data.model_validate({"csv": {"delimiter": ";"}})
    tables = TableOptions.for_model(
        data, {}, None, "", True, {"encoding": "latin-1", "decimal": ","}
    )
    plan: Any = None
    with pytest.raises(UsageError) as raised:
        find_for_model(plan, source, tables=tables)
    assert str(raised.value).endswith(
        ": data.as_files (--as-files), data.csv.decimal (--decimal), data.csv.encoding (--encoding)"
    )


def test_keys_of_files_are_taken_where_there_are_files() -> None:
    refuse_without_effect([TABLE, "s3://bucket/rows"], {"update.settle", "data.arrival"})
    refuse_without_effect(["rows.csv"], {"data.csv.delimiter"})
    refuse_without_effect([], {"data.csv.delimiter"})
    build_job({"data": {"shards": [TOPIC], "csv": {"types": {"x": "double"}}}}, {})
