"""Delta tables: the rows of a version, in the order of the commits that added them."""

from __future__ import annotations

import datetime
import os
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from delta_tables import rows
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from running import run, train

from streamomd.core.errors import (
    DataError,
    InputNotFoundError,
    ResumeRefusedError,
    StreamomdError,
    UsageError,
)
from streamomd.shards.read_footers import open_listed
from streamomd.shards.reader import read_batches
from streamomd.shards.shard import ShardSet
from streamomd.sources.contract import Request
from streamomd.sources.find import Listing, find, list_shards
from streamomd.sources.tables import TableOptions

deltalake = pytest.importorskip("deltalake", reason="needs deltalake, which writes the tables")
from deltalake import DeltaTable, write_deltalake  # noqa: E402


def append(root: Path, table: pa.Table, **options: Any) -> int:
    write_deltalake(str(root), table, mode="append", **options)
    return DeltaTable(str(root)).version()


def three(root: Path) -> Path:
    """Rows 0 to 11 in versions 0, 1 and 2."""
    for first in (0, 4, 8):
        append(root, rows(first))
    return root


def values(shards: ShardSet, column: str = "x") -> list[float]:
    """A column of all rows, in the order in which they are learned."""
    places = range(len(shards))
    found = read_batches(shards, places=places, columns=[column])
    return [value for batch in found for value in batch.batch.column(column).to_pylist()]


def at(version: int) -> TableOptions:
    return TableOptions(version=version)


def since(root: Path, version: int, **options: Any) -> Listing:
    return list_shards(str(root), Request(since={str(root): version}, **options))


def appended(root: Path, version: int, **options: Any) -> list[float]:
    """Column x of the files appended after a version."""
    listing = since(root, version, **options)
    return [x for file in listing.files for x in pq.read_table(file.path)["x"].to_pylist()]


def refusal(shards: object, kind: type[StreamomdError], **options: Any) -> str:
    with pytest.raises(kind) as caught:
        find(shards, **options)
    return str(caught.value)


def test_a_version_without_files_has_no_rows(tmp_path: Path) -> None:
    """A table that was created and not written to."""
    append(tmp_path / "t", rows(0).slice(0, 0))
    with pytest.raises(DataError, match=r"no rows: no data file is in the table .*t in version 0"):
        find(str(tmp_path / "t"))


@pytest.mark.parametrize("prefix", ["", "delta+", "delta+file://", "DELTA+"])
def test_a_table_is_read_in_the_order_of_its_commits(prefix: str, tmp_path: Path) -> None:
    """Files have random names; rows come in the order in which they were appended."""
    root = three(tmp_path / "table")
    found = find(f"{prefix}{root}")
    assert values(found) == [float(n) for n in range(12)]
    assert found.table_versions == {str(root): 2}


@pytest.mark.parametrize("version", [0, 1, 2])
def test_a_version_is_read_by_number_and_by_time(version: int, tmp_path: Path) -> None:
    """data.version, or data.as_of: the newest version of that time, to the millisecond."""
    root = three(tmp_path / "table")
    times = [datetime.datetime(2026, 1, day, tzinfo=datetime.UTC) for day in (1, 2, 3)]
    for number, time in enumerate(times):
        path = root / "_delta_log" / f"{number:020d}.json"
        os.utime(path, (time.timestamp(), time.timestamp()))
    expected = [float(n) for n in range(4 * version + 4)]
    assert values(find(str(root), tables=at(version))) == expected
    for time in (times[version], times[version] + datetime.timedelta(hours=23)):
        found = find(str(root), tables=TableOptions(as_of=time.isoformat()))
        assert values(found) == expected
        assert found.table_versions == {str(root): version}


def test_versions_that_do_not_exist_are_refused(tmp_path: Path) -> None:
    """The message has the versions there are."""
    root = three(tmp_path / "table")
    message = refusal(str(root), UsageError, tables=at(3))
    assert "has no version 3 to read: it has versions 0 to 2" in message
    message = refusal(str(root), UsageError, tables=TableOptions(as_of="2001-01-01T00:00Z"))
    assert "has no version as of 2001-01-01" in message


