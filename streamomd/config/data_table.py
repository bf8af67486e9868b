"""Data, the table [data] of a job, and the entries of its keys."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self, cast

from pydantic import AfterValidator, BeforeValidator, Discriminator, Field, Tag, ValidationError

from streamomd.config import values
from streamomd.config.field_types import (
    Crosses,
    Filter,
    Folder,
    Gibibytes,
    Locations,
    Moment,
    Names,
    Nulls,
    Partitions,
    Renames,
    Seconds,
    Shares,
    Types,
    as_texts,
)
from streamomd.config.job_table import TAGS, Table, explain, key
from streamomd.config.values import MOST_NGRAMS
from streamomd.core.errors import UsageError
from streamomd.core.installed import sources

WHOLE = "a whole number from 0 to 4,294,967,295"
EXAMPLE = '{ every = 10, after = "2026-01-01" }'


def _check_every(value: int) -> int:
    if value == 1:
        raise UsageError(
            "data.holdout = 1 would hold out every row: expected 2 or more, a fraction such as "
            "0.1, or 0 for none"
        )
    return value


def _check_after(value: str) -> str:
    if value:
        values.utc_nanoseconds(value)
    return value


def _whole(value: Any) -> Any:
    found = values.one_in(value)
    number = found if not isinstance(found, str) else values.parse_scalar(found)
    whole = isinstance(number, int) or (isinstance(number, float) and number.is_integer())
    if not whole or isinstance(number, bool) or not 0 <= number < 2**32:
        raise ValueError(f"expected {WHOLE}")
    return int(number)


OneIn = Annotated[int, BeforeValidator(_whole), AfterValidator(_check_every)]


class Holdout(Table):
    """Rows that are held out: about one in ``every``, and all whose time is ``after`` or later."""

    every: OneIn = 0
    after: Annotated[str, BeforeValidator(values.moment_text), AfterValidator(_check_after)] = ""

    @property
    def after_ns(self) -> int:
        """The time from which all rows are held out, in nanoseconds since 1970."""
        return values.utc_nanoseconds(self.after)

    def __str__(self) -> str:
        every = [f"every = {self.every}"] if self.every else []
        return f"{{ {', '.join([*every, f'after = {self.after}'])} }}"


def as_holdout(given: Any) -> Any:
    """A number as it is; a table, also as text. A table without ``after`` is its number."""
    value = values.parse_scalar(given) if isinstance(given, str) and "{" in given else given
    if not isinstance(value, Mapping | Holdout | int | float | str):
        raise ValueError(f"expected {WHOLE}, or a table such as {EXAMPLE}")
    if not isinstance(value, Mapping):
        return value
    unknown = [name for name in value if name not in Holdout.model_fields]
    if unknown:
        raise UsageError(
            f"data.holdout: unknown key {str(unknown[0])!r}; expected every and after, such as "
            f"{EXAMPLE}"
        )
    return value.get("every", 0) if value.get("after", "") == "" else dict(value)


def holdout_kind(given: Any) -> str:
    """The type that reads it: a number or a table."""
    return TAGS[isinstance(given, Mapping | Holdout)]


MOST_DELAY = 100 * 366 * 86400.0
"""Seconds; see ``features.times.MOST``."""


class Sparse(Table):
    """A pair of list columns; ``size`` 0: it is in the schema's metadata."""

    indices: str
    values: str
    size: int = Field(default=0, ge=0, le=2**31 - 2)


class Text(Table):
    """A column of texts: words, and runs of up to ``ngrams`` words; ``counts``: a word's value."""

    column: str
    ngrams: int = Field(default=1, ge=1, le=MOST_NGRAMS)
    counts: Literal["presence", "count", "log"] = "presence"


Texts = Annotated[tuple[Text, ...], BeforeValidator(as_texts)]


HoldoutRows = Annotated[
    Annotated[OneIn, Tag(TAGS[0])] | Annotated[Holdout, Tag(TAGS[1])],
    Discriminator(holdout_kind),
    BeforeValidator(as_holdout),
]


