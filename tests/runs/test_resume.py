"""What resume accepts, what it refuses, and how it says why."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from killing import Folder, Instant, newest, start, strike
from running import everything, rows, run, train, write

SHARDS, ROWS = 3, 300
FIGURES = ("rows", "loss", "error", "rmse", "epochs", "skipped", "state_sha256")


def fill(folder: Path, shards: int = SHARDS) -> Path:
    """Shards of three row groups."""
    for place in range(shards):
        write(folder / f"{place:02d}.parquet", rows(ROWS, first=place), row_group_size=100)
    return folder


def words(shards: Path, url: Path, *more: str) -> list[str]:
    """The words after ``train``: a commit each 100 rows, all kept."""
    often = ["checkpoint.every_rows=100", "checkpoint.every_seconds=0", "checkpoint.keep=99"]
    sets = [word for key in often for word in ("--set", key)]
    return [str(shards), *everything(), *sets, "--checkpoint", str(url), *more]


def figures(told: dict[str, Any]) -> dict[str, Any]:
    return {key: told[key] for key in FIGURES}


def cut(url: Path, after: int) -> int:
    """Leave a run as it was when it had learned ``after`` rows; the sequence of its last commit."""
    for path in sorted((url / "commits").glob("*.json"), reverse=True):
        document = json.loads(path.read_text().splitlines()[0])["document"]
        if document["rows"] <= after and not document["finished"]:
            assert document["rows"] == after
            return int(path.stem)
        path.unlink()
    raise AssertionError("no such commit")


@pytest.fixture
def shards(tmp_path: Path) -> Path:
    """A folder of shards."""
    return fill(tmp_path / "shards")


@pytest.fixture
def url(tmp_path: Path) -> Path:
    """A checkpoint to be."""
    return tmp_path / "run"


def rewrite(path: Path, change: Callable[[pa.Table], pa.Table], group: int = 100) -> None:
    pq.write_table(change(pq.read_table(path)), str(path), row_group_size=group)


def other_values(table: pa.Table) -> pa.Table:
    place = table.schema.get_field_index("n")
    return table.set_column(place, "n", pa.array(np.arange(table.num_rows, dtype=np.float64)))


def narrower(table: pa.Table) -> pa.Table:
    place = table.schema.get_field_index("n")
    return table.set_column(place, "n", table["n"].cast(pa.float32()))


def add(path: Path) -> None:
    write(path, rows(ROWS, first=77), row_group_size=100)


CHANGES: dict[str, tuple[Callable[[Path], object], list[str]]] = {
    "other values": (
        lambda folder: rewrite(folder / "01.parquet", other_values),
        ["shard 1 ", "01.parquet", "footer ", " -> "],
    ),
    "fewer rows": (
        lambda folder: rewrite(folder / "02.parquet", lambda table: table.slice(0, 290)),
        [
            "shard 2 ",
            "02.parquet",
            "rows 300 -> 290",
            "size ",
            "row groups [100, 100, 100] (3) -> ",
        ],
    ),
    "other row groups": (
        lambda folder: rewrite(folder / "00.parquet", lambda table: table, group=60),
        ["shard 0 ", "00.parquet", "row groups [100, 100, 100] (3) -> [60, 60, 60, …] (5)"],
    ),
    "another type": (
        lambda folder: rewrite(folder / "01.parquet", narrower),
        ["shard 1 ", "01.parquet", "column n double -> n float"],
    ),
    "removed": (
        lambda folder: (folder / "01.parquet").unlink(),
        ["shard 1 ", "01.parquet: removed"],
    ),
    "the last one removed": (
        lambda folder: (folder / "02.parquet").unlink(),
        ["shard 2 ", "02.parquet: removed"],
    ),
    "renamed": (
        lambda folder: (folder / "00.parquet").rename(folder / "03.parquet"),
        ["00.parquet: removed", "03.parquet: new, not after the last of an unchanged list"],
    ),
    "added before": (
        lambda folder: add(folder / "00a.parquet"),
        ["shard 1 ", "00a.parquet: new, not after the last"],
    ),
    "added after": (
        lambda folder: add(folder / "03.parquet"),
        ["shard 3 ", "03.parquet: new, after the last", "--accept-new-shards"],
    ),
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.sample(3)
def test_changed_shards_are_refused_field_by_field(change: str, shards: Path, url: Path) -> None:
    """Exit 3 names the shard and the field, writes nothing; put back, the run ends as it would."""
    undisturbed = figures(train(*words(shards, url)))
    last = cut(url, 400)
    aside = shards.with_name("aside")
    shutil.copytree(shards, aside)
    deed, expected = CHANGES[change]
    deed(shards)
    refused = run("resume", url, "--json")
    assert refused.code == 3
    assert [text for text in expected if text not in refused.err] == []
    assert newest(Folder(str(url))) == last
    shutil.rmtree(shards)
    aside.rename(shards)
    assert figures(run("resume", url, "--json").result) == undisturbed


@pytest.mark.parametrize("change", ["other values", "removed", "added before"])
def test_accepting_new_shards_accepts_nothing_else(change: str, shards: Path, url: Path) -> None:
    """The flag lets no other change through."""
    train(*words(shards, url))
    cut(url, 400)
    CHANGES[change][0](shards)
    assert run("resume", url, "--accept-new-shards", "--json").code == 3


@pytest.mark.parametrize("epochs", [1, 3])
def test_new_shards_are_read_after_the_others(
    epochs: int, shards: Path, url: Path, tmp_path: Path
) -> None:
    """As if they had been there from the beginning, if the first epoch was under way."""
    more = ["--epochs", str(epochs)]
    train(*words(shards, url, *more))
    cut(url, 400)
    add(shards / "03.parquet")
    told = run("resume", url, "--accept-new-shards", "--json").result
    assert told["rows"] == epochs * 4 * ROWS
    assert figures(told) == figures(train(*words(shards, tmp_path / "straight", *more)))
    cut(url, 700)  # a commit that knows of them: they are new no more
    assert figures(run("resume", url, "--json").result) == figures(told)


@pytest.mark.smoke
def test_new_shards_among_shuffled_ones(shards: Path, url: Path) -> None:
    """They would change the order in which the others are read: nothing is read twice or never."""
    undisturbed = figures(train(*words(shards, url, "--set", 'data.order="shuffled"')))
    cut(url, 400)
    add(shards / "03.parquet")
    for flag in ([], ["--accept-new-shards"]):
        refused = run("resume", url, *flag, "--json")
        assert refused.code == 3
        assert "03.parquet: new" in refused.err
    assert "shuffled" in refused.err
    (shards / "03.parquet").unlink()
    assert figures(run("resume", url, "--json").result) == undisturbed


def test_a_copied_shard_is_accepted_and_told(shards: Path, url: Path) -> None:
    """Another time of writing alone says nothing of the rows."""
    undisturbed = figures(train(*words(shards, url)))
    cut(url, 400)
    shutil.copy(shards / "01.parquet", shards / "copy")
    (shards / "copy").rename(shards / "01.parquet")
    done = run("resume", url, "--json")
    assert figures(done.result) == undisturbed
    assert "01.parquet: copied or touched" in done.err


@pytest.mark.smoke
def test_a_finished_run_tells_its_result_again(shards: Path, url: Path) -> None:
    """Exit 0, the same figures, no new commit, and the shards are not even looked for."""
    told = figures(train(*words(shards, url)))
    shutil.rmtree(shards)
    before = sorted(path.name for path in url.rglob("*"))
    assert figures(run("resume", url, "--json").result) == told
    assert sorted(path.name for path in url.rglob("*")) == before


@pytest.mark.parametrize("after", [900, 400, None])
@pytest.mark.sample(3)
def test_more_epochs_than_before(
    after: int | None, shards: Path, url: Path, tmp_path: Path
) -> None:
    """From the middle, the last row or the end of one epoch on: the same as three straight ones."""
    train(*words(shards, url))
    if after is not None:
        cut(url, after)
    told = run("resume", url, "--set", "train.epochs=3", "--json").result
    straight = train(*words(shards, tmp_path / "straight", "--epochs", "3"))
    assert told["rows"] == 3 * SHARDS * ROWS
    assert figures(told) == figures(straight)


@pytest.mark.parametrize(
    "change, told",
    [
        ("train.epochs=1", "train.epochs was 2 and may only grow"),
        ("model.rule=ng", "model.rule"),
        ("model.params.eta=0.25", "model.params.eta"),
        ("data.bits=11", "data.bits"),
        ("data.order=given", "data.order"),
    ],
)
def test_what_may_not_change(change: str, told: str, shards: Path, url: Path) -> None:
    """Fewer epochs and another model are refused, whether the run is finished or not."""
    undisturbed = figures(train(*words(shards, url, "--epochs", "2")))
    for after in (None, 1000):
        last = cut(url, after) if after else newest(Folder(str(url)))
        refused = run("resume", url, "--set", change, "--json")
        assert refused.code == 3
        assert told in refused.err
        assert newest(Folder(str(url))) == last
    assert figures(run("resume", url, "--json").result) == undisturbed


def test_what_may_change(shards: Path, url: Path) -> None:
    """How often to commit, how many to keep, how far to read ahead: none of it moves a bit."""
    undisturbed = figures(train(*words(shards, url)))
    last = cut(url, 400)
    sets = ["checkpoint.every_rows=70", "checkpoint.keep=2", "train.prefetch=1"]
    changed = [word for key in sets for word in ("--set", key)]
    told = run("resume", url, *changed, "--json").result
    assert figures(told) == undisturbed
    assert told["checkpoint"]["sequence"] > last + 500 // 70
    assert sum(path.suffix == ".json" for path in (url / "commits").iterdir()) == 2


def test_train_after_a_half_made_beginning(shards: Path, url: Path, tmp_path: Path) -> None:
    """Killed inside commit 0, a run is begun anew without --restart: nothing was kept of it."""
    place = Folder(str(url))
    for _ in range(2):
        for _attempt in range(20):
            process = start(["train", *words(shards, url)], tmp_path / "log")
            landing = strike(process, place, Instant("parts", 0), -1)
            if landing.sequence == -1:
                break
            shutil.rmtree(url)  # on a busy machine commit 0 may pass unseen
        assert landing.inside
        assert landing.sequence == -1
        assert run("resume", url, "--json").code == 4
    told = train(*words(shards, url))
    assert figures(told) == figures(train(*words(shards, tmp_path / "straight")))
    assert run("checkpoint", "verify", url).code == 0
