"""What does learning side by side cost in accuracy?

Covertype, a9a, ijcnn1, bank marketing and Blitzer's reviews, from ../shared/data beside the
checkout (what is not there is passed over), their rows permuted and cut into 16 shards; --epochs
passes of --rule with the logistic loss and its defaults, in exact mode, in averaged mode with
several numbers of parts and of rounds, and in sharded mode with several micro-batches, on two
workers of one thread each. Held out: the sets' own test rows (a9a, ijcnn1), or a fifth of the rows.

Target: the best averaged setting's held-out loss is within 2 % of exact mode's.
"""

from __future__ import annotations

import bz2
import gzip
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import common
import mmh3
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from distributed import Client, LocalCluster

import streamomd
from streamomd.sources.text.convert import convert

DATA = Path(__file__).parents[2] / "shared/data"
SHARDS, BITS = 16, 18
SETTINGS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("exact", {}),
    ("averaged P=4 R=1", {"parts": 4}),
    ("averaged P=16 R=1", {"parts": 16}),
    ("averaged P=16 R=1, by gradients", {"parts": 16, "merge": "gradients"}),
    ("averaged P=4 R=8", {"parts": 4, "rounds_per_epoch": 8}),
    ("averaged P=4 R=8, by gradients", {"parts": 4, "rounds_per_epoch": 8, "merge": "gradients"}),
    ("averaged P=2 R=8, by gradients", {"parts": 2, "rounds_per_epoch": 8, "merge": "gradients"}),
    ("averaged P=4 R=1, first epoch exact", {"parts": 4, "exact_epochs": 1}),
    (
        "averaged P=2 R=8, by gradients, first epoch exact",
        {"parts": 2, "rounds_per_epoch": 8, "merge": "gradients", "exact_epochs": 1},
    ),
    ("sharded B=1", {"batch_rows": 1}),
    ("sharded B=256", {"batch_rows": 256}),
    ("sharded B=4096", {"batch_rows": 4096}),
)


def covertype(folder: Path) -> dict[str, Any]:
    """A fifth of the rows is held out: four shards of twenty."""
    source = str(DATA / "covertype/covtype.csv.gz")
    convert([source], source_format="csv", to=str(folder / "train"), shards=20, shuffle=1)
    (folder / "test").mkdir()
    for shard in sorted((folder / "train").iterdir())[16:]:
        shard.rename(folder / "test" / shard.name)
    return {"label": "Cover_Type"}


def bank(folder: Path) -> dict[str, Any]:
    """7 numbers in raw units, 9 categories; a fifth of the rows is held out."""
    source = folder / "bank.csv"
    with gzip.open(DATA / "bank-marketing/bank-full.csv.gz") as packed, source.open("wb") as out:
        shutil.copyfileobj(packed, out)
    convert([str(source)], source_format="csv", to=str(folder / "train"), shards=20, shuffle=1)
    (folder / "test").mkdir()
    for shard in sorted((folder / "train").iterdir())[16:]:
        shard.rename(folder / "test" / shard.name)
    return {"label": "y"}


def svmlight(folder: Path, name: str, train: str, test: str) -> dict[str, Any]:
    """A set with its own test rows; their sizes are made the same."""
    for part, source in (("train", train), ("test", test)):
        plain = folder / f"{part}.svm"
        with bz2.open(DATA / name / source) as packed, plain.open("wb") as out:
            shutil.copyfileobj(packed, out)
    size = 1 + max(
        int(pair.split(b":")[0])
        for part in ("train", "test")
        for line in (folder / f"{part}.svm").read_bytes().splitlines()
        for pair in line.split()[1:]
    )
    for part, shards in (("train", SHARDS), ("test", 1)):
        convert(
            [str(folder / f"{part}.svm")], source_format="svmlight", to=str(folder / part),
            shards=shards, shuffle=1, size=size, zero_based=True,
        )  # fmt: skip
    return {"label": "label", "sparse": {"indices": "indices", "values": "values", "size": size}}


def a9a(folder: Path) -> dict[str, Any]:
    """123 binary features."""
    return svmlight(folder, "a9a", "adult.trn.bz2", "adult.tst.bz2")


def ijcnn1(folder: Path) -> dict[str, Any]:
    """22 numbers on their own scales."""
    return svmlight(folder, "ijcnn1", "ijcnn1.trn.bz2", "ijcnn1.tst.bz2")


