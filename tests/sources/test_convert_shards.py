"""What convert writes, and where: compression, cuts, shuffling, replacing, nothing half done."""

from __future__ import annotations

import bz2
import dataclasses
import gzip
import lzma
import os
import uuid
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pyarrow as pa
import pyarrow.dataset as dataset
import pyarrow.parquet as pq
import pytest
from test_convert_csv import real

import streamomd
from streamomd.core.errors import (
    DataError,
    InputNotFoundError,
    OutputExistsError,
    SchemaError,
    StorageError,
    UsageError,
)
from streamomd.sources.find import find
from streamomd.sources.text import conversion, csv_source, shuffle_split
from streamomd.sources.text.conversion import Converted
from streamomd.sources.text.convert import convert
from streamomd.sources.text.output_formats import FORMS, SIZE_KEY
from streamomd.sources.text.shard_writer import opened_target

ROWS = 5000
TEXT = ("n,s\n" + "".join(f"{i},v{i % 7}\n" for i in range(ROWS))).encode()
SVM = "".join(f"{i % 2} {i % 5}:{i}.5 {7 + i % 11}:1\n" for i in range(ROWS)).encode()
VW = "".join(f"{i % 2} | a{i % 5}:{i} b\n" for i in range(ROWS)).encode()
SIZES = {"csv": {None}, "svmlight": {b"18"}, "vw": {b"262144"}}
"""What the metadata say of a pair."""
PACKERS = {"plain": bytes, "gzip": gzip.compress, "bzip2": bz2.compress, "xz": lzma.compress}


def csv(tmp_path: Path, data: bytes = TEXT, to: str = "out", **options) -> Converted:
    source = tmp_path / "rows.bin"
    source.write_bytes(data)
    return convert([str(source)], source_format="csv", to=str(tmp_path / to), **options)


def numbers(done: Converted) -> list[int]:
    return read(done)["n"].to_pylist()


def read(done: Converted) -> pa.Table:
    """All rows, by another reader than ours."""
    return dataset.dataset([*done.shards], format=done.shards[0].rsplit(".")[-1]).to_table()


def names(tmp_path: Path, to: str = "out") -> list[str]:
    return sorted(path.name for path in (tmp_path / to).glob("*"))


@pytest.mark.parametrize("packer", PACKERS)
def test_packing_is_reported_by_its_first_bytes(tmp_path, packer):
    """Plain, gzip, bzip2 and xz text give the same rows, whatever the name."""
    assert numbers(csv(tmp_path, PACKERS[packer](TEXT))) == list(range(ROWS))


def test_packed_members_follow_each_other(tmp_path):
    """A gzip file of two members is the text of both."""
    both = gzip.compress(TEXT) + gzip.compress(b"5000,x\n")
    assert numbers(csv(tmp_path, both)) == list(range(ROWS + 1))


@pytest.mark.parametrize("packer", ["gzip", "bzip2", "xz"])
def test_truncated_packing_is_refused_at_every_length(tmp_path, packer):
    """A packed file cut anywhere is a DataError, and leaves nothing."""
    packed = PACKERS[packer](TEXT)
    for length in [*range(8, 40), *range(40, len(packed), 997), len(packed) - 1]:
        with pytest.raises(DataError, match=r"rows\.bin"):
            csv(tmp_path, packed[:length])
        assert names(tmp_path) == []


