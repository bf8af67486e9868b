"""Texts: words and runs of words, hashed as ``column=word`` and ``column=word next``.

Python's own tables of Unicode say what a character is: each that occurs is looked up once in a
process, and compiled code does the rest on UTF-8 itself.

Nothing is fitted: a word's value is 1, its count in one text, or that count's logarithm. Words of a
column with the same coordinate are counted together, so that the result does not depend on
the order of summing.
"""

from __future__ import annotations

import functools
import math
import unicodedata
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from streamomd.core.message import shown_value
from streamomd.core.startup import arrow_cast, arrow_function
from streamomd.features.bad_rows import CheckedValues
from streamomd.features.buffers import buffers, empty, ones
from streamomd.features.csr import Csr, Places, taken
from streamomd.features.hashed import STORED_AS_BYTES, as_bytes, category, coded
from streamomd.features.name_table import Watch
from streamomd.features.names import Names
from streamomd.features.plan import Plan
from streamomd.features.plan_columns import Text


def in_word(character: str) -> bool:
    """Whether a character belongs to a word.

    >>> [in_word(c) for c in "aß語ि9½_-'. "]
    [True, True, True, True, True, True, True, False, False, False, False]
    """
    return unicodedata.category(character)[0] in "LMN" or character == "_"


@functools.cache
def lower_cases() -> NDArray[np.uint32]:
    """The table of ``kernels.split_words.split_any``, by character; threads may write equal values.

    Of its 4 MiB a process has only the pages that were written.
    """
    table = np.zeros(0x110000, np.uint32)
    look_up(range(0x80), table)
    return table


def look_up(characters: Iterable[int], table: NDArray[np.uint32]) -> None:
    """Write what some characters are into the table."""
    from streamomd.features.kernels.split_words import BETWEEN  # late: it imports numba

    for number in characters:
        character = chr(number)
        # One for one: "İ" alone becomes two, of which the first is its simple lower case.
        table[number] = ord(character.lower()[0]) if in_word(character) else BETWEEN


_LETTERS_A_WORD = 8
"""Bytes of a text by distinct words: 9 in English. Where it has more words, room is doubled."""
_SAMPLED = 32
"""One text in 32 is searched for names, see ``names.SAMPLED``. One in eight takes a tenth of the
time of all."""
_UNKNOWN, _UNNAMED, _LETTERS = 4096, 4096, 1 << 16
_UNWATCHED = Watch(*(np.empty(0, dtype) for dtype in ("i4", "u1", "u4", "u1", "u4")))


