"""docs/one-row.md lists what a row passes: the functions, all of them, and no more than fifteen."""

from __future__ import annotations

import importlib
import re
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import pyarrow as pa
import pytest
from documented import ROOT
from lazy_loops import compile_all
from running import rows, write

import streamomd
from streamomd.core.batch import DenseBatch, SparseBatch
from streamomd.engine import compile as fuse
from streamomd.engine.loops.row import Shape
from streamomd.losses import find_loss
from streamomd.rules import find_rule
from streamomd.runs.walk import Part
from streamomd.shards.encoded_rows import Rows
from streamomd.shards.reader import Piece, ShardBatch

NAME = re.compile(r"`([a-z_]+(?:\.[A-Za-z_]+)+)`")
OTHER_MODES = ("distributed.averaged.", "runs.modes.Sharded", "training.predict.")
MOST_FUNCTIONS, MOST_FILES = 15, 10
BATCHES = (pa.RecordBatch, SparseBatch, DenseBatch)
CARRIERS = (ShardBatch, Piece, Part, Rows)
"""What holds a batch and says which rows it is of."""
PACKAGE = str(Path(streamomd.__file__).parent)
KINDS: dict[str, dict[str, Any]] = {
    "dense": {"numeric": ["n", "k"]},
    "hashed": {"numeric": ["n"], "hashed": ["h"], "bits": 8},
    "sparse": {"hashed": ["h"], "bits": 8, "sparse": {"indices": "i", "values": "v", "size": 100}},
}
Place = tuple[str, str]
"""A function's file and its qualified name. (Code is no key of a set: its hash changes.)"""


def place(code: CodeType) -> Place:
    """Of a comprehension, the function that it is in."""
    return code.co_filename, re.sub(r"(\.<locals>\.<(\w+comp|genexpr)>)+$", "", code.co_qualname)


def page() -> dict[str, list[str]]:
    """The names in each section of the page, in order."""
    found = {}
    text = (ROOT / "docs" / "one-row.md").read_text("utf-8")
    for section in text.split("\n## ")[1:]:
        title, _, body = section.partition("\n")
        found[title] = NAME.findall(body)
    return found


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


def placed(name: str) -> Place | None:
    """Where a named function is; None of a class."""
    there = resolved(name)
    code = getattr(getattr(there, "__wrapped__", there), "__code__", None)
    return None if code is None else place(code)


def has_rows(value: Any, depth: int = 2) -> bool:
    """Whether a value is a batch of some rows, or carries one, itself or in a tuple or list."""
    if isinstance(value, BATCHES):
        return len(value) > 0
    inside = value if isinstance(value, list | tuple) else ()
    if isinstance(value, ShardBatch | Piece):
        inside = (value.batch if isinstance(value, ShardBatch) else value.value,)
    return depth > 0 and any(has_rows(one, depth - 1) for one in inside)


def traced(job: dict[str, Any], passes: Callable[[FrameType, Any], bool]) -> set[Place]:
    """The functions of streamomd that a training run calls, in any thread, and that pass a test of
    their frame and of what they return or yield."""
    found: set[Place] = set()

    def seen(frame: FrameType, event: str, value: Any) -> None:
        # Calls of C functions are events too: they show variables that are deleted later.
        given = value if event == "return" else None
        if frame.f_code.co_filename.startswith(PACKAGE) and passes(frame, given):
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


def holds_rows(frame: FrameType, value: Any) -> bool:
    """Whether a function has rows among its arguments, its variables, or what it gives back.

    Attributes and methods of batches and their carriers are none of the way: they are the rows.
    """
    own = frame.f_locals.get("self")
    if isinstance(own, (*BATCHES, *CARRIERS)):
        return False
    return has_rows(value) or any(map(has_rows, frame.f_locals.values()))


def compiled() -> set[Place]:
    """Every function that is in the loop of NAG and the logistic loss."""
    rule, loss = find_rule("nag"), find_loss("logistic")
    loop = fuse.plain_loop("learn", rule, loss, Shape(1, 2, 4, 1, False))
    return {place(one.__code__) for one in fuse._reached(loop)}


@pytest.fixture(params=KINDS)
def job(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> dict[str, Any]:
    """A job of 400 rows with commits, whose loops are compiled; classes are given, so that no label
    is read beforehand."""
    compile_all(monkeypatch)
    write(tmp_path / "data" / "a.parquet", rows(400))
    data = {"shards": str(tmp_path / "data"), "label": "y", **KINDS[request.param]}
    made = {
        "data": data,
        "model": {"rule": "nag", "classes": [0, 1]},
        "checkpoint": {"url": "none"},
    }
    streamomd.train(made, quiet=True)
    return {**made, "checkpoint": {"url": str(tmp_path / "run"), "every_rows": 100}}


def test_a_row_passes_what_the_page_lists(job: dict[str, Any]) -> None:
    """From train() to the compiled loop, the functions that hold rows, whatever the features: those
    on the page and no other, at most 15 functions in at most 10 files."""
    start = placed("runs.train.train")
    names = page()["From train() to the compiled loop"]
    listed = {function for function in map(placed, names) if function is not None}
    assert traced(job, holds_rows) | {start} == listed
    assert len(listed) <= MOST_FUNCTIONS
    assert len({file for file, _ in listed}) <= MOST_FILES


def test_every_function_on_the_page_is_called(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each name on the page exists, and each function is called as rows are learned, or is in the
    loop that learns them."""
    compile_all(monkeypatch)
    write(tmp_path / "data" / "a.parquet", rows(400))
    columns = KINDS["hashed"] | KINDS["sparse"]
    data = {"shards": str(tmp_path / "data"), "label": "y", **columns}
    kept = {"url": str(tmp_path / "run"), "every_rows": 100}
    job = {"data": data, "model": {"rule": "nag"}, "checkpoint": kept}
    streamomd.train({**job, "checkpoint": {"url": "none"}}, quiet=True)  # compiles, untraced,
    fuse.compiled_loop.cache_clear()  # into the disk cache
    fuse._named_loop.cache_clear()
    ran = traced(job, lambda *_: True) | compiled()
    names = [name for section in page().values() for name in section]
    assert len(names) > 30
    for name in names:
        if not name.startswith(OTHER_MODES):
            assert placed(name) in {None, *ran}, name
