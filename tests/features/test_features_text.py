"""Texts, crosses, dates and indicators against a featuriser that goes character by character."""

from __future__ import annotations

import dataclasses
import datetime
import math
from collections import Counter
from itertools import pairwise
from typing import get_args

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from slow_features import WORTH, featurised, words_of

from streamomd.config.data_table import Data
from streamomd.config.data_table import Text as TextOfJob
from streamomd.config.model_table import Model
from streamomd.core.batch import DenseBatch
from streamomd.core.errors import BadRowError
from streamomd.features import Names, encode, make_plan, name_of
from streamomd.features import text as rows_module
from streamomd.features import text as text_module
from streamomd.features.hashed import coordinate
from streamomd.features.kernels import split_words
from streamomd.features.kernels import write_texts as kernel
from streamomd.features.plan_columns import COUNTED
from streamomd.features.text import look_up, lower_cases

NAN = float("nan")
TEXTS = st.text("aAbB1_ -'.\n^\\=éÉ\u0301İßΣσςिक語½😀\x00\u2028", max_size=12)
VALUES = st.sampled_from(["a", "b", "^", "\\", "\\N", "a^b", "", "é", "a=b"])
MOMENTS = st.datetimes(datetime.datetime(1900, 1, 1), datetime.datetime(2200, 1, 1))
TOKYO = datetime.timezone(datetime.timedelta(hours=9))


def within(most: float) -> st.SearchStrategy[float]:
    """Numbers in the range of every rule."""
    return st.floats(-most, most).filter(lambda x: x == 0.0 or abs(x) > 1e-100)


MAYBE = {
    "n": within(1e3) | st.just(NAN),
    "k": st.integers(-9, 9),
    "e": st.lists(within(9.0) | st.none() | st.just(NAN), min_size=2, max_size=2),
    "h": VALUES,
    "g": VALUES,
    "c": st.integers(-3, 3),
    "b": st.booleans(),
    "t": TEXTS,
    "u": TEXTS,
    "d": MOMENTS.map(datetime.datetime.date),
    "s": MOMENTS,
    "z": MOMENTS.map(lambda moment: moment.replace(tzinfo=TOKYO)),
}
ROWS = st.lists(
    st.fixed_dictionaries({name: st.none() | values for name, values in MAYBE.items()}), max_size=6
)
TYPES = {
    "n": [pa.float64(), pa.float64()],
    "k": [pa.int8(), pa.int64()],
    "e": [pa.list_(pa.float64(), 2)] * 2,
    "h": [pa.string(), pa.dictionary(pa.int8(), pa.string())],
    "g": [pa.dictionary(pa.int32(), pa.string()), pa.large_string()],
    "c": [pa.int64(), pa.int16()],
    "b": [pa.bool_(), pa.bool_()],
    "t": [pa.string(), pa.dictionary(pa.int8(), pa.string())],
    "u": [pa.large_string(), pa.string_view()],
    "d": [pa.date32(), pa.date64()],
    "s": [pa.timestamp("us"), pa.timestamp("us")],
    "z": [pa.timestamp("us", "Asia/Tokyo"), pa.timestamp("us", "+02:00")],
}
HOURS = ("year", "month", "weekday", "hour")
JOB = {
    "numeric": ["n", "k"],
    "vectors": {"e": 2},
    "hashed": ["h", "b"],
    "dates": {"d": HOURS[:3], "s": HOURS, "z": HOURS},
    "crosses": [["h", "g"], ["g", "c", "b"], ["s.hour", "z.weekday"]],
    "text": [("t", 1, "count"), ("u", 3, "log")],
    "nulls": "indicator",
    "bits": 12,
    "hash_seed": 0,
}


def batch_of(rows, stored=0):
    arrays = {name: pa.array([row[name] for row in rows], TYPES[name][stored]) for name in MAYBE}
    return pa.RecordBatch.from_pydict({"y": pa.array([0] * len(rows), pa.int64()), **arrays})


