"""Finding shards: exact names, refusals that say what to do, order, fingerprints."""

from __future__ import annotations

import gzip
import json
import os
from pathlib import Path
from typing import ClassVar

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fsspec.implementations.memory import MemoryFileSystem
from hypothesis import given
from hypothesis import strategies as st

from streamomd.core.errors import (
    DataError,
    InputNotFoundError,
    StorageError,
    StreamomdError,
    UsageError,
)
from streamomd.core.urls import absolute, is_inside, location, protocol, redact, scrub, shown
from streamomd.shards.order import permutation
from streamomd.sources.find import find

pytestmark = pytest.mark.smoke

TABLE = pa.table({"y": [0, 1, 1], "x": [1.0, 2.0, 3.0]})
AWKWARD = [
    "a[1].parquet",
    "with space.parquet",
    "per%20cent.parquet",
    "hash#tag.parquet",
    "question?.parquet",
    "star*.parquet",
    "colons::file.parquet",
    "k=v.parquet",
    "comma,.parquet",
    "{a,b}.parquet",
    "~tilde.parquet",
    "new\nline.parquet",
    "e\u0301.parquet",
    "\u00e9.parquet",
]


def parquet(path: Path, table: pa.Table = TABLE, **options: object) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, str(path), **options)
    return path


def arrow(path: Path, rows_per_batch: int = 2, compression: str | None = None) -> Path:
    options = pa.ipc.IpcWriteOptions(compression=compression)
    with pa.ipc.new_file(str(path), TABLE.schema, options=options) as writer:
        writer.write_table(TABLE, max_chunksize=rows_per_batch)
    return path


def refusal(shards: object, kind: type[StreamomdError] = DataError) -> str:
    with pytest.raises(kind) as caught:
        find(shards)
    return str(caught.value)


def names(shards: object, **options: object) -> list[str]:
    return [os.path.basename(shard.path) for shard in find(shards, **options)]


@pytest.mark.parametrize("name", AWKWARD)
def test_awkward_name_is_found_exactly(name: str, tmp_path: Path) -> None:
    """An existing name is that file and no other, given as text or inside a list."""
    parquet(tmp_path / name)
    parquet(tmp_path / "a1.parquet")
    parquet(tmp_path / "questionX.parquet")
    parquet(tmp_path / "starX.parquet")
    path = str(tmp_path / name)
    assert [s.path for s in find(path)] == [path]
    assert [s.path for s in find([path, str(tmp_path / "a1.parquet")], order="given")] == [
        path,
        str(tmp_path / "a1.parquet"),
    ]


@pytest.mark.parametrize("name", AWKWARD)
def test_awkward_name_is_found_in_memory(name: str) -> None:
    """The same names are exact in a file system that is not the local disk."""
    fs = fsspec.filesystem("memory")
    fs.store.clear()
    for other in (name, "a1.parquet", "questionX.parquet"):
        with fs.open(f"/awkward/{other}", "wb") as file:
            pq.write_table(TABLE, file)
    assert names([f"memory://awkward/{name}"]) == [name]
    assert find(f"memory://awkward/{name}").shards[0].url == f"memory://awkward/{name}"


def test_glob_is_used_only_where_no_such_file_exists(tmp_path: Path) -> None:
    """``a[1].parquet`` is the glob of ``a1.parquet`` as long as no file is named so."""
    parquet(tmp_path / "a1.parquet")
    assert names(str(tmp_path / "a[1].parquet")) == ["a1.parquet"]
    parquet(tmp_path / "a[1].parquet")
    assert names(str(tmp_path / "a[1].parquet")) == ["a[1].parquet"]


def test_relative_names_are_made_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A relative path, a relative glob and file:// give the same absolute url."""
    here = tmp_path / "cwd[1]"
    path = parquet(here / "d" / "a.parquet")
    monkeypatch.chdir(here)
    for text in ("d/a.parquet", "d/*.parquet", "./d", "d/../d/a.parquet", f"file://{path}"):
        assert [s.url for s in find(text)] == [str(path)], text


