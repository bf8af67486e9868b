"""Predictions of a file that ``streamomd export --as scorer`` wrote, with numpy alone.

This module imports nothing of streamomd: copy it, or take it out of the exported file, which is a
zip archive. ``scorer_reader.mjs`` is the same in JavaScript, without trees.

    from scorer_reader import load
    predict = load("bank.scorer")
    predict({"age": 30, "job": "cook"})  # {"prediction": "no", "score": -1.3, "probability": 0.2}

A result has the columns of ``streamomd predict``. A row is a dict from column to value: numbers
(durations, times of day: seconds, or of ``datetime``), texts, bytes, booleans, dates (or ISO
texts), lists; None and NaN are missing. ValueError: a bad value. KeyError: a missing column.
"""

from __future__ import annotations

import base64
import datetime
import decimal
import io
import itertools
import json
import math
import unicodedata
import zipfile
from bisect import bisect_right
from collections import Counter
from typing import Any

import numpy as np

CACHED = 1 << 16
LARGEST = 1.7976931348623157e308
RATES = ("gamma", "log_square", "poisson", "tweedie")  # losses: a prediction is exp of the margin


class Predict:
    """A model as a function of a row."""

    def __init__(self, head: dict[str, Any], arrays: dict[str, Any]) -> None:
        if head.get("format") != "streamomd scorer" or head["version"] != 1:
            raise ValueError("not a scorer of version 1")
        if "rule" in head["margins"]:
            raise ValueError("a rule that predicts more than a sum: use streamomd")
        if head["link"]["mean"] == "loss" and head["link"]["loss"] not in RATES:
            raise ValueError(f"loss {head['link']['loss']!r} is not known here: use streamomd")
        self.columns, self.link, self.arrays = head["columns"], head["link"], arrays
        c = self.columns
        self._hashed = int(c["bias"]) + len(c["numbers"]) + sum(v[1] for v in c["vectors"])
        self._trees = Trees(c["trees"]) if c.get("trees") else None
        self._hashed += self._trees.margins if self._trees else 0
        self._hashed += sum(len(curve[3]) for curve in c.get("curves", ()))
        hashes = c["categories"] or c["lists"] or c["texts"] or c["dates"] or c["crosses"]
        self._sparse = self._hashed + (2 ** c["bits"] if hashes else 0)
        self._places: dict[bytes, int] = {}

    def __call__(self, row: dict[str, Any]) -> dict[str, Any]:
        """The prediction of a row."""
        entries = self.entries(row)
        at, x = np.array([*entries], np.int64), np.array([*entries.values()], np.float64)
        weights, known = self.arrays["weights"], self.arrays.get("coordinates")
        if known is not None:
            places = known.searchsorted(at)
            there = places < len(known)
            there[there] = known[places[there]] == at[there]
            at, x = places[there], x[there]
        margins = self.arrays["start"] + x @ weights[at]
        if "target" in self.arrays:
            centre, scale = self.arrays["target"]
            margins = centre + scale * margins
        return self._prediction(margins)

    def entries(self, row: dict[str, Any]) -> dict[int, float]:
        """The values of a row by coordinate, without the bias."""
        c = self.columns
        numbers, indicators, absent = self._numbers(row)
        sums, single = self._sums(row, self._bins(numbers, absent))
        if self._trees:
            numbers += self._trees.of(numbers, absent, [at - self._hashed for at in single])
        if "reference" in self.arrays:
            for k, (centre, scale) in enumerate(self.arrays["reference"].T):
                numbers[k] = (numbers[k] - centre) / scale if scale > 0.0 else 0.0
        if c["sparse"]:
            indices, values, size, kind = c["sparse"]
            read = [listed(value_of(row, name)) for name in (indices, values)]
            for index, value in zip(*read, strict=True):
                x = self._checked(value, kind, values)
                if x is None or not 0 <= index < size:
                    raise ValueError(f"{indices!r}: index {index!r} with value {value!r}")
                sums[self._sparse + index] = sums.get(self._sparse + index, 0.0) + x
        if c["narrow"]:
            sums = {at: rounded(x, "float32") for at, x in sums.items()}
        first = self._sparse + (c["sparse"][2] if c["sparse"] else 0)
        return {**dict(enumerate(numbers, int(c["bias"]))), **sums,
                **dict(enumerate(indicators, first))}  # fmt: skip

    def _numbers(self, row: dict[str, Any]) -> tuple[list[float], list[float], set[int]]:
        """Numbers, elements of vectors, hats; missing-value indicators; numbers without hats."""
        found, indicators, hatless = list[float](), list[float](), set[int]()
        c = self.columns
        numbers = [(name, 0, kind, nulls, False) for name, kind, nulls in c["numbers"]]
        for name, width, kind, nulls, ragged in [*numbers, *c["vectors"]]:
            given, n = value_of(row, name), width or 1
            elements = list(given) if width and plain(given) is not None else n * [given]
            if len(elements) > n or (len(elements) < n and not ragged):
                raise ValueError(f"{name!r}: {len(elements)} numbers, expected {n}")
            values = [self._checked(one, kind, name) for one in elements]
            missing = None in values
            if missing and nulls == "error":
                raise ValueError(f"{name!r}: a missing value")
            if nulls == "indicator":
                indicators.append(float(missing))
            for value in values + (n - len(values)) * [0.0]:
                absent = value is None and nulls == "mean"
                if absent or (missing and nulls == "indicator"):
                    hatless.add(len(found))
                fill = float(self.arrays["fill"][len(found)]) if absent else 0.0
                found.append(fill if value is None else value)
        for place, _, _, knots in c.get("curves", ()):
            hats, x = len(knots) * [0.0], found[place]
            if place not in hatless:
                k = sum(x >= knot for knot in knots[1:-1])
                share = min(1.0, max(0.0, (x - knots[k]) / (knots[k + 1] - knots[k])))
                hats[k], hats[k + 1] = 1.0 - share, share
            found += hats
        return found, indicators, hatless

    def _checked(self, value: Any, kind: str, name: str) -> float | None:
        """A number in the range of the model; None if it is missing."""
        x, c = number(value, kind, name), self.columns
        limits = [c[limit] for limit in ("most", "largest") if c[limit] is not None]
        if x and not c["least"] <= abs(x) <= min(limits, default=LARGEST):
            raise ValueError(f"{name!r}: {value!r} is out of the model's range")
        return x

    def _bins(self, numbers: list[float], absent: set[int]) -> dict[str, bytes | None]:
        """Numbers as categories, in crosses."""
        return {
            name: None if place in absent else names[bisect_right(edges, numbers[place])].encode()
            for name, place, edges, names in self.columns.get("bins", ())
        }

    def _sums(self, row: dict[str, Any], texts: Any) -> tuple[dict[int, float], list[int]]:
        """Sums of hashed coordinates; those of categories and parts of dates. texts: of bins."""
        c = self.columns
        alone = [name for name, _, is_alone in c["categories"] if is_alone]
        for name, kind, _ in c["categories"]:
            texts[name] = category(value_of(row, name), kind, name)
        for name, kind, parts in c["dates"]:
            moment = date(value_of(row, name), kind, name)
            for part in parts:
                texts[f"{name}.{part}"] = None if moment is None else part_of(moment, part)
                alone.append(f"{name}.{part}")
        keys = [key(name, texts[name]) for name in alone]
        single = [self._place(one) for one in keys]
        for cross in c["crosses"]:
            name = "^".join(n.replace("\\", "\\\\").replace("^", "\\^") for n in cross)
            keys.append(key(name, b"^".join(escaped(texts[n]) for n in cross)))
        for name, kind in c["lists"]:
            elements = value_of(row, name)
            elements = [None] if plain(elements) is None else listed(elements)
            keys += [key(name, category(one, kind, name)) for one in elements]
        sums: dict[int, float] = dict(Counter(self._place(one) for one in keys))
        for name, ngrams, how in c["texts"]:
            words = text(value_of(row, name)).translate(LOWER).split()
            runs = (" ".join(words[i : i + n]) for n in range(1, ngrams + 1)
                    for i in range(len(words) - n + 1))  # fmt: skip
            counted = Counter(self._place(key(name, run.encode())) for run in runs)
            for at, n in counted.items():
                x = 1.0 if how == "presence" else float(n) if how == "count" else math.log1p(n)
                sums[at] = sums.get(at, 0.0) + x
        return sums, single

    def _place(self, name: bytes) -> int:
        if (at := self._places.get(name)) is None:
            at = self._hashed + murmur3(name, self.columns["seed"]) % 2 ** self.columns["bits"]
            if len(self._places) < CACHED:
                self._places[name] = at
        return at

    def _prediction(self, margins: Any) -> dict[str, Any]:
        link, labels = self.link, self.link["labels"]
        score = margins.tolist() if len(margins) > 1 else float(margins[0])
        calibration = link.get("calibrated")
        mean = MEANS[link["of"] if calibration else link["mean"]]
        if not labels:
            return {"prediction": mean(score), "score": score}
        best = int(margins.argmax()) if len(margins) > 1 else int(score > 0.0)
        row = {"prediction": labels[best], "score": score}
        if calibration:
            one = float(margins[1] - margins[0]) if len(margins) > 1 else score
            p = calibrated(calibration, one)
            row["probability"] = [1.0 - p, p] if len(margins) > 1 else p
        elif link["probable"]:
            e = link["e"]
            if len(margins) == 1:
                row["probability"] = (1.0 - e) * mean(score) + e / 2
            elif link["coupled"]:
                odds = np.exp(margins - margins.max())
                row["probability"] = ((1.0 - e) * odds / odds.sum() + e / len(odds)).tolist()
            else:
                each = [(1.0 - e) * mean(one) + e / 2 for one in margins.tolist()]
                total, n = sum(each), len(each)
                row["probability"] = [p / total if total else 1.0 / n for p in each]
        return row


