"""The layers: imports go down only, and each heavy library is confined to its place."""

from __future__ import annotations

import ast
import functools
import subprocess
import sys
from collections.abc import Iterator, Set
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import streamomd

pytestmark = pytest.mark.smoke

PACKAGE = Path(streamomd.__file__).parent
PACKAGES = (
    "core", "rules", "checkpoint", "losses", "config", "engine", "features", "shards", "sources",
    "training", "distributed", "runs", "analysis", "integrations", "cli",
)  # fmt: skip
"""From the bottom up: a package imports those before it."""
MODULES = ("__init__", "__main__", "errors", "testing")
"""The only modules outside a package. Whatever imports nothing above may use ``testing``."""
CONFINED = {
    "numba": ("core/jit.py", "core/startup.py", "engine/", "features/kernels/"),
    "llvmlite": ("core/startup.py", "engine/"),
    "pyarrow": ("checkpoint/parts.py", "core/startup.py", "features/", "shards/", "sources/"),
    "dask": ("config/settings.py", "distributed/"),
    "distributed": ("distributed/",),
    "safetensors": ("checkpoint/",),
    "click": ("cli/",),
    "rich": ("training/progress_bars.py", "runs/sweep/", "analysis/watch.py"),
    "sklearn": ("integrations/",),
    "skops": ("integrations/export/",),
    "lightgbm": ("features/grow_trees.py",),
    "onnx": ("integrations/export/",),
    "IPython": ("training/progress_bars.py",),
    "mlflow": ("integrations/mlflow.py", "integrations/trackers.py"),
    "prometheus_client": ("core/http_servers.py",),
    "starlette": ("integrations/serve/",),
    "uvicorn": ("integrations/serve/",),
    "tensorboardX": ("integrations/trackers.py",),
    "watchfiles": ("sources/folder_watch.py",),
}
"""Where a library may be imported."""


def files() -> list[Path]:
    """Every source file of the package."""
    return sorted(PACKAGE.rglob("*.py"))


def package_of(name: str) -> str:
    """The package or top-level module of a path below streamomd/ or of a dotted name."""
    return name.removeprefix("streamomd.").replace(".", "/").split("/")[0]


@functools.cache
def tree(file: Path) -> ast.Module:
    """A file, parsed."""
    return ast.parse(file.read_text("utf-8"))


@functools.cache
def imports(file: Path) -> set[str]:
    """Every module a file imports, at whatever depth."""
    found: set[str] = set()
    for node in ast.walk(tree(file)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module)
            if node.module == "streamomd":
                found.discard("streamomd")
                found |= {f"streamomd.{alias.name}" for alias in node.names}
    return found


def names_at_run_time(node: ast.AST) -> Iterator[str]:
    """Every module or name that a file imports, at whatever depth, but not for types alone."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and ast.unparse(child.test) == "TYPE_CHECKING":
            continue
        if isinstance(child, ast.Import):
            yield from (alias.name for alias in child.names)
        elif isinstance(child, ast.ImportFrom) and child.module:
            for alias in child.names:
                yield from (child.module, f"{child.module}.{alias.name}")
        yield from names_at_run_time(child)


def test_the_map_is_complete() -> None:
    """A new file belongs to a package of the list; there are 15 packages at most."""
    places = {file.relative_to(PACKAGE).parts[0].removesuffix(".py") for file in files()}
    assert places <= {*PACKAGES, *MODULES}
    assert len(PACKAGES) <= 15
    assert len(MODULES) <= 4


@pytest.mark.parametrize("package", PACKAGES)
def test_imports_go_down(package: str) -> None:
    """A package imports those before it and itself."""
    allowed = PACKAGES[: PACKAGES.index(package) + 1]
    for file in sorted((PACKAGE / package).rglob("*.py")):
        used = {name for name in imports(file) if name.startswith("streamomd")}
        above = {name for name in used if package_of(name) not in allowed}
        assert not above, f"{file.relative_to(PACKAGE)} imports {above}"


def test_no_files_import_each_other() -> None:
    """Imports of files have no circle, inside a package neither, imports in functions counted.

    ``core.installed`` alone knows some modules of higher packages by name: those of plug-ins.
    """
    names = {
        ".".join(file.relative_to(PACKAGE.parent).with_suffix("").parts): file for file in files()
    }
    below = {
        name: set(names_at_run_time(tree(file))) & names.keys() for name, file in names.items()
    }
    TopologicalSorter(below).prepare()  # raises CycleError with the files of a circle


def test_no_files_import_each_other_for_types() -> None:
    """Nor is there a circle with the imports for types."""
    names = {
        ".".join(file.relative_to(PACKAGE).with_suffix("").parts).removesuffix(".__init__"): file
        for file in files()
    }
    used = {name: files_imported(file, names.keys()) - {name} for name, file in names.items()}
    TopologicalSorter(used).prepare()


def files_imported(file: Path, names: Set[str]) -> set[str]:
    """The files of these that a file imports, for types too: a module of a package is that file."""
    found: set[str] = set()
    for node in ast.walk(tree(file)):
        if isinstance(node, ast.Import):
            found |= {alias.name.removeprefix("streamomd.") for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            package = node.module.removeprefix("streamomd.")
            inner = {f"{package}.{alias.name}" for alias in node.names}
            found |= {one if one in names else package for one in inner}
    return found & names


@pytest.mark.parametrize("library", CONFINED)
def test_heavy_libraries_are_confined(library: str) -> None:
    """numba, pyarrow, Dask and the like are imported in one place each."""
    for file in files():
        if library in {name.split(".")[0] for name in imports(file)}:
            assert file.relative_to(PACKAGE).as_posix().startswith(CONFINED[library])


def test_names_of_files_say_where_they_are() -> None:
    """No two files have one name, but the contracts of plug-ins, and ``streamomd.errors``: the
    public name of the module that all packages import."""
    others = [file for file in files() if file != PACKAGE / "errors.py"]
    names = [file.name for file in others if file.name not in ("__init__.py", "contract.py")]
    assert len(names) == len(set(names)), sorted({n for n in names if names.count(n) > 1})


def test_small_files_have_several_users() -> None:
    """A file under 40 lines with one user is a part of that, but for a loss or a rule."""
    used = [name for file in files() for name in imports(file)]
    for file in files():
        path = file.relative_to(PACKAGE)
        small = len(file.read_text("utf-8").splitlines()) < 40 and file.name != "__init__.py"
        if small and path.parent.as_posix() not in ("losses", "rules"):
            name = ".".join(("streamomd", *path.with_suffix("").parts))
            assert used.count(name) > 1, path


def test_importing_streamomd_costs_nothing() -> None:
    """``import streamomd`` and listing the rules load neither numba, nor Dask, nor pyarrow."""
    code = (
        "import sys, streamomd, streamomd.cli\n"
        "from streamomd.cli.list_tables import rules\n"
        "assert len(rules()) >= 8\n"
        "heavy = {'numba', 'dask', 'distributed', 'pyarrow'} & set(sys.modules)\n"
        "sys.exit(repr(heavy) if heavy else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
