"""Features, literally: one row at a time, one character at a time, as docs/job-file.md tells it.

Imports nothing of streamomd; the hash alone is a library's.
"""

from __future__ import annotations

import datetime
import math
import unicodedata
from collections import Counter

import mmh3


def words_of(text):
    """Runs of letters, marks, numbers and underscores, each character lower-cased by itself."""
    found, word = [], ""
    for character in text:
        if unicodedata.category(character)[0] in "LMN" or character == "_":
            word += character.lower()[0]
        elif word:
            found.append(word)
            word = ""
    return [*found, word] if word else found


def grams_of(text, most):
    words = words_of(text)
    runs = range(1, most + 1)
    return [" ".join(words[k : k + n]) for n in runs for k in range(len(words) - n + 1)]


def written(value):
    """A value as bytes; None for a null."""
    if value is None or isinstance(value, bytes):
        return value
    if isinstance(value, bool):
        return b"true" if value else b"false"
    return str(value).encode()


def category(column, value):
    text = written(value)
    return column.encode() + (b"\xff" if text is None else b"=" + text)


def escaped(text):
    found = b""
    for byte in text:
        found += b"\\" if byte in b"\\^" else b""
        found += bytes([byte])
    return found


def cross(columns, values):
    name = b"^".join(escaped(column.encode()) for column in columns)
    texts = [b"\\N" if value is None else escaped(written(value)) for value in values]
    return name + b"=" + b"^".join(texts)


def parts_of(column, value, parts):
    """The parts of a date by name."""
    if value is None:
        return {f"{column}.{part}": None for part in parts}
    if getattr(value, "tzinfo", None) is not None:
        value = value.astimezone(datetime.UTC)
    found = {"year": value.year, "month": value.month, "weekday": value.isoweekday()}
    if isinstance(value, datetime.datetime):
        found["hour"] = value.hour
    return {f"{column}.{part}": found[part] for part in parts}


def is_missing(value):
    return value is None or value != value


WORTH = {"presence": lambda count: 1.0, "count": float, "log": math.log1p}


def featurised(row, job):
    """{coordinate: value} of a row (a dict), the bias left out; equal coordinates are summed.

    job: numeric, vectors ({column: width}), hashed, dates ({column: parts}), crosses, text
    ((column, ngrams, counts) each), nulls, bits, hash_seed.
    """
    found, missing, place = {}, [], 1
    for name in job["numeric"]:
        missing.append(is_missing(row[name]))
        found[place] = 0.0 if missing[-1] else float(row[name])
        place += 1
    for name, width in job["vectors"].items():
        values = [None] * width if row[name] is None else row[name]
        missing.append(any(map(is_missing, values)))
        for value in values:
            found[place] = 0.0 if is_missing(value) else float(value)
            place += 1
    base = place

    def add(text, value):
        at = base + mmh3.hash(text, job["hash_seed"], signed=False) % 2 ** job["bits"]
        found[at] = found.get(at, 0.0) + value

    values = dict(row)
    for name in job["hashed"]:
        add(category(name, row[name]), 1.0)
    for name, parts in job["dates"].items():
        for part, value in parts_of(name, row[name], parts).items():
            add(category(part, value), 1.0)
            values[part] = value
    for columns in job["crosses"]:
        add(cross(columns, [values[name] for name in columns]), 1.0)
    for name, most, counts in job["text"]:
        total = Counter()
        for gram in grams_of(row[name] or "", most):
            text = f"{name}={gram}".encode()
            total[mmh3.hash(text, job["hash_seed"], signed=False) % 2 ** job["bits"]] += 1
        for at, count in total.items():
            found[base + at] = found.get(base + at, 0.0) + WORTH[counts](count)
    if job["nulls"] == "indicator":
        end = base + 2 ** job["bits"]
        found |= {end + at: 1.0 for at, gone in enumerate(missing) if gone}
    return dict(sorted(found.items()))
