"""What is new in a listing, against a ledger: each kind of file by itself, then all of them."""

from __future__ import annotations

import itertools
import os
import shutil
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamomd.checkpoint.segments import Facts, shorten_facts
from streamomd.core.errors import DataError, InputNotFoundError, ResumeRefusedError, UsageError
from streamomd.shards.order import natural_key
from streamomd.shards.reader import digests_of
from streamomd.shards.shard import Shard
from streamomd.sources.arrivals import Arrivals, find_arrivals
from streamomd.sources.contract import Request
from streamomd.sources.find import find, list_shards
from streamomd.sources.new_files import Choice, Contents

NOW = 1_800_000_000_000_000_000
SECOND = 1_000_000_000
OLD = NOW - 3600 * SECOND


def shard(folder: Path, name: str, rows: int = 3, *, mtime_ns: int = OLD) -> Path:
    """A Parquet file whose rows depend on its name."""
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    text = pa.array([f"{name} {row}" for row in range(rows)], pa.string())
    pq.write_table(pa.table({"x": text}), str(path))
    os.utime(path, ns=(mtime_ns, mtime_ns))
    return path


def write(path: Path, data: bytes, *, mtime_ns: int = OLD) -> Path:
    path.write_bytes(data)
    os.utime(path, ns=(mtime_ns, mtime_ns))
    return path


DIGESTS: dict[str, dict[int, bytes]] = {}
"""Of row groups as they were when ``ledger`` saw them, by URL."""


def ledger(source: Path) -> list[Facts]:
    """The entries of a run that has learned what is there."""
    found = find(str(source))
    DIGESTS.update({one.url: read(found.fs, one) for one in found})
    return [shorten_facts(one) for one in found.fingerprint()]


def read(fs: Any, shard: Shard) -> dict[int, bytes]:
    return digests_of(fs, shard, shard.schema.names, ())


def compared(known: Sequence[Facts], fs: Any, listed: Any, choice: Choice, **more: Any) -> Arrivals:
    """The arrivals, with the digests of what ``ledger`` saw."""
    contents = Contents(fs, lambda at: DIGESTS.get(str(known[at]["url"]), {}), partial(read, fs))
    return find_arrivals(known, fs, listed, choice, contents=contents, **more)


def arrivals(known: list[Facts], source: Any, *, now_ns: int = NOW, **choice: Any) -> Arrivals:
    sources = [str(one) for one in source] if isinstance(source, list) else str(source)
    listing = list_shards(sources)
    return compared(known, listing.fs, listing.files, Choice(**choice), now_ns=now_ns)


def names(found: Arrivals) -> list[str]:
    return [one.name for one in found.shards]


def reasons(found: Arrivals) -> dict[str, str]:
    return {os.path.basename(one.url): one.reason for one in found.skipped}


