"""Wrong checkpoints: mutations of ``streamomd.checkpoint``, each to be killed by a kind of fault.

A mutant is a function's source with words replaced, compiled in its module for the while.
"""

from __future__ import annotations

import inspect
import sys
import textwrap
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from kinds import every_kind
from tally import Tally, run_kind

from streamomd.checkpoint import commit_reader, commit_writer, documents, parts, retention
from streamomd.checkpoint.stores import contract, local


@dataclass(frozen=True)
class Mutant:
    """where: module and the name in it; each of ``edits`` replaces words that are there once.

    killer: the kind of fault that sees it.
    """

    name: str
    where: tuple[Any, str]
    edits: tuple[tuple[str, str], ...]
    killer: str


AFTER = "power-cuts-after-errors"


def _mutant(name: str, module: Any, where: str, killer: str, *edits: tuple[str, str]) -> Mutant:
    return Mutant(name, (module, where), edits, killer)


MUTANTS = (
    _mutant("no sync of files", local, "_write", "power-cuts", ("disk.fsync(handle)", "pass")),
    _mutant(
        *("no sync of a folder after a name", local, "LocalStore._temporary", "power-cuts"),
        ("disk.fsync(folder)", "pass"),
    ),
    _mutant(
        *("no sync of a new folder's parent", local, "LocalStore._make", "power-cuts"),
        ("disk.fsync(parent)", "pass"),
    ),
    _mutant(
        *("no sync of the root's parent", local, "_make_root", "power-cuts"),
        ("disk.fsync(handle)", "pass"),
    ),
    _mutant(
        *("parts are retired before their manifest", retention, "Retention.apply", "calls"),
        (
            "self.store.delete(manifest_name(commit.sequence))\n",
            "doomed = manifest_name(commit.sequence)\n",
        ),
        (
            "delete_all(self.store, self._drop(there, [commit]))",
            "delete_all(self.store, self._drop(there, [commit]))\n        self.store.delete(doomed)",
        ),
    ),
    _mutant(
        *("a short write is the whole", local, "_write", "short-writes"),
        ("while rest:", "if rest:"),
    ),
    _mutant(
        *("what was written is not read again", local, "_write", "lying-disk"),
        ("_compare(handle, data)", "pass"),
    ),
    _mutant(
        *("overwrite instead of link", local, "LocalStore.create", "racing-writers-on-disk"),
        ("disk.link(", "disk.replace("),
    ),
    _mutant(
        *("a manifest that is seen is durable", commit_writer, "Writer._publish", AFTER),
        ("            continue\n", "            pass\n"),
    ),
    _mutant(
        *("a name that is there is not synced", local, "LocalStore.create", AFTER),
        ("disk.fsync(folder)", "pass"),
    ),
    _mutant(
        *("a document that is there is durable", documents, "write_shared", AFTER),
        ("    write_checked(", "    store.size(name) is None and write_checked("),
    ),
    _mutant(
        *("no comparison of who wrote it", commit_writer, "Writer._accept", "racing-writers"),
        ("commit.writer.uuid != self._self.uuid", "False"),
    ),
    _mutant(
        *("no comparison of the nonce", commit_writer, "Writer._claim", "calls"),
        ("commit.nonce == nonce", "True"),
    ),
    _mutant(
        *("a late manifest stays", commit_writer, "Writer._refuse_late", "paused-writer"),
        ("if not later:", "if True:"),
    ),
    _mutant(
        *("a folder's name used again", commit_writer, "Writer.reserve", "calls"),
        ("-{uuid.uuid4().hex[:8]}", "-00000000"),
    ),
    _mutant(
        *("the size of what was put is not asked", contract, "write_checked", "short-puts"),
        ("store.size(name) != len(data)", "False"),
    ),
    _mutant(
        *("manifest before parts", commit_writer, "Writer.commit", "calls"),
        (
            "entries = write_parts(self.store, directory, parts, written)",
            "held = list(parts)\n        entries = tuple(pack(part)[0] for part in held)",
        ),
        (
            "    if sure and",
            "    [*write_parts(self.store, directory, held)]\n    if sure and",
        ),
    ),
    _mutant(
        *("a part's hash is not compared", parts, "unpack", "bit-flips"),
        ("hashlib.sha256(data).hexdigest() != entry.sha256", "False"),
    ),
    _mutant(
        *("a document's hash is not compared", documents, "_read", "bit-flips"),
        ("hashlib.sha256(data).hexdigest() != sha256", "False"),
    ),
    _mutant(
        *("a parent's hash is not compared", commit_reader, "check_parent", "swaps"),
        ("parent.sha256 != commit.parent_sha256", "False"),
    ),
    _mutant(
        *(
            "a store that does not answer is corrupt",
            commit_reader,
            "_load",
            "errors-while-loading",
        ),
        ("except CorruptionError as error:", "except (CorruptionError, OSError) as error:"),
    ),
    _mutant(
        *("one bad reading is corruption", contract, "read_twice", "bad-answers"),
        (
            "except CorruptionError:\n        return read()",
            "except CorruptionError:\n        raise",
        ),
    ),
    _mutant(
        *("a restart leaves no mark", commit_reader, "mark_restart", "restart-damage"),
        ("with suppress(FileExistsError):", "if False:"),
    ),
    _mutant(
        *("the newest is retired first", retention, "Retention._superseded", "calls"),
        ("key=lambda c: -c.sequence", "key=lambda c: c.sequence"),
    ),
    _mutant(
        *("the manifest is not read again", commit_writer, "Writer._publish", "racing-writers"),
        ("return self._read_back(), ", "return decode(data, self._next), "),
    ),
)


@contextmanager
def applied(mutant: Mutant) -> Iterator[None]:
    """The mutant is what runs, wherever its function was imported to."""
    module, path = mutant.where
    owner: Any = module
    *outer, name = path.split(".")
    for one in outer:
        owner = getattr(owner, one)
    real = inspect.getattr_static(owner, name)
    wrong = _compiled(real, mutant, module)
    places = [(owner, name)]
    if not outer:
        modules = list(sys.modules.values())
        places += [(one, name) for one in modules if vars(one).get(name) is real]
    for place, _ in places:
        setattr(place, name, wrong)
    try:
        yield
    finally:
        for place, _ in places:
            setattr(place, name, real)


def _compiled(real: Any, mutant: Mutant, module: Any) -> Callable[..., Any]:
    source = textwrap.dedent(inspect.getsource(inspect.unwrap(real)))
    for before, after in mutant.edits:
        assert source.count(before) == 1, f"{mutant.name}: {before!r} is not there once"
        source = source.replace(before, after)
    found: dict[str, Any] = {}
    code = compile("from __future__ import annotations\n" + source, module.__file__, "exec")
    exec(code, module.__dict__, found)
    return found[real.__name__]


def killed(mutant: Mutant) -> Tally:
    """What its kind makes of a mutant, up to the first case that it does not live through."""
    with applied(mutant):
        return run_kind(every_kind()[mutant.killer], until_bad=True)
