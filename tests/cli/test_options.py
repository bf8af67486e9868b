"""Options have one convention: each says what it sets, -o writes, a slip gets the nearest name."""

from __future__ import annotations

import errno
import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from running import everything, run, shards, train

import streamomd
from streamomd.cli import job_flags, main
from streamomd.cli.command_group import Choice
from streamomd.config.spec import Spec
from streamomd.core.errors import UsageError

WRITERS = ("backtest", "convert", "export", "init", "init", "predict", "report", "sweep")
"""Commands that write files where an option says."""
ODD_WORDS = re.compile(
    r"\b(told|tells?|heard|kept|begun|anew|mend|beside|whoever|somebody|nobody|goes? on|at once|"
    r"by hand|indeed|so many|what there is|commonest)\b"
)


def commands(group: click.Group = main, before: str = "") -> Iterator[tuple[str, click.Command]]:
    """Every command that does something, as it is typed."""
    for name, command in group.commands.items():
        if isinstance(command, click.Group):
            yield from commands(command, f"{before}{name} ")
        else:
            yield f"{before}{name}", command


OPTIONS = [
    (f"{name} {param.opts[-1]}", str(param.help))
    for name, command in commands()
    for param in command.get_params(click.Context(command, **main.context_settings))
    if isinstance(param, click.Option)
]


def test_each_option_says_what_it_sets() -> None:
    """A sentence of two words and more, in plain words, with a full stop before the default."""
    sentence = re.compile(r"(?=[A-Z]|[a-z]+: )\S+\s.*\.", re.S)
    odd = [
        f"{name}: {text}"
        for name, text in OPTIONS
        if not sentence.fullmatch(text.partition("  [")[0]) or ODD_WORDS.search(text)
    ]
    assert len(OPTIONS) > 100
    assert not odd, "\n".join(odd)


@pytest.mark.parametrize("command", [*commands()], ids=lambda one: one[0])
def test_each_command_is_described_in_plain_words(command: tuple[str, click.Command]) -> None:
    """The help of every command has none of the words that writing.md excludes."""
    name, _ = command
    assert not ODD_WORDS.search(run(*name.split(), "--help").out)


@pytest.mark.parametrize("name", WRITERS)
def test_output_has_three_names(name: str) -> None:
    """-o, --output and --to are one option of every command that writes where it is told."""
    (option,) = [one for one in main.commands[name].params if one.name == "to"]
    assert set(option.opts) == {"-o", "--output", "--to"}


def test_no_other_command_has_an_output() -> None:
    """The list of commands that write is complete."""
    found = {name for name, command in commands() if "to" in [one.name for one in command.params]}
    assert found == set(WRITERS)


def test_each_name_of_the_output_writes_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same file under each of the three."""
    monkeypatch.chdir(tmp_path)
    shards(tmp_path / "data")
    train("data", *everything(), "--checkpoint", "run")
    (tmp_path / "rows.csv").write_text("a,b\n1,2\n")
    written = []
    for at, flag in enumerate(("-o", "--output", "--to")):
        for words in (
            ("convert", "rows.csv", "--from", "csv", flag, f"rows{at}"),
            ("predict", "run", "data", flag, f"predictions{at}"),
            ("export", "run", "--as", "parquet", flag, f"model{at}.parquet"),
            ("report", "run", flag, f"page{at}.html"),
        ):
            done = run(*words)
            assert done.code == 0, done.err
        written.append((tmp_path / f"model{at}.parquet").read_bytes())
        assert (tmp_path / f"page{at}.html").exists()
        for folder in (f"rows{at}", f"predictions{at}"):
            assert list((tmp_path / folder).glob("*.parquet"))
    assert written[0] == written[1] == written[2]


TYPED = [
    (["train", "data", "--rule", "adagrd"], "'adagrad'"),
    (["train", "data", "--rule", "FTRL-proximal"], "'ftrl_proximal'"),
    (["train", "data", "--loss", "logstic"], "'logistic'"),
    (["train", "data", "--holdot", "10"], "--holdout"),
    (["train", "data", "--categoricl", "h"], "--categorical"),
    (["train", "data", "--set", "data.nuls=zero"], "'nulls'"),
    (["train", "data", "--set", "dat.nulls=zero"], "'data'"),
    (["train", "data", "--set", "data.catgorical=h"], "'categorical'"),
    (["train", "data", "--set", "etta=1"], "'eta'"),
    (["train", "data", "--rule", "nag", "--set", "model.params.implict=true"], "'implicit'"),
    (["train", "data", "--loss", "huber", "--set", "model.loss_params.treshold=1"], "'threshold'"),
    (["train", "data", "--l1", "0.1"], "rules with 'l1': adagrad"),
    (["train", "data", "--mode", "exct"], "'exact'"),
    (["train", "data", "--nulls", "indicatr"], "'indicator'"),
    (["train", "data", "--order", "shufled"], "'shuffled'"),
    (["train", "data", "--task", "clasify"], "'classify'"),
    (["train", "data", "--dtype", "float23"], "'float32'"),
    (["train", "data", "--on-bad-row", "skp"], "'skip'"),
    (["train", "data", "--rule", "ogd", "--set", "schedule=sqr"], "expected one of"),
    (["train", "data", "--rule", "adagrad_full", "--set", "update=ful"], "expected one of"),
    (["train", "data", "--track", "tensorbord:x"], "'tensorboard'"),
    (["trian", "data"], "'train'"),
    (["list", "ruls"], "'rules'"),
    (["checkpoint", "verfy", "run"], "'verify'"),
    (["convert", "a.csv", "--from", "cvs", "--to", "x"], "'csv'"),
    (["convert", "a.csv", "--from", "csv", "--as", "parqet", "--to", "x"], "'parquet'"),
    (["convert", "a.csv", "--from", "csv", "--outptu", "x"], "--output"),
    (["export", "run", "--as", "onxx", "--to", "x"], "'onnx'"),
    (["certify", "run", "data", "--comparator", "bst"], "'best'"),
    (["resume", "run", "--set", "train.epocs=2"], "'epochs'"),
    (["resume", "run", "--set", "trian.epochs=2"], "'train'"),
    (["sweep", "data", "--grid", "model.rul=nag"], "'model.rule'"),
    (["watch", "run", "--every", "soon"], 'expected a duration such as "30s"'),
]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with shards, a text file and a run."""
    folder = tmp_path_factory.mktemp("names")
    shards(folder / "data")
    (folder / "a.csv").write_text("a,b\n1,2\n")
    train(folder / "data", *everything(), "--checkpoint", folder / "run")
    return folder


