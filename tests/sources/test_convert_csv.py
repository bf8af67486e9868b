"""csv into shards: types that are fixed, text that is refused, never a row too few."""

from __future__ import annotations

import gzip
from dataclasses import asdict
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from streamomd.cli import formatting
from streamomd.core.errors import DataError, UsageError
from streamomd.shards.formats.footer import describe_bytes
from streamomd.sources.text import csv_source
from streamomd.sources.text.conversion import Converted
from streamomd.sources.text.convert import convert

DATA = Path(__file__).resolve().parents[2] / ".." / "shared" / "data"


def real(name: str) -> str:
    """A file of the shared data sets; skips where they are not."""
    path = (DATA / name).resolve()
    if not path.exists():
        pytest.skip(f"../shared/data/{name} is not beside this checkout")
    return str(path)


def csv(tmp_path: Path, text: str | bytes, **options) -> Converted:
    source = tmp_path / "rows.csv"
    source.write_bytes(text.encode() if isinstance(text, str) else text)
    to = str(tmp_path / "out")
    return convert([str(source)], source_format="csv", to=to, **options)


def rows(done: Converted) -> dict[str, list]:
    return pa.concat_tables(pq.read_table(path) for path in done.shards).to_pydict()


@pytest.mark.parametrize(
    "text, expected",
    [
        ("a,b\n1,x\n2,y\n", {"a": [1, 2], "b": ["x", "y"]}),
        ("a,b\n1,x\n2,y", {"a": [1, 2], "b": ["x", "y"]}),
        ("a,b\r\n1,x\r\n2,y\r\n", {"a": [1, 2], "b": ["x", "y"]}),
        ("\ufeffa,b\n1,x\n", {"a": [1], "b": ["x"]}),
        ("a;b\n1,5;x\n", {"a": ["1,5"], "b": ["x"]}),
        ("a\tb\n1\tx,y;z\n", {"a": [1], "b": ["x,y;z"]}),
        ("a, b\n1, x y\n-2, z\n", {"a": [1, -2], "b": ["x y", "z"]}),
        ('a, b\n1, "x, y"\n', {"a": [1], "b": ["x, y"]}),
        ('a,b\n1,"x\ny"\n2,"q ""q"""\n', {"a": [1, 2], "b": ["x\ny", 'q "q"']}),
        ("a,b\n\n1,x\n\n\n2,y\n\n", {"a": [1, 2], "b": ["x", "y"]}),
        ("a,b\n,x\n2,\n", {"a": [None, 2], "b": ["x", None]}),
        ('a,b\n1,""\n', {"a": [1], "b": [""]}),
        ("a,b\n1.5,NA\n2,?\n", {"a": [1.5, 2.0], "b": [None, "?"]}),
        ("a\n9223372036854775807\n-1\n", {"a": [2**63 - 1, -1]}),
        ("a,b\n1,\n2,\n", {"a": [1, 2], "b": [None, None]}),
    ],
)
def test_legal_text(tmp_path, text, expected):
    """Each legal spelling gives these values."""
    assert rows(csv(tmp_path, text)) == expected


@pytest.mark.parametrize(
    "text, options, expected",
    [
        ("1,x\n2,y\n", {"header": False}, {"f0": [1, 2], "f1": ["x", "y"]}),
        ("1,x\n", {"header": False, "column_names": ["n", "s"]}, {"n": [1], "s": ["x"]}),
        ("a,b\nNA,x\n2,?\n", {"null_values": ["NA", "?"]}, {"a": [None, 2], "b": ["x", None]}),
        ("a,b\n01,1\n", {"types": {"a": "string", "b": "float32"}}, {"a": ["01"], "b": [1.0]}),
        ("a|b\n1|2\n", {"delimiter": "|"}, {"a": [1], "b": [2]}),
        ('a,b\n1,5" pipe\n', {"quotes": False}, {"a": [1], "b": ['5" pipe']}),
        (b"a\ncaf\xe9\n", {"types": {"a": "binary"}}, {"a": [b"caf\xe9"]}),
    ],
)
def test_options(tmp_path, text, options, expected):
    """Each option does what its description says."""
    assert rows(csv(tmp_path, text, **options)) == expected


