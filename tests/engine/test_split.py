"""The same rows, cut or scaled otherwise, end to end: the same bits, or the same mistakes."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pytest
from running import both, everything, rows, run, train, write

CUTS: dict[str, tuple[tuple[int, ...], int]] = {
    "one shard": ((0, 300), 300),
    "three of unequal size": ((0, 1, 293, 300), 1000),
    "row groups of 1": ((0, 150, 300), 1),
    "row groups of 7": ((0, 13, 77, 300), 7),
    "many shards": (tuple(range(0, 301, 20)), 20),
}


@pytest.mark.parametrize("every_rows", [0, pytest.param(97, marks=pytest.mark.slow)])
@pytest.mark.parametrize("cut", CUTS)
@pytest.mark.sample(2)
def test_split(cut: str, every_rows: int, tmp_path: Path) -> None:
    """However rows are cut into shards, groups, batches of a file and commits: the same bits."""
    table = rows(300)
    whole = write(tmp_path / "whole" / "whole.parquet", table)
    expected = train(whole, *everything(), "--epochs", "2", "--checkpoint", "none")
    edges, group = CUTS[cut]
    for place, (low, high) in enumerate(itertools.pairwise(edges)):
        piece = table.slice(low, high - low)
        write(tmp_path / "parquet" / f"{place:03d}.parquet", piece, row_group_size=group)
        (tmp_path / "arrow").mkdir(exist_ok=True)
        with pa.ipc.new_file(str(tmp_path / "arrow" / f"{place:03d}.arrow"), piece.schema) as file:
            file.write_table(piece, max_chunksize=group)
    for kind in ("parquet", "arrow"):
        kept = [
            "--checkpoint",
            tmp_path / f"kept-{kind}",
            "--set",
            f"checkpoint.every_rows={every_rows}",
        ]
        result = train(tmp_path / kind, *everything(), "--epochs", "2", *kept)
        for key in ("state_sha256", "loss", "error", "rows", "epochs"):
            assert result[key] == expected[key]


def test_a_commit_after_every_row(tmp_path: Path) -> None:
    """A commit after every single row changes no bit, and the last three are kept."""
    path = write(tmp_path / "a.parquet", rows(40), row_group_size=7)
    expected = train(path, *everything(), "--checkpoint", "none")["state_sha256"]
    kept = ["--checkpoint", tmp_path / "kept", "--set", "checkpoint.every_rows=1"]
    assert train(path, *everything(), *kept)["state_sha256"] == expected
    listed = run("checkpoint", "list", tmp_path / "kept", "--json").result["commits"]
    assert [commit["rows"] for commit in listed] == [39, 40, 40]


@pytest.mark.smoke
def test_compressed_arrow(tmp_path: Path) -> None:
    """Compressed Arrow files give the bits of Parquet."""
    table = rows(100)
    expected = train(write(tmp_path / "a.parquet", table), *everything(), "--checkpoint", "none")
    for codec in ("lz4", "zstd"):
        options = pa.ipc.IpcWriteOptions(compression=codec)
        path = tmp_path / codec / "a.arrow"
        path.parent.mkdir()
        with pa.ipc.new_file(str(path), table.schema, options=options) as file:
            file.write_table(table, max_chunksize=9)
        result = train(path, *everything(), "--checkpoint", "none")
        assert result["state_sha256"] == expected["state_sha256"]


ROOT = Path(__file__).parents[2]
SHIPPED = ROOT / "pipelines" / "data" / "bank"
SHARED = ROOT.parent / "shared" / "data" / "bank-marketing" / "bank-full.csv.gz"


@pytest.fixture(scope="module")
def bank() -> pa.Table:
    """The bank data, 45,211 rows in the order of the calls."""
    if SHIPPED.is_dir():
        return both(SHIPPED)
    if not SHARED.exists():
        pytest.skip("the bank data is neither in pipelines/data nor in ../shared/data")
    return pa.csv.read_csv(SHARED, parse_options=pa.csv.ParseOptions(delimiter=";"))


@pytest.mark.parametrize("hashed", [False, True], ids=["numeric", "with categories"])
@pytest.mark.sample(2)
def test_bank_at_two_scales(hashed: bool, bank: pa.Table, tmp_path: Path) -> None:
    """NAG on raw columns and on each divided by its maximum: mistakes within 3 of 45,211."""
    numeric = "age,balance,day,duration,campaign,pdays,previous"
    words = "job,marital,education,default,housing,loan,contact,month,poutcome"
    scaled = bank
    for name in numeric.split(","):
        column = bank.column(name).to_numpy().astype(np.float64)
        share = pa.array(column / np.abs(column).max())
        scaled = scaled.set_column(scaled.schema.get_field_index(name), name, share)
    flags = ["--label", "y", "--numeric", numeric, "--checkpoint", "none", "--rule", "nag"]
    flags += ["--eta", "0.5"]
    flags += ["--hashed", words] if hashed else []
    told = [
        train(write(tmp_path / f"{name}.parquet", table), *flags)
        for name, table in {"raw": bank, "scaled": scaled}.items()
    ]
    assert [one["rows"] for one in told] == [45211, 45211]
    assert 0.05 < told[0]["error"] < 0.2
    assert abs(told[0]["error"] - told[1]["error"]) * 45211 <= 3.0001
