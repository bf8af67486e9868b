"""A command in a process of its own, in the middle of which files it reads are changed.

``python _live_child.py WHERE NUMBER CHANGE FOLDER WORDS…``: before piece NUMBER of what it reads is
used, every file in FOLDER is changed. WHERE: "entries" (pieces of a cache) or "shards".
"""

from __future__ import annotations

import itertools
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any


def filled(path: Path) -> None:
    """Every byte but the last kilobyte is another; indices lead far outside."""
    with path.open("r+b") as file:
        file.write(b"\x7f" * max(1, path.stat().st_size - 1024))


def flipped(path: Path) -> None:
    """One byte in the middle is another."""
    with path.open("r+b") as file:
        file.seek(path.stat().st_size // 2)
        byte = file.read(1)[0]
        file.seek(-1, os.SEEK_CUR)
        file.write(bytes([byte ^ 0x10]))


def halved(path: Path) -> None:
    """Half of it is left."""
    os.truncate(path, path.stat().st_size // 2)


def emptied(path: Path) -> None:
    """Nothing is left."""
    os.truncate(path, 0)


CHANGES: dict[str, Callable[[Path], None]] = {
    change.__name__: change for change in (filled, flipped, halved, emptied)
}


def main(where: str, number: str, change: str, folder: str, *words: str) -> None:
    """Run the command, with the change on its way."""
    from streamomd.cli import main as command
    from streamomd.shards.cache.cached_reader import CachedRows
    from streamomd.shards.open_shard import OpenShard

    times = itertools.count()

    def passing() -> None:
        if next(times) == int(number):
            for path in sorted(Path(folder).iterdir()):
                CHANGES[change](path)
            print("the change was made", file=sys.stderr)

    read_entry, read = CachedRows._from_entry, OpenShard.read

    def changed_entry(cached: Any, *given: Any) -> Any:
        for found in read_entry(cached, *given):
            passing()
            yield found

    def changed_shard(opened: Any, group: int) -> Any:
        for batch in read(opened, group):
            passing()
            yield batch

    if where == "entries":
        CachedRows._from_entry = changed_entry  # type: ignore[method-assign]
    else:
        OpenShard.read = changed_shard  # type: ignore[method-assign]
    command(list(words))


if __name__ == "__main__":
    main(*sys.argv[1:])
