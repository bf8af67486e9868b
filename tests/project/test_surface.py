"""The public surface is the recorded one: names, signatures, commands, flags, keys of jobs, of
results and of a server's answers, exit codes. docs/compatibility.md says for how long it stays.

After a change: ``PYTHONPATH=tests/support python tests/project/test_surface.py`` records it.
"""

from __future__ import annotations

import functools
import re
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from distributed import LocalCluster
from http_serving import Answered, numbered, served, snapshot
from pydantic import BaseModel
from running import run

import streamomd
from streamomd.cli import main
from streamomd.config.spec import Spec
from streamomd.core import errors

ROOT = Path(__file__).parents[2]
RECORD = Path(__file__).with_name("surface.txt")


def python_names() -> Iterator[str]:
    """Names with signatures as docs/api.md has them, which test_docs_names compares with the code;
    members after their class."""
    page, owner = (ROOT / "docs" / "api.md").read_text("utf-8"), ""
    for member, called in re.findall(r"^(- )?`([^`]+)`: ", page, re.M):
        words = " ".join(called.split())
        owner = owner if member else words.partition("(")[0]
        yield f"{owner}.{words}" if member else words
    for name, error in sorted(vars(errors).items()):
        if isinstance(error, type) and issubclass(error, Exception):
            yield f"errors.{name}: exit code {getattr(error, 'exit_code', 'of its own')}"


def commands(group: click.Group, above: str = "streamomd") -> Iterator[str]:
    """Every command with its arguments and flags, and the words that a flag takes."""
    for name, command in sorted(group.commands.items()):
        if isinstance(command, click.Group):
            yield from commands(command, f"{above} {name}")
            continue
        for one in command.get_params(click.Context(command)):
            if "--help" in one.opts:
                continue
            words = "|".join(getattr(one.type, "words", ()))
            flags = " ".join(sorted((*one.opts, *one.secondary_opts)))
            yield f"{above} {name} {flags} {words}".rstrip()


def keys(table: type[BaseModel], above: str = "job") -> Iterator[str]:
    """Every key of a job."""
    for name, field in table.model_fields.items():
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            yield from keys(field.annotation, f"{above} {name}")
        else:
            yield f"{above} {name}"


def result_keys() -> Iterator[str]:
    """Keys of what commands print with --json, and of what a server answers."""
    table = pa.table({"x": np.arange(40.0), "y": np.arange(40) % 2})
    dated = table.append_column("day", [np.arange(40).astype("datetime64[D]")])
    with tempfile.TemporaryDirectory() as folder:
        rows, url = f"{folder}/rows.parquet", f"{folder}/run"
        pq.write_table(table, rows)
        pq.write_table(dated, f"{folder}/dated.parquet")
        for words in (
            f"train {rows} --label y --checkpoint {url}", f"plan {rows} --label y",
            f"init {rows} --yes -o {folder}/job.toml", f"evaluate {url} {rows}",
            f"predict {url} {rows} --to {folder}/out", f"inspect {url}", f"update {url} --settle 0",
            f"resume {url}", f"watch {url} --once",
            f"report {url} --to {folder}/a.html", f"export {url} --as scorer --to {folder}/a.zip",
            f"checkpoint list {url}", f"checkpoint shards {url}", f"checkpoint verify {url}",
            f"sweep {rows} --label y --grid eta=0.1,1 --rule nag --checkpoint none",
            *(f"list {kind}" for kind in ("rules", "losses", "formats", "modes", "exports")),
            f"convert {rows} --to {folder}/shards", f"demo {folder}/demo", "doctor --report",
            f"follow {url} --settle 0 --every 1 --idle-exit 1",
            f"backtest {folder}/dated.parquet --label y --time day --checkpoint none",
            f"train {rows} --label y --rule adagrad --loss hinge --set model.certificate=true "
            f"--checkpoint {url}2", f"certify {url}2 {rows}", f"warm {rows} --label y --rule nag",
            f"compare {url} {url}2", f"checkpoint restore {url} --at 1",
        ):  # fmt: skip
            yield from keys_printed(words, words.partition(f" {folder}")[0])
        yield from keys_of_a_cluster(rows, f"{folder}/submitted")
        yield from keys_of_a_server(url)


