"""Options of text that a job reads directly, and what messages say of its files and lines."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from running import alone, run

import streamomd
from streamomd.cli.tool_commands import convert as convert_command
from streamomd.config.data_table import Csv
from streamomd.config.spec import Spec
from streamomd.core.errors import BadRowError, StoppedError, UsageError
from streamomd.core.platform_calls import stopping_promptly
from streamomd.sources.contract import Request
from streamomd.sources.tables import TableOptions
from streamomd.sources.text import text_cache
from streamomd.sources.text.convert import convert
from streamomd.sources.text.csv_source import CsvReader
from streamomd.sources.text.text_source import Text, line_of, locate

OPTIONS = ("--decimal", ",", "--encoding", "latin-1", "--date-format", "%d.%m.%Y")
NO_RUN = ("--checkpoint", "none", "--bits", "6", "--json")


def german(name: str = "a.csv", label: str = "y") -> str:
    """Rows as a German spreadsheet writes them."""
    lines = [f"größe;tag;{label}"]
    lines += [f"{k % 7},{k};{k % 28 + 1:02}.01.2026;{k * 3 % 11},{k:02}" for k in range(60)]
    Path(name).write_bytes(("\r\n".join(lines) + "\r\n").encode("latin-1"))
    return name


def test_a_job_reads_text_as_convert_does(here: Path) -> None:
    """Flags, --set and the job file give the state of the converted shards; the run's options are
    those of evaluate and predict, which take others; a resumed run has its own."""
    german()
    words = ("--label", "y", "--dates", "tag", *NO_RUN)
    converted = run("convert", "a.csv", "-o", "shards", *OPTIONS)
    assert converted.code == 0
    expected = alone(run("train", "shards", *words))["state_sha256"]
    assert alone(run("train", "a.csv", *words, *OPTIONS))["state_sha256"] == expected
    sets = [f"data.csv.{key}={value}" for key, value in
            (("decimal", ","), ("encoding", "latin-1"), ("date_format", "%d.%m.%Y"))]  # fmt: skip
    given_sets = [word for one in sets for word in ("--set", one)]
    assert alone(run("train", "a.csv", *words, *given_sets))["state_sha256"] == expected
    Path("job.toml").write_text(
        '[data]\nshards = "a.csv"\nlabel = "y"\ndates = ["tag"]\nbits = 6\n'
        'csv = { decimal = ",", encoding = "latin-1", date_format = "%d.%m.%Y" }\n'
        '[checkpoint]\nurl = "run"\n'
    )
    assert alone(run("train", "job.toml", "--json"))["state_sha256"] == expected
    german("b.csv")
    assert alone(run("evaluate", "run", "b.csv", "--json"))["rows"] == 60
    Path("c.csv").write_text(
        Path("b.csv").read_text("latin-1").replace(",", ".").replace(";", "|"), "utf-8"
    )
    assert run("predict", "run", "c.csv", "--to", "out").code == 2
    again = ("--decimal", ".", "--encoding", "utf-8", "--delimiter", "|")
    assert run("predict", "run", "c.csv", "--to", "out", *again).code == 0
    assert run("predict", "run", "b.csv", "--to", "other").code == 0
    assert pq.read_table("out").equals(pq.read_table("other"))
    whole = streamomd.load("run").evaluate("c.csv", csv={"decimal": ".", "encoding": "utf-8"})
    assert whole["rows"] == 60
    assert alone(run("resume", "run", "--epochs", "2", "--json"))["rows"] == 120
    assert run("resume", "run", "--set", "data.csv.decimal=.").code == 3


def test_init_and_plan_take_the_options(here: Path) -> None:
    """init writes them into the job, which train reads."""
    german(label="target")
    done = run("init", "a.csv", "-o", "job.toml", "--yes", *OPTIONS)
    assert done.code == 0, done.err
    assert 'decimal = ","' in Path("job.toml").read_text()
    assert alone(run("train", "job.toml", "--json"))["rows"] == 60
    plan = run("plan", "a.csv", "--label", "target", "--dates", "tag", *OPTIONS)
    assert (plan.code, "regression" in plan.out + plan.err) == (0, True)


def test_other_options_are_another_entry_of_the_cache(here: Path) -> None:
    """Each has its folder."""
    Path("a.csv").write_text('a,y\n"1,5",0\n"2,5",1\n')
    found = [
        text_cache.as_shards(["a.csv"], Request(tables=TableOptions(csv=options)))[0]
        for options in ({}, {"decimal": ","}, {"types": {"a": "string"}}, {"decimal": ","})
    ]
    assert len(set(found)) == 3
    assert found[1] == found[3]
    kinds = [str(pq.read_table(one).schema.field("a").type) for one in found]
    assert kinds == ["string", "double", "string", "double"]


def test_types_of_the_label_are_for_training(here: Path) -> None:
    """A file without the label is predicted by a run whose job gives the label's type."""
    Path("a.csv").write_text("zip,x,y\n" + "".join(f"{k % 5}01,{k},{k % 2}\n" for k in range(20)))
    done = run("train", "a.csv", "--label", "y", "--type", "zip=string,y=string",
               "--checkpoint", "run", "--bits", "6")  # fmt: skip
    assert done.code == 0, done.err
    Path("b.csv").write_text("zip,x\n101,3\n")
    assert run("predict", "run", "b.csv", "--to", "out").code == 0