def test_directory_leaves_out_what_other_programs_hide(tmp_path: Path) -> None:
    """``_SUCCESS``, ``.crc`` files and ``_temporary`` are ignored; hive directories are not."""
    parquet(tmp_path / "d" / "b.parquet")
    parquet(tmp_path / "d" / "k=2" / "c.parquet")
    parquet(tmp_path / "d" / "_temporary" / "no.parquet")
    (tmp_path / "d" / "_SUCCESS").touch()
    (tmp_path / "d" / ".b.parquet.crc").write_bytes(b"crc")
    arrow(tmp_path / "d" / "a.arrow")
    assert names(str(tmp_path / "d")) == ["a.arrow", "b.parquet", "c.parquet"]
    assert names(str(tmp_path / "d" / "**" / "*.parquet")) == ["b.parquet", "c.parquet"]


def test_foreign_files_are_refused_by_name(tmp_path: Path) -> None:
    """A directory that holds anything else is refused, and the foreign files are listed."""
    parquet(tmp_path / "a.parquet")
    (tmp_path / "README.md").write_text("hello")
    (tmp_path / "sub").mkdir()
    message = refusal(str(tmp_path))
    assert "README.md" in message
    assert "sub/" in message
    assert "README.md" in refusal(str(tmp_path / "*"))


def test_delta_table_is_refused(tmp_path: Path) -> None:
    """A file next to a ``_delta_log`` may hold deleted rows, so it is refused."""
    path = parquet(tmp_path / "a.parquet")
    (tmp_path / "_delta_log").mkdir()
    assert "Delta table" in refusal(str(path), UsageError)


def test_directory_named_like_a_shard_is_a_dataset(tmp_path: Path) -> None:
    """Spark's ``x.parquet/part-0.parquet`` is read as a directory, also inside another."""
    parquet(tmp_path / "x.parquet" / "part-0.parquet")
    assert names(str(tmp_path / "x.parquet")) == ["part-0.parquet"]
    assert names(str(tmp_path)) == ["part-0.parquet"]
    assert names(str(tmp_path / "*.parquet")) == ["part-0.parquet"]


def test_pipe_and_device_are_refused(tmp_path: Path) -> None:
    """A FIFO would hang the reader: it is refused, given by name or in a directory."""
    os.mkfifo(tmp_path / "a.parquet")
    assert "not a regular file" in refusal(str(tmp_path / "a.parquet"))
    assert "not a regular file" in refusal(str(tmp_path))
    assert "not a regular file" in refusal("/dev/null")


def test_loops_of_links_are_refused(tmp_path: Path) -> None:
    """A link to itself, and a directory linked into itself, end in an error."""
    (tmp_path / "a.parquet").symlink_to(tmp_path / "a.parquet")
    assert "symbolic links" in refusal(str(tmp_path / "a.parquet"))
    (tmp_path / "d" / "k=1").mkdir(parents=True)
    (tmp_path / "d" / "k=1" / "k=2").symlink_to(tmp_path / "d")
    assert "symbolic links" in refusal(str(tmp_path / "d"))


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "0 bytes"),
        (gzip.compress(b"a,b\n1,2\n", mtime=0), "gzip (magic 1f8b)"),
        (b"y,x\n0,1\n1,2\n0,1\n", "convert"),
        (b"PAR1" + bytes(100) + b"PARE", "encrypted"),
        (b"PARE" + bytes(100) + b"PARE", "encrypted"),
        (b"\xff\xff\xff\xff" + bytes(100), "Arrow stream"),
        (b"PAR1", "truncated"),
        (b"PAR1" + bytes(50) + b"\xff\xff\xff\x7fPAR1", "claims 2147483647 bytes"),
        (b"PAR1" + bytes(50) + b"\x10\0\0\0PAR1", "cannot be read"),
        (b"ARROW1\0\0" + bytes(50) + b"\x10\0\0\0ARROW1", "cannot be read"),
        (b"\x07\x08\x09", "07 08 09"),
    ],
)
def test_foreign_content_is_reported(content: bytes, words: str, tmp_path: Path) -> None:
    """A file that is no shard is refused by saying what it is."""
    path = tmp_path / "a.parquet"
    path.write_bytes(content)
    message = refusal(str(path))
    assert words in message
    assert str(path) in message


