"""A job proposed for a data set, with the reason for each choice; see ``streamomd init``."""

from __future__ import annotations

import datetime
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from streamomd.config.job_file import Proposal, short_names
from streamomd.config.values import join_list
from streamomd.core.errors import UsageError
from streamomd.core.urls import printable
from streamomd.core.wording import counted
from streamomd.features.arrow_types import DATES, MEASURED, SCALARS, is_text_list
from streamomd.features.infer_plan import nearest
from streamomd.features.labels import targets
from streamomd.sources.column_facts import ColumnFacts, DataFacts
from streamomd.sources.text.csv_source import MISSING, is_number

LABELS = (
    "y", "label", "labels", "target", "class", "outcome", "response", "churn", "churned",
    "converted", "conversion", "clicked", "click", "fraud", "default", "survived", "species",
    "diagnosis",
)  # fmt: skip
"""Names of label columns, the likeliest first; "is_" before one is ignored."""
NEGATIVE = ("no", "nein", "non", "nee", "nej", "nie", "nei", "false", "falsch", "off", "negative")
"""Lower-case labels of the negative class."""
LEAST_ROWS = 20
"""In fewer rows a column without equal values may be anything."""
LEAST_WORDS = 4.0
LARGEST_COUNT = 1 << 40
"""Larger whole numbers, all different, are taken for keys."""
_IDS = re.compile(r"(^|[_\- .])(id|ids|uuid|guid)$|^id[_\- ]|[a-z0-9](Id|ID|Uuid|UUID)$", re.A)
_COUNTERS = re.compile(r"(unnamed: ?\d+|index|row_?(id|number|num|no)|__index_level_\d+__)", re.I)


def suggest_label(facts: DataFacts) -> tuple[str, str]:
    """The column to predict, and the reason. Raises UsageError if there is none."""
    if len(facts.columns) < 2:
        name = printable(facts.columns[0].name) if facts.columns else ""
        raise UsageError(
            f"the data have {counted(len(facts.columns), 'column')} ({name!r}), and a job needs a "
            "label and a feature; for text, is the delimiter another one (--delimiter)?"
        )
    able = [
        column for column in facts.columns
        if column.family in (*SCALARS, "string") and column.distinct > 1 and not _is_text(column)
        and not column.of_directory
    ]  # fmt: skip
    # Of two that are named alike, the one that more rows have, then the first.
    named: dict[str, str] = {}
    for column in sorted(able, key=lambda one: one.missing):
        named.setdefault(column.name.strip().lower().removeprefix("is_"), column.name)
    for name in LABELS:
        if name in named:
            return named[name], "named like a label"
    others = [column for column in able if not _id_reason(column)]
    if not others:
        raise UsageError(
            "no column can be the label: a label is a number, a boolean or a short text of two or "
            "more values; name one with --label COLUMN"
        )
    # A label that most rows lack would leave out most rows.
    there = [column for column in others if 2 * column.missing <= column.rows]
    return (there or others)[-1].name, "the last column that can be a label"


NUMBER_WITH_COMMA = re.compile(r"[-+]?\d+(,\d+)?")
DATE_FORMATS = ("%d.%m.%Y", "%d/%m/%Y", "%d-%m-%Y", "%m/%d/%Y")
TIMES = ("", " %H:%M", " %H:%M:%S")


def suggest_csv(facts: DataFacts, given: Mapping[str, Any], label: str | None) -> dict[str, Any]:
    """Options of CSV that make numbers and dates of columns that are text without them, and nulls
    of codes for missing values; not those that were given."""
    if "header" not in given and _first_line_is_values(facts):
        return {"header": False}
    found: dict[str, Any] = {}
    texts = {column.name: [str(one) for one in column.values] for column in facts.columns
             if column.family == "string"}  # fmt: skip
    if any(map(_have_commas, texts.values())):
        found["decimal"] = ","
    formats = [_date_format(values) for name, values in texts.items() if name != label]
    if known := next(filter(None, formats), ""):
        found["date_format"] = known
    if codes := _global_codes(facts, label):
        found["null_values"] = join_list([*MISSING, *codes])
    return {key: value for key, value in found.items() if key not in given}


def _first_line_is_values(facts: DataFacts) -> bool:
    """Whether the names of the columns are values: numbers of numbers, and texts that their columns
    have. Whole numbers alone may be names, such as years."""
    given = [column for column in facts.columns if not column.of_directory]
    numbers = [column for column in given if column.family in MEASURED]
    texts = [column for column in given if column.family == "string"]
    sure = any("." in column.name for column in numbers) or texts
    return (
        bool(sure)
        and len(numbers) + len(texts) == len(given)
        and all(
            is_number(column.name) if column.family in MEASURED else column.name in column.values
            for column in given
        )
    )