def test_columns_of_text_stay_text_for_a_model(here: Path) -> None:
    """A file in which all values of such a column look like numbers is read as the model needs it;
    what the command says stays."""
    Path("a.csv").write_text(
        "k,x,y\n" + "".join(f"{'01T'[n % 3]},{n},{n % 2}\n" for n in range(30))
    )
    words = ("--label", "y", "--checkpoint", "run", "--bits", "6")
    assert run("train", "a.csv", *words).code == 0
    Path("b.csv").write_text("k,x,y\n1,3,0\n0,4,1\n")
    Path("c.csv").write_text("k,x,y\n1,3,0\nT,4,1\n0,4,1\n")
    for name in ("b.csv", "c.csv"):
        assert run("predict", "run", name, "-o", f"{name}-out").code == 0
    found = [pq.read_table(f"{name}-out")["score"].to_pylist() for name in ("b.csv", "c.csv")]
    assert found[0] == [found[1][0], found[1][2]]
    assert run("evaluate", "run", "b.csv").code == 0
    refused = run("evaluate", "run", "b.csv", "--type", "k=double")
    assert (refused.code, "column 'k' is double" in refused.err) == (2, True)
    for name in ("a.csv", "b.csv"):
        assert run("convert", name, "-o", "shards", "--append").code == 0
    assert pq.read_table("shards")["k"].to_pylist()[-2:] == ["1", "0"]
    refused = run("convert", "b.csv", "-o", "shards", "--append", "--type", "k=double")
    assert (refused.code, "'k' is double, there string" in refused.err) == (2, True)


def test_options_of_csv_are_those_of_convert() -> None:
    """Each key of data.csv is an argument of convert or of its reader, and each option of the
    command that is for reading CSV is a key or is about the sources and the shards."""
    convert_command_options = {param.name for param in convert_command.params}
    reader = {"delimiter", "header", "types", "null_values", "quotes", "decimal", "date_format"}
    assert set(Csv.model_fields) == reader | {"encoding"}
    for key, value in Csv().model_dump(exclude={"encoding"}).items():
        CsvReader(**{key: value})
    renamed = {"no_header": "header", "no_quotes": "quotes"}
    shared = {renamed.get(str(name), str(name)) for name in convert_command_options}
    assert set(Csv.model_fields) <= shared
    assert Csv().options() == {}
    assert Spec.parse({"data": {"csv": {"types": "a=string"}}}).data.csv.types == {"a": "string"}


@pytest.mark.parametrize(
    "words, message",
    [
        (("--decimal", ";"), "expected '.' or ','"),
        (("--delimiter", "ab"), "one ASCII character"),
        (("--encoding", "nix"), "encoding 'nix' is unknown"),
        (("--encoding", "rot13"), "encoding 'rot13' is unknown"),
        (("--type", "zip"), "expected COLUMN=TYPE"),
        (("--type", "a=nix"), "an unknown type"),
        (("--type", "b=string"), "not a column"),
        (("--set", "data.csv.decimall=,"), "did you mean 'decimal'"),
    ],
)
def test_invalid_options_are_refused(words: tuple[str, ...], message: str, here: Path) -> None:
    """In the command that reads the text, with exit 2."""
    Path("a.csv").write_text("a,y\n1,0\n2,1\n")
    done = run("train", "a.csv", "--label", "y", *words)
    assert (done.code, message in done.err) == (2, True), done.err
    Path("a.jsonl").write_text('{"a": 1, "y": 0}\n{"a": 2, "y": 1}\n')
    refused = run("train", "a.jsonl", "--label", "y", "--decimal", ",")
    assert (refused.code, "has no option 'decimal'" in refused.err) == (2, True)


