"""Colours of the report: text and lines can be read in the light and in the dark scheme, and in
print."""

from __future__ import annotations

import re
from importlib.resources import files

import pytest

STYLE = files("streamomd.analysis.report").joinpath("page.css").read_text("utf-8")
TEXT, LINE = 4.5, 3.0
"""Least contrast of text and of lines: WCAG 2.2, 1.4.3 and 1.4.11."""
Colour = tuple[float, float, float]


def schemes() -> dict[str, dict[str, str]]:
    """The variables of each scheme."""
    blocks = re.findall(r":root \{(.*?)\}", STYLE, re.S)
    assert len(blocks) == 3
    found = [dict(re.findall(r"(--[\w-]+):\s*([^;]+);", block)) for block in blocks]
    return dict(zip(("light", "dark", "print"), found, strict=True))


def colour(text: str) -> Colour:
    return tuple(int(text[at : at + 2], 16) / 255.0 for at in (1, 3, 5))  # type: ignore[return-value]


def luminance(one: Colour) -> float:
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in one]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(a: Colour, b: Colour) -> float:
    high, low = sorted((luminance(a), luminance(b)), reverse=True)
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("scheme", ["light", "dark", "print"])
def test_contrast(scheme: str) -> None:
    known = schemes()[scheme]
    paper, card, ink = (colour(known[f"--{name}"]) for name in ("paper", "card", "ink"))
    for text in ("ink", "soft", "one"):
        assert contrast(colour(known[f"--{text}"]), paper) >= TEXT, text
    for text in ("ink", "soft"):
        assert contrast(colour(known[f"--{text}"]), card) >= TEXT, text
    for name in ("look", "good", "bad"):
        box = colour(known[f"--{name}-paper"])
        assert contrast(colour(known[f"--{name}"]), box) >= TEXT, name
        assert contrast(ink, box) >= TEXT, name
    for name in ("one", "two", "three"):
        assert contrast(colour(known[f"--{name}"]), card) >= LINE, name


@pytest.mark.parametrize("scheme", ["light", "dark", "print"])
@pytest.mark.parametrize("share", [0.0, 0.25, 0.5, 0.75, 1.0])
def test_numbers_on_cells(scheme: str, share: float) -> None:
    """A cell of the confusion matrix is as opaque as its share of the row; its number is ink."""
    known = schemes()[scheme]
    opacity = float(known["--cell"]) * (0.06 + 0.94 * share)
    over, below = colour(known["--one"]), colour(known["--card"])
    cell = tuple(opacity * a + (1.0 - opacity) * b for a, b in zip(over, below, strict=True))
    assert contrast(colour(known["--ink"]), cell) >= TEXT  # type: ignore[arg-type]