def test_damaged_packing_is_refused(tmp_path):
    """A flipped byte in the middle of a gzip file is a DataError."""
    packed = bytearray(gzip.compress(TEXT))
    packed[len(packed) // 2] ^= 0xFF
    with pytest.raises(DataError, match=r"rows\.bin"):
        csv(tmp_path, bytes(packed))


@pytest.mark.parametrize(
    "options, sizes",
    [
        ({}, [5000]),
        ({"rows_per_shard": 2000}, [2000, 2000, 1000]),
        ({"rows_per_shard": 2500}, [2500, 2500]),
        ({"shards": 3}, [1666, 1667, 1667]),
        ({"shards": 3, "shuffle": 1}, [1666, 1667, 1667]),
    ],
)
def test_cuts(tmp_path, options, sizes):
    """Shards have these rows, each row is in one of them, and training finds them in order."""
    done = csv(tmp_path, **options)
    assert [pq.read_metadata(path).num_rows for path in done.shards] == sizes
    assert sorted(numbers(done)) == list(range(ROWS))
    assert done.rows == ROWS
    assert done.columns == ("n", "s")
    assert done.size is None
    assert [shard.url for shard in find(str(tmp_path / "out")).shards] == list(done.shards)


@pytest.mark.parametrize("form", FORMS)
def test_groups_are_bounded(tmp_path, monkeypatch, form):
    """A shard of many bytes is cut into groups, and no row is lost between them."""
    small = dataclasses.replace(FORMS[form], group_bytes=10_000)
    monkeypatch.setattr(conversion, "FORMS", {form: small})
    monkeypatch.setattr(csv_source, "BLOCK", 1000)
    done = csv(tmp_path, form=form)
    (shard,) = find(str(tmp_path / "out")).shards
    assert len(shard.groups) > 5
    assert max(shard.groups) < ROWS / 5
    assert numbers(done) == list(range(ROWS))


@pytest.mark.parametrize("source_format, text", [("svmlight", SVM), ("vw", VW), ("csv", TEXT)])
def test_every_form_holds_the_same_rows(tmp_path, source_format, text):
    """Types, values and the size of a pair, whether it is known at first or not."""
    source, found = tmp_path / "rows", {}
    source.write_bytes(text)
    for form in FORMS:
        for how in ({}, {"shards": 3}, {"shuffle": 3}):
            to = str(tmp_path / form / str(len(found)))
            done = convert([str(source)], source_format=source_format, to=to, form=form, **how)
            assert all(shard.endswith(f".{form}") for shard in done.shards)
            schemas = [dataset.dataset(path, format=form).schema for path in done.shards]
            sizes = {(schema.metadata or {}).get(b"streamomd.size") for schema in schemas}
            assert sizes == SIZES[source_format]
            found[form, *how] = read(done)
    for how in ((), ("shards",), ("shuffle",)):
        first, *others = (found[form, *how] for form in FORMS)
        assert all(other.equals(first) for other in others)


def test_a_form_takes_the_place_of_another(tmp_path):
    """--overwrite leaves no shard of what was there before, whatever its form."""
    csv(tmp_path, shards=3)
    with pytest.raises(OutputExistsError):
        csv(tmp_path, form="arrow")
    csv(tmp_path, form="arrow", overwrite=True)
    assert names(tmp_path) == ["part-00000.arrow"]


@pytest.mark.slow
def test_training_does_not_depend_on_the_form(tmp_path):
    """The same state, to the bit."""
    source, states = tmp_path / "rows", set()
    source.write_bytes(SVM)
    for form in FORMS:
        to = str(tmp_path / form)
        convert([str(source)], source_format="svmlight", to=to, form=form)
        pair = {"indices": "indices", "values": "values"}
        data = {"shards": [to], "label": "label", "sparse": pair}
        job = {"data": data, "checkpoint": {"url": "none"}}
        states.add(streamomd.train(job, quiet=True).state_sha256)
    assert len(states) == 1


def test_an_unknown_form_is_refused(tmp_path):
    """By name, before anything is made."""
    with pytest.raises(UsageError, match="did you mean 'arrow'"):
        csv(tmp_path, form="avro")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "options",
    [
        {"rows_per_shard": 0},
        {"shards": 0},
        {"shards": 2, "rows_per_shard": 2},
        {"shards": 5001},
        {"shuffle": -1},
        {"shuffle": 1 << 64},
    ],
)
def test_bad_counts_are_refused(tmp_path, options):
    """A count or seed that cannot be meant is a UsageError, and leaves nothing."""
    with pytest.raises(UsageError):
        csv(tmp_path, **options)
    assert not (tmp_path / "out").exists() or names(tmp_path) == []


def test_unknown_format_and_missing_sources_are_refused(tmp_path):
    """No such format, no such file, no file at all, a directory: each says which."""
    to = str(tmp_path / "out")
    with pytest.raises(UsageError, match="source_format"):
        convert([str(tmp_path)], source_format="json", to=to)
    with pytest.raises(InputNotFoundError, match="absent"):
        convert([str(tmp_path / "absent")], source_format="csv", to=to)
    with pytest.raises(UsageError, match="no source"):
        convert([], source_format="csv", to=to)
    with pytest.raises(UsageError, match="is not a file"):
        convert([str(tmp_path)], source_format="csv", to=to)