@pytest.mark.parametrize("name", ["a.csv", "a.csv.gz", "rows"])
def test_a_bad_row_is_named_by_file_and_line(
    name: str, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Quoted line ends and blank lines count; of several files it is the right one, and of several
    shards."""
    monkeypatch.setattr(text_cache, "ROWS_PER_SHARD", 7)
    rows = ['{k},"two\nlines",{y}\n' if k % 3 else "{k},one,{y}\n\n" for k in range(40)]
    lines = [row.format(k=k if k != 30 else "", y=k % 2) for k, row in enumerate(rows)]
    os.mkdir("rows")
    if name == "rows":
        Path("rows/1.csv").write_text("a,note,y\n" + "".join(lines[:25]))
        Path("rows/2.csv").write_text("a,note,y\n" + "".join(lines[25:]))
        file, before = "2.csv", 25
    else:
        text = "a,note,y\n" + "".join(lines)
        if name.endswith("gz"):
            import gzip

            Path(name).write_bytes(gzip.compress(text.encode()))
        else:
            Path(name).write_text(text)
        file, before = name, 0
    line = 2 + "".join(lines[before:30]).count("\n")
    done = run("train", name, "--label", "y", *NO_RUN)
    assert done.code == 2
    assert f"{file}, line {line}, column 'a': found null" in done.err
    assert "part-0" not in done.err.splitlines()[-1]


def test_a_row_is_named_where_the_file_is_gone(here: Path) -> None:
    """Or changed: the row, not a line of another file. JSON lines have lines too."""
    rows = ['{"a": 1, "y": 0}', "", '{"a": 2, "y": 1}', '{"y": 1}']
    Path("a.jsonl").write_text("\n".join(rows) + "\n")
    done = run("train", "a.jsonl", "--label", "y", *NO_RUN)
    assert "a.jsonl, line 4, column 'a'" in done.err
    [folder] = map(Path, text_cache.as_shards(["a.jsonl"]))
    [shard] = folder.glob("*.parquet")
    assert text_cache.place_in_text(str(shard), 2) == f"{here}/a.jsonl, line 4"
    Path("a.jsonl").unlink()
    assert text_cache.place_in_text(str(shard), 2) == f"{here}/a.jsonl, row 2"
    assert text_cache.place_in_text(str(shard), 3) == ""
    assert text_cache.place_in_text(str(here / "other.parquet"), 2) == ""


TEXTS = st.lists(
    st.lists(st.sampled_from(["a", "b c", "two\nlines", 'a "b"', "\n", "x\r\ny", ";"]), min_size=2,
             max_size=2), min_size=1, max_size=8,
)  # fmt: skip


@settings(max_examples=60, deadline=None)
@given(rows=TEXTS, end=st.sampled_from(["\n", "\r\n"]), blank=st.integers(0, 2))
def test_lines_of_records(
    tmp_path_factory: pytest.TempPathFactory, rows: list[list[str]], end: str, blank: int
) -> None:
    """The line of a record is the number of line feeds before it, and one."""
    text, starts = "", []
    for row in rows:
        text += end * blank
        starts.append(text.count("\n") + 1)
        text += ",".join('"' + value.replace('"', '""') + '"' for value in row) + end
    path = tmp_path_factory.mktemp("lines") / "a.csv"
    path.write_bytes(text.encode())
    for record, start in enumerate([*starts, 0]):
        with Text(locate([str(path)], {})[0]) as opened:
            assert line_of(opened, record, quotes=True) == start


def test_a_label_with_decimal_commas_is_no_class(here: Path) -> None:
    """The message says --decimal; more than 1,000 values too; --task classify takes the texts."""
    for rows in (60, 3000):
        values = "".join(f"{k};{k},{k % 9}\n" for k in range(rows))
        Path("a.csv").write_text("x;y\n" + values)
        done = run("train", "a.csv", "--label", "y", *NO_RUN)
        assert (done.code, "pass --decimal ," in done.err) == (2, True), done.err
        fine = alone(run("train", "a.csv", "--label", "y", "--decimal", ",", *NO_RUN))
        assert fine["rmse"] is not None
    Path("b.csv").write_text("x;y\n" + "".join(f"{k};{k % 2},5\n" for k in range(60)))
    assert run("train", "b.csv", "--label", "y", *NO_RUN).code == 2
    assert run("train", "b.csv", "--label", "y", "--task", "classify", *NO_RUN).code == 0


def test_a_directory_of_text_and_shards_is_explained(here: Path) -> None:
    """What it has of each, the names to pass and a command to paste, which makes it work."""
    os.mkdir("mix")
    Path("mix/1.csv").write_text("a,y\n1,0\n2,1\n")
    Path("mix/2.csv").write_text("a,y\n3,0\n4,1\n")
    pq.write_table(pa.table({"a": [1, 2], "y": [0, 1]}), "mix/3.parquet")
    done = run("train", "mix", "--label", "y", *NO_RUN)
    assert done.code == 2
    assert "2 text files" in done.err
    assert "1 shard (" in done.err
    command = done.err.split("`")[1]
    assert subprocess.run(
        f"{sys.executable} -m {command}", shell=True, check=False, capture_output=True
    ).returncode == 0  # fmt: skip
    both = run("train", "mix/*.parquet", "converted/", "--label", "y", *NO_RUN)
    assert alone(both)["rows"] == 6


def test_the_command_for_large_text_can_be_pasted(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the options of the job, names quoted, and a pattern for many files."""
    os.mkdir("my rows")
    for k in range(5):
        Path(f"my rows/{k}.csv").write_text("a;y\n1,5;0\nxx;1\n")
    monkeypatch.setattr(text_cache, "MOST_BYTES", 10)
    options = ("--decimal", ",", "--type", "a=double", "--set", 'data.csv.null_values=["xx"]')
    done = run("train", "my rows", "--label", "y", *options)
    command = done.err.split("`")[1]
    assert (done.code, "…" in command) == (2, False)
    assert command == (
        "streamomd convert 'my rows'/*.csv -o shards/ --decimal , --type a=double --null xx"
    )
    pasted = shlex.split(command.replace("'my rows'/*.csv", "'my rows/0.csv' 'my rows/1.csv'"))
    assert run(*pasted[1:]).code == 0
    assert pq.read_table("shards").to_pydict()["a"] == [1.5, None] * 2


def test_a_column_of_mostly_numbers_is_noted(here: Path) -> None:
    """As convert prints it."""
    Path("a.csv").write_text("a,y\n" + "".join(f"{k or 'unknown'},{k % 2}\n" for k in range(9)))
    done = run("train", "a.csv", "--label", "y", *NO_RUN)
    assert "'a': most values are numbers, but it is text because of unknown" in done.err


@pytest.mark.parametrize(
    "command, number",
    [
        ("train", signal.SIGTERM),
        *(
            pytest.param(command, number, marks=pytest.mark.slow)
            for command in ("train", "convert", "predict")
            for number in (signal.SIGTERM, signal.SIGINT)
            if (command, number) != ("train", signal.SIGTERM)
        ),
    ],
)
def test_a_signal_stops_a_conversion(command: str, number: int, here: Path) -> None:
    """The process ends with 128 and the signal's number before the text is converted, and nothing
    that could be taken for shards is left."""
    row = b"1,2,3,some text of a row,0\n"
    Path("a.csv").write_bytes(b"a,b,c,d,y\n" + row * (200_000_000 // len(row)))
    if command == "predict":
        Path("b.csv").write_bytes(b"a,b,c,d,y\n" + row + row.replace(b",0", b",1"))
        assert run("train", "b.csv", "--label", "y", "--checkpoint", "run").code == 0
    words = {
        "train": ("train", "a.csv", "--label", "y", "--checkpoint", "none"),
        "convert": ("convert", "a.csv", "-o", "out"),
        "predict": ("predict", "run", "a.csv", "--to", "predicted"),
    }[command]
    before = files_below(here)
    process = subprocess.Popen([sys.executable, "-m", "streamomd", *words], stderr=subprocess.PIPE)
    deadline = time.monotonic() + 60
    while files_below(here) == before and time.monotonic() < deadline and process.poll() is None:
        time.sleep(0.01)
    process.send_signal(number)
    _, err = process.communicate(timeout=30)
    assert process.returncode == 128 + number, err
    assert files_below(here) == before
    assert b"Traceback" not in err


def files_below(folder: Path) -> set[Path]:
    """Every file, hidden ones too."""
    return {path for path in folder.rglob("*") if path.is_file()}


def test_a_stop_is_not_an_error_of_files() -> None:
    """Code that handles OSError does not see the signal; ignored signals stay ignored, handlers
    return, and what is inside is left at the signal."""
    seen: list[str] = []

    def work() -> None:
        try:
            os.kill(os.getpid(), signal.SIGTERM)
            seen.append("after")
        except (OSError, ValueError):
            seen.append("handled")
        finally:
            seen.append("cleaned")

    handler: Any = signal.getsignal(signal.SIGTERM)
    with (
        pytest.raises(StoppedError, match="stopped while working") as stopped,
        stopping_promptly("working"),
    ):
        work()
    assert (stopped.value.exit_code, seen) == (143, ["cleaned"])
    assert signal.getsignal(signal.SIGTERM) is handler
    try:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        with stopping_promptly("working"):
            work()
    finally:
        signal.signal(signal.SIGTERM, handler)
    assert seen[1:] == ["after", "cleaned"]


def test_bad_rows_have_their_reason(here: Path) -> None:
    """An error that names a line is still counted by its reason."""
    Path("a.csv").write_text("a,y\n1,0\n,1\n2,1\n")
    with pytest.raises(BadRowError) as bad:
        streamomd.train("a.csv", label="y", checkpoint="none", quiet=True)
    assert bad.value.reason
    assert str(bad.value).startswith(f"{here}/a.csv, line 3, ")
    with pytest.raises(UsageError, match="unknown key"):
        streamomd.train("a.csv", label="y", checkpoint="none", nulls="zero").evaluate(
            "a.csv", csv={"decimals": ","}
        )


def test_a_tab_can_be_typed(here: Path) -> None:
    """As a shell passes it on: a backslash and a t, or its name."""
    Path("a.csv").write_text("a\tb;c\n1\t2;3\n")
    for number, word in enumerate(("\t", "\\t", "tab")):
        assert run("convert", "a.csv", "-o", str(number), "--delimiter", word).code == 0
        assert pq.read_table(str(number)).column_names == ["a", "b;c"]


def test_the_rows_of_each_source_are_counted(here: Path) -> None:
    """In the result of convert."""
    Path("a.csv").write_text("a\n1\n2\n")
    Path("b.csv").write_text("a\n3\n")
    assert convert(["a.csv", "b.csv"], source_format="csv", to="out").source_rows == (2, 1)


def test_columns_of_text_are_named_by_their_file(here: Path) -> None:
    """A type that the model was not trained on, and a missing column: the text and the options."""
    Path("a.csv").write_text("a,y\n1.5,0\n2.5,1\n")
    Path("b.csv").write_text("a,y\nx,0\nz,1\n")
    Path("c.csv").write_text("b,y\n1,0\n")
    assert run("train", "a.csv", "--label", "y", "--checkpoint", "run").code == 0
    for name, problem in (("b.csv", "is string"), ("c.csv", "is missing")):
        for command in (("evaluate", "run", name), ("predict", "run", name, "--to", "out")):
            done = run(*command)
            assert (done.code, "--type COLUMN=TYPE" in done.err) == (2, True)
            assert f"{here}/{name}: column 'a'" in done.err
            assert problem in done.err
            assert "part-0" not in done.err.splitlines()[-1]


def test_a_folder_of_a_killed_process_is_removed(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a day, by the next conversion of the same text; one in use is not."""
    Path("a.csv").write_text("a\n1\n")
    [folder] = map(Path, text_cache.as_shards(["a.csv"]))
    old, new = (folder.with_name(f".{folder.name}-{name}") for name in ("old", "new"))
    for path in (old, new):
        path.mkdir()
    past = time.time() - text_cache.ABANDONED - 60
    os.utime(old, (past, past))
    Path("a.csv").write_text("a\n1\n2\n")
    text_cache.as_shards(["a.csv"])
    assert (old.exists(), new.exists()) == (False, True)
