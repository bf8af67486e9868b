"""Input that looks bad and is not, line by line of the table of what a user may expect.

ACCEPTED: learned, to the bits of the plain shards. After them what is decided otherwise than the
table first wanted (OTHERWISE in test_bad_input_table), as far as it can be seen.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from changed import COUNT, Make, Table, cast, cell, column, first, pair
from running import everything, rows, run, train, with_column, write


def spread(change: Callable[[Table], Table]) -> Make:
    """All rows in two shards, of which the second one is changed."""

    def make(data: Path) -> None:
        write(data / "a.parquet", rows(COUNT).slice(0, 10))
        write(data / "b.parquet", change(rows(COUNT).slice(10)))

    return make


def written(path: str, **how: Any) -> Make:
    return lambda data: write(data / path, rows(COUNT), **how)


def awkward(data: Path) -> None:
    for place, name in enumerate(("a[1] %20#?*,{}=é.parquet", "b::c\n.parquet", "é.parquet")):
        write(data / name, rows(COUNT).slice(10 * place, 10))


def hidden(data: Path) -> None:
    write(data / "a.parquet", rows(COUNT))
    for name in ("_SUCCESS", ".a.parquet.crc", "_metadata", "._a.parquet", ".tmp"):
        (data / name).write_bytes(b"x")


def empties(data: Path) -> None:
    write(data / "b.parquet", rows(COUNT), row_group_size=7)
    write(data / "a.parquet", rows(0))
    with pq.ParquetWriter(data / "c.parquet", rows(0).schema) as writer:
        writer.write_table(rows(0))
    with pq.ParquetWriter(data / "d.parquet", rows(0).schema):
        pass


def coded(data: Path) -> None:
    """The text column in dictionaries that change from shard to shard and from group to group."""
    table = rows(COUNT)
    for place, name in enumerate("abc"):
        some = cast("h", pa.dictionary(pa.int32(), pa.string()))(table.slice(10 * place, 10))
        write(data / f"{name}.parquet", some, row_group_size=3)


def large_lists(table: Table) -> Table:
    return cast("v", pa.large_list(pa.float64()))(cast("i", pa.large_list(pa.int64()))(table))


ACCEPTED: dict[str, Make] = {
    "safe widening": spread(cast("k", pa.int8())),
    "extra column": spread(lambda table: table.append_column("more", table.column("n"))),
    "another order of columns": spread(lambda table: table.select(table.schema.names[::-1])),
    "empty shards and row groups": empties,
    "boolean label": first(cast("y", pa.bool_())),
    "int8 label": first(cast("y", pa.int8())),
    "decoded dictionaries that change": coded,
    "large lists": spread(large_lists),
    "names of other programs": hidden,
    "awkward names": awkward,
    "a directory named like a shard": written("x.parquet/part-0.parquet"),
    "hive directories": written("p=a%2Fb/part-0.parquet"),
    "Parquet pages of version 2, small": written(
        "a.parquet", data_page_version="2.0", data_page_size=64
    ),
    "compressed": written("a.parquet", compression="zstd"),
}


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The state after the plain rows."""
    path = write(tmp_path_factory.mktemp("plain") / "a.parquet", rows(COUNT))
    return str(train(path, *everything(), "--checkpoint", "none")["state_sha256"])


@pytest.mark.parametrize("line", ACCEPTED)
def test_accepted(line: str, plain: str, tmp_path: Path) -> None:
    """Learned, to the bits of one plain shard."""
    ACCEPTED[line](tmp_path / "data")
    done = train(tmp_path / "data", *everything(), "--checkpoint", "none")
    assert done["state_sha256"] == plain


def bits(table: Table, folder: Path, *flags: str) -> str:
    path = write(folder / "a.parquet", table)
    return str(train(path, *everything(), "--checkpoint", "none", *flags)["state_sha256"])


def test_subnormals_and_minus_zero_are_taken_as_they_are(tmp_path: Path) -> None:
    """Neither is a bad row of a rule without a range, and a subnormal is not taken for 0."""
    given = [column("n", value)(rows(COUNT)) for value in (5e-324, -0.0, 0.0)]
    rule = ("--rule", "adagrad_da")
    found = [bits(table, tmp_path / str(at), *rule) for at, table in enumerate(given)]
    assert found[0] != found[1] == found[2]