def refused(known: list[Facts], source: Any, **choice: Any) -> str:
    with pytest.raises(ResumeRefusedError) as caught:
        arrivals(known, source, **choice)
    assert caught.value.exit_code == 3
    return str(caught.value)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A directory with two learned shards."""
    for name in ("b.parquet", "c.parquet"):
        shard(tmp_path / "in", name)
    return tmp_path / "in"


@pytest.fixture
def known(source: Path) -> list[Facts]:
    return ledger(source)


def test_nothing_is_new(source: Path, known: list[Facts], monkeypatch: pytest.MonkeyPatch) -> None:
    """A listing of what was learned gives nothing, and no file is opened."""
    monkeypatch.setattr(
        "streamomd.shards.read_footers.read_shard", lambda *_: pytest.fail("opened")
    )
    found = arrivals(known, source)
    assert (len(found.shards), found.skipped, found.notes) == (0, (), ())


def test_new_shards_have_footers_and_names(source: Path, known: list[Facts]) -> None:
    """A name may sort before learned ones; the new ones are as ``find`` gives them."""
    shard(source, "a.parquet")
    shard(source, "d.parquet", rows=5)
    found = arrivals(known, source)
    assert names(found) == ["a.parquet", "d.parquet"]
    assert list(found.shards) == [one for one in find(str(source)) if one.name in names(found)]
    assert found.shards.rows == 8
    assert set(found.shards.versions) == {str(source / "a.parquet"), str(source / "d.parquet")}


HOURS = ["hour=2/x.parquet", "hour=10/x.parquet", "hour=9/x.parquet", "hour=02/x.parquet"]


def test_natural_order(tmp_path: Path) -> None:
    """``hour=2`` comes before ``hour=10``; of two with the same number the smaller bytes."""
    for name in HOURS:
        shard(tmp_path, name)
    expected = ["hour=02", "hour=2", "hour=9", "hour=10"]
    assert [one.split("/")[0] for one in names(arrivals([], tmp_path))] == expected


@given(st.lists(st.text("a0129/=", max_size=6), max_size=6, unique=True))
@settings(max_examples=200, deadline=None)
def test_natural_order_is_a_total_order(paths: list[str]) -> None:
    """Digits compare as numbers, other letters as bytes, and no two names are equal."""
    for one, other in itertools.combinations(paths, 2):
        assert natural_key(one) != natural_key(other)
        if one.isdigit() and other.isdigit() and int(one) != int(other):
            assert (natural_key(one) < natural_key(other)) == (int(one) < int(other))
        if not any(letter.isdigit() for letter in one + other):
            assert (natural_key(one) < natural_key(other)) == (one < other)
    backwards = paths[::-1]
    assert sorted(paths, key=natural_key) == sorted(backwards, key=natural_key)


def test_a_number_of_any_length_has_a_place() -> None:
    """Python converts no more than 4,300 digits."""
    assert natural_key("9" * 5000) < natural_key("1" + "0" * 5000)


@pytest.mark.parametrize("order", [*itertools.permutations(["a2", "a10", "b"])])
def test_order_by_time(order: tuple[str, ...], tmp_path: Path) -> None:
    """By modification time, then path; the version of a table comes before both."""
    for at, name in enumerate(order):
        shard(tmp_path, f"{name}.parquet", mtime_ns=OLD + at)
    assert names(arrivals([], tmp_path, arrival="modified")) == [
        f"{name}.parquet" for name in order
    ]
    assert names(arrivals([], tmp_path)) == ["a2.parquet", "a10.parquet", "b.parquet"]
    for name in order:
        os.utime(tmp_path / f"{name}.parquet", ns=(OLD, OLD))
    tied = arrivals([], tmp_path, arrival="modified")
    assert names(tied) == ["a2.parquet", "a10.parquet", "b.parquet"]
    listing = list_shards(str(tmp_path))
    fs, listed = listing.fs, listing.files
    of_table = [
        file._replace(partitions=(), version=(1, order.index(file.name.split(".")[0])))
        for file in listed
    ]
    found = compared([], fs, of_table, Choice(), now_ns=NOW)
    assert names(found) == [f"{name}.parquet" for name in order]


AGES = [(0.0, False), (29.9, False), (30.0, True), (31.0, True), (-5.0, False), (-3600.0, False)]


@pytest.mark.parametrize(("age", "taken"), AGES)
def test_a_young_file_waits(age: float, taken: bool, source: Path, known: list[Facts]) -> None:
    """One younger than ``settle`` is skipped, and so is one from the future; 0 takes any."""
    shard(source, "new.parquet", mtime_ns=NOW - int(age * SECOND))
    found = arrivals(known, source)
    assert names(found) == (["new.parquet"] if taken else [])
    assert not any(one.recorded for one in found.skipped)
    if not taken:
        word = "clocks differ" if age < -30 else "less than update.settle = 30"
        assert word in reasons(found)["new.parquet"]
        assert word in found.notes[0]
    assert names(arrivals(known, source, settle=0)) == ["new.parquet"]


def test_a_clock_that_goes_backwards_delays(source: Path, known: list[Facts]) -> None:
    """Learned shards stay learned; new ones wait until the clock has passed them."""
    shard(source, "new.parquet", mtime_ns=NOW)
    assert names(arrivals(known, source, now_ns=NOW + 60 * SECOND)) == ["new.parquet"]
    assert names(arrivals(known, source, now_ns=NOW - 60 * SECOND)) == []
    everything = ledger(source)
    assert names(arrivals(everything, source, now_ns=NOW - 60 * SECOND)) == []
    assert arrivals(everything, source, now_ns=NOW - 60 * SECOND).skipped == ()


def incomplete(whole: bytes) -> dict[str, bytes]:
    return {
        "0 bytes": b"",
        "first byte": whole[:1],
        "first magic": whole[:4],
        "half": whole[: len(whole) // 2],
        "all but the last byte": whole[:-1],
        "allocated": bytes(len(whole)),
    }


@pytest.mark.parametrize("kind", incomplete(b""))
def test_a_file_without_its_end_waits(kind: str, source: Path, known: list[Facts]) -> None:
    """It is skipped with a note and not recorded; complete, it is taken."""
    path = shard(source, "new.parquet")
    whole = path.read_bytes()
    write(path, incomplete(whole)[kind])
    found = arrivals(known, source, on_bad_shard="error")
    assert names(found) == []
    assert [one.recorded for one in found.skipped] == [False]
    assert found.skipped_facts == ()
    assert "still written" in found.notes[0]
    write(path, whole)
    assert names(arrivals(known, source)) == ["new.parquet"]


def damaged(whole: bytes) -> dict[str, bytes]:
    length = int.from_bytes(whole[-8:-4], "little")
    return {
        "footer": whole[: -8 - length] + b"\xff" * length + whole[-8:],
        "length": whole[:-8] + b"\xff\xff\xff\x7f" + whole[-4:],
        "head": b"XXXX" + whole[4:],
        "gzip": b"\x1f\x8b" + whole[2:-4] + b"XXXX",
        "text": b"a,b,c\n" * 20,
    }


KINDS = list(damaged(bytes(100)))


@pytest.mark.parametrize("kind", KINDS)
def test_an_unreadable_file_is_an_error_or_recorded(
    kind: str, source: Path, known: list[Facts]
) -> None:
    """As ``on_bad_shard`` says; one that was skipped is tried again only on request."""
    path = shard(source, "bad.parquet")
    whole = path.read_bytes()
    write(path, damaged(whole)[kind])
    shard(source, "good.parquet")
    with pytest.raises(DataError, match=r"1 new shard cannot be read:\n.*bad\.parquet: ") as caught:
        arrivals(known, source)
    assert 'on_bad_shard = "skip"' in str(caught.value)
    found = arrivals(known, source, on_bad_shard="skip")
    assert names(found) == ["good.parquet"]
    assert [one.recorded for one in found.skipped] == [True]
    (facts,) = found.skipped_facts
    assert facts["url"] == str(path)
    assert facts["skipped"] == found.skipped[0].reason
    assert facts["size"] == path.stat().st_size
    assert str(path) not in facts["skipped"]

    later = [*known, *found.skipped_facts]
    again = arrivals(later, source, on_bad_shard="error")
    assert names(again) == ["good.parquet"]
    assert again.skipped == ()
    assert "--retry-skipped" in again.notes[0]
    retried = arrivals(later, source, on_bad_shard="skip", retry_skipped=True)
    assert [one.recorded for one in retried.skipped] == [True]
    assert retried.skipped_facts == ()  # the ledger has it
    write(path, whole)
    retried = arrivals(later, source, retry_skipped=True)
    assert names(retried) == ["bad.parquet", "good.parquet"]
    learned = [*later, *(shorten_facts(one) for one in retried.shards.fingerprint())]
    assert names(arrivals(learned, source, retry_skipped=True)) == []


def test_all_unreadable_files_are_named(source: Path, known: list[Facts]) -> None:
    """Up to ten of them, and the number of the others."""
    for at in range(12):
        write(source / f"bad{at}.parquet", b"PAR1" + bytes(20) + b"PAR1")
    with pytest.raises(DataError) as caught:
        arrivals(known, source)
    assert "12 new shards cannot be read" in str(caught.value)
    assert "bad9.parquet" in str(caught.value)
    assert "and 2 more" in str(caught.value)


def rewrite_rows(path: Path) -> None:
    shard(path.parent, path.name, rows=4)


def rewrite_footer(path: Path) -> None:
    """The same size, other contents."""
    write(path, path.read_bytes().replace(b"b.parquet 0", b"b.parquet 9"), mtime_ns=OLD + 1)


def truncate(path: Path) -> None:
    write(path, path.read_bytes()[:-5])


def empty(path: Path) -> None:
    write(path, b"")


@pytest.mark.parametrize("change", [rewrite_rows, rewrite_footer, truncate, empty])
def test_a_rewritten_shard_is_refused(
    change: Callable[[Path], None], source: Path, known: list[Facts]
) -> None:
    """By name and with what differs, whatever its age; or ignored if the choice says so."""
    path = source / "b.parquet"
    change(path)
    message = refused(known, source)
    assert "1 learned shard changed" in message
    assert f"shard 0 {path}: " in message
    assert "--ignore-rewritten" in message
    assert refused(known, source, now_ns=path.stat().st_mtime_ns) == message
    shard(source, "new.parquet")
    found = arrivals(known, source, ignore_rewritten=True)
    assert names(found) == ["new.parquet"]
    assert "1 rewritten shard ignored" in found.notes[0]
    assert found.touched == ()


def test_a_touched_shard_is_learned(source: Path, known: list[Facts]) -> None:
    """The ledger gets its new time, so that it is not opened again; other facts stay."""
    known = [{**one, "update": 2, "name": "n"} for one in known]
    os.utime(source / "c.parquet", ns=(OLD + 5, OLD + 5))
    found = arrivals(known, source)
    assert names(found) == []
    assert found.touched == ((1, {**known[1], "mtime_ns": OLD + 5}),)
    assert "1 learned shard copied or touched" in found.notes[0]
    assert arrivals([known[0], found.touched[0][1]], source).notes == ()


def test_a_deleted_shard_is_counted(source: Path, known: list[Facts]) -> None:
    """Nothing else happens."""
    (source / "b.parquet").unlink()
    found = arrivals(known, source)
    assert names(found) == []
    assert "1 learned shard no longer listed" in found.notes[0]


@pytest.mark.parametrize("how", ["moved", "copied"])
def test_a_known_fingerprint_under_another_url(how: str, source: Path, known: list[Facts]) -> None:
    """Refused with both names; ``moved`` renames what is gone, ``accept_duplicates`` learns."""
    known = [{**one, "name": one["url"][-9:], "update": 1} for one in known]
    old, new = source / "b.parquet", source / "day=1" / "z.parquet"
    new.parent.mkdir()
    shutil.copy2(old, new)
    if how == "moved":
        old.unlink()
    message = refused(known, source)
    assert (
        f"{new} is {old}, which is {'no longer listed' if how == 'moved' else 'learned'}" in message
    )
    assert "--moved" in message
    assert "--accept-duplicates" in message
    if how == "copied":
        assert refused(known, source, moved=True) == message
    else:
        found = arrivals(known, source, moved=True)
        assert names(found) == []
        facts = {**known[0], "url": str(new), "mtime_ns": new.stat().st_mtime_ns}
        assert found.renamed == ((0, facts),)
        assert found.notes == (f"shard 0 moved to {new}",)
        assert arrivals([facts, known[1]], source).notes == ()
    found = arrivals(known, source, accept_duplicates=True)
    assert names(found) == ["day=1/z.parquet"]
    assert found.renamed == ()
    assert any("--accept-duplicates" in note for note in found.notes)


def test_a_move_that_nothing_proves_is_refused(
    source: Path, known: list[Facts], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A ledger of version 1.0 has no digests: of a file with the footer of one that is gone, the
    rows may be other ones. Without ``moved`` it is a new shard."""
    monkeypatch.delitem(DIGESTS, str(source / "b.parquet"))
    old, new = source / "b.parquet", source / "z.parquet"
    old.rename(new)
    message = refused(known, source, moved=True)
    assert f"{new}: {old}" in message
    assert "1 new file with the footer of a learned shard that is no longer listed" in message
    found = arrivals(known, source)
    assert (names(found), found.renamed) == (["z.parquet"], ())
    assert "of which the ledger has no digests: it is learned as a new shard" in found.notes[-1]


