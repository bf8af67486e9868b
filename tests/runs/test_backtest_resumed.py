"""A backtest that is saved and interrupted ends with the figures of an undisturbed one."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import pytest
from running import Impatient, run
from timed import COUNT, FLAGS, timed_shards, train

import streamomd
from streamomd.core.errors import ResumeRefusedError, StoppedError, UnsupportedError

SETS = {"checkpoint.every_rows": 20, "checkpoint.every_seconds": 0}
OF_PROCESS = ("seconds", "rows_per_second", "compile_seconds", "checkpoint")
DAYS = 4


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four days of rows, some of them late."""
    return timed_shards(tmp_path_factory.mktemp("days") / "data", late=True, days=DAYS)


def backtest(data: Path, url: Path | None, **more: Any) -> dict[str, Any]:
    sets = {**SETS, **more.pop("sets", {})}
    saved = {"checkpoint": str(url)} if url else {}
    flags = {key: value for key, value in FLAGS.items() if key != "checkpoint"}
    return streamomd.backtest([str(data)], **{**flags, "time": "ts", "sets": sets, **saved, **more})


def interrupted(row: int, *given: Any, **more: Any) -> None:
    """A backtest that ends after a row as if it was killed: without a commit of that row."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("streamomd.runs.reporting.progress", lambda *_: Impatient(row))
        with pytest.raises(StoppedError):
            backtest(*given, **more, quiet=False)


def figures(result: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in result.items() if key not in OF_PROCESS}


PLAIN: dict[str, Any] = {}
FULL = {"gap": "6h", "sets": {"data.sample": {"0": 0.5}, "model.calibrate": "sigmoid"}}
CASES = [
    pytest.param(150, FULL, id="within a day"),
    pytest.param(COUNT, PLAIN, id="at the end of the first day", marks=pytest.mark.slow),
    *(
        pytest.param(row, more, marks=pytest.mark.slow, id=f"row {row} {bool(more)}")
        for row in (1, 21, 59, 61, 119, 121, 200, 239, 240)
        for more in (PLAIN, FULL, {"by": "hour"}, {"by": "week", "gap": "9d"})
    ),
]


@pytest.mark.parametrize("row, more", CASES)
def test_the_same_call_continues(
    row: int, more: dict[str, Any], data: Path, tmp_path: Path
) -> None:
    """After a stop at any row the same call, or ``resume``, gives the figures of an undisturbed
    backtest, to the last bit, and so does the call once more, which learns nothing."""
    if more.get("by") == "week":
        data = timed_shards(tmp_path / "weeks", days=24)
    whole, url = figures(backtest(data, None, **more)), tmp_path / "saved"
    interrupted(row, data, url, **more)
    rows = streamomd.load(str(url)).metrics.total_rows
    assert row - 20 - COUNT <= rows <= row
    resumed = backtest(data, url, **more)
    assert figures(resumed) == whole
    assert figures(backtest(data, url, **more)) == whole
    other = tmp_path / "other"
    interrupted(row, data, other, **more)
    model = streamomd.resume(str(other), quiet=True)
    assert figures(model.result()["backtest"]) == whole
    assert model.state_sha256 == streamomd.load(str(url)).state_sha256


def test_a_signal_saves_the_row(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SIGTERM commits within a day and names the command, which prints the table. A job that names
    another run's checkpoint leaves it alone."""
    monkeypatch.chdir(tmp_path)
    job = f'[data]\nshards = "{data}"\nlabel = "y"\ntime = "ts"\nnumeric = ["n"]\n'
    (tmp_path / "job.toml").write_text(f'{job}[model]\nrule = "nag"\n[checkpoint]\nurl = "run"\n')
    words = ("backtest", "job.toml", "--checkpoint", "saved")
    whole = run("backtest", "job.toml", "--json").result

    class Signal(Impatient):
        def update(self, metrics: Any) -> None:
            if metrics.total_rows >= self.next_row:
                signal.raise_signal(signal.SIGTERM)
                self.next_row = 1 << 40

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("streamomd.runs.reporting.progress", lambda *_: Signal(150))
        done = run(*words)
    assert done.code == 143, done.err
    assert "resume with: streamomd resume" in done.err
    assert streamomd.load("saved").metrics.total_rows == 150
    resumed = run("resume", "saved")
    assert resumed.code == 0, resumed.err
    assert [line.split()[0] for line in resumed.out.splitlines()[1 : DAYS + 1]] == [
        one["period"] for one in whole["periods"]
    ]
    assert "saved to saved, commit" in resumed.out
    again = run(*words, "-o", "page.html", "--json")
    assert figures(again.result) == figures(whole)
    assert "finished: nothing is learned" in again.err
    assert not (tmp_path / "run").exists()


def test_what_is_refused(data: Path, tmp_path: Path) -> None:
    """A checkpoint of another backtest, or of a run, is left alone; --restart overwrites it. A
    backtest has no updates and no second epoch, and earlier versions refuse to resume it."""
    url = tmp_path / "saved"
    interrupted(100, data, url)
    manifest = sorted((url / "commits").iterdir())[-1]
    assert '"required_features":["backtest"' in manifest.read_text().replace(" ", "")
    for more, said in [
        ({"by": "hour"}, "--by was 'day', is 'hour'"),
        ({"gap": 5}, "--gap was 0.0, is 5.0"),
        ({"sets": {"data.bits": 9}}, "data.bits was 8, is 9"),
    ]:
        with pytest.raises(ResumeRefusedError, match=said):
            backtest(data, url, **more)
    done = backtest(data, url, sets={"checkpoint.every_rows": 50, "train.prefetch": 8})
    assert figures(done) == figures(backtest(data, None))
    for words in (("update", url), ("follow", url, "--idle-exit", "0.1s")):
        assert "is a backtest, whose periods end with its shards" in run(*words).err
    with pytest.raises(UnsupportedError, match="learns each row once"):
        streamomd.resume(str(url), sets={"train.epochs": 2}, quiet=True)
    hours = backtest(data, url, by="hour", restart=True)
    assert figures(hours) == figures(backtest(data, None, by="hour"))
    train(data, checkpoint=str(tmp_path / "run"))
    with pytest.raises(streamomd.core.errors.OutputExistsError, match="already holds a run"):
        backtest(data, tmp_path / "run")
    assert json.loads(run("inspect", url, "--json").out)["rows"] == DAYS * COUNT
