"""Join what the scripts have written in OUT into one page; --run runs them before.

python pipelines/papers/report.py --run > benchmarks/results/papers.md
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from common import arguments

ORDER = (
    "p1_tables",
    "p1_tables_file_square",
    "p1_figure1",
    "p0_figure1",
    "p4_text",
    "p4_streams",
    "p2_passive_aggressive",
    "p0_invariance",
    "p3_equalities",
)
MORE = {"p1_tables_file_square": ["p1_tables", "--order", "file", "--loss", "square"]}
"""Scripts whose section has another name."""
HEAD = """# Papers reproduced

This page compares results of streamomd with the experiments and theorems of the papers that its
rules come from.

Each section is the output of one script in `pipelines/papers`, whose README describes how to run
it and the data. Errors are fractions of rows and progressive (each row is predicted before it is
learned) unless a section says otherwise. A line "holds" is a statement that the script checked.
The plots of the scripts are not part of this page.

P0 is Orabona, Crammer & Cesa-Bianchi, *A generalized online mirror descent with applications to
classification and regression* (Machine Learning 99, 2015); P1 Ross, Mineiro & Langford, *Normalized
online learning* (UAI 2013); P2 Shalev-Shwartz & Singer, *Online learning meets optimization in the
dual* (COLT 2006); P3 Qian's notes on adaptive FTRL; P4 Duchi, Hazan & Singer, *Adaptive subgradient
methods for online learning and stochastic optimization* (JMLR 12, 2011).
"""


def main(argv: list[str] | None = None) -> int:
    """Print the page; 1 if nothing was there."""
    parser = arguments(__doc__ or "")
    parser.add_argument("--run", action="store_true", help="run the scripts first")
    chosen = parser.parse_args(argv)
    for name in ORDER if chosen.run else ():
        script, *words = MORE.get(name, [name])
        words += ["--data", str(chosen.data), "--out", str(chosen.out)]
        words += ["--tiny"] if chosen.tiny else []
        command = [sys.executable, str(Path(__file__).with_name(f"{script}.py")), *words]
        subprocess.run(command, check=True, stdout=sys.stderr)  # noqa: S603 - scripts next to this
    found = [chosen.out / f"{name}.md" for name in ORDER]
    found = [path for path in found if path.exists()]
    print("\n".join([HEAD, *(path.read_text(encoding="utf-8") for path in found)]), end="")
    return int(not found)


if __name__ == "__main__":
    sys.exit(main())
