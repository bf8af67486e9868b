"""Runs on text are updated with the files that arrive: each is converted by itself."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from running import alone, run

from streamomd.shards.cache import folder

LABEL = ("--label", "y", "--nulls", "mean", "--bits", "8", "--json")
UPDATE = ("update", "run", "--settle", "0", "--json")


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current directory, with a folder for days and a cache of its own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(folder.VARIABLE, str(tmp_path / "cache"))
    (tmp_path / "days").mkdir()
    return tmp_path


def day(number: int, rows: int = 40) -> pd.DataFrame:
    """Numbers with gaps, codes, a column of text that looks like numbers on later days, labels."""
    random = np.random.default_rng(number)
    return pd.DataFrame({
        "age": np.where(random.random(rows) < 0.2, np.nan, random.integers(18, 80, rows)),
        "count": random.integers(0, 9, rows) + (0.5 if number == 1 else 0),
        "zip": [f"0{k}" if number == 1 else str(k) for k in random.integers(100, 120, rows)],
        "y": random.choice(["no", "yes"], rows),
    })  # fmt: skip


def write(number: int, ending: str = "csv", **columns: object) -> Path:
    """The file of a day."""
    path, frame = Path("days") / f"{number:02}.{ending}", day(number).assign(**columns)
    if ending == "jsonl":
        lines = (json.dumps(row) for row in frame.replace({np.nan: None}).to_dict("records"))
        path.write_text("\n".join(lines) + "\n")
    else:
        frame.to_csv(path, index=False, na_rep="NA")
    return path


def trained(sources: str, checkpoint: str = "run") -> str:
    """The hash of the state."""
    done = run("train", sources, *LABEL, "--checkpoint", checkpoint)
    return str(alone(done)["state_sha256"])


@pytest.mark.parametrize("sources", ["days", "days/*.csv"])
def test_an_update_is_the_run_over_all_files(sources: str, here: Path) -> None:
    """To the bit, though types of later files look different; the second time nothing is new."""
    write(1)
    trained(sources)
    write(2)
    write(3)
    updated = alone(run(*UPDATE))
    assert (updated["new_shards"], updated["new_rows"]) == (2, 80)
    assert updated["state_sha256"] == trained(sources, "whole")
    assert alone(run(*UPDATE))["new_shards"] == 0
    assert alone(run("evaluate", "run", sources, "--json"))["rows"] == 120


def test_a_file_that_the_job_does_not_name(here: Path) -> None:
    """It is a source of the run from then on, even if it has to wait; so is one of another type."""
    write(1)
    trained("days/01.csv")
    assert "streamomd update run FILE" in run(*UPDATE).err
    assert run("update", "run", "days/02.csv").code == 2
    write(2, wind=1)
    assert alone(run("update", "run", "days/02.csv", "--json"))["new_shards"] == 0
    assert alone(run(*UPDATE))["new_rows"] == 40
    done = run("train", "days", *LABEL, "--checkpoint", "whole")
    assert "ignored, as the first shard lacks them: 'wind'" in done.err
    assert alone(run(*UPDATE, "days/01.csv"))["state_sha256"] == alone(done)["state_sha256"]


def test_json_lines_likewise(here: Path) -> None:
    """With the types of the first file."""
    write(1, "jsonl")
    trained("days")
    write(2, "jsonl")
    assert alone(run(*UPDATE))["state_sha256"] == trained("days", "whole")


def test_learned_files_may_be_gone_and_the_cache_too(here: Path) -> None:
    """The types of columns are those that the run recorded."""
    write(1)
    write(2)
    trained("days")
    write(3)
    whole = trained("days", "whole")
    (here / "days" / "01.csv").unlink()
    shutil.rmtree(here / "cache")
    updated = run(*UPDATE)
    assert alone(updated)["state_sha256"] == whole
    assert "1 learned shard no longer listed" in updated.err


def test_a_killed_update_finds_its_text_again(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Though the folders of the text were deleted since."""
    write(1)
    trained("days")
    write(2)
    write(3)
    whole = trained("days", "whole")
    monkeypatch.setattr("streamomd.runs.update_run.UpdateRun._learn", _killed)
    assert run(*UPDATE).code == 130
    monkeypatch.undo()
    monkeypatch.chdir(here)
    monkeypatch.setenv(folder.VARIABLE, str(here / "cache"))
    shutil.rmtree(here / "cache")
    assert alone(run(*UPDATE))["state_sha256"] == whole


