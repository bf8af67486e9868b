"""Callbacks and trackers: told at the progress rows and at the end, and harmless to a run."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from running import rows, run, write

import streamomd
from streamomd.core.errors import BadRowError, MissingExtraError, UsageError
from streamomd.integrations.trackers import TRACKERS, MLflow, TensorBoard, tracker

KEYS = {
    *("state", "rows", "expected", "loss", "since_last", "error", "rmse", "rate", "seconds"),
    *("skipped", "job", "checkpoint"),
}
FLAGS: dict[str, Any] = {
    "label": "y", "numeric": ["n", "k"], "rule": "ogd", "quiet": True,
    "sets": {"data.ignore": ["w", "c", "i", "v", "h"]},
}  # fmt: skip


class Kept:
    """Keeps what it is told; raises at call number ``at``."""

    def __init__(self, at: int = -1, error: BaseException | None = None) -> None:
        self.told: list[dict[str, Any]] = []
        self._at, self._error = at, error or RuntimeError("no more")

    def on_progress(self, figures: dict[str, Any]) -> None:
        self.told.append(figures)
        if len(self.told) == self._at:
            raise self._error


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current directory, with 100 rows in ``data``."""
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "data" / "a.parquet", rows(100))
    return tmp_path


def test_told_at_doubling_rows_and_at_the_end(here: Path) -> None:
    """1, 2, 4 … rows and the last; every call has all keys; the last has the result's figures."""
    kept = Kept()
    model = streamomd.train("data", checkpoint="kept", callbacks=[kept], **FLAGS)
    assert [one["rows"] for one in kept.told] == [1, 2, 4, 8, 16, 32, 64, 100]
    assert [one["state"] for one in kept.told] == ["running"] * 7 + ["finished"]
    assert all(set(one) == KEYS for one in kept.told)
    last, result = kept.told[-1], model.result()
    assert {key: last[key] for key in ("loss", "error", "rmse")} == {
        key: result[key] for key in ("loss", "error", "rmse")
    }
    assert last["expected"] == 100
    assert last["checkpoint"] == str(here / "kept")
    assert last["job"]["model"]["rule"] == "ogd"
    json.dumps(last, allow_nan=False)
    told = sum(
        a["since_last"] * n for a, n in zip(kept.told, [1, 1, 2, 4, 8, 16, 32, 36], strict=True)
    )
    assert told / 100 == pytest.approx(last["loss"])


def test_who_looks_changes_no_bit(here: Path) -> None:
    """Also one that raises, which is not called again; and one that spoils its dict."""

    class Spoils:
        def on_progress(self, figures: dict[str, Any]) -> None:
            figures.clear()

    alone = streamomd.train("data", checkpoint="none", **FLAGS)
    kept, broken = Kept(), Kept(at=3)
    flags = {**FLAGS, "quiet": False}
    model = streamomd.train("data", checkpoint="none", callbacks=[Spoils(), broken, kept], **flags)
    assert model.state_sha256 == alone.state_sha256
    assert len(broken.told) == 3
    assert len(kept.told) == 8


