"""Canonical rows, murmur3 and the bounded table of names."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamomd.checkpoint import sealed_json
from streamomd.features import Names
from streamomd.features.csr import canonical, out_of_order
from streamomd.features.hashed import as_bytes, category, coordinate

ENTRY = st.tuples(st.integers(0, 6), st.floats(-1e3, 1e3))
ROWS = st.lists(st.lists(ENTRY, max_size=9), max_size=9)


def csr(rows, dtype=np.float64):
    indptr = np.cumsum([0, *map(len, rows)]).astype(np.int64)
    flat = [entry for row in rows for entry in row]
    indices = np.array([index for index, _ in flat], np.int32)
    return indptr, indices, np.array([value for _, value in flat], dtype)


def slow(row):
    """A row's sums, one addition after the other."""
    sums: dict[int, float] = {}
    for index, value in row:
        sums[index] = sums[index] + value if index in sums else value
    return sorted(sums.items())


@settings(deadline=None)  # the first one may compile
@given(ROWS)
def test_canonical_is_the_slow_sum(rows):
    """Any rows become ascending, distinct, and summed in order of appearance, to the bit."""
    indptr, indices, values = canonical(*csr(rows))
    made = [
        list(zip(indices[a:b].tolist(), values[a:b].tolist(), strict=True))
        for a, b in pairwise(indptr.tolist())
    ]
    assert repr(made) == repr([slow(row) for row in rows])
    assert (indptr.dtype, indices.dtype) == (np.int64, np.int32)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_long_rows_too(dtype):
    """Rows of every length to 130, in any order, with many equal coordinates: the slow sum."""
    rng = np.random.default_rng(0)
    rows = [
        [(int(k), float(np.float32(v))) for k, v in zip(keys, rng.normal(size=size), strict=True)]
        for size in range(130)
        for keys in (rng.integers(0, 1 + size // 2, size), -np.arange(-size, 0))
    ]
    indptr, indices, values = canonical(*csr(rows, dtype))
    expected = csr([slow(row) for row in rows], dtype)
    assert np.array_equal(indptr, expected[0])
    assert np.array_equal(indices, expected[1])
    assert values.tobytes() == expected[2].tobytes()


@settings(deadline=None)  # the first one may compile
@given(ROWS)
def test_canonical_again_changes_nothing(rows):
    """Canonical rows are handed back as the same arrays, and the input is never written."""
    given_rows = csr(rows)
    before = [array.copy() for array in given_rows]
    once = canonical(*given_rows)
    assert all(a is b for a, b in zip(canonical(*once), once, strict=True))
    assert all(np.array_equal(a, b) for a, b in zip(given_rows, before, strict=True))


@settings(deadline=None)  # the first one may compile
@given(ROWS)
def test_rows_out_of_order_are_found(rows):
    """Exactly the rows that do not ascend strictly are found, in order."""
    keys = [[index for index, _ in row] for row in rows]
    wrong = [r for r, row in enumerate(keys) if row != sorted(set(row))]
    assert out_of_order(*csr(rows)[:2]).tolist() == wrong


def test_float32_sums_in_float64():
    """float32 duplicates are summed in float64 and rounded once."""
    row = [(0, 1.0), (0, 2.0**-24), (0, 2.0**-24)]
    _, _, values = canonical(*csr([row], np.float32))
    assert values.dtype == np.float32
    assert values.tolist() == [1.0 + 2.0**-23]


@pytest.mark.parametrize(
    "text, seed, expected",
    [
        (b"", 0, 0),
        (b"", 1, 0x514E28B7),
        (b"", 0xFFFFFFFF, 0x81F16F39),
        (b"\xff\xff\xff\xff", 0, 0x76293B50),
        (b"!Ce\x87", 0, 0xF55B516B),
        (b"!Ce\x87", 0x5082EDEE, 0x2362F9DE),
        (b"!", 0, 0x72661CF4),
        (b"\0\0\0\0", 0, 0x2362F9DE),
        (b"Hello, world!", 0x9747B28C, 0x24884CBA),
        ("ππππππππ".encode(), 0x9747B28C, 0xD58063C1),
    ],
)
def test_murmur3_vectors(text, seed, expected):
    """The hash is murmur3 x86_32: published vectors agree, and bits are the lowest ones."""
    assert coordinate(text, seed, 32) == expected
    assert coordinate(text, seed, 18) == expected % 2**18


def test_null_is_no_text():
    """No UTF-8 value of a column hashes the bytes of its null category."""
    with pytest.raises(UnicodeDecodeError):
        category("job", None).decode()
    assert category("job", b"") == b"job="


@pytest.mark.parametrize(
    "values, texts",
    [
        (pa.array([True, False, None]), [b"true", b"false", None]),
        (pa.array([1, -2], pa.int8()), [b"1", b"-2"]),
        (pa.array([2**64 - 1], pa.uint64()), [b"18446744073709551615"]),
        (pa.array([1.0, 0.1, 1e300, -0.0]), [b"1.0", b"0.1", b"1e+300", b"0.0"]),
        (pa.array(["é", ""]), ["é".encode(), b""]),
        (pa.array([b"\xff"]), [b"\xff"]),
        (pa.array([b"ab"], pa.binary(2)), [b"ab"]),
    ],
)
def test_values_have_one_text(values, texts):
    """Each kind of value is written as one text to hash."""
    assert as_bytes(values).to_pylist() == texts


def test_names_are_bounded():
    """At most 65,536 coordinates and 4 names each are kept; a fifth is told as "+"."""
    names = Names()
    names.note("a", range(70_000), [str(k).encode() for k in range(70_000)])
    names.note("b", [5] * 9, [str(k).encode() for k in range(9)])
    assert len(names) == 65_536
    assert names.at(5) == ("a=5", "b=0", "b=1", "b=2", "+")
    assert names.at(69_999) == ()


def test_names_survive_json():
    """A table read back from JSON text names the same, and goes on counting."""
    names = Names()
    names.note("b", [3] * 6, [str(k).encode() for k in range(6)])
    names.note("c", [9], [b"x"])
    again = Names.from_json(json.loads(json.dumps(names.to_json())))
    assert again.to_json() == names.to_json()
    again.note("new", [3], [None])
    again.note("c", [9], [b"x"])
    assert (again.at(3), again.at(9)) == (names.at(3), ("c=x",))


@pytest.mark.parametrize("strange", ["", 'é"\\\n', "\x7f", "\x1f 𝄞", "~ !#[]\u2028"])
def test_a_document_of_names_is_their_canonical_json(strange: str) -> None:
    """Coordinates in the order of their text, names in the order in which they came, in ASCII; also
    of a table that was read back, and of one that has more since."""
    names = Names()
    assert names.document() == b"{}"
    places = [0, 9, 10, 99, 100, 1000, 12345, 2**18, 2**31 - 2, 10**9, 10**9 - 1, 101, 11]
    for number in range(7):
        values = [
            f"{strange}{place * (number // 2)}{strange}".encode() for place in places[number:]
        ]
        names.note(f"c{strange}", places[number:], values)
        oracle = {str(place): list(names.at(place)) for place in places}
        text = json.dumps(oracle, sort_keys=True, separators=(",", ":"))
        assert names.document() == text.encode()
        assert Names.from_json(json.loads(text)).document() == text.encode()
    names.note("b", [5], [b"\xff"])
    assert json.loads(names.document())["5"] == ["b=\\xff"]
    names = Names.from_json(json.loads(names.document()))
    names.note("b", [4], [b"x"])
    assert names.document() == sealed_json.canonical(names.to_json())


def test_tables_of_names_join_as_if_one_had_seen_all():
    """Within the same bounds, and in the order in which they are joined."""
    seen = [(value % 7, str(value).encode()) for n in range(200) for value in [n * n % 97]]
    whole, parts = Names(), [Names(), Names()]
    for number, (place, value) in enumerate(seen):
        whole.note("a", [place], [value])
        parts[number // 100].note("a", [place], [value])
    parts[0].update(parts[1].seen())
    assert parts[0].to_json() == whole.to_json()
    assert "+" in whole.at(0)


def test_what_is_new_is_what_another_table_tells_otherwise():
    """Joined to the other, it makes the whole table."""
    known, names = Names(), Names()
    known.note("a", [1, 2], [b"x", b"y"])
    names.update(known.seen())
    names.note("a", [2, 3, 1], [b"z", b"u", b"x"])
    assert names.new(known) == {2: ("a=y", "a=z"), 3: ("a=u",)}
    known.update(names.new(known))
    assert known.to_json() == names.to_json()


def test_threads_add_names_at_once():
    """Names added by several threads are all there, once each."""
    names = Names()

    def add(_):
        for place in range(3000):
            names.note("a", [place], [str(place).encode()])

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(add, range(4)))
    assert len(names) == 3000
    assert all(names.at(place) == (f"a={place}",) for place in range(3000))
