"""A scorer gives the bits of ``streamomd predict`` for every rule and every loss."""

from __future__ import annotations

import contextlib
import json
import pickle
import re
import subprocess
import sys
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from helpers import pairs, some_pairs
from in_memory import assert_same_scores, learn, learned, new_model, predicted

from streamomd.core.errors import DataError
from streamomd.losses import all_losses
from streamomd.rules import all_rules, standardize_problem, target_problem
from streamomd.training.scoring.scorer import Scorer

ROWS = 24
DEFAULTS = {name: rule.parse_params({}) for name, rule in all_rules().items()}
STANDARDIZED = [n for n, rule in all_rules().items() if not standardize_problem(rule, DEFAULTS[n])]
SCALED = [n for n in STANDARDIZED if not all_rules()[n].losses.names]
SCALED = [n for n in SCALED if not target_problem(all_rules()[n], DEFAULTS[n])]


def rows(classes: int, seed: int = 1) -> pa.Table:
    """Numbers, categories with few values and a constant column; y: classes, or numbers if 0."""
    draw = np.random.default_rng(seed)
    a, b = draw.uniform(0.25, 1.0, ROWS), draw.uniform(0.0, 1.0, ROWS)
    b[draw.random(ROWS) < 0.3] = 0.0
    score = a - b + 0.2 * draw.standard_normal(ROWS)
    y: Any = score if not classes else np.digitize(score, [0.0, 0.4])
    y = y if classes != 2 else np.minimum(y, 1)
    return pa.table(
        {
            "a": a,
            "b": b,
            "c": draw.choice(["x", "y", "z"], ROWS),
            "k": draw.integers(0, 3, ROWS),
            "one": np.ones(ROWS),
            "y": np.maximum(y, 0.01) if not classes else y,
        }
    )


def cases() -> list[Any]:
    """Every rule with every loss it learns with, of two and three classes or numbers."""
    quick, found = set(some_pairs()), []
    for pair in pairs():
        of = (2, 3) if all_losses()[pair[1]].classifies else (0,)
        marks = () if pair in quick else pytest.mark.slow
        found += [pytest.param(*pair, n, marks=marks, id="-".join((*pair, str(n)))) for n in of]
    return found


def job(rule: str, loss: str, classes: int) -> dict[str, Any]:
    bound = all_rules()[rule].losses.lipschitz
    unbounded = bool(bound) and all_losses()[loss].lipschitz is None
    data = {"numeric": ["a", "b", "one"], "hashed": ["c", "k"], "bits": 3}
    return {
        "data": data,
        "model": {"rule": rule, "loss": loss},
        "params": {bound: 100.0} if unbounded else {},
    }


@pytest.mark.parametrize(("rule", "loss", "classes"), cases())
@pytest.mark.sample(6)
def test_every_rule_and_loss(rule: str, loss: str, classes: int) -> None:
    """The scores of a rule are bit-identical for each loss it learns with."""
    table = rows(classes)
    assert_same_scores(learned(table, **job(rule, loss, classes)), table)


@pytest.mark.slow
@pytest.mark.parametrize(("rule", "loss", "classes"), cases())
def test_every_rule_and_loss_compiled(rule: str, loss: str, classes: int) -> None:
    """The same of the compiled loops, which ``streamomd predict`` runs."""
    table = rows(classes)
    assert_same_scores(learned(table, compiled=True, **job(rule, loss, classes)), table)


@pytest.mark.parametrize("rule", STANDARDIZED)
@pytest.mark.parametrize("hashed", [["c", "k"], []], ids=["sparse", "dense"])
@pytest.mark.sample(2)
def test_running_references(rule: str, hashed: list[str]) -> None:
    """Columns in running standard units, and a target, give the same bits."""
    table = rows(2, seed=3)
    data = {"numeric": ["a", "b", "one"], "hashed": hashed, "bits": 3}
    loss = all_rules()[rule].losses.default
    model = {"rule": rule, "loss": loss}
    running = {**data, "standardize": "running"}
    assert_same_scores(learned(table, data=running, model=model), table)
    if rule in SCALED:
        numbers = rows(0, seed=4)
        for loss in ("square", "huber"):
            target = {"rule": rule, "loss": loss, "scale_target": True}
            assert_same_scores(learned(numbers, data=running, model=target), numbers)
            assert_same_scores(learned(numbers, data=data, model=target), numbers)


