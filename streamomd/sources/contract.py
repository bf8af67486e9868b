"""What a source of shards is: ``Source``, what it is asked for, and what it lists.

A source turns the URLs that a job names into files, which the formats of ``streamomd.shards`` read
through a file system of fsspec. A package offers its own under the entry point group
``streamomd.sources``, whose name is the scheme of its URLs; ``streamomd.testing.check_source``
checks it. See docs/write-your-own-source.md.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from streamomd.core.urls import location, protocol
from streamomd.sources.tables import FILES_OR_TABLES, TableOptions

if TYPE_CHECKING:
    import fsspec

    from streamomd.checkpoint.segments import Facts
    from streamomd.shards.shard import Listed

OF_FILES = (
    "data.as_files", "data.partitions", "data.arrival", "update.settle", "update.until",
    "update.ignore_rewritten", "update.moved", "update.accept_duplicates",
)  # fmt: skip
"""Keys of files that are listed with their times, may be written to, and are named by directories.
"""
OF_CSV = tuple(
    f"data.csv.{name}" for name in (
        "delimiter", "decimal", "encoding", "date_format", "null_values", "header", "quotes",
    )
)  # fmt: skip
"""Keys of delimited text."""
SCHEMA = "#schema"
"""After the URL of a table, in a position: the id of the schema by whose names a run knows the
table's columns."""
NOTHING: Mapping[str, Any] = MappingProxyType({})


@dataclass(frozen=True, kw_only=True)
class Request:
    """What of the sources is listed.

    order: "sorted" by path, "given" or "shuffled" (sorted here). storage_options: for the file
    system. tables: how tables and text are read. versions: positions to list, whatever ``tables``
    says. since: positions after which is listed what came later; sources that record no position
    list all. appends_only: skip commits of a table that delete or update rows, instead of an error.
    may_be_empty: no file is not an error, as after all were learned and deleted; a directory that
    does not exist is one. may_be_gone: whether a file of this URL need not exist. check: gets the
    paths of text files before they are converted; may raise. ledger: what a run recorded of its
    shards, by URL. with_new: of a run's sources what came later: of one that lists by the ledger,
    also what came after it; directories above them are those that the run began with.
    located: by URL, what ``Source.locate`` returned.
    """

    order: str = "sorted"
    storage_options: Mapping[str, Any] = field(default_factory=dict)
    tables: TableOptions = FILES_OR_TABLES
    versions: Mapping[str, int] = field(default_factory=dict)
    since: Mapping[str, int] = field(default_factory=dict)
    appends_only: bool = False
    may_be_empty: bool = False
    may_be_gone: Callable[[str], bool] = lambda url: False
    check: Callable[[Sequence[str]], None] | None = None
    ledger: Mapping[str, Facts] = field(default_factory=dict)
    with_new: bool = False
    located: Mapping[str, str] = field(default_factory=dict)


ALL = Request()


class SourceFiles(NamedTuple):
    """What a source lists of one URL.

    files: in order. place: the path by which they are sorted among those of other URLs, ordered by
    ``Listed.version``; None: each by its own path. position: numbers by text, which the run's
    commit has as JSON, and ``Request.since`` of its next update; each text begins with the URL.
    notes: lines to print. lost: why the rows of some files cannot be read, and what to do.
    """

    files: Sequence[Listed]
    place: str | None = None
    position: Mapping[str, int] = NOTHING
    notes: Sequence[str] = ()
    lost: str = ""


class Source:
    """Where shards come from. One of your own has ``name`` and ``list_files``, and a file system
    unless fsspec has one for its scheme; all else has a default.

    A listed file is known by its URL. Its fingerprint is made of its size, ETag and time as they
    are listed, and of its footer; a file that is listed with ``partitions`` (``()`` for none) is
    one that is never written to again, so that it need not settle, and its size alone is compared.
    """

    name: str = ""
    """The scheme of its URLs."""
    title: str = ""
    """For messages: "a Kafka topic"."""
    without_effect: tuple[str, ...] = ()
    """Dotted keys of a job that have no effect with it, and are refused."""
    reason: str = ""
    """Why they have none, after ``title`` and "and": "its messages never change"."""
    unit: str = ""
    """What ``count`` counts of a file that is not opened, such as "message"; "": it cannot."""
    verifies_rows: bool = False
    """Whether every row is decoded when its files are made, so that none is damaged inside."""
    lists_by_ledger: bool = False
    """Whether its listing needs what the run recorded, without a position too."""
    unchecked: tuple[tuple[str, object], ...] = ()
    """Storage options, in lower case, that switch TLS or its checks off."""
    addresses: tuple[str, ...] = ()
    """Storage options that have addresses and no secret."""

    def takes(self, url: str) -> bool:
        """Whether a URL is one of this source."""
        return protocol(url) == self.name

    def list_files(
        self, fs: fsspec.AbstractFileSystem, urls: Sequence[str], request: Request
    ) -> Sequence[SourceFiles]:
        """What each of the URLs has: all, or what came after ``request.since``.

        The order is stable, and what came later is last. No file is opened. Raises
        InputNotFoundError for what does not exist, other StreamomdErrors that name the URL.
        """
        raise NotImplementedError

    def file_system(self) -> type[fsspec.AbstractFileSystem] | None:
        """The file system of its scheme; None: the one that fsspec has."""
        return None

    def locate(self, url: str) -> str:
        """The URL that the file system is connected with."""
        return location(url)

    def watched(self, url: str) -> str:
        """The local directory, file or glob whose changes show new shards; "": it is polled."""
        return ""

    def options(
        self, urls: Sequence[str], options: Mapping[str, Any], *, recorded: bool
    ) -> Mapping[str, Any]:
        """Storage options for URLs that the user gave, or that a checkpoint ``recorded``."""
        return options

    def refuse_recorded(self, urls: Sequence[str], options: Mapping[str, Any]) -> None:
        """Raise UsageError for URLs that a checkpoint recorded and that may not be opened with
        these options."""

    def refuse_update(self, urls: Sequence[str]) -> None:
        """Raise UnsupportedError for URLs of which a run cannot learn what comes later."""

    def read_options(
        self, options: Mapping[str, Any], types: Mapping[str, str]
    ) -> Mapping[str, Any]:
        """Storage options as a reader needs them. types: of columns, as the job has them."""
        return options

    def count(self, url: str) -> int:
        """How many of ``unit`` a listed file has."""
        return 0

    def place_of(self, url: str, path: str, row: int) -> str:
        """Where a row of a shard came from, for messages, such as a line of text; "": the row of
        the shard is all that is known."""
        return ""

    def origin(self, path: str) -> str:
        """The file that a shard was made of, if it was made of one; else ""."""
        return ""

    def describe(self, url: str, position: int) -> str:
        """A line on an entry of a position, for ``plan`` and messages; "": none."""
        return ""

    def warnings(self, options: Mapping[str, Any]) -> list[str]:
        """Lines on what of its rows and passwords others on the network may read."""
        return []
