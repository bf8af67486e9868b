"""The command line as a person and a script meet it: every command of the Surface that exists."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from running import alone, both, everything, rows, run, shards, train, write

import streamomd
from streamomd.cli.report_commands import _ledger_lines
from streamomd.losses import all_losses
from streamomd.rules import all_rules

COMMANDS = [
    (),
    ("train",),
    ("resume",),
    ("evaluate",),
    ("predict",),
    ("inspect",),
    ("convert",),
    ("plan",),
    ("warm",),
    ("report",),
    ("backtest",),
    ("watch",),
    ("checkpoint",),
    ("checkpoint", "list"),
    ("checkpoint", "verify"),
    ("checkpoint", "shards"),
    ("checkpoint", "restore"),
    ("list",),
]
FIGURES = {"rows", "loss", "error", "rmse"}
RESULT = {
    "saved_loss",
    *FIGURES,
    *("epochs", "seconds", "rows_per_second", "compile_seconds"),
    *("skipped", "filtered", "checkpoint", "state_sha256"),
    *("auc", "auc_error", "average_precision", "average_precision_error", "mae", "r2"),
    *("confusion", "per_class", "calibration", "holdout", "stopped_early", "baseline"),
    *("calibration_error", "calibrated", "alerts", "sampled_out"),
}


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current directory, with three shards of 40 rows in ``data``."""
    monkeypatch.chdir(tmp_path)
    shards(tmp_path / "data")
    return tmp_path


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_help(command: tuple[str, ...]) -> None:
    """``--help`` and ``-h`` of every command exit 0, say what it does, and fit 100 columns."""
    done = run(*command, "--help")
    assert done.code == 0
    assert done.out.startswith("Usage: ")
    again = run(*command, "-h")
    assert done.out == again.out, again
    assert max(map(len, done.out.splitlines())) <= 100
    assert run(*command, "--nosuch").code == 2


def test_version() -> None:
    """``--version`` prints the version that is installed."""
    assert re.search(r"\d+\.\d+", run("--version").out)


def test_every_flag_of_the_surface_is_there() -> None:
    """``train --help`` names every flag that the Surface lists."""
    flags = "label weight numeric hashed rule loss eta epochs mode bits dtype checkpoint start"
    more = "restart scheduler storage-options checkpoint-storage-options log json set"
    text = run("train", "--help").out
    for flag in (flags + " " + more).split():
        assert f"--{flag} " in text or f"--{flag}\n" in text, flag


def test_json_of_the_figures(here: Path) -> None:
    """train, resume and evaluate print one JSON object with the documented keys, and no more."""
    done = run("train", "data", *everything(), "--checkpoint", "kept", "--epochs", "2", "--json")
    result = alone(done)
    assert set(result) == RESULT
    assert result["rows"] == 240
    assert [epoch["rows"] for epoch in result["epochs"]] == [120, 120]
    assert all(set(epoch) == FIGURES for epoch in result["epochs"])
    losses = [epoch["loss"] for epoch in result["epochs"]]
    assert result["loss"] == pytest.approx(sum(losses) / 2)
    assert 0 < result["error"] < 1
    assert result["rmse"] is None
    assert result["seconds"] > 0
    assert result["rows_per_second"] == pytest.approx(240 / result["seconds"])
    assert result["skipped"] == {}
    assert result["checkpoint"] == {"url": str(here / "kept"), "sequence": 1}
    assert re.fullmatch("[0-9a-f]{64}", result["state_sha256"])
    again = alone(run("resume", "kept", "--json"))
    assert {**again, **dict.fromkeys(("seconds", "rows_per_second", "compile_seconds"))} == {
        **result,
        **dict.fromkeys(("seconds", "rows_per_second", "compile_seconds")),
    }
    told = alone(run("evaluate", "kept", "data", "--json"))
    assert set(told) == RESULT | {"slices"}
    assert told["rows"] == 120


def test_json_of_regression(here: Path) -> None:
    """In regression ``error`` is null and ``rmse`` is the root of the mean square error."""
    flags = ["--label", "n", "--numeric", "k", "--loss", "square", "--checkpoint", "kept"]
    result = alone(run("train", "data", *flags, "--json"))
    assert result["error"] is None
    assert result["rmse"] > 0
    told = alone(run("evaluate", "kept", "data", "--json"))
    files = alone(run("predict", "kept", "data", "--to", "out", "--json"))["files"]
    mean = pa.concat_tables([pq.read_table(file) for file in files]).column("prediction")
    y = both(here / "data").column("n").to_numpy()
    assert told["rmse"] == pytest.approx(np.sqrt(np.mean((mean.to_numpy() - y) ** 2)))


