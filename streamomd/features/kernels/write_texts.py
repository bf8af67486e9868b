"""Rows of texts in one pass: a text is split, its words are hashed and counted, before the next.

Plain Python that numba compiles, as all of ``features/kernels``. What a text needs stays in the
processor's first cache. Words are hashed without a branch that depends on their length, unless
they are long: a branch that cannot be predicted costs more than hashing.
"""

from __future__ import annotations

import functools
from typing import Any

from numba import types
from numba.extending import register_jitable

from streamomd.core.jit import compiled, int64, read, written
from streamomd.features.kernels.murmur3 import EACH, LOW, ended, mixed, scrambled, slot
from streamomd.features.kernels.split_words import PLACE, split_any, split_ascii

_LOW = 0xFFFFFFFF
_BITS, _FEW, _MANY = 9, 40, 1000
LANES = 32
"""``starts`` and ``hashes`` have room for a multiple of it."""
SEEN = 2048
"""Places that ``distinct`` remembers: 16 KiB, half of the first-level cache."""
COUNTERS = 1 << _BITS
"""``sizes`` of ``scatter``: few enough that a row of some hundred places costs more."""


@functools.cache
def row_writer() -> Any:
    """``write_rows``, compiled, or loaded from the disk cache."""
    texts = [int64, read("uint8"), read("int64"), read("uint32")]
    hashed = [int64] * 4
    placed = [int64] * 6
    room = [written(name) for name in ("uint8", "uint32", "int64", "int64", "uint32")]
    room += [types.Array(types.uint32, 2, "C")]
    room += [written(name) for name in ("uint32", "int64", *["int32"] * 3)]
    names = [read("int32"), read("uint8"), read("uint32"), read("uint8"), written("uint32")]
    unnamed = [written(name) for name in ("uint32", "int64", "uint8", "int64")]
    rows = [written("int64"), written("int32"), written("float64")]
    return compiled(write_rows, *texts, *hashed, *placed, *room, *names, *unnamed, *rows)


@register_jitable(no_cfunc_wrapper=True, forceinline=True)
def four(fours: Any, at: int) -> int:
    """Four bytes from a place on, which need not be a multiple of 4."""
    place = (at >> 2) & PLACE
    return ((int(fours[place]) | (int(fours[place + 1]) << 32)) >> ((at & 3) << 3)) & _LOW