def test_choices_that_mean_nothing_are_refused(tmp_path: Path) -> None:
    """A version of files; two choices; one number for two tables; delta+ with as_files."""
    root, other = three(tmp_path / "table"), three(tmp_path / "other")
    pq.write_table(rows(0), str(tmp_path / "a.parquet"))
    assert "no source is one" in refusal(str(tmp_path / "a.parquet"), UsageError, tables=at(1))
    assert "given for 2 tables" in refusal([str(root), str(other)], UsageError, tables=at(1))
    options = TableOptions(as_files=True)
    assert "leave out one" in refusal(f"delta+{root}", UsageError, tables=options)
    for bad in ({"version": 1, "as_of": "2026-01-01"}, {"as_of": "soon"}, {"version": -1}):
        with pytest.raises(UsageError):
            TableOptions(**bad)
    assert "cannot be read as a Delta table" in refusal(f"delta+{tmp_path}", InputNotFoundError)


def test_deleted_and_rewritten_rows_are_not_read(tmp_path: Path) -> None:
    """Today's files of the directory hold more rows than the table: overwrite, delete, update."""
    root = three(tmp_path / "table")
    table = DeltaTable(str(root))
    table.delete("x = 1.0")
    table.update(updates={"x": "x + 100"}, predicate="x = 5.0")
    assert sorted(values(find(str(root)))) == [0, 2, 3, 4, 6, 7, 8, 9, 10, 11, 105]
    files = find(str(root), tables=TableOptions(as_files=True))
    assert files.rows == 12 + 3 + 4
    write_deltalake(str(root), rows(50), mode="overwrite")
    assert values(find(str(root))) == [50, 51, 52, 53]
    assert values(find(str(root), tables=at(2))) == [float(n) for n in range(12)]


def test_partition_values_come_from_the_log(tmp_path: Path) -> None:
    """Text, null, date, and texts that a path has to encode; columns are in the table's order."""
    day = datetime.date(2026, 1, 31)
    table = rows(0).append_column("k", pa.array(["a b", "c/d%", None, "ä=é"]))
    table = table.append_column("day", pa.array([day] * 4))
    append(tmp_path / "table", table, partition_by=["k", "day"])
    listed = list_shards(str(tmp_path / "table")).files
    assert sorted((file.partitions for file in listed), key=str) == sorted(
        ((("k", k), ("day", "2026-01-31")) for k in ("a b", "c/d%", None, "ä=é")), key=str
    )
    assert sorted(values(find(str(tmp_path / "table")))) == [0, 1, 2, 3]


def test_a_position_orders_the_files_of_one_commit(tmp_path: Path) -> None:
    """Files of one commit are in the order of its lines."""
    table = rows(0).append_column("k", pa.array(["b", "a", "d", "c"]))
    append(tmp_path / "table", table, partition_by=["k"])
    listed = list_shards(str(tmp_path / "table")).files
    positions = [file.version for file in listed]
    assert positions == sorted(positions)
    assert {version for version, _ in positions} == {0}


def test_sorted_tables_are_read_one_after_the_other(tmp_path: Path) -> None:
    """Two tables and a file: by path of the table; inside a table by its commits."""
    b, a = three(tmp_path / "b"), tmp_path / "a"
    append(a, rows(100))
    pq.write_table(rows(200), str(tmp_path / "aa.parquet"))
    found = find([str(b), str(tmp_path / "aa.parquet"), str(a)])
    expected = [*range(100, 104), *range(200, 204), *range(12)]
    assert values(found) == [float(n) for n in expected]
    assert found.table_versions == {str(b): 2, str(a): 0}
    given_order = find([str(b), str(a)], order="given")
    assert values(given_order) == [float(n) for n in [*range(12), *range(100, 104)]]


def test_a_table_below_a_directory_is_refused(tmp_path: Path) -> None:
    """A directory of a table and of files is no table: the table has to be named."""
    root = three(tmp_path / "k=1")
    pq.write_table(rows(0), str(tmp_path / "a.parquet"))
    assert f"delta+{root}" in refusal(str(tmp_path), UsageError)


@settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(st.sampled_from("aaaodufcpk"), min_size=1, max_size=9))
def test_every_version_has_the_files_that_deltalake_reads(
    tmp_path_factory: pytest.TempPathFactory, steps: list[str]
) -> None:
    """Appends, OPTIMIZE, deletes, updates, overwrites, checkpoints, log cleanup, in any order."""
    root = tmp_path_factory.mktemp("random") / "table"
    append(root, rows(0))
    for number, step in enumerate(steps):
        table = DeltaTable(str(root))
        first = 10 * number
        if step == "a":
            append(root, rows(first))
        elif step == "o":
            table.optimize.compact()
        elif step == "d":
            table.delete(f"x = {first - 9}.0")
        elif step == "u":
            table.update(updates={"x": "x + 0.5"}, predicate=f"x = {first - 8}.0")
        elif step == "f":
            write_deltalake(str(root), rows(first), mode="overwrite")
        elif step in "ck":
            table.create_checkpoint()
        if step == "k":  # log cleanup: nothing before the checkpoint is left
            for old in range(table.version()):
                (root / "_delta_log" / f"{old:020d}.json").unlink(missing_ok=True)
    newest = DeltaTable(str(root)).version()
    for version in range(newest + 1):
        try:
            expected = DeltaTable(str(root), version=version).file_uris()
        except Exception:  # its commits are gone
            with pytest.raises(StreamomdError):
                list_shards(str(root), Request(tables=at(version)))
            continue
        found = [file.path for file in list_shards(str(root), Request(tables=at(version))).files]
        assert sorted(found) == sorted(expected)


def test_a_cleaned_log_is_read_from_its_checkpoint(tmp_path: Path) -> None:
    """Files of commits that are gone come first, by time; versions before it cannot be read."""
    root = three(tmp_path / "table")
    DeltaTable(str(root)).create_checkpoint()
    append(root, rows(12))
    for old in (0, 1):
        (root / "_delta_log" / f"{old:020d}.json").unlink()
    listed = list_shards(str(root)).files
    assert [file.version[0] for file in listed] == [1, 1, 2, 3]
    assert values(find(str(root))) == [float(n) for n in range(16)]
    assert "it has versions 2 to 3 (earlier ones were removed" in refusal(
        str(root), UsageError, tables=at(1)
    )
    (root / "_delta_log" / f"{3:020d}.json").rename(root / "_delta_log" / f"{4:020d}.json")
    assert "commit 3 of Delta table" in refusal(str(root), DataError)


def test_a_checkpoint_in_parts_is_read_if_it_is_complete(tmp_path: Path) -> None:
    """Two files of a multi-part checkpoint; with one of them, the commits are read."""
    root = three(tmp_path / "table")
    log = root / "_delta_log"
    DeltaTable(str(root)).create_checkpoint()
    whole = pq.read_table(str(log / f"{2:020d}.checkpoint.parquet"))
    (log / f"{2:020d}.checkpoint.parquet").unlink()
    for part, some in enumerate((whole.slice(0, 3), whole.slice(3)), start=1):
        pq.write_table(some, str(log / f"{2:020d}.checkpoint.{part:010d}.{2:010d}.parquet"))
    hidden = [log / f"{old:020d}.json" for old in range(2)]
    for path in hidden:
        path.rename(path.with_suffix(".gone"))
    assert sorted(values(find(str(root)))) == [float(n) for n in range(12)]
    (log / f"{2:020d}.checkpoint.{1:010d}.{2:010d}.parquet").unlink()
    assert "no version 2 to read" in refusal(str(root), UsageError)
    for path in hidden:
        path.with_suffix(".gone").rename(path)
    assert values(find(str(root))) == [float(n) for n in range(12)]


