"""A proposed job and its file: TOML with the reason of each choice as a comment."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from streamomd.core.errors import UsageError
from streamomd.core.urls import printable
from streamomd.core.wording import listed

MOST_NAMES = 5
MOST_NAME = 40

Chosen = tuple[tuple[str, str], ...]
"""Columns, each with the reason."""


@dataclass(frozen=True)
class Proposal:
    """A job. Each column without a role is numeric or a category by its type, unless ``listed``:
    then numeric and hashed name them, as vectors and a sparse pair require. advice: on shapes.
    """

    shards: tuple[str, ...]
    checkpoint: str
    label: str
    label_reason: str
    weight: str = ""
    task: str = "auto"
    task_reason: str = ""
    ignore: Chosen = ()
    dates: Chosen = ()
    text: Chosen = ()
    vectors: Chosen = ()
    sparse: tuple[str, str] | None = None
    nulls: Chosen = ()
    skip_reason: str = ""
    listed: bool = False
    numeric: tuple[str, ...] = ()
    hashed: tuple[str, ...] = ()
    hashed_reasons: Mapping[str, str] = field(default_factory=dict)
    codes: Chosen = ()
    csv: Mapping[str, Any] = field(default_factory=dict)
    classes: tuple[str, ...] = ()
    advice: tuple[str, ...] = ()

    def tables(self) -> dict[str, Any]:
        """Returns the tables of the job."""
        data: dict[str, Any] = {"shards": list(self.shards), "label": self.label}
        data |= {"weight": self.weight} if self.weight else {}
        data |= {"csv": dict(self.csv)} if self.csv else {}
        for key in ("ignore", "dates", "text", "vectors"):
            data |= {key: [name for name, _ in getattr(self, key)]} if getattr(self, key) else {}
        if self.listed:
            data |= {"numeric": list(self.numeric), "hashed": list(self.hashed)}
        if self.sparse:
            data["sparse"] = dict(zip(("indices", "values"), self.sparse, strict=True))
        data |= {"on_bad_row": "skip"} if self.skip_reason else {}
        data |= {"nulls": {name: "mean" for name, _ in self.nulls}} if self.nulls else {}
        model: dict[str, Any] = {"task": self.task}
        model |= {"classes": list(self.classes)} if self.classes else {}
        return {"data": data, "model": model, "checkpoint": {"url": self.checkpoint}}

    def toml(self) -> str:
        """The job file."""
        return "\n".join(self._lines()) + "\n"

    def _lines(self) -> Iterator[str]:
        """Yields the lines of the job file."""
        yield "# Written by `streamomd init`. Each choice has its reason; change what is wrong."
        yield "# Keys that are not here have the defaults of docs/job-file.md."
        yield "[data]"
        names = [quoted(shard) for shard in self.shards]
        where = "files, directories, globs or URLs"
        yield commented(f"shards = [{', '.join(names)}]" if names[1:] else f"shards = {names[0]}",
                        f"{where}; relative to the current directory")  # fmt: skip
        if self.csv:
            values = ", ".join(
                f"{key} = {quoted(value) if isinstance(value, str) else str(value).lower()}"
                for key, value in self.csv.items()
            )
            yield commented(f"csv = {{ {values} }}", "how text is read")
        yield commented(f"label = {quoted(self.label)}", self.label_reason)
        if self.weight:
            yield commented(f"weight = {quoted(self.weight)}", "the importance of each row")
        for key in ("ignore", "dates", "text", "vectors"):
            yield from array(key, getattr(self, key)) if getattr(self, key) else ()
        if self.listed:
            yield "# Vectors, sparse pairs and numbers as categories require that all are named:"
            yield from array("numeric", ((name, "") for name in self.numeric))
            reasons = self.hashed_reasons
            yield from array("hashed", ((name, reasons.get(name, "")) for name in self.hashed))
        if self.sparse:
            pair = f"indices = {quoted(self.sparse[0])}, values = {quoted(self.sparse[1])}"
            yield commented(f"sparse = {{ {pair} }}", "a pair of lists; its size is in the shards")
        if self.skip_reason:
            yield commented('on_bad_row = "skip"', self.skip_reason)
        for name, numbers in self.codes:
            yield f"# {printable(name)}: {numbers} may mean missing: then write null in its place"
        if self.nulls:
            yield "[data.nulls]"
            for name, reason in self.nulls:
                yield commented(f'{quoted(name)} = "mean"', reason)
        yield "[model]"
        yield commented(f"task = {quoted(self.task)}", self.task_reason)
        if self.classes:
            both = ", ".join(map(quoted, self.classes))
            yield commented(f"classes = [{both}]", "negative, positive; else in sorted order")
        yield from (f"# {printable(line)}" for line in self.advice)
        yield commented(
            'shapes = "none"', '"columns" learns curves of numbers, "pairs" also pairs, "all" trees'
        )
        yield "[checkpoint]"
        yield commented(f"url = {quoted(self.checkpoint)}", "where the run is saved")

    def summary(self) -> list[str]:
        """The choices in at most five lines, and the advice."""
        others = {"dates": self.dates, "text": self.text, "vectors": self.vectors}
        roles = [f"{key} {short_names(chosen)}" for key, chosen in others.items() if chosen]
        roles += [f"sparse pair {' and '.join(map(printable, self.sparse))}"] if self.sparse else []
        roles += [f"ignored {short_names(self.ignore)}"] if self.ignore else []
        lines = [
            f"label {_short_name(self.label)!r}: {self.label_reason}",
            f"task {self.task}: {self.task_reason}",
            f"columns: {'; '.join(roles)}" if roles else "",
            f"missing numbers become the mean: {short_names(self.nulls)}" if self.nulls else "",
            f"bad rows are skipped: {self.skip_reason}" if self.skip_reason else "",
            *self.advice,
        ]
        return [line for line in lines if line]


def short_names(chosen: Sequence[tuple[str, str]]) -> str:
    """The first names of columns, long ones cut, and how many more there are."""
    return listed([_short_name(name) for name, _ in chosen], MOST_NAMES)


def _short_name(name: str) -> str:
    text = printable(name)
    return text if len(text) <= MOST_NAME else f"{text[: MOST_NAME - 1]}…"


_ESCAPES = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\t": "\\t", "\r": "\\r"}


def quoted(text: str) -> str:
    r"""A text as a TOML string; a key may be one, too. What does not print is escaped.

    Raises UsageError for a name that is not Unicode, such as a file's from another encoding.

    >>> print(quoted('a "b"\n\x1b'), quoted("Größe"))
    "a \"b\"\n\u001B" "Größe"
    """
    try:
        text.encode()
    except UnicodeEncodeError:
        raise UsageError(
            f"{printable(text)!r} is not Unicode, which TOML requires: rename it"
        ) from None
    return '"' + "".join(_escaped(one) for one in text) + '"'


def _escaped(one: str) -> str:
    if one in _ESCAPES:
        return _ESCAPES[one]
    if one.isprintable():
        return one
    return f"\\u{ord(one):04X}" if ord(one) < 0x10000 else f"\\U{ord(one):08X}"


def commented(value: str, reason: str, width: int = 34) -> str:
    """A line, and a reason as its comment; aligned if the line is short.

    >>> commented('label = "y"', "named like a label", 14)
    'label = "y"     # named like a label'
    """
    return f"{value:<{width}}  # {printable(reason)}" if reason else value


def array(key: str, items: Iterable[tuple[str, str]]) -> list[str]:
    """The lines of a key whose value is a list of texts, each with its reason."""
    lines = [commented(f"  {quoted(text)},", reason) for text, reason in items]
    return [f"{key} = [", *lines, "]"]
