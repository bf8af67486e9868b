"""Averaged mode: the bits depend on the job only; lost rounds restart and are never wrong."""

from __future__ import annotations

import hashlib
import signal
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from caching import entries, settled
from cluster_faults import struck
from clustered import PARTS, ROWS, long, sized, spread, waits
from distributed import Client, LocalCluster
from places import cases, drawn
from running import rows, write

import streamomd
from streamomd.config.data_table import Data
from streamomd.config.spec import Spec
from streamomd.core.errors import ClusterError, ResumeRefusedError, StoppedError, UsageError
from streamomd.distributed import averaged, averaged_worker, cluster, diagnose, round_state
from streamomd.distributed.averaged import Averaged
from streamomd.engine.merge import tree
from streamomd.rules import all_rules
from streamomd.shards.order import split_rows
from streamomd.sources.find import find
from streamomd.training.model import Model
from streamomd.training.progress import verbose_output
from streamomd.training.row_stream import rows_of_group

# Dask's own warnings of workers that die are what is provoked here.
pytestmark = pytest.mark.filterwarnings("ignore")


def literally(table: dict[str, Any]) -> Model:
    """What averaged mode says, one thing after the other, in this process."""
    spec = Spec.parse(table)
    shards = find(spec.data.shards)
    model = streamomd.load(spec.checkpoint.url, at=0)
    train, plan = spec.train, model.plan
    cut = split_rows(shards, range(len(shards)), train.parts * train.rounds_per_epoch)
    for epoch in range(train.epochs):
        model.metrics.begin(epoch)
        for low in range(0, len(cut), train.parts):
            states, counts, sums = [], [], []
            for stretch in cut[low : low + train.parts]:
                state, own = model.state.copy(), np.zeros(3)
                for span in stretch.spans:
                    for piece in rows_of_group(plan, span.group, span.begin, span.end, options={}):
                        model.engine.learn(state, own, piece.value.batch)
                states.append(state)
                counts.append(stretch.rows)
                sums.append(own)
            by = "G" if train.merge == "gradients" else "examples"
            model.state = tree(model.engine, states, model.state, counts, by=by)
            while len(sums) > 1:
                pairs = [a + b for a, b in zip(sums[::2], sums[1::2], strict=False)]
                sums = pairs + sums[len(sums) - len(sums) % 2 :]
            model.metrics.count(sum(counts))
            model.metrics.current[...] += sums[0]
    return model


@pytest.mark.parametrize(
    "parts, rounds, merge", [(5, 2, "gradients"), *long((4, 2, "examples"), (8, 3, "examples"))]
)
@pytest.mark.sample(2)
def test_it_is_what_it_says(
    data: Path, client: Client, tmp_path: Path, parts: int, rounds: int, merge: str
) -> None:
    """Parts learned in turn and merged in a tree, in one process, give the same bits."""
    asked = {"parts": parts, "rounds_per_epoch": rounds, "merge": merge}
    table = spread(data, tmp_path / "run", asked)
    table["checkpoint"]["keep"] = 99
    there = streamomd.train(table, client=client, quiet=True)
    here = literally(table)
    assert there.state_sha256 == here.state_sha256
    assert there.metrics.rows == [4 * ROWS] * 2
    assert there.finished


def test_all_parts_share_the_curves_of_the_first_rows(
    data: Path, client: Client, tmp_path: Path
) -> None:
    """The knots are those of exact mode, and parts learned in turn give the same bits."""
    asked = {"parts": 5, "rounds_per_epoch": 2, "epochs": 2}
    table = spread(data, tmp_path / "run", asked, model={"shapes": "columns"})
    table["checkpoint"]["keep"] = 99
    there = streamomd.train(table, client=client, quiet=True)
    here = literally(table)
    assert there.plan.curves == here.plan.curves != ()
    assert there.state_sha256 == here.state_sha256


