"""Shards of a resumed run are compared field by field with those it started with."""

from __future__ import annotations

from typing import Any

import pytest

from streamomd.checkpoint import compare, explain


def shard(at: int, **changed: Any) -> dict[str, Any]:
    return {
        "url": f"s3://b/part-{at}.parquet",
        "format": "parquet",
        "size": 1000 + at,
        "rows": 500,
        "groups": [250, 250],
        "schema": [["x", "int32", True], ["y", "double", True]],
        "footer_sha256": f"{at:064x}",
        "etag": f"e{at}",
        "mtime_ns": at,
        **changed,
    }


SAVED = [shard(at) for at in range(4)]


def differences(found: list[dict[str, Any]], **options: Any) -> list[tuple[int, str, bool]]:
    return [(one.position, one.text, one.refused) for one in compare(SAVED, found, **options)]


def test_the_same_shards_are_accepted() -> None:
    """Equal lists have no difference."""
    assert differences([shard(at) for at in range(4)]) == []


@pytest.mark.parametrize("field", ["etag", "mtime_ns"])
def test_a_copy_is_noted_not_refused(field: str) -> None:
    """Another time or ETag with the same footer and size is reported and accepted."""
    found = [*SAVED[:2], shard(2, **{field: None}), SAVED[3]]
    ((position, text, refused),) = differences(found)
    assert (position, refused) == (2, False)
    assert f"({field} changed)" in text


@pytest.mark.parametrize(
    "changed, text",
    [
        ({"size": 9}, "size 1001 -> 9"),
        ({"rows": 620}, "rows 500 -> 620"),
        ({"format": "arrow"}, "format parquet -> arrow"),
        ({"groups": [500]}, "row groups [250, 250] (2) -> [500] (1)"),
        ({"footer_sha256": "f" * 64}, f"footer {'0' * 12} -> {'f' * 12}"),
        (
            {"schema": [["x", "int64", False], ["y", "double", True]]},
            "column x int32 -> x int64 not null",
        ),
        ({"schema": [["x", "int32", True]]}, "column -y double"),
        ({"rows": 1, "mtime_ns": 99}, "rows 500 -> 1"),
    ],
)
def test_each_changed_field_is_reported(changed: dict[str, Any], text: str) -> None:
    """A changed shard is refused, with what it was and what it is."""
    assert differences([SAVED[0], shard(1, **changed), *SAVED[2:]]) == [(1, text, True)]


def test_new_shards_after_the_last_need_consent() -> None:
    """They are refused with the flag to give, and only noted with it."""
    found = [*SAVED, shard(4), shard(5)]
    assert [(position, refused) for position, _, refused in differences(found)] == [
        (4, True),
        (5, True),
    ]
    assert "--accept-new-shards" in differences(found)[0][1]
    assert [refused for _, _, refused in differences(found, accept_new=True)] == [False, False]


@pytest.mark.parametrize("accept_new", [False, True])
@pytest.mark.parametrize(
    "order, text",
    [
        ([0, 1, 3], "removed"),
        ([0, 1, 2], "removed"),
        ([], "removed"),
        ([0, 4, 1, 2, 3], "new, not after"),
        ([0, 2, 1, 3], "not at its position"),
        ([0, 1, 2, 3, 3], "new, after the last"),
        ([0, 1, 1, 2, 3], "not at its position"),
    ],
)
def test_any_other_change_of_the_list_is_refused(
    order: list[int], text: str, accept_new: bool
) -> None:
    """Removed, inserted and moved shards are refused regardless of accept_new."""
    found = differences([shard(at) for at in order], accept_new=accept_new)
    assert any(text in line for _, line, _ in found)
    assert any(refused for _, _, refused in found) or (accept_new and order == [0, 1, 2, 3, 3])


def test_ten_differences_are_explained() -> None:
    """A line each, then how many more."""
    saved, found = [shard(at) for at in range(14)], [shard(at, rows=1) for at in range(14)]
    lines = explain(compare(saved, found)).split("\n")
    assert lines[3] == "shard 3 s3://b/part-3.parquet: rows 500 -> 1"
    assert lines[10:] == ["and 4 more"]


def test_names_are_printed_escaped() -> None:
    """A shard's name cannot forge a line or reach the terminal."""
    found = compare([shard(0, url="a\n\x1b[1m")], [])
    assert explain(found) == "shard 0 a\\n\\x1b[1m: removed"
