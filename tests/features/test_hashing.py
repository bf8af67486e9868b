"""Compiled hashing: mmh3's bits over Arrow's buffers, and names told of all that they may keep."""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import mmh3
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamomd.config.data_table import Data
from streamomd.config.model_table import Model
from streamomd.features import Names, make_plan
from streamomd.features.hashed import HashedValues, categories, category, places
from streamomd.features.kernels import murmur3
from streamomd.features.kernels.murmur3 import murmur, prefix_state

SCHEMA = pa.schema({"y": pa.float64(), "c": pa.string()})
KINDS = (pa.binary(), pa.large_binary(), pa.binary_view())


def plan_of(bits=30, **data):
    data = Data.model_validate({"label": "y", "hashed": ["c"], "bits": bits, **data})
    return make_plan(data, Model.model_validate({"loss": "square"}), SCHEMA, list)


def expected(plan, column, values):
    """The coordinates of values, one by one, by mmh3."""
    hashes = [mmh3.hash(category(column, v), plan.hash_seed, signed=False) for v in values]
    return [plan.hashed_offset + h % 2**plan.bits for h in hashes]


@pytest.mark.parametrize("seed", [0, 1, 2**31, 2**32 - 1])
@pytest.mark.parametrize("prefix", [b"", b"a", b"ab", b"abc", b"abcd", b"caf\xc3\xa9="])
def test_every_length_has_the_bits_of_mmh3(seed, prefix):
    """Prefixes of each rest, texts of 0 … 40 bytes: compiled and plain Python agree with mmh3."""
    rng = np.random.default_rng(seed)
    texts = [rng.bytes(length) for length in range(41)]
    state = prefix_state(prefix, seed)
    assert [murmur(*state, b"-" + text + b"-", 1, 1 + len(text)) for text in texts] == [
        mmh3.hash(prefix + text, seed, signed=False) for text in texts
    ]
    plan, column = plan_of(hash_seed=seed), prefix.decode()
    values = pa.array(texts, pa.large_binary())
    assert places(values, column, plan, None).tolist() == expected(plan, column, texts)


VALUES = st.lists(st.none() | st.binary(max_size=9), max_size=30)


@settings(deadline=None)  # the first one may compile
@given(VALUES, st.sampled_from(KINDS), st.booleans(), st.integers(0, 9), st.integers(1, 31))
def test_any_column_has_the_bits_of_mmh3(values, kind, coded, cut, bits):
    """Plain or as a dictionary, sliced, with nulls, empty: each row's own text is hashed."""
    plan, array = plan_of(min(bits, 30)), pa.array(values, kind)
    if coded and kind != pa.binary_view():
        array = array.dictionary_encode()
    names = Names()
    found = categories(array.slice(cut), "c", plan, names)
    assert found.dtype == np.int32
    assert found.tolist() == expected(plan, "c", values[cut:])
    assert set(names.seen()) == set(found.tolist())


def test_a_null_in_a_dictionary_is_a_null():
    """A dictionary may hold a null, and values that no row has: these are not told."""
    dictionary = pa.array(["a", None, "b"])
    array = pa.DictionaryArray.from_arrays(pa.array([1, 0, None, 1]), dictionary)
    plan, names = plan_of(), Names()
    found = categories(array, "c", plan, names)
    assert found.tolist() == expected(plan, "c", [None, b"a", None, None])
    assert sorted(name for at in names.seen() for name in names.at(at)) == ["c is null", "c=a"]


def told(streams, plan, names):
    for values in streams:
        categories(pa.array(values), "c", plan, names)
    return names


@settings(deadline=None)  # the first one may compile
@given(st.lists(st.lists(st.integers(0, 40), max_size=30), max_size=8), st.integers(1, 6))
def test_names_are_those_of_one_look_at_each_value(streams, bits):
    """However often they come, and however full their coordinates: what is kept is the same."""
    plan, plain = plan_of(bits), Names()
    streams = [[str(value) for value in values] for values in streams]
    for values in streams:
        raw = [value.encode() for value in values]
        plain.note("c", expected(plan, "c", raw), raw)
    assert told(streams, plan, Names()).to_json() == plain.to_json()


