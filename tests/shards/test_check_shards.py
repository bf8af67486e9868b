"""``streamomd.testing.check_shards``: the package's formats pass, and faulty readers do not."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
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


def changed(form: Format, change: Callable[[Groups, Any], Groups]) -> Format:
    """The format with other slices of its groups."""

    def open_groups(*given: Any) -> Groups:
        return change(form.open_groups(*given), given[3])

    return replace(form, open_groups=open_groups)


def unordered(groups: Groups, wanted: Any) -> Groups:
    def read(index: int) -> Iterator[pa.RecordBatch]:
        yield from reversed(list(groups(index)))

    return read


def sorted_columns(groups: Groups, wanted: Any) -> Groups:
    def read(index: int) -> Iterator[pa.RecordBatch]:
        for batch in groups(index):
            yield batch.select(sorted(batch.schema.names))

    return read


def first_again(groups: Groups, wanted: Any) -> Groups:
    return lambda index: groups(0)


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

    monkeypatch.setattr(footer, "FORMATS", [replace(parquet, describe=describe)])
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

    monkeypatch.setattr(footer, "FORMATS", [replace(arrow, describe=describe)])
    with pytest.raises(KeyboardInterrupt):
        check_shards(write_arrow, ".arrow")
