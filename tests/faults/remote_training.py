"""Training from shards in S3 into a checkpoint in S3, both through a proxy that breaks requests."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from http_faults import peace, seeded
from kinds import Cases, Verdict, kind
from remote_s3 import PATIENCE, bucket
from running import ROWS, Ran, rows, run, write

SEEDS = 150
HONEST = (1,)
"""Exit codes after faults of a store that fails but does not lie: it is told to be the store."""
LIED_TO = (1, 2, 4)
EVERY = ["--epochs", "2", "--set", "checkpoint.every_rows=90", "--json"]


@dataclass(frozen=True)
class Place:
    """Where a run's options stand: through the proxy, or past it."""

    options: Path
    data: str
    flags: Sequence[str] = ("--label", "y", "--numeric", "n", "--hashed", "h", "--bits", "8")

    def train(self, url: str) -> Ran:
        return run("train", self.data, *self.flags, *EVERY, *self._stores(), "--checkpoint", url)

    def resume(self, url: str) -> Ran:
        return run("resume", url, "--json", *self._stores())

    def _stores(self) -> list[object]:
        return ["--storage-options", self.options, "--checkpoint-storage-options", self.options]


def kept(file: Path, options: dict[str, Any]) -> Path:
    """A file of storage options, as private as it must be."""
    file.write_text(json.dumps(options))
    file.chmod(0o600)
    return file


def fill(folder: Path, options: dict[str, Any]) -> None:
    """Three shards in the bucket, of few columns: each costs a request a row group."""
    import s3fs

    for at, name in enumerate("abc"):
        table = rows(ROWS, first=at).select(["y", "n", "h"])
        write(folder / f"rows/{name}.parquet", table, row_group_size=ROWS // 2)
    s3fs.S3FileSystem(**options).put(str(folder / "rows"), "struck/", recursive=True)


@kind("s3-training", quick=1)
@contextmanager
def s3_training(folder: Path) -> Iterator[Cases]:
    """S3: training from shards behind the proxy into a checkpoint behind it, then resumed."""
    with bucket() as s3:
        fill(folder, s3.calm)
        calm = Place(kept(folder / "calm.json", s3.calm), "s3://struck/rows/")
        through = Place(kept(folder / "through.json", s3.options), "s3://struck/rows/")
        undisturbed = calm.train("s3://struck/undisturbed").result["state_sha256"]

        def case(seed: int) -> Verdict:
            lying = seed % 3 == 0
            chance = random.Random(seed).choice((0.01, 0.03, 0.1))
            s3.proxy.schedule = seeded(random.Random(f"training {seed}"), chance, lying=lying)
            url = f"s3://struck/trained/{seed}"
            done = through.train(url)
            s3.proxy.schedule = peace
            told = done.code != 0
            if told:
                if done.code not in (LIED_TO if lying else HONEST) or "Traceback" in done.err:
                    return Verdict.CRASH
                done = calm.resume(url)
                if done.code == 4:
                    done = calm.train(url)
            if done.result["state_sha256"] != undisturbed:
                return Verdict.SILENT
            return Verdict.NAMED if told else Verdict.SAME

        yield Cases(range(SEEDS), case, PATIENCE)
