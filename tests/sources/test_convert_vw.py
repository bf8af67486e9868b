"""VW text into shards: names hashed as documented, bad lines refused."""

from __future__ import annotations

from pathlib import Path

import mmh3
import numpy as np
import pyarrow.parquet as pq
import pytest
from test_convert_csv import real
from test_convert_svmlight import rows

from streamomd.core.errors import DataError, UsageError
from streamomd.sources.text import vw_source
from streamomd.sources.text.conversion import Converted
from streamomd.sources.text.convert import convert


def vw(tmp_path: Path, text: str, **options) -> Converted:
    source = tmp_path / "rows.vw"
    source.write_bytes(text.encode())
    return convert([str(source)], source_format="vw", to=str(tmp_path / "out"), **options)


def place(text: str, bits: int = 18, seed: int = 0) -> int:
    return mmh3.hash(text.encode(), seed, signed=False) % (1 << bits)


def row(label: float, weight: float, **features: float) -> tuple:
    pairs = sorted((place(name), value) for name, value in features.items())
    return label, weight, [i for i, _ in pairs], [v for _, v in pairs]


@pytest.mark.parametrize(
    "text, expected",
    [
        ("1 | a b:2\n", row(1, 1, a=1, b=2)),
        ("-1 |n a b:2", row(-1, 1, **{"n^a": 1, "n^b": 2})),
        ("1 0.5 |n a\r\n", row(1, 0.5, **{"n^a": 1})),
        ("1 0 'tag|n a\n", row(1, 0, **{"n^a": 1})),
        ("1 'tag |n a\n", row(1, 1, **{"n^a": 1})),
        ("1 2 tag|n a\n", row(1, 2, **{"n^a": 1})),
        ("\n1 |n:0.5 a:4 b |m a | c\n\n", row(1, 1, **{"n^a": 2, "n^b": 0.5, "m^a": 1, "c": 1})),
        ("1 |n a:1 a:0.5\n", row(1, 1, **{"n^a": 1.5})),
        ("\ufeff1 |é ü:-1e-3\n", row(1, 1, **{"é^ü": float(np.float32(-1e-3))})),
        ("1 |n\n", row(1, 1)),
        ("1\n", row(1, 1)),
    ],
)
def test_legal_lines(tmp_path, text, expected):
    """Each legal spelling gives this label, weight, indices and values."""
    done = vw(tmp_path, text)
    assert rows(done) == [expected]
    assert pq.read_schema(done.shards[0]).metadata[b"streamomd.size"] == b"262144"


@pytest.mark.parametrize(
    "text, where, what",
    [
        ("1 | a\n| a\n", "line 2", "no label"),
        ("1|f a\n", "line 1", "space after"),
        ("'tag | a\n", "line 1", "no label"),
        ("x | a\n", "line 1", "'x'"),
        ("nan | a\n", "line 1", "'nan'"),
        ("1 -1 | a\n", "line 1", "negative"),
        ("1 inf | a\n", "line 1", "'inf'"),
        ("1 1 0.5 | a\n", "line 1", "initial prediction"),
        ("1 | a:x\n", "line 1", "'a:x'"),
        ("1 | a:\n", "line 1", "'a:'"),
        ("1 | a:nan\n", "line 1", "'a:nan'"),
        ("1 | a:1:2\n", "line 1", "'a:1:2'"),
        ("1 | :1\n", "line 1", "no name"),
        ("1 |:1 a\n", "line 1", "no name"),
        ("1 |n:z a\n", "line 1", "'n:z'"),
        ("1 | a:1e39\n", "line 1", "overflows"),
        ("1 |n:1e30 a:1e30\n", "line 1", "overflows"),
        ("1 | a:3e38 a:3e38\n", "line 1", "overflow"),
        ("", "no rows", "rows.vw"),
        ("\n\n", "no rows", "rows.vw"),
    ],
)
def test_bad_lines_are_refused(tmp_path, text, where, what):
    """Each bad text is a DataError that names file, line and token, and leaves nothing."""
    with pytest.raises(DataError) as caught:
        vw(tmp_path, text)
    for word in ("rows.vw", where, what):
        assert word in str(caught.value)
    assert not (tmp_path / "out").exists()


def test_bits_and_seed(tmp_path, monkeypatch):
    """bits and hash_seed choose the coordinate, whether or not the name is still remembered."""
    monkeypatch.setattr(vw_source, "MOST_NAMES", 2)
    done = vw(tmp_path, "1 |n a b c\n1 |n a b c\n", bits=5, hash_seed=9)
    expected = sorted(place(f"n^{name}", 5, 9) for name in "abc")
    assert done.size == 32
    assert [r[2] for r in rows(done)] == [expected, expected]


@pytest.mark.parametrize("options", [{"bits": 0}, {"bits": 31}, {"hash_seed": -1}])
def test_bad_options_are_refused(tmp_path, options):
    """An option that cannot be meant is a UsageError that names it."""
    with pytest.raises(UsageError, match=next(iter(options))):
        vw(tmp_path, "1 | a\n", **options)


def test_rcv1_sample(tmp_path):
    """The RCV1 sample: rows, positive rows, and non-zeros but for those that fall together."""
    source = real("rcv1-small/rcv1_small.dat.gz")
    done = convert([source], source_format="vw", to=str(tmp_path / "out"), bits=28)
    table = pq.read_table(done.shards[0])
    assert done.rows == 1000
    assert done.size == 2**28
    assert table["label"].to_pylist().count(1.0) == 459
    assert set(table["weight"].to_pylist()) == {1.0}
    assert 77739 - 20 <= len(table["v"].combine_chunks().values) <= 77739
