"""State versions: which older and newer states of a rule load, and which are refused by name."""

from __future__ import annotations

import hashlib
import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers import Learner, sparse
from running import run, write

import streamomd
from streamomd.checkpoint.sealed_json import seal, unseal
from streamomd.core.errors import NoCommitError
from streamomd.rules import all_rules

VERSIONS = {
    "adagrad_da": 2,
    "adagrad_standardized": 4,
    "aggressive_second_order": 2,
    "aggressive_second_order_diag": 2,
    "auto": 6,
    "dual_step": 2,
    "ftrl_centered": 2,
    "laplace": 6,
}
"""Of every rule whose states are not of version 1. The changelog has each of them."""
SAME = {
    "adagrad_da": "577591265e365bcb6a1cf6696b6b1647faf520b56e4916aa0ef525b9a9555668",
    "aggressive_second_order": "888635e2c80b094fbc01e915827b4177f2d4fe74a0c88e7f5f334490750781d0",
    "aggressive_second_order_diag": (
        "3ad27938f334f1db0d97a694f6755794c3d73886fae06d3ca65eb2861d42be79"
    ),
    "dual_step": "447ad0472786bedb41ffbd6d63950cb6d0a1c7632374e23e2c119fe6e18a692d",
    "ftrl_centered": "b4b22ad71692b928b654736700d9097719eb743a8ee7f6b55ebc0649a4a2e904",
}
"""SHA-256 of states of version 1 without importances, by the last source that wrote them."""


def state_of(rule: str) -> str:
    """The hash of a small state, of rows without importances."""
    rng = np.random.default_rng(20)
    X = rng.standard_normal((60, 7)) * (rng.random((60, 7)) < 0.6)
    y = np.where(X @ np.arange(-3.0, 4.0) + rng.standard_normal(60) > 0.0, 1.0, -1.0)
    loss = (all_rules()[rule].losses.names or ("hinge",))[0]
    learner = Learner(rule, loss, 7, compiled=False)
    learner.learn(sparse(X, y))
    digest = hashlib.sha256()
    learner.state.digest(digest)
    return digest.hexdigest()


def test_each_version_above_1_is_known() -> None:
    """A new version is noted here, and in the changelog with the rule's name."""
    above = {name: rule.state.version for name, rule in all_rules().items()}
    assert {name: version for name, version in above.items() if version > 1} == VERSIONS
    changes = (Path(__file__).parents[2] / "CHANGELOG.md").read_text("utf-8")
    for rule, version in VERSIONS.items():
        assert f"state version {version} of `{rule}`" in changes


@pytest.mark.parametrize("rule", SAME)
def test_without_importances_version_1_is_version_2(rule: str) -> None:
    """The bits of an unweighted state are those that the version before wrote."""
    assert state_of(rule) == SAME[rule]


@pytest.fixture
def shard(tmp_path: Path) -> Path:
    rng = np.random.default_rng(3)
    n = rng.normal(size=50)
    weight = rng.choice([0.5, 1.0, 2.0], 50)
    return write(tmp_path / "rows.parquet", {"y": (n > 0).astype(int), "n": n, "w": weight})


def trained(shard: Path, rule: str, *words: str) -> str:
    """A run of two epochs that has finished, and its URL."""
    url = str(shard.parent / "run")
    done = run("train", shard, "--label", "y", "--rule", rule, "--checkpoint", url, *words)
    assert done.code == 0, done.err
    return url


def edited(url: str, **changes: Any) -> None:
    """Change fields of the newest commit's document; None removes one."""
    newest = max((Path(url) / "commits").iterdir())
    fields, _ = unseal(newest.read_bytes())
    for key, value in changes.items():
        if value is None:
            fields["document"].pop(key)
        else:
            fields["document"][key] = value
    newest.write_bytes(seal(fields))


IGNORED = ("--numeric", "n")
WEIGHTED = ("--weight", "w")


