"""docs/rules: one page per rule and a table of all rules, generated from the rules' docstrings.

``python -m tests.support.rule_docs docs/rules`` writes them.
"""

from __future__ import annotations

import importlib
import inspect
import re
import sys
import textwrap
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from streamomd.core.wording import job_word
from streamomd.rules import all_rules
from streamomd.rules.contract import Rule, Slot
from streamomd.rules.params import Above, Between, Choice, Kind, kinds, needs
from streamomd.rules.ranges import ANY

MADE = (
    "<!-- Made by python -m tests.support.rule_docs docs/rules; "
    "edit the rule's docstring instead. -->"
)
NOTATION = """\
`streamomd list rules` prints this table with the
parameters; `streamomd train --rule`, without a value, helps to choose. Notation: x a row and y its
label, w the weights and u a comparator, g the derivative of the loss at the prediction, t the row's
number from 1, T the number of rows, nnz the non-zeros of a row, d the number of coordinates, theta
minus the sum of the gradients, f* the conjugate of f."""
PAPERS = """\
- P0: F. Orabona, K. Crammer, N. Cesa-Bianchi, A generalized online mirror descent with applications
  to classification and regression, 2015.
- P1: S. Ross, P. Mineiro, J. Langford, Normalized online learning, 2013.
- P2: S. Shalev-Shwartz, Y. Singer, Online learning meets optimization in the dual, 2006.
- P3: M. Qian, Notes on adaptive online learning.
- P4: J. Duchi, E. Hazan, Y. Singer, Adaptive subgradient methods for online learning and stochastic
  optimization, 2011."""
COST = re.compile(r"O\((?:[^()]|\([^()]*\))*\)")
MERGES = {
    "sum": "sum of increments",
    "mean": "mean",
    "max": "maximum",
    "min": "minimum",
    "coords": "recomputed over all coordinates",
}
IMPORTANCE = {
    "copies": "same as the row h times in sequence",
    "updates": "same as the row h times, as long as each copy updates",
    "loss": "h times the loss",
    "step": "h times the step in theta; everything else as for one row; 0 changes nothing",
    "cap": "h times the parameter C",
    "noise": "the parameter r divided by h",
    "presence": "every h above 0 has the same effect",
    "relative": "relative to the mean of the rows so far; a constant factor changes nothing",
}
EXTRA = {
    "matrix": "a symmetric matrix of all coordinates",
    "root": "a matrix of all coordinates and its root",
    "recent": "the last rows with their multipliers",
    "block": "the reference of numeric columns, and weights and matrices of the block",
}
EXTRA_MERGES = {
    "matrix": "sum of increments; the weights by A w",
    "root": "sum of increments of its square",
    "recent": "does not merge (no averaged mode)",
    "block": "in raw units",
}


def pages() -> dict[str, str]:
    """The text of every page by file name, for the rules of this package."""
    rules = [rule for rule in all_rules().values() if _module(rule) is not None]
    return {"README.md": _index(rules), **{f"{rule.name}.md": page(rule) for rule in rules}}


def page(rule: Rule) -> str:
    """A rule's page: a table of facts, its docstring, its parameters, its slots."""
    title, body = _docstring(rule)
    parts = [MADE, f"# `{rule.name}`: {_prose(title)}", _glance(rule), _markdown(body)]
    parts += ["## Parameters", _parameters(rule), "## State", _slots(rule)]
    if rule.certificate.accounted:
        parts += ["With `model.certificate = true`:", _slots(rule.certificate.accounted)]
    parts += ["All rules and papers: [README.md](README.md)."]
    return "\n\n".join(parts) + "\n"


def legal(kind: Kind) -> str:
    """The values that a parameter of this kind accepts.

    >>> legal(Above(0.0)), legal(Choice(("every", "once"))), legal(Between(1, 1e9, whole=True))
    ('above 0', 'every or once', 'whole, from 1 to 1e+09')
    """
    if isinstance(kind, Above):
        return f"{'at least' if kind.closed else 'above'} {kind.low:g}"
    if isinstance(kind, Choice):
        return ", ".join(kind.words[:-1]) + f" or {kind.words[-1]}"
    if isinstance(kind, Between):
        ends = f"from {kind.low:g} to {kind.high:g}" if kind.closed else ""
        ends = ends or f"between {kind.low:g} and {kind.high:g}"
        return f"whole, {ends}" if kind.whole else ends
    return "true or false"


def values(rule: Rule) -> str:
    """The feature values that a rule accepts; others make a bad row, ``out_of_range``.

    >>> from streamomd.rules import find_rule
    >>> values(find_rule("nag"))
    '0 or abs(x) from 1e-140 to 1e+140; in float32 slots 1e-18 to 1e+14'
    >>> values(find_rule("pa")), values(find_rule("ogd"))
    ('abs(x) up to 1e+100', 'any finite number')
    """
    (least, most), (least32, most32) = rule.row.range
    if rule.row.range == ANY:
        return "any finite number"
    if not least:
        return f"abs(x) up to {most:g}"
    narrow = f"in float32 slots {least32:g} to {most32:g}"
    return f"0 or abs(x) from {least:g} to {most:g}; {narrow}"