@pytest.mark.parametrize("count", [1, *long(2, 3, 4)])
@pytest.mark.parametrize("parts", [4, *long(8)])
def test_the_number_of_workers_changes_no_bit(
    data: Path, workers: LocalCluster, tmp_path: Path, expected: str, count: int, parts: int
) -> None:
    """P is of the job; K is of the day."""
    sized(workers, count)
    with Client(workers, set_as_default=False) as client:
        table = spread(data, tmp_path / "run", {"parts": parts})
        found = streamomd.train(table, client=client, quiet=True).state_sha256
        sized(workers, 2)
        if parts != PARTS:
            other = spread(data, tmp_path / "other", {"parts": parts})
            expected = streamomd.train(other, client=client, quiet=True).state_sha256
    assert found == expected


def test_one_part_is_exact_mode(data: Path, alone: Any, client: Client, tmp_path: Path) -> None:
    """A merge of one is the identity."""
    one = {"parts": 1, "rounds_per_epoch": 1}
    there = streamomd.train(spread(data, tmp_path / "run", one), client=client, quiet=True)
    assert there.state_sha256 == alone.state_sha256


@pytest.mark.slow
def test_exact_epochs_come_first(data: Path, alone: Any, client: Client, tmp_path: Path) -> None:
    """A warm start: all of them exact is exact mode; one of two is neither."""
    warm = {"exact_epochs": 1, "parts": 1, "rounds_per_epoch": 1}
    there = streamomd.train(spread(data, tmp_path / "a", warm), client=client, quiet=True)
    assert there.state_sha256 == alone.state_sha256
    both = streamomd.train(
        spread(data, tmp_path / "b", {"exact_epochs": 2}), client=client, quiet=True
    )
    assert both.state_sha256 == alone.state_sha256
    mixed = streamomd.train(
        spread(data, tmp_path / "c", {"exact_epochs": 1}), client=client, quiet=True
    )
    first = [model.result()["epochs"][0] for model in (mixed, alone)]
    assert first[0] == first[1]
    assert mixed.state_sha256 != alone.state_sha256


@pytest.mark.slow
def test_without_an_address_there_is_a_cluster_of_this_machine(
    data: Path, tmp_path: Path, expected: str
) -> None:
    """And it is gone afterwards."""
    found = streamomd.train(spread(data, tmp_path / "run"), quiet=True)
    assert found.state_sha256 == expected


def test_progress_and_nothing_left_on_the_scheduler(
    data: Path, workers: LocalCluster, client: Client, tmp_path: Path, capfd: Any
) -> None:
    """Tasks do not grow with the rounds; metrics are reported during the run."""
    counted: list[int] = []
    took = Averaged._apply

    def counting(self: Any, *given: Any) -> None:
        took(self, *given)
        counted.append(len(workers.scheduler.tasks))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Averaged, "_apply", counting)
        many = {"parts": 2, "rounds_per_epoch": 25}
        with verbose_output():
            streamomd.train(spread(data, tmp_path / "run", many), client=client)
    assert len(counted) == 50
    assert max(counted) <= 2 * (3 + 2)
    told = capfd.readouterr().err
    assert f"{8 * ROWS:,}  100%" in told
    deadline = time.monotonic() + 60
    while workers.scheduler.tasks:
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.mark.parametrize("how, where, seed", cases("averaged", 2, quick=(("kill", "merge", 0),)))
def test_faults_change_no_bit(
    data: Path,
    client: Client,
    workers: LocalCluster,
    tmp_path: Path,
    expected: str,
    monkeypatch: pytest.MonkeyPatch,
    how: str,
    where: str,
    seed: int,
) -> None:
    """kill -9, a stop and a retirement while a worker loads, learns, or merges; or while the driver
    commits."""
    # A killed worker is noticed without it; on a busy machine a new one is silent for seconds.
    waits(monkeypatch, silent=2.0 if how == "stop" else 30.0, look=0.3)
    with struck(workers, client, *drawn("averaged", where, how, seed), how, tmp_path / "marks"):
        there = streamomd.train(spread(data, tmp_path / "run"), client=client, quiet=True)
    assert there.state_sha256 == expected


