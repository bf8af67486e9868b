"""Files of Delta and Iceberg tables are refused, wherever the table's log is above them."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fsspec.implementations.memory import MemoryFileSystem
from running import run

from streamomd.core.errors import StorageError, UsageError
from streamomd.sources.files.file_source import TableFinder
from streamomd.sources.find import find, list_shards
from streamomd.sources.tables import TableOptions

TABLE = pa.table({"y": [0, 1, 1], "x": [1.0, 2.0, 3.0]})
AS_FILES = TableOptions(as_files=True)


def shard(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(TABLE, str(path))
    return path


def delta(root: Path) -> Path:
    (root / "_delta_log").mkdir(parents=True)
    shard(root / "day=1" / "a.parquet")
    shard(root / "b.parquet")
    return root


def iceberg(root: Path) -> Path:
    (root / "metadata").mkdir(parents=True)
    (root / "metadata" / "v1.metadata.json").write_text("{}")
    shard(root / "data" / "a.parquet")
    return root


def refusal(shards: object) -> str:
    with pytest.raises(UsageError) as caught:
        find(shards)
    assert caught.value.exit_code == 2
    return str(caught.value)


@pytest.mark.parametrize(
    "text", ["b.parquet", "*.parquet", "**/*.parquet", "day=1", "day=1/a.parquet", "d*", "day=*/*"]
)
def test_files_of_a_delta_table_are_refused(text: str, tmp_path: Path) -> None:
    """File, glob and directory, at the table's root and below it; --as-files reads them."""
    root = delta(tmp_path / "table")
    message = refusal(str(root / text))
    assert f"names files of the Delta table {root}, " in message
    assert f"name the table, delta+{root}. " in message
    assert "--as-files (data.as_files = true)" in message
    assert find(str(root / text), tables=AS_FILES).rows


def test_one_file_of_a_list_is_enough(tmp_path: Path) -> None:
    """A list is refused if one of its files is part of a table."""
    other = shard(tmp_path / "other" / "a.parquet")
    root = delta(tmp_path / "table")
    assert str(root) in refusal([str(other), str(root / "b.parquet")])
    assert len(find([str(other)])) == 1


def test_files_of_an_iceberg_table_are_refused(tmp_path: Path) -> None:
    """Its URL is named, with what to do as long as it is not supported."""
    root = iceberg(tmp_path / "table")
    message = refusal(str(root / "data"))
    assert f"names files of the Iceberg table {root}, " in message
    assert "iceberg://catalog/namespace.table" in message
    assert f"names files of the Iceberg table {root}, " in refusal(str(root))
    assert len(find(str(root / "data"), tables=AS_FILES)) == 1


def test_a_directory_named_metadata_is_no_table(tmp_path: Path) -> None:
    """Only ``*.metadata.json`` in it makes a table."""
    (tmp_path / "metadata").mkdir()
    (tmp_path / "metadata" / "schema.json").write_text("{}")
    assert len(find(str(shard(tmp_path / "data" / "a.parquet")))) == 1


def test_all_tables_of_a_source_are_named(tmp_path: Path) -> None:
    """A glob over several tables names them, three at most."""
    for name in "abcde":
        delta(tmp_path / name)
    message = refusal(str(tmp_path / "*" / "*.parquet"))
    assert f"delta+{tmp_path}/a delta+{tmp_path}/b delta+{tmp_path}/c" in message
    assert "and of 2 more" in message


def test_a_table_is_found_through_a_link(tmp_path: Path) -> None:
    """The directory that a symbolic link leads to is looked at, too."""
    root = delta(tmp_path / "table")
    (tmp_path / "link").symlink_to(root / "day=1")
    assert str(root) in refusal(str(tmp_path / "link"))


class Store(MemoryFileSystem):
    """A store that counts what is looked up, and may refuse to answer."""

    protocol = "looked"
    store: ClassVar[dict[str, object]] = {}
    pseudo_dirs: ClassVar[list[str]] = [""]
    looked: ClassVar[list[str]] = []
    error: ClassVar[Exception | None] = None

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        return MemoryFileSystem._strip_protocol(path.removeprefix("looked://"))

    def info(self, path: str, **options: object) -> dict[str, object]:
        if path.endswith(("_delta_log", "metadata")):
            self.looked.append(path)
            if self.error is not None:
                raise self.error
        return super().info(path, **options)


@pytest.fixture
def store() -> Store:
    fsspec.register_implementation("looked", Store, clobber=True)
    fs: Store = fsspec.filesystem("looked")
    fs.store.clear()
    Store.looked.clear()
    for number in range(50):
        with fs.open(f"/bucket/rows/k={number % 5}/{number}.parquet", "wb") as file:
            pq.write_table(TABLE, file)
    return fs


def test_each_directory_is_looked_up_once(store: Store) -> None:
    """50 files in 5 directories: 8 directories up to the root, each once for each kind of table in
    one run; but for the one that is listed, whose names say it."""
    texts = ["looked://bucket/rows/*/*.parquet", "looked://bucket/rows/k=0"]
    assert len(list_shards(texts).files) == 60
    assert len(store.looked) == len(set(store.looked)) == 2 * 7


class WithCode(Exception):
    code = 403


@pytest.mark.parametrize(
    "error", [FileNotFoundError("x"), PermissionError("Forbidden"), WithCode("AccessDenied")]
)
def test_what_may_not_be_looked_at_is_absent(
    error: Exception, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """404 and 403 on a directory above the files count as no table."""
    monkeypatch.setattr(Store, "error", error)
    assert len(find("looked://bucket/rows/k=1")) == 10


def test_a_store_that_fails_is_an_error(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """A store that does not answer leaves unknown whether there is a table: no row is learned."""
    monkeypatch.setattr(Store, "error", TimeoutError("too late"))
    with pytest.raises(StorageError):
        find("looked://bucket/rows/k=1")


def test_a_table_in_a_store_is_found(store: Store) -> None:
    """The log of a table in a store is a prefix of names."""
    with store.open("/bucket/rows/_delta_log/00000000000000000000.json", "wb") as file:
        file.write(b"{}")
    assert "delta+looked://bucket/rows. " in refusal("looked://bucket/rows/k=*/*.parquet")
    found = TableFinder(store).above("/bucket/rows/k=1", str)
    assert found == ("Delta", "/bucket/rows")


def test_the_commands_have_the_flag(tmp_path: Path) -> None:
    """train and plan refuse a glob in a table with exit 2; with --as-files they read it."""
    root = delta(tmp_path / "table")
    glob = str(root / "day=*" / "*.parquet")
    for command, given in {"plan": (), "train": ("--checkpoint", tmp_path / "run")}.items():
        done = run(command, glob, "--label", "y", "--rule", "nag", *given)
        assert done.code == 2
        assert f"delta+{root}" in done.err
        assert run(command, glob, "--label", "y", "--rule", "nag", *given, "--as-files").code == 0
    for command in (
        ("evaluate", tmp_path / "run", glob),
        ("predict", tmp_path / "run", glob, "--to", tmp_path / "out"),
        ("certify", tmp_path / "run", glob),
        ("report", tmp_path / "run", glob, "-o", tmp_path / "report.html"),
    ):
        done = run(*command)
        assert done.code == 2
        assert f"delta+{root}" in done.err
        assert run(*command, "--as-files").code == 0
    assert run("resume", tmp_path / "run", "--epochs", "2").code == 0