def cost(rule: Rule) -> str:
    """The cost of a row: the first one after "Cost:" in the docstring, else the lowest in it.

    >>> from streamomd.rules import find_rule
    >>> cost(find_rule("ogd"))
    'O(nnz)'
    """
    body = _docstring(rule)[1]
    _, marked, after = body.partition("Cost:")
    found = COST.findall(after if marked else body)
    if not marked:
        found.sort(key=lambda figure: ("nnz" not in figure, figure))
    return str(found[0]) if found else ""


def _module(rule: Rule) -> Any:
    """The module of this package that registers the rule; None for a plug-in."""
    try:
        module = importlib.import_module(f"streamomd.rules.{rule.name}")
    except ImportError:
        return None
    return module if getattr(module, "RULE", None) is rule else None


def _docstring(rule: Rule) -> tuple[str, str]:
    """A rule's title without the full stop, and the rest of its docstring."""
    doc: str = inspect.getdoc(_module(rule)) or rule.title
    title, _, body = doc.partition("\n\n")
    return " ".join(title.split()).removesuffix("."), body


def _markdown(body: str) -> str:
    """Markdown of a docstring: indented blocks are formulas, doctests are Python."""
    blocks = re.split(r"\n\s*\n", body.strip("\n"))
    return "\n\n".join(_fenced(blocks))


def _fenced(blocks: Sequence[str]) -> Iterator[str]:
    """Blocks of text; adjacent blocks of one kind share a fence."""
    fence, fenced = "", list[str]()
    for block in [*blocks, ""]:
        kind = "python" if block.startswith(">>>") else "text" if block.startswith("    ") else ""
        if fenced and kind != fence:
            yield f"```{fence}\n" + "\n\n".join(fenced) + "\n```"
            fenced = []
        fence = kind
        if kind:
            fenced.append(textwrap.dedent(block))
        elif block:
            yield _prose(block.replace("``", "`"))


def _prose(text: str) -> str:
    """Text with stars and angle brackets escaped, except in code."""
    parts = text.split("`")
    parts[::2] = [re.sub(r"(\*|<(?=[A-Za-z][\w-]*[ />]))", r"\\\1", part) for part in parts[::2]]
    return "`".join(parts)


def _parameters(rule: Rule) -> str:
    needed = needs(rule.hyper)
    rows = [
        [f"`{name}`", job_word(value), _legal_of(name, kind), needed.get(name, "")]
        for (name, kind), value in zip(
            kinds(rule.hyper).items(), rule.parse_params({}).values(), strict=True
        )
    ]
    head = ["parameter", "default", "accepts", "set it to"]
    width = len(head) if needed else len(head) - 1
    return _table(head[:width], [row[:width] for row in rows]) if rows else "None."


def _legal_of(name: str, kind: Kind) -> str:
    return legal(kind) + ("; 0: the loss's own Lipschitz constant" if name == "L" else "")


def _slots(rule: Rule) -> str:
    places = {
        "coordinate and learner": rule.own_slots,
        "coordinate": rule.shared_slots,
        "learner": [slot for slot in rule.total_slots if not slot.name.startswith("top.")],
    }
    rows = [_slot(slot, place) for place, slots in places.items() for slot in slots]
    if rule.storage.kind in EXTRA:
        rows.append([EXTRA[rule.storage.kind], "learner", "", EXTRA_MERGES[rule.storage.kind]])
    return _table(["slot", "one per", "start", "merges by"], rows)


def _slot(slot: Slot, place: str) -> list[str]:
    return [f"`{slot.name}`", place, f"{slot.start:g}", MERGES[slot.merge]]


def _glance(rule: Rule) -> str:
    claims, reason = rule.certificate.claims, rule.certificate.reason
    some = f", with loss {', '.join(rule.certificate.losses)}" if rule.certificate.losses else ""
    proven = f"yes{some}: `streamomd certify`" if claims else f"none: {reason}"
    return _table(
        ["", ""],
        [
            ["cost of a row", cost(rule)],
            ["certificate", proven],
            ["losses", ", ".join(rule.losses.names) or "all"],
            ["modes", ", ".join(rule.modes)],
            ["feature values", values(rule)],
            ["importance h", IMPORTANCE[rule.row.importance]],
            *([["state version", str(rule.state.version)]] if rule.state.version > 1 else []),
            ["source", rule.source],
        ],
    )


def _index(rules: Sequence[Rule]) -> str:
    head = ["rule", "method", "cost of a row", "certificate", "losses", "source"]
    rows = [
        [
            f"[{rule.name}]({rule.name}.md)",
            rule.title,
            cost(rule),
            "yes" if rule.certificate.claims else "no",
            ", ".join(rule.losses.names) or "all",
            rule.source,
        ]
        for rule in rules
    ]
    count = f"{len(rules)} rules. {NOTATION}"
    return "\n\n".join([MADE, "# Rules", count, _table(head, rows), "## Papers", PAPERS]) + "\n"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(
        "| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines
    )


def main(folder: str = "docs/rules") -> None:
    """Write the pages to a folder."""
    Path(folder).mkdir(parents=True, exist_ok=True)
    for name, text in pages().items():
        (Path(folder) / name).write_text(text, "utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