def test_text_goes_to_stdout_and_progress_to_stderr(here: Path) -> None:
    """Results alone are on stdout; what is told on the way is on stderr."""
    done = run("train", "data", *everything(), "--checkpoint", "kept", "--verbose")
    assert done.code == 0
    assert done.out.startswith("120 rows, loss ")
    assert "saved to kept, commit 1" in done.out
    assert "rows/s" in done.err.splitlines()[-9]
    assert len(run("resume", "kept").out.splitlines()) == 3
    assert "since last" not in done.out
    for line in re.findall(r"^  (streamomd .*)$", done.out, re.M):
        assert run(*line.split()[1:]).code == 0, line


def test_lists() -> None:
    """``list X --json`` is {X: [{name, …}]} with every rule and loss there is; text is a table."""
    for kind in ("rules", "losses", "formats", "modes"):
        listed = alone(run("list", kind, "--json"))
        assert list(listed) == [kind]
        names = [one["name"] for one in listed[kind]]
        text = run("list", kind).out.splitlines()
        assert [line.split()[0] for line in text] == ["name", *names]
        if kind == "rules":
            assert set(names) == set(all_rules())
            assert all("exact" in one["modes"] for one in listed[kind])
        if kind == "losses":
            assert set(names) == set(all_losses())
    assert run("list", "colours").code == 2


def job(**tables: Any) -> str:
    lines = []
    for table, keys in tables.items():
        lines += [f"[{table}]", *(f"{key} = {json.dumps(value)}" for key, value in keys.items())]
    return "\n".join(lines)


def test_precedence(here: Path) -> None:
    """--set wins over a flag, a flag over the job file, the file over the default."""
    data = {"shards": "data", "label": "y", "numeric": ["n"], "bits": 5}
    text = job(data=data, train={"epochs": 2}, checkpoint={"url": "none"})
    model = "[model]\nrule = 'nag'\nparams = { eta = 0.25 }\n"
    (here / "job.toml").write_text(f"{text}\n{model}")
    for more, eta in [
        ([], 0.25),
        (["--eta", "0.75"], 0.75),
        (["--eta", "0.75", "--set", "eta=1.5"], 1.5),
        (["--set", "model.params.eta=2", "--eta", "0.75"], 2.0),
    ]:
        words = ["job.toml", "--checkpoint", f"run-{eta}", *more]
        assert train(*words)["rows"] == 240
        model = streamomd.load(f"run-{eta}")
        assert model.spec.model.params["eta"] == eta
        assert model.spec.data.bits == 5
    assert train("data", "--label", "y", "--numeric", "n", "--checkpoint", "bare")["rows"] == 120
    bare = streamomd.load("bare").spec.model
    assert (bare.rule, bare.params["eta"]) == ("auto", 2.0)


def test_flags_are_short_for_keys(here: Path) -> None:
    """A job of flags, of --set and of a file are one job: the same bits."""
    keys = {"label": "y", "weight": "w", "numeric": ["n", "k"], "hashed": ["h"], "bits": 10}
    model = {"rule": "adagrad", "loss": "hinge", "dtype": "float32"}
    (here / "job.toml").write_text(
        job(data={"shards": "data", **keys}, model=model, train={"epochs": 2})
        + "\n[model.params]\neta = 0.125\n"
    )
    of_file = train("job.toml", "--checkpoint", "none")["state_sha256"]
    flags = ["--label", "y", "--weight", "w", "--numeric", "n,k", "--hashed", "h", "--bits", "10"]
    flags += ["--rule", "adagrad", "--loss", "hinge", "--dtype", "float32", "--epochs", "2"]
    flags += ["--eta", "0.125", "--mode", "exact", "--checkpoint", "none"]
    assert train("data", *flags)["state_sha256"] == of_file
    sets = {**{f"data.{key}": value for key, value in keys.items()}, "train.epochs": 2}
    sets |= {f"model.{key}": value for key, value in model.items()}
    sets |= {"checkpoint.url": "none", "model.params.eta": 0.125}
    words = [
        word for key, value in sets.items() for word in ("--set", f"{key}={json.dumps(value)}")
    ]
    assert train("data", *words)["state_sha256"] == of_file


