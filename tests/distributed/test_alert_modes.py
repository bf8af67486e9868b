"""Alerts of averaged and sharded mode on a cluster: which, where they are reported, after kills."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import dask.dataframe as dd
import numpy as np
import pyarrow as pa
import pytest
from alerting import FLAGS, ROWS, WATCHED, saved, write_changed
from distributed import Client, LocalCluster
from killed import killed
from running import write
from sweeping import plain

import streamomd
from streamomd.core.errors import AlertError

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]
MODES: dict[str, dict[str, Any]] = {
    "averaged": {"train.mode": "averaged", "train.parts": 2, "train.rounds_per_epoch": 4},
    "sharded": {"train.mode": "sharded", "train.parts": 4, "train.batch_rows": 32},
}


@pytest.fixture(scope="module")
def changed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Rows that change at the last shard."""
    folder = tmp_path_factory.mktemp("changed") / "data"
    write_changed(folder)
    return folder


def learn(shards: Path, url: Path | str, client: Client | None = None, **more: Any) -> Any:
    sets = {**WATCHED, **more.pop("sets", {})}
    given = {"checkpoint": str(url), "client": client, **FLAGS, **more}
    with plain():
        return streamomd.train(str(shards), sets=sets, **given)


def test_averaged_mode_of_one_part_has_the_alerts_of_exact_mode(
    changed: Path, client: Client, tmp_path: Path
) -> None:
    """All that is saved is bit-identical, also with hold-out rows, which do not count."""
    held = {"data.holdout": 7}
    alone = learn(changed, "none", sets=held)
    one = {"train.mode": "averaged", "train.parts": 1, **held}
    model = learn(changed, tmp_path / "run", client, sets=one)
    assert model.result()["alerts"] == alone.result()["alerts"]
    assert saved(model) == saved(alone)


@pytest.mark.parametrize("mode", MODES)
def test_the_change_alerts_and_ends_a_run(
    mode: str, changed: Path, client: Client, tmp_path: Path
) -> None:
    """Every kind, at the change and not before; one event each; a run that ends at one continues to
    the same alerts. Later epochs have none."""
    log, sets = tmp_path / "log.jsonl", MODES[mode]
    whole = learn(changed, tmp_path / "whole", client, sets=sets, epochs=2, log=str(log))
    found = whole.result()["alerts"]
    assert {one["kind"] for one in found} == {"loss", "mean", "null_rate", "new_categories"}
    assert all(5 * ROWS < one["row"] <= 6 * ROWS for one in found)
    events = [json.loads(line) for line in log.read_text().splitlines()]
    alerts = [event for event in events if event["event"] == "alert"]
    assert [{key: event[key] for key in found[0]} for event in alerts] == found
    loaded = streamomd.load(whole.url)
    assert saved(loaded) == saved(whole)
    url = tmp_path / "run"
    with pytest.raises(AlertError, match=r"above alert\..*; commit \d+$"):
        learn(changed, url, client, sets=sets, epochs=2, fail_on_alert=True)
    half = streamomd.load(str(url))
    assert half.metrics.drift.alerts
    assert half.metrics.total_rows <= 7 * ROWS
    with plain():
        more = {"update.fail_on_alert": False}
        again = streamomd.resume(str(url), sets=more, client=client, quiet=True)
    assert again.state_sha256 == whole.state_sha256
    assert again.result()["alerts"] == found
    assert saved(again) == saved(whole)


@pytest.mark.parametrize("mode", MODES)
def test_an_update_alerts(mode: str, client: Client, tmp_path: Path) -> None:
    """Its rows are compared with those of the run."""
    write_changed(tmp_path / "data")
    aside = (tmp_path / "data/f.parquet").rename(tmp_path / "f.parquet")
    url = tmp_path / "run"
    first = learn(tmp_path / "data", url, client, sets={**MODES[mode], "update.settle": 0.0})
    assert first.result()["alerts"] == []
    aside.rename(tmp_path / "data/f.parquet")
    with plain(), pytest.raises(AlertError, match="after row"):
        streamomd.update(str(url), client=client, fail_on_alert=True, quiet=True)
    with plain():
        model = streamomd.update(str(url), client=client, quiet=True)
    kinds = {one["kind"] for one in model.result()["alerts"]}
    assert kinds == {"loss", "mean", "null_rate", "new_categories"}


