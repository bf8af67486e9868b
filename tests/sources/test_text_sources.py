"""Delimited text and JSON lines: read directly through a cache folder, and what convert finds."""

from __future__ import annotations

import csv
import functools
import gzip
import io
import json
import os
import shutil
import stat
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from running import alone, run

from streamomd.core.errors import DataError, StorageError, UsageError
from streamomd.sources.text import text_cache
from streamomd.sources.text.convert import convert

N = 60


def frame() -> pd.DataFrame:
    """Numbers with gaps, codes, words and labels."""
    random = np.random.default_rng(0)
    age = random.integers(18, 80, N).astype(float)
    return pd.DataFrame({
        "age": np.where(random.random(N) < 0.2, np.nan, age),
        "zip": [f"0{k}" for k in random.integers(100, 120, N)],
        "job": random.choice(["cook", "smith, master", 'a "b"', "two\nlines"], N),
        "y": random.choice(["no", "yes"], N),
    })  # fmt: skip


def written(name: str, rows: pd.DataFrame) -> str:
    """The rows as a file, packed by its name."""
    if ".jsonl" in name:
        lines = (json.dumps(dict(row)) for row in rows.fillna(-1).to_dict("records"))
        text = "\n".join(lines) + "\n"
    else:
        text = rows.to_csv(index=False, sep="\t" if ".tsv" in name else ",", na_rep="NA")
    data = text.encode()
    Path(name).write_bytes(gzip.compress(data, mtime=0) if name.endswith(".gz") else data)
    return name


@pytest.mark.parametrize("name", ["a.csv", "a.csv.gz", "a.tsv", "a.jsonl", "a.jsonl.gz"])
def test_text_is_trained_as_its_shards(name: str, here: Path) -> None:
    """The state is that of the shards which convert writes, and commands read text alike."""
    written(name, frame())
    words = ("--label", "y", "--nulls", "mean", "--json", "--bits", "8")
    direct = alone(run("train", name, *words, "--checkpoint", "direct"))
    assert run("convert", name, "-o", "shards").code == 0
    shards = alone(run("train", "shards", *words, "--checkpoint", "shards-run"))
    assert direct["state_sha256"] == shards["state_sha256"]
    assert alone(run("evaluate", "direct", name, "--json"))["rows"] == N
    assert run("predict", "direct", name, "--to", "out").code == 0
    assert run("plan", name, "--label", "y", "--nulls", "mean").code == 0


def test_the_folder_is_named_private_and_rebuilt(here: Path) -> None:
    """Its mode is 0700; a run resumes to the same bits after it was deleted, and is refused with
    exit code 3 after the text changed."""
    written("a.csv", frame())
    words = ("--label", "y", "--nulls", "mean", "--bits", "8")
    done = run("train", "a.csv", *words, "--checkpoint", "run")
    [folder] = (here / "cache" / "text").iterdir()
    assert str(folder) in done.err
    for path in (here / "cache", folder.parent, folder):
        assert stat.S_IMODE(path.stat().st_mode) == 0o700
    first = [path.read_bytes() for path in sorted(folder.glob("*.parquet"))]
    shutil.rmtree(here / "cache")
    again = alone(run("resume", "run", "--epochs", "2", "--json"))
    assert [path.read_bytes() for path in sorted(folder.glob("*.parquet"))] == first
    whole = run("train", "a.csv", *words, "--epochs", "2", "--checkpoint", "none", "--json")
    assert again["state_sha256"] == alone(whole)["state_sha256"]
    with open("a.csv", "a") as file:
        file.write("3,011,cook,no\n")
    assert run("resume", "run", "--epochs", "3").code == 3


