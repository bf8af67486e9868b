"""A row that is a mapping becomes coordinates and values, as ``features.encode`` makes them of
Arrow: in the order of coordinates, equal ones summed in the same order.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from streamomd.core.errors import UsageError
from streamomd.core.scalars import hat_of
from streamomd.core.trees import Trees
from streamomd.training.scoring.categories import (
    CategoryPlaces,
    WordPlaces,
    cross_name,
    escaped,
    runs,
)
from streamomd.training.scoring.description import Description, VectorColumn
from streamomd.training.scoring.row_values import (
    BadValueError,
    Problem,
    category_of,
    check_number,
    date_of,
    flat_row,
    list_of,
    no_mapping,
    number_of,
    part_of,
    paths_of,
    plain,
    rounded,
    row_error,
    text_of,
)

Note = Callable[[str, int, bytes | None], None]


class Source(NamedTuple):
    """A feature of a row: its name, its value, and what it adds at a coordinate. is_hat: it is a
    part of the feature of that name before it."""

    name: str
    value: Any
    coordinate: int
    x: float
    is_hat: bool = False


class Entries(NamedTuple):
    """A row without its bias: coordinates, ascending and distinct, and their values.

    A missing number whose column takes means is NaN.
    """

    coordinates: list[int]
    values: list[float]


class RowEncoder:
    """Encodes rows of one description. Threads may share it.

    note: gets the column, coordinate and bytes of each hashed value.
    """

    def __init__(self, description: Description, note: Note | None = None) -> None:
        d = self.description = description
        self.required = tuple(d.columns)
        self._paths = paths_of(self.required)
        self._note = note
        alone = [column.name for column in d.categories if column.alone]
        alone += [f"{date.name}.{part}" for date in d.dates for part in date.parts]
        self._alone = [(name, CategoryPlaces(name, d)) for name in alone]
        self._crossed = [CategoryPlaces(cross_name(cross), d) for cross in d.crosses]
        self._lists = [CategoryPlaces(column.name, d) for column in d.lists]
        self._words = [WordPlaces(text.name, d) for text in d.texts]
        measured = [(n.name, n.nulls, 1) for n in d.numbers]
        measured += [(v.name, v.nulls, v.width) for v in d.vectors]
        columns = [(name, nulls) for name, nulls, width in measured for _ in range(width)]
        self._indicated = [name if nulls == "indicator" else "" for name, nulls in columns]
        self._absent = [self._indicated[curve.place] for curve in d.curves]

    def entries(
        self, row: Mapping[str, Any], where: str = "the row", sources: list[Source] | None = None
    ) -> Entries:
        """The entries of a row. sources: gets where each comes from.

        Raises SchemaError for missing columns and for values of another type, BadRowError for
        other bad values; all of a row in one message, which begins with ``where``.
        """
        if not isinstance(row, Mapping):
            raise no_mapping(row, where)
        if self._paths:
            row = flat_row(row, self._paths)
        d, problems = self.description, list[Problem]()
        gone, places = list[str](), list[int]()
        try:
            numbers = self._numbers(row, problems, gone, sources)
            bins = self._bins(numbers, gone)
            hashed = self._hashed(row, bins, problems, sources, places) if d.hashes else []
            pairs = self._pairs(row, problems, sources) if d.sparse else []
        except KeyError:
            if all(name in row for name in self.required):
                raise
            problems.append(Problem("", BadValueError("", "", "")))
        if problems:
            raise row_error(row, self.required, problems, where)
        first = int(d.bias)
        hats = self._hats(numbers, gone, sources) if d.curves else []
        grown = self._margins(d.trees, numbers, gone, places, sources) if d.trees else []
        values = [*numbers, *hats, *grown]
        coordinates = list(range(first, first + len(values)))
        for place, value in (*hashed, *pairs):
            coordinates.append(place)
            values.append(value)
        for at, name in enumerate(d.indicators):
            if name in gone:
                coordinates.append(d.indicator_offset + at)
                values.append(1.0)
                if sources is not None:
                    sources.append(Source(f"{name} is null", None, d.indicator_offset + at, 1.0))
        return Entries(coordinates, values)

    def _numbers(
        self, row: Mapping[str, Any], problems: list[Problem], gone: list[str],
        sources: list[Source] | None,
    ) -> list[float]:  # fmt: skip
        """Numeric and vector coordinates, zeros included. gone: gets the columns with a missing
        value."""
        d, numbers = self.description, list[float]()
        for name, kind, nulls in d.numbers:
            try:
                value = number_of(row[name], kind, d)
                if value is None:
                    gone.append(name)
                    value = _without(nulls)
            except BadValueError as error:
                problems.append(Problem(name, error))
                value = 0.0
            numbers.append(value)
            if sources is not None:
                at = int(d.bias) + len(numbers) - 1
                sources.append(Source(name, plain(row[name]), at, value))
        for column in d.vectors:
            name = column.name
            try:
                elements = self._vector(row[name], column, gone)
            except BadValueError as error:
                problems.append(Problem(name, error))
                elements = column.width * [0.0]
            if sources is not None:
                at = int(d.bias) + len(numbers)
                sources += [Source(f"{name}[{k}]", x, at + k, x) for k, x in enumerate(elements)]
            numbers += elements
        return numbers

    def _bins(self, numbers: list[float], gone: list[str]) -> dict[str, bytes | None]:
        """Numbers as categories, by name."""
        return {
            one.name: None if self._indicated[one.place] in gone else one.of(numbers[one.place])
            for one in self.description.bins
        }

    def _hats(
        self, numbers: list[float], gone: list[str], sources: list[Source] | None
    ) -> list[float]:
        """The hats of numbers, zeros included. A missing number has none, unless it is 0."""
        d, found = self.description, list[float]()
        for curve, absent in zip(d.curves, self._absent, strict=True):
            x, hats = numbers[curve.place], [0.0] * len(curve.knots)
            if not math.isnan(x) and absent not in gone:
                k, share = hat_of(x, curve.knots)
                hats[k], hats[k + 1] = 1.0 - share, share
            if sources is not None:
                of, at = sources[curve.place], d.hat_offset + len(found)
                sources += [
                    Source(of.name, of.value, at + k, hat, is_hat=True)
                    for k, hat in enumerate(hats)
                ]
            found += hats
        return found

    def _margins(
        self, trees: Trees, numbers: list[float], gone: list[str], places: list[int],
        sources: list[Source] | None,
    ) -> list[float]:  # fmt: skip
        """The margins of trees. places: the coordinates of single categories."""
        d = self.description
        values = [
            math.nan if absent in gone else x
            for x, absent in zip(numbers, self._indicated, strict=True)
        ]
        found = trees.margins_of([*values, *(at - d.hashed_offset for at in places)])
        if sources is not None:
            of = [f"trees[{k}]" for k in range(len(found))] if len(found) > 1 else ["trees"]
            pairs = zip(of, found, strict=True)
            sources += [Source(n, x, d.tree_offset + k, x) for k, (n, x) in enumerate(pairs)]
        return found

    def _vector(self, given: Any, column: VectorColumn, gone: list[str]) -> list[float]:
        name, width, kind, nulls, ragged = column
        elements = list_of(given)
        if elements is None:
            gone.append(name)
            return width * [_without(nulls)]
        if ragged and len(elements) > width:
            found = f"a list of {len(elements)} numbers"
            raise BadValueError("ragged", found, f"at most {width}")
        if len(elements) != width and not ragged:
            found = f"a list of {len(elements)}"
            raise BadValueError("", found, f"a list of {width} numbers")
        values = [number_of(element, kind, self.description) for element in elements]
        if None in values:
            gone.append(name)
        values += (width - len(values)) * [0.0]
        return [_without(nulls) if value is None else value for value in values]

    def _hashed(
        self, row: Mapping[str, Any], bins: Mapping[str, bytes | None], problems: list[Problem],
        sources: list[Source] | None, single: list[int],
    ) -> list[tuple[int, float]]:  # fmt: skip
        """The hashed coordinates: categories, then lists of them, then texts in order. bins:
        numbers as categories. single: gets those of single categories, of a description with
        trees."""
        d, totals = self.description, dict[int, float]()
        texts = {**self._categories(row, problems), **bins}
        pairs = [(places, texts[name]) for name, places in self._alone if name in texts]
        if d.trees:
            single += [places.of(text) for places, text in pairs]
        for cross, places in zip(d.crosses, self._crossed, strict=True):
            if all(name in texts for name in cross):
                pairs.append((places, b"^".join(escaped(texts[name]) for name in cross)))
        counts = Counter(pairs)
        for column, places in zip(d.lists, self._lists, strict=True):
            try:
                elements = list_of(row[column.name], "a list of categories")
                elements = [None] if elements is None else elements
                counts.update((places, category_of(one, column.kind)) for one in elements)
            except BadValueError as error:
                problems.append(Problem(column.name, error))
        for (places, text), count in counts.items():
            at, x = places.of(text), float(count)
            totals[at] = totals.get(at, 0.0) + x
            if self._note is not None:
                self._note(places.column, at, text)
            if sources is not None:
                sources.append(Source(*places.named(text), at, x))
        for text_column, words in zip(d.texts, self._words, strict=True):
            try:
                self._text(row[text_column.name], text_column, words, totals, sources)
            except BadValueError as error:
                problems.append(Problem(text_column.name, error))
        if d.narrow and d.texts:
            return [(at, rounded(totals[at], "float32")) for at in sorted(totals)]
        return [(at, totals[at]) for at in sorted(totals)]

    def _categories(
        self, row: Mapping[str, Any], problems: list[Problem]
    ) -> dict[str, bytes | None]:
        """The bytes of each category and part of a date, by name."""
        d, categories = self.description, dict[str, bytes | None]()
        for name, kind, _ in d.categories:
            try:
                categories[name] = category_of(row[name], kind)
            except BadValueError as error:
                problems.append(Problem(name, error))
        for name, kind, parts in d.dates:
            try:
                moment = date_of(row[name], kind)
            except BadValueError as error:
                problems.append(Problem(name, error))
                continue
            for part in parts:
                text = None if moment is None else b"%d" % part_of(moment, part)
                categories[f"{name}.{part}"] = text
        return categories

    def _text(
        self, given: Any, column: Any, words: WordPlaces, totals: dict[int, float],
        sources: list[Source] | None,
    ) -> None:  # fmt: skip
        """Add a text's words to totals."""
        counts, each = dict[int, int](), dict[str, int]()
        for word in runs(text_of(given), column.ngrams):
            at = words.of(word)
            counts[at] = counts.get(at, 0) + 1
            if sources is not None:
                each[word] = each.get(word, 0) + 1
            if self._note is not None:
                self._note(column.name, at, word.encode())
        for at, count in counts.items():
            x = _counted(count, column.counts)
            totals[at] = totals[at] + x if at in totals else x
        if sources is not None:
            for word, count in each.items():
                # Words at one coordinate are counted together: each takes its share.
                at = words.of(word)
                share = _counted(counts[at], column.counts) * count / counts[at]
                sources.append(Source(f"{column.name}={word}", count, at, share))

    def _pairs(
        self, row: Mapping[str, Any], problems: list[Problem], sources: list[Source] | None
    ) -> list[tuple[int, float]]:
        """The coordinates of the pair of lists."""
        d = self.description
        pair = d.sparse
        assert pair is not None
        totals, indices, values = dict[int, float](), list[Any](), list[Any]()
        for name, into in ((pair.indices, indices), (pair.values, values)):
            try:
                into.extend(list_of(row[name]) or [])
            except BadValueError as error:
                problems.append(Problem(name, error))
                return []
        if len(indices) != len(values):
            there = f"{len(indices)} indices and {len(values)} values in {pair.values!r}"
            ragged = BadValueError("ragged", there, "as many values as indices")
            problems.append(Problem(pair.indices, ragged))
            return []
        for index, value in zip(indices, values, strict=True):
            try:
                at = d.sparse_offset + _index(index, pair.size)
            except BadValueError as error:
                problems.append(Problem(pair.indices, error))
                return []
            try:
                x = number_of(value, pair.kind, d)
                if x is None:
                    raise BadValueError("null", "a missing value in the list", "a number")
            except BadValueError as error:
                problems.append(Problem(pair.values, error))
                return []
            totals[at] = totals[at] + x if at in totals else x
            if sources is not None:
                sources.append(Source(f"{pair.indices}:{at - d.sparse_offset}", x, at, x))
        if len(totals) == len(indices):
            return sorted(totals.items())
        return self._summed(totals, problems)

    def _summed(self, totals: dict[int, float], problems: list[Problem]) -> list[tuple[int, float]]:
        d = self.description
        assert d.sparse is not None
        found = []
        for at in sorted(totals):
            x = rounded(totals[at], "float32") if d.narrow else totals[at]
            try:
                check_number(x, x, d)
            except BadValueError as error:
                text = "equal indices whose values sum to such a number"
                sums = BadValueError(error.reason, text, error.expected)
                problems.append(Problem(d.sparse.values, sums))
                return []
            found.append((at, x))
        return found