@pytest.mark.parametrize("numeric_only", [False, True])
def test_owners_report_what_one_process_does(
    numeric_only: bool, changed: Path, client: Client, tmp_path: Path
) -> None:
    """Columns and indicators that other owners have are watched by the leader."""
    shards, flags = changed, {}
    if numeric_only:
        shards = tmp_path / "data"
        for at, move in enumerate((0.0, 0.0, 5.0)):
            draw = np.random.default_rng(at)
            table = {f"c{k}": draw.normal(size=200) + move for k in range(8)}
            gone = {"c7": pa.array(table["c7"], mask=draw.random(200) < 0.1 + move / 10.0)}
            labels = {"y": draw.integers(0, 2, 200)}
            write(shards / f"{at}.parquet", pa.table({**table, **gone, **labels}))
        flags = {"numeric": [f"c{k}" for k in range(8)], "hashed": []}
    sets = {**MODES["sharded"], "train.parts": 2}
    alone = learn(shards, "none", sets=sets, **flags)
    model = learn(shards, tmp_path / "run", client, sets=sets, **flags)
    columns = {one["column"] for one in model.result()["alerts"]}
    assert columns >= ({f"c{k}" for k in range(8)} if numeric_only else {"n", "h"})
    assert model.result()["alerts"] == alone.result()["alerts"]
    assert saved(model) == saved(alone)


@pytest.mark.parametrize("decode", ["local", "remote"])
def test_rows_that_workers_decode_alert_alike(
    decode: str, changed: Path, client: Client, tmp_path: Path
) -> None:
    """In exact mode, from the workers and from this process."""
    alone = learn(changed, "none")
    model = learn(changed, tmp_path / "run", client, sets={"cluster.decode": decode})
    assert saved(model) == saved(alone)


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("mode", ["exact", *MODES])
def test_killed_runs_have_the_alerts_of_an_undisturbed_one(
    mode: str, changed: Path, workers: LocalCluster, tmp_path: Path
) -> None:
    """kill -9 of the learner or driver, several times a run."""
    frequent = {"checkpoint.every_rows": 50, "checkpoint.every_seconds": 0.0}
    sets = {**WATCHED, **MODES.get(mode, {}), **frequent}
    table: dict[str, Any] = {"data": {"shards": [str(changed)]}, "model": {"rule": "nag"}}
    for key in ("label", "numeric", "hashed", "nulls", "bits"):
        table["data"][key] = FLAGS[key]
    for key, value in sets.items():
        section, name = key.split(".")
        table.setdefault(section, {})[name] = value
    table.setdefault("train", {})["epochs"] = 2
    address = workers.scheduler_address if mode != "exact" else ""
    kills = 0
    for seed in range(4):
        url = tmp_path / f"{mode}-{seed}"
        outcome = killed(
            {**table, "checkpoint": {**table["checkpoint"], "url": str(url)}}, address, seed
        )
        kills += outcome.kills
        found = saved(streamomd.load(str(url)))
        if not seed:
            whole = tmp_path / f"{mode}-whole"
            given = {**table, "checkpoint": {**table["checkpoint"], "url": str(whole)}}
            undisturbed = streamomd.train(given, sets={"cluster.scheduler": address}, quiet=True)
        assert outcome.state_sha256 == undisturbed.state_sha256
        assert found == saved(undisturbed)
    assert kills


def test_a_learner_on_a_worker_alerts(changed: Path, client: Client, tmp_path: Path) -> None:
    """Its alerts are logged where the run was started, and end it."""
    log, sets = tmp_path / "log.jsonl", {"cluster.learner": "worker"}
    alone = learn(changed, "none")
    model = learn(changed, tmp_path / "run", client, sets=sets, log=str(log))
    assert saved(model) == saved(alone)
    events = [json.loads(line) for line in log.read_text().splitlines()]
    alerts = [event for event in events if event["event"] == "alert"]
    assert len(alerts) == len(alone.result()["alerts"])
    with pytest.raises(AlertError, match=r"above alert\..*; commit \d+$"):
        learn(changed, tmp_path / "ended", client, sets=sets, fail_on_alert=True)


def test_a_collection_alerts(changed: Path, client: Client) -> None:
    """A partition a shard, computed by the workers or here."""
    rows = dd.read_parquet(sorted(map(str, changed.iterdir())), split_row_groups=False)
    alone = learn(changed, "none")
    for there in (client, None):
        with plain():
            found = streamomd.train(
                shards=rows, sets=WATCHED, checkpoint="none", client=there, **FLAGS
            )
        assert saved(found) == saved(alone)