class Trees:
    """Boosted trees, whose margins are numbers."""

    def __init__(self, saved: dict[str, Any]) -> None:
        arrays = np.load(io.BytesIO(base64.b64decode(saved["growths"])), allow_pickle=False)
        a = {name.removeprefix("0."): arrays[name].tolist() for name in arrays.files}
        self.margins, self._given = saved["margins"], saved["columns"] - len(a["ends"])
        self._nodes = a["feature"], a["value"], a["right"], a["nan_left"]
        self._roots, self._unseen = a["roots"], a["unseen"]
        codes, ends = [*zip(a["places"], a["codes"], strict=True)], [0, *a["ends"]]
        self._codes = [dict(codes[low:high]) for low, high in itertools.pairwise(ends)]

    def of(self, numbers: list[float], absent: set[int], places: list[int]) -> list[float]:
        """The margins of a row. places: of its categories."""
        x = [math.nan if k in absent else v for k, v in enumerate(numbers[: self._given])]
        x += map(dict.get, self._codes, places, self._unseen)
        (feature, value, right, nan_left), found = self._nodes, [0.0] * self.margins
        for tree, at in enumerate(self._roots[:-1]):
            while (column := feature[at]) >= 0:
                left = nan_left[at] if math.isnan(x[column]) else x[column] <= value[at]
                at = at + 1 if left else right[at]  # noqa: PLW2901
            found[tree % self.margins] += value[at]
        return found


