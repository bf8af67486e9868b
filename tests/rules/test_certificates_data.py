"""Every rule's certificate on real data: Bank, a9a, ijcnn1 and Blitzer's reviews."""

from __future__ import annotations

import functools
import gzip
import math
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from certified import certificate
from running import run

import streamomd
from streamomd.analysis.certify import certify
from streamomd.analysis.comparator import Problem, best
from streamomd.losses import find_loss
from streamomd.rules import all_rules

DATA = Path(__file__).parents[3] / "shared" / "data"
FOLDERS = {
    "bank": "bank-marketing", "a9a": "a9a", "ijcnn1": "ijcnn1", "blitzer": "blitzer-sentiment",
}  # fmt: skip
BANK = ("age", "balance", "day", "duration", "campaign", "pdays", "previous")
PAIR = '{indices="indices", values="values"}'
CERTIFIED = [name for name, rule in all_rules().items() if certificate(rule)]
# What costs more than a row's non-zeros (ONS: a projection a row) gets fewer rows, and text fewer
# coordinates.
ROWS = {"root": 1000, "recent": 1000, "ons": 2000}
BITS = {"coordinates": 18, "matrix": 8, "root": 5, "recent": 18, "block": 7}
# ONS's theorem is about small predictions: a ball of radius 1 / (length of the longest row).
RADIUS = {"bank": 9e-6, "a9a": 0.25, "ijcnn1": 0.2, "blitzer": 1e-3}
FLAT = 8  # bits for rules that look at all coordinates on some rows


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("data")


def shards(folder: Path, name: str, rows: int, bits: int) -> tuple[str, dict[str, Any]]:
    """Shards of a data set's first rows, and how to read them; made once."""
    if not (DATA / FOLDERS[name]).is_dir():
        pytest.skip(f"../shared/data/{FOLDERS[name]} is not beside this checkout")
    out = folder / f"{name}-{rows}-{bits if name == 'blitzer' else 0}"
    if not out.is_dir():
        out.mkdir()
        table = MAKERS[name](folder, bits)
        pq.write_table(table.slice(0, rows or len(table)), str(out / "rows.parquet"))
    if name == "bank":
        return str(out), {"label": "y", "numeric": list(BANK)}
    size = {"a9a": 123, "ijcnn1": 23, "blitzer": 1 << bits}[name]
    pair = {"indices": "indices", "values": "values", "size": size}
    return str(out), {"label": "label", "sets": {"data.sparse": pair}}


def bank(folder: Path, bits: int) -> pa.Table:
    options = pyarrow.csv.ParseOptions(delimiter=";")
    path = str(DATA / "bank-marketing" / "bank-full.csv.gz")
    return pyarrow.csv.read_csv(path, parse_options=options).select(["y", *BANK])


def converted(folder: Path, source: str, *more: str) -> pa.Table:
    to = folder / "converted" / Path(source).stem
    if not to.is_dir():
        done = run("convert", DATA / source, "--from", "svmlight", "--to", to, *more)
        assert done.code == 0, done.err
    return pq.read_table(str(to))


def reviews() -> Iterator[tuple[int, Counter[str]]]:
    for path in sorted((DATA / "blitzer-sentiment" / "processed_acl").glob("*/*.review.gz")):
        with gzip.open(path, "rt", encoding="utf-8") as lines:
            for line in lines:
                pairs = (entry.rpartition(":") for entry in line.split())
                counts = {word: int(n) for word, _, n in pairs if word != "#label#"}
                yield int(path.name.startswith("positive")), Counter(counts)


def blitzer(folder: Path, bits: int) -> pa.Table:
    numbers: dict[str, int] = {}
    y, indices, values = [], [], []
    for label, words in reviews():
        row: Counter[int] = Counter()
        for word, n in words.items():
            row[numbers.setdefault(word, len(numbers)) % (1 << bits)] += n
        at = sorted(row)
        y.append(label)
        indices.append(at)
        values.append([float(row[i]) for i in at])
    table = pa.table({"label": y, "indices": indices, "values": values})
    return table.take(pa.array(np.random.default_rng(0).permutation(len(y))))


