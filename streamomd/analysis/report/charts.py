"""Charts as inline SVG: lines, columns, bars and a heat map. Colours are the page's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from xml.etree.ElementTree import Element

import numpy as np
from numpy.typing import NDArray

from streamomd.analysis.report.axes import Axis, brief
from streamomd.analysis.report.markup import element

Floats = NDArray[np.float64]
WIDTH, HEIGHT = 460, 280
LEFT, RIGHT, TOP, BOTTOM = 66, 16, 10, 46
COLOURS = ("one", "two", "three")
LETTERS = 46  # of a name that fit over a bar


@dataclass(frozen=True)
class Series:
    """Points (x, y) with a name; ``thin``: a secondary series."""

    name: str
    x: Floats
    y: Floats
    thin: bool = False


def figure(title: str, drawing: Element, *inside: Element | str | None) -> Element:
    """A chart under its title, with a note."""
    return element("figure", element("figcaption", title), drawing, *inside)


def lines(
    title: str,
    series: Sequence[Series],
    x: Axis,
    y: Axis,
    *,
    note: str = "",
    diagonal: bool = False,
) -> Element:
    """Lines through points, of at most three series; a diagonal if both axes are equal."""
    frame = _frame(x, y)
    if diagonal:
        frame.append(_path([(x.low, x.low), (x.high, x.high)], x, y, "rule"))
    for index, curve in enumerate(series):
        known = ~np.isnan(curve.y)
        points = list(zip(curve.x[known].tolist(), curve.y[known].tolist(), strict=True))
        style = f"line {COLOURS[index]}{' thin' if curve.thin else ''}"
        frame.append(_path(points, x, y, style))
        if len(points) <= 40 and not curve.thin:
            frame.extend(_dot(x.at(a), y.at(b), COLOURS[index]) for a, b in points)
    last = [f"{curve.name} ends at {brief(float(curve.y[-1]))}" for curve in series if len(curve.y)]
    drawing = _svg(f"{title}. {y.title} against {x.title}: {'; '.join(last)}.", frame)
    keys = [_key(curve.name, COLOURS[number], curve.thin) for number, curve in enumerate(series)]
    return figure(title, drawing, element("p", *keys) if len(keys) > 1 else None, _note(note))


def columns(title: str, edges: Sequence[float], counts: Sequence[Series], x: Axis, y: Axis,
            *, note: str = "") -> Element:  # fmt: skip
    """Columns between edges, side by side for each series; y of a series is the count per bin."""
    frame = _frame(x, y)
    for index, bars in enumerate(counts):
        for low, high, count in zip(edges[:-1], edges[1:], bars.y.tolist(), strict=True):
            left, right = _across(x.at(low)), _across(x.at(high))
            wide = (right - left) / len(counts)
            top = _down(y.at(count))
            frame.append(element(
                "rect", x=f"{left + index * wide + 0.5:.1f}", y=f"{top:.1f}",
                width=f"{max(wide - 1.0, 0.5):.1f}", height=f"{HEIGHT - BOTTOM - top:.1f}",
                class_=f"fill-{COLOURS[index]}",
            ))  # fmt: skip
    summary = [f"{bars.name}: {bars.y.sum():,.0f}" for bars in counts]
    drawing = _svg(f"{title}. {y.title} by {x.title}; {', '.join(summary)}.", frame)
    keys = [_key(bars.name, COLOURS[number]) for number, bars in enumerate(counts)]
    return figure(title, drawing, element("p", *keys) if len(keys) > 1 else None, _note(note))


def bars(title: str, label: str, named: Sequence[tuple[str, float]], *, note: str = "") -> Element:
    """A bar below each name; negative ones in the second colour."""
    most = max((abs(number) for _, number in named), default=0.0) or 1.0
    tall = 40
    frame = element("g")
    for index, (name, number) in enumerate(named):
        top, wide = index * tall, (WIDTH - 90) * abs(number) / most
        short = name if len(name) <= LETTERS else f"{name[: LETTERS - 1]}…"
        frame.append(element("text", short, element("title", name), x=0, y=top + 15))
        frame.append(element(
            "rect", x=0, y=top + 21, width=f"{max(wide, 1.0):.1f}", height=11, rx=2,
            class_=f"fill-{COLOURS[number < 0.0]}",
        ))  # fmt: skip
        end = {"x": f"{wide + 6:.1f}", "y": top + 31}
        frame.append(element("text", brief(number), **end, class_="label"))
    summary = ", ".join(f"{name} {brief(number)}" for name, number in named[:5])
    drawing = _svg(f"{title}, {label}: {summary}.", frame, tall * len(named))
    return figure(title, drawing, element("p", label), _note(note))


def heat(title: str, names: Sequence[str], cells: Floats, *, note: str = "") -> Element:
    """A square for each cell, (true, predicted); its colour shows its share of the row."""
    sums = cells.sum(axis=1, keepdims=True)
    share = np.divide(cells, sums, out=np.zeros_like(cells), where=sums > 0.0)
    left, top, count = 130, 46, len(names)
    side = (WIDTH - left) / count
    tall = min(side, 56.0)
    frame = element("g", element("text", "predicted", x=left, y=14, class_="label"))
    frame.append(element("text", "true", x=0, y=top - 8, class_="label"))
    wide = max(map(len, names)) * 9 > side  # then columns have numbers, explained by the rows
    for row, name in enumerate(names):
        across, middle = left + (row + 0.5) * side, top + (row + 0.5) * tall
        if not wide or count <= 20 or row % 5 == 4:
            frame.append(_short(f"{row + 1}" if wide else name, 18, across, top - 8, "middle"))
        frame.append(_short(f"{row + 1} {name}" if wide else name, 15, left - 8, middle + 5, "end"))
        for column in range(count):
            frame.append(element(
                "rect", x=f"{left + column * side:.1f}", y=f"{top + row * tall:.1f}",
                width=f"{side - 1:.1f}", height=f"{tall - 1:.1f}", class_="cell",
                fill_opacity=f"{0.06 + 0.94 * share[row, column]:.3f}",
            ))  # fmt: skip
            if side >= 40:
                frame.append(element(
                    "text", brief(float(cells[row, column])),
                    x=f"{left + (column + 0.5) * side:.1f}", y=f"{middle + 5:.1f}",
                    text_anchor="middle",
                ))  # fmt: skip
    right = float(np.trace(share)) / count
    alt = f"{title}: {count} classes; a row's share on the diagonal is {right:.0%} on average."
    return figure(title, _svg(alt, frame, top + tall * count), _note(note))


def _svg(alt: str, inside: Element, height: float = HEIGHT) -> Element:
    box = f"0 0 {WIDTH} {height:.0f}"
    return element("svg", element("title", alt), inside, viewBox=box, role="img", aria_label=alt)


def _frame(x: Axis, y: Axis) -> Element:
    """Axes with their ticks and labels."""
    made, floor = element("g"), HEIGHT - BOTTOM
    for number, text in y.ticks():
        high = _down(y.at(number))
        made.append(element("path", d=f"M{LEFT} {high:.1f}H{WIDTH - RIGHT}", class_="rule"))
        made.append(element("text", text, x=LEFT - 6, y=f"{high + 4:.1f}", text_anchor="end"))
    for number, text in x.ticks():
        index = _across(x.at(number))
        made.append(element("path", d=f"M{index:.1f} {floor}v4", class_="rule"))
        made.append(element("text", text, x=f"{index:.1f}", y=floor + 18, text_anchor="middle"))
    middle = (TOP + floor) / 2
    wide = (LEFT + WIDTH - RIGHT) / 2
    style = {"text_anchor": "middle", "class_": "label"}
    made.append(element("text", x.title, x=wide, y=HEIGHT - 6, **style))
    turned = f"rotate(-90 12 {middle})"
    made.append(element("text", y.title, x=12, y=middle, transform=turned, **style))
    return made


def _across(share: float) -> float:
    return LEFT + share * (WIDTH - LEFT - RIGHT)


def _down(share: float) -> float:
    return TOP + (1.0 - share) * (HEIGHT - TOP - BOTTOM)


def _path(points: Sequence[tuple[float, float]], x: Axis, y: Axis, style: str) -> Element:
    placed = [f"{_across(x.at(a)):.1f} {_down(y.at(b)):.1f}" for a, b in points]
    return element("path", d=f"M{'L'.join(placed)}" if placed else "", class_=style)


def _dot(across: float, up: float, colour: str) -> Element:
    index = {"cx": f"{_across(across):.1f}", "cy": f"{_down(up):.1f}"}
    return element("circle", **index, r=3, class_=f"fill-{colour}")


def _short(name: str, letters: int, x: float, y: float, anchor: str) -> Element:
    short = name if len(name) <= letters else f"{name[: max(letters - 1, 0)]}…"
    index = {"x": f"{x:.1f}", "y": f"{y:.1f}", "text_anchor": anchor}
    return element("text", short, element("title", name), **index)


def _key(name: str, colour: str, thin: bool = False) -> Element:
    line = element("path", d="M1 6H21", class_=f"line {colour}{' thin' if thin else ''}")
    drawn = element("svg", line, viewBox="0 0 22 12", aria_hidden="true")
    return element("span", drawn, name, class_="key")


def _note(text: str) -> Element | None:
    return element("p", text) if text else None