def test_an_update_takes_what_was_appended(tmp_path: Path) -> None:
    """Files of later commits, in their order, and the version to continue from."""
    root = three(tmp_path / "table")
    assert appended(root, 0) == [float(n) for n in range(4, 12)]
    assert since(root, 0).versions == {str(root): 2}
    assert since(root, 2).files == []
    assert appended(root, 0, tables=at(1)) == [4, 5, 6, 7]
    assert appended(root, 0, versions={str(root): 1}) == [4, 5, 6, 7]
    shutil.rmtree(root / "_delta_log")
    with pytest.raises(InputNotFoundError, match="cannot be read as a Delta table"):
        since(root, 0)  # it is not read as a directory of files


def test_a_version_and_what_was_appended_make_the_next(tmp_path: Path) -> None:
    """Any split of the versions: the files of one, then those appended, are the files of the last,
    in the same order; with a checkpoint between them, too."""
    root = tmp_path / "table"
    for version in range(5):
        append(root, rows(4 * version).append_column("k", pa.array(list("bdac"))))
        if version == 2:
            DeltaTable(str(root)).create_checkpoint()
    for first in range(5):
        for last in range(first, 5):
            begun = list_shards(str(root), Request(tables=at(first))).files
            added = since(root, first, tables=at(last)).files
            assert begun + added == list_shards(str(root), Request(tables=at(last))).files


def test_optimize_does_not_teach_rows_again(tmp_path: Path) -> None:
    """Files appended before OPTIMIZE are taken as they were appended; its own are not."""
    root = three(tmp_path / "table")
    DeltaTable(str(root)).optimize.compact()
    append(root, rows(12))
    DeltaTable(str(root)).optimize.compact()
    assert DeltaTable(str(root)).version() == 5
    assert appended(root, 2) == [12, 13, 14, 15]
    assert appended(root, 0) == [float(n) for n in range(4, 16)]
    assert appended(root, 4) == []
    assert sorted(values(find(str(root)))) == [float(n) for n in range(16)]


@pytest.mark.parametrize("operation", ["DELETE", "UPDATE", "MERGE", "WRITE"])
def test_changed_rows_are_refused_unless_appends_only(operation: str, tmp_path: Path) -> None:
    """The commit and its operation are named, exit 3; --appends-only skips that commit."""
    root = three(tmp_path / "table")
    table = DeltaTable(str(root))
    if operation == "DELETE":
        table.delete("x = 1.0")
    elif operation == "UPDATE":
        table.update(updates={"x": "x + 100"}, predicate="x = 5.0")
    elif operation == "MERGE":
        merge = table.merge(rows(10), "t.x = s.x", source_alias="s", target_alias="t")
        merge.when_matched_update_all().when_not_matched_insert_all().execute()
    else:
        write_deltalake(str(root), rows(50), mode="overwrite")
    append(root, rows(30))
    with pytest.raises(ResumeRefusedError) as caught:
        since(root, 1)
    assert caught.value.exit_code == 3
    assert f"delete or update rows: version 3 ({operation})" in str(caught.value)
    assert "--appends-only" in str(caught.value)
    listing = since(root, 1, appends_only=True)
    assert appended(root, 1, appends_only=True) == [*range(8, 12), *range(30, 34)]
    assert listing.notes == (
        f"commits of Delta table {root} delete or update rows: version 3 ({operation}); they are "
        "skipped",
    )


def test_a_merge_that_only_inserts_is_an_append(tmp_path: Path) -> None:
    """It removes no file."""
    root = three(tmp_path / "table")
    merge = DeltaTable(str(root)).merge(rows(12), "t.x = s.x", source_alias="s", target_alias="t")
    merge.when_not_matched_insert_all().execute()
    assert sorted(appended(root, 2)) == [12, 13, 14, 15]


def test_a_changed_schema_is_reported(tmp_path: Path) -> None:
    """New columns are named with their version; the files are taken."""
    root = three(tmp_path / "table")
    more = rows(12).append_column("z", pa.array([1.0] * 4))
    append(root, more, schema_mode="merge")
    listing = since(root, 1)
    assert listing.notes == (f"Delta table {root}, version 3: new column 'z'",)
    assert len(listing.files) == 2
    assert since(root, 3).notes == ()
    found = find(str(root))
    assert values(found) == [float(n) for n in range(16)]