@pytest.mark.parametrize(
    "text, options, words",
    [
        ("", {}, ["empty", "header"]),
        ("\n\n", {}, ["empty"]),
        ("a,b\n", {}, ["no rows"]),
        ("a,b\n1,2\n3\n4,5\n", {}, ["about line 3", "expected 2 fields, got 1"]),
        ("a,b\n1,2\n3,4,5\n", {}, ["about line 3", "expected 2 fields, got 3", "3,4,5"]),
        ("a,b\n1,2\n3,4\n", {"types": {"b": "bool"}}, ["about line 2", "bool", "'2'", "--type"]),
        ("a,a\n1,2\n", {}, ["several columns", "'a'"]),
        ('a,b\n1,"x\n', {}, ["ends inside quotes", "quotes=False"]),
        ('a,b\n1,2\n3,"x', {}, ["ends inside quotes"]),
        (b"a\ncaf\xe9\n", {}, ["'a'", "UTF-8"]),
        (b"PK\x03\x04 rest of it", {}, ["zip"]),
        (gzip.compress(b"PAR1 rest of it", mtime=0), {}, ["Parquet"]),
    ],
)
def test_bad_text_is_refused(tmp_path, text, options, words):
    """Each bad text is a DataError that names the file and what is wrong, and leaves nothing."""
    with pytest.raises(DataError) as caught:
        csv(tmp_path, text, **options)
    for word in ["rows.csv", *words]:
        assert word in str(caught.value)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "options, word",
    [
        ({"delimiter": "ab"}, "delimiter"),
        ({"delimiter": "é"}, "delimiter"),
        ({"types": {"a": "number"}}, "'number'"),
        ({"types": {"z": "int64"}}, "'z'"),
        ({"column_names": ["a"]}, "header=False"),
        ({"bits": 3}, "bits"),
    ],
)
def test_bad_options_are_refused(tmp_path, options, word):
    """An option that cannot be meant is a UsageError that names it."""
    with pytest.raises(UsageError, match=word):
        csv(tmp_path, "a,b\n1,2\n", **options)


def test_a_later_value_that_does_not_fit_is_named(tmp_path, monkeypatch):
    """A type is fixed by the start of the file: a later text in it is reported with its remedy."""
    monkeypatch.setattr(csv_source, "HEAD", 100)
    monkeypatch.setattr(csv_source, "BLOCK", 50)
    text = "a,b\n" + "1,2\n" * 500 + "3,x\n" + "4,5\n" * 100
    with pytest.raises(DataError, match=r"line 502: column 'b': expected int64.*'x'.*b=string"):
        csv(tmp_path, text)
    done = csv(tmp_path, text, types={"b": "string"})
    assert rows(done)["b"] == ["2"] * 500 + ["x"] + ["5"] * 100


def test_blocks_change_nothing(tmp_path, monkeypatch):
    """Text cut at every length of block gives the same rows: quotes, spaces, line ends."""
    text = 'a, b\r\n1, "x, y"\r\n22, "p\r\nq, """\r\n\r\n333, z\r\n'
    expected = {"a": [1, 22, 333], "b": ["x, y", 'p\r\nq, "', "z"]}
    for block in range(24, 60):
        monkeypatch.setattr(csv_source, "BLOCK", block)
        assert rows(csv(tmp_path, text, overwrite=True)) == expected, block


def test_space_after_a_comma_is_removed_wherever_a_piece_ends():
    """Pieces of any length give the text without the space after a comma, quotes apart."""

    class Piece:
        name = "text"

        def __init__(self, data: bytes) -> None:
            self.data = data

        def read(self, size: int) -> bytes:
            part, self.data = self.data[:size], self.data[size:]
            return part

    text = b'a, b,c, "d, e", f,, g,'
    for size in range(1, len(text) + 1):
        stream = csv_source.CsvStream(text[:2], Piece(text[2:]), ", ", quotes=True)
        parts = list(iter(lambda s=stream, n=size: s.read(n), b""))
        assert b"".join(parts) == b'a,b,c,"d, e",f,,g,'


def test_several_files_are_one_stream(tmp_path):
    """Files follow each other, with their columns by name; other columns are refused."""
    for name, text in {"1": "a,b\n1,2\n", "2": "b,a\n4,3\n", "3": "a,c\n5,6\n"}.items():
        (tmp_path / name).write_text(text)
    paths = [str(tmp_path / name) for name in "123"]
    done = convert(paths[:2], source_format="csv", to=str(tmp_path / "out"))
    assert rows(done) == {"a": [1, 3], "b": [2, 4]}
    with pytest.raises(DataError, match="only one has 'b', 'c'"):
        convert(paths, source_format="csv", to=str(tmp_path / "other"))


@pytest.mark.slow
def test_covertype(tmp_path):
    """Covertype as 16 shards: each row once, in order, the classes as published."""
    source = real("covertype/covtype.csv.gz")
    done = convert([source], source_format="csv", to=str(tmp_path / "out"), shards=16)
    sizes = [pq.read_metadata(path).num_rows for path in done.shards]
    labels = pa.concat_tables(pq.read_table(p, columns=["Cover_Type"]) for p in done.shards)
    counts = {c["values"]: c["counts"] for c in labels.column(0).value_counts().to_pylist()}
    assert (done.rows, len(done.columns), len(sizes)) == (581012, 55, 16)
    assert max(sizes) - min(sizes) <= 1
    assert [counts[i] for i in range(1, 8)] == [211840, 283301, 35754, 2747, 9493, 17367, 20510]
    first = pq.read_table(done.shards[0]).slice(0, 1).to_pylist()[0]
    assert list(first.values())[:9] == [2596, 51, 3, 258, 0, 510, 221, 232, 148]


