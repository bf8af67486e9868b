"""svmlight into shards: canonical rows, the strict parser as the one truth."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from test_convert_csv import real

from streamomd.core.errors import DataError, UsageError
from streamomd.sources.text import shard_writer, text_source
from streamomd.sources.text.conversion import Converted
from streamomd.sources.text.convert import convert
from streamomd.sources.text.svmlight_source import Indices, parse_fast, parse_strict

F64 = np.dtype(np.float64)
ANY = Indices(0, 2**31 - 1)


def svm(tmp_path: Path, text: str | bytes, **options) -> Converted:
    source = tmp_path / "rows.svm"
    source.write_bytes(text.encode() if isinstance(text, str) else text)
    return convert([str(source)], source_format="svmlight", to=str(tmp_path / "out"), **options)


def rows(done: Converted) -> list[tuple]:
    table = pa.concat_tables(pq.read_table(path) for path in done.shards)
    return [tuple(row.values()) for row in table.to_pylist()]


@pytest.mark.parametrize(
    "text, expected",
    [
        ("1 0:2 3:0.5\n-1 1:1\n", [(1, [0, 3], [2, 0.5]), (-1, [1], [1])]),
        ("1 0:2", [(1, [0], [2])]),
        ("+1 0:+2\r\n-1\r\n", [(1, [0], [2]), (-1, [], [])]),
        ("\ufeff1 0:2\n", [(1, [0], [2])]),
        ("\n1 0:2\n\n \t\n2 1:1 \n\n", [(1, [0], [2]), (2, [1], [1])]),
        ("# head\n1 0:2 # a 9:9\n2#x\n", [(1, [0], [2]), (2, [], [])]),
        ("1 qid:7 0:2\n2 qid:8\n", [(1, [0], [2]), (2, [], [])]),
        ("1\t0:2   5:1e-3\n", [(1, [0, 5], [2, 1e-3])]),
        ("1 5:1 2:3\n", [(1, [2, 5], [3, 1])]),
        ("1 5:1 2:3 5:0.25 2:-3\n", [(1, [2, 5], [0, 1.25])]),
        ("1 007:1 8:0 9:.5 10:5.\n", [(1, [7, 8, 9, 10], [1, 0, 0.5, 5])]),
        ("0.5 2147483645:1\n", [(0.5, [2147483645], [1])]),
    ],
)
def test_legal_text(tmp_path, text, expected):
    """Each legal spelling gives these canonical rows, in shards that know their size."""
    done = svm(tmp_path, text)
    assert rows(done) == expected
    size = max([1, *(i + 1 for _, indices, _ in expected for i in indices)])
    assert done.size == size
    assert pq.read_schema(done.shards[0]).metadata[b"streamomd.size"] == str(size).encode()


BAD = [
    ("1 0:1\nx 1:1\n", "line 2", "'x'"),
    ("1 0:1\n\n# c\nnan 1:1\n", "line 4", "'nan'"),
    ("1 2\n", "line 1", "colon"),
    ("1 2 :3\n", "line 1", "'2'"),
    ("1 2: 3\n", "line 1", "'2:'"),
    ("1 a:3\n", "line 1", "'a:3'"),
    ("1 -1:3\n", "line 1", "'-1:3'"),
    ("1 1.0:3\n", "line 1", "'1.0:3'"),
    ("1 1e2:3\n", "line 1", "'1e2:3'"),
    ("1 2147483647:3\n", "line 1", "2147483647"),
    ("1 99999999999999999999:3\n", "line 1", "99999999999999999999"),
    ("1 0:nan\n", "line 1", "'0:nan'"),
    ("1 0:-inf\n", "line 1", "'0:-inf'"),
    ("1 0:1e999\n", "line 1", "overflows"),
    ("1 0:1_0\n", "line 1", "'0:1_0'"),
    ("1 0:0x10\n", "line 1", "'0:0x10'"),
    ("1 0:1:2\n", "line 1", "'0:1:2'"),
    ("1 0::2\n", "line 1", "'0::2'"),
    ("0:1 1:1\n", "line 1", "'0:1'"),
    ("1,2 1:1\n", "line 1", "'1,2'"),
    ("1 0:1 qid:3\n", "line 1", "'qid:3'"),
    ("1 qid:x 0:1\n", "line 1", "'qid:x'"),
    ("1 0:1 2:1\x00\n", "line 1", "2:1"),
    ("1 0:1e308 0:1e308\n", "line 1", "overflow"),
    ("", "no rows", "rows.svm"),
    ("# nothing\n\n", "no rows", "rows.svm"),
]


@pytest.mark.parametrize("text, where, what", BAD)
def test_bad_text_is_refused(tmp_path, text, where, what):
    """Each bad text is a DataError that names file, line and token, and leaves nothing."""
    with pytest.raises(DataError) as caught:
        svm(tmp_path, text)
    for word in ("rows.svm", where, what):
        assert word in str(caught.value)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "options, text, expected",
    [
        ({"zero_based": True}, "1 1:1\n", ([1], 2)),
        ({"zero_based": False}, "1 1:1 3:1\n", ([0, 2], 3)),
        ({"size": 10}, "1 9:1\n", ([9], 10)),
        ({"size": 10, "zero_based": False}, "1 10:1\n", ([9], 10)),
    ],
)
def test_index_options(tmp_path, options, text, expected):
    """zero_based and size make these coordinates, and this size."""
    done = svm(tmp_path, text, **options)
    assert (rows(done)[0][1], done.size) == expected


@pytest.mark.parametrize(
    "options, text",
    [
        ({"zero_based": False}, "1 0:1\n"),
        ({"size": 9}, "1 9:1\n"),
        ({"value_type": "float32"}, "1 0:1e39\n"),
    ],
)
def test_what_options_make_illegal(tmp_path, options, text):
    """An index below the first, one that the size does not hold, a value too large for float32."""
    with pytest.raises(DataError, match="line 1"):
        svm(tmp_path, text, **options)


@pytest.mark.parametrize("options", [{"zero_based": "yes"}, {"value_type": "int8"}, {"size": 0}])
def test_bad_options_are_refused(tmp_path, options):
    """An option that cannot be meant is a UsageError that names it."""
    with pytest.raises(UsageError, match=next(iter(options))):
        svm(tmp_path, "1 0:1\n", **options)


def random_text(rng: random.Random) -> bytes:
    """Mostly valid lines, made of the pieces that decide between valid and invalid."""
    odd = [
        "1:1:1",
        ":",
        "1:",
        ":1",
        "qid:3",
        "1e1:2",
        "-3:1",
        "1:nan",
        "x",
        "1 ",
        "7",
        "1:1\x01",
        "\r",
    ]
    lines = []
    for _ in range(rng.randrange(1, 6)):
        tokens = [rng.choice(["1", "-1", "+1", "0.5", "3e2", ""])]
        for _ in range(rng.randrange(5)):
            value = rng.choice(["1", "-.5", "2.", "1e-3", "+4", repr(rng.uniform(-9, 9))])
            tokens.append(f"{rng.randrange(30)}:{value}")
        if rng.random() < 0.15:
            tokens.insert(rng.randrange(len(tokens) + 1), rng.choice(odd))
        if rng.random() < 0.2:
            tokens.insert(1, "qid:5")
        if rng.random() < 0.1:
            tokens.append("# 1:1")
        lines.append(rng.choice([" ", "\t", "  "]).join(tokens))
    return "\n".join([*lines, ""]).encode()


def test_fast_is_strict():
    """On random text the fast pass gives the strict parser's bits, or None."""
    rng = random.Random(5)
    agreed = doubted = 0
    for _ in range(4000):
        text = random_text(rng)
        fast = parse_fast(text, ANY.first, ANY.end, F64)
        try:
            strict = parse_strict(text, 1, "text", ANY, F64)
        except DataError:
            assert fast is None, text
            continue
        if fast is None:
            doubted += 1
            continue
        agreed += 1
        assert fast[0].tobytes() == strict[0].tobytes(), text
        for one, other in zip(fast[1], strict[1], strict=True):
            assert (one.dtype, one.tobytes()) == (other.dtype, other.tobytes()), text
    assert agreed > 1000
    assert doubted < agreed / 10