def test_two_new_files_with_the_same_rows(source: Path, known: list[Facts]) -> None:
    """A duplicate inside one update is refused as one of a learned shard is."""
    shard(source, "x.parquet")
    shutil.copy2(source / "x.parquet", source / "y.parquet")
    message = refused(known, source, moved=True)
    assert f"{source / 'y.parquet'} is {source / 'x.parquet'}, which is new" in message
    assert names(arrivals(known, source, accept_duplicates=True)) == ["x.parquet", "y.parquet"]


def test_one_shard_moved_and_copied(source: Path, known: list[Facts]) -> None:
    """The first name in order is its new one, the second a copy of it."""
    for name in ("x.parquet", "y.parquet"):
        shutil.copy2(source / "b.parquet", source / name)
    (source / "b.parquet").unlink()
    assert "1 new file with" in refused(known, source, moved=True)
    found = arrivals(known, source, moved=True, accept_duplicates=True)
    assert [facts["url"][-9:] for _, facts in found.renamed] == ["x.parquet"]
    assert names(found) == ["y.parquet"]


def test_shards_of_no_rows_are_not_compared(source: Path) -> None:
    """Empty files are all alike: each is a shard."""
    shard(source, "e.parquet", rows=0)
    known = ledger(source)
    shard(source, "f.parquet", rows=0)
    shard(source, "g.parquet", rows=0)
    assert names(arrivals(known, source)) == ["f.parquet", "g.parquet"]