def test_existing_shards_stay_unless_overwritten(tmp_path):
    """Without overwrite nothing changes; with it all old shards go, but only when all is well."""
    old = csv(tmp_path, shards=4)
    with pytest.raises(OutputExistsError, match="overwrite"):
        csv(tmp_path, shards=2)
    with pytest.raises(DataError):
        csv(tmp_path, TEXT + b"1,2,3\n", overwrite=True)
    assert numbers(old) == list(range(ROWS))
    assert len(names(tmp_path)) == 4
    csv(tmp_path, shards=2, overwrite=True)
    assert names(tmp_path) == ["part-00000.parquet", "part-00001.parquet"]


@pytest.mark.parametrize("form", ["parquet", "arrow"])
def test_appended_shards_are_numbered_on(tmp_path, form):
    """Those that are there stay as they are, after an error, too; not both append and overwrite."""
    first = csv(tmp_path, shards=4)
    old = {name: (tmp_path / "out" / name).read_bytes() for name in names(tmp_path)}
    with pytest.raises(DataError):
        csv(tmp_path, TEXT + b"1,2,3\n", append=True)
    with pytest.raises(UsageError, match="overwrite or append, not both"):
        csv(tmp_path, append=True, overwrite=True)
    assert names(tmp_path) == sorted(old)
    added = csv(tmp_path, shards=2, form=form, append=True)
    new = [f"part-0000{k}.{form}" for k in (4, 5)]
    assert names(tmp_path) == [*sorted(old), *new]
    assert [url.rsplit("/", 1)[-1] for url in added.shards] == new
    assert all((tmp_path / "out" / name).read_bytes() == data for name, data in old.items())
    assert numbers(added) == numbers(first) == list(range(ROWS))


@pytest.mark.parametrize("form", ["parquet", "arrow"])
def test_other_columns_are_not_appended(tmp_path, form):
    """Nor other types: the error names both; whole numbers and others are numbers."""
    (tmp_path / "a.csv").write_text("a,b,c\n1,x,2.5\n")
    out, before = tmp_path / "out", None
    convert([str(tmp_path / "a.csv")], source_format="csv", to=str(out), form=form)
    for text, words in (
        ("a,b\n1,x\n", r"part-00000.*: 'c' is missing, there double; convert"),
        ("a,b,c,d\n1,x,2,3\n", "'d' is int64, there missing"),
        ("a,b,c\n1,x,z\n", "'c' is string, there double"),
    ):
        (tmp_path / "b.csv").write_text(text)
        before = sorted(out.rglob("*"))
        with pytest.raises(SchemaError, match=words):
            convert([str(tmp_path / "b.csv")], source_format="csv", to=str(out), append=True)
        assert sorted(out.rglob("*")) == before
    (tmp_path / "b.csv").write_text("c,b,a\n2,y,1.5\n")
    convert([str(tmp_path / "b.csv")], source_format="csv", to=str(out), append=True)
    assert len([*out.iterdir()]) == 2


def test_a_split_into_a_directory_of_shards_is_refused(tmp_path):
    """Its shards would be read with those of all parts; a split is appended to its own."""
    csv(tmp_path, shards=1)
    halves = {"train": 0.5, "test": 0.5}
    with pytest.raises(OutputExistsError, match="contains 1 shard of no part"):
        csv(tmp_path, split=halves, append=True)
    assert names(tmp_path) == ["part-00000.parquet"]
    for _ in range(2):
        csv(tmp_path, split=halves, append=True, to="parts")
    assert len([*(tmp_path / "parts/train").iterdir()]) == 2


def test_two_that_append_at_once_keep_both(tmp_path):
    """The number of a new shard is that of the end: one that came meanwhile is not replaced."""
    csv(tmp_path, shards=1)
    with opened_target(str(tmp_path / "out"), None, append=True) as target:
        (Path(target.temporary) / "0").write_bytes(b"ours")
        csv(tmp_path, shards=1, append=True)
        target.publish(1, "parquet")
    assert names(tmp_path) == [f"part-0000{k}.parquet" for k in range(3)]
    assert (tmp_path / "out" / "part-00002.parquet").read_bytes() == b"ours"


def test_foreign_shards_are_never_removed(tmp_path):
    """A directory with shards that convert has not made is refused even with overwrite."""
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine.parquet").write_bytes(b"x")
    with pytest.raises(OutputExistsError, match=r"mine\.parquet"):
        csv(tmp_path, overwrite=True)
    (tmp_path / "file").write_bytes(b"x")
    with pytest.raises(OutputExistsError, match="is a file"):
        csv(tmp_path, to="file")


