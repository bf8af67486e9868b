"""Delimited text: dialect and column types are inferred once, from the start, and then fixed."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from streamomd.core.errors import DataError, SchemaError, UsageError
from streamomd.core.message import Message
from streamomd.core.urls import printable, typed
from streamomd.features.infer_plan import twice
from streamomd.sources.text.text_source import Text, arrow_type, check_same_columns, short, shorts

DELIMITERS = ("\t", ";", "|", ",", ", ")
_SNIFFED_LINES = 20
_QUOTED = re.compile(rb'"[^"\n]*"')


def sniff(head: bytes) -> str:
    """The delimiter of text that starts with ``head``: "\\t", ";", "|", "," or ", ".

    It stands equally often in each of the first lines that are not blank, outside quotes; of
    several, the most frequent. If none does, the most frequent of the first line.

    >>> sniff(b'a;b\\n1,5;2\\n'), sniff(b'73, no, 0\\n1, yes, 2\\n'), sniff(b'x\\n1\\n')
    (';', ', ', ',')
    """
    # The last line may be cut off.
    lines = head.lstrip().split(b"\n", _SNIFFED_LINES + 1)[:_SNIFFED_LINES]
    lines = [_QUOTED.sub(b"", line) for line in lines if line.strip()]
    counts = {one: [line.count(one.encode()) for line in lines] for one in ("\t", ";", "|", ",")}
    steady = {one: count[0] for one, count in counts.items() if len(set(count)) == 1}
    chosen = _most(steady) or _most({one: count[0] for one, count in counts.items()}) or ","
    is_comma = chosen == "," and b"," in lines[0]
    is_spaced = is_comma and not re.search(rb",[^ ]|,$", lines[0].rstrip(b"\r"))
    return ", " if is_spaced else chosen


def _most(counts: dict[str, int]) -> str:
    best = max(counts, key=lambda one: counts[one], default="")
    return best if best and counts[best] else ""


def without_spaces(data: bytes, *, quotes: bool, inside: bool = False) -> bytes:
    """``, `` as ``,`` outside quotes; ``inside``: whether the text begins inside them.

    >>> without_spaces(b'1, "a, b", 2', quotes=True)
    b'1,"a, b",2'
    """
    if not quotes:
        return data.replace(b", ", b",")
    parts = data.split(b'"')
    for place in range(int(inside), len(parts), 2):
        parts[place] = parts[place].replace(b", ", b",")
    return b'"'.join(parts)


class CsvStream:
    """The bytes of a text for Arrow to read: its head again, then the rest.

    Raises DataError where the text ends inside quotes, which Arrow would close by itself.
    """

    closed = False

    def __init__(self, head: bytes, text: Text, delimiter: str, *, quotes: bool) -> None:
        self._head, self._text = memoryview(head), text
        self._spaced, self._quotes = len(delimiter) == 2, quotes
        self._inside, self._held = False, b""
        # A comma may have its space in the next piece; and Arrow loses a newline that begins a
        # piece after one that ends in a carriage return, even inside quotes.
        self._unsure = (b"\r", b",")[: 1 + self._spaced]

    def read(self, size: int = -1) -> bytes:
        """Up to ``size`` bytes; none at the end only."""
        while raw := self._next(max(1, size - len(self._held))):
            data = self._held + raw
            self._held = data[-1:] if data.endswith(self._unsure) else b""
            data = data[: len(data) - len(self._held)]
            inside = self._inside
            if self._quotes:
                self._inside ^= bool(data.count(b'"') % 2)
            if self._spaced:
                data = without_spaces(data, quotes=self._quotes, inside=inside)
            if data:
                return data
        return self._end()

    def _next(self, size: int) -> bytes:
        piece, self._head = bytes(self._head[:size]), self._head[size:]
        # The head's last bytes alone may hold no line end: Arrow takes that for a record too long.
        return piece + self._text.read(size - len(piece)) if len(piece) < size else piece

    def _end(self) -> bytes:
        if self._inside:
            raise DataError(
                f"{self._text.name} ends inside quotes: is it truncated, or a quote not closed? "
                "Fix it, or pass quotes=False if quotes are ordinary characters"
            )
        held, self._held = self._held, b""
        return held

    def readable(self) -> bool:
        """Called by Arrow."""
        return True

    def close(self) -> None:
        """The text is closed by who opened it."""


MISSING = ("NA", "N/A", "n/a", "#N/A", "NaN", "nan", "NULL", "null", "None")
HEAD, BLOCK = 16 << 20, 4 << 20
_CONVERSION = re.compile(
    r"In CSV column #(\d+): (?:Row #(\d+): )?CSV conversion error to (.+?): (.*)", re.DOTALL
)
_RAGGED = re.compile(
    r"CSV parse error: (?:Row #(\d+): )?Expected (\d+) columns, got (\d+)(?:: (.*))?", re.DOTALL
)
_NUMBER = r"^\s*[-+]?(\d+{mark}?\d*|{mark}\d+)([eE][-+]?\d+)?\s*$"
_WITH_COMMA = r"^\s*[-+]?\d+,\d+\s*$"
MOST_WORDS = 5
NO_HEADER = "no_header"
"""Code of the error where the first line probably has values."""
_INVALID = re.compile(r"invalid value '(.*)'", re.DOTALL)


def is_number(text: str) -> bool:
    """Whether a text is a number as CSV files have them."""
    return bool(re.match(_NUMBER.replace("{mark}", "[.,]"), text))


class CsvReader:
    """csv as one column each; whole numbers are int64, other numbers float64.

    delimiter: one character, "\\t" or "tab", or ", " for a comma and a space; "" or None: found
    from the first lines among comma, semicolon, tab, "|" and ", ". header: whether the first line
    names the columns; else they are ``column_names``, or f0, f1, …. types: {column: Arrow type
    name} in place of what is inferred from the first 16 MiB of the first file; whole numbers with
    leading zeros, such as 01234, are text. null_values: spellings of a missing value besides the
    empty one; None: ``MISSING``. quotes: False where a quote is an ordinary character. decimal: ","
    for numbers such as 1,5. date_format: of dates and times, as strptime has it, besides ISO 8601.
    """

    size: int | None = None
    size_is_final = True

    def __init__(
        self,
        *,
        delimiter: str | None = None,
        header: bool = True,
        column_names: Sequence[str] = (),
        types: Mapping[str, str] | None = None,
        null_values: Sequence[str] | None = None,
        quotes: bool = True,
        decimal: str = ".",
        date_format: str = "",
    ) -> None:
        if decimal not in (".", ","):
            raise UsageError(f'decimal must be "." or ",", not {decimal!r}')
        delimiter = "\t" if delimiter in ("\\t", "tab") else delimiter  # as typed in a shell
        if delimiter and delimiter not in DELIMITERS and len(delimiter.encode()) != 1:
            raise UsageError(f'delimiter must be one ASCII character or ", ", not {delimiter!r}')
        if header and column_names:
            raise UsageError("column_names are for text without a header: pass header=False too")
        self._delimiter, self._header = delimiter or "", header
        self._names = list(column_names)
        self._types = {name: arrow_type(name, kind) for name, kind in (types or {}).items()}
        self._null_values = ["", *(MISSING if null_values is None else null_values)]
        self._quotes, self._decimal, self._date_format = quotes, decimal, date_format
        self.schema: pa.Schema = pa.schema([])
        self.almost_numbers: dict[str, tuple[str, ...]] = {}
        self.known: pa.Schema = pa.schema([])
        """Types of columns, if they are there, whatever their values look like, unless ``types``
        has theirs."""
        self.notes: list[str] = []
        """What was chosen that a user may want otherwise."""

    def batches(self, text: Text) -> Iterator[pa.RecordBatch]:
        """The rows of one file; DataError names file, line, column, value and remedy."""
        head = text.read(HEAD)
        if not head.strip():
            wanted = "a header" if self._header else "rows"
            raise DataError(f"{text.name} is empty: expected {wanted}")
        delimiter = self._delimiter or sniff(head)
        own = self._inferred(head, delimiter, text.name)
        if not self.schema.names:
            self.schema = self._fixed(own, text.name)
        check_same_columns(own, self.schema, text.name)
        stream = CsvStream(head, text, delimiter, quotes=self._quotes)
        types = {field.name: field.type for field in self.schema}
        try:
            for batch in self._open(stream, delimiter, BLOCK, types):
                if batch.num_rows:
                    yield batch.select(self.schema.names)
        except pa.ArrowInvalid as error:
            raise _data_error(error, text.name, own.names) from None

    def _inferred(self, head: bytes, delimiter: str, name: str) -> pa.Schema:
        """Names and types of the first file's head; of the header alone in later files."""
        start = without_spaces(head, quotes=self._quotes) if len(delimiter) == 2 else head
        # One byte short of the head: its last record, cut anywhere, is then left for later.
        block = len(start) - 1 if len(head) == HEAD else HEAD
        known = {field.name: field.type for field in self.known}
        types = {field.name: field.type for field in self.schema} or {**known, **self._types}
        try:
            opened = self._open(pa.BufferReader(start), delimiter, block, types)
            opened.schema.names  # noqa: B018 (decoded on access)
        except UnicodeDecodeError as error:
            byte = error.object[error.start]
            raise DataError(
                f"{name}, line 1: the header is not UTF-8 (byte 0x{byte:02x} in "
                f"{short(error.object.decode('latin-1'))}): pass its encoding, for example "
                "--encoding latin-1"
            ) from None
        except pa.ArrowInvalid as error:
            columns = self._names or self._header_names(start, delimiter, block)
            raise _data_error(error, name, columns) from None
        if not self.schema.names:
            self._look_for_numbers(opened)
            self._note_delimiter(delimiter, opened.schema, head)
            return self._keep_zeros(start, delimiter, block, opened.schema, name)
        self._note_lost_zeros(self._codes(start, delimiter, block, self.schema), name)
        return opened.schema

    def _header_names(self, start: Any, delimiter: str, block: int) -> list[str]:
        """The columns of a head in which a value does not fit its type; none if no types do."""
        try:
            opened = self._open(pa.BufferReader(start), delimiter, block, {})
            return [*opened.schema.names]
        except (pa.ArrowInvalid, UnicodeDecodeError):
            return []

    def _note_delimiter(self, delimiter: str, schema: pa.Schema, head: bytes) -> None:
        shown = {"\t": "a tab", ", ": "a comma and a space"}.get(delimiter, repr(delimiter))
        if not self._delimiter and delimiter not in (",", ", "):
            self.notes.append(f"the delimiter is {shown} (another: --delimiter)")
        if len(schema.names) == 1:
            line = printable(head.lstrip().split(b"\n", 1)[0][:60].decode("utf-8", "replace"))
            self.notes.append(
                f"only one column, {line!r}: is the delimiter wrong? Pass --delimiter"
            )

    def _keep_zeros(
        self, start: Any, delimiter: str, block: int, inferred: pa.Schema, name: str
    ) -> pa.Schema:
        """The schema with text for whole numbers of which one has a leading zero."""
        found = self._codes(start, delimiter, block, inferred)
        self._note_lost_zeros([one for one in found if one in self.known.names], name)
        codes = [one for one in found if one not in self.known.names]
        if codes:
            self.notes.append(
                f"{shorts(codes)}: numbers with leading zeros, such as codes, are text "
                f"(as numbers: --type {printable(codes[0])}=int64)"
            )
        return pa.schema(
            one.with_type(pa.string()) if one.name in codes else one for one in inferred
        )

    def _note_lost_zeros(self, codes: Sequence[str], name: str) -> None:
        if codes:
            self.notes.append(
                f"{name}: {shorts(codes)} lose leading zeros, since the first file has numbers "
                f"without (as text: --type {printable(codes[0])}=string)"
            )

    def _codes(self, start: Any, delimiter: str, block: int, schema: pa.Schema) -> list[str]:
        """The columns of whole numbers of which one has a leading zero."""
        numbers = [one.name for one in schema if pa.types.is_integer(one.type)]
        whole = [name for name in numbers if name not in self._types]
        if not whole or twice(schema.names) or b"0" not in start:
            return []
        texts = {one.name: one.type for one in schema} | dict.fromkeys(whole, pa.string())
        try:
            batch = self._open(pa.BufferReader(start), delimiter, block, texts).read_next_batch()
        except (pa.ArrowInvalid, StopIteration):
            return []  # Reading the rows reports it, with the line.
        return [
            name for name in whole
            if name in batch.schema.names
            and pc.any(pc.match_substring_regex(batch.column(name), r"^[-+]?0\d")).as_py()
        ]  # fmt: skip

    def _look_for_numbers(self, opened: Any) -> None:
        """Remember the columns of text that are mostly numbers, and words that made them text."""
        texts = [one.name for one in opened.schema if pa.types.is_string(one.type)]
        guessed = [name for name in texts if name not in {*self._types, *self.known.names}]
        if not guessed or twice(opened.schema.names):
            return
        try:
            batch = opened.read_next_batch()
        except (pa.ArrowInvalid, StopIteration):
            return  # Reading the rows reports it, with the line.
        commas, written = [], _NUMBER.replace("{mark}", re.escape(self._decimal))
        for name in guessed:
            values = batch.column(name).drop_null()
            with_comma = pc.match_substring_regex(values, _WITH_COMMA)
            if self._decimal == "." and 2 * (pc.sum(with_comma).as_py() or 0) > len(values):
                commas.append(name)
                continue
            number = pc.match_substring_regex(values, written)
            if 2 * (pc.sum(number).as_py() or 0) > len(values):
                words = values.filter(pc.invert(number)).unique().to_pylist()
                self.almost_numbers[name] = tuple(words[:MOST_WORDS])
        if commas:
            self.notes.append(
                f"{shorts(commas)}: numbers with a comma are text "
                "(if it is the decimal mark: --decimal ,)"
            )

    def _open(self, file: Any, delimiter: str, block: int, types: Mapping[str, Any]) -> Any:
        # Without threads an error names the row; writing takes longer than reading anyway.
        return pa.csv.open_csv(
            file,
            read_options=pa.csv.ReadOptions(
                block_size=block,
                use_threads=False,
                column_names=self._names or None,
                autogenerate_column_names=not self._header and not self._names,
            ),
            parse_options=pa.csv.ParseOptions(
                delimiter=delimiter[0],
                quote_char='"' if self._quotes else False,
                newlines_in_values=self._quotes,
            ),
            convert_options=pa.csv.ConvertOptions(
                column_types=types,
                null_values=self._null_values,
                decimal_point=self._decimal,
                timestamp_parsers=[self._date_format, pa.csv.ISO8601] if self._date_format else [],
                strings_can_be_null=True,
                quoted_strings_can_be_null=False,
            ),
        )

    def _fixed(self, inferred: pa.Schema, name: str) -> pa.Schema:
        if again := twice(inferred.names):
            form = "{shard} has several columns named {found}: rename them"
            code = "repeated_column"
            if self._header and is_number(min(again)):
                form += ", or pass --no-header if the first line has values"
                code = NO_HEADER
            raise SchemaError(
                Message(code, form, shard=name, column=min(again), found=short(min(again)))
            )
        if unknown := sorted(set(self._types) - set(inferred.names)):
            raise UsageError(f"types names {short(unknown[0])}, which is not a column of {name}")
        return pa.schema([self._field(field, name) for field in inferred])

    def _field(self, field: pa.Field, name: str) -> pa.Field:
        if field.name in self._types:
            return field
        if pa.types.is_binary(field.type):
            binary = f"--type={field.name}=binary"
            raise DataError(
                f"{name}: column {short(field.name)} is not UTF-8: pass its encoding, "
                f"for example --encoding latin-1; or, for bytes, {typed(binary)}"
            )
        # Nothing but missing values so far: most likely numbers, and text is reported.
        return field.with_type(pa.float64()) if pa.types.is_null(field.type) else field


