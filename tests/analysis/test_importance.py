"""The order of the report's features on public sets."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv as pc
import pyarrow.parquet as pq
import pytest
from running import train, write
from scipy.stats import spearmanr

import streamomd
from streamomd.analysis.report.feature_scales import scales_of_shards
from streamomd.analysis.report.largest_weights import weigh

DATA = Path(__file__).parents[3] / "shared" / "data"
SETS = {
    "bank": "bank-marketing/bank-full.csv.gz",
    "housing": "california-housing/california_housing.parquet.brotli",
    "covertype": "covertype/covtype.csv.gz",
}
ROWS = 20_000


def _table(name: str) -> pa.Table:
    """Numeric columns, and "y"."""
    path = DATA / SETS[name]
    if name == "housing":
        table = pq.read_table(path)
        label = "MedHouseVal"
        y = table.column(label).to_numpy()
    elif name == "bank":
        options = pc.ParseOptions(delimiter=";")
        text, label = pa.BufferReader(gzip.decompress(path.read_bytes())), "y"
        table = pc.read_csv(text, parse_options=options)
        y = (table.column("y").to_numpy(zero_copy_only=False) == "yes").astype(int)
    else:
        table, label = (
            pc.read_csv(pa.BufferReader(gzip.decompress(path.read_bytes()))),
            "Cover_Type",
        )
        table = table.select([*table.column_names[:10], label])
        y = (table.column(label).to_numpy() == 2).astype(int)
    columns = {
        one: table.column(one).to_numpy().astype(float)
        for one in table.column_names
        if one != label
        and (pa.types.is_integer(table[one].type) or pa.types.is_floating(table[one].type))
    }
    order = np.random.default_rng(0).permutation(len(y))[:ROWS]
    return pa.table({"y": y[order], **{k: v[order] for k, v in columns.items()}})


@pytest.mark.slow
def test_features_are_in_the_order_of_permutation_importance(tmp_path: Path) -> None:
    """Median rank correlation of ``moves`` and the rise of the loss when a column is permuted."""
    found = {}
    for name, path in SETS.items():
        if not (DATA / path).exists():
            continue
        table = _table(name)
        data = write(tmp_path / f"{name}.parquet", table)
        numeric = ",".join(table.column_names[1:])
        train(data, "--label", "y", "--numeric", numeric, "--checkpoint", tmp_path / name)
        model = streamomd.load(str(tmp_path / name))
        top = weigh(model, scales_of_shards(model.plan, str(data))).top
        moves = {one.name: one.moves for one in top}
        base, rises = model.evaluate(str(data), quiet=True)["loss"], []
        for at, column in enumerate(table.column_names[1:], 1):
            mixed = np.random.default_rng(at).permutation(table.column(column).to_numpy())
            other = write(tmp_path / "p" / f"{name}{at}.parquet",
                          table.set_column(at, column, pa.array(mixed)))  # fmt: skip
            rises.append(model.evaluate(str(other), quiet=True)["loss"] - base)
        ours = [moves.get(column, 0.0) for column in table.column_names[1:]]
        found[name] = spearmanr(ours, rises).statistic
    if not found:
        pytest.skip("no set is in ../shared/data")
    assert np.median(list(found.values())) >= 0.8, found