def test_an_error_at_the_end_leaves_nothing(tmp_path):
    """A bad last line, after many shards were written aside, leaves no file."""
    with pytest.raises(DataError):
        csv(tmp_path, TEXT + b"1,2,3\n", rows_per_shard=100)
    assert names(tmp_path) == []


def test_an_error_in_putting_in_place_leaves_nothing(tmp_path, monkeypatch):
    """When the third shard cannot be put in place, the first two are taken away again."""
    move = os.replace

    def failing(source: str, target: str) -> None:
        if target.endswith("2.parquet"):
            raise KeyboardInterrupt
        move(source, target)

    monkeypatch.setattr(os, "replace", failing)
    with pytest.raises(KeyboardInterrupt):
        csv(tmp_path, shards=4)
    assert names(tmp_path) == []


def test_a_store_is_read_and_written(tmp_path):
    """Sources and target may be URLs, whose brackets are part of their names."""
    root = f"memory://convert-[1]-{uuid.uuid4().hex}"
    fs = fsspec.filesystem("memory")
    fs.pipe_file(f"{root}/in.csv", gzip.compress(TEXT))
    done = convert([f"{root}/in.csv"], source_format="csv", to=f"{root}/out", shards=2, shuffle=3)
    found = find(f"{root}/out")
    assert [shard.url for shard in found.shards] == list(done.shards)
    assert found.rows == ROWS
    assert sorted(fs.find(root)) == [
        f"{root.removeprefix('memory:/')}/{name}"
        for name in ("in.csv", "out/part-00000.parquet", "out/part-00001.parquet")
    ]


def test_progress_ends_with_everything(tmp_path):
    """The last call reports all rows and all bytes, of both passes if there are two."""
    calls: list[tuple[int, int, int]] = []

    def tell(*call: int) -> None:
        calls.append(call)

    for options, passes in (({}, 1), ({"shards": 2}, 2), ({"shuffle": 1}, 1)):
        csv(tmp_path, overwrite=True, progress=tell, **options)
        assert calls[-1] == (ROWS, passes * len(TEXT), passes * len(TEXT))


def test_converting_again_gives_the_same_rows(tmp_path):
    """The same text and options give the same files."""
    one, two = (csv(tmp_path, to=to, shards=3, shuffle=5) for to in ("a", "b"))
    for first, second in zip(one.shards, two.shards, strict=True):
        assert Path(first).read_bytes() == Path(second).read_bytes()


def test_shuffle_permutes(tmp_path):
    """Each row is there once, with its own values, in an order of the seed."""
    done = csv(tmp_path, shuffle=1)
    table = pq.read_table(done.shards[0])
    order = table["n"].to_pylist()
    assert sorted(order) == list(range(ROWS))
    assert order != list(range(ROWS))
    assert table["s"].to_pylist() == [f"v{i % 7}" for i in order]
    assert numbers(csv(tmp_path, to="other", shuffle=2)) != order


def test_shuffle_does_not_depend_on_memory(tmp_path, monkeypatch):
    """Blocks and chunks of other sizes, and files scattered twice, give the same order."""
    expected = numbers(csv(tmp_path, shuffle=9))
    monkeypatch.setattr(csv_source, "BLOCK", 999)
    for chunk, to in ((20_000, "once"), (700, "twice")):
        monkeypatch.setattr(shuffle_split, "CHUNK_BYTES", chunk)
        assert numbers(csv(tmp_path, to=to, shuffle=9)) == expected
        assert names(tmp_path, to) == ["part-00000.parquet"]


def test_shuffle_is_uniform(tmp_path):
    """Over many seeds each of the orders of four rows comes up about equally often."""
    orders = [tuple(np.argsort(shuffle_split.keys(seed, 0, 4))) for seed in range(24_000)]
    counts = np.unique([sum(4**i * p for i, p in enumerate(o)) for o in orders], return_counts=True)
    # Chi-square of 23 degrees of freedom: above 70 once in a million.
    assert len(counts[1]) == 24
    assert ((counts[1] - 1000) ** 2 / 1000).sum() < 70


def test_shuffle_moves_rows_by_a_third_on_average():
    """The mean displacement of a uniform permutation of n rows is n/3."""
    order = np.argsort(shuffle_split.keys(7, 0, 200_000))
    assert abs(np.abs(order - np.arange(200_000)).mean() / 200_000 - 1 / 3) < 0.005


