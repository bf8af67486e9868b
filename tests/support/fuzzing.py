"""Bytes of shards and of checkpoints spoilt at random, in a process with little memory.

As a program: ``python tests/support/fuzzing.py KIND SEED CASES [FIRST]`` runs seeded cases, from
one on, and prints what came of them as JSON. Each is named on stderr before it is run: it ends with
a signal where the libraries below crash, and with a traceback where anything but one of streamomd's
own errors is raised.
"""

from __future__ import annotations

import hashlib
import json
import random
import resource
import sys
import tempfile
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

MORE_MEMORY = 768 << 20  # of address space, beyond what the imports take


def spoilt(rng: random.Random, data: bytes) -> bytes:
    """Some bytes changed, cut out, put in, repeated, or moved; rarely the end is lost."""
    out = bytearray(data)
    for _ in range(rng.choice((1, 1, 1, 2, 4, 8))):
        at = rng.randrange(len(out))
        match rng.randrange(7):
            case 0:
                out[at] ^= 1 << rng.randrange(8)
            case 1:
                out[at] = rng.choice((0, 1, 0x7F, 0x80, 0xFE, 0xFF))
            case 2:
                out[at : at + 4] = rng.choice((b"\xff\xff\xff\x7f", b"\0\0\0\x80", b"\xff" * 4))
            case 3:
                del out[at : at + rng.randrange(1, 9)]
            case 4:
                out[at:at] = rng.randbytes(rng.randrange(1, 9))
            case 5:
                low = rng.randrange(len(out))
                out[at : at + 8] = out[low : low + 8]
            case _:
                if rng.randrange(8) == 0 and at > 16:
                    del out[at:]
    return bytes(out)


def within(rng: random.Random, data: bytes, low: int, high: int) -> bytes:
    """Spoilt between two places; where the length changed, lengths told elsewhere are wrong."""
    return data[:low] + spoilt(rng, data[low:high]) + data[high:]


def table() -> pa.Table:
    """Rows of every kind that features are made of."""
    draw = np.random.default_rng(1)
    rows = 60
    lists = [list(range(at % 4)) for at in range(rows)]
    return pa.table(
        {
            "y": pa.array(draw.integers(0, 2, rows)),
            "n": pa.array(draw.normal(size=rows)),
            "h": pa.array([f"w{at % 5}" for at in range(rows)]),
            "i": pa.array(lists, pa.list_(pa.int32())),
            "v": pa.array([[0.5] * len(one) for one in lists], pa.list_(pa.float64())),
        }
    )


def shards(folder: Path) -> dict[str, tuple[bytes, int]]:
    """Bytes of a shard of each format, and where its footer begins."""
    for name, how in {"a": {}, "b": {"compression": "zstd", "data_page_version": "2.0"}}.items():
        path = str(folder / f"{name}.parquet")
        pq.write_table(table(), path, row_group_size=25, write_page_checksum=True, **how)
    for name, codec in {"c": None, "d": "lz4"}.items():
        options = pa.ipc.IpcWriteOptions(compression=codec)
        with pa.ipc.new_file(str(folder / f"{name}.arrow"), table().schema, options=options) as to:
            to.write_table(table(), max_chunksize=25)
    found = {}
    for path in sorted(folder.iterdir()):
        data = path.read_bytes()
        end = 8 if path.suffix == ".parquet" else 10
        found[path.name] = data, len(data) - end - int.from_bytes(data[-end : 4 - end], "little")
        path.unlink()
    return found


def shard_cases(folder: Path) -> Callable[[random.Random], str]:
    """A shard is found and read, or refused: "same", "other" or "refused"."""
    from streamomd.config.data_table import Data
    from streamomd.config.model_table import Model
    from streamomd.features import check_schema, make_plan
    from streamomd.shards.encoded_rows import encode_rows
    from streamomd.shards.reader import read_batches
    from streamomd.sources.find import find

    originals = shards(folder)
    pair = {"indices": "i", "values": "v", "size": 10}
    data = Data.model_validate({"label": "y", "numeric": "n", "hashed": "h", "sparse": pair})
    plan = make_plan(data, Model.model_validate({}), table().schema, lambda: [0, 1])

    def read(path: Path) -> bytes:
        found = find(str(path))
        check_schema(plan, found.shards[0].schema, str(path))
        digest = hashlib.sha256()
        batches = read_batches(
            found, places=[0], columns=plan.columns, dictionary=plan.dictionary, threads=1
        )
        for piece in batches.map(partial(encode_rows, plan)):
            batch = piece.value.batch
            for part in (batch.indices, batch.values, batch.y):
                digest.update(part.tobytes())
        return digest.digest()

    def case(rng: random.Random) -> str:
        name = rng.choice(sorted(originals))
        whole, footer = originals[name]
        path = folder / name
        if name not in expected:
            path.write_bytes(whole)
            expected[name] = read(path)
        place = rng.choice(((0, len(whole)), (footer, len(whole) - 10), (0, footer)))
        path.write_bytes(within(rng, whole, *place))
        return "same" if read(path) == expected[name] else "other"

    expected: dict[str, bytes] = {}
    return case


