"""`streamomd demo`: the README's example, from an installation without a checkout."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from running import run

ROOT = Path(__file__).parents[2]


def files(folder: Path) -> dict[str, bytes]:
    found = (one for one in folder.rglob("*") if one.is_file())
    return {one.relative_to(folder).as_posix(): one.read_bytes() for one in found}


def test_the_example_is_written_and_learned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is written is the repository's; the README's commands run in the folder."""
    monkeypatch.chdir(tmp_path)
    done = run("demo")
    assert done.code == 0, done.err
    assert "45,211 rows, loss 0.2108" in done.out
    written = files(tmp_path / "pipelines")
    assert len(written) > 5
    assert written.items() <= files(ROOT / "pipelines").items()
    done = run("train", "pipelines/quickstart.toml", "--restart", "--json")
    assert done.code == 0, done.err
    done = run("demo")  # a run is there, and stays
    assert (done.code, "streamomd resume" in done.err) == (2, True)


def test_files_of_others_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pipelines").mkdir()
    (tmp_path / "pipelines" / "sweep.toml").write_text("mine")
    done = run("demo")
    assert done.code == 2
    assert "sweep.toml is a file of yours: pass another folder" in done.err
    assert files(tmp_path) == {"pipelines/sweep.toml": b"mine"}


@pytest.mark.parametrize("folder", ["s3://bucket/x", "", "file", "file/below"])
def test_only_a_local_folder_is_written_to(
    folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").touch()
    done = run("demo", folder)
    assert done.code == 2
    assert "is not a local folder" in done.err
    assert files(tmp_path) == {"file": b""}


@pytest.mark.slow
def test_a_wheel_holds_the_example_and_is_the_same_twice(tmp_path: Path) -> None:
    """And no tests, benchmarks or caches."""
    for name in ("a", "b"):
        words = [
            sys.executable,
            "-m",
            "pip",
            "wheel",
            "--no-deps",
            "-q",
            "-w",
            str(tmp_path / name),
        ]
        subprocess.run([*words, str(ROOT)], check=True)
    one, two = (next((tmp_path / name).glob("*.whl")) for name in ("a", "b"))
    assert one.read_bytes() == two.read_bytes()
    names = zipfile.ZipFile(one).namelist()
    assert "streamomd/pipelines/quickstart.toml" in names
    assert sum(name.startswith("streamomd/pipelines/data/bank/") for name in names) == 4
    tops = {name.split("/")[0] for name in names}
    assert {name for name in tops if not name.endswith(".dist-info")} == {"streamomd"}
    assert not [name for name in names if "__pycache__" in name]
