"""Lines fit a terminal; what is copied from it, and what no terminal reads, is not changed."""

from __future__ import annotations

import io
import os
import pty
import struct
import termios
from fcntl import ioctl

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamomd.cli.formatting import format_table
from streamomd.core.wording import width_of, wrap

WORDS = st.text(st.characters(categories=["L", "N", "P"], exclude_characters="`"), min_size=1)


@given(st.lists(WORDS, min_size=1, max_size=40), st.integers(40, 120), st.sampled_from(["", "  "]))
def test_no_word_is_changed(words: list[str], width: int, indent: str) -> None:
    """The words stay in their order, and a line is wider only if it is a single word."""
    text = indent + " ".join(words)
    lines = wrap(text, width).split("\n")
    assert " ".join(lines).split() == text.split()
    if not text.lstrip().startswith(("streamomd", "$")) and " = " not in text:
        assert all(len(line) <= width or len(line.split()) == 1 for line in lines)


@pytest.mark.parametrize(
    "line",
    [
        "  streamomd train a/ b/ c/ --label y --checkpoint runs/a-long-name",
        "next: streamomd report runs/a-long-name/20261123-140000 -o report.html",
        '  dates = ["flight_date", "sched_dep_ts", "etl_loaded_at"]',
        "coordinate  name          weight   error  z     n  q  place",
        "a/very/long/path/without/any/spaces/that/is/longer/than/the/line.parquet",
    ],
)
def test_what_is_copied_is_not_broken(line: str) -> None:
    """Commands, keys of a job file, tables and paths."""
    assert wrap(line, 40) == line


def test_commands_in_backquotes_are_not_broken() -> None:
    """They move to the next line as a whole."""
    text = "runs/x already holds a run: continue it with `streamomd resume runs/x`, or not"
    assert wrap(text, 60).split("\n") == [
        "runs/x already holds a run: continue it with",
        "  `streamomd resume runs/x`, or not",
    ]


def test_only_a_terminal_has_a_width() -> None:
    """A file, a pipe and a closed stream have none, and text for them is not wrapped."""
    closed = io.StringIO()
    closed.close()
    assert [width_of(out) for out in (None, io.StringIO(), closed)] == [None, None, None]
    assert wrap("a " * 200, None) == "a " * 200
    main, end = pty.openpty()
    ioctl(end, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 72, 0, 0))
    with os.fdopen(end, "w") as terminal:
        assert width_of(terminal) == 72
    os.close(main)


def test_a_table_names_what_does_not_fit() -> None:
    """The first columns are printed, at least three, and the others are named."""
    rows = [{"a": "x" * 20, "b": "y" * 20, "c": 1, "d": "z" * 20, "e": 2}]
    lines = format_table(rows, 60).split("\n")
    assert [len(line.split()) for line in lines[:2]] == [3, 3]
    assert lines[2] == "not shown: d, e (--json has all)"
    assert format_table(rows, 10) == format_table(rows, 60)
    assert format_table(rows, 71) == format_table(rows)