def test_commits_that_are_gone_are_an_error(tmp_path: Path) -> None:
    """Log cleanup between two updates: exit 3, with the alternative; so is a table made again."""
    root = three(tmp_path / "table")
    DeltaTable(str(root)).create_checkpoint()
    (root / "_delta_log" / f"{1:020d}.json").unlink()
    with pytest.raises(ResumeRefusedError, match=r"commit 1 .* is gone") as caught:
        since(root, 0)
    assert "--start URL" in str(caught.value)
    assert "delta.logRetentionDuration" in str(caught.value)
    assert appended(root, 1) == [8, 9, 10, 11]
    with pytest.raises(ResumeRefusedError, match="version 2, older than version 7"):
        since(root, 7)


def test_vacuumed_files_are_an_error(tmp_path: Path) -> None:
    """The table, the file and the version that added it are named; the newest can be read."""
    root = three(tmp_path / "table")
    gone = list_shards(str(root)).files[1]
    DeltaTable(str(root)).optimize.compact()
    DeltaTable(str(root)).vacuum(0, dry_run=False, enforce_retention_duration=False)
    message = refusal(str(root), DataError, tables=at(2))
    assert f"Delta table {root} lists the file {gone.table.url}/" in message
    assert "added in version 0, but it does not exist: VACUUM" in message
    assert find(str(root)).rows == 12
    listing = since(root, 0)
    assert [file.version[0] for file in listing.files] == [1, 2]
    with pytest.raises(DataError, match=r"added in version 1, but it does not exist"):
        open_listed(listing.fs, listing.files)


def test_a_run_pins_its_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """train prints and saves it, resume reads it however the table grew, and no footer of its
    files; evaluate the newest."""
    root, url = three(tmp_path / "table"), tmp_path / "run"
    job = ("--label", "y", "--rule", "nag", "--checkpoint", url)
    done = run("train", f"delta+{root}", *job, "--json")
    assert f"Delta table {root}: version 2" in done.err
    assert done.result["rows"] == 12
    append(root, rows(12))
    DeltaTable(str(root)).delete("x = 1.0")
    with monkeypatch.context() as resuming:
        resuming.setattr("streamomd.shards.read_footers.read_shard", None)  # it is not called
        done = run("resume", url, "--epochs", 2, "--json")
    assert done.result["rows"] == 24
    done = run("evaluate", url, root, "--json")
    assert f"Delta table {root}: version 4" in done.err
    assert done.result["rows"] == 15
    assert run("evaluate", url, root, "--version", 0, "--json").result["rows"] == 4
    predicted = run("predict", url, root, "--to", tmp_path / "out", "--version", 1, "--json")
    assert len(predicted.result["files"]) == 2
    done = run("certify", url, f"delta+{root}")
    assert done.code == 0
    plan = run("plan", root, "--label", "y", "--version", 1, "--json")
    assert plan.result["rows"] == 8
    assert f"Delta table {root}: version 1" in plan.result["plan"]


def test_a_table_has_the_result_of_its_rows(tmp_path: Path) -> None:
    """Training on a table is bit-identical to training on its files in the order of commits."""
    root = three(tmp_path / "table")
    files = [file.path for file in list_shards(str(root)).files]
    for number, path in enumerate(files):
        shutil.copy(path, tmp_path / f"{number}.parquet")
    job = ("--label", "y", "--rule", "nag", "--checkpoint", "none")
    expected = train(*(tmp_path / f"{number}.parquet" for number in range(3)), *job)
    assert train(root, *job)["state_sha256"] == expected["state_sha256"]
    assert train(root, "--as-of", "2199-01-01", *job)["state_sha256"] == expected["state_sha256"]


def test_an_update_learns_files_with_equal_footers(tmp_path: Path) -> None:
    """Rows with the same statistics, appended twice: the second commit is no copy of the first."""
    root, url = tmp_path / "table", tmp_path / "run"
    append(root, rows(0))
    job = ("--label", "y", "--rule", "nag", "--checkpoint", url)
    assert run("train", root, *job).code == 0
    append(root, rows(0))
    DeltaTable(str(root)).optimize.compact()
    assert run("update", url, "--json").result["new_rows"] == 4
    assert run("update", url, "--json").result["new_rows"] == 0