@pytest.mark.parametrize("first", range(1, 12))
def test_a_comma_at_the_end_of_a_piece(first, tmp_path, monkeypatch):
    """Wherever Arrow's pieces and the head end, between a comma and its space too: all rows."""
    monkeypatch.setattr(csv_source, "HEAD", 4096)
    monkeypatch.setattr(csv_source, "BLOCK", 1024)
    text = tmp_path / "a.csv"
    text.write_text(f"a, b, c\n{'1' * first}, 2, 3\n" + 1000 * "12, 34, 56\n")
    done = convert([str(text)], source_format="csv", to=str(tmp_path / "out"))
    assert pq.read_table(done.shards[0])["c"].to_pylist() == [3, *[56] * 1000]


def test_census(tmp_path):
    """Census-Income (comma and space, no header): rows, and both labels without their space."""
    source = real("census-income-kdd/census-income.test.gz")
    done = convert([source], source_format="csv", to=str(tmp_path / "out"), header=False)
    table = pq.read_table(done.shards[0])
    counts = {c["values"]: c["counts"] for c in table["f41"].value_counts().to_pylist()}
    assert counts == {"50000+.": 6186, "- 50000.": 93576}
    numeric = [i for i, kind in enumerate(table.schema.types) if not pa.types.is_string(kind)]
    assert numeric == [0, 2, 3, 5, 16, 17, 18, 24, 30, 36, 38, 39, 40]


@pytest.mark.parametrize(
    "text, advice",
    [
        ("a,b\n" + "1,2\n" * 20_000 + "x,2\n", "--type a=string"),
        ("a,b\n1,2\n3\n", "--delimiter"),
    ],
)
def test_refused_text_names_flags_and_leaves_no_folder(tmp_path, monkeypatch, text, advice):
    monkeypatch.setattr(csv_source, "HEAD", 1 << 10)
    with pytest.raises(DataError, match=advice):
        csv(tmp_path, text)
    assert not (tmp_path / "out").exists()


def test_a_folder_that_was_there_stays(tmp_path):
    (tmp_path / "out").mkdir()
    with pytest.raises(DataError):
        csv(tmp_path, "a,b\n1,2\n3\n")
    assert (tmp_path / "out").is_dir()


def test_gzipped_text_is_sent_to_convert():
    assert "streamomd convert" in describe_bytes(b"\x1f\x8b\x08")


def test_one_shard_is_one_shard():
    result = {"rows": 2, "shards": ["out/a"], "columns": ["a"], "seconds": 0.0, "size": None}
    assert "2 rows in 1 shard," in formatting.format_conversion(result)


def test_a_word_among_numbers_is_reported(tmp_path):
    """Columns that a few words made text are named with them, unless text was asked for."""
    text = "a,b,c\n" + "1,x,2\n" * 50 + "-,y,3\n?,z,4\n"
    done = csv(tmp_path, text)
    assert done.almost_numbers == {"a": ("-", "?")}
    said = formatting.format_conversion(asdict(done))
    assert "check a:" in said
    assert "--null=-" in said
    assert "--type=a=double" in said
    nulls = csv(tmp_path, text, null_values=["-", "?"], overwrite=True)
    assert nulls.almost_numbers == {}
    assert rows(nulls)["a"][-2:] == [None, None]
    assert csv(tmp_path, text, types={"a": "string"}, overwrite=True).almost_numbers == {}


def test_columns_of_numbers_with_decimal_commas_are_reported(tmp_path):
    text = "price;size;name\n1,5;-2,0;a\n2,25;NA;b\n"
    notes = csv(tmp_path, text).notes
    assert [note for note in notes if "--decimal" in note] == [
        "'price', 'size': numbers with a comma are text (if it is the decimal mark: --decimal ,)"
    ]
    fixed = csv(tmp_path, text, decimal=",", overwrite=True).notes
    assert not [note for note in fixed if "--decimal" in note]


def test_a_word_among_numbers_with_decimal_commas_is_reported(tmp_path):
    """Numbers are those of the decimal mark that was passed."""
    text = "price;size\n" + "1,5;1.5\n" * 9 + "?;2.5\n1.234,5;?\n"
    done = csv(tmp_path, text, decimal=",")
    assert done.almost_numbers == {"price": ("?", "1.234,5")}


@pytest.mark.parametrize("header", [True, False])
def test_a_value_that_does_not_fit_its_type_names_the_column(tmp_path, header):
    """Also where it is among the first rows, which are read before there is a schema."""
    text = "p q,y\n" * header + "1.5,0\n" * 9 + "?,0\n"
    name = "p q" if header else "f0"
    with pytest.raises(DataError) as caught:
        csv(tmp_path, text, types={name: "double"}, header=header)
    for words in (f"line {10 + header}: column {name!r}", f"--type {name}=string", "'?'"):
        assert words in str(caught.value)