@pytest.mark.parametrize("count", [0, 1, 3])
def test_columns_far_from_zero(count: int) -> None:
    """Centred columns of auto, with few rows and a learner that has seen none."""
    table = rows(3)
    far = pa.array(np.asarray(table.column("a")) + 2024.0)
    table = table.set_column(0, "a", far).slice(0, max(count, 1))
    model = new_model(table, data=job("auto", "softmax", 3)["data"],
                      model={"rule": "auto", "loss": "softmax", "classes": [0, 1, 2]})  # fmt: skip
    if count:
        learn(model, table)
    assert_same_scores(model, rows(3).set_column(0, "a", pa.array(2000.0 + np.arange(ROWS))))


@pytest.mark.parametrize("labels", [["no", "yes"], [False, True], [-1, 1], [1.5, 2.5], [0, 1, 7]])
def test_predictions_are_label_values(labels: list[Any]) -> None:
    """What a scorer returns has the type of the label column."""
    table = rows(len(labels))
    y = pa.array([labels[int(k)] for k in table.column("y").to_pylist()])
    table = table.set_column(table.schema.get_field_index("y"), "y", y)
    model = learned(table, data=job("nag", "logistic", 2)["data"], model={"classes": labels})
    assert_same_scores(model, table)
    assert model.classes == tuple(labels)
    found = model.predict(table)
    assert found.tolist() == predicted(model, table)["prediction"]
    assert found.dtype.kind == {str: "U", bool: "b", int: "i", float: "f"}[type(labels[0])]


SAVED = [
    ("auto", "softmax", 3),
    ("nag", "logistic", 2),
    ("nag", "poisson", 0),
    ("sop", "hinge", 3),
    ("sop_diag", "hinge", 2),
    ("vaw", "square", 0),
    ("nag_projected", "logistic", 2),
]


@pytest.mark.parametrize(("rule", "loss", "classes"), SAVED)
def test_saved_and_pickled(rule: str, loss: str, classes: int, tmp_path: Path) -> None:
    """A file and a pickle of a scorer score as it does; the file is the same each time."""
    table = rows(classes)
    scorer = learned(table, **job(rule, loss, classes)).scorer()
    scorer.save(tmp_path / "a")
    loaded, pickled = Scorer.load(tmp_path / "a"), pickle.loads(pickle.dumps(scorer))
    given = table.to_pylist()
    for row in given:
        assert loaded.score(row) == scorer.score(row) == pickled.score(row)
        assert loaded(row) == scorer(row) == pickled(row)
        assert loaded.explain(row) == scorer.explain(row)
    assert loaded.columns == scorer.columns == {
        "a": "number", "b": "number", "one": "number", "c": "category", "k": "category"
    }  # fmt: skip
    assert loaded.required == tuple(loaded.columns)
    assert loaded.classes == scorer.classes
    loaded.save(tmp_path / "b")
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b"]


def test_a_saved_scorer_is_small(tmp_path: Path) -> None:
    """Of 2^18 coordinates only the weights that are not 0 are saved."""
    table = rows(2)
    data = {"numeric": ["a"], "hashed": ["c"], "bits": 18}
    model = learned(table, data=data, compiled=True)
    model.scorer().save(tmp_path / "a")
    assert (tmp_path / "a").stat().st_size < 4000
    assert len(pickle.dumps(model.scorer())) < 4000