def load(path: Any) -> Predict:
    """The model of a file."""
    with zipfile.ZipFile(path) as archive:
        head = json.loads(archive.read("scorer.json"))
        arrays = {
            name: np.frombuffer(archive.read(f"{name}.bin"), {"float64": "<f8", "int64": "<i8"}[t])
            .reshape(shape)
            for name, (t, *shape) in head["arrays"].items()
        }  # fmt: skip
    return Predict(head, arrays)


def value_of(row: Any, name: str) -> Any:
    """A column of a row; "a.b" may be field b of a nested mapping a, None where that is."""
    if name in row:
        return row[name]
    missing = False
    for at in reversed([at for at in range(len(name)) if name[at] == "."]):
        inner = row.get(name[:at], ())
        if isinstance(inner, dict):
            try:
                return value_of(inner, name[at + 1 :])
            except KeyError:
                continue
        missing = missing or inner is None
    if missing:
        return None
    raise KeyError(name)


def plain(value: Any) -> Any:
    """A value without numpy's types; None if it is missing."""
    if type(value).__name__ in ("NAType", "NaTType"):
        return None
    value = value.item() if isinstance(value, np.generic) else value
    return None if isinstance(value, float | decimal.Decimal) and value != value else value  # noqa: PLR0124


def listed(value: Any) -> list[Any]:
    """The elements of a list, none of a missing one."""
    return [] if plain(value) is None else list(value)


def number(value: Any, kind: str, name: str) -> float | None:
    """A number as a column of its kind stores it; None if it is missing."""
    value, (kind, _, unit) = plain(value), kind.partition(":")
    if value is None:
        return None
    if isinstance(value, datetime.time):
        value = datetime.datetime.combine(datetime.date.min, value) - datetime.datetime.min
    if isinstance(value, datetime.timedelta):
        per_second = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}[unit]
        return value // datetime.timedelta(microseconds=1) * per_second // 10**6 / per_second
    numeric = isinstance(value, int | float | decimal.Decimal)
    if isinstance(value, bool) != (kind == "boolean") or not numeric:
        raise ValueError(f"{name!r}: {value!r}, expected a {kind}")
    return rounded(float(value), kind)