def plan_of(schema, job):
    texts = [{"column": name, "ngrams": most, "counts": how} for name, most, how in job["text"]]
    named = {*job["numeric"], *job["vectors"], *job["hashed"], *job["dates"], "y"}
    named |= {name for name, *_ in job["text"]}
    told = {**job, "vectors": [*job["vectors"]], "dates": [*job["dates"]], "text": texts}
    told["ignore"] = [name for name in schema.names if name not in named]  # crossed or not
    data = Data.model_validate({"label": "y", **told})
    model = Model.model_validate({"loss": "square"})
    return make_plan(data, model, schema, list)


def encoded(plan, batch, **how):
    return encode(plan, batch, shard="s.parquet", row=100, **how)


def dicts(made):
    cuts = pairwise(made.indptr.tolist())
    return [
        dict(zip((made.indices[a:b] + 1).tolist(), made.values[a:b].tolist(), strict=True))
        for a, b in cuts
    ]


JOBS = {
    "wide": {},
    "colliding": {"bits": 2, "hash_seed": 7},
    "text alone": {"numeric": [], "vectors": {}, "hashed": [], "dates": {}, "crosses": []},
    "crosses alone": {"numeric": [], "vectors": {}, "hashed": [], "text": []},
    "logs that collide": {"text": [("t", 2, "log"), ("u", 1, "log")], "bits": 1},
    **{f"text, {how}": {"text": [("t", 2, how)], "bits": 6} for how in COUNTED},
}


def agrees(rows, name, stored):
    """Every row is what the slow featuriser makes of it, value for value."""
    job = {**JOB, **JOBS[name]}
    batch = batch_of(rows, stored)
    plan = plan_of(batch.schema, job)
    made = dicts(encoded(plan, batch))
    expected = [featurised(row, job) for row in rows]
    assert [[*row.items()] for row in made] == [[*row.items()] for row in expected]
    assert all(at < plan.size for row in made for at in row)


DRAWN = {"rows": ROWS, "name": st.sampled_from([*JOBS]), "stored": st.integers(0, 1)}


@settings(max_examples=40, deadline=None)
@given(**DRAWN)
def test_it_is_what_the_slow_featuriser_says(rows, name, stored):
    """Any table, with every kind of column however it is stored."""
    agrees(rows, name, stored)


@pytest.mark.slow
@settings(max_examples=400, deadline=None)
@given(**DRAWN)
def test_it_is_what_the_slow_featuriser_says_for_long(rows, name, stored):
    """The same, of very many tables."""
    agrees(rows, name, stored)


@settings(max_examples=12, deadline=None)
@given(rows=ROWS, cut=st.integers(0, 6))
def test_cut_anywhere_it_is_the_same(rows, cut):
    """Two halves, encoded one by one, have the bits of the whole."""
    batch = batch_of(rows)
    plan = plan_of(batch.schema, {**JOB, "bits": 3})
    whole = encoded(plan, batch)
    halves = [encoded(plan, some) for some in (batch.slice(0, cut), batch.slice(cut))]
    for name in ("indices", "values"):
        parts = [getattr(half, name) for half in halves]
        assert np.concatenate(parts).tobytes() == getattr(whole, name).tobytes()


