"""convert --split: which rows go to which part, by a hash, by groups and by time."""

from __future__ import annotations

import json
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from running import run

from streamomd.core.errors import DataError, UsageError
from streamomd.sources.text import shuffle_split as split_module
from streamomd.sources.text.convert import convert
from streamomd.sources.text.shuffle_split import (
    Split,
    TimeKeys,
    make_split,
    parse_shares,
    time_keys,
)

N = 1000
SHARES = {"train": 80.0, "test": 20.0}


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Rows of 50 users over 30 days, the days out of order."""
    monkeypatch.chdir(tmp_path)
    days = np.random.default_rng(0).integers(1, 31, N)
    lines = ["row,user,day,y"]
    lines += [f"{k},u{k % 50},2026-01-{day:02},{k % 2}" for k, day in enumerate(days)]
    path = tmp_path / "rows.csv"
    path.write_text("\n".join(lines) + "\n")
    return path


def parts(folder: str, names: Sequence[str] = ("train", "test")) -> list[list[dict[str, Any]]]:
    """The rows of each part, in the order of their shards."""
    return [pq.read_table(f"{folder}/{name}").to_pylist() for name in names]


def csv_parts(to: str, **options: Any) -> list[list[dict[str, Any]]]:
    """The parts of the source."""
    convert(["rows.csv"], source_format="csv", to=to, split=SHARES, **options)
    return parts(to)


def test_a_hash_splits_by_row(source: Path) -> None:
    """Every row is in one part, in the order of the text, near the shares; neither the shards nor
    a shuffle nor rows appended later change a row's part, and another seed does."""
    train, test = csv_parts("a")
    numbers = [row["row"] for row in train], [row["row"] for row in test]
    assert sorted(numbers[0] + numbers[1]) == list(range(N))
    assert [*map(sorted, numbers)] == [*numbers]
    assert 160 < len(test) < 240
    assert csv_parts("b", rows_per_shard=7) == [train, test]
    shuffled = csv_parts("c", shuffle=3)
    assert [sorted(row["row"] for row in part) for part in shuffled] == [*numbers]
    assert [row["row"] for row in shuffled[0]] != numbers[0]
    assert csv_parts("d", split_seed=1) != [train, test]
    with source.open("a") as file:
        file.write("1000,u1,2026-01-01,0\n")
    later = csv_parts("e")
    assert [row for part in later for row in part if row["row"] < N] == train + test


def test_groups_stay_together(source: Path) -> None:
    """All rows of a user are in one part, whatever the type of the column; nulls are one group."""
    train, test = csv_parts("a", split_by="user")
    users = {row["user"] for row in train}, {row["user"] for row in test}
    assert users[0] | users[1] == {f"u{k}" for k in range(50)}
    assert not users[0] & users[1]
    assert users[0]
    assert users[1]
    source.write_text("id,x\n" + "".join(f"{k % 9 or ''},{k}\n" for k in range(90)))
    found = []
    for kind in ("int64", "string", "double"):
        rows = csv_parts(kind, split_by="id", types={"id": kind})
        found.append([{row["x"] for row in part} for part in rows])
    assert found[0] == found[1]
    assert not {row["id"] for row in rows[0]} & {row["id"] for row in rows[1]}


def test_time_puts_the_earliest_rows_first(source: Path) -> None:
    """At least four of five rows are in the first part, none of them later than one of the other,
    and rows of one day are together."""
    train, test = csv_parts("a", split_time="day")
    last, first = max(row["day"] for row in train), min(row["day"] for row in test)
    assert last < first
    earlier = [row for row in train if row["day"] < last]
    assert len(earlier) < 800 <= len(train)
    assert len(train) + len(test) == N
    shuffled = csv_parts("b", split_time="day", shuffle=1)
    assert [len(part) for part in shuffled] == [len(train), len(test)]
    assert sorted(row["row"] for row in shuffled[1]) == [row["row"] for row in test]


VALUES = st.one_of(
    st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=60),
    st.lists(st.integers(-3, 3), min_size=1, max_size=60),
    st.lists(st.floats(allow_nan=False), min_size=1, max_size=60),
)


@settings(max_examples=60, deadline=None)
@given(values=VALUES, shares=st.lists(st.integers(1, 9), min_size=2, max_size=4))
def test_limits_are_ranks(values: list[Any], shares: list[int]) -> None:
    """A part ends with the value of the sorted column at its share of the rows."""
    check_limits(values, shares)