def test_a_sweep_pins_its_version(tmp_path: Path) -> None:
    """All learners of a sweep record it."""
    root, url = three(tmp_path / "table"), tmp_path / "sweep"
    grid = ("--grid", "eta=0.1..1:2", "--label", "y", "--rule", "nag", "--checkpoint", url)
    assert run("sweep", root, *grid).code == 0
    append(root, rows(12))
    done = run("resume", url, "--epochs", 2)
    assert done.code == 0, done.err


def test_a_file_that_is_in_two_sources_is_refused(tmp_path: Path) -> None:
    """A table named twice would teach its rows twice."""
    root = three(tmp_path / "table")
    assert "named twice" in refusal([str(root), f"delta+{root}"], UsageError)


def test_values_are_those_of_the_table(tmp_path: Path) -> None:
    """The sum over a column is what deltalake computes."""
    root = three(tmp_path / "table")
    DeltaTable(str(root)).delete("x = 1.0")
    table = DeltaTable(str(root)).to_pyarrow_table()
    assert sum(values(find(str(root)))) == pc.sum(table["x"]).as_py()


def test_a_skipped_file_is_tried_again(tmp_path: Path) -> None:
    """Also when later versions were learned, after which the table no longer lists it as new."""
    root, url = tmp_path / "table", tmp_path / "run"
    append(root, rows(0).append_column("k", pa.array(["a"] * 4)), partition_by=["k"])
    job = ("--label", "y", "--rule", "nag", "--checkpoint", url, "--numeric", "x", "--hashed", "k")
    done = run("train", root, *job, "--bits", "4", "--set", "data.on_bad_shard=skip")
    assert done.code == 0, done.err
    before = {*root.rglob("*.parquet")}
    append(root, rows(4).append_column("k", pa.array(["b"] * 4)))
    (bad,) = {*root.rglob("*.parquet")} - before
    whole = bad.read_bytes()
    bad.write_bytes(whole[:-4] + b"----")
    for new_rows in (0, 4, 0):
        if new_rows:
            append(root, rows(8).append_column("k", pa.array(["c"] * 4)))
        assert run("update", url, "--json").result["new_rows"] == new_rows
    again = run("update", url, "--retry-skipped", "--json").result
    assert (again["new_rows"], len(again["skipped_shards"])) == (0, 1)
    bad.write_bytes(whole)
    assert run("update", url, "--json").result["new_rows"] == 0
    assert run("update", url, "--retry-skipped", "--json").result["new_rows"] == 4
    done = run("update", url, "--retry-skipped", "--json")
    assert (done.result["new_rows"], done.result["rows"]) == (0, 12)


def compact(root: Path, *, vacuum: bool = True) -> None:
    table = DeltaTable(str(root))
    table.optimize.compact()
    if vacuum:
        table.vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)


def of_day(first: int, day: str) -> pa.Table:
    return rows(first).append_column("day", pa.array([day] * 4))


def days(root: Path, *parts: tuple[int, str]) -> None:
    for first, day in parts:
        append(root, of_day(first, day), partition_by=["day"])


JOB = ("--label", "y", "--rule", "nag", "--numeric", "x", "--set", 'data.ignore=["day"]')


def commits(url: Path) -> list[str]:
    return sorted(path.name for path in (url / "commits").iterdir())


def test_rows_that_were_compacted_and_vacuumed_are_learned_once(tmp_path: Path) -> None:
    """A compacted file of unlearned rows alone is read in their place, however often it was
    compacted; other files are read as they were appended."""
    root, url = tmp_path / "table", tmp_path / "run"
    days(root, (0, "a"))
    first = train(f"delta+{root}", *JOB, "--checkpoint", url)
    days(root, (4, "b"), (8, "b"), (12, "c"))
    compact(root)
    days(root, (16, "b"), (20, "b"), (24, "c"))
    compact(root)
    days(root, (28, "d"))
    assert sorted(appended(root, 0)) == [float(n) for n in range(4, 32)]
    done = run("update", url, "--json")
    assert "6 files appended after version 0 no longer exist (VACUUM)" in done.err
    assert (first["rows"], done.result["new_rows"], done.result["rows"]) == (4, 28, 32)
    assert run("update", url, "--json").result["new_rows"] == 0


