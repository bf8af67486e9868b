"""How tables and text among the sources are read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

from streamomd.config.values import nanoseconds
from streamomd.core.errors import UsageError

if TYPE_CHECKING:
    from streamomd.config.data_table import Data


@dataclass(frozen=True)
class TableOptions:
    """How tables and text among the sources are read.

    version: of a Delta table, None: the newest. as_of: or the one that was the newest at that time
    (ISO 8601). as_files: whether files of tables are read like any others. csv: of text files, as
    ``convert`` takes them. types: of columns of messages, which have nulls for those they lack.
    given: keys of csv that a command has, in addition to those of a model's job. known: versions of
    the tables that a model learned; it knows the columns of an Iceberg table by names of then.
    """

    version: int | None = None
    as_of: str = ""
    as_files: bool = False
    csv: Mapping[str, Any] = field(default_factory=dict)
    types: Mapping[str, str] = field(default_factory=dict)
    given: tuple[str, ...] = ()
    known: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def of(cls, data: Data) -> Self:
        """Those of a job."""
        csv = data.csv
        return cls(data.version, data.as_of, data.as_files, csv.options(), csv.types)

    @classmethod
    def for_model(
        cls,
        data: Data,
        known: Mapping[str, int],
        version: int | None,
        as_of: str,
        as_files: bool,
        csv: Mapping[str, Any],
    ) -> Self:
        """For other shards than those of a trained model's job. csv: in place of the job's; types
        of label and weight, which the shards may lack, are not taken from it.
        """
        absent = (data.label, data.weight)
        types = {name: kind for name, kind in data.csv.types.items() if name not in absent}
        options = data.csv.changed({"types": types, **csv}).options()
        types = {**data.csv.types, **csv.get("types", {})}
        return cls(version, as_of, as_files, options, types, tuple(csv), known)

    @property
    def chooses_version(self) -> bool:
        """Whether they say how a Delta table is read."""
        return self.version is not None or bool(self.as_of) or self.as_files

    @property
    def keys(self) -> set[str]:
        """The dotted keys of a job that they have values of."""
        chosen = {
            "version": self.version is not None,
            "as_of": self.as_of,
            "as_files": self.as_files,
        }
        names = [name for name, is_given in chosen.items() if is_given]
        return {f"data.{name}" for name in (*names, *(f"csv.{name}" for name in self.given))}

    def __post_init__(self) -> None:
        try:
            if self.as_of:
                nanoseconds(self.as_of)
        except ValueError as error:
            raise UsageError(f"as_of is {self.as_of!r}: {error}") from None
        if self.version is not None and self.version < 0:
            raise UsageError(f"version is {self.version}: expected 0 or more")
        if self.version is not None and self.as_of:
            raise UsageError(
                f"version {self.version} and as_of {self.as_of!r} are both given: each chooses a "
                "table's version, give one"
            )


FILES_OR_TABLES = TableOptions()
