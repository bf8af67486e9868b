"""The folder of a checkpoint is deleted, moved or replaced while a commit is made."""

from __future__ import annotations

import itertools
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

from calls import DEEDS, Os, counted
from kinds import Cases, Verdict, kind
from standing import found, goes_on, stands

from streamomd.checkpoint import open_store
from streamomd.checkpoint.stores import local
from streamomd.core.errors import StreamomdError


class Meddled(Os):
    """Module os, before whose call number ``at`` somebody else does something to the folder."""

    def __init__(self, at: int, meddle: Callable[[], None]) -> None:
        super().__init__()
        self.at, self.meddle = at, meddle

    def made(self, name: str, do: Callable[[], Any]) -> Any:
        if self.calls == self.at:
            self.meddle()
        return do()


def moved(run: Path) -> None:
    run.rename(run.with_name("moved"))


def replaced(run: Path) -> None:
    moved(run)
    shutil.copytree(run.with_name("moved"), run)


def linked(run: Path) -> None:
    (run / "commits").rename(run.with_name("elsewhere"))
    (run / "commits").symlink_to(run.with_name("elsewhere"))


def a_file(run: Path) -> None:
    shutil.rmtree(run / "data")
    (run / "data").write_bytes(b"a file")


MEDDLING: tuple[Callable[[Path], None], ...] = (shutil.rmtree, moved, replaced, linked, a_file)


@kind("vanishing-folder", quick=60)
@contextmanager
def vanishing_folder(folder: Path) -> Iterator[Cases]:
    """the checkpoint's folder is deleted, moved, replaced or linked elsewhere, at any call"""
    counts = {name: counted(folder, DEEDS[name]) for name in ("commit", "resume")}
    cases = [
        (name, meddle, at)
        for name, meddle in itertools.product(counts, MEDDLING)
        for at in range(1, counts[name] + 1)
    ]

    def run(seed: int) -> Verdict:
        name, meddle, at = cases[seed]
        deed, there = DEEDS[name], folder / str(seed) / "run"
        there.parent.mkdir()
        writer = deed.prepare(str(there))
        ended = Verdict.SAME
        try:
            with patch.object(local, "disk", Meddled(at, lambda: meddle(there))):
                deed.do(str(there), writer)
        except (StreamomdError, FileNotFoundError) as error:
            if not isinstance(error, StreamomdError):
                raise
            ended = Verdict.NAMED
        verdict = _what_is_left(there, meddle, deed.legal, ended)
        shutil.rmtree(folder / str(seed))
        return verdict

    yield Cases(range(len(cases)), run)


def _what_is_left(there: Path, meddle: Any, legal: Any, ended: Verdict) -> Verdict:
    """What was deleted is gone; what was moved stands where it is now, and can go on."""
    if meddle is moved or meddle is replaced:
        place = there.with_name("moved")
        verdict = stands(open_store(str(place)), legal)
        if verdict is Verdict.SAME:
            verdict = goes_on(open_store(str(place)))
        return ended if verdict is Verdict.SAME else verdict
    if meddle is linked:
        os.unlink(there / "commits")
        there.with_name("elsewhere").rename(there / "commits")
        verdict = stands(open_store(str(there)), legal)
        return ended if verdict is Verdict.SAME else verdict
    try:
        number, verdict = found(open_store(str(there)))
    except StreamomdError:
        return Verdict.NAMED
    if verdict is Verdict.SILENT or (number is not None and number not in legal):
        return Verdict.SILENT
    return Verdict.NAMED