def page_cases(folder: Path) -> Callable[[random.Random], str]:
    """As shards, but only what a page's checksum covers is spoilt: never "other"."""
    from streamomd.shards.reader import read_batches
    from streamomd.sources.find import find

    rows = 40
    schema = pa.schema([pa.field("n", pa.float64(), nullable=False)])
    values = pa.table({"n": np.random.default_rng(2).normal(size=3 * rows)}, schema=schema)
    path = folder / "a.parquet"
    pq.write_table(
        values, str(path), row_group_size=rows, use_dictionary=False, compression="none",
        write_page_checksum=True,
    )  # fmt: skip
    whole, ends = path.read_bytes(), []
    for group in range(3):
        chunk = pq.read_metadata(str(path)).row_group(group).column(0)
        ends.append(chunk.data_page_offset + chunk.total_compressed_size)
    assert whole[ends[0] - 8 * rows : ends[0]] == values.column("n").to_numpy()[:rows].tobytes()

    def case(rng: random.Random) -> str:
        data, end = bytearray(whole), rng.choice(ends)
        for _ in range(rng.choice((1, 1, 2, 9))):
            data[rng.randrange(end - 8 * rows, end)] ^= rng.randrange(1, 256)
        path.write_bytes(data)
        batches = read_batches(find(str(path)), places=[0], columns=["n"], threads=1)
        found = b"".join(batches.map(lambda rows: rows.batch.column("n").to_numpy().tobytes()))
        same = found == values.column("n").to_numpy().tobytes()
        return "same" if same and bytes(data) == whole else "other"

    return case


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Every key of nested JSON."""
    if not isinstance(value, dict | list):
        return
    for key, child in value.items() if isinstance(value, dict) else enumerate(value):
        yield (*path, key)
        yield from places(child, (*path, key))


def nonsense(rng: random.Random, depth: int = 0) -> Any:
    """Any JSON, of numbers at the edges of their types more often than not."""
    simple = (None, True, 0, -1, 1, 7, 2**31, 2**53, 2**62, -(2**63), 0.5, -1e308, "", "x", "../x")
    if depth > 2 or rng.randrange(4):
        return rng.choice(simple)
    if rng.randrange(2):
        return [nonsense(rng, depth + 1) for _ in range(rng.randrange(3))]
    return {str(key): nonsense(rng, depth + 1) for key in range(rng.randrange(3))}


def checkpoint_cases(folder: Path) -> Callable[[random.Random], str]:
    """A checkpoint is loaded, or refused, whose manifest or part was spoilt and sealed again."""
    import streamomd
    from streamomd.checkpoint.sealed_json import seal, unseal

    pq.write_table(table(), str(folder / "a.parquet"))
    url = folder / "kept"
    made = streamomd.train(
        str(folder / "a.parquet"), label="y", numeric=["n"], hashed=["h"], bits=4,
        checkpoint=str(url), quiet=True, sets={"checkpoint.keep": 1},
    )  # fmt: skip
    [manifest] = (url / "commits").iterdir()
    [part] = url.glob("data/*/p*")
    fields, _ = unseal(manifest.read_bytes())
    told, content = json.dumps(fields), part.read_bytes()
    header = 8 + int.from_bytes(content[:8], "little")

    def case(rng: random.Random) -> str:
        edited = json.loads(told)
        part.write_bytes(content)
        if rng.randrange(3):
            inner = edited
            *path, key = rng.choice(list(places(edited)))
            for step in path:
                inner = inner[step]
            if rng.randrange(8):
                inner[key] = nonsense(rng)
            else:
                del inner[key]
            manifest.write_bytes(seal(edited))
        else:
            new = within(rng, content, 0, header)
            part.write_bytes(new)
            entry = edited["parts"][0]
            entry |= {"size": len(new), "sha256": hashlib.sha256(new).hexdigest()}
            manifest.write_bytes(seal(edited))
        return "same" if streamomd.load(str(url)).state_sha256 == made.state_sha256 else "other"

    return case


KINDS = {"shards": shard_cases, "pages": page_cases, "checkpoints": checkpoint_cases}


def main(kind: str, seed: str, cases: str, first: str = "0") -> None:
    """Run cases, and print how many ended how."""
    from streamomd.core.errors import StreamomdError

    found: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as name:
        case = KINDS[kind](Path(name))
        used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        hard = resource.getrlimit(resource.RLIMIT_AS)[1]
        resource.setrlimit(resource.RLIMIT_AS, (used + MORE_MEMORY, hard))
        for at in range(int(first), int(first) + int(cases)):
            print(f"case {kind} {seed} {at}", file=sys.stderr, flush=True)
            try:
                found[case(random.Random(f"{kind}-{seed}-{at}"))] += 1
            except StreamomdError:
                found["refused"] += 1
            except BaseException:
                traceback.print_exc()
                sys.exit(1)
    print(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
