"""Parquet of weights: what stands in it, for whom, and that a state in pieces is written whole."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import fsspec
import pyarrow.parquet as pq
import pytest
from exporting import model_of, table
from fsspec.implementations.memory import MemoryFileSystem
from running import rows, run, write

import streamomd
from streamomd.core.errors import OutputExistsError, StorageError, UsageError
from streamomd.engine import state
from streamomd.features import Plan
from streamomd.integrations.export import FORMATS, export
from streamomd.shards.output_files import KEY, open_atomic

EVERYTHING = {"numeric": ["n", "f", "t"], "vectors": ["e"], "hashed": ["h", "k"], "bits": 6}


def told(path: Path) -> dict[str, Any]:
    return json.loads(pq.read_schema(path).metadata[KEY])


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A run of NAG saved in ``kept``, with numbers and words."""
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "data" / "a.parquet", rows(60))
    flags = ["--label", "y", "--numeric", "n,k", "--hashed", "h", "--bits", "10", "--rule", "nag"]
    ignore = "data.ignore=['w','c','i','v']"
    assert run("train", "data", *flags, "--set", ignore, "--checkpoint", "kept").code == 0
    return tmp_path


def test_every_moved_coordinate_with_name_weight_and_slots(here: Path) -> None:
    """The rows are those whose weight or slots have moved; figures are those of ``inspect``."""
    done = run("export", "kept", "--as", "parquet", "--to", "w.parquet", "--json").result
    found = pq.read_table("w.parquet")
    assert found.column_names == ["coordinate", "feature", "weight", "slot.s", "slot.w", "slot.G"]
    model = streamomd.load("kept")
    assert done["rows"] == len(found) < done["coordinates"] == model.plan.size
    assert sorted(found["coordinate"].to_pylist()) == found["coordinate"].to_pylist()
    known = {one["coordinate"]: one for one in model.inspect(model.plan.size)}
    assert {*known} <= {*found["coordinate"].to_pylist()}
    for row in found.to_pylist():
        if row["coordinate"] in known:
            one = known[row["coordinate"]]
            assert row["feature"] == one["name"]
            assert [row["weight"]] == one["weight"]
            assert [row["slot.G"]] == one["slots"]["G"]
    about = told(here / "w.parquet")
    assert about["rule"] == "nag"
    assert about["rows"] == about["clock"] == 60
    assert about["classes"] == [0, 1]
    assert about["checkpoint"]["sequence"] == model.sequence
    assert Plan.from_json(about["plan"]) == model.plan


