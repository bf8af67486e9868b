"""Mutants: a line of the protocol that is changed, to see that the simulation notices.

Each is an edit of the project's source: what is replaced must be there.
"""

from __future__ import annotations

import inspect
import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from unittest import mock

from streamomd.checkpoint import commit_reader
from streamomd.checkpoint.commit_writer import Writer
from streamomd.checkpoint.retention import Retention
from streamomd.distributed import (
    averaged_worker,
    exchange,
    partition_owner,
    round_state,
    star,
)
from streamomd.distributed.averaged import Averaged
from streamomd.distributed.sharded import PartitionOwners


@dataclass(frozen=True)
class Mutant:
    """An edit of a function, in its home and in each module that has imported it by name."""

    name: str
    home: Any
    function: str
    old: str
    new: str

    def __str__(self) -> str:
        return self.name


MUTANTS = (
    Mutant("no fence", Writer, "take_over", 'writer._claim("open", ', 'print if 1 else ("", '),
    Mutant(
        "anybody's commit is ours", Writer, "_accept", "commit.writer.uuid != self._self.uuid", "0"
    ),
    Mutant(
        "no name of the group in the greeting",
        star,
        "exchange_greetings",
        'star.receive(peer) != HELLO.pack(b"omd1", group, peer)',
        'star.receive(peer)[-4:] != HELLO.pack(b"omd1", group, peer)[-4:]',
    ),
    Mutant(
        "the commit before its parts",
        Writer,
        "commit",
        "entries = write_parts(self.store, directory, parts, written)",
        "parts = list(parts)\n"
        "        from streamomd.checkpoint.parts import pack\n"
        "        entries = tuple(pack(part)[0] for part in parts)\n"
        "        self._claim('commit', nonce, document, directory, entries)\n"
        "        [*write_parts(self.store, directory, parts, written)]\n"
        "        return self._last",
    ),
    Mutant(
        "rounds that are learned are learned again",
        Averaged,
        "_rounds",
        "if begin >= cursor:",
        "if 1:",
    ),
    Mutant(
        "a part learned twice counts twice",
        averaged_worker,
        "_learn",
        "model.state.copy()",
        "model.state",
    ),
    Mutant(
        "any round that is in memory",
        round_state,
        "start_state",
        "_merged.get(start.previous)",
        "next(iter(_merged.values()), None)",
    ),
    Mutant("no commit between rounds", Averaged, "_apply", "self.manager.commit()", "pass"),
    Mutant(
        "a name that is taken is ours",
        Writer,
        "_publish",
        "problem = error\n        except StorageError",
        "return decode(data, self._next), False\n        except StorageError",
    ),
    Mutant(
        "commits share a directory",
        PartitionOwners,
        "_on_message",
        "self._directory = manager.reserve()",
        "pass",
    ),
    Mutant("parts in use are deleted", Retention, "_drop", "if name not in used", "if 1"),
    Mutant("a free number is ours", Writer, "_refuse_late", "if not later:", "if 1:"),
    Mutant(
        "groups share a topic",
        PartitionOwners,
        "_start_group",
        'f"omd-owner-{run[:8]}"',
        '"omd-owner"',
    ),
    Mutant(
        "listings are believed",
        commit_reader,
        "sequences",
        "while not store.consistent and store.size(manifest_name(following)) is not None",
        "while False",
    ),
    Mutant(
        "a task that runs again is an owner",
        partition_owner,
        "run_owner",
        "if endpoints[setup.owner][0] != task_id:",
        "if 0:",
    ),
    Mutant(
        "no word of the leader",
        exchange.SumExchange,
        "receive_steps",
        "return flags",
        "return 0",
    ),
)


@contextmanager
def mutated(mutant: Mutant) -> Iterator[None]:
    """The code with that edit, while inside."""
    function = inspect.getattr_static(mutant.home, mutant.function)
    plain = getattr(function, "__func__", function)
    source = textwrap.dedent(inspect.getsource(plain))
    assert mutant.old in source, f"{mutant}: {mutant.old!r} is not in {mutant.function} any more"
    found: dict[str, Any] = {}
    exec(source.replace(mutant.old, mutant.new, 1), plain.__globals__, found)  # a test's own text
    new = found[mutant.function]
    modules = [module for name, module in sys.modules.items() if name.startswith("streamomd.")]
    users = [module for module in modules if vars(module).get(mutant.function) is function]
    homes = {id(home): home for home in (mutant.home, *users)}.values()
    patches = [mock.patch.object(home, mutant.function, new) for home in homes]
    for one in patches:
        one.start()
    try:
        yield
    finally:
        for one in patches:
            one.stop()
