"""init without a job: what it refuses, what it leaves as it is, and what it asks."""

from __future__ import annotations

import os
import pty
import select
import subprocess
from pathlib import Path

import pyarrow as pa
import pytest
from running import Ran, run, write
from terminal import MODULE
from written_jobs import ROWS, job, rows, text_file

pytestmark = pytest.mark.usefixtures("own_folder")


def refused() -> list[tuple[list[str], str]]:
    return [
        (["nosuch.csv"], "no such file"),
        (["empty.csv"], "empty"),
        (["one.csv"], "label and a feature"),
        (["none.parquet"], "no rows"),
        (["rows.csv", "--label", "churn"], "did you mean 'churned'?"),
        (["rows.csv", "-o", "job.txt"], "ends in .toml"),
        (["rows.csv", "--task", "guess"], "'guess' is not one of"),
        (["ids.parquet"], "no feature is left"),
    ]


@pytest.mark.parametrize(("words", "text"), refused(), ids=lambda one: str(one)[:30])
def test_data_without_a_job(words: list[str], text: str) -> None:
    """Exit code 2, a reason, and no job file."""
    text_file()
    Path("empty.csv").write_text("")
    Path("one.csv").write_text("a\n1\n2\n")
    write(Path("none.parquet"), pa.table(rows()).slice(0, 0))
    write(Path("ids.parquet"), {"id": [*range(ROWS)], "y": [0, 1] * 30})
    done = run("init", *words)
    assert (done.code, done.out) == (2, "")
    assert text in done.err
    assert not Path("job.toml").exists()


def test_an_existing_job_stays() -> None:
    """Without --overwrite nothing is read and nothing written."""
    Path("job.toml").write_text("mine")
    done: Ran = run("init", "nosuch.csv")
    assert (done.code, Path("job.toml").read_text()) == (2, "mine")
    assert "--overwrite" in done.err


def on_a_terminal(answers: list[tuple[str, str]]) -> tuple[int, str]:
    """Exit code and output of init, each answer typed when its question is seen."""
    main, end = pty.openpty()
    words = [*MODULE, "init", "rows.parquet"]
    seen = ""
    with subprocess.Popen(words, stdin=end, stdout=end, stderr=end) as process:
        os.close(end)
        while select.select([main], [], [], 60)[0]:
            try:
                piece = os.read(main, 65536).decode()
            except OSError:  # the other end was closed
                break
            seen += piece
            if answers and answers[0][0] in seen.rpartition("\n")[2]:
                os.write(main, f"{answers.pop(0)[1]}\n".encode())
        os.close(main)
        code = process.wait(60)
    assert not answers
    return code, seen


def test_three_questions_on_a_terminal() -> None:
    """A wrong answer is asked again, an empty one takes the proposal."""
    write(Path("rows.parquet"), rows(stars=[1, 2, 3, 4, 5] * 12))
    answers = [("label [y]:", "star"), ("label [y]:", "stars")]
    answers += [("classify or regress [classify]:", "regress"), ("checkpoint [runs/rows]:", "")]
    code, seen = on_a_terminal(answers)
    assert code == 0, seen
    assert "did you mean 'stars'?" in seen
    found = job()
    assert (found["data"]["label"], found["model"]["task"]) == ("stars", "regress")
    assert found["checkpoint"]["url"] == "runs/rows"
