"""Completion as a shell asks for it, through click's protocol."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner
from running import rows, write

from streamomd.cli import main


def complete(words: list[str], *, shell: str = "zsh", at: int = -1) -> list[str]:
    """What ``_STREAMOMD_COMPLETE`` offers for the last word, or for word ``at``."""
    place = len(words) - 1 if at < 0 else at
    env = {
        "_STREAMOMD_COMPLETE": f"{shell}_complete",
        "COMP_WORDS": " ".join(words), "COMP_CWORD": str(place),
    }  # fmt: skip
    done = CliRunner().invoke(main, [], env=env, prog_name="streamomd")
    assert done.exit_code == 0, done.output
    lines = done.output.splitlines()
    return lines[1::3] if shell == "zsh" else [line.partition(",")[2] for line in lines]


@pytest.mark.parametrize(
    "words, expected",
    [
        ("streamomd train --rule adagrad_", ["adagrad_da", "adagrad_full", "adagrad_standardized"]),
        ("streamomd train --loss sq", ["square", "squared_hinge"]),
        ("streamomd train --mode a", ["averaged"]),
        ("streamomd train --set model.ru", ["model.rule="]),
        ("streamomd train --set model.rule=pa", [f"model.rule={n}" for n in ("pa", "pa1", "pa2")]),
        ("streamomd train --set model.loss=log", ["model.loss=log_square", "model.loss=logistic"]),
        ("streamomd train --set model.bias=", ["model.bias=true", "model.bias=false"]),
        ("streamomd train --set data.order=sh", ["data.order=shuffled"]),
        ("streamomd train --rule nag --set model.params.e", ["model.params.eta="]),
        ("streamomd sweep x --grid rule=nag,ng", ["rule=nag,ng"]),
        ("streamomd sweep x --rule nag --grid e", ["eta="]),
        ("streamomd compa", ["compare"]),
    ],
)
def test_words_are_completed(words: str, expected: list[str]) -> None:
    assert complete(words.split(" ")) == expected


def test_bash_cuts_words_at_equals() -> None:
    """It passes a key, "=" and the start of the value; only the value is replaced."""
    assert complete(["streamomd", "train", "--set", "model.rule", "=", "pa"], shell="bash") == [
        "pa", "pa1", "pa2",
    ]  # fmt: skip
    assert complete(["streamomd", "train", "--set", "model.task", "="], shell="bash") == [
        "auto", "classify", "regress",
    ]  # fmt: skip


@pytest.mark.parametrize("source", ["data", "data/a.parquet", "job.toml", "data/*.parquet"])
def test_columns_of_the_first_shard(
    source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One for the label; the last of a list elsewhere; nothing of a store or a broken file."""
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "data" / "a.parquet", rows(3))
    (tmp_path / "job.toml").write_text('[data]\nshards = "data"\n')
    assert complete(["streamomd", "train", source, "--label", "y"]) == ["y"]
    assert complete(["streamomd", "train", source, "--numeric", "n,k"]) == ["n,k"]
    assert complete(["streamomd", "train", source, "--set", "data.label=w"]) == ["data.label=w"]


@pytest.mark.parametrize("source", ["s3://bucket/x", "nothing", "broken.parquet", "broken.toml"])
def test_unreadable_shards_offer_nothing(
    source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("broken.parquet", "broken.toml"):
        Path(name).write_bytes(b"PAR1 not really")
    assert complete(["streamomd", "train", source, "--label", ""]) == []


def test_files_and_directories() -> None:
    assert complete(["streamomd", "train", "da"]) == ["da"]
    assert complete(["streamomd", "resume", "ru"]) == ["ru"]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_of_a_shell(shell: str) -> None:
    """The command of the documentation prints a script that defines the completion."""
    env = {**os.environ, "_STREAMOMD_COMPLETE": f"{shell}_source"}
    words = [sys.executable, "-m", "streamomd"]
    done = subprocess.run(words, env=env, capture_output=True, text=True, check=False)
    assert "_STREAMOMD_COMPLETE" in done.stdout, done.stderr
