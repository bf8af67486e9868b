"""Other names of rules, losses, keys and values are accepted; the saved job has the canonical."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from running import run, shards, train

import streamomd
from streamomd.config.flags import all_flags, assign, dotted
from streamomd.config.job_table import KEYS, PARAMETERS, VALUES
from streamomd.config.spec import Spec
from streamomd.core.errors import UsageError
from streamomd.losses import all_losses, find_loss
from streamomd.rules import ALIASES, all_rules, find_rule
from streamomd.rules.contract import fields

EXAMPLES: dict[str, Any] = {"label": "y", "weight": "w", "seed": 7, "epochs": 3}
KEY_ALIASES = [
    (table, other, own) for table, others in KEYS.items() for other, own in others.items()
]
REQUIRED = {
    "ftrl": "ftrl_proximal",
    "sgd": "ogd",
    "mse": "square",
    "squared": "square",
    "logistic_regression": "logistic",
    "categorical": "hashed",
}


@pytest.mark.parametrize("alias, name", ALIASES.items())
def test_an_alias_of_a_rule(alias: str, name: str) -> None:
    """It is the rule, it is no rule's own name, and the saved job has the rule's own name."""
    assert alias not in all_rules()
    assert find_rule(alias) is find_rule(name)
    assert Spec.parse({"model": {"rule": alias}}).to_json()["model"]["rule"] == name


@pytest.mark.parametrize(
    "alias, name", [(alias, loss.name) for loss in all_losses().values() for alias in loss.aliases]
)
def test_an_alias_of_a_loss(alias: str, name: str) -> None:
    """It is the loss of one name only, and the saved job has the loss's own name."""
    assert alias not in all_losses()
    assert find_loss(alias).name == name
    assert Spec.parse({"model": {"loss": alias}}).to_json()["model"]["loss"] == name


def test_no_alias_is_of_two_losses() -> None:
    """Every alias of a loss means one."""
    aliases = [alias for loss in all_losses().values() for alias in loss.aliases]
    assert len(aliases) == len(set(aliases))


def test_the_names_that_users_try_first() -> None:
    """Names of other libraries are known as ours."""
    rules = {alias: find_rule(alias).name for alias in ("ftrl", "sgd")}
    losses = {alias: find_loss(alias).name for alias in ("mse", "squared", "logistic_regression")}
    assert {**rules, **losses, "categorical": KEYS["data"]["categorical"]} == REQUIRED


@pytest.mark.parametrize("table, alias, own", KEY_ALIASES)
def test_an_alias_of_a_key(table: str, alias: str, own: str) -> None:
    """It sets the key; it is no key itself; both together are refused with both names."""
    value = EXAMPLES.get(own, ["a", "b"])
    model: Any = Spec.model_fields[table].annotation
    assert alias not in model.model_fields
    expected = Spec.parse({table: {own: value}})
    assert Spec.parse({table: {alias: value}}) == expected
    assert alias not in expected.to_json()[table]
    assert dotted(f"{table}.{alias}") == f"{table}.{own}"
    with pytest.raises(UsageError, match=f"{own} is given twice, as '{own}' and '{alias}'"):
        Spec.parse({table: {own: value, alias: value}})


@pytest.mark.parametrize("table, alias, own", KEY_ALIASES)
def test_a_set_replaces_an_alias(table: str, alias: str, own: str) -> None:
    """A flag or ``--set`` wins over the job file, whichever of the names each of them uses."""
    value, other = EXAMPLES.get(own, ["a"]), "x"
    for first, second in ((alias, own), (own, alias), (alias, alias)):
        tables = {table: {first: other}}
        assign(tables, f"{table}.{second}", value)
        assert tables == {table: {own: value}}


@pytest.mark.parametrize(
    "key, alias, own",
    [(key, alias, own) for key, others in VALUES.items() for alias, own in others.items()],
)
def test_an_alias_of_a_value(key: str, alias: str, own: str) -> None:
    """It is saved as the value."""
    if key == "counts":
        spec = Spec.parse({"data": {"text": [{"column": "t", "counts": alias}]}})
        assert spec.to_json()["data"]["text"][0]["counts"] == own
        return
    (flag,) = [flag for flag in all_flags().values() if flag.name == key]
    spec = Spec.parse({flag.table: {key: alias}})
    assert spec.to_json()[flag.table][key] == own


def test_no_name_means_two_things() -> None:
    """Names and aliases of flags are different from each other and from every parameter's name."""
    flags = [name for flag in all_flags().values() for name in (flag.name, *flag.others)]
    assert len(flags) == len(set(flags))
    parameters = {name for rule in all_rules().values() for name in fields(rule.hyper)}
    assert parameters & set(flags) == {"eta", "l1", "l2"}
    assert set(PARAMETERS.values()) <= parameters


def test_python_and_the_command_line_accept_aliases(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``train(categorical=…, learning_rate=…)`` and the flags give the job of our own names."""
    monkeypatch.chdir(tmp_path)
    shards(tmp_path / "data")
    words = ["--target", "y", "--numerical", "n,k", "--categorical", "h", "--sample-weight", "w"]
    words += ["--rule", "sgd", "--learning-rate", "0.25", "--max-iter", "2", "--random-state", "3"]
    train("data", *words, "--loss", "log_loss", "--checkpoint", "flags")
    names: dict[str, Any] = {"target": "y", "numerical": "n,k", "categorical": "h"}
    names |= {"sample_weight": "w", "rule": "sgd", "learning_rate": 0.25, "max_iter": 2}
    streamomd.train(
        "data", **names, random_state=3, loss="log_loss", checkpoint="names", quiet=True
    )
    one, two = (streamomd.load(name).spec.to_json() for name in ("flags", "names"))
    assert {**one, "checkpoint": None} == {**two, "checkpoint": None}
    assert one["model"]["rule"] == "ogd"
    assert one["model"]["params"]["eta"] == 0.25
    assert one["train"]["epochs"] == 2
    assert (one["data"]["hashed"], one["data"]["seed"]) == (["h"], 3)
    with pytest.raises(UsageError, match="hashed is given twice, as 'hashed' and 'categorical'"):
        streamomd.train("data", label="y", hashed="h", categorical="h")


def test_formats_have_other_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """``--from libsvm`` is svmlight, ``--as scikit-learn`` sklearn."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "rows.svm").write_text("1 1:2.5\n-1 2:1\n")
    assert run("convert", "rows.svm", "--from", "libsvm", "--to", "rows").code == 0
    pair = 'data.sparse={indices="indices", values="values"}'
    done = run("train", "rows", "--label", "label", "--set", pair, "--checkpoint", "run")
    assert done.code == 0, done.err
    assert run("export", "run", "--as", "vowpal_wabbit", "-o", "model.vw").code == 0


def test_estimators_accept_other_names() -> None:
    """An estimator with rule="sgd" and loss="log_loss" fits the model of the canonical names."""
    rows = np.arange(12.0).reshape(6, 2)
    labels = [0, 1, 0, 1, 1, 0]
    seed = {"random_state": 0}
    one = streamomd.OMDClassifier(rule="sgd", loss="logistic_regression", **seed)
    other = streamomd.OMDClassifier(rule="ogd", loss="logistic", **seed).fit(rows, labels)
    one.fit(rows, labels)
    assert (one.coef_ == other.coef_).all()
    one.partial_fit(rows, labels)
