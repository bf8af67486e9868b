"""The disk cache of compiled loops: hit by a second process, missed after an edit."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import BuiltinFunctionType, FunctionType

import pytest

import streamomd
from streamomd.core import jit
from streamomd.engine import Engine
from streamomd.engine import compile as fuse
from streamomd.engine.layout import Layout
from streamomd.engine.loops import row
from streamomd.losses import find_loss
from streamomd.rules import all_rules, find_rule

SCRIPT = """
import json, sys
import numpy as np
from streamomd.core.batch import DenseBatch
from streamomd.core import jit
from streamomd.engine import Engine
from streamomd.losses import find_loss
from streamomd.losses.contract import smoothed
from streamomd.rules import find_rule
from streamomd.engine.layout import Layout
from streamomd.engine.state import State

out = {}
rng = np.random.default_rng(0)
X, y = rng.normal(size=(50, 3)), np.sign(rng.normal(size=50))
found = []
original = jit.compile_cached
def recorded(loop, signature):
    found.append(original(loop, signature))
    return found[-1]
jit.compile_cached = recorded
for name in sys.argv[1:]:
    rule = find_rule(name.removesuffix("+accounts"))
    rule = rule.certificate.accounted if name.endswith("+accounts") else rule
    layout = Layout(rule, 4, 1, "float64")
    state = State.start(layout)
    loss = smoothed(find_loss("hinge")) if rule.name == "eg" else find_loss(rule.losses.default)
    engine = Engine(layout, loss, 2, True, rule.parse_params({}))
    margins = engine.learn(state, np.zeros(3), DenseBatch(X, y, np.ones(50)))
    hits = sum(found[-1].stats.cache_hits.values())
    out[name] = [hits, margins.tobytes().hex()[-64:], "numba.np.arraymath" in sys.modules]
print(json.dumps(out))
"""


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A copy of the package whose sources may be edited."""
    home = tmp_path / "copy"
    ignore = shutil.ignore_patterns("__pycache__")
    shutil.copytree(Path(streamomd.__file__).parent, home / "streamomd", ignore=ignore)
    return home


def read_only(folder: Path) -> list[str]:
    """A command that runs another where a folder cannot be written, not even by root."""
    if os.geteuid() != 0:
        script = f'chmod -R a-w {folder}; "$@"; s=$?; chmod -R u+w {folder}; exit $s'
        return ["sh", "-c", script, "-"]
    mount = f"mount --bind {folder} {folder} && mount -o remount,ro,bind {folder}"
    within = ["unshare", "-m", "sh", "-c", f'{mount} || exit 77; exec "$@"', "-"]
    if subprocess.run([*within, "true"], capture_output=True, check=False).returncode:
        pytest.skip("this machine lets root mount nothing, and chmod does not bind root")
    return within