@register_jitable(no_cfunc_wrapper=True)
def hash_words(
    words: int, edges: Any, fours: Any, h: int, rest: int, bits: int, length: int, starts: Any,
    hashes: Any,
) -> int:  # fmt: skip
    """Write the hash of a prefix, as ``prefix_state`` gives it, and each word; how many there are.

    A word is read from a few bytes before it, which the rest of the prefix replaces. starts: room
    for the first twelve bytes of each word, their number, and which words are longer.
    """
    behind, back, long = _LOW & ~((1 << bits) - 1), bits >> 3, 0
    for k in range(words):
        begin = int(edges[2 * k])
        total = int(edges[2 * k + 1]) - begin + back
        at = begin - back
        starts[0, k] = (four(fours, at) & behind) | rest
        starts[1, k] = four(fours, at + 4)
        starts[2, k] = four(fours, at + 8)
        starts[3, k] = total
        starts[4, long & PLACE] = k
        long += 1 if total > 11 else 0
    # Vector instructions. Up to a multiple of LANES, because what is left would be hashed one by
    # one, which takes as long as all the others.
    for k in range((words + LANES - 1) // LANES * LANES):
        zeroth, first, second = int(starts[0, k]), int(starts[1, k]), int(starts[2, k])
        total = int(starts[3, k])
        state = mixed(h, zeroth) if total >= 4 else h
        state = mixed(state, first) if total >= 8 else state
        last = zeroth if total < 4 else (first if total < 8 else second)
        state ^= scrambled(last & ((1 << ((total & 3) << 3)) - 1))
        hashes[k] = ended(state, length + total - back)
    for i in range(long):
        k = int(starts[4, i])
        at, total = int(edges[2 * k]) - back, int(starts[3, k])
        state = mixed(mixed(h, int(starts[0, k])), int(starts[1, k]))
        for more in range(2, total >> 2):
            state = mixed(state, four(fours, at + 4 * more))
        last = four(fours, at + (total & ~3)) & ((1 << ((total & 3) << 3)) - 1)
        hashes[k] = ended(state ^ scrambled(last), length + total - back)
    return words


@register_jitable(no_cfunc_wrapper=True)
def hash_runs(
    words: int, most: int, edges: Any, letters: Any, h: int, rest: int, bits: int, length: int,
    hashes: Any,
) -> int:  # fmt: skip
    """Hashes all words as ``hash_words`` does, then all pairs "one two", … all runs of ``most``."""
    for first in range(words):
        found, left, filled, size, k = h, rest, bits, length, first
        for run in range(1, min(most, words - first) + 1):
            word = first + run - 1
            begin, end = edges[2 * word], edges[2 * word + 1]
            for at in range(begin - (1 if run > 1 else 0), end):
                left |= (int(letters[at]) if at >= begin else 0x20) << filled
                filled += 8
                if filled == 32:
                    found, left, filled = mixed(found, left), 0, 0
                size += 1
            hashes[k] = ended(found ^ scrambled(left), size)
            k += words - run + 1
    return runs_of(words, most)


@register_jitable(no_cfunc_wrapper=True)
def runs_of(words: int, most: int) -> int:
    """How many runs of 1 … ``most`` words there are among ``words``."""
    total = 0
    for run in range(1, min(most, words) + 1):
        total += words - run + 1
    return total


@register_jitable(no_cfunc_wrapper=True)
def note_unnamed(
    count: int, words: int, edges: Any, letters: Any, hashes: Any, first: int, mask: int,
    chosen: Any, keys: Any, counts: Any, known: Any, closed: Any, recent: Any, unnamed: Any,
    ends: Any, names: Any, sizes: Any,
) -> None:  # fmt: skip
    """Write the runs of words that have no name yet: their hashes, and their letters.

    keys … recent: of ``name_index``, whose ``recent`` then takes them for settled: the caller notes
    them. sizes: how many are written; ends: where each one's letters end, after a first 0.
    """
    some = 0
    for k in range(count):
        h = int(hashes[k])
        chosen[some] = k
        some += 1 if recent[h >> LOW] != h else 0
    for i in range(some):
        k = int(chosen[i])
        h = int(hashes[k])
        if recent[h >> LOW] == h:  # earlier in this text
            continue
        recent[h >> LOW] = h
        place = first + (h & mask)
        bit = place & (8 * len(closed) - 1)
        if (closed[bit >> 3] >> (bit & 7)) & 1:
            continue
        at = slot(keys, place)
        settled = counts[at] > EACH
        for name in range(EACH * at, EACH * at + EACH):
            settled |= h != 0 and known[name] == h
        if settled:
            continue
        run, word = 1, k
        while word > words - run:
            word -= words - run + 1
            run += 1
        end = ends[sizes[0]]
        for part in range(word, word + run):
            if part > word:
                names[end] = 0x20
                end += 1
            for letter in range(edges[2 * part], edges[2 * part + 1]):
                names[end] = letters[letter]
                end += 1
        unnamed[sizes[0]] = h
        sizes[0] += 1
        ends[sizes[0]] = end


@register_jitable(no_cfunc_wrapper=True)
def scatter(count: int, low: int, some: Any, others: Any, sizes: Any) -> None:
    """Write places in order of COUNTERS' bits from ``low`` on, equal ones as they are."""
    sizes[:] = 0
    for k in range(count):
        sizes[(some[k] >> low) & (COUNTERS - 1)] += 1
    total = 0
    for digit in range(COUNTERS):
        size = sizes[digit]
        sizes[digit] = total
        total += size
    for k in range(count):
        digit = (some[k] >> low) & (COUNTERS - 1)
        others[int(sizes[digit]) & PLACE] = some[k]
        sizes[digit] += 1


@register_jitable(no_cfunc_wrapper=True)
def distinct(count: int, hashes: Any, mask: int, stamp: int, seen: Any, some: Any) -> int:
    """Write the hashes' bits under a mask, without most of those that were there before; how many
    there are.

    seen: the last place of each kind of lowest bits, with the stamp of its text. A text of 285
    words has 146 distinct ones, and what is dropped here is not put in order.
    """
    found = 0
    for k in range(count):
        place = int(hashes[k]) & mask
        at, stamped = place & (len(seen) - 1), place | stamp
        some[found & PLACE] = place
        found += 1 if seen[at] != stamped else 0
        seen[at] = stamped
    return found


@register_jitable(no_cfunc_wrapper=True)
def count_places(
    count: int, some: Any, bits: int, shift: int, times: int, others: Any, sizes: Any, end: int,
    indices: Any, values: Any,
) -> int:  # fmt: skip
    """Write places of ``bits`` bits, each moved by ``shift``, ascending and distinct, from entry
    ``end`` on; where they end now.

    times: 1 if values are how often each occurs; 0 if they are 1, which is not written. some: the
    places; it and others have room for one more than ``count``.
    """
    if count > _MANY:  # in order of their lowest bits, then of the next, …
        for low in range(0, bits, _BITS):
            scatter(count, low, some, others, sizes)
            some, others = others, some
    elif count > _FEW:  # in order of their highest bits, so that few are out of order
        scatter(count, max(0, bits - _BITS), some, others, sizes)
        some, others = others, some
    for k in range(1, count):
        place, at = some[k], k
        while at > 0 and some[at - 1] > place:
            some[at] = some[at - 1]
            at -= 1
        some[at] = place
    some[count] = -1
    at, start = end, 0
    if times:
        for k in range(count):
            indices[at & PLACE] = some[k] + shift
            values[at & PLACE] = k - start + 1
            last = some[k + 1] != some[k]
            at += 1 if last else 0
            start = k + 1 if last else start
    else:
        for k in range(count):
            indices[at & PLACE] = some[k] + shift
            at += 1 if some[k + 1] != some[k] else 0
    return at


def write_rows(
    row: int, data: Any, offsets: Any, lower: Any,
    h: int, rest: int, bits: int, length: int,
    first: int, width: int, shift: int, most: int, times: int, sampled: int,
    letters: Any, fours: Any, eights: Any, edges: Any, unknown: Any, starts: Any, hashes: Any,
    seen: Any, some: Any, others: Any, sizes: Any,
    keys: Any, counts: Any, known: Any, closed: Any, recent: Any,
    unnamed: Any, ends: Any, names: Any, used: Any,
    begins: Any, indices: Any, values: Any,
) -> int:  # fmt: skip
    """Write the canonical rows of texts from ``row`` on; the row that comes next.

    That is not the last one where ``unknown`` has characters that the caller looks up,
    ``unnamed`` has little room left for hashes whose names the caller notes, or the rows have none
    for the next text.

    data, offsets: texts in Arrow's layout, valid UTF-8. lower: by character, for ``split_any``.
    h … length: the hash of ``column=``, as ``prefix_state`` gives it. first: the first of 2^width
    coordinates, each moved by ``shift`` in a row. most: longest run of words. times: 1 if values
    are counts, 0 if they are 1. sampled: names are looked for in one of that
    many texts.
    letters, fours, eights: the same memory. edges … others: room for one text, but seen: (SEEN,),
    zeros before the first row. sizes: (COUNTERS,).
    keys … recent: of ``name_index``; keys empty: no names are wanted. unnamed … used: of
    ``note_unnamed``; half of unnamed, and of names, has room for one text.
    begins, indices, values: the rows, of which those before ``row`` are written; of values that are
    1 there are none.
    """
    end, mask = begins[row], (1 << width) - 1
    while row < len(offsets) - 1:
        text = data[offsets[row] : offsets[row + 1]]
        found = split_ascii(text, letters, eights, edges)
        if found < 0:
            found = split_any(text, lower, letters, edges, unknown)
            if unknown[0]:
                break
        words = found >> 1
        if most == 1:
            count = hash_words(words, edges, fours, h, rest, bits, length, starts, hashes)
        else:
            count = hash_runs(words, most, edges, letters, h, rest, bits, length, hashes)
        if end + count > len(indices):
            break
        if len(keys) and row % sampled == 0:
            note_unnamed(
                count, words, edges, letters, hashes, first, mask, others, keys, counts, known,
                closed, recent, unnamed, ends, names, used,
            )  # fmt: skip
        if times:
            for k in range(count):
                some[k] = hashes[k] & mask
        else:
            count = distinct(count, hashes, mask, (row + 1) << 32, seen, some)
        end = count_places(
            count, some, width, first + shift, times, others, sizes, end, indices, values
        )
        row += 1
        begins[row] = end
        if 2 * used[0] > len(unnamed) or 2 * ends[used[0]] > len(names):
            break
    return row