def test_light(tmp_path: Path) -> None:
    """Loading and scoring import neither Arrow, numba, SciPy, pydantic nor Dask."""
    table = rows(2)
    learned(table, **job("auto", "logistic", 2)).scorer().save(tmp_path / "a")
    code = (
        "import sys\n"
        "from streamomd.training.scoring.scorer import Scorer\n"
        f"scorer = Scorer.load({str(tmp_path / 'a')!r})\n"
        "row = {'a': 0.5, 'b': 0.0, 'one': 1, 'c': 'x', 'k': 2}\n"
        "scorer(row), scorer.proba(row), scorer.many([row] * 20), scorer.explain(row)\n"
        "heavy = {'pyarrow', 'numba', 'scipy', 'pydantic', 'dask', 'pandas', 'distributed'}\n"
        "sys.exit(repr(heavy & set(sys.modules)) if heavy & set(sys.modules) else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_hostile_files(tmp_path: Path) -> None:
    """A changed file raises DataError, or is still a scorer; nothing else happens."""
    table, path = rows(3), tmp_path / "a"
    for rule, loss in (("nag", "logistic"), ("sop", "hinge")):
        learned(table, **job(rule, loss, 3)).scorer().save(path)
        whole, draw = path.read_bytes(), np.random.default_rng(8)
        for _ in range(150):
            made = bytearray(whole)
            for at in draw.integers(0, len(made), draw.integers(1, 4)):
                made[at] = draw.integers(0, 256)
            path.write_bytes(made[: draw.integers(0, len(made))] if draw.random() < 0.3 else made)
            with contextlib.suppress(DataError):
                Scorer.load(path).score(table.to_pylist()[0])


def test_a_file_that_inflates(tmp_path: Path) -> None:
    """An array of zeros that takes a thousand times its packed size is refused before it is read,
    whatever its name."""
    path = tmp_path / "a"
    learned(rows(2), **job("nag", "logistic", 2)).scorer().save(path)
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    head = json.loads(members["scorer.json"])
    size = 16 << 20
    head["arrays"]["more"] = ["float64", size]
    members |= {"scorer.json": json.dumps(head).encode(), "more.bin": bytes(8 * size)}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    with pytest.raises(DataError, match="arrays claim"):
        Scorer.load(path)


CHANGES: list[Any] = [
    ("version", 2), ("format", "other"), ("margins.learners", 10**9), ("margins.learners", 2),
    ("columns.bits", 31), ("columns.bits", "3"), ("columns.bias", 1), ("columns.seed", -1),
    ("columns.numbers", [["a", "float", "other"]]), ("columns.numbers", [["a"]]),
    ("columns.vectors", [["v", 2**31, "float", "zero"]]), ("columns.crosses", [["a", "b"]]),
    ("columns.texts", [["t", 10**9, "count"]]), ("columns.texts", [["t", 2, "counted"]]),
    ("columns.sparse", ["i", "v", 10**12, "float"]), ("columns.dates", [["d", "date", ["age"]]]),
    ("link.loss", 5), ("link.classes", [0, 1, 2]), ("link.labels", [[0], 1]),
    ("link.e", 2.0), ("link.mean", "os.system"), ("arrays.weights", ["float64", 10**12, 1]),
    ("arrays.weights", ["object", 13, 1]), ("arrays.start", ["float64", 2]),
    ("arrays.more", ["float64", 1]), ("columns.largest", "inf"), ("columns.least", -1.0),
]  # fmt: skip


@pytest.mark.parametrize(("key", "value"), CHANGES)
def test_changed_descriptions(key: str, value: Any, tmp_path: Path) -> None:
    """Every size and type of a file is checked before it is used."""
    path = tmp_path / "a"
    learned(rows(2), **job("nag", "logistic", 2)).scorer().save(path)
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    head = json.loads(members["scorer.json"])
    *tables, last = key.split(".")
    at = head
    for name in tables:
        at = at[name]
    at[last] = value
    members["scorer.json"] = json.dumps(head).encode()
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    with pytest.raises(DataError, match=re.escape(str(path))):
        Scorer.load(path)


def test_threads_share_a_scorer() -> None:
    """Threads that score at the same time, with more values than are cached, get the same bits."""
    table = rows(2)
    scorer = learned(table, **job("nag", "logistic", 2)).scorer()
    given = [{**row, "k": at} for at, row in enumerate(table.to_pylist() * 900)]
    expected = [Scorer(*scorer._form).score(row) for row in given[:200]]
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda low: [scorer.score(row) for row in given[low:]], [0, 0, 5, 9]))
    assert [one[:200] for one in found[:2]] == [expected] * 2
    assert found[0][9:] == found[3]