@pytest.mark.parametrize("name", ["a.parquet", "a.arrow"])
def test_truncated_and_damaged_ends_are_refused(name: str, tmp_path: Path) -> None:
    """Cut anywhere, or with one end overwritten, a shard is refused before a row is read."""
    path = tmp_path / name
    (parquet if name.endswith("parquet") else arrow)(path)
    whole = path.read_bytes()
    for length in range(1, len(whole)):
        path.write_bytes(whole[:length])
        refusal(str(path))
    path.write_bytes(whole[:-20])
    message = refusal(str(path))
    assert f"{len(whole) - 20} bytes" in message
    assert "truncated" in message
    path.write_bytes(b"XXXXXXXX" + whole[8:])
    assert "first bytes" in refusal(str(path))


def test_every_flipped_footer_byte_is_survived(tmp_path: Path) -> None:
    """A forged footer gives an error or another fingerprint: never a crash or another error."""
    for path, end in ((parquet(tmp_path / "a.parquet"), 8), (arrow(tmp_path / "a.arrow"), 10)):
        whole = path.read_bytes()
        before = find(str(path)).shards[0].footer_sha256
        length = int.from_bytes(whole[-end : 4 - end], "little")
        for at in range(len(whole) - end - length, len(whole) - end):
            path.write_bytes(whole[:at] + bytes([whole[at] ^ 0xFF]) + whole[at + 1 :])
            try:
                assert find(str(path)).shards[0].footer_sha256 != before
            except StreamomdError:
                continue


@pytest.mark.parametrize("text", ["none.parquet", "none/*.parquet", "none", "a.parquet/b"])
def test_what_is_missing_is_named(text: str, tmp_path: Path) -> None:
    """A missing file, directory or glob is InputNotFoundError with its name and exit code 2."""
    parquet(tmp_path / "a.parquet")
    with pytest.raises(InputNotFoundError, match=text.replace("*", r"\*")) as caught:
        find(str(tmp_path / text))
    assert caught.value.exit_code == 2


def test_empty_directory_is_not_found(tmp_path: Path) -> None:
    """A directory without a shard holds nothing to read."""
    assert "contains no data file" in refusal(str(tmp_path), InputNotFoundError)


def test_a_directory_of_other_files_has_no_shard(tmp_path: Path) -> None:
    """What was looked for, and three of the files that are there; no word of further files."""
    for name in "abcde":
        (tmp_path / f"{name}.txt").write_text("x,y\n1,0\n")
    for found in (str(tmp_path), str(tmp_path / "*.txt")):
        message = refusal(found, InputNotFoundError)
        assert f"{found} contains no data file (*.parquet, *.arrow, " in message
        assert "c.txt and 2 more; convert text with `streamomd convert`" in message
        assert "d.txt" not in message


def test_a_directory_of_directories_has_no_shard(tmp_path: Path) -> None:
    """The message has the glob of what is in them, which is found."""
    for name in ("2025", "2026"):
        (tmp_path / name).mkdir()
        parquet(tmp_path / name / "a.parquet")
    message = refusal(str(tmp_path), InputNotFoundError)
    assert "only directories" in message
    assert f"'{tmp_path}/*/*.parquet'" in message
    assert len(find(f"{tmp_path}/*/*.parquet")) == 2


@pytest.mark.parametrize("shards", [[], "", ["a\0b"], [3]])
def test_senseless_arguments_are_refused(shards: object) -> None:
    """No name, an empty one and one with a NUL are usage errors."""
    with pytest.raises((UsageError, TypeError)):
        find(shards)
    with pytest.raises(UsageError):
        find("x", order="random")