def test_lines_are_numbered_across_blocks(tmp_path, monkeypatch):
    """Text cut at any length of block gives the same rows, and errors the same line."""
    monkeypatch.setattr(text_source.blocks, "__defaults__", (7,))
    text = "".join(f"{i} {i}:1 {i + 3}:0.5\n" for i in range(50))
    assert [row[0] for row in rows(svm(tmp_path, text))] == list(range(50))
    with pytest.raises(DataError, match="line 51:"):
        svm(tmp_path, text + "x\n", overwrite=True)


def test_a_line_without_end_is_refused(tmp_path, monkeypatch):
    """A line longer than the limit is a DataError, not memory without end."""
    monkeypatch.setattr(text_source, "LONGEST_LINE", 1000)
    monkeypatch.setattr(text_source.blocks, "__defaults__", (100,))
    with pytest.raises(DataError, match="line 2 is longer"):
        svm(tmp_path, "1 1:1\n" + "1" * 5000)


def test_every_shard_holds_the_final_size(tmp_path, monkeypatch):
    """A shard written before the largest index was seen knows it all the same."""
    text = "".join(f"1 {i}:1\n" for i in range(20))
    for extra in ({"rows_per_shard": 3}, {"shards": 7}, {"rows_per_shard": 3, "shuffle": 1}):
        done = svm(tmp_path, text, overwrite=True, **extra)
        assert done.size == 20
        assert len(done.shards) == 7
        for path in done.shards:
            assert pq.read_schema(path).metadata[b"streamomd.size"] == b"20"
    monkeypatch.setattr(shard_writer, "MOST_OPEN", 3)
    with pytest.raises(UsageError, match="pass size"):
        svm(tmp_path, text, overwrite=True, rows_per_shard=3)
    assert len(svm(tmp_path, text, overwrite=True, rows_per_shard=3, size=20).shards) == 7


@pytest.mark.parametrize(
    "name, count, positive, nonzeros, size",
    [
        ("a9a/adult.trn.bz2", 32561, 7841, None, 123),
        ("w8a/w8a.gz", 49749, 1479, 579586, 301),
        ("ijcnn1/ijcnn1.trn.bz2", 49990, 4853, None, 23),
    ],
)
def test_real_files(tmp_path, name, count, positive, nonzeros, size):
    """Rows, positive rows, non-zeros and size are those published."""
    done = convert([real(name)], source_format="svmlight", to=str(tmp_path / "out"))
    table = pq.read_table(done.shards[0])
    assert (done.rows, done.size) == (count, size)
    assert table["label"].to_pylist().count(1.0) == positive
    assert nonzeros in (None, len(table["values"].combine_chunks().values))
