"""Every call to the system that a commit makes fails, or is the last one of its process."""

from __future__ import annotations

import errno
import itertools
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

from checkpoint_helpers import a_run, begin, load_all, numbers
from kinds import Cases, Verdict, kind
from standing import goes_on, stands

from streamomd.checkpoint import Writer, open_store, write_document
from streamomd.checkpoint.stores import local
from streamomd.core.errors import StreamomdError

CALLS = (
    *("open", "write", "fsync", "close", "link", "replace"),
    *("unlink", "mkdir", "rmdir", "stat", "fstat", "listdir", "pread"),
)
CODES = (errno.EIO, errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EINTR, errno.ENOMEM)


class KilledError(BaseException):
    """The process is gone: no call that comes after it does anything."""


class Os:
    """Module os as ``local.py`` sees it; ``before`` and ``after`` are told of every call."""

    def __init__(self) -> None:
        self.calls = 0

    def __getattr__(self, name: str) -> Any:
        real = getattr(os, name)
        return self._wrapped(name, real) if name in CALLS else real

    def _wrapped(self, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **options: Any) -> Any:
            self.calls += 1
            return self.made(name, lambda: real(*args, **options))

        return call

    def made(self, name: str, do: Callable[[], Any]) -> Any:
        return do()


@dataclass(frozen=True)
class Fault:
    """code: 0 for a kill. done: the call is carried out first. lasting: all later ones fail too."""

    code: int
    done: bool
    lasting: bool


FAULTS = (
    *(Fault(*one) for one in itertools.product(CODES, (False, True), (False, True))),
    *(Fault(0, done, lasting=True) for done in (False, True)),
)


class FaultyOs(Os):
    """Module os, whose call number ``at`` has a fault."""

    def __init__(self, at: int, fault: Fault) -> None:
        super().__init__()
        self.at, self.fault = at, fault

    def made(self, name: str, do: Callable[[], Any]) -> Any:
        first = self.calls == self.at
        hit = first or (self.calls > self.at and self.fault.lasting)
        # The kernel closes even where it says that it failed.
        if name == "close" or not hit or (first and self.fault.done):
            answer = do()
            if not hit:
                return answer
            if name == "open":
                os.close(answer)
        if not self.fault.code:
            raise KilledError
        raise OSError(self.fault.code, os.strerror(self.fault.code))


@dataclass(frozen=True)
class Deed:
    """What is done under a fault. legal: what may stand then; ``new``: if it ended well."""

    prepare: Callable[[str], Writer | None]
    do: Callable[[str, Writer | None], Any]
    legal: tuple[int | None, ...]
    new: int


def _commit(folder: str, writer: Writer | None) -> None:
    assert writer
    names = write_document(writer.store, "names", {"1": ["a name"]})
    writer.commit({"rows": 20, "names": names}, numbers(2))


def _resume(folder: str, writer: Writer | None) -> None:
    store = open_store(folder)
    Writer.take_over(store, load_all(store)[0])


def _restart(folder: str, writer: Writer | None) -> None:
    Writer.begin(open_store(folder), {"rows": 50}, numbers(5), restart=True)


DEEDS = {
    "begin": Deed(lambda folder: None, lambda f, w: begin(open_store(f)), (None, 0), 0),
    "commit": Deed(lambda folder: a_run(open_store(folder), 1, keep=1), _commit, (1, 2), 2),
    "resume": Deed(lambda folder: a_run(open_store(folder), 1), _resume, (1,), 1),
    "restart": Deed(lambda folder: a_run(open_store(folder), 1), _restart, (1, 5), 5),
}


def counted(folder: Path, deed: Deed) -> int:
    """How many calls a deed makes undisturbed."""
    place = str(folder / "counted" / str(deed.new))
    writer = deed.prepare(place)
    with patch.object(local, "disk", Os()) as told:
        deed.do(place, writer)
    return told.calls


def under(make_os: Os, deed: Deed, folder: str) -> tuple[Verdict, Writer | None]:
    """A deed with module os replaced; SAME if it ended well, else NAMED; or what else stands."""
    writer = deed.prepare(folder)
    ended = Verdict.SAME
    try:
        with patch.object(local, "disk", make_os):
            deed.do(folder, writer)
    except (KilledError, StreamomdError):
        ended = Verdict.NAMED
    legal = (deed.new,) if ended is Verdict.SAME else deed.legal
    verdict = stands(open_store(folder), legal)
    return (ended if verdict is Verdict.SAME else verdict), writer


def afterwards(verdict: Verdict, writer: Writer | None, folder: str, *, again: bool) -> Verdict:
    """The verdict, if the same writer may try again, and another may then take over."""
    if verdict not in (Verdict.SAME, Verdict.NAMED):
        return verdict
    store = open_store(folder)
    try:
        if again and writer:
            writer.commit({"rows": 40}, numbers(4))
            if (stood := stands(store, {4})) is not Verdict.SAME:
                return stood
        gone_on = goes_on(store)
    except StreamomdError:
        return Verdict.LOST
    return verdict if gone_on is Verdict.SAME else gone_on


@kind("calls", quick=250)
@contextmanager
def calls(folder: Path) -> Iterator[Cases]:
    """a system call fails (6 errors, once or permanently) or kills"""
    counts = {name: counted(folder, deed) for name, deed in DEEDS.items()}
    cases = [
        (name, fault, at) for name in DEEDS for fault in FAULTS for at in range(1, counts[name] + 1)
    ]

    def run(seed: int) -> Verdict:
        name, fault, at = cases[seed]
        place = str(folder / str(seed))
        verdict, writer = under(FaultyOs(at, fault), DEEDS[name], place)
        again = bool(fault.code) and name == "commit" and at % 2 == 1
        verdict = afterwards(verdict, writer, place, again=again)
        shutil.rmtree(place)
        return verdict

    yield Cases(range(len(cases)), run)
