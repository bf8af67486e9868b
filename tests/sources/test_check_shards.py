"""``streamomd.testing.check_shards``: the package's formats pass, and faulty readers do not."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pytest
from shard_rows import FORMATS, write_arrow, write_parquet

from streamomd.shards.formats import footer
from streamomd.shards.formats.contract import Format, Groups
from streamomd.testing import check_shards


@pytest.mark.parametrize(("suffix", "write"), FORMATS.items())
def test_every_format_passes(suffix: str, write: Any) -> None:
    check_shards(write, suffix)


Change = Callable[[Groups, int], Iterator[pa.RecordBatch]]
"""The slices of a row group that a faulty reader yields."""


@dataclass(frozen=True)
class Faulty:
    """Groups whose slices are changed."""

    groups: Groups
    change: Change

    def __call__(self, group: int, /) -> Iterator[pa.RecordBatch]:
        return self.change(self.groups, group)

    def ranges(self, group: int, /) -> list[tuple[int, int]]:
        return self.groups.ranges(group)

    def release(self) -> None:
        self.groups.release()


def changed(form: Format, change: Change) -> Format:
    """The format with other slices of its groups."""
    return form._replace(open_groups=lambda *given: Faulty(form.open_groups(*given), change))


def unordered(groups: Groups, group: int) -> Iterator[pa.RecordBatch]:
    yield from reversed(list(groups(group)))


def sorted_columns(groups: Groups, group: int) -> Iterator[pa.RecordBatch]:
    for batch in groups(group):
        yield batch.select(sorted(batch.schema.names))


def first_again(groups: Groups, group: int) -> Iterator[pa.RecordBatch]:
    return groups(0)


MUTANTS = {
    "slices out of order": (unordered, "is not the row that was written"),
    "columns in an order of its own": (sorted_columns, "read as"),
    "the first group for every group": (first_again, "row|rows"),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_each_faulty_reader_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    change, message = MUTANTS[name]
    forms = [changed(form, change) for form in footer.FORMATS]
    monkeypatch.setattr(footer, "FORMATS", forms)
    with pytest.raises(Exception, match=message):
        check_shards(write_parquet, ".parquet")


def test_a_footer_that_lies_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Groups that are not those of the file."""
    parquet = footer.FORMATS[0]

    def describe(*given: Any) -> tuple[pa.Schema, tuple[int, ...]]:
        schema, groups = parquet.describe(*given)
        return schema, (sum(groups),)

    monkeypatch.setattr(footer, "FORMATS", [parquet._replace(describe=describe)])
    with pytest.raises(AssertionError, match=r"the footer says 100 rows in groups of \(100,\)"):
        check_shards(write_parquet, ".parquet")


def test_an_error_that_is_not_ours_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Damaged bytes end in a StreamomdError, not in one of the decoder's own."""
    arrow = footer.FORMATS[1]

    def describe(data: bytes, at: Any) -> Any:
        schema, groups = arrow.describe(data, at)
        if schema.names != ["id", "number", "list", "word"]:
            raise KeyboardInterrupt  # what no reader explains
        return schema, groups

    monkeypatch.setattr(footer, "FORMATS", [arrow._replace(describe=describe)])
    with pytest.raises(KeyboardInterrupt):
        check_shards(write_arrow, ".arrow")