def test_shards_on_the_command_replace_those_of_the_job(here: Path) -> None:
    """``train job.toml other.parquet`` reads the other shard."""
    (here / "job.toml").write_text(job(data={"shards": "nothing", "label": "y", "numeric": ["n"]}))
    assert train("job.toml", "data/a.parquet", "--checkpoint", "none")["rows"] == 40
    assert (
        train("data/b.parquet", "job.toml", "data/a.parquet", "--checkpoint", "none")["rows"] == 80
    )


def test_checkpoint_none(here: Path) -> None:
    """``--checkpoint none`` keeps nothing, and says no URL."""
    before = sorted(os.walk(here))
    result = train("data", *everything(), "--checkpoint", "none")
    assert result["checkpoint"] == {"url": "", "sequence": -1}
    assert sorted(os.walk(here)) == before
    assert "next:" not in run("train", "data", *everything(), "--checkpoint", "none").out


@pytest.mark.parametrize(
    "words, name",
    [
        (["data"], "data"),
        (["data/*.parquet"], "data"),
        (["data/b.parquet", "data/c.parquet"], "b"),
        (["nightly.toml"], "nightly-data"),
        (["data.toml"], "data"),
    ],
)
def test_a_run_without_a_checkpoint_url_carries_the_name_of_the_data(
    words: list[str], name: str, here: Path
) -> None:
    """It is saved to runs/DATA-DATE-TIME; the job file's name comes first."""
    for file in ("nightly.toml", "data.toml"):
        (here / file).write_text(job(data={"shards": "data", "label": "y"}))
    url = Path(train(*words, *everything())["checkpoint"]["url"])
    assert re.fullmatch(rf"{name}-\d{{8}}-\d{{6}}", url.name)
    assert url.parent == here / "runs"
    assert run("resume", url).code == 0


def test_restart(here: Path) -> None:
    """A checkpoint that holds a run is refused without --restart, which begins anew, same bits."""
    first = train("data", *everything(), "--checkpoint", "kept")
    done = run("train", "data", *everything(), "--checkpoint", "kept")
    assert done.code == 2
    for word in ("streamomd resume", "--restart"):
        assert word in done.err
    again = train("data", *everything(), "--checkpoint", "kept", "--restart")
    assert again["state_sha256"] == first["state_sha256"]
    assert again["checkpoint"]["sequence"] > first["checkpoint"]["sequence"]
    assert again["rows"] == 120


def test_start_goes_on_with_a_state(here: Path) -> None:
    """Learned on a, then started on b and c: the slots of a straight run; metrics begin anew."""
    straight = train("data", *everything(), "--checkpoint", "straight")
    train("data/a.parquet", *everything(), "--checkpoint", "first")
    second = ["data/b.parquet", "data/c.parquet", *everything(), "--start", "first"]
    result = train(*second, "--checkpoint", "second")
    assert result["rows"] == 80
    assert result["state_sha256"] != straight["state_sha256"]
    one, two = streamomd.load("straight"), streamomd.load("second")
    assert one.state.cells.tobytes() == two.state.cells.tobytes()
    assert one.state.totals.tobytes() == two.state.totals.tobytes()
    assert one.state.clock == two.state.clock == 120
    assert one.names.to_json() == two.names.to_json()
    assert streamomd.load("first").metrics.total_rows == 40


def test_start_is_refused_where_descriptions_differ(here: Path) -> None:
    """A start from another rule, parameter or feature is exit 2 and lists each that differs."""
    train("data/a.parquet", *everything(), "--rule", "nag", "--checkpoint", "first")
    flags = [*everything(columns="n"), "--start", "first", "--checkpoint", "second"]
    implicit = ["--set", "model.params.implicit=true"]
    done = run("train", "data/b.parquet", *flags, *implicit, "--eta", "0.75", "--rule", "ng")
    assert done.code == 2
    for word in (
        "first",
        "rule: 'nag' there, 'ng' here",
        "params: {'implicit': False} there, {'",
        "numeric: ('n', 'k') there",
    ):
        assert word in done.err
    assert not (here / "second").exists()


