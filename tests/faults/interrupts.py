"""KeyboardInterrupt and MemoryError at every line of what makes and loads commits."""

from __future__ import annotations

import os
import shutil
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Any

from calls import DEEDS, Deed, afterwards
from kinds import Cases, Verdict, kind
from standing import stands

from streamomd import checkpoint
from streamomd.checkpoint import open_store

FOLDER = os.path.dirname(checkpoint.__file__)
ERRORS = (KeyboardInterrupt, MemoryError)


class Tracer:
    """Tells the lines that are run in ``streamomd.checkpoint``; raises before line ``at``."""

    def __init__(self, at: int = 0, error: type[BaseException] = MemoryError) -> None:
        self.at, self.error, self.count = at, error, 0
        self.lines: list[tuple[str, int]] = []

    def __call__(self, frame: FrameType, event: str, arg: Any) -> Any:
        return self._line if frame.f_code.co_filename.startswith(FOLDER) else None

    def _line(self, frame: FrameType, event: str, arg: Any) -> Any:
        if event == "line":
            self.count += 1
            if not self.at:
                self.lines.append((frame.f_code.co_filename, frame.f_lineno))
            if self.count == self.at:
                raise self.error
        return self._line

    @contextmanager
    def tracing(self) -> Iterator[None]:
        before = sys.gettrace()
        sys.settrace(self)
        try:
            yield
        finally:
            sys.settrace(before)


def moments(folder: Path, deed: Deed) -> list[int]:
    """When a deed runs each line: its first five times and its last five."""
    writer = deed.prepare(str(folder))
    tracer = Tracer()
    with tracer.tracing():
        deed.do(str(folder), writer)
    times: dict[tuple[str, int], list[int]] = {}
    for at, line in enumerate(tracer.lines, 1):
        times.setdefault(line, []).append(at)
    return sorted({at for some in times.values() for at in (*some[:5], *some[-5:])})


@kind("interruptions", quick=100)
@contextmanager
def interruptions(folder: Path) -> Iterator[Cases]:
    """KeyboardInterrupt or MemoryError at any line of a commit, a resume, an overwrite"""
    cases = [
        (name, error, at)
        for name, deed in DEEDS.items()
        for at in moments(folder / "counted" / name, deed)
        for error in ERRORS
    ]

    def run(seed: int) -> Verdict:
        name, error, at = cases[seed]
        deed, place = DEEDS[name], str(folder / str(seed))
        writer = deed.prepare(place)
        handles = set(os.listdir("/proc/self/fd"))
        ended = Verdict.SAME
        with warnings.catch_warnings():  # of what ``close_new`` closes
            warnings.simplefilter("ignore", ResourceWarning)
            try:
                with Tracer(at, error).tracing():
                    deed.do(place, writer)
            except ERRORS:
                ended = Verdict.NAMED
            close_new(handles)
        legal = (deed.new,) if ended is Verdict.SAME else deed.legal
        verdict = stands(open_store(place), legal)
        verdict = ended if verdict is Verdict.SAME else verdict
        verdict = afterwards(verdict, writer, place, again=name == "commit")
        shutil.rmtree(place, ignore_errors=True)
        return verdict

    yield Cases(range(len(cases)), run)


def close_new(handles: set[str]) -> None:
    """An interruption between ``open`` and ``try`` leaves a handle open: the process ends then."""
    for handle in set(os.listdir("/proc/self/fd")) - handles:
        with suppress(OSError):
            os.close(int(handle))