def test_rewritten_and_moved_are_reported_together(source: Path, known: list[Facts]) -> None:
    """One error names all that is refused."""
    shutil.copy2(source / "b.parquet", source / "x.parquet")
    rewrite_rows(source / "c.parquet")
    message = refused(known, source)
    assert "c.parquet" in message
    assert "x.parquet is" in message


def test_until_and_max_shards(tmp_path: Path) -> None:
    """``until`` includes its time; ``max_shards`` is the first in order, and the rest wait."""
    for at, name in enumerate(["d", "c", "b", "a"]):
        shard(tmp_path, f"{name}.parquet", mtime_ns=OLD + at)
    found = arrivals([], tmp_path, until_ns=OLD + 2)
    assert names(found) == ["b.parquet", "c.parquet", "d.parquet"]
    assert found.notes == ("1 new shard modified after the time of --until",)
    found = arrivals([], tmp_path, max_shards=3)
    assert names(found) == ["a.parquet", "b.parquet", "c.parquet"]
    assert found.notes == ("1 more new shard not taken: --max-shards 3",)
    assert names(arrivals([], tmp_path, max_shards=3, arrival="modified"))[0] == "d.parquet"
    learned = [shorten_facts(one) for one in found.shards.fingerprint()]
    assert names(arrivals(learned, tmp_path, max_shards=3)) == ["d.parquet"]


