"""Parquet directories as other programs write them, with the files next to the data."""

from __future__ import annotations

from pathlib import Path

import fsspec
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from streamomd.sources.find import find

TABLE = pa.table({"y": [0, 1, 1], "x": [1.0, 2.0, 3.0]})
ID = "3a0d65cd-4056-49b8-937b-95f9e3ee90e5-c000"
LAYOUTS = {
    "spark": (
        [f"part-00000-{ID}.snappy.parquet", f"part-00001-{ID}.snappy.parquet"],
        ["_SUCCESS", "._SUCCESS.crc", f".part-00000-{ID}.snappy.parquet.crc",
         f"_temporary/0/_temporary/attempt_1/part-00002-{ID}.snappy.parquet"],
    ),
    "spark, partitioned": (
        [f"day=2026-01-01/hour={hour}/part-00000-{ID}.snappy.parquet" for hour in (10, 2)],
        ["_SUCCESS", f"day=2026-01-01/hour=2/.part-00000-{ID}.snappy.parquet.crc",
         f"day=2026-01-01/hour=2/_temporary/0/part-00001-{ID}.snappy.parquet",
         f"day=2026-01-01/.spark-staging-1/hour=3/part-00000-{ID}.snappy.parquet",
         f"_temporary/0/day=2026-01-02/hour=1/part-00000-{ID}.snappy.parquet"],
    ),
    "spark, one directory a file": (
        [f"{name}.parquet/part-00000-{ID}.snappy.parquet" for name in "ab"],
        ["a.parquet/_SUCCESS", "b.parquet/_SUCCESS", "b.parquet/._SUCCESS.crc"],
    ),
    "databricks": (
        [f"part-00000-tid-1-{ID}.snappy.parquet"],
        ["_SUCCESS", "_committed_4711", "_started_4711", "_committed_vacuum12"],
    ),
    "hadoop in a bucket": (
        [f"k=1/part-00000-{ID}.snappy.parquet"],
        ["k=1_$folder$", "_temporary_$folder$", "k=1/part-00001.parquet._COPYING_"],
    ),
    "hive": (["k=1/000000_0.parquet"], [".hive-staging_hive_1/-ext-10000/000000_0.parquet"]),
    "duckdb": (
        ["k=__HIVE_DEFAULT_PARTITION__/data_0.parquet", "k=a%2Fb%20c/data_0.parquet"],
        [],
    ),
    "a partition column with an underscore": (["_k=1/data_0.parquet", "_k=2/j=1/a.parquet"], []),
    "polars": (["k=a%20b/00000000.parquet", "k=c%2Fd/00000000.parquet"], []),
    "dask": (["part.0.parquet", "part.1.parquet"], ["_metadata", "_common_metadata"]),
    "pandas": (["k=1/5f0c8c0e-0.parquet", "k=2/5f0c8c0e-0.parquet"], []),
    "a desktop": (["a.parquet"], [".DS_Store", "._a.parquet", ".~lock.a#", "a.parquet.crc"]),
}  # fmt: skip


def write(root: Path, layout: str) -> list[str]:
    """A directory with a layout's files; the names of its data files, sorted."""
    data, side = LAYOUTS[layout]
    for name in (*data, *side):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        if name.endswith(".parquet") and not Path(name).name.startswith("."):
            pq.write_table(TABLE, str(root / name))  # what is not ignored is learned
        else:
            (root / name).write_bytes(b"crc\0")
    return sorted(data, key=str.encode)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_side_files_are_ignored(layout: str, tmp_path: Path) -> None:
    """Data files of all levels are shards, and no others: as a directory and as a glob."""
    root = tmp_path / "rows"
    data = write(root, layout)
    assert [shard.name for shard in find(str(root))] == data
    assert [shard.name for shard in find(str(root / "**" / "*.parquet"))] == data


@pytest.mark.parametrize("layout", LAYOUTS)
def test_side_files_are_ignored_in_a_store(layout: str, tmp_path: Path) -> None:
    """The same in a file system that is not the local disk."""
    root = tmp_path / "rows"
    data = write(root, layout)
    fs = fsspec.filesystem("memory")
    fs.store.clear()
    for path in root.rglob("*"):
        if path.is_file():
            fs.pipe(f"/box/rows/{path.relative_to(root)}", path.read_bytes())
    assert [shard.name for shard in find("memory://box/rows")] == data
    assert [shard.name for shard in find("memory://box/rows/**/*.parquet")] == data


def test_what_pyarrow_and_pandas_write_is_read(tmp_path: Path) -> None:
    """Partitions with texts that a path encodes, null, and an underscore; _metadata files."""
    table = TABLE.append_column("_k", pa.array(["a/b c", None, "ä=1"]))
    partitioning = ds.partitioning(pa.schema([("_k", pa.string())]), flavor="hive")
    ds.write_dataset(table, str(tmp_path / "a"), format="parquet", partitioning=partitioning)
    assert find(str(tmp_path / "a")).rows == 3
    collected: list[pq.FileMetaData] = []
    pq.write_to_dataset(TABLE, str(tmp_path / "b"), metadata_collector=collected)
    pq.write_metadata(TABLE.schema, str(tmp_path / "b" / "_common_metadata"))
    pq.write_metadata(TABLE.schema, str(tmp_path / "b" / "_metadata"), collected)
    assert find(str(tmp_path / "b")).rows == 3
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"y": [0, 1, 1], "_k": ["a", "b/c", "d"]})
    frame.to_parquet(str(tmp_path / "c"), partition_cols=["_k"])
    assert find(str(tmp_path / "c")).rows == 3


def test_what_polars_writes_is_read(tmp_path: Path) -> None:
    """Its own writer, partitioned."""
    polars = pytest.importorskip("polars")
    frame = polars.DataFrame({"y": [0, 1, 1], "k": ["a b", None, "c/d"]})
    frame.write_parquet(str(tmp_path / "rows"), partition_by=["k"], mkdir=True)
    assert find(str(tmp_path / "rows")).rows == 3


@pytest.mark.filterwarnings("ignore:The inplace keyword")
def test_what_dask_writes_is_read(tmp_path: Path) -> None:
    """Two partitions with _metadata."""
    dd = pytest.importorskip("dask.dataframe")
    pandas = pytest.importorskip("pandas")
    frame = dd.from_pandas(pandas.DataFrame({"y": [0, 1] * 4}), npartitions=2)
    frame.to_parquet(str(tmp_path / "rows"), write_metadata_file=True)
    assert (tmp_path / "rows" / "_metadata").exists()
    assert [shard.name for shard in find(str(tmp_path / "rows"))] == [
        "part.0.parquet",
        "part.1.parquet",
    ]
