"""What docs name is there: keys of a job, functions a row passes, public names, bad input."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
import sys
import threading
import tomllib
from pathlib import Path
from typing import Any

import pytest
import test_accepted_table
import test_bad_input_table
from documented import ROOT, blocks
from pydantic import BaseModel
from running import rows, write

import streamomd
from streamomd.config.spec import Sparse, Spec
from streamomd.core.batch import REASONS
from streamomd.engine import compile as fuse
from streamomd.engine.loops.row import Shape
from streamomd.losses import find_loss
from streamomd.rules import find_rule

DOCS = ROOT / "docs"
NAME = re.compile(r"`([a-z_]+(?:\.[A-Za-z_]+)+)`")
ELSEWHERE = (
    "distributed.averaged.",
    "runs.sharded_local.",
    "training.predict.",
)  # other ways, named at the end


def read(page: str) -> str:
    return (DOCS / page).read_text("utf-8")


def keys(table: type[BaseModel]) -> dict[str, set[str]]:
    """Of each table of a job, the keys it may have."""
    return {
        name: set(field.annotation.model_fields)
        for name, field in table.model_fields.items()
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel)
    }


def test_the_job_file_names_every_key() -> None:
    """Every key of a job stands in the page's job, and it is a legal one."""
    (block,) = [block for block in blocks(DOCS / "job-file.md") if block.language == "toml"]
    told = tomllib.loads(block.text)
    Spec.parse(told)
    for table, known in keys(Spec).items():
        options = {"storage_options"}  # on a page of their own: docs/cloud.md
        said = set(told[table]) | set(re.findall(r"^# (\w+) = ", block.text, re.M))
        assert known - options <= said, table
    assert set(Sparse.model_fields) == set(told["data"]["sparse"])


def resolved(name: str) -> Any:
    """What a dotted name below ``streamomd`` means."""
    words = name.split(".")
    for cut in range(len(words), 0, -1):
        try:
            found: Any = importlib.import_module(".".join(["streamomd", *words[:cut]]))
        except ModuleNotFoundError:
            continue
        for word in words[cut:]:
            found = getattr(found, word)
        return found
    raise ModuleNotFoundError(name)


def place(code: Any) -> tuple[str, str]:
    """Where a function stands. (Its code is no key of a set: the hash changes as it is run.)"""
    return code.co_filename, code.co_qualname


def called(job: dict[str, Any]) -> set[tuple[str, str]]:
    """Every Python function that a training run calls, in whatever thread."""
    found: set[tuple[str, str]] = set()

    def seen(frame: Any, event: str, _: Any) -> None:
        if event == "call":
            found.add(place(frame.f_code))

    before = sys.getprofile()
    threading.setprofile(seen)
    sys.setprofile(seen)
    try:
        streamomd.train(job, quiet=True)
    finally:
        sys.setprofile(before)
        threading.setprofile(None)
    return found


def compiled() -> set[tuple[str, str]]:
    """Every function that is in the loop of NAG and the logistic loss."""
    rule, loss = find_rule("nag"), find_loss("logistic")
    loop = fuse.plain_loop(fuse.learn_loop, rule, loss, Shape(1, 2, 4, 1, False))
    return {place(one.__code__) for one in fuse._reached(loop)}


def test_a_row_passes_all_that_one_row_names(tmp_path: Path) -> None:
    """Each name on the page is there, and each function is called as rows are learned, or is in the
    loop that learns them."""
    write(tmp_path / "data" / "a.parquet", rows(400))
    data = {"shards": str(tmp_path / "data"), "label": "y", "numeric": ["n"], "hashed": ["h"]}
    pair = {"indices": "i", "values": "v", "size": 100}
    job = {
        "data": {**data, "bits": 8, "sparse": pair},
        "checkpoint": {"url": str(tmp_path / "run"), "every_rows": 100},
    }
    streamomd.train({**job, "checkpoint": {"url": "none"}}, quiet=True)  # compiles, unwatched,
    fuse.learn_loop.cache_clear()  # into the disk cache
    ran = called(job) | compiled()
    names = NAME.findall(read("one-row.md"))
    assert len(names) > 30
    for name in names:
        there = resolved(name)
        code = getattr(getattr(there, "__wrapped__", there), "__code__", None)
        if code is not None and not name.startswith(ELSEWHERE):
            assert place(code) in ran, name


def test_the_api_has_every_public_name() -> None:
    """Each public name has its place in the API."""
    assert {f"streamomd.{name}" for name in streamomd.__all__} <= set(
        re.findall(r"^::: (\S+)$", read("api.md"), re.M)
    )


@pytest.mark.parametrize("table", [test_bad_input_table.REFUSED, test_accepted_table.ACCEPTED])
def test_bad_input_names_every_case(table: dict[str, Any]) -> None:
    """Every case of the tables that are tested stands on the page."""
    text = " ".join(read("bad-input.md").split()).lower()
    assert [line for line in table if line.lower() not in text] == []


def test_bad_input_names_every_reason() -> None:
    """So does every reason for which rows are counted."""
    assert [reason for reason in REASONS if f"`{reason}`" not in read("bad-input.md")] == []


def signature(told: Any) -> str:
    """Parameters with their defaults, without types."""
    whole = inspect.signature(told)
    given = [one.replace(annotation=one.empty) for one in whole.parameters.values()]
    given = [one for one in given if one.name != "self"]
    return str(whole.replace(parameters=given, return_annotation=whole.empty))


def sentence(told: Any) -> str:
    """The first one of a docstring."""
    return " ".join((inspect.getdoc(told) or "").split("\n\n")[0].split())


def described(name: str, members: list[str]) -> list[str]:
    """Lines of the API: how it is called, and what it is; a class's members under it."""
    thing, short = pkgutil.resolve_name(name), name.removeprefix("streamomd.")
    if not members:
        return [f"`{short}{signature(thing)}`: {sentence(thing)}"]
    lines = [f"`{short}`: {sentence(thing)}"]
    for member in members:
        there = getattr(thing, member)
        call = "" if isinstance(there, property) else signature(there)
        lines.append(f"- `{member}{call}`: {sentence(there)}")
    return lines


def test_the_api_can_be_read_as_it_is() -> None:
    """Where the page is not built too: each name's signature and first sentence."""
    page = re.sub(r"\s+", " ", read("api.md"))
    for name, found in re.findall(
        r"^::: (\S+)\n(?:    options:\n      members: \[(.*)\])?", read("api.md"), re.M
    ):
        if inspect.ismodule(there := pkgutil.resolve_name(name)):
            lines = [f"- `{one.__name__}`: {sentence(one)}" for one in kinds(there)]
        else:
            lines = described(name, found.split(", ") if found else [])
        for line in lines:
            assert line in page, line


def kinds(module: Any) -> list[type]:
    """The classes of a module, as they stand in it."""
    found = [one for one in vars(module).values() if isinstance(one, type)]
    return [one for one in found if one.__module__ == module.__name__]
