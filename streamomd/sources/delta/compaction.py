"""Which files have the rows that were appended to a Delta table, after OPTIMIZE and VACUUM.

OPTIMIZE removes files and adds others with the same rows. The files that were appended are read
while they exist. Once VACUUM deleted them, the compacted files are read in their place, if the log
shows that these have no other rows.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple
from urllib.parse import unquote

from streamomd.sources.delta.actions import Actions, Add, Remove
from streamomd.sources.delta.snapshot import Added, Key

Partition = frozenset[tuple[str, str | None]]


@dataclass(eq=False)
class Block:
    """Rows that were appended, and the files that had exactly these rows after a commit.

    parts: blocks with the same rows before that commit. mixed_by: the later commit that wrote these
    rows into files with others, −1: none.
    """

    files: tuple[Added, ...]
    parts: tuple[Block, ...] = ()
    mixed_by: int = -1


class Found(NamedTuple):
    """files: to read, in order. replaced: appended files whose rows compacted ones of these have.
    lost: appended files that do not exist, whose rows no others are known to have; of mixed_by."""

    files: list[Added]
    replaced: int
    lost: list[Added]
    mixed_by: Sequence[int]


@dataclass
class Appended:
    """What was appended after a version, as commits are applied one after another.

    is_learned: whether a file was learned: an update need not take all files of a version. live:
    blocks by the files of the table that have their rows now.
    """

    is_learned: Callable[[Add], bool]
    _blocks: list[Block] = field(default_factory=list)
    _live: dict[Key, Block] = field(default_factory=dict)

    def append(self, files: Iterable[Added]) -> None:
        """Files with new rows."""
        for one in files:
            self._add(Block((one,)))

    def change(self, version: int, removes: Iterable[Remove]) -> None:
        """A commit that deleted or updated rows: files after it do not have the rows before."""
        for key in map(_key, removes):
            if (block := self._live.get(key)) is not None:
                self._close(block, version)

    def compact(self, version: int, actions: Actions) -> None:
        """A commit that wrote the rows of some files into others (dataChange = false)."""
        removed = [_key(one) for one in actions.removes]
        if not any(key in self._live for key in removed):
            return
        # A file that is added again, as for its statistics, is not a compacted one.
        added = [((version, at), add) for at, add in actions.adds if _key(add) not in self._live]
        for partition in _partitions(actions):
            of = [
                _key(one) for one in actions.removes
                if partition is None or _partition(one) == partition
            ]  # fmt: skip
            to = [one for one in added if partition is None or _partition(one[1]) == partition]
            self._compact(version, of, to)

    def _compact(self, version: int, removed: Sequence[Key], added: Sequence[Added]) -> None:
        parts = [*dict.fromkeys(self._live[key] for key in removed if key in self._live)]
        files = {_key(one[1]): one for part in parts for one in part.files}
        new = [files.pop(key) for key in removed if key in self._live]
        before = [add.rows for _, add in new if not self.is_learned(add)]
        after = [add.rows for _, add in added]
        if not before:  # of learned rows alone
            for key in removed:
                self._live.pop(key, None)
            return
        for part in parts:
            self._forget(part)
        if len(before) == len(removed) and None not in (*before, *after) and (
            _sum(before) == _sum(after)
        ):  # fmt: skip
            self._add(Block((*files.values(), *added), tuple(parts)))
            return
        for part in parts:
            part.mixed_by = version

    def _add(self, block: Block) -> None:
        self._blocks.append(block)
        self._live |= {_key(add): block for _, add in block.files}

    def _close(self, block: Block, version: int) -> None:
        block.mixed_by = version
        self._forget(block)

    def _forget(self, block: Block) -> None:
        for _, add in block.files:
            self._live.pop(_key(add), None)

    def find(self, existing: Callable[[Sequence[Added]], Collection[str]]) -> Found:
        """The files to read. existing: which of some files exist, by path as in the log."""
        asked = {add.path: (at, add) for block in self._blocks
                 if block.parts or block.mixed_by >= 0
                 for part in (block, *block.parts) for at, add in part.files}  # fmt: skip
        there = existing([*asked.values()]) if asked else ()
        # The files of a block, and those that do not exist. Parts come before their blocks.
        best: dict[Block, tuple[tuple[Added, ...], list[Added]]] = {}
        inner: set[Block] = set()
        replaced = 0
        for block in self._blocks:
            learned = [self.is_learned(add) for _, add in block.files]
            gone = [
                one for one, known in zip(block.files, learned, strict=True)
                if not known and one[1].path in asked and one[1].path not in there
            ]  # fmt: skip
            if block.parts:
                files = tuple(one for part in block.parts for one in best[part][0])
                lost = [one for part in block.parts for one in best[part][1]]
                inner.update(block.parts)
                if not any(learned) and (not lost or gone):
                    best[block] = files, lost
                    continue
                replaced += len(lost)
            best[block] = block.files, gone
        tops = [block for block in self._blocks if block not in inner]
        found = sorted((one for block in tops for one in best[block][0]), key=lambda one: one[0])
        lost = [one for block in tops for one in best[block][1]]
        mixed_by = sorted({block.mixed_by for block in tops if best[block][1]} - {-1})
        return Found(found, replaced, lost, mixed_by)


def _partitions(actions: Actions) -> list[Partition | None]:
    """The partitions that a commit compacts, each by itself; None: all, as the log lacks some."""
    if any(one.partitions is None for one in actions.removes):
        return [None]
    return [*dict.fromkeys(map(_partition, actions.removes))]


def _partition(file: Add | Remove) -> Partition:
    return frozenset((file.partitions or {}).items())


def _key(file: Add | Remove) -> Key:
    return unquote(file.path), file.vector


def _sum(rows: Iterable[int | None]) -> int:
    return sum(one or 0 for one in rows)