class Csv(Table):
    """How CSV files are read: the options of ``convert``, by its names in Python. JSON lines have
    ``encoding`` and ``types`` alone.
    """

    delimiter: str = key(
        "", "Character between the values of CSV files.", flag="delimiter", metavar="CHAR",
        shown_default="found in the first lines",
    )  # fmt: skip
    decimal: Literal[".", ","] = key(
        ".", "Decimal mark of numbers in CSV files, a point or a comma.", flag="decimal",
        metavar="CHAR",
    )  # fmt: skip
    encoding: str = key(
        "", "Encoding of text files, such as latin-1.", flag="encoding", metavar="NAME",
        shown_default="utf-8; utf-16 by its mark",
    )  # fmt: skip
    date_format: str = key(
        "", "Format of dates in CSV files, such as %d.%m.%Y.", flag="date_format", metavar="FORMAT",
        shown_default="ISO 8601",
    )  # fmt: skip
    types: Types = key(
        {}, "Types of columns of text files, such as zip=string.", flag="type",
        metavar="COL=TYPE,…", shown_default="inferred",
    )  # fmt: skip
    null_values: Names | None = key(
        None, "Texts of CSV files that mean a missing value.", flag="null_values",
        metavar="A,B,…", shown_default="NA, N/A, NaN, null, …",
    )  # fmt: skip
    header: bool = key(True, "Whether the first line has the names of columns.", flag=None)
    quotes: bool = key(True, "Whether values may be in double quotes.", flag=None)

    def options(self) -> dict[str, Any]:
        """Those that are not the defaults, as ``convert`` takes them."""
        return self.model_dump(exclude_defaults=True)

    def changed(self, given: Mapping[str, Any]) -> Self:
        """These with others in their place. Raises UsageError."""
        try:
            return self.model_validate({**self.model_dump(), **given})
        except ValidationError as error:
            raise UsageError(explain(error, type(self))) from None