@pytest.mark.slow
def test_workers_come_and_go_between_rounds(
    data: Path, workers: LocalCluster, client: Client, tmp_path: Path, expected: str
) -> None:
    """From two to three, then to one."""
    took, sizes = Averaged._apply, [3, 1]

    def scaling(self: Any, *given: Any) -> None:
        took(self, *given)
        if sizes:
            sized(workers, sizes.pop(0))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Averaged, "_apply", scaling)
        there = streamomd.train(spread(data, tmp_path / "run"), client=client, quiet=True)
    assert not sizes
    assert there.state_sha256 == expected
    sized(workers, 2)


def test_a_round_that_kills_its_workers_is_an_error(
    data: Path, client: Client, workers: LocalCluster, tmp_path: Path, monkeypatch: Any
) -> None:
    """And the last commit stands."""
    monkeypatch.setattr(averaged, "wait_for_result", lost)
    with pytest.raises(ClusterError, match="died or stopped responding, 3 times"):
        streamomd.train(spread(data, tmp_path / "run"), client=client, quiet=True)
    assert streamomd.load(str(tmp_path / "run")).sequence == 0


def lost(*_: Any, **more: Any) -> Any:
    raise cluster.TaskLostError("its workers died")


@pytest.mark.slow
def test_stopped_and_resumed_with_other_workers(
    data: Path, workers: LocalCluster, client: Client, tmp_path: Path, expected: str
) -> None:
    """A signal leaves the last complete round; a cluster of one worker resumes from it."""
    took = Averaged._apply

    def signalled(self: Any, *given: Any) -> None:
        self.stop.signal = signal.SIGTERM
        took(self, *given)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Averaged, "_apply", signalled)
        with pytest.raises(StoppedError, match="stopped after row 10,") as caught:
            streamomd.train(spread(data, tmp_path / "run"), client=client, quiet=True)
    assert caught.value.exit_code == 143
    sized(workers, 1)
    there = streamomd.resume(str(tmp_path / "run"), client=client, quiet=True)
    assert there.state_sha256 == expected
    sized(workers, 2)


@pytest.mark.slow
def test_the_driver_on_a_worker(data: Path, client: Client, tmp_path: Path, expected: str) -> None:
    """cluster.learner = "worker": what drives the rounds is a task too."""
    table = spread(data, tmp_path / "run", cluster={"learner": "worker"})
    assert streamomd.train(table, client=client, quiet=True).state_sha256 == expected


def test_what_is_learned_from_is_not_changed(data: Path, client: Client, tmp_path: Path) -> None:
    """A part leaves the commit it begins from as it was; so does a merge its inputs."""
    table = spread(data, tmp_path / "run", {"epochs": 1})
    streamomd.train(table, client=client, quiet=True)
    shards = find(str(data))
    request = round_state.RoundStart("run", str(tmp_path / "run"), 0, {}, Data())

    def hashed(one: round_state.PartialState) -> str:
        return hashlib.sha256(one.cells.tobytes() + one.totals.tobytes()).hexdigest()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(averaged_worker, "report_rows", lambda *_: None)
        cut = split_rows(shards, range(len(shards)), 2)
        start = round_state.start_state(request)
        before = hashed(start)
        a, b = (
            averaged_worker.learn_range(request, stretch, True, "", 0, start) for stretch in cut
        )
        hashes = [hashed(one) for one in (a, b)]
        both = averaged_worker.merge_states("", "examples", start, a, b)
        assert hashed(start) == before
    assert [hashed(one) for one in (a, b)] == hashes
    assert hashed(both) not in hashes
    assert a.__sizeof__() > a.cells.nbytes


