"""Runs over Iceberg tables: the snapshot is pinned, updates learn what was appended."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

pytest.importorskip("pyiceberg")
pytest.importorskip("sqlalchemy")

from iceberg_tables import NAME, SCHEMA, catalog, rows
from running import run, train

from streamomd.training.load_model import load_model


@pytest.fixture
def tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    return catalog(tmp_path, monkeypatch)


def plain(folder: Path, *parts: pa.Table) -> Path:
    """The same rows as files, in order."""
    folder.mkdir()
    for number, part in enumerate(parts):
        pq.write_table(part, folder / f"{number}.parquet")
    return folder


def test_updates_of_a_changed_table_have_the_bits_of_its_rows(tables: Any, tmp_path: Path) -> None:
    """Files from before a column was renamed and another added, learned by a run and an update,
    and read again from the ledger: as plain files with the same rows."""
    url, words = tmp_path / "run", ("--label", "y", "--numeric", "z", "--numeric", "n")
    words = (*words, "--rule", "nag", "--set", "data.nulls=zero", "--checkpoint")
    table = tables.create_table("ns.t", SCHEMA)
    table.append(rows(0))
    with table.update_schema() as change:
        change.rename_column("x", "z")
        change.add_column("n", table.schema().find_type("x"))
    with table.update_schema() as change:
        change.add_column("x", table.schema().find_type("y"))
    first = rows(0).rename_columns(["y", "z"]).append_column("n", pa.nulls(4, pa.float64()))

    def part(number: int) -> pa.Table:
        more = rows(number).rename_columns(["y", "z"])
        return more.append_column("n", pa.array([float(number)] * 4))

    def append(number: int) -> None:
        table.append(part(number).append_column("x", pa.array([7] * 4)))

    append(4)
    done = run("train", NAME, *words, url, "--set", 'data.ignore=["x"]', "--json")
    assert f"Iceberg table {NAME}: snapshot" in done.err
    assert done.result["rows"] == 8
    pinned = load_model(str(url))[0].table_versions
    current = table.refresh().current_snapshot()
    assert pinned == {NAME: current.snapshot_id, f"{NAME}#schema": current.schema_id}
    with table.update_schema() as change:
        change.delete_column("x")
    append_without = part(8)
    table.append(append_without)
    done = run("update", url, "--json")
    assert done.result["new_rows"] == 4
    assert "column 'x' dropped" in done.err
    table.append(part(12))
    follow = ("follow", url, "--every", "10ms", "--idle-exit", "10ms", "--json")
    assert run(*follow).result["new_rows"] == 4
    assert run("update", url, "--json").result["new_rows"] == 0
    assert run("resume", url, "--epochs", "2", "--json").result["rows"] == 32
    files = plain(tmp_path / "plain", first, part(4), part(8), part(12))
    expected = train(files, *words, "none", "--epochs", "2")
    assert load_model(str(url))[0].table_versions[NAME] == table.current_snapshot().snapshot_id
    found = run("resume", url, "--json").result
    assert found["state_sha256"] == expected["state_sha256"]
    assert run("evaluate", url, NAME, "--json").result["rows"] == 16
    table.delete("z = 1")
    done = run("update", url)
    assert done.code == 3
    assert "delete or overwrite rows" in done.err


def test_a_resumed_run_reads_its_snapshot(tables: Any, tmp_path: Path) -> None:
    """Whatever was appended since, and though the column has another name by then."""
    url, table = tmp_path / "run", tables.create_table("ns.t", SCHEMA)
    table.append(rows(0))
    job = ("--label", "y", "--rule", "nag", "--checkpoint", url)
    assert train(NAME, *job)["rows"] == 4
    with table.update_schema() as change:
        change.rename_column("x", "z")
    table.append(rows(4).rename_columns(["y", "z"]))
    assert run("resume", url, "--epochs", "2", "--json").result["rows"] == 8
    done = run("update", url, "--json")
    assert "column 'x' is 'z' now, and read by its field id" in done.err
    assert "new columns" not in done.err
    assert done.result["new_rows"] == 4


def test_renamed_columns_have_the_names_that_the_model_knows(tables: Any, tmp_path: Path) -> None:
    """Label and feature renamed, renamed again, exchanged, and another column under the name of
    one: updates, resumes, evaluations and predictions are those of files with the old names."""
    url, table = tmp_path / "run", tables.create_table("ns.t", SCHEMA)
    words = ("--label", "y", "--numeric", "x", "--rule", "nag")
    table.append(rows(0))
    train(NAME, *words, "--checkpoint", url)

    def rename(*pairs: tuple[str, str]) -> None:
        for old, new in pairs:
            with table.update_schema() as change:
                change.rename_column(old, new)

    def update(first: int, *names: str) -> None:
        table.append(rows(first).rename_columns([*names]))
        done = run("update", url, "--json")
        assert done.result["new_rows"] == 4, done.err

    rename(("x", "z"))
    update(4, "y", "z")
    rename(("z", "w"), ("y", "label"))
    update(8, "label", "w")
    with table.update_schema() as change:
        change.add_column("x", table.schema().find_type("w"))
    more = rows(12).rename_columns(["label", "w"]).append_column("x", pa.array([7.0] * 4))
    table.append(more)
    done = run("update", url, "--json")
    assert (done.result["new_rows"], "new columns" in done.err) == (4, False)
    with table.update_schema() as change:
        change.delete_column("x")
    rename(("w", "t"), ("label", "x"), ("t", "y"))  # the two columns have exchanged their names
    update(16, "x", "y")
    files = plain(tmp_path / "plain", *(rows(first) for first in range(0, 20, 4)))
    expected = train(files, *words, "--checkpoint", tmp_path / "one")
    assert run("resume", url, "--json").result["state_sha256"] == expected["state_sha256"]
    again = train(files, *words, "--checkpoint", "none", "--epochs", "2")
    found = run("resume", url, "--epochs", "2", "--json").result
    assert found["state_sha256"] == again["state_sha256"]
    losses = [run("evaluate", url, one, "--json").result["loss"] for one in (NAME, files)]
    assert losses[0] == losses[1]
    assert run("predict", url, NAME, "--to", tmp_path / "to").code == 0
    with table.update_schema() as change:
        change.delete_column("y")
    table.append(rows(20).rename_columns(["x", "y"]).select(["x"]))
    done = run("update", url)
    assert done.code == 2
    assert "'x'" in done.err


def test_a_stopped_run_needs_its_snapshot(tables: Any, tmp_path: Path) -> None:
    """One that expired since is named; a finished run prints its result again."""
    url, table = tmp_path / "run", tables.create_table("ns.t", SCHEMA)
    table.append(rows(0))
    job = ("--label", "y", "--rule", "nag", "--checkpoint", url)
    train(NAME, *job, "--set", "checkpoint.every_rows=2", "--set", "checkpoint.keep=9")
    first = table.refresh().current_snapshot().snapshot_id
    table.append(rows(4))
    table.maintenance.expire_snapshots().by_id(first).commit()
    assert run("resume", url, "--json").result["rows"] == 4
    done = run("update", url)
    assert done.code == 3
    assert f"snapshot {first} of Iceberg table {NAME}, which was learned, is not before" in done.err
    assert run("checkpoint", "restore", url, "--at", "1").code == 0
    done = run("resume", url)
    assert done.code == 2
    assert f"{NAME} has no snapshot {first} to read (was it expired?)" in done.err