def _killed(*_: object) -> None:
    raise KeyboardInterrupt


def test_new_columns_are_ignored_and_missing_ones_refused(here: Path) -> None:
    """As those of other shards."""
    write(1)
    trained("days")
    write(2, wind=1)
    done = run(*UPDATE)
    assert (done.code, "new columns, which this model ignores: 'wind'" in done.err) == (0, True)
    day(3).drop(columns="age").to_csv("days/03.csv", index=False)
    refused = run(*UPDATE)
    assert (refused.code, "days/03.csv: column 'age'" in refused.err) == (2, True)


def test_a_damaged_file_is_named_skipped_and_restored(here: Path) -> None:
    """The error names the file and the line; the others are learned if the job says so."""
    write(1)
    trained("days")
    good = write(2).read_text()
    write(3)
    lines = good.splitlines()
    Path("days/02.csv").write_text("\n".join([*lines[:9], lines[9] + ",1", *lines[10:], ""]))
    refused = run(*UPDATE)
    assert refused.code == 2
    assert "days/02.csv: about line 10: expected 4 fields, got 5" in refused.err
    done = alone(run(*UPDATE, "--set", "data.on_bad_shard=skip"))
    assert (done["new_rows"], len(done["skipped_shards"])) == (40, 1)
    Path("days/02.csv").write_text(good)
    assert alone(run(*UPDATE))["new_rows"] == 0
    assert alone(run(*UPDATE, "--retry-skipped"))["new_rows"] == 40


def test_a_day_without_rows(here: Path) -> None:
    """It has a header alone; all days without rows are an error."""
    write(1)
    Path("days/02.csv").write_text("age,count,zip,y\n")
    trained("days")
    write(4)
    Path("days/03.csv").write_text("age,count,zip,y\n")
    done = alone(run(*UPDATE))
    assert (done["new_shards"], done["new_rows"]) == (2, 40)
    done = run("train", "days/02.csv", "days/03.csv", *LABEL)
    assert (done.code, "days/02.csv and 1 more" in done.err) == (2, True)


def test_a_file_that_is_still_written_waits(here: Path) -> None:
    """Even if it cannot be read yet."""
    write(1)
    trained("days")
    Path("days/02.csv").write_text('age,count,zip,y\n1,"2')
    done = run("update", "run", "--settle", "1h", "--json")
    assert (alone(done)["new_shards"], "less than update.settle" in done.err) == (0, True)


def test_a_changed_file_is_refused(here: Path) -> None:
    """By the name of its folder, which has that of the file."""
    write(1)
    trained("days")
    with open("days/01.csv", "a") as file:
        file.write("3,1,011,no\n")
    refused = run(*UPDATE)
    assert (refused.code, "01.csv-" in refused.err) == (3, True)
    assert run("resume", "run", "--epochs", "2").code == 3


def test_another_cache_is_named(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """There, all rows would be new."""
    write(1)
    trained("days")
    monkeypatch.setenv(folder.VARIABLE, str(here / "other"))
    refused = run(*UPDATE)
    assert (refused.code, f"set {folder.VARIABLE} as it was" in refused.err) == (3, True)


def test_runs_of_earlier_versions(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of one file they are updated; of several, which were one folder, they are refused."""
    from streamomd.sources.text.text_cache import Text

    with monkeypatch.context() as earlier:
        earlier.setattr(Text, "folder", Text.earlier_folder)
        write(1)
        trained("days")
        trained("days", "several")
    write(2)
    whole = trained("days", "whole")
    assert alone(run(*UPDATE))["state_sha256"] == whole
    os.rename("days/01.csv", "days/00.csv")
    refused = run("update", "several", "--settle", "0")
    assert (refused.code, "an earlier version began this run" in refused.err) == (3, True)