def _data_error(error: pa.ArrowInvalid, name: str, columns: Sequence[str]) -> DataError:
    """Arrow's error with file, line, column, value and remedy."""
    text = str(error)
    if match := _RAGGED.match(text):
        row, expected, got, line = match.groups()
        return DataError(
            f"{name}, {_line(row)}: expected {expected} fields, got {got}: {short(line or '')}; "
            "fix the line, or pass --delimiter or --no-quotes (train: --set data.csv.quotes=false; "
            "in Python delimiter, quotes)"
        )
    if match := _CONVERSION.match(text):
        number, row, kind, problem = match.groups()
        column = columns[int(number)] if int(number) < len(columns) else f"#{number}"
        value = _INVALID.match(problem)
        got = short(value[1]) if value else printable(problem)
        return DataError(
            f"{name}, {_line(row)}: column {short(column)}: expected {kind} as in the lines "
            f"before, got {got}; pass --type {printable(column)}=string (or another type), "
            "or --null if it means a missing value (train: --set data.csv.null_values=…; in Python "
            "types, null_values)"
        )
    if "straddl" in text:
        return DataError(
            f"{name} holds a record longer than {BLOCK >> 20} MiB: a quote that is not closed? "
            "Fix it, or pass quotes=False"
        )
    return DataError(f"{name} is not readable csv text: {printable(text[:200])}")


def _line(row: str | None) -> str:
    """Arrow counts records: lines, but for blank ones and those inside quotes."""
    return f"about line {row}" if row else "a line"