def test_compaction_alone_is_nothing_new(tmp_path: Path) -> None:
    """No commit is made for it, and none later: what is appended after it is learned once."""
    root, url = three(tmp_path / "table"), tmp_path / "run"
    train(f"delta+{root}", *JOB[:-2], "--checkpoint", url)
    compact(root)
    before = commits(url)
    done = run("update", url)
    assert (done.code, commits(url)) == (0, before)
    assert "nothing new" in done.out
    append(root, rows(12))
    assert run("update", url, "--json").result["new_rows"] == 4


def test_rows_compacted_with_learned_ones_are_refused_with_the_ways_out(tmp_path: Path) -> None:
    """Exit 3 in one message; other rows are learned if bad shards are skipped; --start trains on
    the current version."""
    root, url = tmp_path / "table", tmp_path / "run"
    days(root, (0, "a"))
    train(f"delta+{root}", *JOB, "--checkpoint", url)
    days(root, (4, "a"), (8, "a"), (12, "b"))
    compact(root)
    done = run("update", url)
    assert done.code == 3
    for words in ("2 files that Delta table", "appended after version 0", "(VACUUM)", "Commit 4",
                  "--start URL", "data.on_bad_shard=skip"):  # fmt: skip
        assert words in done.err, done.err
    new = tmp_path / "new"
    assert train(f"delta+{root}", *JOB, "--start", url, "--checkpoint", new)["rows"] == 16
    done = run("update", url, "--set", "data.on_bad_shard=skip", "--json")
    assert (done.result["new_rows"], len(done.result["skipped_shards"])) == (4, 2)
    assert run("update", url, "--json").result["new_rows"] == 0


def test_a_compacted_file_of_which_an_update_took_a_part_is_refused(tmp_path: Path) -> None:
    """--max-shards took one of two files before both were compacted."""
    root, url = tmp_path / "table", tmp_path / "run"
    days(root, (0, "a"))
    train(f"delta+{root}", *JOB, "--checkpoint", url)
    days(root, (4, "b"), (8, "b"))
    assert run("update", url, "--max-shards", 1, "--json").result["new_rows"] == 4
    compact(root)
    done = run("update", url)
    assert done.code == 3
    assert "1 file that Delta table" in done.err


@settings(deadline=None, max_examples=15, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_what_compaction_left_is_learned_once_or_refused(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Appends, OPTIMIZE, VACUUM and updates of some files, in any order: an update has no row that
    was learned, and all others unless it says that some are lost."""
    root = tmp_path_factory.mktemp("table")
    learned, ledger, version, count = set[float](), dict[str, Any](), 0, 0
    days(root, (0, "a"))
    learned |= {0.0, 1.0, 2.0, 3.0}
    for step in data.draw(st.lists(st.sampled_from(["append", "append", "compact", "vacuum",
                                                    "update", "some"]), max_size=14)):  # fmt: skip
        if step == "append":
            count += 4
            days(root, (count, data.draw(st.sampled_from("ab"))))
        elif step in ("compact", "vacuum"):
            compact(root, vacuum=step == "vacuum")
        else:
            listing = since(root, version, ledger=ledger)
            files = [file for file in listing.files if file.url not in ledger]
            files = files[: 1 if step == "some" else None]
            there = [file for file in files if Path(file.path).exists()]
            assert len(there) == len(files) or listing.lost
            for file in there:
                found = set(pq.read_table(file.path, partitioning=None)["x"].to_pylist())
                assert not found & learned
                learned |= found
            if listing.lost:
                return
            ledger |= {file.url: {} for file in files}
            if ledger.keys() >= {file.url for file in listing.files}:
                version = listing.versions[str(root)]
                assert learned == {float(n) for n in range(count + 4)}