def test_what_a_callback_raises_is_told_once(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """By its class, on stderr, with secrets of URLs taken out."""
    broken = Kept(at=2, error=OSError("https://user:secret@host/x?token=1 is down"))
    flags = {**FLAGS, "quiet": False}
    streamomd.train("data", checkpoint="none", callbacks=[broken], **flags)
    said = capsys.readouterr().err
    assert said.count("Kept.on_progress raised OSError: https://host/x is down") == 1
    assert "secret" not in said


def test_a_run_that_does_not_come_to_its_end_says_so(here: Path) -> None:
    """A bad row: the last call has state "stopped"; Ctrl-C in a callback is not swallowed."""
    kept = Kept()
    table = rows(100).to_pydict()
    table["n"][50] = None
    write(here / "bad" / "a.parquet", table)
    with pytest.raises(BadRowError):
        streamomd.train("bad", checkpoint="none", callbacks=[kept], **FLAGS)
    assert [one["state"] for one in kept.told][-1] == "stopped"
    interrupted = Kept(at=1, error=KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        streamomd.train("data", checkpoint="none", callbacks=[interrupted], **FLAGS)


def test_resume_tells_too(here: Path) -> None:
    """Of all rows, also those of before."""
    streamomd.train("data", checkpoint="kept", **FLAGS)
    kept = Kept()
    streamomd.resume("kept", sets={"train.epochs": 2}, callbacks=[kept], quiet=True)
    assert [one["rows"] for one in kept.told] == [128, 200]
    assert kept.told[-1]["expected"] == 200


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["sharded", "averaged"])
def test_every_mode_tells(here: Path, mode: str) -> None:
    """From weights, too: the last call has all rows, and the first loss is of those weights."""
    first = {"feature": ["bias", "n"], "weight": [0.5, 0.25]}
    write(here / "w.parquet", first)
    told = []
    for one in ("exact", mode):
        told.append(Kept())
        sets = {**FLAGS["sets"], "train.parts": 2, "train.batch_rows": 1}
        flags = {**FLAGS, "sets": sets, "mode": one, "start": "w.parquet", "checkpoint": one}
        streamomd.train("data", callbacks=[told[-1]], **flags)
        assert told[-1].told[-1]["state"] == "finished"
        assert told[-1].told[-1]["rows"] == 100
    if mode == "sharded":  # batches of one row are exact mode up to the order of a sum
        exact, other = (one.told[-1]["loss"] for one in told)
        assert other == pytest.approx(exact)


def test_what_is_no_callback_is_refused(here: Path) -> None:
    """Before anything is begun."""
    with pytest.raises(UsageError, match="hold a int, expected an object with"):
        streamomd.train("data", checkpoint="kept", callbacks=[3], **FLAGS)
    assert not (here / "kept").exists()


class Client:
    """MLflow's client, as far as it is used."""

    def __init__(self, tracking_uri: str | None) -> None:
        if tracking_uri == "nowhere":
            raise OSError("no store at nowhere")
        self.uri, self.metrics, self.params, self.ended = tracking_uri, [], {}, ""
        Client.last = self

    last: Any = None

    def get_experiment_by_name(self, name: str) -> Any:
        return None

    def create_experiment(self, name: str) -> str:
        self.experiment = name
        return "7"

    def create_run(self, experiment: str, run_name: str | None) -> Any:
        return SimpleNamespace(info=SimpleNamespace(run_id=f"run in {experiment}"))

    def log_batch(self, run_id: str, metrics: Any = (), params: Any = ()) -> None:
        self.params |= dict(params)
        self.metrics += [(run_id, key, value, step) for key, value, _, step in metrics]

    def set_tag(self, run_id: str, key: str, value: str) -> None:
        self.tag = key, value

    def set_terminated(self, run_id: str, status: str) -> None:
        self.ended = status


@pytest.fixture
def mlflow(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = ModuleType("mlflow.tracking")
    fake.MlflowClient = Client  # type: ignore[attr-defined]
    root = ModuleType("mlflow")
    plain = lambda *given: given  # noqa: E731
    root.entities = SimpleNamespace(Metric=plain, Param=plain)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "mlflow", root)
    monkeypatch.setitem(sys.modules, "mlflow.tracking", fake)


@pytest.mark.usefixtures("mlflow")
def test_mlflow_is_told_parameters_metrics_and_the_end(here: Path) -> None:
    """The job once, every finite figure at its row, and how the run ended."""
    streamomd.train(
        "data", checkpoint="kept", callbacks=[MLflow("http://x", experiment="bank")], **FLAGS
    )
    client = Client.last
    assert client.uri == "http://x"
    assert client.experiment == "bank"
    assert client.params["model.rule"] == "ogd"
    assert client.params["model.params.eta"] == "0.1"
    assert client.tag == ("streamomd.checkpoint", str(here / "kept"))
    assert {step for *_, step in client.metrics} == {1, 2, 4, 8, 16, 32, 64, 100}
    assert {run for run, *_ in client.metrics} == {"run in 7"}
    assert {"loss", "error", "rate"} <= {key for _, key, *_ in client.metrics}
    assert "rmse" not in {key for _, key, *_ in client.metrics}
    assert client.ended == "FINISHED"


@pytest.mark.usefixtures("mlflow")
def test_a_tracker_that_cannot_be_made_is_told_before_the_run(here: Path) -> None:
    """Exit 2, with what the library said."""
    done = run("train", "data", "--label", "y", "--track", "mlflow:nowhere", "--checkpoint", "kept")
    assert done.code == 2
    assert "tracker mlflow:nowhere: OSError: no store at nowhere" in done.err
    assert not (here / "kept").exists()


class Writer:
    """tensorboardX's writer, as far as it is used."""

    last: Any = None

    def __init__(self, logdir: str) -> None:
        self.logdir, self.scalars, self.texts, self.closed = logdir, [], [], False
        Writer.last = self

    def add_text(self, tag: str, text: str, step: int) -> None:
        self.texts.append((tag, text, step))

    def add_scalar(self, tag: str, value: float, step: int) -> None:
        self.scalars.append((tag, value, step))

    def flush(self) -> None:
        pass

    def close(self) -> None:
        self.closed = True


def test_tensorboard_is_told_scalars_over_rows(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the command, ``--track tensorboard:DIR``."""
    fake = ModuleType("tensorboardX")
    fake.SummaryWriter = Writer  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "tensorboardX", fake)
    flags = ["--label", "y", "--numeric", "n,k", "--rule", "ogd", "--checkpoint", "none"]
    more = ["--set", "data.ignore=['w','c','i','v','h']", "--track", "tensorboard:logs"]
    assert run("train", "data", *flags, *more).code == 0
    writer = Writer.last
    assert writer.logdir == "logs"
    assert len(writer.texts) == 1
    assert "model.rule = ogd" in writer.texts[0][1]
    assert ("rows", 100.0, 100) in writer.scalars
    assert writer.closed


@pytest.mark.parametrize("text", ["wandb:x", "mlflow", "tensorboard:", ""])
def test_an_unknown_tracker_is_refused(text: str) -> None:
    """With what is known."""
    with pytest.raises(UsageError, match="expected mlflow:URI or tensorboard:DIR"):
        tracker(text)


@pytest.mark.parametrize("name", TRACKERS)
def test_a_missing_library_is_told_with_its_extra(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``pip install 'streamomd[…]'``."""
    for module in ("mlflow.tracking", "tensorboardX"):
        monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(MissingExtraError, match=rf"streamomd\[{name}\]"):
        tracker(f"{name}:x")


def test_real_tensorboard(here: Path) -> None:
    """Event files that tensorboardX wrote."""
    pytest.importorskip("tensorboardX", reason="needs streamomd[tensorboard]")
    streamomd.train("data", checkpoint="none", callbacks=[TensorBoard("logs")], **FLAGS)
    files = list((here / "logs").glob("events.out.tfevents.*"))
    assert len(files) == 1
    assert b"since_last" in files[0].read_bytes()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_real_mlflow(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run in a local store of MLflow's, read back."""
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")  # others need more than the client
    tracking = pytest.importorskip("mlflow.tracking", reason="needs streamomd[mlflow]")
    uri = (here / "mlruns").as_uri()
    one = MLflow(uri, run_name="bank")
    streamomd.train("data", checkpoint="none", callbacks=[one], **FLAGS)
    client = tracking.MlflowClient(uri)
    found = client.get_run(one.run_id)
    assert found.info.status == "FINISHED"
    assert found.data.params["model.rule"] == "ogd"
    history = client.get_metric_history(one.run_id, "loss")
    assert [point.step for point in history] == [1, 2, 4, 8, 16, 32, 64, 100]