def test_order_is_bytewise_or_as_given(tmp_path: Path) -> None:
    """Sorted is by UTF-8 bytes; given keeps the order, sorted inside a glob."""
    made = ["b.parquet", "B.parquet", "\u00e9.parquet", "a10.parquet", "a9.parquet", "\uff5e.arrow"]
    for name in made:
        (parquet if name.endswith("parquet") else arrow)(tmp_path / name)
    expected = sorted(made, key=str.encode)
    assert names(str(tmp_path)) == expected
    assert names([str(tmp_path / name) for name in made]) == expected
    assert names([str(tmp_path / name) for name in made], order="given") == made
    assert names([str(tmp_path / "b.parquet"), str(tmp_path / "a*")], order="given") == [
        "b.parquet",
        "a10.parquet",
        "a9.parquet",
    ]


def test_same_file_twice_is_refused(tmp_path: Path) -> None:
    """A duplicate is refused under any name, links included, unless it is allowed."""
    path = parquet(tmp_path / "d" / "a.parquet")
    (tmp_path / "link.parquet").symlink_to(path)
    for twice in (
        [str(path), str(path)],
        [str(path), str(tmp_path / "d")],
        [str(path), f"file://{path}"],
        [str(path), str(tmp_path / "link.parquet")],
    ):
        assert "twice" in refusal(twice, UsageError)
    assert len(find([str(path), str(path)], allow_duplicates=True)) == 2


def test_two_file_systems_are_refused(tmp_path: Path) -> None:
    """Shards on the disk and in a store cannot be mixed in one job."""
    path = parquet(tmp_path / "a.parquet")
    assert "more than one file system" in refusal([str(path), "memory://x.parquet"], UsageError)


def test_facts_are_read_from_the_footer(tmp_path: Path) -> None:
    """Rows, groups, schema and size of both formats; the extension does not decide."""
    parquet(tmp_path / "a.parquet", row_group_size=2)
    arrow(tmp_path / "b.feather", 1, "zstd")
    arrow(tmp_path / "c.data")
    found = find([str(tmp_path / name) for name in ("a.parquet", "b.feather", "c.data")])
    assert [s.groups for s in found] == [(2, 1), (1, 1, 1), (2, 1)]
    assert [s.format for s in found] == ["parquet", "arrow", "arrow"]
    assert all(s.schema.equals(TABLE.schema) for s in found)
    assert [s.size for s in found] == [os.path.getsize(s.path) for s in found]
    assert found.rows == 9


def test_shard_without_rows_is_accepted(tmp_path: Path) -> None:
    """No rows, no row group and a row group of no rows are no errors."""
    parquet(tmp_path / "a.parquet", TABLE.slice(0, 0))
    with pq.ParquetWriter(str(tmp_path / "b.parquet"), TABLE.schema) as writer:
        writer.write_table(TABLE.slice(0, 0))
        writer.write_table(TABLE)
    with pq.ParquetWriter(str(tmp_path / "c.parquet"), TABLE.schema):
        pass
    found = find(str(tmp_path))
    assert [s.rows for s in found] == [0, 3, 0]


def test_fingerprint_is_json_and_sees_a_rewrite(tmp_path: Path) -> None:
    """It survives JSON, and another value in a shard of the same size changes it."""
    path = parquet(tmp_path / "a.parquet")
    before = find(str(path)).fingerprint()
    assert json.loads(json.dumps(before)) == before
    assert before[0]["schema"] == [["y", "int64", True], ["x", "double", True]]
    parquet(path, TABLE.set_column(1, "x", pa.array([1.0, 2.0, 4.0])))
    after = find(str(path)).fingerprint()
    assert after[0]["size"] == before[0]["size"]
    assert after[0]["footer_sha256"] != before[0]["footer_sha256"]


