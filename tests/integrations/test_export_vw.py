"""VW's readable text: places as VW has them, and margins of what is parsed back."""

from __future__ import annotations

import io
from typing import Any

import mmh3
import numpy as np
import pyarrow as pa
import pytest
from exporting import answers, model_of, table

from streamomd.core.errors import UnsupportedError
from streamomd.integrations.export import FORMATS, to_vw
from streamomd.training.model import Model

EVERYTHING = {"numeric": ["n", "f", "t"], "vectors": ["e"], "hashed": ["h", "k"], "bits": 12}
CONSTANT = 11650396


def text_of(model: Model) -> str:
    file = io.BytesIO()
    FORMATS["vw"].write(model, file)
    return file.getvalue().decode()


def read(text: str) -> tuple[int, dict[int, float], dict[int, str]]:
    """Bits, weights and names by index, as one reads such a file: the last two colons count."""
    head, _, body = text.partition("\n:0\n")
    bits = int(next(line for line in head.splitlines() if line.startswith("bits:"))[5:])
    rows = [line.rsplit(":", 2) for line in body.splitlines()]
    weights = {int(index): float(weight) for _, index, weight in rows}
    assert len(weights) == len(rows)
    return bits, weights, {int(index): name for name, index, _ in rows}


def place(name: bytes, bits: int) -> int:
    """VW's: murmur3 with seed 0; a name of digits is that number."""
    known = int(name) if name.isdigit() else mmh3.hash(name, 0, signed=False)
    return known & ((1 << bits) - 1)


def margin(row: dict[str, Any], weights: dict[int, float], bits: int) -> float:
    """Of ``| n:… f:… t:… e[0]:… h=… k=…``, and the constant."""
    features = [(name.encode(), float(row[name])) for name in ("n", "f", "t")]
    features += [(f"e[{at}]".encode(), float(x)) for at, x in enumerate(row["e"])]
    h = b"h\xff" if row["h"] is None else b"h=" + row["h"].encode()
    features += [(h, 1.0), (f"k={row['k']}".encode(), 1.0)]
    told = sum(weights.get(place(name, bits), 0.0) * x for name, x in features)
    return told + weights[CONSTANT & ((1 << bits) - 1)]


def test_what_is_parsed_back_gives_our_margins() -> None:
    """Of all kinds of columns, a null category among them."""
    rows = table()
    words = [None if i % 5 == 0 else word for i, word in enumerate(rows["h"].to_pylist())]
    rows = rows.set_column(4, "h", pa.array(words))
    model = model_of(rows, data=EVERYTHING)
    keep = np.unique(_touched(model, rows))  # else nearly every place has a weight
    model.state.slot("v")[np.setdiff1d(np.arange(model.plan.size), keep)] = 0.0
    bits, weights, _ = read(text_of(model))
    told = [margin(row, weights, bits) for row in rows.to_pylist()]
    np.testing.assert_allclose(told, answers(model, rows)["score"], rtol=1e-12)


def _touched(model: Model, rows: pa.Table) -> Any:
    from exporting import batch_of

    return np.append(batch_of(model, rows).indices + 1, 0)


def test_names_and_numbers() -> None:
    """Columns of numbers: their names, a bias called Constant, at 18 bits."""
    rows = table()
    data = {"numeric": ["n", "f"], "ignore": ["t", "h", "k", "e"]}
    model = model_of(rows, data=data)
    bits, weights, names = read(text_of(model))
    assert bits == 18
    assert names == {CONSTANT & 0x3FFFF: "Constant", place(b"n", 18): "n", place(b"f", 18): "f"}
    assert sorted(weights.values()) == sorted(model.state.slot("v")[:, 0].tolist())


def test_a_pair_is_features_by_number(monkeypatch: pytest.MonkeyPatch) -> None:
    """Index i is the feature i, with enough bits that no other feature has this index."""
    monkeypatch.setattr(to_vw, "LEAST_BITS", 1)
    rows = table().append_column("i", pa.array([[1]] * 30, pa.list_(pa.int64())))
    rows = rows.append_column("v", pa.array([[1.0]] * 30, pa.list_(pa.float64())))
    pair = {"indices": "i", "values": "v", "size": 200}
    data = {"sparse": pair, "numeric": ["n"], "ignore": ["f", "t", "h", "k", "e"]}
    model = model_of(rows, data=data)
    bits, weights, names = read(text_of(model))
    mask = (1 << bits) - 1
    assert all(weights[i] == model.state.slot("v")[2 + i, 0] for i in range(200))
    assert names[17] == "17"
    assert {names[place(b"n", bits)], names[CONSTANT & mask]} == {"n", "Constant"}
    assert min(place(b"n", bits - 1), CONSTANT & (mask >> 1)) < 200


REFUSED = {
    "classes": (table(labels="three"), EVERYTHING, "has 3"),
    "seed": (table(), {**EVERYTHING, "hash_seed": 1}, "hash_seed is 1"),
    "places": (table(), {**EVERYTHING, "bits": 1}, "one index with -b 1"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_vw_cannot_say_is_refused(case: str) -> None:
    """Classes, another seed, columns that would fall together."""
    rows, data, message = REFUSED[case]
    with pytest.raises(UnsupportedError, match=message):
        text_of(model_of(rows, data=data))


def test_two_features_in_one_place_are_refused() -> None:
    """A column of numbers where a category with a weight has its place, by both names."""
    model = model_of(table(), data={**EVERYTHING, "bits": 10})
    with pytest.raises(UnsupportedError, match="one index with -b 10"):
        text_of(model)