def run(home: Path, *rules: str, within: Sequence[str] = (), **env: str) -> subprocess.Popen:
    """A fresh process that learns with each rule and prints cache hits and margins."""
    ours = {"PYTHONPATH": str(home), "PYTHONDONTWRITEBYTECODE": "1"}
    environment = {**os.environ, **ours, "NUMBA_CACHE_DIR": str(home / "cache"), **env}
    return subprocess.Popen(
        [*within, sys.executable, "-c", SCRIPT, *rules],
        env=environment,
        cwd=home,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def result(process: subprocess.Popen) -> dict[str, list]:
    """What the process printed."""
    import json

    out, err = process.communicate(timeout=300)
    assert process.returncode == 0, err
    return json.loads(out)


def test_a_second_process_compiles_nothing(package: Path) -> None:
    """The first process misses, the second hits, with the same margins; it loads no compiler."""
    first = result(run(package, "nag"))["nag"]
    second = result(run(package, "nag"))["nag"]

    assert [first[0], second[0]] == [0, 1]
    assert first[1] == second[1]
    assert [first[2], second[2]] == [True, False]


@pytest.mark.slow
def test_nor_where_a_loop_holds_what_was_made_at_run_time(package: Path) -> None:
    """The slots of a certificate and a smoothed loss."""
    first, second = (result(run(package, "eg+accounts"))["eg+accounts"] for _ in range(2))

    assert [first[0], second[0]] == [0, 1]
    assert first[1] == second[1]


@pytest.mark.slow
def test_nor_where_another_loop_was_compiled_before(package: Path) -> None:
    """Functions that two loops share have the same name in each order."""
    words = ("adagrad+accounts", "eg")
    first, second = result(run(package, *words)), result(run(package, *reversed(words)))

    assert [first[word][0] for word in words] == [0, 0]
    assert [second[word][0] for word in words] == [1, 1]
    assert [first[word][1] for word in words] == [second[word][1] for word in words]


@pytest.mark.parametrize(
    "file, old, new",
    [
        ("rules/nag.py", "own.w - move.step * (", "own.w - 2.0 * move.step * ("),
        pytest.param(
            "rules/common/schedules.py",
            "return eta / math.sqrt(t)",
            "return 2.0 * eta / math.sqrt(t)",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            "engine/loops/load_store.py",
            "return (float(cells[at]) * 1.0,)",
            "return (float(cells[at]) * 2.0,)",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            "losses/logistic.py",
            "return -y * sigmoid(-y * margin)",
            "return -y * sigmoid(-2.0 * y * margin)",
            marks=pytest.mark.slow,
        ),
    ],
    ids=["rule", "helper", "engine", "loss"],
)
@pytest.mark.slow
def test_an_edit_is_compiled_anew(package: Path, file: str, old: str, new: str) -> None:
    """An edited rule, helper or loss is never run as it was before."""
    rule = "ng" if "schedule" in file else "nag"  # the one that calls it
    before = result(run(package, rule))
    source = package / "streamomd" / file
    text = source.read_text("utf-8")
    assert text.count(old) == 1
    source.write_text(text.replace(old, new), "utf-8")
    after = result(run(package, rule))

    assert after[rule][0] == 0
    assert after[rule][1] != before[rule][1]


@pytest.mark.slow
def test_no_place_for_a_cache_is_no_obstacle(package: Path) -> None:
    """Where no cache can be written, loops are compiled for the process alone."""
    nowhere = package / "file"
    nowhere.write_text("")
    for place in (package / "streamomd" / "engine").iterdir():
        assert place.name != "__pycache__"
    (package / "streamomd" / "engine" / "__pycache__").write_text("a file where a folder would be")
    blocked = {
        "NUMBA_CACHE_DIR": str(nowhere / "in"),
        "HOME": str(nowhere),
        "XDG_CACHE_HOME": str(nowhere),
    }
    here = result(run(package, "nag", **blocked))
    (package / "streamomd" / "engine" / "__pycache__").unlink()

    assert here["nag"][0] == 0
    assert here["nag"][1] == result(run(package, "nag"))["nag"][1]


@pytest.mark.slow
def test_a_full_cache_that_cannot_be_written_is_still_read(package: Path) -> None:
    """A cache made before and then read-only is hit, or passed over; never an error."""
    first = result(run(package, "nag"))
    cache = package / "cache"
    before = sorted(str(path) for path in cache.rglob("*"))
    again = result(run(package, "nag", "pa1", within=read_only(cache)))

    assert again["nag"][1] == first["nag"][1]
    assert sorted(str(path) for path in cache.rglob("*")) == before


@pytest.mark.slow
@pytest.mark.parametrize("count", [2, 6])
def test_cold_processes_at_once_agree(package: Path, count: int) -> None:
    """Processes that compile the same loop at once have the same margins; one more hits."""
    results = [result(process) for process in [run(package, "nag") for _ in range(count)]]
    another = result(run(package, "nag"))["nag"]

    assert [one["nag"][1] for one in results] == [another[1]] * count
    assert another[0] == 1


APART = """
import sys
import numpy as np
from streamomd.core.batch import DenseBatch
from streamomd.engine import Engine
from streamomd.losses import find_loss
from streamomd.rules import find_rule
from streamomd.engine.layout import Layout
from streamomd.engine.state import State

rng = np.random.default_rng(0)
X, y = rng.normal(size=(40, 3)), rng.integers(0, 3, 40)

def learned(name, classes, compiled):
    rule, loss = find_rule(name), find_loss("hinge")
    layout = Layout(rule, 3, 1 if classes == 2 else 3, "float64")
    params = rule.parse_params({})
    params |= {"L": 1.0} if "L" in params else {}
    engine = Engine(layout, loss, classes, False, params, {}, compiled)
    state = State.start(layout)
    engine.begin(state)
    target = np.where(y == 0, 1.0, -1.0) if classes == 2 else y.astype(float)
    return engine.learn(state, np.zeros(3), DenseBatch(X, target, np.ones(40))).tobytes()

for classes in map(int, sys.argv[2:]):
    assert learned(sys.argv[1], classes, True) == learned(sys.argv[1], classes, False), classes
"""


@pytest.mark.parametrize(
    "rule",
    [
        pytest.param(n, marks=pytest.mark.slow)
        for n in ("pa1", "eg", "dual_ascent", "nag_projected", "arow")
    ],
)
def test_what_is_loaded_does_not_stand_in_for_what_is_compiled(rule: str, tmp_path: Path) -> None:
    """A loop from the disk and one compiled beside it, of other constants, keep their own parts."""
    env = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}
    for classes in (["3"], ["3", "2"], ["2", "3"]):
        command = [sys.executable, "-c", APART, rule, *classes]
        done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr


def made_loop(rule: str, operation: str = "learn") -> tuple:
    """A rule, its first loss, a shape, and a loop of them, uncompiled."""
    described = find_rule(rule)
    loss = find_loss((described.losses.names or ("hinge",))[0])
    bias = int(described.storage.kind == "block")  # which has one always
    shape = fuse.Shape(3, 3, Layout(described, 4, 3, "float64").width, bias, False)
    return (
        described,
        loss,
        shape,
        fuse.OPERATIONS[operation].maker(described)(described, loss, shape),
    )


FOLDER = Path(streamomd.__file__).parent


@pytest.mark.parametrize(
    "file, rule, operation, is_part",
    [
        ("rules/nag.py", "nag", "learn", True),
        ("losses/hinge.py", "nag", "learn", True),
        ("rules/common/schedules.py", "ng", "learn", True),
        ("engine/loops/load_store.py", "nag", "learn", True),
        ("engine/loops/sparse.py", "nag", "learn", True),
        ("engine/loops/cache_prefetch.py", "nag", "learn", True),
        ("engine/linalg/matrix_root.py", "adagrad_full", "learn", True),
        ("engine/loops/microbatch.py", "nag", "sense", True),
        ("engine/compile.py", "nag", "learn", True),
        ("core/jit.py", "nag", "learn", True),
        ("engine/loops/microbatch.py", "nag", "learn", False),
        ("engine/linalg/matrix_root.py", "nag", "learn", False),
        ("engine/loops/dense.py", "nag", "learn", False),
        ("engine/merge.py", "nag", "learn", False),
        ("engine/state.py", "nag", "learn", False),
        ("rules/arow.py", "nag", "learn", False),
        ("losses/square.py", "nag", "learn", False),
    ],
)
def test_the_key_of_a_loop_is_of_the_files_that_it_reaches(
    file: str, rule: str, operation: str, is_part: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An edit in one of them changes the key; an edit in another file does not."""
    described, loss, _, loop = made_loop(rule, operation)
    before, edited, read = fuse.stamp(described, loss, loop), FOLDER / file, fuse._text
    assert edited.exists()
    monkeypatch.setattr(fuse, "_text", lambda name: read(name) + b"\n#" * (Path(name) == edited))
    assert (fuse.stamp(described, loss, loop) != before) is is_part


def test_the_key_of_a_loop_has_the_constants_of_other_files(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A number that a loop reads is in its key, wherever it was defined, at any depth."""
    rule, loss, _, loop = made_loop("nag")
    before = fuse.stamp(rule, loss, loop)
    for function, name in ((loop, "AHEAD"), (row.span, "FAR")):
        with monkeypatch.context() as patch:
            patch.setitem(function.__globals__, name, 7)
            assert fuse.stamp(rule, loss, loop) != before
    assert fuse.stamp(rule, loss, loop) == before


@pytest.mark.parametrize("rule", all_rules())
def test_a_loop_is_known_by_its_key_and_its_parts_are_named_after_it(
    rule: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All that a loop reads is of kinds whose words in the key say all of it.

    Of two loops in a process, each of other constants, each calls its own parts.
    """
    described, loss, shape, loop = made_loop(rule)
    for function in (loop, *fuse._reached(loop)):
        closed = [cell.cell_contents for cell in function.__closure__ or ()]
        read = [*fuse._read(function), *closed]
        read += [each for value in read if isinstance(value, tuple) for each in value]
        for value in read:
            foreign = type(value).__module__.startswith(fuse.FOREIGN) and callable(value)
            assert foreign or isinstance(
                value, (int, float, tuple, type, FunctionType, BuiltinFunctionType)
            ), (function, value)

    monkeypatch.setattr(jit, "compile_cached", lambda loop, signature: loop)
    loop = fuse.compiled_loop.__wrapped__("learn", described, loss, shape, "float64", "float64")
    reached = fuse._reached(loop)
    assert len(reached) > 1
    assert not [function for function in reached if "<locals>" in function.__qualname__]


def test_a_loop_with_implicit_steps_has_a_name_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """A loop without their pass is another loop, kept in another file; plain, it is told apart."""
    monkeypatch.setattr(jit, "compile_cached", lambda loop, signature: loop)
    fuse.compiled_loop.cache_clear()
    rule, names = find_rule("nag"), []
    try:
        for params in ({}, {"implicit": True}):
            layout = Layout(rule, 4, 1, "float64")
            numbers = rule.parse_params(params)
            engine = Engine(layout, find_loss("logistic"), 2, True, numbers, {}, True)
            names.append(engine._make("learn", False, "float64").__name__)
    finally:
        fuse.compiled_loop.cache_clear()

    assert ["_implicit_" in name for name in names] == [False, True]
