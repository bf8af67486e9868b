"""The layers: imports go down only, and each heavy library is confined to its place."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import streamomd

PACKAGE = Path(streamomd.__file__).parent
LAYERS = (
    "errors", "machine_errors", "urls", "_plugins", "profiling", "garbage", "left_out", "finite",
    "rules", "losses", "spec", "recorded", "batch", "state", "engine", "merge",
    "partitions", "metrics", "holdout", "demo", "report",
    "callbacks", "features", "shards", "checkpoint", "stream", "slices", "predict", "far",
    "engines", "heaviest", "model", "loading",
    "exposed", "job", "aside", "keep", "stop", "start", "begin", "rounds",
    "distribute", "allowed_urls", "exact", "sharded", "modes", "collection", "away", "runs",
    "preview", "sweeps",
    "quasi_newton", "comparator", "estimators", "certify", "export", "trackers", "history", "pages",
    "watch",
    "rule_pages", "show", "planned",
    "cli", "__init__", "__main__",
)  # fmt: skip
CONFINED = {
    "numba": {"engine"},
    "llvmlite": {"engine"},
    "pyarrow": {"features", "shards"},
    "dask": {"distribute"},
    "distributed": {"distribute"},
    "zmq": {"distribute"},
    "safetensors": {"checkpoint"},
    "click": {"cli"},
    "rich": {"report", "sweeps", "watch"},
    "sklearn": {"estimators", "export"},
    "skops": {"export"},
    "onnx": {"export"},
    "mlflow": {"trackers"},
    "tensorboardX": {"trackers"},
}


def files() -> list[Path]:
    """Every source file of the package."""
    return sorted(PACKAGE.rglob("*.py"))


def layer(file: Path) -> str:
    """The layer a file belongs to: its top folder, or its own name."""
    return file.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imports(file: Path) -> set[str]:
    """Every module a file imports, at whatever depth."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(file.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module)
            if node.module == "streamomd":
                found |= {f"streamomd.{alias.name}" for alias in node.names}
    return found


def test_every_file_has_a_layer() -> None:
    """A new file or folder must say where it belongs."""
    assert {layer(file) for file in files()} <= set(LAYERS)


@pytest.mark.parametrize("file", files(), ids=lambda file: str(file.relative_to(PACKAGE)))
def test_imports_go_down(file: Path) -> None:
    """A layer imports those before it and itself."""
    allowed = LAYERS[: LAYERS.index(layer(file)) + 1]
    used = {name.split(".")[1] for name in imports(file) if name.startswith("streamomd.")}
    assert used <= set(allowed) or layer(file) == "__init__"


@pytest.mark.parametrize("file", files(), ids=lambda file: str(file.relative_to(PACKAGE)))
def test_heavy_libraries_are_confined(file: Path) -> None:
    """numba, pyarrow, Dask and the like are imported in one place each."""
    for library, places in CONFINED.items():
        if library in {name.split(".")[0] for name in imports(file)}:
            assert layer(file) in places


def test_importing_streamomd_costs_nothing() -> None:
    """``import streamomd`` and listing the rules load neither numba, nor Dask, nor pyarrow."""
    code = (
        "import sys, streamomd, streamomd.cli\n"
        "from streamomd.cli.formatting import rules\n"
        "assert len(rules()) >= 8\n"
        "heavy = {'numba', 'dask', 'distributed', 'pyarrow'} & set(sys.modules)\n"
        "sys.exit(repr(heavy) if heavy else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