@pytest.mark.parametrize("words, nearest", TYPED, ids=[" ".join(words) for words, _ in TYPED])
def test_an_unknown_name_gets_the_nearest(
    words: list[str], nearest: str, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rule, loss, flag, key, mode, format, parameter, value of a choice, command: exit 2."""
    monkeypatch.chdir(place)
    label = ["--label", "y"] if words[0] in ("train", "sweep") else []
    done = run(*words, *label)
    assert done.code == 2
    assert nearest in done.err


def literals() -> Iterator[tuple[str, str, str]]:
    """Every word that a key may be, with its table and key."""
    for table, of in Spec.model_fields.items():
        for name, field in of.annotation.model_fields.items():  # type: ignore[union-attr]
            for word in getattr(field.annotation, "__args__", ()):
                if isinstance(word, str):
                    yield table, name, word


@pytest.mark.parametrize("table, key, word", [*literals()])
def test_every_value_of_a_choice_is_suggested(table: str, key: str, word: str) -> None:
    """A letter too many in any of them: the message names the value."""
    with pytest.raises(UsageError) as refused:
        Spec.parse({table: {key: f"{word}x"}})
    assert f"{table}.{key} = '{word}x'" in str(refused.value)
    assert f"did you mean '{word}'?" in str(refused.value)


def test_every_choice_of_the_command_line_suggests() -> None:
    """No option or argument uses click's own choice, which names no nearest one."""
    params = [param for _, command in commands() for param in command.params]
    assert not [param.name for param in params if isinstance(param.type, click.Choice)]
    assert any(isinstance(param.type, Choice) for param in params)


@pytest.mark.parametrize("every, code", [("0.2", 0), ("200ms", 0), ("5m", 0), ("50ms", 2)])
def test_watch_accepts_a_duration(every: str, code: int, place: Path) -> None:
    """--every is seconds or a duration, of a tenth of a second or more."""
    assert run("watch", place / "run", "--once", "--every", every).code == code


def test_the_guide_is_printed_for_a_rule_without_a_name(place: Path) -> None:
    """The generated option of the rule alone has a value that may be missing."""
    assert "Take the first line that fits your data" in run("train", "--rule").err
    assert run("train", "--loss").code == 2


def test_flags_of_parameters(place: Path) -> None:
    """--eta, --l1 and --l2 set the rule's parameters."""
    words = ["--rule", "ftrl", "--l1", "0.5", "--l2", "2", "--checkpoint", place / "ftrl"]
    train(place / "data", *everything(), *words)
    params = streamomd.load(str(place / "ftrl")).spec.model.params
    assert (params["l1"], params["l2"]) == (0.5, 2.0)


def test_a_failure_of_the_machine_while_flags_are_read_is_one_line(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The specification is imported before the command runs: no traceback, exit code 1."""

    def full() -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(job_flags, "job_options", full)
    done = run("train", "data", "--label", "y")
    assert done.code == 1
    assert done.err.startswith("streamomd: ")
    assert len(done.err.splitlines()) == 1