def keys_printed(words: str, command: str) -> Iterator[str]:
    found = run(*words.split(), "--json").result
    yield from (f"result of {command}: {name}" for name in paths(found, 2))


def keys_of_a_cluster(rows: str, url: str) -> Iterator[str]:
    """Of the commands for what runs elsewhere; the cluster is of this process."""
    with LocalCluster(
        n_workers=1, threads_per_worker=1, processes=False, protocol="tcp", dashboard_address=":0"
    ) as cluster:
        where = f"--scheduler {cluster.scheduler_address}"
        Path(f"{url}.toml").write_text(f'[data]\nshards = ["{rows}"]\nlabel = "y"\n')
        yield from keys_printed(f"doctor {url}.toml {where}", "doctor JOB")
        words = f"submit {rows} --label y --checkpoint {url} {where}"
        name = run(*words.split(), "--json").result["id"]
        while run("status", name, *where.split(), "--json").result["state"] == "running":
            time.sleep(0.1)
        yield "result of submit: id"
        for command in ("status", "logs", "cancel"):
            yield from keys_printed(f"{command} {name} {where}", command)


def keys_of_a_server(url: str) -> Iterator[str]:
    """Of each endpoint's JSON, an error's, and names of metrics; the page is for people."""

    def keys(request: str, answer: Answered) -> Iterator[str]:
        yield from (f"answer {answer.status} of {request}: {key}" for key in paths(answer.json, 9))

    row = {"x": 1.0}
    with served(snapshot(streamomd.load(url))) as server:
        for path in ("/predict", "/explain"):
            yield from keys(f"POST {path}", server.post(path, [row]))
            yield from keys(f"POST {path}", server.post(path, [{}]))
            yield from keys(f"POST {path}", server.post(path, [{"x": "one"}]))
        yield from keys("GET /model", server.get("/model"))
        yield from keys("GET /readyz", server.get("/readyz"))
        yield from (
            f"answer 200 of GET /openapi.json: {one}" for one in server.get("/openapi.json").json
        )
        for name in re.findall(r"^# TYPE (\S+ \S+)$", server.get("/metrics").body.decode(), re.M):
            yield f"answer 200 of GET /metrics: {name}"
    with served(numbered(1), load=False) as server:
        yield from keys("GET /readyz", server.get("/readyz"))


def paths(found: Any, deep: int) -> list[str]:
    """Keys of an object as ``predictions[].score``, at most so many levels of it."""
    if isinstance(found, list):
        ends = [path for one in found for path in paths(one, deep)] or [""]
        return list(dict.fromkeys(f"[]{'.' if end and end[0] != '[' else ''}{end}" for end in ends))
    if not isinstance(found, dict) or not found or not deep:
        return [""]
    ends = {key: paths(value, deep - 1) for key, value in found.items()}
    return sorted(
        f"{key}{'.' if end and end[0] != '[' else ''}{end}" for key in ends for end in ends[key]
    )


@functools.cache
def surface() -> list[str]:
    """One line for each thing that a user may rely on."""
    return [*python_names(), *commands(main), *keys(Spec), *dict.fromkeys(result_keys())]


def differences(recorded: list[str], now: list[str]) -> str:
    """What a pull request has to say, "" for nothing."""
    gone = [f"- {line}" for line in recorded if line not in {*now}]
    new = [f"+ {line}" for line in now if line not in {*recorded}]
    if not gone and not new:
        return ""
    return "\n".join([
        "the public surface changed: say it in the changelog, and what goes away or changes with",
        "its deprecation (docs/compatibility.md); then record it (docstring of this file)",
        *gone, *new,
    ])  # fmt: skip


def test_the_public_surface_is_the_recorded_one() -> None:
    found = differences(RECORD.read_text("utf-8").splitlines(), surface())
    assert not found, found


def test_a_change_is_named() -> None:
    now = surface()
    assert len(now) == len({*now}) > 500
    flag = next(line for line in now if line.startswith("streamomd train ") and "--epochs" in line)
    changed = [line for line in now if line != flag] + ["streamomd train --passes"]
    found = differences(now, changed)
    assert "changelog" in found
    assert f"- {flag}\n+ streamomd train --passes" in found


if __name__ == "__main__":
    RECORD.write_text("\n".join(surface()) + "\n", "utf-8")