def rounded(x: float, kind: str) -> float:
    """A float as a column of its kind stores it."""
    with np.errstate(over="ignore"):
        return float(np.dtype(kind).type(x)) if kind in ("float32", "float16") else x


def category(value: Any, kind: str, name: str) -> bytes | None:
    """The bytes of a category; None if it is missing."""
    if (value := plain(value)) is None:
        return None
    if isinstance(value, bytes) and kind in ("text", "bytes"):
        return value
    texts, booleans = kind in ("text", "bytes"), kind == "boolean"
    if isinstance(value, str) != texts or isinstance(value, bool) != booleans:
        raise ValueError(f"{name!r}: {value!r}, expected a category of kind {kind}")
    if texts:
        return str(value).encode()
    if booleans:
        return b"true" if value else b"false"
    if kind == "integer":
        if value != int(value):
            raise ValueError(f"{name!r}: {value!r}, expected a whole number")
        return b"%d" % int(value)
    return repr(rounded(float(value), kind) + 0.0).encode()


def date(value: Any, kind: str, name: str) -> Any:
    """A date, or a datetime in UTC if the column has a zone; None if it is missing."""
    timed = kind != "date"
    if isinstance(value, np.datetime64):
        value = value.astype("M8[us]" if timed else "M8[D]")
    if (value := plain(value)) is None:
        return None
    if isinstance(value, str):
        value = (datetime.datetime if timed else datetime.date).fromisoformat(value)
    zoned = getattr(value, "tzinfo", None) is not None
    legal = isinstance(value, datetime.date) and isinstance(value, datetime.datetime) == timed
    if not legal or zoned != kind.endswith("zone"):
        raise ValueError(f"{name!r}: {value!r}, expected a {kind}")
    return value.astimezone(datetime.UTC) if zoned else value


def part_of(moment: Any, part: str) -> bytes:
    """A part of a date as a category; weekdays go from Monday, 1, to 7."""
    return b"%d" % (moment.isoweekday() if part == "weekday" else getattr(moment, part))


def text(value: Any) -> str:
    """A text, "" if it is missing."""
    value = plain(value)
    return "" if value is None else value.decode() if isinstance(value, bytes) else str(value)


class _Lower(dict[int, int]):
    """By character: its lower case, or a space for what stands between words."""

    def __missing__(self, number: int) -> int:
        one = chr(number)
        inside = unicodedata.category(one)[0] in "LMN" or one == "_"
        self[number] = ord(one.lower()[0]) if inside else 32
        return self[number]


LOWER = _Lower()


def key(column: str, value: bytes | None) -> bytes:
    """What is hashed of a category."""
    return column.encode() + (b"\xff" if value is None else b"=" + value)


def escaped(value: bytes | None) -> bytes:
    """A category in a cross."""
    return b"\\N" if value is None else value.replace(b"\\", b"\\\\").replace(b"^", b"\\^")


def murmur3(content: bytes, seed: int) -> int:
    """MurmurHash3, 32 bits, unsigned."""
    h, whole = seed, len(content) & ~3
    for at in range(0, len(content), 4):
        k = int.from_bytes(content[at : at + 4], "little") * 0xCC9E2D51 & 0xFFFFFFFF
        h ^= (k << 15 | k >> 17) * 0x1B873593 & 0xFFFFFFFF
        if at < whole:
            h = ((h << 13 | h >> 19) & 0xFFFFFFFF) * 5 + 0xE6546B64 & 0xFFFFFFFF
    h ^= len(content)
    h = (h ^ h >> 16) * 0x85EBCA6B & 0xFFFFFFFF
    h = (h ^ h >> 13) * 0xC2B2AE35 & 0xFFFFFFFF
    return h ^ h >> 16


def sigmoid(margin: float) -> float:
    """1 / (1 + exp(-margin))."""
    e = math.exp(-abs(margin))
    return (1.0 if margin >= 0.0 else e) / (1.0 + e)


def exp(margin: float) -> float:
    """exp(margin), infinity where that overflows."""
    return math.exp(margin) if margin < 709.0 else math.inf


MEANS: dict[str, Any] = {"margin": float, "sigmoid": sigmoid, "loss": exp}


def calibrated(calibration: dict[str, Any], margin: float) -> float:
    """The probability of the second class at a margin."""
    if calibration["kind"] == "sigmoid":
        return sigmoid(calibration["x"][0] * margin + calibration["x"][1])
    return float(np.interp(margin, calibration["x"], calibration["p"]))
