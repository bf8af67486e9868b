"""Files that have a column under another name than the model: ``data.rename``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.feather as feather
import pyarrow.parquet as pq
import pytest
from running import run, train

from streamomd.training.load_model import load_model

OLD = {"amount": "amount_eur", "y": "target", "w": "n", "when": "at"}
RENAMES = ",".join(f"{new}={old}" for old, new in OLD.items())
JOB = ("--label", "y", "--weight", "w", "--time", "when", "--numeric", "amount", "--hashed", "city",
       "--bits", "6")  # fmt: skip


def day(number: int, rows: int = 200) -> pa.Table:
    draw = np.random.default_rng(number)
    amount = draw.normal(size=rows)
    return pa.table({
        "amount": amount, "city": draw.choice(["a", "b", "c"], rows),
        "y": (amount > draw.normal(size=rows)).astype(int), "w": draw.uniform(1, 2, rows),
        "when": pa.array(number * 86400 + np.arange(rows), pa.timestamp("s")),
    })  # fmt: skip


def renamed(table: pa.Table, *names: str) -> pa.Table:
    """Some columns, or all of OLD, under their other names."""
    other = {name: OLD[name] for name in names or OLD}
    return table.rename_columns([other.get(name, name) for name in table.column_names])


def write(folder: Path, name: str, table: pa.Table) -> Path:
    folder.mkdir(exist_ok=True)
    (feather.write_feather if name.endswith("arrow") else pq.write_table)(table, folder / name)
    return folder


def update(url: Path, *words: Any) -> dict[str, Any]:
    return run("update", url, "--settle", 0, *words, "--json").result


@pytest.mark.parametrize("form", ["parquet", "arrow"])
def test_a_renamed_shard_has_the_bits_of_the_same_shard(form: str, tmp_path: Path) -> None:
    """Label, weight, time and a feature have other names in new files: the state is that of the
    files under the model's names, in this update, in later ones and in another epoch."""
    plain, data, url = tmp_path / "plain", tmp_path / "data", tmp_path / "run"
    for number in range(3):
        write(plain, f"{number}.{form}", day(number))
    write(data, f"0.{form}", day(0))
    train(data, *JOB, "--checkpoint", url)
    write(data, f"1.{form}", renamed(day(1)))
    done = run("update", url, "--settle", 0)
    assert done.code == 2
    assert "--rename FILE=COLUMN" in done.err
    found = run("update", url, "--settle", 0, "--rename", RENAMES, "--json")
    assert "new columns" not in found.err
    write(data, f"2.{form}", renamed(day(2)))
    assert (found.result["new_rows"], update(url)["new_rows"]) == (200, 200)
    assert load_model(str(url))[0].spec.data.rename == {new: old for old, new in OLD.items()}
    one = train(plain, *JOB, "--checkpoint", tmp_path / "one")
    assert run("resume", url, "--json").result["state_sha256"] == one["state_sha256"]
    both = run("resume", url, "--epochs", 2, "--json").result
    again = train(plain, *JOB, "--checkpoint", "none", "--epochs", 2)
    assert both["state_sha256"] == again["state_sha256"]


def test_a_job_renames_from_its_first_shard_on(tmp_path: Path) -> None:
    """Files with either name are learned, evaluated, predicted and filtered as one column."""
    plain, data = tmp_path / "plain", tmp_path / "data"
    for number in range(3):
        write(plain, f"{number}.parquet", day(number))
        write(data, f"{number}.parquet", renamed(day(number)) if number != 1 else day(number))
    job = (*JOB, "--where", "amount > -1", "--cache", tmp_path / "cache")
    expected = train(plain, *job, "--checkpoint", tmp_path / "one")
    (tmp_path / "job.toml").write_text(
        "[data]\nrename = { " + ", ".join(f'{new} = "{old}"' for old, new in OLD.items()) + " }\n"
        f'shards = "{data}"\n'
    )
    url = tmp_path / "run"
    found = train(tmp_path / "job.toml", *job, "--checkpoint", url)
    assert found["state_sha256"] == expected["state_sha256"]
    losses = [run("evaluate", url, folder, "--json").result["loss"] for folder in (plain, data)]
    assert losses[0] == losses[1]
    tables = []
    for folder in (plain, data):
        to = tmp_path / f"to-{folder.name}"
        done = run("predict", url, folder, "--to", to, "--keep", "amount")
        assert done.code == 0, done.err
        tables.append(pq.read_table(to))
    assert tables[0].equals(tables[1])
    assert run("certify", url, data).code == 0


