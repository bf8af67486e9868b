"""Updates: each shard once, in order of arrival, with the bits of one run; interrupted or not."""

from __future__ import annotations

import itertools
import random
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from killing import Folder, Instant, newest, start, strike
from running import everything, rows, run, train, write

import streamomd
from streamomd.checkpoint.stores.local import LocalStore
from streamomd.core.errors import ConcurrentWriterError, ResumeRefusedError, UnsupportedError
from streamomd.training.load_model import load_model
from streamomd.training.open_checkpoint import open_ledger

SHARDS, ROWS = 6, 120
SAME = ("rows", "loss", "error", "rmse", "auc", "epochs", "skipped", "state_sha256")
NOW = ("--settle", "0")


class Killed(BaseException):
    """In the place of a signal that no program can catch."""


def shard(folder: Path, number: int) -> Path:
    """The shard of that number: each run over the same numbers learns the same rows."""
    return write(folder / f"part={number}.parquet", rows(ROWS, first=number), row_group_size=50)


def words(shards: Path, url: Path, *more: object) -> list[str]:
    sets = ["checkpoint.every_rows=100", "checkpoint.every_seconds=0", "checkpoint.keep=99"]
    flags = [word for key in sets for word in ("--set", key)]
    return [str(shards), *everything(), *flags, "--checkpoint", str(url), *map(str, more)]


def begun(tmp_path: Path, *numbers: int, more: Sequence[object] = ()) -> tuple[Path, Path]:
    """A folder with these shards, and the URL of a run over them."""
    folder, url = tmp_path / "shards", tmp_path / "run"
    for number in numbers:
        shard(folder, number)
    train(*words(folder, url, *more))
    return folder, url


def figures(told: dict[str, Any]) -> dict[str, Any]:
    return {key: told[key] for key in SAME}


def update(url: Path, *more: object) -> dict[str, Any]:
    return run("update", url, *NOW, *more, "--json").result


def listed(url: Path) -> Sequence[Mapping[str, Any]]:
    """The entries of a run's ledger."""
    _, loaded = load_model(str(url))
    return open_ledger(loaded)[1].shards


def whole(tmp_path: Path, count: int, *more: object) -> dict[str, Any]:
    """The figures of one run over the first shards."""
    folder = tmp_path / "all"
    for number in range(count):
        shard(folder, number)
    return figures(train(*words(folder, tmp_path / "whole", *more)))


@pytest.mark.parametrize(
    "rule",
    ["auto", "nag", *(pytest.param(r, marks=pytest.mark.slow)
                      for r in ("adagrad", "ftrl_proximal", "arow_diag", "ons"))],
)  # fmt: skip
def test_updates_have_the_bits_of_one_run(tmp_path: Path, rule: str) -> None:
    expected = whole(tmp_path, SHARDS, "--rule", rule)
    draw = random.Random(rule)
    for case in range(2):
        folder, url = tmp_path / f"shards{case}", tmp_path / f"run{case}"
        cuts = sorted(draw.sample(range(1, SHARDS), draw.randint(1, SHARDS - 1)))
        sizes = [*itertools.pairwise([0, *cuts, SHARDS])]
        for low, high in sizes:
            for number in range(low, high):
                shard(folder, number)
            told = update(url) if low else train(*words(folder, url, "--rule", rule))
            assert not low or told["new_shards"] == high - low
            assert not low or told["new_rows"] == (high - low) * ROWS
        assert figures(told) == expected
        assert [one.get("update", 0) for one in listed(url)] == [
            number for number, (low, high) in enumerate(sizes) for _ in range(low, high)
        ]