def test_start_accepts_other_widths(here: Path) -> None:
    """A start on shards whose integers are narrower goes on as a run would."""
    train("data/a.parquet", *everything(), "--checkpoint", "first")
    table = pq.read_table("data/b.parquet")
    for name in ("y", "k"):
        at = table.schema.get_field_index(name)
        table = table.set_column(at, name, table.column(name).cast(pa.int8()))
    write(here / "narrow" / "b.parquet", table)
    narrow = train("narrow", *everything(), "--start", "first", "--checkpoint", "none")
    wide = train("data/b.parquet", *everything(), "--start", "first", "--checkpoint", "none")
    assert narrow["state_sha256"] == wide["state_sha256"]


def test_log(here: Path) -> None:
    """``--log`` appends JSON lines at doubling row counts, each valid, the last of all rows."""
    for word in ("kept", "again"):
        train("data", *everything(), "--checkpoint", word, "--log", "log.jsonl")
    lines = [json.loads(line) for line in (here / "log.jsonl").read_text().splitlines()]
    counts = [1, 2, 4, 8, 16, 32, 64, 120]
    assert [line["rows"] for line in lines if line["event"] == "progress"] == counts * 2
    for line in lines:
        assert {"time", "event"} <= set(line)
    (first, *_) = [line for line in lines if line["event"] == "progress"]
    assert {"loss", "error", "rmse", "since_last", "rate"} <= set(first)