def test_skipped_files_do_not_count(tmp_path: Path) -> None:
    """``max_shards`` counts what is learned, so the next ones are opened for those skipped."""
    for name in "abcd":
        shard(tmp_path, f"{name}.parquet")
    write(tmp_path / "a.parquet", b"")
    write(tmp_path / "b.parquet", b"PAR1" + bytes(20) + b"PAR1")
    found = arrivals([], tmp_path, max_shards=1, on_bad_shard="skip")
    assert names(found) == ["c.parquet"]
    assert sorted(reasons(found)) == ["a.parquet", "b.parquet"]


def test_a_file_that_vanishes(source: Path, known: list[Facts]) -> None:
    """Between listing and opening: skipped with a note; a touched one counts as deleted."""
    new = shard(source, "new.parquet")
    os.utime(source / "c.parquet", ns=(OLD + 5, OLD + 5))
    listing = list_shards(str(source))
    fs, listed = listing.fs, listing.files
    new.unlink()
    (source / "c.parquet").unlink()
    found = compared(known, fs, listed, Choice(), now_ns=NOW)
    assert names(found) == []
    assert reasons(found) == {"new.parquet": "removed since it was listed"}
    assert found.touched == ()


def test_a_file_that_is_written_to_after_the_listing(source: Path, known: list[Facts]) -> None:
    """Its time as it is opened decides whether it waits, and its rows are those of its footer."""
    shard(source, "new.parquet")
    listing = list_shards(str(source))
    fs, listed = listing.fs, listing.files
    shard(source, "new.parquet", rows=9, mtime_ns=NOW - SECOND)
    found = compared(known, fs, listed, Choice(), now_ns=NOW)
    assert list(reasons(found)) == ["new.parquet"]
    found = compared(known, fs, listed, Choice(settle=0), now_ns=NOW)
    assert found.shards.rows == 9


