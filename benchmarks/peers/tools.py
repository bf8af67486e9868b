"""The tools: what is installed for each, on which rows it runs, and the command a user types."""

from __future__ import annotations

import json
import os
import re
from dataclasses import dataclass
from pathlib import Path

CODE = Path(__file__).parent / "code"
ROOT = Path(__file__).parents[2]
OURS = "streamomd"
"""The environment of streamomd in all its forms."""
SETS = {"i": "lists", "ii": "clicks", "iii": "covertype", "iv": "news"}
STEPS = ("0.003", "0.0112", "0.0417", "0.156", "0.58", "2.16", "8.06", "30")
"""Eight step sizes, each 3.7 times the one before, for every tool that has one."""


@dataclass(frozen=True)
class Tool:
    """``size``: of make.py. ``source``: what of it is read. ``code``: a file of code/, by set.

    ``step``: how a step size is said, {} for it; empty: its losses are those of another tool.
    ``untuned``: it has no step size, and its loss is that of its default.
    ``keeps``: the cache that a run before leaves, beside the rows; empty: none. ``sets``: the data
    sets it runs on. ``cpu``: whether its measured CPU seconds are those of all its processes.
    """

    name: str
    packages: tuple[str, ...]
    size: str
    source: str
    code: str
    step: str = ""
    keeps: str = ""
    untuned: bool = False
    sets: tuple[str, ...] = tuple(SETS.values())
    cpu: bool = True

    @property
    def venv(self) -> str:
        """The folder of its environment; tools of the same code share one."""
        return self.code.split("/", maxsplit=1)[0]

    def steps(self, most: int) -> tuple[str, ...]:
        """The step sizes of the runs that its losses are of; "" is its default."""
        if self.untuned:
            return ("",)
        return ("", *STEPS[:most]) if self.step else ()

    def user_code(self, name: str) -> Path:
        """The file that a user would write for this data set."""
        return CODE / self.code.format(name)

    def command(self, name: str, folder: Path, out: Path, python: Path, step: str) -> list[str]:
        """What is run: the user's code on the rows in a folder, the model kept in ``out``."""
        code, data = self.user_code(name), str(folder / self.source)
        if code.suffix == ".sh":
            return ["sh", str(code), data, str(out)]
        return [str(python), str(code), data, str(out), self.step.format(step) if step else "{}"]

    def environment(self, folder: Path, python: Path, package: Path, step: str) -> dict[str, str]:
        """PATH begins with the tool's own; MORE holds what a user would add to the command.

        ``package``: the folder that streamomd is installed into.
        """
        more = self.step.format(step).split() if step else []
        if self.venv == OURS and self.keeps:
            more += ["--set", "data.cache=" + json.dumps(str(folder / self.keeps))]
        path = f"{python.parent}{os.pathsep}{os.environ['PATH']}"
        found = {**os.environ, "PATH": path, "MORE": " ".join(more)}
        found.pop("PYTHONDONTWRITEBYTECODE", None)  # bytecode is kept unless Python is told so
        return {**found, "PYTHONPATH": str(package)} if self.venv == OURS else found


WABBIT = ("vowpalwabbit==9.11.*",)
TABLES = ("pyarrow>=17", "pandas>=2.2")
TOOLS = {
    tool.name: tool
    for tool in (
        Tool("streamomd", (), "full", "rows", "streamomd/{}.sh", "--eta {}"),
        Tool("streamomd_auto", (), "full", "rows", "streamomd/{}_auto.sh", untuned=True),
        Tool("streamomd_arrow", (), "full", "rows.arrow", "streamomd/{}.sh"),
        Tool("streamomd_binary", (), "full", "rows.binary", "streamomd/{}.sh", sets=("lists",)),
        Tool("streamomd_cache", (), "full", "rows", "streamomd/{}.sh", keeps="cache"),
        Tool("vw_text", WABBIT, "full", "rows.vw", "vw/text.sh", "-l {}"),
        Tool("vw_gz", WABBIT, "full", "rows.vw.gz", "vw/text.sh"),
        Tool("vw_cache", WABBIT, "full", "rows.vw", "vw/cache.sh", keeps="rows.vw.cache"),
        Tool(
            "sklearn",
            ("scikit-learn==1.9.*", *TABLES),
            "few",
            "rows",
            "sklearn/{}.py",
            '{{"learning_rate": "constant", "eta0": {}}}',
        ),
        Tool("dask_ml", ("dask-ml==2025.1.*", "dask[dataframe]==2026.8.*", *TABLES), "few", "rows",
             "dask_ml/{}.py"),
        Tool("lightgbm", ("lightgbm==4.*", *TABLES), "few", "rows", "lightgbm/{}.py",
             sets=("clicks", "covertype")),
        Tool("lightgbm_whole", ("lightgbm==4.*", *TABLES), "full", "rows", "lightgbm/{}.py",
             sets=("clicks", "covertype")),
        Tool("spark", ("pyspark==4.*", "numpy"), "full", "rows", "spark/{}.py",
             sets=("clicks", "covertype"), cpu=False),
        Tool("river", ("river==0.26.*", "pyarrow>=17"), "tiny", "rows", "river/{}.py",
             '{{"lr": {}}}'),
    )
}  # fmt: skip


def loss_in(told: str) -> float | None:
    """The progressive log loss that a tool printed, if it did.

    >>> loss_in("average loss = 0.25"), loss_in('{"rows": 3, "loss": 0.5}'), loss_in("done")
    (0.25, 0.5, None)
    """
    patterns = (r"average loss = (\S+)", r"progressive loss (\S+)", r'"loss": ([^,}]+)')
    for pattern in patterns:
        if found := re.search(pattern, told):
            return float(found[1])
    return None


def lines_of(code: Path) -> int:
    """Lines that a user writes: neither blank, nor comment, nor the docstring on the first line."""
    lines = [line.strip() for line in code.read_text().splitlines()]
    return sum(bool(line) and not line.startswith(("#", '"""')) for line in lines)
