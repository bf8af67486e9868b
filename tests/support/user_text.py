"""Text that users read, with its lines: Markdown without code, and messages, help and docstrings of
Python source."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from markdown_it import MarkdownIt
from markdown_it.token import Token

MARKDOWN = MarkdownIt("commonmark").enable("table")
PRINTING = {"note", "print", "echo", "warn", "warning", "error", "info", "debug", "say"}
"""Names of functions whose string arguments are printed or logged."""
SHOWN = {"help", "short_help", "epilog", "metavar", "title", "what", "description"}
"""Keyword arguments that command help and listings show."""
CODE = re.compile(r"``.+?``|`[^`]+`", re.S)

Line = tuple[int, str]


def markdown_lines(text: str) -> Iterator[Line]:
    """The prose of a page: without code, HTML comments and addresses of links."""
    line = 1
    for token in MARKDOWN.parse(text):
        line = token.map[0] + 1 if token.map else line  # cells of a table have their row's line
        if token.type == "inline":
            yield from _spoken(token, line)


def _spoken(token: Token, line: int) -> Iterator[Line]:
    """The text of a paragraph, heading or cell, by line."""
    words = ""
    for child in token.children or ():
        if child.type in ("softbreak", "hardbreak"):
            yield line, words
            words, line = "", line + 1
        elif child.type == "text":
            words += child.content
        elif child.type == "code_inline":
            words += "`code`"
    yield line, words


def source_lines(text: str) -> Iterator[Line]:
    """Docstrings of public names, messages of errors and printed notes, and help."""
    tree = ast.parse(text)
    yield from _docstrings(tree)
    shown = {literal for node in ast.walk(tree) if _is_shown(node) for literal in _literals(node)}
    for literal in sorted(shown, key=lambda one: (one.lineno, one.col_offset)):
        yield literal.lineno, str(literal.value)


def _is_shown(node: ast.AST) -> bool:
    """Whether literals in it reach the user: errors, printed or logged text, and help."""
    if isinstance(node, ast.Call):
        name = _called(node)
        return name in PRINTING or name.endswith(("Error", "Warning"))
    return isinstance(node, ast.Raise) or (isinstance(node, ast.keyword) and node.arg in SHOWN)


def _called(node: ast.Call) -> str:
    """The last part of the name of what is called."""
    name = node.func
    return name.attr if isinstance(name, ast.Attribute) else getattr(name, "id", "")


def _literals(node: ast.AST) -> Iterator[ast.Constant]:
    """Every string below a node, also the literal parts of f-strings."""
    for part in ast.walk(node):
        if isinstance(part, ast.Constant) and isinstance(part.value, str):
            yield part


def _docstrings(node: ast.AST) -> Iterator[Line]:
    """Of a module and its public classes, functions and methods; code and doctests left blank."""
    kinds = (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    if isinstance(node, (ast.Module, *kinds)) and (text := ast.get_docstring(node, clean=False)):
        first = node.body[0].lineno
        prose = CODE.sub(lambda code: "\n" * code[0].count("\n"), text)
        for number, line in enumerate(prose.splitlines()):
            if not line.lstrip().startswith((">>>", "...")):
                yield first + number, line
    for child in ast.iter_child_nodes(node):
        if isinstance(child, kinds) and not child.name.startswith("_"):
            yield from _docstrings(child)