def test_the_figures_of_an_update_are_those_of_its_rows(tmp_path: Path) -> None:
    folder, url = tmp_path / "shards", tmp_path / "run"
    for number in range(3):
        shard(folder, number)
    first = train(*words(folder, url))
    shard(folder, 3)
    told = update(url)
    assert told["update"]["rows"] == ROWS == told["rows"] - first["rows"]
    weights = [sum(rows(ROWS, first=n)["w"].to_pylist()) for n in range(4)]
    loss = (told["loss"] * sum(weights) - first["loss"] * sum(weights[:3])) / weights[3]
    assert told["update"]["loss"] == pytest.approx(loss, rel=1e-9)
    again = update(url)
    assert (again["new_shards"], again["new_rows"], again["update"]) == (0, 0, None)
    assert again["checkpoint"] == told["checkpoint"]  # nothing was written


def test_nothing_new_is_said(tmp_path: Path) -> None:
    folder, url = tmp_path / "shards", tmp_path / "run"
    shard(folder, 0)
    sequence = train(*words(folder, url))["checkpoint"]["sequence"]
    ran = run("update", url, *NOW)
    assert ran.code == 0
    assert f"nothing new since commit {sequence}" in ran.err


def test_a_dry_run_and_resume_say_what_is_new_and_learn_nothing(tmp_path: Path) -> None:
    folder, url = tmp_path / "shards", tmp_path / "run"
    shard(folder, 0)
    before = train(*words(folder, url, "--set", "update.settle=0"))
    for number in (1, 2, 3):
        shard(folder, number)
    expected = f"3 new shards (360 rows) not learned: streamomd update {url}"
    for command in (("update", url, "--dry-run"), ("resume", url)):
        ran = run(*command, "--json")
        assert expected in ran.err
        assert ran.result["state_sha256"] == before["state_sha256"]
        assert ran.result["checkpoint"] == before["checkpoint"]
    assert run("update", url, "--dry-run", "--json").result["new_shards"] == 3
    told = run("resume", url, "--accept-new-shards", "--json").result
    assert figures(told) == whole(tmp_path, 4)


def test_new_names_may_sort_before_learned_ones(tmp_path: Path) -> None:
    folder, url = tmp_path / "shards", tmp_path / "run"
    order = [5, 6, 0, 2, 11]  # 2 before 11, by number
    for number in order[:2]:
        shard(folder, number)
    train(*words(folder, url))
    for number in order[2:]:
        shard(folder, number)
    told = update(url)
    names = [str(folder / f"part={number}.parquet") for number in order]
    given = train(*words(folder, tmp_path / "given")[1:], *names, "--set", 'data.order="given"')
    assert figures(told) == figures(given)
    assert [one["url"] for one in listed(url)] == names


def test_more_epochs_read_all_shards_in_learned_order(tmp_path: Path) -> None:
    folder, url = tmp_path / "shards", tmp_path / "run"
    for number in (3, 1, 2):
        shard(folder, number)
        if (url / "commits").exists():
            update(url)
        else:
            train(*words(folder, url, "--rule", "auto"))
    told = run("resume", url, "--epochs", "3", "--json").result
    names = [str(folder / f"part={number}.parquet") for number in (3, 1, 2)]
    more = ("--epochs", "3", "--set", 'data.order="given"', "--rule", "auto")
    assert figures(told) == figures(train(*words(folder, tmp_path / "g")[1:], *names, *more))


def operations(monkeypatch: pytest.MonkeyPatch, most: int) -> list[int]:
    """From now on the store's operation number ``most`` (from 0) ends the process, as it were."""
    done = [0]
    for name in ("put", "create", "delete", "read", "names"):
        plain = getattr(LocalStore, name)

        def counted(self: LocalStore, *given: Any, plain: Any = plain) -> Any:
            if done[0] == most:
                raise Killed
            done[0] += 1
            return plain(self, *given)

        monkeypatch.setattr(LocalStore, name, counted)
    return done


def attempts(tmp_path: Path, step: int, rule: str) -> Iterator[tuple[int, Path, Path]]:
    """Runs of two shards to which two came, each with the operation that ends the update."""
    for most in itertools.count(0, step):
        folder, url = tmp_path / f"shards{most}", tmp_path / f"run{most}"
        for number in range(2):
            shard(folder, number)
        train(*words(folder, url, "--rule", rule, "--set", "checkpoint.aside=false"))
        for number in range(2, 4):
            shard(folder, number)
        yield most, folder, url