@settings(deadline=None)  # the first one may compile
@given(st.lists(st.lists(st.integers(0, 40), max_size=30), max_size=8), st.integers(1, 6))
def test_python_notes_the_names_that_compiled_code_notes(streams, bits):
    """Before there is enough to do for numba, and after: the same names in the same order."""
    plan, made = plan_of(bits), []
    streams = [[str(value) for value in values] for values in streams]
    for few in (-1, 50, 10**9):
        with pytest.MonkeyPatch.context() as patch:
            for soon in (murmur3.chooser(), murmur3.noter()):
                patch.setattr(soon, "_left", few)
            made.append(told(streams, plan, Names()).to_json())
    assert made[0] == made[1] == made[2]


@pytest.mark.parametrize("bits", [17, pytest.param(24, marks=pytest.mark.slow)])
def test_a_table_fills_up_as_if_each_value_were_noted(bits):
    """Past 65,536 coordinates, and where coordinates share a bit, no name is lost and none added:
    of values that differ in the whole hash."""
    plan, plain, rng = plan_of(bits), Names(), np.random.default_rng(bits)
    values = {mmh3.hash(b"c=%d" % v, 0): str(v) for v in range(2**17)}
    streams = [rng.choice(list(values.values()), 40_000).tolist() for _ in range(4)]
    for values in streams:
        raw = [value.encode() for value in values]
        plain.note("c", expected(plan, "c", raw), raw)
    names = told(streams, plan, Names())
    assert (len(names), names.to_json()) == (65_536, plain.to_json())


def test_of_a_full_table_each_column_has_its_turn(monkeypatch):
    """Until the table is full each batch is searched, then one in eight of each column, and
    one column in eight of each batch."""
    names, columns = Names(), [f"c{at}" for at in range(20)]
    assert all(names.is_due(column) for column in columns * 3)
    monkeypatch.setattr(Names, "is_full", True)
    due = [[column for column in columns if names.is_due(column)] for _ in range(16)]
    assert max(map(len, due)) == 3
    assert sorted(column for batch in due for column in batch) == sorted(columns * 2)


def test_what_is_settled_is_not_told_again(monkeypatch):
    """A value is told of once; from another process's table or a saved one, once more at most."""
    seen = []
    note = Names.note
    monkeypatch.setattr(Names, "note", lambda *given: seen.append(len(given[3])) or note(*given))
    plan, names = plan_of(8), Names()
    stream = [str(value) for value in range(10_000)]
    told([stream] * 3, plan, names)
    assert 10_000 <= sum(seen) < 12_000
    seen.clear()
    told([stream] * 3, plan, names)
    assert sum(seen) == 0
    told([stream] * 3, plan, Names.from_json(names.to_json()))
    assert sum(seen) == 0  # all 256 coordinates are full


def test_names_of_values_in_ascii_and_of_others():
    """Those of ASCII values are noted from their dictionary's bytes, all others from a copy."""
    plan, names = plan_of(), Names()
    for values in (["", "ab", "c"], ["d", "é"], ["e", None], [b"\xff", b"f"]):
        kind = pa.binary() if isinstance(values[0], bytes) else pa.string()
        known = pa.array(["unused", *values, "unused"], kind).slice(1, len(values))
        for codes in ([0, 1, 0], [None, 1]):
            array = pa.DictionaryArray.from_arrays(pa.array(codes, pa.int32()), known)
            categories(array, "c", plan, names)
        categories(known, "c", plan, names)
    told = {name for some in names.seen().values() for name in some}
    letters = {*"abcdef"} - {*"ab"} | {"", "ab", "é", "\\xff"}
    assert told == {"c is null", *(f"c={value}" for value in letters)}