class CachingStore(MemoryFileSystem):
    """A store that, like S3's client, answers from cached listings until they are invalidated."""

    protocol = "caching"
    store: ClassVar[dict[str, object]] = {}
    listed: ClassVar[dict[str, list[dict[str, object]]]] = {}

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        return MemoryFileSystem._strip_protocol(path.removeprefix("caching://"))

    def ls(self, path: str, detail: bool = True, **options: object) -> list[dict[str, object]]:
        return self.listed.setdefault(path, super().ls(path, detail=detail, **options))

    def invalidate_cache(self, path: str | None = None) -> None:
        self.listed.clear()


def test_new_file_is_seen_in_a_store_that_caches_listings() -> None:
    """A listing that was cached before a shard was written does not hide it."""
    fsspec.register_implementation("caching", CachingStore, clobber=True)
    fs = fsspec.filesystem("caching")
    for count, name in enumerate("ab", start=1):
        with fs.open(f"/seen/{name}.parquet", "wb") as file:
            pq.write_table(TABLE, file)
        assert len(fs.ls("/seen")) == 1
        assert len(find("caching://seen")) == count
        fs.listed["/seen"] = fs.listed["/seen"][:1]


@given(st.text(), st.text(min_size=1), st.text(st.characters(min_codepoint=33), max_size=9))
def test_no_secret_survives_redaction(user: str, secret: str, path: str) -> None:
    """Userinfo and query are gone from every URL, however odd; redacting twice is once."""
    host = "https://" + "".join(c for c in user if c not in "/?#") + ":pa55@h/"
    url = host + path.replace("?", "").replace("#", "") + "?sig=" + secret
    assert "pa55" not in redact(url)
    assert "?" not in redact(url)
    assert redact(redact(url)) == redact(url)
    assert shown(url).isprintable() or not shown(url)


@pytest.mark.parametrize(
    "url",
    [
        "memory://user:CANARY@d/a.parquet",
        "s3://key:CANARY@bucket/a.parquet",
        "memory://d/none.parquet?sig=CANARY",
        "https://user:CANARY@localhost:1/a.parquet?sig=CANARY",
        "nosuch://user:CANARY@host/a?sig=CANARY",
    ],
)
def test_no_secret_is_in_an_error(url: str) -> None:
    """What fails names the URL without what follows ``?`` or stands before ``@``."""
    with pytest.raises((UsageError, InputNotFoundError, StorageError)) as caught:
        find(url)
    assert "CANARY" not in str(caught.value)
    assert caught.value.__cause__ is None


def test_foreign_messages_are_scrubbed() -> None:
    """Text of another library keeps its words and loses the secrets of its URLs."""
    assert scrub("403 for 'https://u:p@h/x?sig=s'\n") == "403 for 'https://h/x'\\n"


def test_local_names_are_no_urls() -> None:
    """Nothing is cut off or unquoted in a local path."""
    assert absolute("/a/b?c#d@e%20") == "/a/b?c#d@e%20"
    assert redact("/a/b?c#d@e%20") == "/a/b?c#d@e%20"
    assert absolute("file:///a%20b") == "/a%20b"
    assert absolute("s3://b/k") == "s3://b/k"


@pytest.mark.parametrize(
    ("url", "found"),
    [
        ("delta+s3://user:CANARY@bucket/table", "delta+s3://bucket/table"),
        ("DELTA+https://user:CANARY@host/table?sig=CANARY", "delta+https://host/table"),
        ("delta+abfss://box@account.example/table", "delta+abfss://box@account.example/table"),
        ("delta+/a/b?c", "delta+/a/b?c"),
    ],
)
def test_a_marked_table_is_shown_without_secrets(url: str, found: str) -> None:
    """``delta+`` before a URL hides no secret in it, and changes nothing else."""
    assert shown(url) == found
    assert protocol(url) == protocol(found.removeprefix("delta+"))
    assert is_inside(url, location(found))


def test_permutation_is_stable_for_ever() -> None:
    """The same seed and epoch give this order on every machine and in every version."""
    assert permutation(8, 0, 0) == [7, 4, 1, 2, 3, 0, 6, 5]
    assert sorted(permutation(100, 3, 1)) == list(range(100))
    assert permutation(100, 3, 1) != permutation(100, 3, 2) != permutation(100, 4, 2)
