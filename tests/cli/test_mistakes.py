"""What a command answers to a mistake: each message of ``mistakes.txt``, as a whole."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from streamomd.cli import main

TABLE = Path(__file__).with_name("mistakes.txt")
FILES = {
    "job.toml": '[data]\nshards = "data"\nlabel = "y"\n[checkpoint]\nurl = "runs/bank"\n',
    "other.toml": "",
    "noquotes.toml": "[data]\nshards = data/\nlabel = y\n",
    "unknown.toml": '[data]\nshard = "data"\nlabel = "y"\n[modle]\nrule = "nag"\n',
    "flat.toml": 'shards = "data"\nlabel = "y"\n',
    "types.toml": '[data]\nshards = "data"\nlabel = "y"\nbits = 64\n[train]\nepochs = 2.5\n',
    "job.yaml": "data:\n  shards: data\n  label: y\n",
    "notparquet.parquet": "PK hello",
    "fake.parquet": "",
}


def cases() -> list[tuple[str, str]]:
    """The commands of the table, and what each prints after its exit code."""
    blocks = TABLE.read_text("utf-8").removeprefix("$ streamomd ").split("\n$ streamomd ")
    found = [block.partition("\n") for block in blocks]
    return [(command, text.strip("\n")) for command, _, text in found]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A directory with data, job files and a run, as the current one, without credentials."""
    root = tmp_path_factory.mktemp("mistakes")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(root)
        for name in [name for name in os.environ if name.startswith("AWS_")]:
            patch.delenv(name)
        patch.setenv("AWS_EC2_METADATA_DISABLED", "true")
        patch.setenv("AWS_CONFIG_FILE", str(root / "none"))
        patch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(root / "none"))
        random = np.random.default_rng(0)
        for name in ("data", "empty", "runs"):
            os.mkdir(name)
        for name in ("a", "b"):
            columns = {
                "age": random.integers(18, 90, 40),
                "income": random.normal(50, 10, 40),
                "city": random.choice(["Rome", "Oslo", "Lima"], 40),
                "y": random.integers(0, 2, 40),
            }
            pq.write_table(pa.table(columns), f"data/{name}.parquet")
        for name, text in FILES.items():
            Path(name).write_text(text)
        Path("latin.csv").write_text("ort;y\nKöln;1\nRom;0\n", "latin-1")
        os.makedirs("months/2026-01")
        pq.write_table(pa.table(columns), "months/2026-01/a.parquet")
        columns["age"] = [None, *range(39)]
        pq.write_table(pa.table(columns), "gaps.parquet")
        done = CliRunner().invoke(main, ["train", "job.toml", "--rule", "nag"])
        assert done.exit_code == 0, done.output
        yield root


@pytest.mark.parametrize(("command", "expected"), cases(), ids=[one for one, _ in cases()])
def test_a_mistake_is_answered(place: Path, command: str, expected: str) -> None:
    """The exit code and the message; paths are shown relative to the current directory."""
    done = CliRunner().invoke(main, shlex.split(command), prog_name="streamomd")
    output = done.output.replace(f"{place}/", "").replace(str(place), ".")
    start = "Error: " if output.startswith("Usage") else "streamomd: "
    message = output[output.index(start) + len(start) :].strip().replace("\n", "\n   ")
    assert f"{done.exit_code}  {message}" == expected


def test_the_table_is_large() -> None:
    """At least 60 mistakes, none of them twice."""
    commands = [command for command, _ in cases()]
    assert len(commands) == len(set(commands)) >= 60
