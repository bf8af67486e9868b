"""A Dockerfile, read; and its steps done in a directory, for want of a Docker engine.

Paths of the image stand for directories below a root. What only an image has is left out: users,
owners, and that a stage begins anew.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path

from deploying import DEPLOY, ROOT, environment

FILE = DEPLOY / "Dockerfile"
PLACES = ("/src", "/opt/streamomd", "/home/streamomd")
Step = tuple[str, str]


def steps(text: str) -> list[Step]:
    """Instructions with what follows them, comments and line ends taken away."""
    lines = [line for line in text.splitlines() if line and not line.lstrip().startswith("#")]
    joined = "\n".join(lines).replace("\\\n", " ")
    return [
        (name, rest.strip()) for name, _, rest in (ln.partition(" ") for ln in joined.split("\n"))
    ]


def stages(found: list[Step]) -> list[list[Step]]:
    """Steps from FROM to FROM, without what stands before the first."""
    made: list[list[Step]] = []
    for step in found:
        if step[0] == "FROM":
            made.append([])
        if made:
            made[-1].append(step)
    return made


def default(argument: str) -> tuple[str, str]:
    """Name and value of an ARG or ENV."""
    name, _, value = argument.partition("=")
    return name, value.strip('"')


def variables(rest: str) -> Iterator[tuple[str, str]]:
    """Names and values of an ENV, which may set several."""
    for found in re.finditer(r'(\w+)=("[^"]*"|\S+)', rest):
        yield found[1], found[2].strip('"')


def copied(rest: str) -> tuple[list[str], str, str]:
    """Sources and target of a COPY, and the stage it takes from."""
    stage = re.search(r"--from=(\S+)", rest)
    *sources, target = [word for word in rest.split() if not word.startswith("--")]
    return sources, target, stage[1] if stage else ""


def let_through(name: str) -> bool:
    """Whether a path of the repository comes into the build: the last line that fits decides."""
    kept = True
    for line in FILE.with_name("Dockerfile.dockerignore").read_text().splitlines():
        pattern = line.lstrip("!")
        if not line or line.startswith("#"):
            continue
        parents = [name, *(str(parent) for parent in Path(name).parents)]
        if any(fnmatch(each, pattern.replace("**/", "*")) for each in parents):
            kept = line.startswith("!")
    return kept


class Build:
    """The steps of a Dockerfile, done below a root."""

    def __init__(self, root: Path) -> None:
        self.root, self.here, self.variables = root, root, environment()
        self.variables["PATH"] = f"{Path(sys.executable).parent}:{self.variables['PATH']}"

    def place(self, text: str) -> str:
        """A text with the image's paths as they are here."""
        for known in PLACES:
            text = re.sub(rf"(?<![\w/]){known}\b", f"{self.root}{known}", text)
        return text

    def do(self, step: Step) -> None:
        """One step, or none where only an image has it."""
        name, rest = step
        if name == "WORKDIR":
            self.here = Path(self.place(rest))
            self.here.mkdir(parents=True, exist_ok=True)
        elif name in ("ENV", "ARG"):
            for variable, value in variables(rest) if name == "ENV" else [default(rest)]:
                self.variables[variable] = self.place(self._filled(value))
        elif name == "COPY":
            self._copy(*copied(rest))
        elif name == "RUN" and not rest.startswith("useradd"):
            command = ["bash", "-euc", self.place(rest)]
            subprocess.run(command, cwd=self.here, env=self.variables, check=True)

    def _filled(self, value: str) -> str:
        return re.sub(r"\$\{?(\w+)\}?", lambda match: self.variables[match[1]], value)

    def _copy(self, sources: list[str], target: str, stage: str) -> None:
        if stage:
            assert sources == [target], "what a stage gives stays where it is"
            return
        into = self.here / self.place(target)
        for source in sources:
            for file in sorted((ROOT / source).rglob("*")) or [ROOT / source]:
                if file.is_dir() or not let_through(str(file.relative_to(ROOT))):
                    continue
                inner = file.relative_to(ROOT / source)
                # A directory's contents are copied, a file as itself.
                to = into / (inner if file != ROOT / source else file.name)
                to.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(file, to)
