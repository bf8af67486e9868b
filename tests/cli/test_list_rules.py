"""What there is to choose from, and the guide for one who does not know which rule to name."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from running import Ran, run

from streamomd.cli import list_tables
from streamomd.losses import all_losses
from streamomd.rules import all_rules
from streamomd.rules.params import needs

KINDS = ("rules", "losses")


def listed(kind: str) -> list[dict]:
    """``list … --json``."""
    return run("list", kind, "--json").result[kind]


def columns(kind: str) -> list[dict[str, str]]:
    """The cells of the printed table, by the head of their column."""
    head, *lines = run("list", kind).out.splitlines()
    starts = [match.start() for match in re.finditer(r"\S+", head)]
    ends = [*starts[1:], None]
    cuts = list(zip(starts, ends, strict=True))
    return [
        {head[low:high].strip(): line[low:high].strip() for low, high in cuts} for line in lines
    ]


@pytest.mark.parametrize("rule", all_rules().values(), ids=lambda rule: rule.name)
def test_a_rule_is_listed(rule) -> None:
    """Name, title, defaults, losses, certificate, modes and source, as a job would say them, and
    the parameters to set."""
    told = {one["name"]: one for one in listed("rules")}[rule.name]
    assert told["title"] == rule.title
    assert told["params"] == rule.parse_params({})
    assert told["losses"] == [*(rule.losses.names or all_losses())]
    assert told["certificate"] is (rule.certificate.claims is not None)
    assert told["modes"] == [*rule.modes]
    assert told["source"] == rule.source
    assert told["needs"] == needs(rule.hyper)


@pytest.mark.parametrize("loss", all_losses().values(), ids=lambda loss: loss.name)
def test_a_loss_is_listed(loss) -> None:
    """Name, title, task, defaults, the bound of its slope, and other names it goes by."""
    told = {one["name"]: one for one in listed("losses")}[loss.name]
    assert told["title"] == loss.title
    assert told["task"] == ("classify" if loss.classifies else "regress")
    assert told["params"] == loss.parse_params({})
    assert (told["lipschitz"] is None) == (loss.lipschitz is None)
    assert told["implicit"] is (loss.along is not None)
    assert told["also"] == [*loss.aliases]


@pytest.mark.parametrize("kind", KINDS)
def test_tables_align(kind: str) -> None:
    """Every cell of a table stands below its head, and holds what --json says in words."""
    for cells, told in zip(columns(kind), listed(kind), strict=True):
        for name in ("name", "title"):
            assert cells[name] == told[name]
        given = ", ".join(f"{name}={value}" for name, value in told["params"].items())
        assert cells["params"] == given.replace("=True", "=true").replace("=False", "=false")
        if kind == "rules":
            assert cells["certificate"] == ("yes" if told["certificate"] else "no")
            assert cells["losses"] in ("all", ", ".join(told["losses"]))
            assert all(text in cells["needs"] for text in told["needs"].values())
        else:
            assert cells["lipschitz"] == str(told["lipschitz"] or "none")


def guided(*words: object) -> Ran:
    """A command that must end with the guide and change nothing."""
    done = run(*words)
    assert done.code == 2
    assert done.out == ""
    assert done.err.startswith("Usage: ")
    assert done.err.endswith(f"Error: {list_tables.format_guide()}\n")
    return done


def test_a_rule_without_a_name_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``--rule`` with nothing after it prints the guide, wherever it stands; exit code 2."""
    monkeypatch.chdir(tmp_path)
    guided("train", "job.toml", "--rule")
    guided("train", "--rule")
    guided("train", "data/", "--rule", "--label", "y")
    guided("train", "data/", "--label", "y", "--rule=")
    assert list(tmp_path.iterdir()) == []
    assert "guide" not in run("train", "data/", "--rule", "nag").err
    assert "unknown rule 'nagg'" in run("train", "data/", "--rule", "nagg").err


def test_the_guide_leads_to_rules_there_are() -> None:
    """Every rule the guide names exists, in its hints too; no line is wider than a terminal."""
    cases = [case for _, *cases in list_tables.GUIDE for case in cases]
    named = {name for _, rules, _ in cases for name in rules.split()}
    missing = named - set(all_rules())
    assert not missing, f"missing: {', '.join(sorted(missing))}"
    hinted = {"cw_diag", "pa", "pnorm", "si_pnorm", "sop", "aggressive"}
    words = {word for *_, hint in cases for word in re.findall(r"\w+", hint)}
    assert hinted <= words
    missing = hinted - set(all_rules())
    assert not missing, f"missing: {', '.join(sorted(missing))}"
    assert max(map(len, list_tables.format_guide().splitlines())) <= 100


def test_the_guide_keeps_its_promises() -> None:
    """What it calls proven has a certificate; its O(d^2) keep a matrix; no others do."""
    by_question = {question: cases for question, *cases in list_tables.GUIDE}
    rules = all_rules()
    for _, names, _ in by_question["Do you need a proven bound?"]:
        assert all(rules[name].certificate for name in names.split() if name in rules)
    for cases in by_question.values():
        for _, names, hint in cases:
            for rule in (rules[name] for name in names.split() if name in rules):
                assert (rule.storage.kind == "matrix") == ("O(d^2)" in hint)