def blitzer(folder: Path) -> dict[str, Any]:
    """Reviews: words and pairs of words, hashed into 2^18 coordinates."""
    rows = list(reviews())
    order = np.random.default_rng(1).permutation(len(rows))
    cut = len(rows) * 4 // 5
    for part, chosen, shards in (("train", order[:cut], SHARDS), ("test", order[cut:], 1)):
        (folder / part).mkdir()
        for shard, some in enumerate(np.array_split(chosen, shards)):
            y, pairs = zip(*(rows[at] for at in some), strict=True)
            columns = {
                "label": y,
                "indices": [[*pair] for pair in pairs],
                "values": [[*map(float, pair.values())] for pair in pairs],
            }
            pq.write_table(pa.table(columns), folder / part / f"{shard:02}.parquet")
    pair = {"indices": "indices", "values": "values", "size": 1 << BITS}
    return {"label": "label", "sparse": pair}


def reviews() -> Iterator[tuple[int, dict[int, float]]]:
    """Label, and counts by coordinate."""
    for file in sorted((DATA / "blitzer-sentiment/processed_acl").rglob("*.review.gz")):
        for line in gzip.decompress(file.read_bytes()).decode().splitlines():
            *words, label = line.split()
            counts: dict[int, float] = {}
            for word in words:
                text, _, count = word.rpartition(":")
                at = mmh3.hash(text, signed=False) % (1 << BITS)
                counts[at] = counts.get(at, 0.0) + float(count)
            yield int(label.endswith("positive")), dict(sorted(counts.items()))


SETS = {
    "covertype": covertype, "a9a": a9a, "ijcnn1": ijcnn1, "bank-marketing": bank,
    "blitzer-sentiment": blitzer,
}  # fmt: skip


def one(
    folder: Path,
    name: str,
    columns: dict[str, Any],
    given: dict[str, Any],
    client: Client,
    epochs: int,
    rule: str,
) -> dict[str, Any]:
    """A run, and its loss on what was held out."""
    mode = name.split()[0]
    job = {
        "data": {"shards": [str(folder / "train")], **columns},
        "model": {"rule": rule, "loss": "logistic"},
        "train": {"mode": mode, "epochs": epochs, **given},
        "checkpoint": {"url": "none" if mode == "exact" else str(folder / "runs" / name)},
    }
    helper = None if mode == "exact" else client
    model = streamomd.train(job, client=helper, quiet=True)
    held = model.evaluate(str(folder / "test"), quiet=True)
    result = model.result()
    return {
        "progressive": result["loss"],
        "held": held["loss"],
        "error": held["error"],
        "rows_per_second": result["rows_per_second"],
    }


def main() -> None:
    parser = common.arguments(__doc__)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--rule", default="nag")
    parser.add_argument("--sets", default=",".join(SETS), help="some of the data sets")
    parser.add_argument("--modes", default="exact,averaged,sharded", help="some of the modes")
    args = parser.parse_args()
    figures: dict[str, Any] = {}
    with (
        tempfile.TemporaryDirectory() as temporary,
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        for name in args.sets.split(","):
            if not (DATA / name).is_dir():
                print(f"skipped: no {name} in ../shared/data", file=sys.stderr)
                continue
            folder = Path(temporary) / name
            folder.mkdir()
            columns = SETS[name](folder)
            lines, exact = [], 0.0
            for setting, given in SETTINGS:
                left_out = given.get("merge") == "gradients" and args.rule != "nag"
                if setting.split()[0] not in args.modes.split(",") or left_out:
                    continue
                # The first run compiles.
                one(folder, f"{setting} warm", columns, given, client, 1, args.rule)
                found = one(folder, setting, columns, given, client, args.epochs, args.rule)
                exact = exact or found["held"]
                lines.append(
                    [
                        setting,
                        f"{found['progressive']:.4f}",
                        f"{found['held']:.4f}",
                        f"{found['error']:.4f}",
                        f"{found['held'] / exact:.3f}",
                        f"{found['rows_per_second']:,.0f}",
                    ]
                )
                figures[f"{name}, {setting}"] = found
            head = [f"{name}, {args.epochs} epochs", "progressive", "held out", "error"]
            common.table([*head, "÷ exact", "rows/s"], lines)
    common.finish(figures, as_json=args.json)


if __name__ == "__main__":
    main()
