"""How is the package laid out: packages, import levels, file lengths, the rule contract?

Reads the source files of a checkout (this one, or --checkout DIR, which may be an older one) as
text; nothing of it is imported. Levels: the longest chain of imports between the packages and
modules right below streamomd/, but for ``__init__`` and ``__main__``; where a cycle makes a chain
endless, "cycle". Lines of a learner: its file, docstring included.
"""

from __future__ import annotations

import argparse
import ast
import functools
import statistics
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
ABOVE = ("__init__", "__main__")
LEAST_LINES = 40


def imported(tree: ast.Module) -> set[str]:
    """Dotted names below streamomd that a file imports."""
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
            found |= set(names if node.module == "streamomd" else [node.module])
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
    return {name for name in found if name.startswith("streamomd.")}


def levels(graph: dict[str, set[str]]) -> str:
    """The number of levels of a graph of imports."""

    @functools.cache
    def level(name: str) -> int:
        return 1 + max((level(other) for other in graph.get(name, ())), default=0)

    try:
        return str(max(map(level, graph)))
    except RecursionError:
        return "cycle"


def fields_of_rule(package: Path) -> int:
    """Annotated fields of the dataclass ``Rule``."""
    tree = ast.parse((package / "rules" / "contract.py").read_text("utf-8"))
    rule = next(n for n in tree.body if isinstance(n, ast.ClassDef) and n.name == "Rule")
    return sum(isinstance(node, ast.AnnAssign) for node in rule.body)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--checkout", type=Path, default=ROOT)
    package = parser.parse_args().checkout / "streamomd"
    files = {file: file.read_text("utf-8") for file in sorted(package.rglob("*.py"))}
    graph: dict[str, set[str]] = {}
    for file, text in files.items():
        home = file.relative_to(package).parts[0].removesuffix(".py")
        used = {name.split(".")[1] for name in imported(ast.parse(text))}
        if home not in ABOVE:
            graph.setdefault(home, set()).update(used - {home, *ABOVE})
    tops = {path for path in package.iterdir() if (path / "__init__.py").exists()}
    lengths = {
        file: len(text.splitlines()) for file, text in files.items() if file.name != "__init__.py"
    }
    learners = [
        len(text.splitlines())
        for file, text in files.items()
        if file.parent == package / "rules" and "\nRULE = " in text
    ]
    rows = {
        "packages": len(tops),
        "modules next to them": len([file for file in files if file.parent == package]),
        "import levels": levels(graph),
        "imports between them": sum(map(len, graph.values())),
        "files": len(lengths),
        "lines of a file, median": f"{statistics.median(lengths.values()):.0f}",
        f"files under {LEAST_LINES} lines": sum(n < LEAST_LINES for n in lengths.values()),
        "lines": sum(len(text.splitlines()) for text in files.values()),
        "fields of Rule": fields_of_rule(package),
        "learners": len(learners),
        "lines of a learner, median": f"{statistics.median(learners):.0f}",
        "lines of a learner, longest": max(learners),
    }
    for name, value in rows.items():
        print(f"{name:<28}{value:>8}")


if __name__ == "__main__":
    main()
