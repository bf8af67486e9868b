"""Manifests that claim a large state: refused before memory is allocated, for every rule."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from streamomd.rules import all_rules

PEAK = 400 << 20

LOADS = """
import json, math, random, resource, sys
from pathlib import Path

import streamomd
from streamomd import engine
from streamomd.checkpoint.sealed_json import seal, unseal
from streamomd.core.errors import StreamomdError
from streamomd.losses import all_losses
from streamomd.rules import all_rules

folder, rule, seed, cases, peak = Path(sys.argv[1]), *sys.argv[2:]
found = all_rules()[rule]
# Sixteen rows are learned uncompiled: compiling a rule takes seconds.
engine.compiled_loop = lambda *loop: engine.plain_loop(*loop[:4])
made = streamomd.train(
    str(folder / "a.parquet"), label="y", numeric=["n"], hashed=["h"], bits=4, rule=rule,
    loss=found.losses.default, checkpoint=str(folder / "run"), quiet=True,
    sets={"checkpoint.keep": 1},
)
[manifest] = (folder / "run" / "commits").iterdir()
fields, _ = unseal(manifest.read_bytes())
original = json.dumps(fields)
NAMES = list(all_rules())


def lo_hi(f, draw):
    part = f["parts"][-1]
    part["hi"] = draw.choice((1 << 20, 1 << 29, 2**31 - 1, 10**12 - 1))
    part["name"] = f"p{part['lo']:012d}-{part['hi']:012d}.safetensors"


def shapes(f, draw):
    for array in f["parts"][0]["arrays"].values():
        array[1][0] = draw.choice((0, 1, 1 << 20, 1 << 29))


def claimed(f, draw):
    "All that the manifest says of the state agrees: bits, ranges, shapes and sizes."
    bits(f, draw)
    first, size = f["parts"][0], f["parts"][-1]["hi"] - 16 + 2 ** f["document"]["plan"]["bits"]
    slots = {name: array for name, array in first["arrays"].items() if name.startswith("slot.")}
    step = (900 << 20) // (8 * sum(array[1][1] for array in slots.values()))
    f["parts"] = []
    for lo in range(0, size, step):
        hi = min(lo + step, size)
        arrays = {} if lo else dict(first["arrays"])
        for name, (code, (_, width)) in slots.items():
            arrays[name] = [code, [hi - lo, width]]
        declared = sum(8 * math.prod(shape) for _, shape in arrays.values())
        name = f"p{lo:012d}-{hi:012d}.safetensors"
        f["parts"].append(
            {**first, "name": name, "lo": lo, "hi": hi, "arrays": arrays, "size": declared + 1000}
        )


def bits(f, draw):
    f["document"]["job"]["data"]["bits"] = f["document"]["plan"]["bits"] = draw.randint(20, 30)


def pair(f, draw):
    sparse = {"indices": "i", "values": "v", "size": draw.choice((1 << 24, 1 << 30))}
    f["document"]["job"]["data"]["sparse"] = sparse
    f["document"]["plan"]["sparse"] = list(sparse.values())


def vectors(f, draw):
    f["document"]["plan"]["vectors"] = [["x", draw.choice((1 << 24, 1 << 30))]]


def classes(f, draw):
    many = list(range(draw.choice((3, 1000, 20_000))))
    f["document"]["plan"]["classes"] = f["document"]["job"]["model"]["classes"] = many
    f["document"]["job"]["model"]["task"] = "classify"


def other_rule(f, draw):
    f["document"]["job"]["model"]["rule"] = draw.choice(NAMES)
    f["document"]["job"]["model"]["params"] = {}


def dtype(f, draw):
    f["document"]["job"]["model"]["dtype"] = "float32"


def certificate(f, draw):
    f["document"]["job"]["model"]["certificate"] = True


def parts(f, draw):
    f["parts"] *= draw.choice((0, 2, 40))


def renamed(f, draw):
    arrays = f["parts"][0]["arrays"]
    arrays["../x"] = arrays.pop(draw.choice(list(arrays)))


def integers(f, draw):
    job = f["document"]["job"]
    table = job[draw.choice(list(job))]
    keys = [key for key, value in table.items() if type(value) in (int, float)]
    if keys:
        table[draw.choice(keys)] = draw.choice((0, 1, 2**20, 2**30, 2**31, 2**62, 1e308))


EDITS = (
    lo_hi, shapes, claimed, bits, pair, vectors, classes, other_rule, dtype, certificate, parts,
    renamed, integers,
)


def most():
    text = Path("/proc/self/status").read_text()
    return 1024 * int(text.split("VmHWM:")[1].split()[0])


# What is asked for and never touched is found by the limit, what is touched by the peak.
used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
hard = resource.getrlimit(resource.RLIMIT_AS)[1]
resource.setrlimit(resource.RLIMIT_AS, (used + (200 << 20), hard))
ends = {}
for at in range(int(cases)):
    draw = random.Random(f"{rule}-{seed}-{at}")
    edited = json.loads(original)
    one = EDITS[at % len(EDITS)]
    one(edited, draw)
    if edited["parts"] and draw.randrange(3) == 0:
        draw.choice(EDITS)(edited, draw)
    manifest.write_bytes(seal(edited))
    try:
        same = streamomd.load(str(folder / "run")).state_sha256 == made.state_sha256
        end = "same" if same else "other"
    except StreamomdError as error:
        end = "memory" if "more than is available" in str(error) else type(error).__name__
    assert most() <= int(peak), (at, one.__name__, most())
    ends.setdefault(one.__name__, {}).setdefault(end, 0)
    ends[one.__name__][end] += 1
print(json.dumps({"ends": ends, "peak": most()}))
"""


def shard(path: Path) -> None:
    """Sixteen rows that every rule learns."""
    draw = np.random.default_rng(3)
    n = draw.normal(size=16)
    table = {"y": (n > 0).astype(np.int64), "n": n, "h": [f"c{k % 3}" for k in range(16)]}
    pq.write_table(pa.table(table), str(path))


def loads(folder: Path, rule: str, cases: int) -> dict[str, Any]:
    """How loads of edited manifests ended, by edit, and the peak in bytes."""
    shard(folder / "a.parquet")
    words = [sys.executable, "-c", LOADS, str(folder), rule, "1", str(cases), str(PEAK)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


QUICK = ("winnow", "nag", "arow", "dual_ascent")


@pytest.mark.parametrize(
    "rule",
    [*QUICK, *(pytest.param(r, marks=pytest.mark.slow) for r in all_rules() if r not in QUICK)],
)
@pytest.mark.sample(2)
def test_a_manifest_takes_no_memory_for_what_is_not_there(rule: str, tmp_path: Path) -> None:
    """Manifests edited to claim more bits, classes, columns, parts or larger arrays are refused
    with less than 400 MB; none is loaded as another model."""
    found = loads(tmp_path, rule, 130)
    ends = found["ends"]
    for edit in ("lo_hi", "claimed", "bits", "pair", "vectors", "parts", "renamed"):
        assert not {"same", "other"} & set(ends[edit]), (edit, ends[edit])
    assert not [edit for edit, those in ends.items() if "memory" in those]
    assert not [edit for edit, those in ends.items() if "other" in those and edit != "integers"]
    assert found["peak"] <= PEAK