def test_what_cannot_be_is_refused_before_anything_is_read(
    data: Path, client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By name, with what to do."""
    url = tmp_path / "run"
    kept_rows = [name for name, rule in all_rules().items() if "averaged" not in rule.modes]
    assert kept_rows == [
        name for name, rule in all_rules().items() if rule.storage.kind == "recent"
    ]
    for rule in kept_rows:
        with pytest.raises(UsageError, match="learns in mode exact, not averaged"):
            Spec.parse(spread(data, url, model={"rule": rule}))
    with pytest.raises(UsageError, match="no slot G"):
        Spec.parse(spread(data, url, {"merge": "gradients"}, model={"rule": "perceptron"}))
    with pytest.raises(UsageError, match="only averaged mode"):
        Spec.parse(spread(data, url, {"mode": "exact", "exact_epochs": 1}))
    with pytest.raises(UsageError, match="needs a checkpoint"):
        Spec.parse(spread(data, Path("none")))
    monkeypatch.setattr(diagnose, "BASE_BYTES", 1 << 50)
    with pytest.raises(ClusterError, match=r"memory_limit.*averaged mode needs"):
        streamomd.train(spread(data, url), client=client, quiet=True)


def test_a_checkpoint_the_workers_do_not_reach_is_reported(data: Path, client: Client) -> None:
    """Memory of this process is not memory of theirs."""
    table = spread(data, Path("x"))
    table["checkpoint"] = {"url": "memory://averaged-unreached"}
    with pytest.raises(ClusterError, match="all workers can read"):
        streamomd.train(table, client=client, quiet=True)


def test_parts_from_a_cache(data: Path, tmp_path: Path, client: Client, expected: str) -> None:
    """Parts that fill a cache, and parts that read from it, give the bits of those that decode."""
    settled(data)
    for name in ("cold", "warm"):
        table = spread(data, tmp_path / name)
        table["data"]["cache"] = str(tmp_path / "kept")
        assert streamomd.train(table, client=client, quiet=True).state_sha256 == expected
        assert entries(tmp_path / "kept")


@pytest.mark.slow
def test_new_shards_wait_for_the_end_of_an_epoch(tmp_path: Path, client: Client) -> None:
    """Within an epoch they would change its rounds."""
    folder = tmp_path / "data"
    for i in range(2):
        write(folder / f"{i}.parquet", rows(900, first=i))
    url = tmp_path / "run"
    took = Averaged._apply

    def signalled(self: Any, *given: Any) -> None:
        self.stop.signal = signal.SIGTERM
        took(self, *given)

    with pytest.MonkeyPatch.context() as patch, pytest.raises(StoppedError):
        patch.setattr(Averaged, "_apply", signalled)
        streamomd.train(spread(folder, url), client=client, quiet=True)
    write(folder / "2.parquet", rows(901, first=2))
    with pytest.raises(ResumeRefusedError, match="new shards divide it"):
        streamomd.resume(str(url), client=client, accept_new_shards=True, quiet=True)
    (folder / "2.parquet").unlink()
    assert streamomd.resume(str(url), client=client, quiet=True).finished


@pytest.mark.slow
def test_a_merged_run_has_no_certificate(data: Path, client: Client, tmp_path: Path) -> None:
    """The papers prove nothing of it, and that is said."""
    from streamomd.analysis.certify import certify

    table = spread(
        data, tmp_path / "run", {"epochs": 1}, model={"rule": "adagrad", "certificate": True}
    )
    there = streamomd.train(table, client=client, quiet=True)
    found = certify(there, str(data))
    assert found[0]["claims"] is None
    assert "averaged" in found[0]["reason"]


@pytest.mark.slow
def test_columns_far_from_0_are_reported_once(
    client: Client, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """By the process that starts the rounds, or by the exact epoch before them."""
    draw = np.random.default_rng(3)
    x = 2020.0 + draw.normal(size=400)
    table = pa.table({"year": x, "y": (x > 2020.0).astype(int)})
    write(tmp_path / "rows.parquet", table, row_group_size=200)
    for exact_epochs in (0, 1):
        sets = {"train.mode": "averaged", "train.parts": 2, "train.exact_epochs": exact_epochs}
        given = {"label": "y", "rule": "nag", "checkpoint": str(tmp_path / f"run {exact_epochs}")}
        streamomd.train(str(tmp_path / "rows.parquet"), client=client, sets=sets, **given)
        assert capfd.readouterr().err.count("does not centre columns: use --rule auto, or") == 1