def test_keys_do_not_depend_on_where_a_batch_begins():
    """Keys of rows are those of the same rows in any batch, and all distinct."""
    whole = shuffle_split.keys(3, 0, 1000)
    parts = [shuffle_split.keys(3, first, 10) for first in range(0, 1000, 10)]
    assert np.array_equal(np.concatenate(parts), whole)
    assert len(np.unique(whole)) == 1000


def test_a_target_that_cannot_be_made_is_reported(tmp_path):
    """A directory below a file is a StorageError that names it, before anything is read."""
    (tmp_path / "file").write_bytes(b"x")
    with pytest.raises(StorageError, match="file/out cannot be written to"):
        csv(tmp_path, to="file/out")


def test_the_quickstart_data_are_the_published_file(tmp_path):
    """The Bank Marketing shards in the repository are what convert makes of UCI's file."""
    kept = find(str(Path(__file__).resolve().parents[2] / "pipelines" / "data" / "bank")).shards
    source = real("bank-marketing/bank-full.csv.gz")
    made = convert([source], source_format="csv", to=str(tmp_path / "out"), shards=4)
    tables = [
        (pq.read_table(one), pq.read_table(two.url))
        for one, two in zip(made.shards, kept, strict=True)
    ]
    assert made.rows == 45211
    assert all(one.equals(two, check_metadata=True) for one, two in tables)


def test_shards_are_shuffled_with_the_columns_of_directories(tmp_path: Path) -> None:
    """What a run on rows in long runs of labels recommends: all rows, in another order."""
    for day in range(3):
        table = pa.table({"x": [float(day * 10 + at) for at in range(10)], "y": [day > 1] * 10})
        folder = tmp_path / "in" / f"day={day}"
        folder.mkdir(parents=True)
        pq.write_table(table.replace_schema_metadata({SIZE_KEY: "7"}), folder / "a.parquet")
    source, to = str(tmp_path / "in"), str(tmp_path / "out")
    done = convert([source], source_format="shards", to=to, shuffle=0)
    assert (done.rows, done.size, done.columns) == (30, 7, ("x", "y", "day"))
    (path,) = done.shards
    found = pq.read_table(path)
    assert found.schema.metadata[SIZE_KEY.encode()] == b"7"
    xs = found["x"].to_pylist()
    assert xs != sorted(xs)
    assert sorted(zip(xs, found["day"].to_pylist(), strict=True)) == [
        (float(x), x // 10) for x in range(30)
    ]
    parts = convert([path], source_format="shards", to=str(tmp_path / "parts"), shards=4)
    assert [row for one in parts.shards for row in pq.read_table(one)["x"].to_pylist()] == xs


def test_shards_of_other_columns_and_options_of_text_are_refused(tmp_path: Path) -> None:
    for name, columns in (("a", {"x": [1.0]}), ("b", {"x": ["1"]})):
        pq.write_table(pa.table(columns), tmp_path / f"{name}.parquet")
    given: dict[str, Any] = {"source_format": "shards", "to": str(tmp_path / "out")}
    with pytest.raises(DataError, match=r"b\.parquet has other columns or types than the first"):
        convert([str(tmp_path)], **given)
    with pytest.raises(UsageError, match=r"options of text have no effect on shards.* delimiter"):
        convert([str(tmp_path)], delimiter=";", **given)
    assert not (tmp_path / "out").exists() or not list((tmp_path / "out").iterdir())


@pytest.mark.parametrize("form", ["parquet", "arrow"])
@pytest.mark.parametrize("shuffle", [None, 1])
def test_shards_without_rows_become_a_shard_without_rows(
    form: str, shuffle: int | None, tmp_path: Path
) -> None:
    """With their columns, as pyarrow reads them; next to others they add nothing."""
    table = pa.table({"a": pa.array([], pa.int32()), "b": pa.array([], pa.list_(pa.string()))})
    pq.write_table(table, tmp_path / "a.parquet")
    how: dict[str, Any] = {"source_format": "shards", "form": form, "shuffle": shuffle}
    done = convert([str(tmp_path / "a.parquet")], to=str(tmp_path / "out"), **how)
    assert (done.rows, len(done.shards)) == (0, 1)
    path = done.shards[0]
    read = pa.ipc.open_file(path).read_all() if form == "arrow" else pq.read_table(path)
    assert read.equals(table)