MAKERS = {
    "bank": bank,
    "a9a": lambda folder, bits: converted(folder, "a9a/adult.trn.bz2", "--zero-based"),
    "ijcnn1": lambda folder, bits: converted(folder, "ijcnn1/ijcnn1.trn.bz2", "--zero-based"),
    "blitzer": blitzer,
}


def loss_of(name: str) -> str:
    """The rule's first, or logistic; square for those whose theorem is about regression."""
    rule = all_rules()[name]
    return rule.certificate.losses[0] if rule.certificate.losses else rule.losses.default


@functools.cache
def comparator(where: str, loss: str, model_url: str) -> np.ndarray:
    from streamomd.analysis.certify.replay import Replay
    from streamomd.sources.find import find

    model = streamomd.load(model_url)
    past = Replay(model, find(where))
    learned = find_loss(loss)
    shape = (model.plan.size, model.engine.classes, model.engine.layout.learners, model.plan.bias)
    return best(Problem(past, learned, learned.parse_params({}), *shape), passes=60).u


BEST: dict[tuple[str, str], np.ndarray] = {}


def examine(folder: Path, name: str, data: str, record: Any) -> None:
    rule = all_rules()[name]
    projected = rule.constraint and rule.constraint.largest
    bits = FLAT if projected else BITS[rule.storage.kind]
    where, flags = shards(folder, data, ROWS.get(name, ROWS.get(rule.storage.kind, 0)), bits)
    loss = loss_of(name)
    if not find_loss(loss).classifies:  # y as a number
        where, flags = numbers(Path(where), flags)
    params = {"gamma": 0.3, "ball": "l2", "radius": RADIUS[data]} if name == "ons" else {}
    if rule.storage.kind == "block":
        params = {"block": 256}  # all coordinates
    told = {"model.certificate": True, "model.params": params, **flags.pop("sets", {})}
    kept = folder / f"{name}-{data}"
    model = streamomd.train(
        where, **flags, rule=name, loss=loss, sets=told, checkpoint=str(kept), quiet=True
    )
    if (where, loss) not in BEST:
        BEST[where, loss] = comparator(where, loss, str(kept))
    for u in (BEST[where, loss], np.zeros_like(BEST[where, loss])):
        [said] = certify(model, where, comparator=u)
        assert said["claims"], said["reason"]
        for claim in said["claims"]:
            assert math.isfinite(claim["measured"])
            assert math.isfinite(claim["bound"])
            rounding = 1e-9 * (abs(claim["bound"]) + said["loss"])
            assert claim["measured"] <= claim["bound"] + rounding, claim
            if claim["measured"] > 0.0 and u.any():
                line = f"{name:30} {claim['ratio']:12.4g}  on {data:10} {claim['claim']}"
                record("certificate", f"{line} ({claim['source']})")


def numbers(where: Path, flags: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """The same shards with labels of -1 and 1, as regression takes them."""
    out = where.with_name(where.name + "-numbers")
    if not out.is_dir():
        out.mkdir()
        table = pq.read_table(str(where))
        at = table.schema.get_field_index(flags["label"])
        y = table.column(at).to_pylist()
        y = [1.0 if value in ("yes", 1, 1.0) else -1.0 for value in y]
        pq.write_table(table.set_column(at, flags["label"], pa.array(y)), str(out / "rows.parquet"))
    return str(out), dict(flags)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("data", list(FOLDERS))
@pytest.mark.parametrize("name", CERTIFIED)
def test_bounds_hold_on_real_data(name: str, data: str, folder: Path, record_property) -> None:
    """Every rule with a certificate on every set, against the best fixed weights and none."""
    examine(folder, name, data, record_property)