def words(text):
    """A text's words as the functions that numba compiles split it, in plain Python."""
    given, size = np.frombuffer(text.encode(), np.uint8), 3 * len(text.encode())
    eights, edges = np.full(size // 16 + 9, -1), np.full(size + 9, -1)
    letters, unknown = eights.view(np.uint8), np.ones(1, np.uint32)
    eights[: split_words.FRONT // 8] = 0
    ascii_edges = split_words.split_ascii(given, letters, eights, edges)
    found = [] if ascii_edges < 0 else between(letters, edges[:ascii_edges])
    assert text.isascii() == (ascii_edges >= 0)
    while unknown[0]:
        look_up(unknown.tolist(), lower_cases())
        count = split_words.split_any(given, lower_cases(), letters, edges, unknown)
    assert ascii_edges < 0 or between(letters, edges[:count]) == found
    return between(letters, edges[:count])


def between(letters, edges):
    pairs = zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True)
    return [letters[begin:end].tobytes().decode() for begin, end in pairs]


@settings(max_examples=50, deadline=None)
@given(st.text(max_size=40) | TEXTS)
def test_words(text):
    """Of any text, in any script: as one character after the other gives them."""
    assert words(text) == words_of(text)


WORDS = [
    ("It's GOOD, isn't it", ["it", "s", "good", "isn", "t", "it"]),
    ("snake_case x2 ½", ["snake_case", "x2", "½"]),
    ("ΣΊΣΥΦΟΣ İstanbul", ["σίσυφοσ", "istanbul"]),  # no final sigma: each character by itself
    ("हिन्दी 日本語", ["हिन्दी", "日本語"]),
    ("line\nbreak\ttab\x00nul", ["line", "break", "tab", "nul"]),
    ("cafe\u0301", ["cafe\u0301"]),
    ("... !?", []),
]


@pytest.mark.parametrize("text, expected", WORDS)
def test_words_by_example(text, expected):
    """What a word is, in some scripts; line ends and zeros stand between words."""
    assert words_of(text) == words(text) == expected


def one_text(column, **job):
    told = {"numeric": [], "vectors": {}, "hashed": [], "dates": {}, "crosses": [], **job}
    batch = pa.RecordBatch.from_pydict({"y": [0] * len(column), "t": column})
    return plan_of(batch.schema, {**JOB, "bits": 30, "text": [("t", 1, "count")], **told}), batch


def test_counts_and_names():
    """A word's coordinate is the hash of column=word, its value how often it stands there."""
    plan, batch = one_text(pa.array(["no no yes", None, ""]), text=[("t", 2, "count")])
    names = Names()
    made = dicts(encoded(plan, batch, names=names))
    grams = {b"t=no": 2.0, b"t=yes": 1.0, b"t=no no": 1.0, b"t=no yes": 1.0}
    assert made == [{1 + coordinate(gram, 0, 30): n for gram, n in grams.items()}, {}, {}]
    assert {name_of(plan, names, at) for at in made[0]} == {gram.decode() for gram in grams}


def test_a_text_that_comes_again_is_split_once(monkeypatch):
    """In a dictionary, or where the first texts are few distinct ones; else row by row."""
    looked = []
    inner = text_module.text_rows
    monkeypatch.setattr(
        text_module,
        "text_rows",
        lambda texts, *more: looked.append(len(texts)) or inner(texts, *more),
    )
    plain = pa.array([None, "a b", "c", *["a b", "c"] * 500])
    coded = pa.concat_arrays([plain.slice(0, 1), plain]).dictionary_encode().slice(1)
    made = [encoded(*one_text(column)) for column in (coded, plain)]
    assert looked == [3, 3]  # the two, and the empty text that stands for nulls
    monkeypatch.setattr(text_module, "_LOOKED_AT", 3)
    made.append(encoded(*one_text(plain)))
    assert looked == [3, 3, 1003]
    for name in ("indptr", "indices", "values"):
        assert len({getattr(batch, name).tobytes() for batch in made}) == 1


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.string_view(), pa.binary()])
def test_no_rows(kind):
    """No rows are none, also where Arrow keeps not even an offset."""
    bare = pa.array([], kind)
    columns = [bare, pa.array(["a", None], kind).slice(1, 0)]
    if kind == pa.string():
        columns.append(pa.StringArray.from_buffers(0, pa.py_buffer(b""), pa.py_buffer(b"")))
        columns.append(bare.dictionary_encode())
    for column in columns:
        schema = pa.schema({"y": pa.int64(), "t": column.type})
        plan, _ = one_text(pa.array(["a"], pa.string()))
        assert (
            len(
                encoded(
                    plan,
                    pa.RecordBatch.from_arrays([pa.array([], pa.int64()), column], schema=schema),
                )
            )
            == 0
        )