def check_limits(values: list[Any], shares: list[int]) -> None:
    """Against the sorted values."""
    found = make_split({f"p{k}": share for k, share in enumerate(shares)}, by="", time="t", seed=0)
    assert found is not None
    times = TimeKeys(found, None)
    batches = [
        pa.record_batch({"t": pa.array(some, (type(values[0]) is float and pa.float64()) or None)})
        for some in (values[:7], values[7:]) if some
    ]  # fmt: skip
    for batch in batches:
        times.add(batch)
    limits = times.limits()
    times.close()
    in_order = sorted(values)
    sums = np.cumsum(shares)[:-1]
    ends = [in_order[-(-int(one) * len(values) // sum(shares)) - 1] for one in sums]
    expected = [sum(value > end for end in ends) for value in values]
    assigned = [one for batch in found.assigned(batches, limits) for one in batch.column(1)]
    assert [one.as_py() for one in assigned] == expected


@pytest.mark.parametrize(
    "kind", [pa.date32(), pa.date64(), pa.timestamp("us"), pa.timestamp("s", "UTC"),
             pa.time32("s"), pa.time64("ns"), pa.duration("ms"), pa.int8(), pa.uint32(),
             pa.uint64(), pa.float32()], ids=str,
)  # fmt: skip
def test_every_kind_of_time_is_ordered(kind: pa.DataType) -> None:
    """Keys of a column are in the order of its values."""
    days = pa.array([3, 1, 2, 0], pa.int32())
    if pa.types.is_date64(kind) or pa.types.is_timestamp(kind):
        column = days.cast(pa.date32()).cast(kind)
    else:
        column = days.cast(kind) if not pa.types.is_temporal(kind) else _temporal(days, kind)
    keys = time_keys(pa.record_batch({"t": column}), "t", 0)
    assert np.argsort(keys).tolist() == [3, 1, 2, 0]


def test_unsigned_numbers_beyond_int64_are_ordered() -> None:
    """2^63 and above, as identifiers from a hash have them, are the latest."""
    values = pa.array([2**64 - 1, 0, 2**63, 2**63 - 1, 1], pa.uint64())
    keys = time_keys(pa.record_batch({"t": values}), "t", 0)
    assert np.argsort(keys).tolist() == [1, 4, 3, 2, 0]


def _temporal(days: pa.Array, kind: pa.DataType) -> pa.Array:
    wide = days if pa.types.is_date32(kind) or pa.types.is_time32(kind) else days.cast(pa.int64())
    return wide.cast(kind)


def test_every_format_and_form_is_split(source: Path) -> None:
    """svmlight without a size, as Arrow: read twice; each part has the size of the whole."""
    Path("rows.svm").write_text("".join(f"{k % 2} {k + 1}:1\n" for k in range(50)))
    for form in ("parquet", "arrow"):
        done = convert(
            ["rows.svm"], source_format="svmlight", to=form, form=form, split=SHARES
        )  # fmt: skip
        assert sum(done.parts.values()) == 50
        assert done.size == 51
        for name in SHARES:
            command = run("plan", f"{form}/{name}", "--label", "label", "--set",
                          "data.sparse={indices='indices',values='values'}")  # fmt: skip
            assert command.code == 0, command.err


def test_the_command_prints_the_parts(source: Path) -> None:
    """Named parts, rows of each, and the next command; train and evaluate take the parts."""
    done = run("convert", "rows.csv", "-o", "p", "--split", "fit=6,tune=2,check=2")
    assert done.code == 0
    counts = [len(part) for part in parts("p", ("fit", "tune", "check"))]
    for name, count in zip(("fit", "tune", "check"), counts, strict=True):
        assert f"{name}: {count} rows in p/{name}" in done.out
    assert "streamomd init p/fit" in done.out
    again = run("convert", "rows.csv", "-o", "p", "--split", "6,2,2")
    assert again.code == 0
    assert {path.name for path in Path("p").iterdir()} == {
        "fit", "tune", "check", "train", "validation", "test",
    }  # fmt: skip
    result = run("convert", "rows.csv", "-o", "q", "--split", "80,20", "--json").result
    assert result["parts"] == {name: len(part) for name, part in
                               zip(SHARES, parts("q"), strict=True)}  # fmt: skip
    assert json.dumps(result["shards"]).count("q/test/part-") == 1


@pytest.mark.parametrize(
    "words, message",
    [
        (("--split", "80"), "expected 2 or 3 shares"),
        (("--split", "a,b"), "expected numbers"),
        (("--split", "a=1,a=2"), "two parts have one name"),
        (("--split", "a=1,2"), "expected numbers"),
        (("--split", "80,-20"), "expected a positive number"),
        (("--split", "80,nan"), "expected a positive number"),
        (("--split", "../a=1,b=2"), "cannot be a directory's name"),
        (("--split", "_a=1,b=2"), "cannot be a directory's name"),
        (("--split-by", "user"), "pass --split 80,20"),
        (("--split", "8,2", "--split-by", "user", "--split-time", "day"), "pass one"),
        (("--split", "8,2", "--split-by", "usr"), "there are: 'row', 'user', 'day', 'y'"),
        (("--split", "8,2", "--split-time", "dy"), "no such column"),
        (("--split", "8,2", "--split-time", "user"), "needs dates, times or numbers"),
        (("--split", "8,2", "--shards", "4"), "pass rows_per_shard"),
        (("--split", "8,2", "--split-seed", "-1"), "between 0 and"),
        (("--split", "1000000,1"), "part 'test' gets none of the 1,000 rows"),
    ],
)
def test_what_cannot_be_split_is_refused(
    words: tuple[str, ...], message: str, source: Path
) -> None:
    """With what was expected; no part is written."""
    done = run("convert", "rows.csv", "-o", "p", *words)
    assert (done.code, message in done.err) == (2, True), done.err
    assert not Path("p").exists()


def test_a_missing_time_is_refused(source: Path) -> None:
    """With its row."""
    source.write_text("t,y\n1,0\n,1\n3,1\n")
    with pytest.raises(DataError, match="row 1 has no value there"):
        csv_parts("a", split_time="t")


def test_shares_are_exact() -> None:
    """Bounds of hashes are the shares of 2^64; shares need not sum to 100."""
    assert parse_shares("80,20") == SHARES
    found = make_split({"a": 1.0, "b": 1.0, "c": 2.0}, by="", time="", seed=0)
    assert found == Split(("a", "b", "c"), (Fraction(1, 4), Fraction(1, 2)))
    assert found.bounds.tolist() == [2**62, 2**63]
    with pytest.raises(UsageError, match="expected 2 to"):
        make_split({f"p{k}": 1.0 for k in range(101)}, by="", time="", seed=0)


def test_limits_are_found_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a file that is read in many chunks."""
    monkeypatch.setattr(split_module, "CHUNK", 3)
    check_limits([5, 3, 9, 1, 1, 2, 8, 8, 8, 0, 7], [2, 1, 3])