def _without(nulls: str) -> float:
    """What a missing number becomes; NaN if the model fills it in."""
    if nulls == "error":
        raise BadValueError(
            "null", "a missing value", "a number", "drop the row, or pass a number: the model was "
            'trained with data.nulls = "error"',
        )  # fmt: skip
    return math.nan if nulls == "mean" else 0.0


def _counted(count: int, counts: str) -> float:
    if counts == "presence":
        return 1.0
    return float(count) if counts == "count" else math.log1p(count)


def _index(given: Any, size: int) -> int:
    index = plain(given)
    if type(index) is not int:
        expected = f"whole numbers from 0 to {size - 1}"
        if index is None:
            raise BadValueError("null", "a missing value in the list", expected)
        raise BadValueError("", f"{given!r} ({type(given).__name__}) in the list", expected)
    if not 0 <= index < size:
        reason = "negative_index" if index < 0 else "index"
        raise BadValueError(reason, f"index {index}", f"0 … {size - 1} (size {size})")
    return index


def mappings_of(rows: Any) -> Sequence[Mapping[str, Any]]:
    """Rows as a sequence of mappings. Raises UsageError for anything else."""
    if isinstance(rows, Mapping):
        return [rows]
    if isinstance(rows, str | bytes) or not isinstance(rows, Iterable):
        raise UsageError(f"expected a list of dicts, got a {type(rows).__name__}")
    return rows if isinstance(rows, list | tuple) else list(rows)
