"""Commands of a checkpoint: restart, start, resume, list, verify, shards, restore, inspect."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from running import alone, everything, rows, run, train, write

import streamomd
from streamomd.cli.report_commands import _ledger_lines


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
        "[data]\nshards = 'data/*.parquet'\nlabel = 'y'\nnumeric = ['n']\n[train]\nepochs = 2\n"
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
