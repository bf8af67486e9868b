"""What does an installation take on a disk? The wheel alone in a new environment, by package.

files: what a package's RECORD names. bytecode: what Python adds when it compiles all modules, as
pip does when it installs; uv leaves it to the first import. Targets: at most 12 required
dependencies and 600 MB. --extras: also of streamomd, such as serve,s3.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from importlib.metadata import distributions
from pathlib import Path

import common
from uv import find_uv_bin

ROOT = Path(__file__).resolve().parents[1]
MOST_DEPENDENCIES, MOST_MB = 12, 600.0
SHOWN_MB = 2.0  # smaller packages share a line


def installed(folder: Path, extras: str) -> Path:
    """The folder of packages of a new environment with this checkout's wheel and what it needs."""
    uv, home = find_uv_bin(), folder / "venv"

    def run(*words: str) -> None:
        subprocess.run([uv, *words], cwd=ROOT, check=True, capture_output=True)

    run("build", "--wheel", "--out-dir", str(folder))
    run("venv", "--python", sys.executable, str(home))
    (wheel,) = folder.glob("*.whl")
    name = f"{wheel}[{extras}]" if extras else str(wheel)
    run("pip", "install", "--python", str(home), "--link-mode", "copy", name)
    (found,) = home.glob("lib/python*/site-packages")
    return found


def sizes(packages: Path) -> dict[str, int]:
    """Bytes of the files that each package's RECORD names."""
    return {
        one.name: sum(file.size or 0 for file in one.files or ())
        for one in distributions(path=[str(packages)])
    }


def bytecode(packages: Path) -> dict[str, int]:
    """Bytes of compiled modules by folder or module, after all of them were compiled."""
    words = [sys.executable, "-m", "compileall", "-q", "-j", "0", str(packages)]
    subprocess.run(words, check=False, capture_output=True)  # some packages ship broken examples
    found: dict[str, int] = {}
    for file in packages.rglob("*.pyc"):
        first = file.relative_to(packages).parts[0]
        name = file.name.split(".")[0] if first == "__pycache__" else first
        found[name] = found.get(name, 0) + file.stat().st_size
    return found


def main() -> None:
    """Prints a line for each package, the largest first."""
    parser = common.arguments(__doc__)
    parser.add_argument("--extras", default="", help="such as serve,s3")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        packages = installed(Path(folder), given.extras)
        files, compiled = sizes(packages), bytecode(packages)
        owners = {
            file.parts[0].removesuffix(".py"): one.name
            for one in distributions(path=[str(packages)])
            for file in one.files or ()
            if file.suffix == ".py"
        }
        (found,) = distributions(name="streamomd", path=[str(packages)])
        needs = [one for one in found.requires or () if "extra ==" not in one]
    of = dict.fromkeys(files, 0)
    for module, size in compiled.items():
        if module in owners:
            of[owners[module]] += size
    lines = sorted(((files[name] / 1e6, of[name] / 1e6, name) for name in files), reverse=True)
    small = [line for line in lines if sum(line[:2]) < SHOWN_MB]
    rows = [(name, a, b, a + b) for a, b, name in lines if a + b >= SHOWN_MB]
    rows.append((f"{len(small)} others", *(sum(line[at] for line in small) for at in (0, 1)),
                 sum(sum(line[:2]) for line in small)))  # fmt: skip
    total = tuple(sum(row[at] for row in rows) for at in (1, 2, 3))
    common.table(("MB", "files", "bytecode", "both"), [*rows, ("all", *total)])
    print(
        f"{len(needs)} required dependencies (at most {MOST_DEPENDENCIES}), {len(files)} packages,"
    )
    print(f"{total[0]:.0f} MB without and {total[2]:.0f} MB with bytecode (at most {MOST_MB:.0f})")
    figures = {"required": len(needs), "packages": len(files), "mb": total[0], "all_mb": total[2]}
    common.finish(figures, as_json=given.json)


if __name__ == "__main__":
    main()