def test_resume_from_elsewhere(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Resume needs the URL alone: from another directory, with relative shards, a glob, a job."""
    (here / "job.toml").write_text(
        job(data={"shards": "data/*.parquet", "label": "y", "numeric": ["n"]}, train={"epochs": 2})
    )
    straight = train("job.toml", "--checkpoint", "none")["state_sha256"]
    train("job.toml", "--checkpoint", "kept", "--epochs", "1")
    (here / "else").mkdir()
    monkeypatch.chdir(here / "else")
    result = run("resume", "../kept", "--set", "train.epochs=2", "--json").result
    assert result["state_sha256"] == straight
    assert run("resume", here / "kept", "--json").result["state_sha256"] == straight


@pytest.mark.parametrize(
    "change, word",
    [
        ("model.params.eta=1", "model.params.eta may not change"),
        ("data.label=w", "data.label may not change"),
        ("train.epochs=1", "may only grow"),
        ("eta=1", "eta may not change"),
    ],
)
def test_resume_refuses_another_job(change: str, word: str, here: Path) -> None:
    """What makes another job is exit 3, named; the commit stays."""
    first = train("data", *everything(), "--checkpoint", "kept", "--epochs", "2")
    done = run("resume", "kept", "--set", change)
    assert done.code == 3
    assert word in done.err
    assert run("resume", "kept", "--json").result["state_sha256"] == first["state_sha256"]


def test_resume_with_new_shards(here: Path) -> None:
    """A shard after the last is refused (3), and read with --accept-new-shards."""
    train("data", *everything(), "--checkpoint", "kept")
    write(here / "data" / "d.parquet", rows(40, first=3))
    assert run("resume", "kept", "--set", "train.epochs=2").code == 3
    words = ["resume", "kept", "--set", "train.epochs=2", "--accept-new-shards", "--json"]
    assert run(*words).result["rows"] == 120 + 160


def test_no_checkpoint_there(here: Path) -> None:
    """Where no run is kept, every command that needs one is exit 4 and names the URL."""
    for words in (["resume"], ["inspect"], ["checkpoint", "list"], ["checkpoint", "verify"]):
        done = run(*words, "nowhere")
        assert done.code == 4
        assert "nowhere" in done.err
    assert run("evaluate", "nowhere", "data").code == 4
    assert run("predict", "nowhere", "data", "--to", "out").code == 4


def test_checkpoint_list_and_verify(here: Path) -> None:
    """Both list every commit; verify is exit 4 once a byte of a part is another."""
    every = ["--set", "checkpoint.every_rows=40", "--set", "checkpoint.keep=9"]
    train("data", *everything(), "--checkpoint", "kept", *every)
    for command in ("list", "verify"):
        found = alone(run("checkpoint", command, "kept", "--json"))["commits"]
        assert [commit["rows"] for commit in found][-3:] == [80, 120, 120]
        assert all(commit["ok"] for commit in found)
        assert len(run("checkpoint", command, "kept").out.splitlines()) == 1 + len(found)
    part = max((here / "kept" / "data").rglob("*.safetensors*"))
    part.chmod(0o644)
    damaged = bytearray(part.read_bytes())
    damaged[-1] ^= 1
    part.write_bytes(damaged)
    done = run("checkpoint", "verify", "kept")
    assert done.code == 4
    assert part.name in done.err
    assert run("inspect", "kept").code == 0


def test_checkpoint_shards(here: Path) -> None:
    """The shards in learned order, as a table of the first and last ones and as JSON."""
    train("data", *everything(), "--checkpoint", "kept")
    found = alone(run("checkpoint", "shards", "kept", "--json"))
    assert found == {
        "shards": [
            {"url": str(here / "data" / name), "rows": 40, "update": 0, "sequence": 0}
            for name in ("a.parquet", "b.parquet", "c.parquet")
        ],
        "skipped": [],
    }
    lines = run("checkpoint", "shards", "kept").out.splitlines()
    assert lines[0].split() == ["url", "rows", "update", "sequence"]
    assert lines[3].split() == [str(here / "data" / "c.parquet"), "40", "0", "0"]
    assert lines[-1] == "3 shards (120 rows)"
    assert run("checkpoint", "shards", "nowhere").code == 4


def test_a_long_ledger_is_abbreviated() -> None:
    """Ten shards at either end, the number of the others, and those that were skipped."""
    place = {"update": 3, "sequence": 9}
    shards = [{"url": f"{at}.parquet", "rows": 1000, **place} for at in range(1234)]
    skipped = [{"url": "bad.parquet", "reason": "damaged", **place}]
    lines = [*_ledger_lines({"shards": shards, "skipped": skipped})]
    assert len("\n".join(lines).splitlines()) == 1 + 10 + 1 + 10 + 1 + 2 + 1 + 1
    assert lines[11] == "… 1,214 more; --json lists all"
    assert lines[12].startswith("1224.parquet")
    assert lines[-1] == "1,234 shards (1,234,000 rows), 1 update after the first run, 1 skipped"


def test_checkpoint_restore(here: Path) -> None:
    """An earlier commit is the newest again, with its rows and its shards; text and JSON say what
    is undone."""
    every = ["--set", "checkpoint.every_rows=40", "--set", "checkpoint.keep=9"]
    train("data", *everything(), "--checkpoint", "kept", *every)
    whole = streamomd.load("kept").state_sha256
    early = streamomd.load("kept", at=1).state_sha256
    found = alone(run("checkpoint", "restore", "kept", "--at", "1", "--json"))
    place = {"url": str(here / "kept"), "sequence": 5}
    assert found == {
        "at": 1,
        "rows": 40,
        "update": 0,
        "undone_rows": 80,
        "undone_updates": [0],
        "undone_shards": [],
        "checkpoint": place,
    }
    assert streamomd.load("kept").state_sha256 == early
    lines = run("checkpoint", "restore", "kept", "--at", "4").out.splitlines()
    assert lines[0] == f"commit 6 of {here / 'kept'} repeats commit 4, after 120 rows"
    assert lines[1] == "restored: 80 rows that an earlier restore had undone"
    assert streamomd.load("kept").state_sha256 == whole
    lines = run("checkpoint", "restore", "kept", "--at", "2").out.splitlines()
    assert lines[1] == "undone: 40 rows of the first run, 0 shards"
    assert run("resume", "kept", "--json").result["state_sha256"] == whole
    assert run("checkpoint", "restore", "kept", "--at", "99").code == 4
    assert run("checkpoint", "restore", "kept").code == 2


def test_inspect(here: Path) -> None:
    """The heaviest coordinates come first, by name, with every slot of the rule."""
    train("data", *everything(), "--rule", "nag", "--checkpoint", "kept")
    result = alone(run("inspect", "kept", "--top", "200", "--json"))
    assert (result["rule"], result["rows"], result["finished"]) == ("nag", 120, True)
    sizes = [abs(one["weight"][0]) for one in result["top"]]
    assert sizes == sorted(sizes, reverse=True)
    names = {one["name"] for one in result["top"]}
    assert {"bias", "n", "k", "h=city 1"} <= names
    assert any(re.fullmatch(r"i:\d+", name) for name in names)
    assert {"s", "w", "G"} == set(result["top"][0]["slots"])
    assert len(alone(run("inspect", "kept", "--top", "3", "--json"))["top"]) == 3
    text = run("inspect", "kept", "--top", "3").out
    assert len(text.split("\n\n")[1].splitlines()) == 4
    assert result["top"][0]["name"] in text
