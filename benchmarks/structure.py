"""How is the package laid out: packages, import levels, circles, lengths, the rule contract?

Reads the source files of a checkout (this one, or --checkout DIR, which may be an older one) as
text; nothing of it is imported. Levels: the longest chain of imports between the packages and
modules right below streamomd/, but for ``__init__`` and ``__main__``; where a cycle makes a chain
endless, "cycle". Lines of a learner: its file, docstring included. Circles: files that import each
other at run time, imports in functions counted. Functions: outside compiled loops. A public call,
marked ``named_keywords``, has a parameter for each keyword of the user, and is counted on its own.
Budgets: lines a package should have, decided before later features.
"""

from __future__ import annotations

import argparse
import ast
import functools
import statistics
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
ABOVE = ("__init__", "__main__")
LEAST_LINES, MOST_LINES = 40, 400
BUDGETS = {
    "core": 1.8, "rules": 7.6, "losses": 1.5, "checkpoint": 2.9, "config": 2.5, "engine": 6.3,
    "features": 5.4, "sources": 5.0, "shards": 6.0, "training": 7.4, "distributed": 4.2,
    "runs": 4.8, "analysis": 4.9, "integrations": 3.2, "cli": 2.8,
}  # fmt: skip
"""Thousands of lines."""


def at_run_time(node: ast.AST) -> ast.Module:
    """The tree without what only a type checker imports."""
    kept = [
        one
        for one in ast.walk(node)
        if isinstance(one, ast.Import | ast.ImportFrom)
        and id(one) not in {id(each) for each in only_for_types(node)}
    ]
    return ast.Module(body=list(kept), type_ignores=[])


def only_for_types(tree: ast.AST) -> list[ast.AST]:
    """What stands under ``if TYPE_CHECKING``."""
    return [
        below
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)
        for below in ast.walk(node)
    ]


def files_in_circles(graph: dict[str, set[str]]) -> int:
    """How many nodes reach themselves."""

    def reached(start: str) -> set[str]:
        found: set[str] = set()
        waiting = list(graph[start])
        while waiting:
            if (name := waiting.pop()) not in found:
                found.add(name)
                waiting += graph.get(name, ())
        return found

    return sum(name in reached(name) for name in graph)


def functions(trees: dict[Path, ast.Module]) -> list[tuple[int, int, bool]]:
    """Lines, parameters, whether it is a public call: of the functions outside compiled loops."""
    return [
        (
            (node.end_lineno or node.lineno) - node.lineno + 1,
            len(node.args.args) + len(node.args.kwonlyargs) + len(node.args.posonlyargs),
            "named_keywords" in map(ast.unparse, node.decorator_list),
        )
        for file, tree in trees.items()
        if not {"loops", "kernels", "rules"} & set(file.parts)
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and node.name not in compiled_names(tree)
    ]


@functools.cache
def compiled_names(tree: ast.Module) -> set[str]:
    """The functions of a file that it compiles: the first argument of ``LazyCompiled``."""
    calls = (node for node in ast.walk(tree) if isinstance(node, ast.Call))
    return {ast.unparse(one.args[0]) for one in calls if ast.unparse(one.func) == "LazyCompiled"}


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


def resolved(tree: ast.Module, known: set[str]) -> set[str]:
    """The files that a file imports: ``from streamomd.cli import formatting`` is that module."""
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            below = [f"{node.module}.{alias.name}" for alias in node.names]
            found |= {one if one in known else node.module for one in below}
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
    return found & known


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
    trees = {file: ast.parse(text) for file, text in files.items()}
    names = {
        ".".join(file.relative_to(package.parent).with_suffix("").parts).removesuffix(
            ".__init__"
        ): file
        for file in files
    }
    below = {name: resolved(at_run_time(trees[file]), set(names)) for name, file in names.items()}
    made = functions(trees)
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
        f"files over {MOST_LINES} lines": sum(n > MOST_LINES for n in lengths.values()),
        "files in circles": files_in_circles(below),
        "lines of a function, longest": max(lines for lines, _, _ in made),
        "functions over 120 lines": sum(lines > 120 for lines, _, _ in made),
        "functions over 12 parameters": sum(count > 12 and not call for _, count, call in made),
        "public calls over 12 keywords": sum(count > 12 and call for _, count, call in made),
        "fields of Rule": fields_of_rule(package),
        "learners": len(learners),
        "lines of a learner, median": f"{statistics.median(learners):.0f}",
        "lines of a learner, longest": max(learners),
    }
    for name, value in rows.items():
        print(f"{name:<30}{value:>8}")
    print(f"\n{'package':<16}{'files':>8}{'lines':>8}{'budget':>8}")
    for name in sorted(top.name for top in tops):
        inside = [text for file, text in files.items() if package / name in file.parents]
        lines = sum(len(text.splitlines()) for text in inside)
        budget = f"{BUDGETS[name] * 1000:.0f}" if name in BUDGETS else ""
        print(f"{name:<16}{len(inside):>8}{lines:>8}{budget:>8}")


if __name__ == "__main__":
    main()