def text_rows(texts: pa.Array, text: Text, plan: Plan, names: Names | None) -> Csr:
    """Each text's words and runs of words: canonical rows. Values are 1, or counts if ``text`` has
    them or their logarithms; float64.

    texts: large_binary or large_string, valid UTF-8, without nulls.
    """
    # Late: numba is loaded only where values are hashed.
    from streamomd.features.kernels.murmur3 import prefix_state
    from streamomd.features.kernels.write_texts import row_writer

    data, offsets = buffers(texts)
    longest, most = int(np.diff(offsets).max(initial=0)), text.ngrams
    # As many as usual texts have: a page that is written for the first time costs 2 µs.
    size = most * (int(offsets[-1] - offsets[0]) // _LETTERS_A_WORD + _words_in(longest))
    counts = int(text.counts != "presence")
    begins = np.zeros(len(texts) + 1, np.int64)
    indices, values = empty(size, np.int32), empty(size * counts, np.float64)
    hashed = prefix_state(category(text.column, b""), plan.hash_seed)
    places = plan.hashed_offset, plan.bits, -int(plan.bias), most, counts
    room, lower = _room(longest, most), lower_cases()
    unknown, unnamed = room[4], _Unnamed(longest, most if names is not None else 0)
    row = 0
    while row < len(texts):
        unknown[:] = 0
        watch = _UNWATCHED if names is None else names.watch(plan.size)
        sampled = _SAMPLED if names is not None and names.is_full else 1
        given = (*room, *watch, *unnamed.arrays, begins, indices, values)
        done = row_writer()(row, data, offsets, lower, *hashed, *places, sampled, *given)
        if unknown[0]:
            look_up(np.unique(unknown[unknown > 0]).tolist(), lower)
        elif done == row:
            indices, values = _doubled(indices), _doubled(values)
        if names is not None:
            unnamed.note(names, text.column, plan)
        row = done
    size = int(begins[-1])
    return begins, indices[:size], values[:size] if counts else ones(size, np.float64)


class _Unnamed:
    """Hashes and letters of words that have no name yet, as ``kernels.write_texts`` writes them."""

    def __init__(self, longest: int, most: int) -> None:
        """longest: bytes of a text. most: longest run of words, 0 if no names are wanted."""
        hashes = 2 * max(most * _words_in(longest), _UNNAMED * min(most, 1))
        letters = 2 * max(most * most * _letters_in(longest), _LETTERS * min(most, 1))
        self.hashes, self.ends = np.empty(hashes, np.uint32), np.zeros(hashes + 1, np.int64)
        self.letters, self.used = np.empty(letters, np.uint8), np.zeros(1, np.int64)
        self.arrays = self.hashes, self.ends, self.letters, self.used

    def note(self, names: Names, column: str, plan: Plan) -> None:
        """Note the names, and have room for others."""
        count = int(self.used[0])
        if not count:
            return
        made = [None, pa.py_buffer(self.ends[: count + 1]), pa.py_buffer(self.letters)]
        texts = pa.Array.from_buffers(pa.large_binary(), count, made)
        hashes = self.hashes[:count]
        coordinates = plan.hashed_offset + (hashes & np.uint32((1 << plan.bits) - 1))
        names.note(column, coordinates.astype(np.int32), texts, hashes)
        self.used[0] = 0


def _words_in(size: int) -> int:
    """The most words that a text of ``size`` bytes has."""
    return (size + 1) // 2


def _letters_in(size: int) -> int:
    """The most bytes that its words have in lower case, with one more after each."""
    return size + size // 2 + 2


def _room(longest: int, most: int) -> tuple[NDArray[Any], ...]:
    """What ``write_rows`` needs to write one text: letters … sizes."""
    from streamomd.features.kernels.split_words import BACK, FRONT
    from streamomd.features.kernels.write_texts import COUNTERS, LANES, SEEN

    runs = most * _words_in(longest)
    lanes = (runs // LANES + 1) * LANES
    sizes = {
        "eights": ((FRONT + _letters_in(longest) + BACK) // 8 + 1, np.int64),
        "edges": (2 * _words_in(longest) + 9, np.int64),
        "unknown": (_UNKNOWN, np.uint32),
        "starts": (5 * lanes, np.uint32),
        "hashes": (lanes, np.uint32),
        "seen": (SEEN, np.int64),
        "some": (runs + 1, np.int32),
        "others": (runs + 1, np.int32),
        "sizes": (COUNTERS, np.int32),
    }
    room = _carved(sizes)
    eights, starts = room.pop("eights"), room.pop("starts").reshape(5, lanes)
    eights[: FRONT // 8] = 0
    room["seen"][:] = 0
    letters, fours = eights.view(np.uint8), eights.view(np.uint32)
    edges, unknown = room.pop("edges"), room.pop("unknown")
    return letters, fours, eights, edges, unknown, starts, *room.values()


def _carved(sizes: Mapping[str, tuple[int, Any]]) -> dict[str, NDArray[Any]]:
    """Arrays of these lengths and types, in one piece of memory that all threads reuse."""
    lines = {
        name: -(-count * np.dtype(dtype).itemsize // 64) for name, (count, dtype) in sizes.items()
    }
    memory, at, found = empty(64 * sum(lines.values()), np.uint8), 0, {}
    for name, (count, dtype) in sizes.items():
        found[name] = memory[at : at + count * np.dtype(dtype).itemsize].view(dtype)
        at += 64 * lines[name]
    return found


def _doubled(entries: NDArray[Any]) -> NDArray[Any]:
    """Room for twice as many entries, with those written before."""
    found = empty(2 * len(entries), entries.dtype)
    found[: len(entries)] = entries
    return found


_LOOKED_AT = 64


class Texts(NamedTuple):
    """Texts, each split once, and each row's place among them; None: text k is row k's."""

    places: Places | None
    found: pa.Array


def texts_of(array: pa.Array, cells: CheckedValues) -> Texts:
    """A column's texts; a null is empty. Notes those that are not UTF-8."""
    known = _looked_up(array) if _repeats(array) else _plain(array)
    try:
        return Texts(known.places, arrow_cast(known.found, pa.large_string()))
    except pa.ArrowInvalid:
        _note_other_bytes(known, cells)
        return known


def _repeats(array: pa.Array) -> bool:
    """Whether texts are likely to repeat: a look-up costs a tenth of splitting a text."""
    if pa.types.is_dictionary(array.type):
        return True
    some = array.slice(0, _LOOKED_AT)
    # Of other lengths are other texts: to hash them all took 0.3 µs a text of 1,757 bytes.
    if array.type in STORED_AS_BYTES and 2 * len({*np.diff(buffers(some)[1])}) >= len(some):
        return False
    return 2 * len(arrow_function()("unique", [some])) < len(some)


def _plain(array: pa.Array) -> Texts:
    found = as_bytes(array)
    return Texts(None, found.fill_null(b"") if found.null_count else found)


def _looked_up(array: pa.Array) -> Texts:
    """Returns the texts of a dictionary array: the values that some row has, and an empty text for
    nulls."""
    codes, distinct = coded(array)
    size = len(distinct)
    used = np.flatnonzero(np.bincount(codes, minlength=1))
    known = used[used < size]
    found = arrow_function()("take", [as_bytes(distinct), pa.array(known)])
    place = np.full(size + 1, len(known))
    place[known] = np.arange(len(known))
    empty = pa.array([b""], pa.large_binary())
    return Texts(place[codes], pa.concat_arrays([found, empty]))


def counted(texts: Texts, text: Text, plan: Plan, dtype: Any, names: Names | None) -> Csr:
    """Each row's words and runs of words: canonical rows, values by ``text.counts``."""
    begins, indices, values = text_rows(texts.found, text, plan, names)
    if text.counts == "log":
        values = _logarithms(values)
    block = begins, indices, values.astype(dtype, copy=False)
    return block if texts.places is None else taken(block, texts.places)


def _logarithms(counts: NDArray[np.float64]) -> NDArray[np.float64]:
    """log(1 + count), by the C library: numpy's own differs in the last bit between processors."""
    whole = counts.astype(np.int64)
    occurs = np.zeros(whole.max(initial=0) + 1, np.bool_)
    occurs[whole] = True
    known = np.flatnonzero(occurs)
    table = np.empty(len(occurs))
    table[known] = [math.log1p(count) for count in known.tolist()]
    return table[whole]


def _note_other_bytes(texts: Texts, cells: CheckedValues) -> None:
    given = texts.found.to_pylist()
    strange = np.array([not _is_utf8(text) for text in given])
    rows = np.arange(len(given)) if texts.places is None else texts.places
    cells.note(
        "utf8",
        np.flatnonzero(strange[rows]),
        lambda row: shown_value(given[rows[row]]),
        "text in UTF-8",
        "write it as UTF-8, or drop the row",
    )


def _is_utf8(text: bytes) -> bool:
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True