def test_names_of_another_table_are_not_told_twice():
    """Saved names have no hashes: a value that has its name there is known by it."""
    plan, streams = plan_of(4), [["é", None, "a"], [str(value) for value in range(30)]]
    names = told(streams, plan, Names())
    again = told(streams, plan, Names.from_json(names.to_json()))
    joined = Names()
    for table in (names, again, Names(names.seen())):
        joined.update(table.seen())
    assert again.to_json() == joined.to_json() == names.to_json()


def test_of_a_dictionary_only_what_rows_have_is_told():
    """Each value once, in whatever order rows have them."""
    plan, names = plan_of(1), Names()
    codes = pa.array([3, 1, None, 3, 0], pa.int32())
    array = pa.DictionaryArray.from_arrays(codes, pa.array(["a", "b", "c", "d"]))
    found = categories(array, "c", plan, names)
    assert found.tolist() == expected(plan, "c", [b"d", b"b", None, b"d", b"a"])
    kept = [name for at in sorted(names.seen()) for name in names.at(at)]
    assert sorted(kept) == ["c is null", "c=a", "c=b", "c=d"]


SLICES = st.lists(st.tuples(st.integers(0, 2), st.lists(st.integers(0, 5), max_size=9)), max_size=6)


@settings(deadline=None)  # the first one may compile
@given(SLICES, st.integers(1, 6))
def test_slices_hash_a_shared_dictionary_once(slices, bits):
    """Whichever dictionary each slice has, 5 being a null: coordinates and names are those of
    slices that are hashed alone."""
    texts = [[f"{name}{k % 4}" for k in range(5)] for name in ("x", "y", "z")]
    shared = [pa.array(some) for some in texts]
    plan, hashed, names, alone = plan_of(bits), HashedValues(), Names(), Names()
    for which, codes in slices:
        indices = pa.array([None if code == 5 else code for code in codes], pa.int32())
        array = pa.DictionaryArray.from_arrays(indices, shared[which])
        values = [None if code == 5 else texts[which][code].encode() for code in codes]
        found = categories(array, "c", plan, names, None, hashed)
        assert found.tolist() == expected(plan, "c", values)
        categories(pa.array(values, pa.binary()), "c", plan, alone)
        seen = {at: set(names.at(at)) for at in names.seen()}
        assert seen == {at: set(alone.at(at)) for at in alone.seen()} or "+" in str(seen)


def test_a_dictionary_at_the_place_of_another_is_hashed():
    """Dictionaries that come and go, of one length: none is taken for the one before."""
    plan, hashed = plan_of(), HashedValues()
    for k in range(50):
        texts = [f"{k}-{j}" for j in range(20)]
        array = pa.array(texts).dictionary_encode()
        raw = [text.encode() for text in texts]
        assert categories(array, "c", plan, None, None, hashed).tolist() == expected(plan, "c", raw)
        del array


def test_threads_hash_and_tell_at_once():
    """Whatever threads do to one another, each value within the bounds has its name, once."""
    plan, names = plan_of(), Names()
    streams = [[str(value) for value in range(k % 4, 3000, 2)] for k in range(40)]
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda values: told([values], plan, names), streams))
    kept = [name for at in names.seen() for name in names.at(at)]
    assert sorted(kept) == sorted(f"c={value}" for value in range(3000))


@pytest.mark.slow
def test_a_second_process_compiles_nothing(tmp_path):
    """What hashes is kept on disk, under a name of its own."""
    code = (
        "from streamomd.features.kernels.murmur3 import hasher\n"
        "found = hasher()\n"
        "print(sum(found.stats.cache_hits.values()), len(found.signatures))"
    )
    for hits in (0, 1):
        env = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}
        done = subprocess.run(
            [sys.executable, "-c", code], env=env, capture_output=True, text=True, check=False
        )
        assert (done.stdout.split(), done.returncode) == ([str(hits), "1"], 0), done.stderr