EVERY_OPERATION = [
    pytest.param(1, rule, marks=pytest.mark.slow)
    for rule in ("nag", "auto", "adagrad", "perceptron")
]


@pytest.mark.parametrize("step, rule", [(7, "nag"), *EVERY_OPERATION])
def test_an_update_that_is_killed_at_any_operation_of_its_store_continues(
    tmp_path: Path, step: int, rule: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The list of the update stands: what comes after the kill is learned after it."""
    expected, one = (whole(tmp_path / str(count), count, "--rule", rule) for count in (5, 4))
    killed = 0
    for most, folder, url in attempts(tmp_path, step, rule):
        with monkeypatch.context() as patch:
            operations(patch, most)
            try:
                streamomd.update(str(url), settle=0, quiet=True)
                break
            except Killed:
                killed += 1
        if most % 2:
            shard(folder, 4)
            assert figures(update(url)) == expected
        else:
            run("resume", url)
            assert figures(update(url)) == one
    assert killed > 40 // step
    print(f"\n{killed} kills")


@pytest.mark.parametrize("kills", [2, pytest.param(40, marks=pytest.mark.slow)])
@pytest.mark.slow
def test_a_process_that_is_killed_leaves_an_update_to_continue(tmp_path: Path, kills: int) -> None:
    expected, draw = whole(tmp_path, SHARDS), random.Random(kills)
    for case in range(kills):
        folder, url = tmp_path / f"shards{case}", tmp_path / f"run{case}"
        shard(folder, 0)
        train(*words(folder, url))
        for number in range(1, SHARDS):
            shard(folder, number)
        place = Folder(str(url))
        process = start(["update", str(url), *NOW, "--json"], tmp_path / "log")
        instant = Instant("delay", draw.randint(1, 5), draw.uniform(0.0, 0.02))
        strike(process, place, instant, newest(place))
        assert figures(update(url)) == expected


def test_one_of_two_updates_at_the_same_time_loses(tmp_path: Path) -> None:
    from streamomd.runs.reporting import Reporting
    from streamomd.runs.update_choice import choice_of
    from streamomd.runs.update_run import UpdateRun
    from streamomd.training.signals import StopRequest

    folder, url = begun(tmp_path, 0, more=("--set", "update.settle=0"))
    shard(folder, 1)
    both = [
        UpdateRun.open(
            str(url), {}, None, None, stop=StopRequest(), reporting=Reporting(quiet=True)
        )
        for _ in range(2)
    ]
    found = [one.find(choice_of(one.model.spec)) for one in both]
    both[0].learn(found[0])
    with pytest.raises(ConcurrentWriterError) as problem:
        both[1].learn(found[1])
    assert problem.value.exit_code == 5
    assert figures(update(url)) == whole(tmp_path, 2)


def test_what_an_update_finishes_is_not_new(tmp_path: Path) -> None:
    """Its figures are of the rows that arrived, whatever was interrupted before."""
    folder, url = begun(tmp_path, 0)
    shard(folder, 1)
    update(url)
    told = update(url, "--set", "train.epochs=2")
    assert told["rows"] == 4 * ROWS
    assert (told["new_shards"], told["new_rows"], told["update"]) == (0, 0, None)
    shard(folder, 2)
    told = update(url, "--set", "train.epochs=3")
    assert (told["new_shards"], told["new_rows"]) == (1, ROWS)
    assert told["update"]["rows"] == ROWS
    shard(folder, 3)
    ran = run("resume", url, "--epochs", "4", "--accept-new-shards", "--json")
    assert f"then learn new ones: streamomd update {url}" in ran.err
    assert ran.result["rows"] == told["rows"] + 3 * ROWS


def test_a_source_that_was_learned_may_be_deleted(tmp_path: Path) -> None:
    """Named as a file; what was never learned is missing."""
    folder, url = tmp_path / "shards", tmp_path / "run"
    named = [shard(tmp_path, number) for number in (0, 1)]
    shard(folder, 2)
    train(*map(str, named), *words(folder, url))
    named[0].unlink()
    shard(folder, 3)
    assert update(url)["new_rows"] == ROWS
    folder.rename(tmp_path / "elsewhere")
    ran = run("update", url, *NOW)
    assert ran.code == 2
    assert f"{folder}: no such file" in ran.err


def test_a_checkpoint_whose_updates_make_many_commits_is_whole(tmp_path: Path) -> None:
    """Retention deletes commits in the middle of an update, and none is missing."""
    folder, url = tmp_path / "shards", tmp_path / "run"
    shard(folder, 0)
    few = ("--set", "checkpoint.keep=2", "--set", "checkpoint.every_rows=20")
    train(*words(folder, url, *few))
    for number in (1, 2):
        shard(folder, number)
        update(url)
        assert run("checkpoint", "verify", url).code == 0
    assert len(list((url / "commits").iterdir())) < 12


def test_no_shard_is_no_maximum(tmp_path: Path) -> None:
    folder, url = tmp_path / "shards", tmp_path / "run"
    shard(folder, 0)
    before = train(*words(folder, url))
    shard(folder, 1)
    ran = run("update", url, *NOW, "--max-shards", "0")
    assert ran.code == 2
    assert "expected a whole number of 1 or more" in ran.err
    assert run("resume", url, "--json").result["rows"] == before["rows"]


def test_what_cannot_be_updated_is_refused_by_name(tmp_path: Path) -> None:
    folder = tmp_path / "shards"
    shard(folder, 0)
    shuffled = ("--set", 'data.order="shuffled"')
    train(*words(folder, tmp_path / "a", *shuffled))
    with pytest.raises(UnsupportedError, match="shuffled"):
        streamomd.update(str(tmp_path / "a"), quiet=True)
    twice = ("--rule", "nag_projected", "--set", "model.params.passes=2")
    train(*words(folder, tmp_path / "b", *twice))
    with pytest.raises(UnsupportedError, match="rule 'nag_projected' observes all rows"):
        streamomd.update(str(tmp_path / "b"), quiet=True)


def test_rewritten_and_moved_shards_are_refused_together(tmp_path: Path) -> None:
    folder, url = begun(tmp_path, *range(3), more=("--set", "update.settle=0"))
    write(folder / "part=0.parquet", rows(ROWS, first=77))
    (folder / "part=1.parquet").rename(folder / "part=9.parquet")
    with pytest.raises(ResumeRefusedError) as problem:
        streamomd.update(str(url), quiet=True)
    told = str(problem.value)
    assert problem.value.exit_code == 3
    for word in ("part=0.parquet", "part=1.parquet", "part=9.parquet", "ignore-rewritten", "moved"):
        assert word in told
    streamomd.update(str(url), ignore_rewritten=True, moved=True, quiet=True)
    assert [Path(one["url"]).name for one in listed(url)] == [
        *("part=0.parquet", "part=9.parquet", "part=2.parquet"),
    ]


@pytest.mark.parametrize("mode", ["sharded", pytest.param("averaged", marks=pytest.mark.slow)])
def test_other_modes_continue_from_their_state(tmp_path: Path, mode: str) -> None:
    """Sharded: a micro-batch begins with an update. Averaged: its rows are an epoch's rounds."""
    folder, url = tmp_path / "shards", tmp_path / "run"
    for number in range(2):
        shard(folder, number)
    sets = ("--mode", mode, "--rule", "nag", "--set", "train.parts=2")
    before = train(*words(folder, url, *sets))
    new = shard(tmp_path / "new", 2)
    start = ("--start", str(url), "--continue-metrics", *sets)
    expected = train(*words(new, tmp_path / "b", *start))
    shard(folder, 2)
    told = update(url)
    assert told["new_rows"] == ROWS
    assert told["rows"] == before["rows"] + ROWS
    assert told["state_sha256"] == expected["state_sha256"]


def test_a_start_takes_over_the_job(tmp_path: Path) -> None:
    folder, url = begun(tmp_path, *range(2), more=("--rule", "adagrad", "--eta", "0.3"))
    shard(tmp_path / "new", 2)
    target = ("--checkpoint", tmp_path / "b")
    told = train(tmp_path / "new", "--start", url, *target)
    shard(folder, 2)
    assert told["rows"] == ROWS
    model = streamomd.load(str(tmp_path / "b"))
    before = streamomd.load(str(url))
    assert model.spec.model.rule == "adagrad"
    assert model.spec.model.params == before.spec.model.params
    assert model.plan.numeric == before.plan.numeric
    ran = run("train", tmp_path / "new", "--start", url, "--rule", "nag", "--checkpoint", "none")
    assert ran.code == 2
    assert "rule: 'adagrad' there, 'nag' here" in ran.err
    more = train(
        tmp_path / "new", "--start", url, "--continue-metrics", "--checkpoint", tmp_path / "c"
    )
    assert more["rows"] == 3 * ROWS
    assert (
        more["state_sha256"]
        == whole(tmp_path, 3, "--rule", "adagrad", "--eta", "0.3")["state_sha256"]
    )


@pytest.mark.parametrize("more", [(), ("--holdout", "4", "--epochs", "2", "--patience", "1")])
def test_continued_metrics_have_their_own_holdout(tmp_path: Path, more: tuple[str, ...]) -> None:
    shard(tmp_path / "old", 0)
    before = train(*words(tmp_path / "old", tmp_path / "a"))
    shard(tmp_path / "new", 1)
    start = ("--start", tmp_path / "a", "--continue-metrics")
    told = train(tmp_path / "new", *start, *more, "--checkpoint", tmp_path / "b")
    held = told["holdout"]["epochs"][0]["rows"] if more else 0
    assert (held > 0) == bool(more)
    assert told["epochs"][0]["rows"] == before["rows"] + ROWS - held
    again = run("resume", tmp_path / "b", "--json").result
    assert (figures(again), again["holdout"]) == (figures(told), told["holdout"])


def test_metrics_of_no_start_are_not_continued(tmp_path: Path) -> None:
    shard(tmp_path / "shards", 0)
    ran = run("train", *words(tmp_path / "shards", tmp_path / "run", "--continue-metrics"))
    assert ran.code == 2
    assert "--start URL" in ran.err


def test_a_start_says_how_to_read_directories_of_another_kind(tmp_path: Path) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    write(old / "k=a" / "a.parquet", rows(ROWS).select(["y", "n", "w"]))
    write(new / "k=1" / "a.parquet", rows(ROWS, first=1).select(["y", "n", "w"]))
    train(old, "--label", "y", "--rule", "nag", "--checkpoint", tmp_path / "a")
    start = ("train", new, "--start", tmp_path / "a", "--checkpoint", tmp_path / "b")
    ran = run(*start)
    assert ran.code == 2
    given = ran.err.split('--partitions "')[1].split('"')[0]
    assert run(*start, "--partitions", given).code == 0


def test_directories_are_columns_of_later_shards_too(tmp_path: Path) -> None:
    """Of new ones below the source, and of a list that is read again by its URLs."""
    folder, url = tmp_path / "shards", tmp_path / "run"
    flags = ("--label", "y", "--weight", "w", "--numeric", "n,day", "--hashed", "h,city")
    sets = ("--set", "checkpoint.every_rows=50", "--set", "checkpoint.aside=false")

    def place(number: int) -> None:
        city = ("Wien", "S%C3%A3o Paulo")[number % 2]
        write(folder / f"day={number}/city={city}/a.parquet", rows(ROWS, first=number))

    for number in (1, 2):
        place(number)
    train(folder, *flags, *sets, "--checkpoint", url)
    for number in (3, 4):
        place(number)
    told = update(url)
    assert figures(told) == figures(train(folder, *flags, "--checkpoint", tmp_path / "whole"))
    more = run("resume", url, "--epochs", "2", "--json").result
    assert figures(more) == figures(
        train(folder, *flags, "--epochs", "2", "--checkpoint", tmp_path / "twice")
    )
    write(folder / "day=x/city=Wien/a.parquet", rows(ROWS, first=9))
    ran = run("update", url, *NOW)
    assert ran.code == 2
    assert "directory day=x is not a 64-bit integer" in ran.err


def test_a_table_is_updated_by_its_versions(tmp_path: Path) -> None:
    deltalake = pytest.importorskip("deltalake")
    table, url = str(tmp_path / "table"), tmp_path / "run"

    def append(number: int) -> None:
        deltalake.write_deltalake(
            table, rows(ROWS, first=number).select(["y", "n", "h"]), mode="append"
        )

    flags = ("--label", "y", "--numeric", "n", "--hashed", "h")
    append(0)
    append(1)
    train(table, *flags, "--checkpoint", url)
    for number in (2, 3, 4):
        append(number)
    first = update(url, "--max-shards", "2")
    assert (first["new_shards"], first["new_rows"]) == (2, 2 * ROWS)
    assert update(url)["new_shards"] == 1
    deltalake.DeltaTable(table).optimize.compact()
    told = update(url)
    assert told["new_shards"] == 0
    parts = [
        str(write(tmp_path / "files" / f"{n}.parquet", rows(ROWS, first=n).select(["y", "n", "h"])))
        for n in range(5)
    ]
    expected = figures(train(*parts, *flags, "--checkpoint", tmp_path / "files-run"))
    assert figures(told) == expected
    append(5)
    assert update(url)["new_rows"] == ROWS
    deltalake.DeltaTable(table).delete("n > 0")
    append(6)
    ran = run("update", url, *NOW)
    assert ran.code == 3
    assert "--appends-only" in ran.err
    assert update(url, "--appends-only")["new_rows"] == ROWS


def test_an_update_with_a_bad_shard_is_undone_or_skips_its_rows(tmp_path: Path) -> None:
    """Its list is recorded, so the way out is printed; it works."""
    folder, url = begun(tmp_path, 0, 1)
    shard(folder, 2)
    bad = rows(ROWS, first=3)
    numbers = [float("nan"), *bad["n"].to_pylist()[1:]]
    write(folder / "part=3.parquet", bad.set_column(2, "n", pa.array(numbers)))
    ran = run("update", url, *NOW)
    assert ran.code == 2
    (way,) = [line for line in ran.err.splitlines() if "checkpoint restore" in line]
    for command in (("update", url, *NOW), ("resume", url)):
        again = run(*command)
        assert again.code == 2
        assert way in again.err
    skipping = tmp_path / "skipping"
    shutil.copytree(url, skipping)
    told = update(skipping, "--on-bad-row", "skip")
    assert (told["rows"], told["skipped"]) == (4 * ROWS - 1, {"nan": 1})
    run(*way.partition("streamomd ")[2].split())
    (folder / "part=3.parquet").unlink()
    assert figures(update(url)) == whole(tmp_path, 3)


def test_a_shard_of_no_rows_and_no_types_is_learned(tmp_path: Path) -> None:
    folder, url = begun(tmp_path, 0, 1)
    names = rows(1).column_names
    write(folder / "part=2.parquet", {name: pa.nulls(0) for name in names})
    told = update(url)
    assert (told["new_shards"], told["new_rows"]) == (1, 0)
    shard(folder, 3)
    assert update(url)["new_rows"] == ROWS


def test_a_quiet_update_prints_its_result_alone(tmp_path: Path) -> None:
    folder, url = begun(tmp_path, 0)
    shard(folder, 1)
    (folder / "part=2.parquet").touch()  # a file of which a note is printed
    ran = run("update", url, *NOW, "--quiet", "--json")
    assert ran.result["new_rows"] == ROWS
    assert ran.err == ""


SKIP = ("--set", "data.on_bad_shard=skip")


def damaged(file: Path) -> None:
    """Change bytes in the middle of its first column chunk of numbers."""
    column = pq.ParquetFile(file).metadata.row_group(1).column(2)
    content = bytearray(file.read_bytes())
    start = column.dictionary_page_offset or column.data_page_offset
    content[start : start + column.total_compressed_size] = bytes(column.total_compressed_size)
    file.write_bytes(content)


@pytest.mark.parametrize("harm", ["renamed", "type", "damage"])
def test_a_shard_that_cannot_be_learned_stops_no_other(harm: str, tmp_path: Path) -> None:
    """It is skipped where the job says so, recorded once, and tried again on request; the others
    are learned, with the bits of one run."""
    folder, url = tmp_path / "shards", tmp_path / "run"
    for number in (0, 1, 3):
        shard(folder, number)
    bad = folder / "part=3.parquet"
    good = bad.read_bytes()
    bad.rename(tmp_path / "good")
    train(*words(folder, url))
    shard(folder, 2)
    table = rows(ROWS, first=3)
    if harm == "renamed":
        names = ["other" if name == "n" else name for name in table.column_names]
        table = table.rename_columns(names)
    elif harm == "type":
        at = table.column_names.index("n")
        table = table.set_column(at, "n", pa.array(["text"] * ROWS))
    write(bad, table, row_group_size=50)
    if harm == "damage":
        damaged(bad)
    refused = run("update", url, *NOW)
    assert refused.code == 2
    if harm == "damage":  # found while it is learned: back to before the update
        (way,) = [line for line in refused.err.splitlines() if "checkpoint restore" in line]
        run(*way.partition("streamomd ")[2].split())
    else:
        assert 'data.on_bad_shard = "skip"' in refused.err
    found = update(url, *SKIP)
    assert (found["new_shards"], found["new_rows"]) == (1, ROWS)
    assert [one["url"] for one in found["skipped_shards"]] == [str(bad)]
    assert figures(found) == whole(tmp_path, 3)
    for more in ((), ("--retry-skipped",)):
        assert update(url, *SKIP, *more)["new_shards"] == 0
    assert len([one for one in listed(url) if "skipped" in one]) == 1
    bad.write_bytes(good)
    assert update(url, *SKIP)["new_shards"] == 0
    assert update(url, *SKIP, "--retry-skipped")["new_rows"] == ROWS
    assert figures(update(url)) == whole(tmp_path, 4, "--restart")


def test_an_accepted_rewritten_shard_is_refused_only_if_it_changes_again(tmp_path: Path) -> None:
    """The ledger has the acknowledgement, of that shard and that content alone."""
    folder, url = tmp_path / "shards", tmp_path / "run"
    for number in (0, 1):
        shard(folder, number)
    state = train(*words(folder, url))["state_sha256"]

    def rewrite(number: int, count: int) -> Path:
        return write(folder / f"part={number}.parquet", rows(count, seed=9))

    file = rewrite(0, 70)
    refused = run("update", url, *NOW)
    assert refused.code == 3
    assert "--accept-rewritten URL" in refused.err
    assert update(url, "--accept-rewritten", file)["state_sha256"] == state
    shard(folder, 2)
    assert update(url)["new_rows"] == ROWS
    assert update(url, "--accept-rewritten", file)["new_rows"] == 0
    rewrite(1, 70)
    assert "part=1.parquet" in (other := run("update", url, *NOW)).err
    assert other.code == 3
    assert "part=0.parquet" not in other.err
    update(url, "--accept-rewritten", folder / "part=1.parquet")
    rewrite(0, 71)
    again = run("update", url, *NOW)
    assert again.code == 3
    assert "part=0.parquet" in again.err
    unknown = run("update", url, *NOW, "--accept-rewritten", folder / "part=7.parquet")
    assert (unknown.code, "no learned shard has this URL" in unknown.err) == (2, True)
