"""A store, ``flaky://``, of which one request in thirty fails: not carried out, or not answered."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, ClassVar

import fsspec
from distributed import WorkerPlugin
from fsspec.implementations.local import LocalFileSystem

FAILS = 1 / 30


class Flaky(LocalFileSystem):
    """The local disk behind a connection that fails."""

    protocol: ClassVar = "flaky"
    root_marker = "/"

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        return str(LocalFileSystem._strip_protocol(str(path).removeprefix("flaky://")))

    def _carried_out(self, what: Callable[[], Any]) -> Any:
        """Answered, or not carried out, or carried out and not answered."""
        fate = random.random()
        if fate < FAILS / 2:
            raise OSError("the request was lost")
        answer = what()
        if fate > 1 - FAILS / 2:
            raise OSError("the answer was lost")
        return answer

    def cat_file(self, path: str, *given: Any, **named: Any) -> Any:
        return self._carried_out(lambda: LocalFileSystem.cat_file(self, path, *given, **named))

    def pipe_file(self, path: str, *given: Any, **named: Any) -> Any:
        return self._carried_out(lambda: LocalFileSystem.pipe_file(self, path, *given, **named))

    def rm_file(self, path: str) -> Any:
        return self._carried_out(lambda: LocalFileSystem.rm_file(self, path))


class Registered(WorkerPlugin):
    """The store, known on every worker."""

    def setup(self, worker: Any) -> None:
        fsspec.register_implementation("flaky", Flaky, clobber=True)