def test_a_folder_that_is_not_complete_is_rebuilt(here: Path) -> None:
    """A cleaner of old files removed a shard, or the record is damaged."""
    written("a.csv", frame())
    [folder] = map(Path, text_cache.as_shards(["a.csv"]))
    [shard] = folder.glob("*.parquet")
    first = shard.read_bytes()
    record = folder / text_cache.RECORD
    known = json.loads(record.read_text())
    for damage in (
        shard.unlink,
        lambda: shard.write_bytes(first[:-1]),
        *(
            functools.partial(record.write_text, text)
            for text in ("", "[]", '{"files": 3}', json.dumps({**known, "shards": 3}),
                         json.dumps({**known, "notes": 3}))
        ),
    ):  # fmt: skip
        damage()
        assert text_cache.as_shards(["a.csv"]) == [str(folder)]
        assert shard.read_bytes() == first
        assert json.loads(record.read_text()) == known


def test_a_cache_that_others_can_write_is_refused(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its root, a folder below, the folder itself, and a link in place of one."""
    written("a.csv", frame())
    [folder] = map(Path, text_cache.as_shards(["a.csv"]))
    for place in (folder, folder.parent, folder.parent.parent):
        for mode in (0o770, 0o707):
            place.chmod(mode)
            with pytest.raises(StorageError, match="chmod go-w"):
                text_cache.as_shards(["a.csv"])
        place.chmod(0o700)
    for place in (folder, folder.parent):
        moved = place.rename(here / "moved")
        place.symlink_to(moved)
        with pytest.raises(StorageError, match="remove it"):
            text_cache.as_shards(["a.csv"])
        place.unlink()
        moved.rename(place)
    assert text_cache.as_shards(["a.csv"]) == [str(folder)]
    own = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: own + 1)
    with pytest.raises(StorageError, match="only this user can write"):
        text_cache.as_shards(["a.csv"])


def test_links_to_text_outside_the_allowed_urls_are_refused(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A directory's links are followed before one is read, as those to shards are."""
    (here / "rows").mkdir()
    written("rows/1.csv", frame())
    assert run("train", "rows", "--label", "y", "--nulls", "mean", "--checkpoint", "run").code == 0
    monkeypatch.setenv("STREAMOMD_ALLOWED_URLS", str(here / "rows"))
    assert run("resume", "run", "--epochs", "2").code == 0
    (here / "rows" / "1.csv").rename(here / "outside.csv")
    (here / "rows" / "1.csv").symlink_to(here / "outside.csv")
    shutil.rmtree(here / "cache")
    refused = run("resume", "run", "--epochs", "3")
    assert (refused.code, "outside.csv" in refused.err) == (2, True)
    assert not (here / "cache").exists()


def test_the_second_day_of_text(here: Path) -> None:
    """Commands that messages name, from a file to an update; or a run that starts from the first
    one's state, which skips bad rows as that one did."""
    rows = frame()
    rows.loc[0, "y"] = None
    written("1.csv", rows)
    written("2.csv", rows)
    done = run("convert", "1.csv", "-o", "shards")
    assert "streamomd init shards" in done.out
    assert run("init", "shards", "--label", "y").code == 0
    assert run("train", "job.toml", "--bits", "8", "--quiet").err == ""
    assert "streamomd update URL" in run("convert", "2.csv", "-o", "shards", "--append").out
    done = run("update", "runs/shards", "--settle", "0", "--accept-duplicates")
    assert (done.code, "1 new shard" in done.out) == (0, True)
    done = run("init", "1.csv", "--label", "y", "-o", "text.toml")
    assert "streamomd update runs/1 FILE (or, for all that arrive: init '*.csv')" in done.out
    assert run("train", "text.toml", "--bits", "8").code == 0
    done = run("train", "2.csv", "--start", "runs/1", "--checkpoint", "runs/2")
    assert (done.code, "1 bad row skipped" in done.out) == (0, True), done.err
    assert run("predict", "runs/1", "2.csv", "-o", "out.csv").code == 2


def test_text_of_a_model_stays_text(here: Path) -> None:
    """In a run that starts from it, whose file has numbers there; notes on it are not repeated."""
    Path("1.csv").write_text("rain,n,y\n0.1,1,a\nT,2,b\n0.3,3,a\n0.4,4,b\n")
    Path("2.csv").write_text("rain,n,y\n0.1,1,a\n0.2,2,b\n")
    done = run("train", "1.csv", "--label", "y", "--bits", "6", "--checkpoint", "run")
    assert "'rain': most values are numbers" in done.err
    done = run("train", "2.csv", "--start", "run", "--checkpoint", "next")
    assert done.code == 0, done.err
    assert "most values" not in run("evaluate", "run", "1.csv").err


def test_several_files_are_one_source(here: Path) -> None:
    """A glob and a directory; other sources next to text, and two formats, are refused."""
    os.mkdir("rows")
    rows = frame()
    written("rows/1.csv", rows[:20])
    written("rows/2.csv", rows[20:])
    found = [
        alone(run("train", what, "--label", "y", "--nulls", "mean", "--checkpoint", "none",
                  "--json", "--bits", "8"))["state_sha256"]
        for what in ("rows", "rows/*.csv")
    ]  # fmt: skip
    assert found[0] == found[1]
    run("convert", "rows/1.csv", "-o", "shards")
    mixed = run("train", "rows/1.csv", "shards", "--label", "y")
    assert mixed.code == 2
    assert "convert the text once, `streamomd convert rows/1.csv -o shards/`" in mixed.err
    written("a.jsonl", rows)
    assert "different formats" in run("train", "rows/1.csv", "a.jsonl", "--label", "y").err


def test_large_text_is_refused_with_the_command(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Above the limit, which is a gigabyte."""
    written("a.csv", frame())
    assert text_cache.MOST_BYTES == 10**9
    monkeypatch.setattr(text_cache, "MOST_BYTES", 100)
    done = run("train", "a.csv", "--label", "y")
    assert done.code == 2
    assert "streamomd convert a.csv" in done.err


def test_a_changed_file_is_not_mixed(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that changes while it is read is an error, and nothing of it stays."""
    written("a.csv", frame())
    real = text_cache._convert

    def slow(*given: Any) -> Any:
        found = real(*given)
        with open("a.csv", "a") as file:
            file.write("3,011,cook,no\n")
        return found

    monkeypatch.setattr(text_cache, "_convert", slow)
    with pytest.raises(DataError, match="changed while it was read"):
        text_cache.as_shards(["a.csv"])
    assert not list((here / "cache" / "text").iterdir())


def test_missing_values_are_found(here: Path) -> None:
    """NA and the like are missing; --null replaces the list."""
    Path("a.csv").write_text("a,b\n1,x\nNA,NA\nnull,y\n")
    convert(["a.csv"], source_format="csv", to="one")
    assert pq.read_table("one").to_pydict() == {"a": [1, None, None], "b": ["x", None, "y"]}
    convert(["a.csv"], source_format="csv", to="two", null_values=("null",))
    assert pq.read_table("two").to_pydict()["a"] == ["1", "NA", None]


def test_codes_stay_text(here: Path) -> None:
    """A column with one leading zero is text, with a note; 0 alone and 0.5 are numbers."""
    Path("a.csv").write_text("zip,zero,half,minus\n1234,0,0.5,-01\n01234,7,0.25,3\n")
    done = convert(["a.csv"], source_format="csv", to="one")
    assert pq.read_table("one").to_pydict() == {
        "zip": ["1234", "01234"], "zero": [0, 7], "half": [0.5, 0.25], "minus": ["-01", "3"],
    }  # fmt: skip
    assert any("'zip', 'minus'" in note for note in done.notes)
    convert(["a.csv"], source_format="csv", to="two", types={"zip": "int64"})
    assert pq.read_table("two").to_pydict()["zip"] == [1234, 1234]


def test_codes_of_later_files_are_reported(here: Path) -> None:
    """The first file chose numbers: a note names the file, the column and the option."""
    Path("a.csv").write_text("zip,n\n1234,0\n")
    Path("b.csv").write_text("zip,n\n01234,0\n")
    done = convert(["a.csv", "b.csv"], source_format="csv", to="one")
    [note] = done.notes
    assert "b.csv: 'zip' lose" in note
    assert "--type zip=string" in note
    texts = convert(["a.csv", "b.csv"], source_format="csv", to="two", types={"zip": "string"})
    assert texts.notes == ()
    assert pq.read_table("two").to_pydict()["zip"] == ["1234", "01234"]


@pytest.mark.parametrize("delimiter", [";", "|", "\t"])
def test_delimiters_are_found_and_named(delimiter: str, here: Path) -> None:
    """In the notes; a text of one column is asked about."""
    Path("a.csv").write_text(f"a{delimiter}b\n1{delimiter}2\n")
    done = convert(["a.csv"], source_format="csv", to="one")
    assert done.columns == ("a", "b")
    assert any("delimiter is" in note for note in done.notes)
    Path("b.csv").write_text("a:b\n1:2\n")
    assert "only one column" in convert(["b.csv"], source_format="csv", to="two").notes[0]


def test_european_numbers_dates_and_encodings(here: Path) -> None:
    """Decimal commas, days first, Latin-1, and UTF-16 by its mark."""
    text = "größe;tag\n1,5;31.12.2025\n2,25;01.02.2026\n"
    options: Any = {"source_format": "csv", "decimal": ",", "date_format": "%d.%m.%Y"}
    for name, encoding in (("latin", "latin-1"), ("wide", "utf-16"), ("plain", "utf-8-sig")):
        Path(name).write_bytes(text.encode(encoding))
        given = "" if name == "wide" else "latin-1"  # a mark of UTF-8 says more
        convert([name], to=f"{name}-out", encoding=given, **options)
        found = pq.read_table(f"{name}-out").to_pydict()
        assert found["größe"] == [1.5, 2.25]
        assert [day.day for day in found["tag"]] == [31, 1]
    with pytest.raises(UsageError, match="encoding 'nix' is unknown"):
        convert(["latin"], to="x", encoding="nix", **options)
    with pytest.raises(DataError, match="is not utf-8 text"):
        convert(["latin"], to="x", encoding="utf-8", **options)
    with pytest.raises(UsageError, match="decimal must be"):
        convert(["latin"], to="x", source_format="csv", decimal=";")


def test_json_lines_name_the_line(here: Path) -> None:
    """Another type, an unknown key, text that is not JSON, and another encoding."""
    for bad in ('{"a": "x"}', "{a}"):
        Path("a.jsonl").write_text('{"a": 1}\n{"a": 2}\n' + bad + "\n")
        with pytest.raises(DataError, match=r"a\.jsonl"):
            convert(["a.jsonl"], source_format="jsonl", to="one")
    Path("a.jsonl").write_bytes(b'{"a": "x"}\n\n{"a": "\xc3\xbc"}\n{"a": "\xfc"}\n')
    with pytest.raises(DataError, match=r"a\.jsonl, line 4: byte 0xfc is not UTF-8"):
        convert(["a.jsonl"], source_format="jsonl", to="one")
    Path("a.jsonl").write_text('\n{"a": 1, "b": null}\n\n{"a": 2}\n')
    convert(["a.jsonl"], source_format="jsonl", to="two")
    assert pq.read_table("two").to_pydict() == {"a": [1, 2], "b": [None, None]}


WORDS = st.text(st.characters(codec="utf-8", exclude_categories=["Cs", "Cc"]), max_size=8)


@settings(max_examples=40, deadline=None)
@given(rows=st.lists(st.tuples(WORDS, WORDS, st.integers(-999, 999)), min_size=1, max_size=20))
def test_a_round_trip_of_text(
    tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[str, str, int]]
) -> None:
    """What Python's csv module writes is read as it was, but for the spellings of missing."""
    folder = tmp_path_factory.mktemp("trip")
    out = io.StringIO()
    writer = csv.writer(out, quoting=csv.QUOTE_NONNUMERIC, lineterminator="\n")
    writer.writerows([("a", "b", "n"), *rows])
    (folder / "a.csv").write_text(out.getvalue(), "utf-8")
    types = {"a": "string", "b": "string"}
    convert([str(folder / "a.csv")], source_format="csv", to=str(folder / "out"), delimiter=",",
            types=types)  # fmt: skip
    found = pq.read_table(folder / "out").to_pylist()
    assert [(row["a"], row["b"], row["n"]) for row in found] == rows
