"""Which rule for which rows? Eight rules, with their defaults and at the best of eight values.

The bundled bank rows, in their order; and from ../shared/data beside the checkout (what is not
there is passed over) a9a, ijcnn1, Covertype and the training part of 20 newsgroups (words of
subject and body), their rows permuted. One pass, progressive error: a sweep for each rule and set,
over the parameter that matters most. Prints the table of docs/choosing-a-rule.md.
"""

from __future__ import annotations

import shutil
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Any

import common
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from modes import DATA, a9a, covertype, ijcnn1

import streamomd
from streamomd.rules import find_rule
from streamomd.runs.sweep.grid import values_of

BANK = Path(__file__).parents[1] / "pipelines/data/bank"
COVERTYPE_SHARDS = 4  # of 16: 116,000 rows
GRIDS = {  # the parameter that matters most, and where it is looked for
    "nag": ("eta", "0.01..10:8"),
    "snag": ("eta", "0.01..10:8"),
    "adagrad": ("eta", "0.01..10:8"),
    "ftrl_proximal": ("alpha", "0.01..10:8"),
    "ogd": ("eta", "0.00001..1:8"),
    "arow_diag": ("r", "0.1..1000:8"),
    "pa1": ("C", "0.0001..1:8"),
    "perceptron": ("", ""),
}


def bank(folder: Path) -> dict[str, Any]:
    """7 numbers in raw units, 9 categories."""
    shutil.copytree(BANK, folder / "train")
    return {"label": "y"}


def some_covertype(folder: Path) -> dict[str, Any]:
    """54 numbers in raw units, 7 classes."""
    columns = covertype(folder)
    for shard in sorted((folder / "train").iterdir())[COVERTYPE_SHARDS:]:
        shard.unlink()
    return columns


def newsgroups(folder: Path) -> dict[str, Any]:
    """Text, 20 classes."""
    rows: list[tuple[str, str]] = []
    with tarfile.open(DATA / "20newsgroups/20news-bydate.tar.gz") as archive:
        for member in archive:
            if member.isfile() and "-train/" in member.name:
                opened = archive.extractfile(member)
                assert opened
                rows.append((member.name.split("/")[-2], message(opened.read().decode("latin-1"))))
    order = np.random.default_rng(1).permutation(len(rows))
    (folder / "train").mkdir()
    table = pa.table(
        {"group": [rows[at][0] for at in order], "message": [rows[at][1] for at in order]}
    )
    pq.write_table(table, folder / "train" / "rows.parquet")
    return {"label": "group", "text": [{"column": "message", "counts": "log"}], "bits": 17}


def message(text: str) -> str:
    """Subject and body: other lines of the head name the sender. In the copy that there is, the
    line ends of the training part have become tabs."""
    lines = text.replace("\r\n", "\n")
    lines = lines if "\n\n" in lines else lines.replace("\t", "\n")
    head, _, body = lines.partition("\n\n")
    subjects = [line[8:] for line in head.split("\n") if line.startswith("Subject:")]
    return "\n".join([*subjects, body])


SETS = {
    "bank": (bank, BANK),
    "a9a": (a9a, DATA / "a9a"),
    "ijcnn1": (ijcnn1, DATA / "ijcnn1"),
    "covertype": (some_covertype, DATA / "covertype"),
    "20newsgroups": (newsgroups, DATA / "20newsgroups"),
}


def measure(folder: Path, columns: dict[str, Any], rule: str) -> dict[str, Any]:
    """Errors of a rule with its defaults and at the best value tried, and that value."""
    loss = "hinge" if find_rule(rule).losses.names else "logistic"
    job = {
        "data": {"shards": [str(folder / "train")], **columns},
        "model": {"rule": rule, "loss": loss},
        "checkpoint": {"url": "none"},
    }
    key, values = GRIDS[rule]
    if not key:
        error = streamomd.train(job, quiet=True).result()["error"]
        return {"default": error, "best": error, "at": None}
    default = find_rule(rule).parse_params({})[key]
    tried = [default, *(value for value in values_of(key, values) if value != default)]
    found = streamomd.sweep(job, grid={key: tried}, quiet=True)
    errors = [model.result()["error"] for model in found]
    best = min(range(len(errors)), key=errors.__getitem__)
    return {"default": errors[0], "best": errors[best], "at": tried[best]}


def told(found: dict[str, Any]) -> str:
    """A cell of the table."""
    if found["at"] is None:
        return f"{found['default']:.3f}"
    at = float(f"{found['at']:.2g}")  # 1000, not 1e+03
    return f"{found['default']:.3f} → {found['best']:.3f} ({at:g})"


def main() -> None:
    parser = common.arguments(__doc__)
    parser.add_argument("--sets", default=",".join(SETS), help="some of the data sets")
    parser.add_argument("--rules", default=",".join(GRIDS), help="some of the rules")
    args = parser.parse_args()
    figures: dict[str, dict[str, Any]] = {}
    rules = args.rules.split(",")
    with tempfile.TemporaryDirectory() as temporary:
        for name in args.sets.split(","):
            make, there = SETS[name]
            if not there.is_dir():
                print(f"skipped: no {name} in ../shared/data", file=sys.stderr)
                continue
            folder = Path(temporary) / name
            folder.mkdir()
            columns = make(folder)
            figures[name] = {}
            for rule in rules:
                figures[name][rule] = measure(folder, columns, rule)
                print(f"{name} {rule}: {told(figures[name][rule])}", file=sys.stderr, flush=True)
    print("| rule | varied | " + " | ".join(figures) + " |")
    print("|---|---|" + "---|" * len(figures))
    for rule in rules:
        cells = [told(figures[name][rule]) for name in figures]
        print(f"| `{rule}` | {GRIDS[rule][0] or 'nothing'} | " + " | ".join(cells) + " |")
    common.finish(figures, as_json=args.json)


if __name__ == "__main__":
    main()