def test_a_row_without_features_is_a_row(tmp_path: Path) -> None:
    """A null pair and an empty one are the same row, learned by its other columns and the bias."""
    found = [
        bits(pair(*lists)(rows(COUNT)), tmp_path / str(at))
        for at, lists in enumerate((([], []), (None, None), (None, [])))
    ]
    assert len(set(found)) == 1


def test_a_null_is_zero_where_asked(tmp_path: Path) -> None:
    """With nulls = "zero" a null number is 0, and a null label still a bad row."""
    zero = ["--set", 'data.nulls="zero"']
    table = rows(COUNT)
    found = bits(cell("n", None)(table), tmp_path / "null", *zero)
    assert found == bits(cell("n", 0.0)(table), tmp_path / "zero")
    path = write(tmp_path / "y" / "a.parquet", cell("y", None)(table))
    assert run("train", path, *everything(), "--checkpoint", "none", *zero).code == 2


def test_one_class_is_told(tmp_path: Path) -> None:
    """Labels that are all alike are learned, and it is said."""
    path = write(tmp_path / "a.parquet", column("y", 1)(rows(COUNT)))
    done = run("train", path, *everything(), "--checkpoint", "none")
    assert done.code == 0
    assert "all labels in column 'y' are 1" in done.err


def test_a_table_of_labels_alone(tmp_path: Path) -> None:
    """Without a feature column there is nothing to learn from: refused, also with a bias."""
    path = write(tmp_path / "a.parquet", rows(COUNT).select(["y"]))
    done = run("train", path, "--label", "y", "--checkpoint", "none")
    assert done.code == 2
    assert "no feature column is left" in done.err


def test_list_views_are_refused(tmp_path: Path) -> None:
    """They come from Arrow files only, and the remedy is named."""
    views = pa.array([[1.0]] * COUNT, pa.list_view(pa.float64()))
    table = with_column(rows(COUNT), "v", views)
    with pa.ipc.new_file(str(tmp_path / "a.arrow"), table.schema) as file:
        file.write_table(table)
    done = run("train", tmp_path / "a.arrow", *everything(), "--checkpoint", "none")
    assert done.code == 2
    assert "column 'v' is list_view<item: double>" in done.err
    assert "write values as list<float>" in done.err


@pytest.mark.parametrize("columns", [1_000, pytest.param(100_000, marks=pytest.mark.slow)])
def test_many_columns(columns: int, tmp_path: Path) -> None:
    """Of a table of very many columns two are read, kept and found again."""
    extra = {f"x{at}": pa.array([0.0, 1.0]) for at in range(columns)}
    path = write(tmp_path / "a.parquet", {"y": pa.array([0, 1]), **extra})
    flags = ["--label", "y", "--numeric", f"x0,x{columns - 1}"]
    assert train(path, *flags, "--checkpoint", tmp_path / "kept")["rows"] == 2
    assert run("resume", tmp_path / "kept", "--epochs", "2", "--json").result["rows"] == 4


def test_a_long_row_is_learned(tmp_path: Path) -> None:
    """A row of 200,000 indices among short ones, of which most are equal: it is their sum."""
    long = np.arange(200_000) % 100
    given = pair(long.tolist(), [1.0] * len(long))(rows(COUNT))
    summed = pair(list(range(100)), [2000.0] * 100)(rows(COUNT))
    assert bits(given, tmp_path / "long") == bits(summed, tmp_path / "summed")


def test_labels_of_minus_one_and_zero_are_two_classes(tmp_path: Path) -> None:
    """Sorted: −1 is negative, 0 positive; it is said before the first row."""
    table = with_column(rows(COUNT), "y", pa.array([0, -1] * (COUNT // 2)))
    path = write(tmp_path / "a.parquet", table)
    done = run("train", path, *everything(), "--checkpoint", "none")
    assert done.code == 0
    assert "negative -1, positive 0" in done.err
