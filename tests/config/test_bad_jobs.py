"""Jobs, flags and places that cannot be meant: what is said, with which exit code."""

from __future__ import annotations

import http.server
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from running import run, shards

USAGE: dict[str, tuple[list[str], list[str]]] = {
    "no label": (["--label", ""], ["no label", "--label y"]),
    "unknown label": (["--label", "yy"], ["no column 'yy'", "did you mean 'y'"]),
    "unknown numeric": (["--numeric", "nn,k"], ["no column 'nn'", "did you mean 'n'"]),
    "label as feature": (["--numeric", "n,y"], ["'y' is named twice", "one role"]),
    "feature twice": (["--numeric", "n,n"], ["'n' is named twice"]),
    "text as number": (["--numeric", "h"], ["'h' is string", "name it in hashed"]),
    "unknown rule": (["--rule", "nagg"], ["'nagg'", "'nag'"]),
    "unknown loss": (["--loss", "logistik"], ["'logistik'", "'logistic'"]),
    "rule and loss": (
        ["--rule", "perceptron", "--loss", "square"],
        ["'perceptron'", "hinge", "'square'"],
    ),
    "eta without a rule": (
        ["--eta", "0.5"],
        [
            "sets eta",
            "rule auto (the default) has eta, prior",
            "nag has eta, implicit",
            "--rule nag",
        ],
    ),
    "auto without a bias": (
        ["--rule", "auto", "--set", "model.bias=false"],
        ["'auto' needs the bias", "model.bias = true", "--rule nag"],
    ),
    "auto in sharded mode": (
        ["--rule", "auto", "--mode", "sharded"],
        ["'auto'", "exact or averaged, not sharded", "rule nag does"],
    ),
    "auto with a certificate": (
        ["--rule", "auto", "--set", "model.certificate=true"],
        ["'auto' has no certificate"],
    ),
    "eta 0": (["--rule", "nag", "--eta", "0"], ["model.params.eta = 0:", "above 0"]),
    "eta nan": (["--rule", "nag", "--eta", "nan"], ["model.params.eta", "nan"]),
    "no such parameter": (["--set", "etta=1"], ["'etta'", "it has: eta"]),
    "epochs 0": (["--epochs", "0"], ["train.epochs = 0: expected a whole number of 1 or more"]),
    "epochs 2.5": (["--epochs", "2.5"], ["train.epochs = 2.5: expected a whole number of 1 or"]),
    "bits 31": (["--bits", "31"], ["data.bits = 31: expected a whole number from 1 to 30"]),
    "bits 18M": (["--bits", "18M"], ["data.bits = '18M': expected a whole number from 1 to 30"]),
    "a word as a flag": (["--set", "model.bias=maybe"], ["'maybe': expected true or false"]),
    "dtype": (["--dtype", "float16"], ["model.dtype", "float64"]),
    "set without =": (["--set", "epochs"], ["--set epochs", "key=value"]),
    "shapes": (["--shapes", "curves"], ["'curves': expected 'none', 'columns', 'pairs' or 'all'"]),
    "set of no table": (["--set", "trane.epochs=2"], ["'trane'", "did you mean 'train'?"]),
    "set of no key": (["--set", "train.epoch=2"], ["'train.epoch'", "did you mean 'epochs'?"]),
    "set through a value": (["--set", "data.bits.x=2"], ["data.bits = {'x': 2}"]),
    "set of the wrong kind": (["--set", "train.epochs=[1]"], ["train.epochs = [1]"]),
    "set of a table": (["--set", "train=3"], ["no parameter 'train'", "it has: eta"]),
    "order": (["--set", "data.order=random"], ["data.order", "sorted"]),
    "mode of another rule": (
        ["--mode", "sharded", "--rule", "pnorm"],
        ["'pnorm'", "not sharded", "exact or averaged"],
    ),
    "unknown start": (["--start", "nowhere"], ["nowhere"]),
    "no options file": (
        ["--storage-options", "none.toml"],
        ["no storage options file 'none.toml'"],
    ),
    "options are a folder": (["--storage-options", "."], ["storage options '.'"]),
    "no such option": (["--nosuch", "1"], ["--nosuch"]),
    "log in no folder": (["--log", "no/such/folder/log"], ["no/such/folder/log"]),
    "checkpoint is the data": (["--checkpoint", "data"], ["data", "choose another"]),
    "checkpoint in the data": (["--checkpoint", "data/run"], ["data/run", "choose another"]),
    "checkpoint in the data by a link": (
        ["--checkpoint", "link/run"],
        ["link/run", "choose another"],
    ),
}


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current directory, with good shards in ``data``."""
    monkeypatch.chdir(tmp_path)
    shards(tmp_path / "data")
    (tmp_path / "link").symlink_to(tmp_path / "data")
    return tmp_path


@pytest.mark.parametrize("case", USAGE)
def test_usage(case: str, here: Path) -> None:
    """What cannot be meant ends with exit 2 (4 for no commit), says what and why, keeps nothing."""
    flags, words = USAGE[case]
    base = ["--label", "y", "--numeric", "n,k", "--checkpoint", "kept"]
    done = run("train", "data", *base, *flags)
    assert done.code == (4 if case == "unknown start" else 2)
    assert done.out == ""
    for word in words:
        assert word in done.err
    assert not (here / "kept").exists()


JOBS: dict[str, tuple[str | bytes, list[str]]] = {
    "not TOML": ("[data\n", ["job.toml", "is not TOML", "line 1"]),
    "not UTF-8": (b"\xff\xfe", ["job.toml", "is not TOML"]),
    "unknown table": ("[dataa]\nlabel='y'", ["unknown key 'dataa'", "did you mean 'data'?"]),
    "unknown key": ("[data]\nlable='y'", ["unknown key 'data.lable'", "did you mean 'label'?"]),
    "value of the wrong kind": ("[data]\nbits='many'", ["data.bits = 'many'"]),
    "a table that is a value": ("data = 3", ["data = 3"]),
    "no shards": ("[data]\nlabel='y'", ["no shards", "give files"]),
    "no label": ("[data]\nshards='data'", ["no label", "data.label"]),
    "nothing there": ("[data]\nshards='nothing'\nlabel='y'", ["nothing", "no such file"]),
    "empty glob": ("[data]\nshards='x*.parquet'\nlabel='y'", ["x*.parquet", "no data file"]),
    "nan": ("[checkpoint]\nevery_seconds=nan", ["checkpoint.every_seconds"]),
}


@pytest.mark.parametrize("case", JOBS)
def test_bad_job_file(case: str, here: Path) -> None:
    """A job file that cannot be meant ends with exit 2 and names the file, key or line."""
    text, words = JOBS[case]
    (here / "job.toml").write_bytes(text if isinstance(text, bytes) else text.encode())
    done = run("train", "job.toml")
    assert done.code == 2
    for word in words:
        assert word in done.err


def test_missing_job_files(here: Path) -> None:
    """A job that is not there, a folder of that name, and two jobs, end with exit 2."""
    (here / "folder.toml").mkdir()
    for words, said in [
        (["none.toml"], "no job file 'none.toml'"),
        (["folder.toml"], "folder.toml"),
        (["a.toml", "b.toml", "--label", "y"], "a.toml"),
        ([], "Missing argument"),
        (["data"], "no label"),
    ]:
        done = run("train", *words)
        assert done.code == 2
        assert said in done.err


def test_same_file_twice(here: Path) -> None:
    """A file that is named twice, also by a link, is refused."""
    for pair in (
        ["data/a.parquet"] * 2,
        ["data/a.parquet", "link/a.parquet"],
        ["data", "data/b.parquet"],
    ):
        done = run("train", *pair, "--label", "y", "--checkpoint", "none")
        assert done.code == 2
        assert "named twice" in done.err


def test_storage_options_files(here: Path) -> None:
    """A storage options file is TOML or JSON with a table; anything else is exit 2 by name."""
    for name, text in {"a.json": "{", "b.json": "[1]", "c.toml": "= 1"}.items():
        (here / name).write_text(text)
        for flag in ("--storage-options", "--checkpoint-storage-options"):
            done = run("train", "data", "--label", "y", "--checkpoint", "none", flag, name)
            assert done.code == 2
            assert f"storage options '{name}'" in done.err
    (here / "d.json").write_text('{"auto_mkdir": true}')
    flags = ["--numeric", "n", "--storage-options", "d.json", "--checkpoint", "none"]
    assert run("train", "data", "--label", "y", *flags).code == 0


class Refusing(http.server.BaseHTTPRequestHandler):
    """404 for every name with "missing" in it, 403 for the others."""

    def do_HEAD(self) -> None:
        self.send_error(404 if "missing" in self.path else 403)

    do_GET = do_HEAD

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


@pytest.fixture
def refusing() -> Iterator[str]:
    """A server on this machine that has nothing to give."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Refusing)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def test_http_refusals(refusing: str) -> None:
    """404 is bad input (2), 403 is storage out of reach (1); the URL is named, its query is not."""
    for name, code in {"missing.parquet": 2, "secret.parquet": 1}.items():
        done = run(
            "train", f"{refusing}/{name}?token=CANARY", "--label", "y", "--checkpoint", "none"
        )
        assert done.code == code
        assert name in done.err
        assert "CANARY" not in done.err + done.out
