"""UCI Covertype: 54 numbers in raw units, class 2 against the rest; ten times over."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from modes import DATA
from pyarrow import csv

SOURCE = DATA / "covertype/covtype.csv.gz"
ONE = 581_012
ROWS, FEW, TINY, GROUP = 10 * ONE, ONE, 20_000, 50_000


def tables(count: int) -> Iterator[pa.Table]:
    """54 columns of int64 and y (0 or 1), permuted once, by a fixed seed; then all again."""
    if not SOURCE.exists():
        raise FileNotFoundError("no covtype.csv.gz in ../shared/data/covertype")
    read = csv.read_csv(SOURCE)
    y = pc.cast(pc.equal(read["Cover_Type"], 2), "int8")
    named = read.drop_columns(["Cover_Type"]).append_column("y", y)
    once = named.take(np.random.default_rng(3).permutation(ONE)).combine_chunks()
    left = count
    while left:
        for low in range(0, ONE, GROUP):
            some = once.slice(low, min(GROUP, left))
            left -= some.num_rows
            if some.num_rows:
                yield some


def features(found: pa.Table) -> pa.Array:
    """What stands after the label in Vowpal Wabbit's text: columns by number, zeros left out."""
    numbers = []
    for at, name in enumerate(found.column_names[:-1], 1):
        column = pc.cast(pc.if_else(pc.equal(found[name], 0), None, found[name]), "string")
        numbers.append(pc.binary_join_element_wise(f"{at}:", column, ""))
    return pc.binary_join_element_wise("|f", *numbers, " ", null_handling="skip").combine_chunks()