class RacingScan:
    """A scan of a directory from which a file is removed after it was scanned."""

    def __init__(self, path: str, gone: Path) -> None:
        with scandir(path) as items:
            self.items = list(items)
        gone.unlink(missing_ok=True)

    def __enter__(self) -> list[os.DirEntry[str]]:
        return self.items

    def __exit__(self, *_: object) -> None: ...


scandir = os.scandir


def test_a_file_that_is_removed_during_the_listing(
    source: Path, known: list[Facts], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It counts as deleted; a link to no file is an error that names it."""
    gone = source / "b.parquet"
    monkeypatch.setattr(os, "scandir", lambda path: RacingScan(path, gone))
    found = arrivals(known, source)
    assert (names(found), found.skipped) == ([], ())
    assert found.notes == ("1 learned shard no longer listed; the model still has what it learned",)
    monkeypatch.undo()
    (source / "l.parquet").symlink_to(source / "nowhere")
    with pytest.raises(InputNotFoundError, match=r"l\.parquet: no such file"):
        arrivals(known, source)


def test_a_store_is_asked_once_a_directory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Size, time and tag of its files come with the listing."""
    fs, _ = in_memory(**{f"day={day}/{at}": 1 for day in range(3) for at in range(5)})
    asked: list[str] = []
    for name in ("ls", "info"):
        real = getattr(type(fs), name)

        def counted(self: Any, path: str, *more: Any, _: Any = (name, real), **options: Any) -> Any:
            asked.append(f"{_[0]} {path.strip('/').removeprefix('arrivals/')}")
            return _[1](self, path, *more, **options)

        monkeypatch.setattr(type(fs), name, counted)
    listing = list_shards("memory://arrivals")
    assert len(listing.files) == 15
    assert not any("parquet" in one for one in asked)
    assert sum(one.startswith("ls day=") for one in asked) == 3


@pytest.mark.parametrize("how", ["sources", "link", "directory"])
def test_a_file_that_is_listed_twice(how: str, source: Path, tmp_path: Path) -> None:
    """By two sources, as a link, or through a linked directory: refused, as in ``train``."""
    sources = [source, source]
    if how == "link":
        (source / "l.parquet").symlink_to(source / "b.parquet")
        sources = [source]
    if how == "directory":
        (tmp_path / "other").symlink_to(source)
        sources = [source, tmp_path / "other"]
    with pytest.raises(UsageError, match="the same file is named twice"):
        arrivals([], sources)


def test_urls_are_checked_before_a_file_is_opened(source: Path, known: list[Facts]) -> None:
    """Those of all files that may be opened, and of no other."""
    shard(source, "new.parquet")
    write(source / "c.parquet", b"rewritten")
    listing = list_shards(str(source))
    fs, listed = listing.fs, listing.files
    seen: list[str] = []

    def check(urls: Any) -> None:
        seen.extend(urls)
        raise UsageError("not allowed")

    with pytest.raises(UsageError, match="not allowed"):
        compared(known, fs, listed, Choice(), now_ns=NOW, check=check)
    assert [os.path.basename(url) for url in seen] == ["c.parquet", "new.parquet"]


@pytest.mark.parametrize("how", ["in", "in/*.parquet", "in/**/*.parquet", "in/day=*"])
def test_a_source_may_be_empty_again(how: str, source: Path, known: list[Facts]) -> None:
    """After all learned files were deleted nothing is new; a directory that is gone is an error."""
    place = str(source.parent / how)
    for path in source.iterdir():
        path.unlink()
    listing = list_shards(place, Request(may_be_empty=True))
    fs, listed = listing.fs, listing.files
    found = compared(known, fs, listed, Choice(), now_ns=NOW)
    assert (len(found.shards), len(found.skipped)) == (0, 0)
    assert "2 learned shards no longer listed" in found.notes[0]
    with pytest.raises(InputNotFoundError, match="contains no data file"):
        list_shards(place)
    source.rmdir()
    with pytest.raises(InputNotFoundError, match="no such file or directory"):
        list_shards(place, Request(may_be_empty=True))


def in_memory(**files: int) -> Any:
    """Files of a store with ETags."""
    fs = fsspec.filesystem("memory")
    fs.store.clear()
    for name, rows in files.items():
        with fs.open(f"/arrivals/{name}.parquet", "wb") as file:
            pq.write_table(pa.table({"x": [f"{name} {row}" for row in range(rows)]}), file)
    listing = list_shards("memory://arrivals")
    return listing.fs, listing.files


@pytest.mark.parametrize(
    ("saved", "listed", "opened"),
    [
        ({"etag": "1"}, {"etag": "1", "mtime_ns": 5}, False),  # the time alone shows nothing
        ({"etag": "1", "mtime_ns": 5}, {"etag": "2", "mtime_ns": 5}, True),
        ({"mtime_ns": 5}, {"etag": "2", "mtime_ns": 5}, False),
        ({"mtime_ns": 5}, {"mtime_ns": 6}, True),
        ({}, {}, True),
        ({"etag": "1"}, {"mtime_ns": 5}, True),
        ({"etag": "1"}, {"etag": "1", "size": -1}, True),
    ],
)
def test_when_a_known_file_is_opened(
    saved: dict[str, Any], listed: dict[str, Any], opened: bool
) -> None:
    """Only if size and ETag, or else size and time, do not show that it is the same."""
    fs, (file,) = in_memory(a=3)
    (facts,) = find("memory://arrivals").fingerprint()
    facts = {**facts, "etag": None, "mtime_ns": None, **saved}
    file = file._replace(**{"etag": None, "mtime_ns": None, **listed})
    found = compared([shorten_facts(facts)], fs, [file], Choice(), now_ns=NOW)
    assert len(found.touched) == opened
    of_table = file._replace(partitions=())
    found = compared([shorten_facts(facts)], fs, [of_table], Choice(), now_ns=NOW)
    assert len(found.touched) == (file.size < 0)


def test_a_store_without_times() -> None:
    """Files do not wait, and what needs a time is refused."""
    fs, listed = in_memory(a=3, b=2)
    listed = [file._replace(mtime_ns=None) for file in listed]
    opened = compared([], fs, listed, Choice(settle=0), now_ns=NOW)
    assert names(opened) == ["a.parquet", "b.parquet"]
    for choice, word in ((Choice(until_ns=5), "--until"), (Choice(arrival="modified"), "arrival")):
        with pytest.raises(UsageError, match=f"without a modification time, which .*{word}"):
            compared([], fs, listed, choice, now_ns=NOW)


def test_a_tables_files_are_complete() -> None:
    """A table's log lists them when they are whole: they do not wait, and damage is damage."""
    fs, (file,) = in_memory(a=3)
    young = file._replace(mtime_ns=NOW, partitions=())
    assert len(compared([], fs, [young], Choice(), now_ns=NOW).shards) == 1
    fs.pipe_file(file.path, b"PAR1")
    with pytest.raises(DataError, match="cannot be read"):
        compared([], fs, [young], Choice(), now_ns=NOW)


def test_a_table_lists_only_what_is_new() -> None:
    """Its other shards are not reported as deleted."""
    fs, _ = in_memory(a=3)
    known = [{"url": "memory://table/old.parquet", "size": 5, "partitions": []}]
    assert compared(known, fs, [], Choice(), now_ns=NOW).notes == ()


@given(data=st.data())
@settings(max_examples=40, deadline=None)
def test_any_split_learns_each_file_once(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """However files arrive over updates, with limits and files that wait: each is learned once."""
    folder, known, taken = tmp_path_factory.mktemp("in"), [], []
    for step in range(4):
        for at in range(data.draw(st.integers(0, 3))):
            age = data.draw(st.sampled_from([0, 100]))
            now = NOW + step * 60 * SECOND
            shard(folder, f"{step}-{at}.parquet", mtime_ns=now - age * SECOND)
        if any(folder.iterdir()):
            most = data.draw(st.sampled_from([None, 1, 2]))
            found = arrivals(known, folder, now_ns=NOW + step * 60 * SECOND, max_shards=most)
            known += [shorten_facts(one) for one in found.shards.fingerprint()]
            taken += names(found)
    if any(folder.iterdir()):
        taken += names(arrivals(known, folder, now_ns=NOW + 3600 * SECOND))
    assert sorted(taken) == sorted(path.name for path in folder.iterdir())