def test_a_state_in_pieces_is_written_whole(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Small pieces, and a state that is left in its checkpoint, give the same rows."""
    model = streamomd.load("kept")
    export(model, "parquet", "one.parquet")
    monkeypatch.setattr(state, "CHUNK_BYTES", 4096)
    export(model, "parquet", "many.parquet")
    run("export", "kept", "--as", "parquet", "--to", "far.parquet")
    one, many, far = (pq.read_table(f"{name}.parquet") for name in ("one", "many", "far"))
    assert pq.ParquetFile("many.parquet").num_row_groups > 1
    assert one == many == far


def test_classes_have_a_column_each() -> None:
    """Slots and weights by class; what learners share is one column."""
    path = "memory://weights/classes.parquet"
    model = model_of(table(labels="three"), data=EVERYTHING, model={"rule": "ng"})
    export(model, "parquet", path, overwrite=True)
    import fsspec

    with fsspec.open(path, "rb") as file:
        found = pq.read_table(file)
    weights = [f"weight[{name}]" for name in "abc"]
    slots = [f"slot.w[{name}]" for name in "abc"]
    assert found.column_names == ["coordinate", "feature", *weights, "slot.s", *slots]
    assert found["weight[b]"].to_numpy().tolist() == model.state.slot("w")[:, 1].tolist()
    names = dict(zip(found["coordinate"].to_pylist(), found["feature"].to_pylist(), strict=True))
    assert names[0] == "bias"
    assert names[4] == "e[0]"
    assert names[model.plan.hashed_offset] is None


@pytest.mark.slow
def test_weights_that_start_above_0_are_there(here: Path) -> None:
    """Of Winnow every coordinate has a weight before it is seen."""
    flags = ["--label", "y", "--numeric", "n,k", "--hashed", "h", "--bits", "4", "--rule", "winnow"]
    ignore = "data.ignore=['w','c','i','v']"
    assert run("train", "data", *flags, "--set", ignore, "--checkpoint", "winnow").code == 0
    done = run("export", "winnow", "--as", "parquet", "--to", "w.parquet", "--json").result
    assert done["rows"] == done["coordinates"]


def test_a_run_begins_at_what_was_exported(here: Path) -> None:
    """Of NAG with its scales: the metrics of the first row are those of ``evaluate``."""
    run("export", "kept", "--as", "parquet", "--to", "w.parquet")
    flags = ["--label", "y", "--numeric", "n,k", "--hashed", "h", "--bits", "10", "--rule", "nag"]
    ignore = "data.ignore=['w','c','i','v']"
    write(here / "one" / "a.parquet", rows(60).slice(0, 1))
    more = ["--start", "w.parquet", "--checkpoint", "none", "--set", "model.classes=[0,1]"]
    done = run("train", "one", *flags, "--set", ignore, *more, "--json").result
    assert done["loss"] == pytest.approx(run("evaluate", "kept", "one", "--json").result["loss"])


def test_output(here: Path) -> None:
    """An existing file stays unless it may be replaced; a file that cannot be written is
    reported."""
    first = run("export", "kept", "--as", "parquet", "--to", "w.parquet")
    assert first.code == 0
    assert "--start w.parquet" in first.out
    again = run("export", "kept", "--as", "parquet", "--to", "w.parquet")
    assert again.code == 2
    assert "--overwrite" in again.err
    assert run("export", "kept", "--as", "parquet", "--to", "w.parquet", "--overwrite").code == 0
    model = streamomd.load("kept")
    with pytest.raises(OutputExistsError):
        export(model, "parquet", "w.parquet")
    with pytest.raises(StorageError, match="cannot be written"):
        export(model, "parquet", "w.parquet/x")
    with pytest.raises(UsageError, match="unknown export format 'parkett'; did you mean 'parquet'"):
        export(model, "parkett", "x")
    assert [path.name for path in here.glob("*.tmp-*")] == []


def test_nothing_is_left_of_an_export_that_failed(here: Path) -> None:
    """A model that the format cannot say leaves no file."""
    model = model_of(table(labels="three"), data=EVERYTHING)
    with pytest.raises(UsageError):
        export(model, "vw", "w.txt")
    assert [path.name for path in here.iterdir() if path.name.startswith("w.txt")] == []


def test_the_list_and_the_choice_are_of_all_formats() -> None:
    """``list exports`` and ``--as`` name every format there is."""
    from streamomd.cli.model_commands import FORMATS as CHOICE

    assert set(CHOICE) == set(FORMATS)
    listed = run("list", "exports", "--json").result["exports"]
    assert [one["name"] for one in listed] == [*FORMATS]
    told = run("export", "--help").out
    assert all(f"--as {name}" in told for name in FORMATS)
    assert max(map(len, told.splitlines())) <= 100


def test_it_suggests_a_start_only_where_the_rule_takes_it(here: Path) -> None:
    """`--start` refuses a file of weights for ``auto``, whose weights come from other slots."""
    run("train", "data", "--label", "y", "--numeric", "n,k", "--rule", "auto", "--set",
        "data.ignore=['w','c','i','v','h']", "--checkpoint", "auto")  # fmt: skip
    suggested = {
        name: run("export", name, "--as", "parquet", "--to", f"{name}.w", "--json").result
        for name in ("kept", "auto")
    }
    assert "--start kept.w" in suggested["kept"]["to_read"]
    assert suggested["auto"]["to_read"] == "pyarrow.parquet.read_table('auto.w')"


class RefusingFileSystem(MemoryFileSystem):
    """A store whose client raises errors of its own types at one of its calls."""

    protocol = "refusing"
    at = ""

    def refuse(self, call: str) -> None:
        if self.at == call:
            raise NoCredentialsError("Unable to locate credentials of s3://key:secret@bucket")

    def exists(self, path: str, **more: Any) -> bool:
        self.refuse("exists")
        return bool(super().exists(path, **more))

    def open(self, path: str, mode: str = "rb", **more: Any) -> Any:
        self.refuse("open")
        file = super().open(path, mode, **more)
        if "w" in mode and self.at in ("write", "close"):
            setattr(file, self.at, lambda *_: self.refuse(self.at))
        return file

    def mv(self, *given: Any, **more: Any) -> None:
        self.refuse("mv")
        super().mv(*given, **more)


class NoCredentialsError(Exception):
    """As botocore's: no OSError."""


@pytest.mark.parametrize("at", ["exists", "open", "write", "close", "mv"])
@pytest.mark.parametrize("kind", ["parquet", "vw"])
def test_any_error_of_a_stores_client_names_the_file(
    kind: str, at: str, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One line with the URL, what to do about credentials, and no secret; no traceback. Predictions
    are the same."""
    fsspec.register_implementation("refusing", RefusingFileSystem, clobber=True)
    monkeypatch.setattr(RefusingFileSystem, "at", at)
    for words in (
        ("export", "kept", "--as", kind, "--to", "refusing://bucket/model"),
        ("predict", "kept", "data", "--to", "refusing://bucket/out"),
    ):
        done = run(*words)
        assert done.code == 1, done.err
        assert "/bucket/" in done.err
        assert "cannot be written to: NoCredentialsError: " in done.err
        assert "Traceback" not in done.err
        assert "secret" not in done.err


def test_an_error_of_the_program_is_none_of_the_store(tmp_path: Path) -> None:
    """It is raised as it is, and the file that was there stays."""
    to = tmp_path / "model"
    to.write_bytes(b"before")

    def write(*_: Any) -> Any:
        raise ValueError("a bug")

    with pytest.raises(ValueError, match="a bug"), open_atomic(str(to), overwrite=True) as file:
        file.write(b"half")
        write()
    assert to.read_bytes() == b"before"
    assert [*tmp_path.iterdir()] == [to]