def test_what_lies_under_a_null_is_not_read():
    """A null may have bytes of its own: they are no words."""
    texts = pa.array(["under", "seen"])
    column = pa.StringArray.from_buffers(2, *texts.buffers()[1:], pa.py_buffer(b"\x02"))
    assert [len(row) for row in dicts(encoded(*one_text(column)))] == [0, 1]


@pytest.mark.slow
def test_every_character_there_is():
    """Alone and inside a word, each as Python's tables say; no lower case outgrows its room."""
    numbers = np.r_[0:0xD800, 0xE000:0x110000].astype("<u4")
    told = numbers.tobytes().decode("utf-32-le")
    text = "".join(f"A{character}B " for character in told)
    plan, batch = one_text(pa.array([text, told[::-1]]))
    for row, one in zip(dicts(encoded(plan, batch)), (text, told[::-1]), strict=True):
        at = [1 + coordinate(b"t=" + word.encode(), 0, 30) for word in words_of(one)]
        assert row == Counter(at)


LONG = st.lists(st.sampled_from(["a", "B_1", "ab-c", "  ", "é", "K", "ȺȾ", "w" * 99]), max_size=300)


@settings(max_examples=30, deadline=None)
@given(
    texts=st.lists(LONG.map(" ".join), min_size=1, max_size=4),
    bits=st.sampled_from([1, 8, 9, 10, 18, 19, 27, 28, 30]),
    bias=st.booleans(),
    room=st.sampled_from([1, 1 << 12]),
)
def test_long_texts_are_counted_as_a_counter_does(texts, bits, bias, room):
    """However many words a text has, however many of its coordinates' bits are looked at, and
    wherever names are noted. Each word has its name.
    """
    plan, batch = one_text(pa.array(texts, pa.string()), bits=bits)
    plan, names = dataclasses.replace(plan, bias=bias), Names()
    with pytest.MonkeyPatch.context() as patch:
        for limit in ("_UNNAMED", "_LETTERS", "_UNKNOWN"):
            patch.setattr(rows_module, limit, room)
        made = encoded(plan, batch, names=names)
    named = {name for known in names.seen().values() for name in known}
    assert named - {"+"} <= {f"t={word}" for text in texts for word in words_of(text)}
    assert bits < 18 or named == {f"t={word}" for text in texts for word in words_of(text)}
    rows = [slice(a, b) for a, b in pairwise(made.indptr.tolist())]
    for text, row in zip(texts, rows, strict=True):
        at = [coordinate(b"t=" + word.encode(), 0, bits) for word in words_of(text)]
        told = zip(made.indices[row].tolist(), made.values[row].tolist(), strict=True)
        assert [*told] == sorted(Counter(at).items())


@pytest.mark.parametrize("most, counts", [(1, "presence"), (1, "count"), (3, "count")])
def test_plain_python_writes_rows_as_compiled_code_does(most, counts, monkeypatch):
    """The functions that are compiled have the same bits where they are not."""
    texts = [
        "Ab, ΣȺ😀语 İx_1",
        "",
        "a a b " * 99,
        "Some words of a plain TEXT; antidisestablishment",
    ]
    plan, batch = one_text(pa.array(texts), text=[("t", most, counts)], bits=18)
    made = []
    for _ in range(2):
        names = Names()
        rows = encoded(plan, batch, names=names)
        arrays = [getattr(rows, name).tobytes() for name in ("indptr", "indices", "values")]
        made.append((arrays, names.seen()))
        monkeypatch.setattr(kernel, "row_writer", lambda: kernel.write_rows)
    assert made[0] == made[1]


def test_texts_of_very_short_words_get_more_room():
    """Where a text has more words than its bytes let one expect, no word is lost."""
    known = [f"{one}{two}" for one in "abcdefghij" for two in "klmnopqrst"]
    texts = [" ".join(known[at:] + known[:at]) for at in range(60)]
    plan, batch = one_text(pa.array(texts))
    assert dicts(encoded(plan, batch)) == dicts(encoded(plan, batch.slice(0, 1))) * 60