def _have_commas(values: Sequence[str]) -> bool:
    numbers = all(NUMBER_WITH_COMMA.fullmatch(one.strip()) for one in values)
    return numbers and any("," in one for one in values)


def _date_format(values: Sequence[str]) -> str:
    """The format that reads all of these texts; "" if there is none, or if both orders of day and
    month do."""
    fitting = [form + time for form in DATE_FORMATS for time in TIMES
               if values and all(_is_date(one, form + time) for one in values)]  # fmt: skip
    return fitting[0] if len(fitting) == 1 else ""


def _is_date(text: str, form: str) -> bool:
    try:
        datetime.datetime.strptime(text, form)
    except ValueError:
        return False
    return True


def _global_codes(facts: DataFacts, label: str | None) -> list[str]:
    """The texts of codes that no column has among its other numbers: null_values is of all."""
    numbers = [column for column in facts.columns if column.low <= column.high]
    codes = sorted({one for column in numbers if column.name != label for one in column.codes})
    alone = [one for one in codes
             if not any(column.low <= one <= column.high for column in numbers)]  # fmt: skip
    return [text for one in alone for text in (f"{one:.0f}", f"{one:.1f}")]


def require_column(facts: DataFacts, name: str) -> ColumnFacts:
    """The column of that name. Raises UsageError with a similar name, or all of them."""
    names = [one.name for one in facts.columns]
    if name not in names:
        raise UsageError(f"no column {printable(name)!r}; {printable(nearest(name, names))}")
    return facts.columns[names.index(name)]


def without(facts: DataFacts, names: Sequence[str]) -> DataFacts:
    """Without columns. Raises UsageError as ``require_column``."""
    left = [require_column(facts, name).name for name in names]
    return replace(facts, columns=tuple(one for one in facts.columns if one.name not in left))


def is_task_unclear(label: ColumnFacts) -> bool:
    """Whether a label is of a few whole numbers: classes or amounts."""
    numbers = {one for one in label.values if isinstance(one, int | float)}
    return label.family in ("integer", "float") and len(numbers) > 2 and not targets(numbers)


def propose(
    facts: DataFacts, shards: Sequence[str], *, label: str, label_reason: str, task: str,
    checkpoint: str, ignore: Sequence[str] = (),
) -> Proposal:  # fmt: skip
    """The job of a label. task: "auto" unless it was asked for. ignore: columns to leave out."""
    asked = [(name, "as asked for") for name in ignore]
    facts = without(facts, ignore)
    target = require_column(facts, label)
    pair = {column.is_pair: column.name for column in facts.columns if column.is_pair}
    counts = [column.is_pair for column in facts.columns if column.is_pair]
    sparse = (pair["indices"], pair["values"]) if sorted(counts) == ["indices", "values"] else None
    features = [column for column in facts.columns if column.name not in (label, *(sparse or ()))]
    names = [column.name for column in features]
    weight = "weight" if sparse and "weight" in names else ""
    roles: dict[str, list[tuple[str, str]]] = {"ignore": asked} if asked else {}
    plain: list[ColumnFacts] = []
    for column in features:
        if weight and column.name == weight:
            continue
        role, reason = _role(column, facts)
        if role:
            roles.setdefault(role, []).append((column.name, reason))
        else:
            plain.append(column)
    chosen = {key: tuple(pairs) for key, pairs in roles.items()}
    if not (plain or sparse or {*chosen} - {"ignore"}):
        reasons = "; ".join(f"{printable(name)!r}: {why}" for name, why in chosen["ignore"][:9])
        raise UsageError(f"no feature is left besides the label {printable(label)!r}: {reasons}")
    ids = {column.name: f"named like an identifier, of {column.distinct} values"
           for column in plain if _is_few(column)}  # fmt: skip
    numbers = [column for column in plain if _is_numeric(column) and column.name not in ids]
    others = [column for column in plain if column.name in ids or not _is_numeric(column)]
    return Proposal(
        tuple(shards), checkpoint, label, label_reason, weight=weight, task=task, sparse=sparse,
        ignore=chosen.get("ignore", ()), dates=chosen.get("dates", ()),
        text=chosen.get("text", ()), vectors=chosen.get("vectors", ()),
        listed=bool(sparse or "vectors" in chosen or ids),
        numeric=tuple(column.name for column in numbers),
        hashed=tuple(column.name for column in others),
        hashed_reasons=ids,
        codes=tuple((column.name, " and ".join(f"{one:g}" for one in column.codes))
                    for column in numbers if column.codes),
        nulls=tuple((column.name, _missing(column, facts)) for column in numbers if column.missing),
        skip_reason=_skipped(target, numbers, facts),
    )  # fmt: skip