class Data(Table):
    """[data]: where the rows are and how columns become coordinates."""

    shards: Locations = key((), "Data files (shards).", flag="shards", option=False)
    storage_options: dict[str, Any] = key(
        {}, "Storage options for the shards.", flag="storage_options", option=False, repr=False
    )
    version: int | None = key(
        None,
        "Version of a Delta table, or snapshot of an Iceberg table.",
        flag="version",
        ge=0,
        shown_default="the newest",
    )
    as_of: Moment = key(
        "", "Time (ISO 8601) whose newest version of a table is read.", flag="as_of",
        metavar="TIME",
    )  # fmt: skip
    as_files: bool = key(
        False, "Read files of Delta and Iceberg tables as they are, deleted rows too.",
        flag="as_files",
    )  # fmt: skip
    csv: Csv = key(Csv(), "How CSV files and JSON lines are read.", flag=None)
    label: str = key("", "Column to predict.", flag="label", metavar="COLUMN")
    weight: str = key("", "Column of importance weights.", flag="weight", metavar="COLUMN")
    numeric: Names = key(
        (), "Numeric columns, one coordinate each.", flag="numeric",
        shown_default="inferred from the schema",
    )  # fmt: skip
    hashed: Names = key(
        (), "Categorical columns, one hashed coordinate per value.", flag="hashed",
        shown_default="inferred from the schema",
    )  # fmt: skip
    vectors: Names = key((), "Columns of lists of numbers.", flag="vectors")
    text: Texts = key((), "Text columns, one hashed coordinate per word.", flag="text")
    dates: Names = key((), "Date columns, split into year, month, weekday and hour.", flag="dates")
    sparse: Sparse | None = key(
        None, "The columns of indices and values of sparse rows.", flag=None
    )
    crosses: Crosses = key((), "Lists of columns whose combined values are features.", flag=None)
    ignore: Names = key((), "Columns that are not features.", flag="ignore")
    select: int = key(
        0, "Learn the best N feature columns alone, which a first pass over the rows chooses.",
        flag="select", metavar="N", ge=0, shown_default="all columns",
    )  # fmt: skip
    rename: Renames = key(
        {}, "Columns that some files have under another name, such as amount_eur=amount.",
        flag="rename", metavar="FILE=COLUMN,…",
    )  # fmt: skip
    partitions: Partitions = key(
        "hive", "Columns of key=value directories; none, or name and kind of each.",
        flag="partitions", metavar="hive|none",
    )  # fmt: skip
    where: Filter = key(
        "", "Learn only rows that satisfy a condition, such as day >= 2026-01-01.",
        flag="where", metavar="CONDITION", shown_default="all rows",
    )  # fmt: skip
    sample: Shares = key(
        {}, "Share of the rows of a class that are learned, such as no=0.1, whose weight is then "
        "divided by it.", flag="sample", metavar="CLASS=X,…", shown_default="all rows",
    )  # fmt: skip
    nulls: Nulls = key(
        "error", "What a missing number becomes: error, zero, indicator (0 and a coordinate for "
        "it) or mean (of the values before the row); or one for each column.",
        flag="nulls", metavar="WORD|COLUMN=WORD,…",
    )  # fmt: skip
    standardize: Literal["none", "running"] = key(
        "none", "Centring and scaling of numeric columns; running: by mean and scale so far.",
        flag=None,
    )  # fmt: skip
    on_bad_row: Literal["error", "skip"] = key(
        "error", "What to do with a bad row; skip: count it by reason.", flag="on_bad_row"
    )
    max_bad_rows: int | None = key(
        None, "Maximum bad rows per epoch before the run fails.", flag="max_bad_rows", ge=0,
        shown_default="unlimited",
    )  # fmt: skip
    bits: int = key(18, "Number of hashed coordinates, as a power of 2.", flag="bits", ge=1, le=30)
    hash_seed: int = key(0, "Seed of the hash function.", flag=None, ge=0, le=2**32 - 1)
    order: Literal["sorted", "given", "shuffled"] = key(
        "sorted", "Order of the shards; shuffled: by seed and epoch.", flag="order"
    )
    seed: int = key(0, "Seed of the shuffled order and of the hold-out rows.", flag="seed")
    arrival: Literal["path", "modified"] = key(
        "path", "Order of the new shards of an update: by path, numbers as numbers, or by time.",
        flag=None,
    )  # fmt: skip
    on_bad_shard: Literal["error", "skip"] = key(
        "error", "What an update does with a shard that cannot be read; skip: record it.",
        flag="on_bad_shard",
    )  # fmt: skip
    cache: Folder = key(
        "", "Local folder for decoded rows, reused by later epochs and jobs.", flag="cache",
        metavar="DIR",
    )  # fmt: skip
    cache_gib: Gibibytes = key(
        50.0, "Maximum size of the cache, in GiB or as 50GiB; 0: unlimited.", flag=None, ge=0.0
    )
    holdout: HoldoutRows = key(
        0, "Hold out about 1 in N rows for validation; 0.1 means 10, 0 none; or a table of every "
        "(N) and after, a time from which all rows are held out.",
        flag="holdout", metavar="N|TABLE",
    )  # fmt: skip
    time: str = key(
        "", "Column of each row's time, for metrics by hour and day; no feature.", flag="time",
        metavar="COLUMN",
    )  # fmt: skip
    delay: Seconds = key(
        0.0, "Time after which a row's label is known: then it is learned, in seconds or as 24h.",
        flag="delay", metavar="TIME", ge=0.0, le=MOST_DELAY,
    )  # fmt: skip

    @property
    def store_options(self) -> dict[str, Any]:
        """Storage options as a worker needs them; see ``Source.read_options``."""
        found = sources().read_options(self.shards, self.storage_options, self.csv.types)
        return cast("dict[str, Any]", found)

    @property
    def holds_out(self) -> bool:
        """Whether rows are held out."""
        return self.held_every > 0 or self.held_after is not None

    @property
    def held_every(self) -> int:
        """About one row in this many is held out; 0: none."""
        return self.holdout if isinstance(self.holdout, int) else self.holdout.every

    @property
    def held_after(self) -> int | None:
        """The time, in nanoseconds since 1970, from which all rows are held out."""
        return None if isinstance(self.holdout, int) else self.holdout.after_ns

    @property
    def delay_ns(self) -> int:
        """The delay in nanoseconds."""
        return round(self.delay * 1e9)
