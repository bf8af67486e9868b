"""Rows are added to the sums of their periods, one by one: a kernel that numba compiles."""

from __future__ import annotations

from typing import Any

from streamomd.core.jit import LazyCompiled, callable_part, int64, read, written

FEW = 20_000
"""Rows that are added before the kernel is compiled."""


@callable_part
def find_period(
    number: int, numbers: Any, rows: Any, sums: Any, counts: Any, earlier: Any
) -> Any:  # fmt: skip
    """The place of a period in the table, to which it is added; -1: it is earlier than all of a
    full table."""
    used = at = counts[0]
    low, guess = 0, number - numbers[0]
    if 0 <= guess < used and numbers[guess] == number:  # most streams have rows in each period
        return guess
    while low < at:
        middle = (low + at) >> 1
        if numbers[middle] < number:
            low = middle + 1
        else:
            at = middle
    if at < used and numbers[at] == number:
        return at
    if used < len(numbers):
        for k in range(used, at, -1):
            numbers[k], rows[k] = numbers[k - 1], rows[k - 1]
            sums[3 * k : 3 * k + 3] = sums[3 * k - 3 : 3 * k]
        counts[0] = used + 1
    elif at == 0:
        return -1
    else:  # the earliest period gives way
        at -= 1
        counts[1] += rows[0]
        earlier += sums[:3]
        numbers[:at], rows[:at] = numbers[1 : at + 1], rows[1 : at + 1]
        sums[: 3 * at] = sums[3 : 3 * at + 3]
    numbers[at], rows[at] = number, 0
    sums[3 * at : 3 * at + 3] = 0.0
    return at


def add_rows(
    length: int, time: Any, weight: Any, losses: Any,
    numbers: Any, rows: Any, sums: Any, counts: Any, earlier: Any,
) -> None:  # fmt: skip
    """Add rows to the table of ``Periods``, whose arrays are the last five, sums as (periods * 3,).

    losses: (rows * 2,). The period is looked up where it changes: most rows are of the one before.
    Until then its sums are in registers, which takes half the time of sums in memory.
    """
    low = 0
    while low < len(time):
        number = time[low] // length
        begin = number * length
        end = begin + length
        at = find_period(number, numbers, rows, sums, counts, earlier)
        table, k = (sums, 3 * at) if at >= 0 else (earlier, 0)
        w, loss, wrong, i = table[k], table[k + 1], table[k + 2], low
        while i < len(time) and begin <= time[i] < end:
            w += weight[i]
            loss += weight[i] * losses[2 * i]
            wrong += weight[i] * losses[2 * i + 1]
            i += 1
        table[k], table[k + 1], table[k + 2] = w, loss, wrong
        if at >= 0:
            rows[at] += i - low
        else:
            counts[1] += i - low
        low = i


_NUMBERS, _FLOATS = written("int64"), written("float64")
SIGNATURE = [
    int64, read("int64"), read("float64"), read("float64"),
    _NUMBERS, _NUMBERS, _FLOATS, _NUMBERS, _FLOATS,
]  # fmt: skip
compiled_add_rows = LazyCompiled(add_rows, SIGNATURE, FEW)
