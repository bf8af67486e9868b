"""The same rows come out of a text however it is encoded, delimited, quoted and ended."""

from __future__ import annotations

import csv
import datetime as dt
import io
import itertools
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from streamomd.sources.contract import Request
from streamomd.sources.tables import TableOptions
from streamomd.sources.text import text_cache
from streamomd.sources.text.convert import convert

ENCODINGS = ("utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "latin-1", "cp1252")
DELIMITERS = (",", ";", "\t", "|", ", ")
ROWS: list[dict[str, Any]] = [
    {"größe": 1.5, "plz": "01234", "wort": "süß", "tag": dt.date(2026, 1, 31), "y": 1},
    {"größe": -2.25, "plz": "1234", "wort": 'a "b"', "tag": dt.date(2026, 2, 1), "y": 0},
    {"größe": None, "plz": "00000", "wort": "c, d; e|f\tg", "tag": None, "y": 1},
    {"größe": 1e-3, "plz": None, "wort": "lang", "tag": dt.date(1999, 12, 31), "y": 0},
    {"größe": 3.0, "plz": "9", "wort": None, "tag": dt.date(2026, 3, 3), "y": 1},
]
EXPECTED = {name: [row[name] for row in ROWS] for name in ROWS[0]}


def written(delimiter: str, decimal: str, end: str, *, feed: bool, missing: str) -> str:
    """The rows as a text; with ``feed``, one word has a line end inside quotes."""
    out = io.StringIO()
    writer = csv.writer(out, delimiter=delimiter[0], lineterminator=end)
    writer.writerow(ROWS[0])
    for row in ROWS:
        values = [_text(value, decimal, missing) for value in row.values()]
        values[2] = values[2] if not feed or row["wort"] != "lang" else "zwei\nZeilen"
        writer.writerow(values)
    text = out.getvalue()
    # A comma and a space, outside quotes: Python's writer has one character.
    parts = text.split('"')
    spaced = [part.replace(",", ", ") if k % 2 == 0 else part for k, part in enumerate(parts)]
    return '"'.join(spaced) if len(delimiter) == 2 else text


def _text(value: Any, decimal: str, missing: str) -> str:
    if value is None:
        return missing
    if isinstance(value, dt.date):
        return f"{value:%d.%m.%Y}"
    return f"{value}".replace(".", decimal) if isinstance(value, float) else str(value)


@pytest.mark.parametrize(
    "encoding, delimiter",
    [
        pytest.param(one, other, marks=() if (place - k) % 7 in (0, 5) else pytest.mark.slow)
        for place, one in enumerate(ENCODINGS)
        for k, other in enumerate(DELIMITERS)
    ],
)
@pytest.mark.sample(5)
def test_every_dialect_gives_the_same_rows(encoding: str, delimiter: str, tmp_path: Path) -> None:
    """Both decimal marks, line ends inside quotes or none, LF and CRLF, a last line with or without
    an end, empty or NA for missing; the delimiter given or found; the same when read directly."""
    cases = itertools.product(".,", (False, True), ("\n", "\r\n"), ("", "NA"), (False, True))
    for number, (decimal, feed, end, missing, cut) in enumerate(cases):
        text = written(delimiter, decimal, end, feed=feed, missing=missing)
        path = tmp_path / f"{number}.csv"
        path.write_bytes((text.removesuffix(end) if cut else text).encode(encoding))
        options: dict[str, Any] = {"decimal": decimal, "date_format": "%d.%m.%Y"}
        options |= {} if encoding.startswith("utf-8") or encoding == "utf-16" else {
            "encoding": encoding
        }  # fmt: skip
        words = [one if not feed or one != "lang" else "zwei\nZeilen" for one in EXPECTED["wort"]]
        expected = {**EXPECTED, "wort": words}
        for name, more in (("given", {"delimiter": delimiter}), ("found", {})):
            to = tmp_path / f"{number}-{name}"
            convert([str(path)], source_format="csv", to=str(to), **options, **more)
            found = pq.read_table(to).to_pydict()
            found["tag"] = [one and one.date() for one in found["tag"]]
            assert found == expected, (number, name, text)


def test_a_text_read_directly_is_that_of_convert(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The cache's shards have the rows of convert's."""
    monkeypatch.setenv(text_cache.VARIABLE, str(tmp_path / "cache"))
    path = tmp_path / "a.csv"
    path.write_bytes(written(";", ",", "\r\n", feed=True, missing="NA").encode("cp1252"))
    options = {"decimal": ",", "date_format": "%d.%m.%Y", "encoding": "cp1252"}
    request = Request(tables=TableOptions(csv=options))
    [folder] = text_cache.as_shards([str(path)], request)
    convert([str(path)], source_format="csv", to=str(tmp_path / "out"), **options)
    assert pq.read_table(folder).equals(pq.read_table(tmp_path / "out"))


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_text_that_begins_with_blank_lines(end: str, tmp_path: Path) -> None:
    """They are no rows, however many there are; a line that is all in quotes is one."""
    path = tmp_path / "a.csv"
    path.write_bytes((end * 22 + end.join(["x;y", "1;2", "3;4"])).encode())
    done = convert([str(path)], source_format="csv", to=str(tmp_path / "out"))
    assert pq.read_table(done.shards[0]).to_pydict() == {"x": [1, 3], "y": [2, 4]}
    path.write_bytes(end.join(['"x"', '"a"', '"b"']).encode())
    done = convert([str(path)], source_format="csv", to=str(tmp_path / "quoted"))
    assert pq.read_table(done.shards[0]).to_pydict() == {"x": ["a", "b"]}
