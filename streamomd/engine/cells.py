"""Numbers in and out of flat arrays, as tuples of fixed arity.

``at`` is the first cell, ``by`` the distance to the next. Loads make float64 of a float32 cell.
"""

from __future__ import annotations

from typing import Any


def number(cell: Any) -> float:
    """The cell as a float64: numba's float() alone keeps a float32 what it is."""
    return float(cell) * 1.0


def load0(make: Any, cells: Any, at: int, by: int) -> Any:
    return ()


def load1(make: Any, cells: Any, at: int, by: int) -> Any:
    return make(number(cells[at]))


def load2(make: Any, cells: Any, at: int, by: int) -> Any:
    return make(number(cells[at]), number(cells[at + by]))


def load3(make: Any, cells: Any, at: int, by: int) -> Any:
    return make(number(cells[at]), number(cells[at + by]), number(cells[at + 2 * by]))


def load4(make: Any, cells: Any, at: int, by: int) -> Any:
    return make(
        number(cells[at]),
        number(cells[at + by]),
        number(cells[at + 2 * by]),
        number(cells[at + 3 * by]),
    )


def store0(cells: Any, at: int, by: int, numbers: Any) -> None:
    return


def store1(cells: Any, at: int, by: int, numbers: Any) -> None:
    cells[at] = numbers[0]


def store2(cells: Any, at: int, by: int, numbers: Any) -> None:
    cells[at] = numbers[0]
    cells[at + by] = numbers[1]


def store3(cells: Any, at: int, by: int, numbers: Any) -> None:
    cells[at] = numbers[0]
    cells[at + by] = numbers[1]
    cells[at + 2 * by] = numbers[2]


def store4(cells: Any, at: int, by: int, numbers: Any) -> None:
    cells[at] = numbers[0]
    cells[at + by] = numbers[1]
    cells[at + 2 * by] = numbers[2]
    cells[at + 3 * by] = numbers[3]


def add0(a: Any, b: Any) -> Any:
    return ()


def add1(a: Any, b: Any) -> Any:
    return (a[0] + b[0],)


def add2(a: Any, b: Any) -> Any:
    return (a[0] + b[0], a[1] + b[1])


def add3(a: Any, b: Any) -> Any:
    return (a[0] + b[0], a[1] + b[1], a[2] + b[2])


LOAD = (load0, load1, load2, load3, load4)
STORE = (store0, store1, store2, store3, store4)
ADD = (add0, add1, add2, add3)
ZERO: tuple[tuple[float, ...], ...] = ((), (0.0,), (0.0, 0.0), (0.0, 0.0, 0.0))
