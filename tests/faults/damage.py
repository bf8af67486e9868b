"""Damage to what was committed: bits, lengths, objects gone or in another's place."""

from __future__ import annotations

import itertools
import os
import random
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from checkpoint_helpers import DictStore, a_run, begin, load_all, numbers
from kinds import Cases, Verdict, kind
from standing import falls_back

from streamomd.checkpoint import Part, Store, Writer, keep_document, open_store
from streamomd.core.errors import NoCommitError


def small(store: Store) -> None:
    """Commits 0, 1 and 2, each with a document of its own."""
    writer = None
    for at in range(3):
        names = keep_document(store, "names", {"1": [f"name {at}"], "k": [1, 2.5, None, "é"]})
        document, parts = {"rows": 10 * at, "names": names}, numbers(at)
        if writer is None:
            writer = Writer.begin(store, document, parts)
        else:
            writer.commit(document, parts)


def files(folder: Path) -> list[tuple[str, bytes]]:
    """Every file of a checkpoint."""
    found = sorted(path for path in folder.rglob("*") if path.is_file())
    return [(str(path), path.read_bytes()) for path in found]


class Places:
    """Numbers for the bytes of all files: file by file."""

    def __init__(self, there: list[tuple[str, bytes]]) -> None:
        self.there = there
        self.ends = list(itertools.accumulate(len(data) for _, data in there))

    def __getitem__(self, number: int) -> tuple[str, bytes, int]:
        at = next(at for at, end in enumerate(self.ends) if number < end)
        name, data = self.there[at]
        return name, data, number - (self.ends[at] - len(data))