@pytest.mark.parametrize(
    "rule",
    # What decides is in the document, not in the rule: two loops to compile are enough.
    [pytest.param(rule, marks=() if rule in ("adagrad_da", "dual_step") else pytest.mark.slow)
     for rule in SAME],
)  # fmt: skip
def test_a_state_of_version_1_without_importances_loads(rule: str, shard: Path) -> None:
    """It is continued, and then has the current version."""
    url = trained(shard, rule, *IGNORED)
    expected = streamomd.load(url).state_sha256
    edited(url, state_version=None)
    assert streamomd.load(url).state_sha256 == expected
    assert run("resume", url, "--epochs", "2").code == 0
    newest = max((Path(url) / "commits").iterdir())
    assert unseal(newest.read_bytes())[0]["document"]["state_version"] == VERSIONS[rule]


@pytest.mark.parametrize("rule", sorted({*SAME} - {"dual_step"}))
def test_a_state_of_version_1_with_importances_is_refused_by_name(rule: str, shard: Path) -> None:
    """By every command that loads it, with exit 4: what it means cannot be converted."""
    url = trained(shard, rule, *WEIGHTED)
    edited(url, state_version=None)
    with pytest.raises(NoCommitError, match=f"rule '{rule}' of version 1.*train again"):
        streamomd.load(url)
    for words in (("resume", url), ("predict", url, shard, "--to", shard.parent / "out")):
        done = run(*words)
        assert (done.code, rule in done.err, "version 1" in done.err) == (4, True, True), done


@pytest.mark.parametrize("rule", sorted({*VERSIONS} - {*SAME}))
def test_a_state_that_cannot_be_converted_is_refused_by_name(rule: str, shard: Path) -> None:
    """With or without importances."""
    url = trained(shard, rule, *IGNORED)
    edited(url, state_version=None)
    with pytest.raises(NoCommitError, match=f"rule '{rule}' of version 1.*train again"):
        streamomd.load(url)


def test_what_does_not_depend_on_importances_is_not_refused(shard: Path) -> None:
    """adagrad_da with a delta of its own; the dual step, whose slots mean the same."""
    url = trained(shard, "adagrad_da", *WEIGHTED, "--set", "delta=1")
    edited(url, state_version=None)
    streamomd.load(url)
    url = trained(shard, "dual_step", *WEIGHTED, "--restart")
    edited(url, state_version=None)
    streamomd.load(url)


def test_accounts_of_another_kind_are_refused(shard: Path) -> None:
    """The diagonal rule's certificate has other slots than in version 1."""
    rule = "aggressive_second_order_diag"
    url = trained(shard, rule, *IGNORED, "--set", "model.certificate=true")
    edited(url, state_version=None)
    with pytest.raises(NoCommitError, match=f"{rule}.*sums for its certificate differ"):
        streamomd.load(url)


@pytest.mark.parametrize("rule", ["nag", "dual_step"])
def test_a_newer_version_is_refused(rule: str, shard: Path) -> None:
    """With what to do about it; and a commit with what is no version is corrupt."""
    url = trained(shard, rule, *IGNORED)
    edited(url, state_version=9)
    with pytest.raises(NoCommitError, match=f"'{rule}' of version 9.*upgrade streamomd"):
        streamomd.load(url)
    assert run("resume", url).code == 4
    for nonsense in ("2", 0, -1, 1.0, True, []):
        edited(url, state_version=nonsense)
        assert streamomd.load(url).sequence == 0  # the commit before it


def test_every_run_writes_its_version(shard: Path) -> None:
    """Also version 1, which a manifest without one has."""
    for rule in ("ogd", "nag", *VERSIONS):
        url = trained(shard, rule, *IGNORED, "--restart")
        fields, _ = unseal(max((Path(url) / "commits").iterdir()).read_bytes())
        assert fields["document"]["state_version"] == VERSIONS.get(rule, 1)


def test_a_pickled_estimator_has_the_version_too() -> None:
    """Whether its rows had weights is not saved with it: an older state is refused."""
    made = streamomd.OMDClassifier(rule="aggressive_second_order", loss="hinge")
    made.fit(np.eye(4), [0, 1, 0, 1])
    again = pickle.loads(pickle.dumps(made))
    assert np.array_equal(again.coef_, made.coef_)
    restore, (text, parts) = made._held.__reduce__()
    document = json.loads(text)
    del document["state_version"]
    with pytest.raises(NoCommitError, match="aggressive_second_order"):
        restore(json.dumps(document), parts)