def test_a_full_table_of_names_looks_at_some_texts(monkeypatch):
    """Every 32nd: all that it could still take are second names of its coordinates."""
    plan, batch = one_text(pa.array([f"word{at}" for at in range(70)]))
    monkeypatch.setattr(Names, "is_full", True)
    names = Names()
    assert len(dicts(encoded(plan, batch, names=names))) == 70
    found = {name for known in names.seen().values() for name in known}
    assert found == {"t=word0", "t=word32", "t=word64"}


BROKEN = pa.StringArray.from_buffers(
    3,
    pa.array([b"ok", b"\xff\xfe" * 90, b"fine"]).buffers()[1],
    pa.array([b"ok", b"\xff\xfe" * 90, b"fine"]).buffers()[2],
)


@pytest.mark.parametrize("column", [BROKEN, BROKEN.cast(pa.binary())], ids=["string", "binary"])
def test_text_that_is_not_utf8_is_a_bad_row(column):
    """Nobody knows its letters: it is told with row and column, or left out and counted."""
    plan, batch = one_text(column)
    with pytest.raises(BadRowError, match=r"row 101, column 't': found .*\\xff.*UTF-8") as caught:
        encoded(plan, batch)
    assert caught.value.reason == "utf8"
    assert len(str(caught.value)) < 300
    assert len(encoded(plan, batch.take([0, 2]))) == 2


def test_a_huge_text():
    """A hundred thousand words in one text are as exact as one."""
    plan, batch = one_text(pa.array(["Word " * 100_000 + "é", "x"]), text=[("t", 1, "log")])
    first, second = dicts(encoded(plan, batch))
    assert first[1 + coordinate(b"t=word", 0, 30)] == math.log1p(1e5)
    assert len(first) == 2
    assert [*second] == [1 + coordinate(b"t=x", 0, 30)]


def test_logs_are_never_rounded_to_float32():
    """1 and counts fit float32, which other columns may ask for; their logarithms do not."""
    numbers = pa.array([1.0], pa.float32())
    batch = pa.RecordBatch.from_pydict({"y": [0], "n": numbers, "t": ["a a"]})
    job = {**JOB, "numeric": ["n"], "vectors": {}, "hashed": [], "dates": {}, "crosses": []}
    for counts in COUNTED:
        dtype = np.float64 if counts == "log" else np.float32
        plan = plan_of(batch.schema, {**job, "text": [("t", 1, counts)]})
        assert encoded(plan, batch).values.dtype == dtype


def test_dense_rows_stay_dense():
    """Numbers and indicators alone are a matrix: a null or NaN is 0, and 1 at the row's end."""
    columns = {
        "n": pa.array([1.5, None, NAN]),
        "k": pa.array([None, 7, 8], pa.int8()),
        "e": pa.FixedSizeListArray.from_arrays(  # of a null vector, values may lie under it
            pa.array([1.0, NAN, 9.0, 9.0, 3.0, 4.0]), 2, mask=pa.array([False, True, False])
        ),
    }
    batch = pa.RecordBatch.from_pydict({"y": [0, 1, 2], **columns})
    job = {**JOB, "hashed": [], "dates": {}, "crosses": [], "text": []}
    plan = plan_of(batch.schema, job)
    made = encoded(plan, batch)
    assert isinstance(made, DenseBatch)
    assert made.values.tolist() == [
        [1.5, 0, 1, 0, 0, 1, 1],
        [0, 7, 0, 0, 1, 0, 1],
        [0, 8, 3, 4, 1, 0, 0],
    ]
    names = [name_of(plan, Names(), at) for at in range(5, 8)]
    assert names == ["n is null", "k is null", "e is null"]
    assert plan.size == 8
    batch = batch.set_column(1, "n", pa.array([1.0, 2.0, float("inf")]))
    with pytest.raises(BadRowError, match="row 102, column 'n': found inf"):
        encoded(plan, batch)


def test_a_job_may_say_whatever_a_word_can_be_worth():
    """What a job may say, what is told of it and what is made of it are the same list."""
    said = get_args(TextOfJob.model_fields["counts"].annotation)
    assert set(said) == set(COUNTED) == set(WORTH)
