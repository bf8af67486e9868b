"""The format of a text file by its name."""

from __future__ import annotations

SUFFIXES = {
    ".csv": "csv", ".tsv": "csv", ".jsonl": "jsonl", ".ndjson": "jsonl",
    ".arrows": "arrows",
}  # fmt: skip
"""Formats of which every file with the suffix is one."""
OTHERS = {".txt": "csv", ".data": "csv", ".svm": "svmlight", ".libsvm": "svmlight", ".vw": "vw"}
"""Formats that ``convert`` assumes without --from."""
PACKED = (".gz", ".bz2", ".xz")


def text_format(name: str) -> str:
    """ "csv", "jsonl" or "arrows" for a name of what is converted, packed or not; "" for others.

    >>> text_format("a/rows.csv.gz"), text_format("a.jsonl"), text_format("a.parquet")
    ('csv', 'jsonl', '')
    """
    return SUFFIXES.get(_suffix(name), "")


def assumed_format(name: str) -> str:
    """The format that ``convert`` reads a file as; "" if its name does not say.

    >>> assumed_format("rows.svm"), assumed_format("rows.csv.xz"), assumed_format("rows")
    ('svmlight', 'csv', '')
    """
    return {**SUFFIXES, **OTHERS}.get(_suffix(name), "")


def ending(name: str) -> str:
    """The end of a name that says its format and packing.

    >>> ending("a/my.rows.csv.gz"), ending("a.parquet")
    ('.csv.gz', '.parquet')
    """
    plain = name
    for packed in PACKED:
        plain = plain.removesuffix(packed)
    return name[plain.rfind(".") :]


def _suffix(name: str) -> str:
    plain = name.lower()
    for packed in PACKED:
        plain = plain.removesuffix(packed)
    dot = plain.rfind(".")
    return plain[dot:] if dot > plain.rfind("/") else ""