@pytest.mark.parametrize(
    ("rename", "more", "words"),
    [
        ("amount_usd=amount", (), "no shard has a column 'amount_usd'; did you mean 'amount_eur'"),
        ("city=amount_eur", (), "has columns 'city' and 'amount_eur', which data.rename makes one"),
        ("target=y,y=z", (), "'y' is a file's name and a column's"),
        ("city=y", (), "data.rename makes one, 'y'"),
        ("amount_eur", (), "expected FILE=COLUMN"),
        ("target=y", ("--label", "target"), "data.label = 'target', which data.rename makes 'y'"),
        ("place=city2", (), "column 'place' is a struct"),
    ],
)
def test_renames_that_mean_nothing_are_refused(
    rename: str, more: tuple[str, ...], words: str, tmp_path: Path
) -> None:
    """Unknown names, two columns of one name, chains, keys by the file's name, structs."""
    table = renamed(day(0), "amount").append_column("place", pa.array([{"x": 1}] * 200))
    data = write(tmp_path / "data", "0.parquet", table)
    job = ("--label", "y", "--hashed", "city", "--checkpoint", "none", "--rename", rename, *more)
    done = run("train", data, *job)
    assert done.code != 0
    assert words in done.err
    assert "Traceback" not in done.err


def test_an_update_checks_the_renames_of_its_command(tmp_path: Path) -> None:
    """Columns that the model or no new file has, and both names in one file, which may be skipped;
    entries are added, and a table replaces them."""
    data, url = write(tmp_path / "data", "0.parquet", day(0)), tmp_path / "run"
    train(data, *JOB, "--checkpoint", url)
    write(data, "1.parquet", renamed(day(1)))
    both = day(2).append_column("amount_eur", day(3)["amount"])
    for rename, words in (
        ("x=amout", "'amout', which is not a column of the model; did you mean 'amount'?"),
        ("x=amount", "no shard has a column 'x'"),
    ):
        done = run("update", url, "--settle", 0, "--rename", rename)
        assert done.code == 2 or done.code == 1
        assert words in done.err
    assert update(url, "--rename", RENAMES)["new_rows"] == 200
    write(data, "2.parquet", both)
    done = run("update", url, "--settle", 0)
    assert done.code == 2
    assert (
        "2.parquet has columns 'amount_eur' and 'amount', which data.rename makes one" in done.err
    )
    assert len(update(url, "--set", "data.on_bad_shard=skip")["skipped_shards"]) == 1
    write(data, "3.parquet", day(3).rename_columns(["sum", *day(3).column_names[1:]]))
    assert update(url, "--rename", "sum=amount")["new_rows"] == 200
    assert len(load_model(str(url))[0].spec.data.rename) == 5
    found = update(url, "--retry-skipped", "--set", "data.rename={}")
    assert (found["new_rows"], load_model(str(url))[0].spec.data.rename) == (200, {})
    assert run("resume", url, "--epochs", 2, "--json").result["rows"] == 1600


def test_lists_stored_as_binary_may_be_in_renamed_files(tmp_path: Path) -> None:
    """Their metadata is by the file's names; the list's own column may be renamed, too."""
    lines = [f"{n % 2} {n % 5 + 1}:1 {n % 7 + 8}:0.5" for n in range(60)]
    (tmp_path / "rows.svm").write_text("\n".join(lines) + "\n")
    plain, data = tmp_path / "plain", tmp_path / "data"
    done = run("convert", tmp_path / "rows.svm", "-o", plain, "--lists-as", "binary")
    assert done.code == 0, done.err
    (path,) = plain.glob("*.parquet")
    table = pq.read_table(path)
    names = table.column_names
    data.mkdir()
    renames = {name: f"{name}_old" for name in names}
    key = b"streamomd.binary_lists"
    text = table.schema.metadata[key]
    for name in names:
        text = text.replace(f'"{name}"'.encode(), f'"{name}_old"'.encode())
    other = table.rename_columns([renames[name] for name in names])
    other = other.replace_schema_metadata({**table.schema.metadata, key: text})
    pq.write_table(other, data / path.name, write_page_checksum=True)
    label, *pair = names
    sparse = f"data.sparse={{indices='{pair[0]}', values='{pair[1]}'}}"
    job = ("--label", label, "--set", sparse, "--rule", "nag", "--checkpoint", "none")
    rename = ",".join(f"{old}={name}" for name, old in renames.items())
    found, expected = train(data, *job, "--rename", rename), train(plain, *job)
    assert found["state_sha256"] == expected["state_sha256"]