@kind("bit-flips", quick=400)
@contextmanager
def bit_flips(folder: Path) -> Iterator[Cases]:
    """every bit of a small checkpoint"""
    small(open_store(str(folder)))
    places = Places(files(folder))
    store = open_store(str(folder))

    def run(seed: int) -> Verdict:
        name, data, byte = places[seed // 8]
        handle = os.open(name, os.O_WRONLY)
        try:
            os.pwrite(handle, bytes([data[byte] ^ 1 << seed % 8]), byte)
            return falls_back(store, 2, 1)
        finally:
            os.pwrite(handle, data[byte : byte + 1], byte)
            os.close(handle)

    yield Cases(range(8 * places.ends[-1]), run)


WORDS = 1 << 15


def large(at: int) -> list[Part]:
    """Parts of 256 KiB."""
    draw = np.random.default_rng(at)
    return [(lo, lo + 1, {"w": draw.normal(size=WORDS)}) for lo in (0, 1)]


@kind("large-bit-flips", quick=20)
@contextmanager
def large_bit_flips(folder: Path) -> Iterator[Cases]:
    """one bit somewhere in a checkpoint of 1 MiB"""
    store = open_store(str(folder))
    writer = Writer.begin(store, {"rows": 0}, large(0))
    writer.commit({"rows": 10}, large(1))
    good = [load_all(store, at)[1] for at in (0, 1)]
    there = Places(files(folder))

    def run(seed: int) -> Verdict:
        draw = random.Random(seed)
        name, data, byte = there[draw.randrange(there.ends[-1])]
        handle = os.open(name, os.O_WRONLY)
        try:
            os.pwrite(handle, bytes([data[byte] ^ 1 << draw.randrange(8)]), byte)
            loaded, parts = load_all(store)
            number = loaded.commit.document["rows"] // 10
            if parts != good[number] or (number == 0 and not loaded.rejected):
                return Verdict.SILENT
            return Verdict.NAMED if loaded.rejected else Verdict.SAME
        finally:
            os.pwrite(handle, data[byte : byte + 1], byte)
            os.close(handle)

    yield Cases(range(10_000), run)


WAYS = ("cut off", "zeros", "ones", "longer")


@kind("truncations", quick=200)
@contextmanager
def truncations(folder: Path) -> Iterator[Cases]:
    """a file truncated at every length; then filled with zeros or ones; or extended"""
    small(open_store(str(folder)))
    places = Places(files(folder))
    store = open_store(str(folder))

    def run(seed: int) -> Verdict:
        name, data, length = places[seed // len(WAYS)]
        way, rest = WAYS[seed % len(WAYS)], len(data) - length
        head = data[:length]
        bad = {
            "cut off": head,
            "zeros": head + bytes(rest),
            "ones": head + b"\xff" * rest,
            "longer": data + bytes(length + 1),
        }[way]
        try:
            Path(name).write_bytes(bad)
            return falls_back(store, 2, 1)
        finally:
            Path(name).write_bytes(data)

    yield Cases(range(len(WAYS) * places.ends[-1]), run)


@kind("swaps", quick=150)
@contextmanager
def swaps(folder: Path) -> Iterator[Cases]:
    """objects exchanged within a run or between runs, one or two missing, commits renamed"""
    ours, theirs = DictStore(), DictStore()
    small(ours)
    writer = Writer.begin(theirs, {"rows": 0}, numbers(100))
    for at in (1, 2):
        writer.commit({"rows": 10 * at}, numbers(100 + at))
    needed = [name for name in sorted(ours.objects) if _of(name) != 0]
    shared = [load_all(ours, at)[0].commit.document["names"] for at in (1, 2)]
    needed += [f"names/{sha256}.json" for sha256 in shared]
    changes = [dict.fromkeys(gone) for gone in itertools.combinations(needed, 1)]
    changes += [dict.fromkeys(gone) for gone in itertools.combinations(needed, 2)]
    sources = {**{f"theirs/{name}": data for name, data in theirs.objects.items()}, **ours.objects}
    changes += [{to: data} for data in sources.values() for to in needed]
    changes += [
        {one: ours.objects[other], other: ours.objects[one]}
        for one, other in itertools.combinations(needed, 2)
    ]
    # A commit of another run, whole, with its parts: its parent alone betrays it.
    for at in range(3):
        changes.append({name: data for name, data in theirs.objects.items() if _of(name) == at})

    def run(seed: int) -> Verdict:
        store = DictStore()
        store.objects = dict(ours.objects)
        for name, data in changes[seed].items():
            if data is None:
                del store.objects[name]
            else:
                store.objects[name] = data
        newest = max(_of(name) for name in store.objects if name.startswith("commits/"))
        if newest < 2:
            # The newest manifest is gone without a trace: no store can tell that from never made.
            return falls_back(store, newest, 0)
        return falls_back(store, 2, 0)

    yield Cases(range(len(changes)), run)


def _of(name: str) -> int:
    """The number of the commit an object was made for; of what belongs to none, or to 0, 0."""
    folder, _, rest = name.partition("/")
    return int(rest[:12]) if folder in ("commits", "data") else 0


@kind("restart-damage", quick=100)
@contextmanager
def restart_damage(folder: Path) -> Iterator[Cases]:
    """after an overwrite, objects are missing or damaged: never the earlier run instead"""
    good = DictStore()
    a_run(good, 1)
    writer = begin(good, restart=True)
    writer.commit({"rows": 10}, numbers(7))
    mine = [name for name in sorted(good.objects) if _of(name) >= 2]
    gone = [some for count in range(1, 6) for some in itertools.combinations(mine, count)]
    cases = [(some, how) for some in gone for how in ("missing", "empty", "damaged")]

    def run(seed: int) -> Verdict:
        some, how = cases[seed]
        store = DictStore()
        store.objects = dict(good.objects)
        for name in some:
            data = store.objects.pop(name)
            if how != "missing":
                store.objects[name] = b"" if how == "empty" else data[:-2] + b"??"
        try:
            loaded, _ = load_all(store)
        except NoCommitError:
            return Verdict.NAMED
        if loaded.commit.run == writer.run:
            return Verdict.NAMED if loaded.rejected else Verdict.SAME
        # Both manifests gone and the mark alone left: the run before is all there is.
        vanished = not [
            name
            for name in store.objects
            if name > "commits/000000000002" and name.startswith("commits/")
        ]
        return Verdict.SAME if vanished else Verdict.SILENT

    yield Cases(range(len(cases)), run)
