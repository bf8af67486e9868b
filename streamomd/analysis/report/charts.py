"""Charts as inline SVG: positions of numbers and ticks; lines, columns, bars and a heat map."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from xml.etree.ElementTree import Element

import numpy as np

from streamomd.analysis.report.markup import element
from streamomd.core.batch import Floats

EPOCH = date(1970, 1, 1)
STEPS = (1.0, 2.0, 2.5, 5.0, 10.0)
LETTERS = ((1e4, 1e6, 1e3, "k"), (1e6, 1e9, 1e6, "M"), (1e9, 1e12, 1e9, "G"))


@dataclass(frozen=True)
class Axis:
    """Numbers from ``low`` to ``high``, on a logarithmic scale if ``log``; low < high.

    whole: ticks are integers. dates: numbers are days since 1970-01-01, and ticks are dates.

    >>> Axis("rows", 1.0, 10000.0, log=True).at(100.0)
    0.5
    >>> [text for _, text in Axis("loss", 0.12, 0.31).ticks()]
    ['0.15', '0.2', '0.25', '0.3']
    """

    label: str
    low: float
    high: float
    log: bool = False
    whole: bool = False
    dates: bool = False

    @property
    def title(self) -> str:
        """The label, with the scale if it is logarithmic."""
        return f"{self.label} (log scale)" if self.log else self.label

    @classmethod
    def of(cls, label: str, numbers: Floats, *, log: bool = False, zero: bool = False) -> Axis:
        """An axis for these numbers; from 0 if ``zero``. Skips numbers that are not finite, and
        with ``log`` those that are not positive."""
        valid = numbers[np.isfinite(numbers) & ((numbers > 0.0) | (not log))]
        low, high = (float(valid.min()), float(valid.max())) if len(valid) else (1.0, 2.0)
        if zero:
            low, high = min(low, 0.0), max(high, 0.0)
        if low == high:
            low, high = (low / 2, high * 2) if log else (low - 0.5, high + 0.5)
        room = 0.0 if log or zero else 0.04 * (high - low)
        return cls(label, low - room, high + room, log)

    def at(self, number: float) -> float:
        """Position in 0 … 1; numbers outside are clipped."""
        if self.log:
            low, high, number = math.log(self.low), math.log(self.high), _log(number)
        else:
            low, high = self.low, self.high
        return min(1.0, max(0.0, (number - low) / (high - low)))

    @classmethod
    def of_integers(cls, label: str, numbers: Floats, *, dates: bool = False) -> Axis:
        """An axis for update numbers, or for days."""
        low, high = float(numbers.min()), float(numbers.max())
        room = max(0.04 * (high - low), 0.2)
        return cls(label, low - room, high + room, whole=True, dates=dates)

    def ticks(self, most: int = 6) -> list[tuple[float, str]]:
        """Round numbers inside the axis, and their texts."""
        if self.whole:
            return _whole(self, 3 if self.dates else most)
        found = _decades(self.low, self.high, most) if self.log else []
        if len(found) < 2:
            found = _even(self.low, self.high, most)
        digits = 3
        while digits < 9 and len({_tick(number, digits) for number in found}) < len(found):
            digits += 2  # two are equal; of the first digit that tells them apart, one more
        return [(number, _tick(number, digits)) for number in found]


def _whole(axis: Axis, most: int) -> list[tuple[float, str]]:
    """Integers at regular steps: their digits, or dates."""
    first, last = math.ceil(axis.low), math.floor(axis.high)
    rough = max(1.0, (last - first) / most)
    power = 10.0 ** math.floor(math.log10(rough))
    step = int(next(power * one for one in (1, 2, 5, 10) if power * one >= rough))
    start = first if axis.dates else math.ceil(first / step) * step
    return [
        (float(at), str(date.fromordinal(EPOCH.toordinal() + at)) if axis.dates else _tick(at))
        for at in range(start, last + 1, step)
    ]


def brief(number: float, digits: int = 3) -> str:
    """A number as short text. digits: before a letter; without a letter one more.

    >>> [brief(one) for one in (0.0, 0.25, 12.0, 20000.0, 1.5e6, 3e9, 1e-5, float("nan"))]
    ['0', '0.25', '12', '20k', '1.5M', '3G', '1e-05', 'nan']
    """
    if not math.isfinite(number):
        return "nan" if math.isnan(number) else "inf" if number > 0 else "-inf"
    for least, most, unit, letter in LETTERS:
        if least <= abs(number) < most:
            return f"{number / unit:.{digits}g}{letter}"
    return f"{number:.{digits + 1}g}"


def _tick(number: float, digits: int = 3) -> str:
    """Returns the label of a tick: that of ``brief``, but 1,000 is 1k, next to 10k."""
    round_one = 1e3 <= abs(number) < 1e4 and number % 100.0 == 0.0
    return f"{number / 1e3:.3g}k" if round_one else brief(number, digits)


def _log(number: float) -> float:
    return math.log(number) if number > 0.0 else -math.inf


def _decades(low: float, high: float, most: int) -> list[float]:
    """Powers of 10 at regular steps; for few decades also 2 and 5 times."""
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    every = max(1, math.ceil((last - first) / most))
    factors = (1.0, 2.0, 5.0) if last - first <= 2 else (1.0,)
    found = [factor * 10.0**power for power in range(first, last + 1, every) for factor in factors]
    return [number for number in found if low * 0.999 <= number <= high * 1.001]


def _even(low: float, high: float, most: int) -> list[float]:
    rough = (high - low) / (most - 1)
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * one for one in STEPS if power * one >= rough * 0.999)
    count = range(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1)
    return [round(at * step, 12) for at in count]


WIDTH, HEIGHT = 460, 280
LEFT, RIGHT, TOP, BOTTOM = 70, 16, 10, 46
COLOURS = ("one", "two", "three")
RUG = 40  # height of the tallest cell
AXIS_LETTERS = 40  # of the x axis's title
BAR_LETTERS = 46  # of a name that fit over a bar


@dataclass(frozen=True)
class Series:
    """Points (x, y) with a name; ``thin``: a secondary series. error: half the width of a band."""

    name: str
    x: Floats
    y: Floats
    thin: bool = False
    error: Floats | None = None


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
    rug: Sequence[tuple[float, float, float]] = (),
) -> Element:
    """Lines through points, of at most three series; a diagonal if both axes are equal. rug: cells
    on the x axis, (low, high, height), the tallest of height 1."""
    frame = _frame(x, y)
    for low, high, tall in rug:
        left, up = _across(x.at(low)), max(RUG * tall, 1.0)
        wide = max(_across(x.at(high)) - left - 0.5, 1.0)  # clipped by the axis
        frame.append(element(
            "rect", x=f"{left:.1f}", y=f"{HEIGHT - BOTTOM - up:.1f}", width=f"{wide:.1f}",
            height=f"{up:.1f}", class_="rug",
        ))  # fmt: skip
    if diagonal:
        frame.append(_path([(x.low, x.low), (x.high, x.high)], x, y, "rule"))
    for index, curve in enumerate(series):
        known = ~np.isnan(curve.y)
        points = list(zip(curve.x[known].tolist(), curve.y[known].tolist(), strict=True))
        style = f"line {COLOURS[index]}{' thin' if curve.thin else ''}"
        if curve.error is not None and curve.error.any():
            across = [*curve.x.tolist(), *curve.x[::-1].tolist()]
            around = [*(curve.y + curve.error).tolist(), *(curve.y - curve.error)[::-1].tolist()]
            band = [*zip(across, around, strict=True)]
            frame.append(_path(band, x, y, f"band fill-{COLOURS[index]}"))
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
        short = _clipped(name, BAR_LETTERS)
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


def cells(title: str, names: tuple[str, str], values: tuple[Sequence[str], Sequence[str]],
          effects: Floats, *, note: str = "") -> Element:  # fmt: skip
    """A square for each effect, (rows, columns), in the second colour where it is negative; none
    where it is NaN."""
    (of_rows, of_columns), left, top = values, 150, 62
    side, tall = (WIDTH - left - 12) / len(of_columns), 30.0
    most = float(np.nanmax(np.abs(effects))) or 1.0
    frame = element("g", element("text", _clipped(names[1], 40), x=left, y=14, class_="label"))
    frame.append(element("text", _clipped(names[0], 15), x=0, y=top - 8, class_="label"))
    letters = max(3, int(side / 4.5))
    for column, name in enumerate(of_columns):
        # In two lines, in turn.
        middle = left + (column + 0.5) * side
        frame.append(_short(name, letters, middle, top - 8 - 18 * (column % 2), "middle"))
    for row, name in enumerate(of_rows):
        high = top + row * tall
        frame.append(_short(name, 15, left - 8, high + tall / 2 + 5, "end"))
        for column in np.flatnonzero(~np.isnan(effects[row])).tolist():
            effect = float(effects[row, column])
            frame.append(element(
                "rect", element("title", brief(effect)), x=f"{left + column * side:.1f}",
                y=f"{high:.1f}", width=f"{side - 1:.1f}", height=f"{tall - 1:.1f}",
                class_=f"fill-{COLOURS[effect < 0.0]}",
                fill_opacity=f"{0.06 + 0.94 * abs(effect) / most:.3f}",
            ))  # fmt: skip
    alt = f"{title}: from {brief(float(np.nanmin(effects)))} to {brief(float(np.nanmax(effects)))}."
    return figure(title, _svg(alt, frame, top + tall * len(of_rows)), _note(note))


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
    made.append(element("text", _clipped(x.title, AXIS_LETTERS), x=wide, y=HEIGHT - 6, **style))
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
    index = {"x": f"{x:.1f}", "y": f"{y:.1f}", "text_anchor": anchor}
    return element("text", _clipped(name, letters), element("title", name), **index)


def _clipped(name: str, letters: int) -> str:
    return name if len(name) <= letters else f"{name[: max(letters - 1, 0)]}…"


def _key(name: str, colour: str, thin: bool = False) -> Element:
    line = element("path", d="M1 6H21", class_=f"line {colour}{' thin' if thin else ''}")
    drawn = element("svg", line, viewBox="0 0 22 12", aria_hidden="true")
    return element("span", drawn, name, class_="key")


def _note(text: str) -> Element | None:
    return element("p", text) if text else None