def with_task_reason(proposal: Proposal, classes: Sequence[Any], label: ColumnFacts) -> Proposal:
    """With the task that the labels have, as a run finds it. classes: () in regression."""
    if proposal.task != "auto":
        reason = "as asked for; auto decides by the labels"
    elif classes:
        reason = f"classification: {len(classes)} classes"
    else:
        reason = f"regression: {targets(label.values) or 'the labels are numbers'}"
    return replace(proposal, task_reason=reason)


def negative_first(label: ColumnFacts) -> tuple[str, ...]:
    """Two classes whose sorted order has the negative one last, as "ja" and "nein"; else ()."""
    words = sorted(str(one) for one in label.values) if label.family == "string" else []
    if len(words) != 2 or label.distinct != 2 or words[1].strip().lower() not in NEGATIVE:
        return ()
    return () if words[0].strip().lower() in NEGATIVE else (words[1], words[0])


def _role(one: ColumnFacts, facts: DataFacts) -> tuple[str, str]:
    """The key that a feature is named in, and why; "" if its type says what it is."""
    if is_text_list(one.family):
        return "", ""
    where = "" if facts.seen == facts.rows else f" in the {facts.seen:,} rows looked at"
    unread = one.family not in (*MEASURED, *DATES, "string") and not one.is_vector
    constant = one.distinct == 1 and not one.missing and not one.of_directory
    cases = (
        (one.is_vector, "vectors", one.type),
        (
            one.family in DATES and not constant,
            "dates",
            f"{one.family}: year, month, weekday{'' if one.family == 'date' else ', hour'}",
        ),
        (unread, "ignore", f"{one.type} is no number, text or date"),
        (one.distinct == 0, "ignore", f"no values{where}"),
        (
            not one.name and one.missing > 0,
            "ignore",
            "data.nulls cannot name a column without name",
        ),
        # Later rows may have others: in rows ordered by time many columns begin with one value.
        (constant and (not where or one.family in DATES), "ignore", f"one value{where}"),
        (bool(_id_reason(one)), "ignore", _id_reason(one)),
        (_is_text(one), "text", f"{one.words:.0f} words a row, {one.distinct:,} texts{where}"),
        (one.family == "string" and _all_differ(one), "ignore", f"no two values are equal{where}"),
        (_nearly_differ(one), "ignore", f"nearly every row has its own value{where}"),
    )
    return next(((role, reason) for holds, role, reason in cases if holds), ("", ""))


def _id_reason(one: ColumnFacts) -> str:
    """Why a column is taken for a key of the rows; "" if it is not."""
    if one.family in ("integer", "string") and one.distinct > 2 and not _is_few(one):
        name = one.name.strip()
        if _is_named_id(one) or _COUNTERS.fullmatch(name):
            return "named like an identifier"
    if one.family != "integer" or not _all_differ(one):
        return ""
    if one.consecutive:
        return "counts the rows"
    huge = all(abs(number) >= LARGEST_COUNT for number in one.values)
    return "large whole numbers, no two equal" if huge else ""


def _is_named_id(one: ColumnFacts) -> bool:
    name = one.name.strip()
    return bool(_IDS.search(name) or _IDS.search(name.lower()))


def _is_few(one: ColumnFacts) -> bool:
    """Whether whole numbers that are named like identifiers are of groups of rows, as those of
    shops: categories."""
    few = one.distinct > 2 and LEAST_ROWS * one.distinct <= one.rows - one.missing
    return one.family == "integer" and _is_named_id(one) and few


def _all_differ(one: ColumnFacts) -> bool:
    return one.rows >= LEAST_ROWS and one.distinct == one.rows


def _nearly_differ(one: ColumnFacts) -> bool:
    """Whether a category of this text would be learned from one row or two."""
    present = one.rows - one.missing
    return one.family == "string" and present >= LEAST_ROWS and 10 * one.distinct > 9 * present


def _is_text(one: ColumnFacts) -> bool:
    present = max(1, one.rows - one.missing)
    long = one.words >= LEAST_WORDS and 2 * one.distinct > present
    return one.family == "string" and (long or (one.words >= 2.0 and _nearly_differ(one)))


def _is_numeric(one: ColumnFacts) -> bool:
    return one.family in MEASURED and not one.is_dictionary


def _missing(one: ColumnFacts, facts: DataFacts) -> str:
    least = "at least " if facts.seen < facts.rows else ""
    return f"{least}{one.missing:,} of {facts.rows:,} are missing"


def _skipped(target: ColumnFacts, numbers: Sequence[ColumnFacts], facts: DataFacts) -> str:
    """Why bad rows are skipped; "" if they are errors, as by default."""
    if target.missing + target.infinite:
        more = " or more" if facts.seen < facts.rows else ""
        return f"{counted(target.missing + target.infinite, 'row')}{more} without a label"
    infinite = [(one.name, "") for one in numbers if one.infinite]
    return f"infinite numbers in {short_names(infinite)}" if infinite else ""
