"""Flags are the spec's: every key is declared with one or without, and each sets its key."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import click
import pytest

from streamomd.cli import main
from streamomd.cli.job_flags import JobCommand, job_options
from streamomd.config.data_table import Csv
from streamomd.config.flags import Flag, all_flags, assign, assign_flags, dotted
from streamomd.config.job_table import VALUES
from streamomd.config.run_tables import Alert, Update
from streamomd.config.spec import Spec
from streamomd.core.errors import UsageError
from streamomd.losses import all_losses
from streamomd.rules import ALIASES

CODE = re.compile(r"`([^`]+)`")
FREQUENT = ["ignore", "text", "nulls", "dates", "holdout", "seed", "order", "l1", "l2", "task"]
KEYS = [
    (table, name, field)
    for table, of in Spec.model_fields.items()
    for name, field in of.annotation.model_fields.items()  # type: ignore[union-attr]
] + [("data.csv", name, field) for name, field in Csv.model_fields.items()]
WITHOUT_A_FLAG = {
    *("data.sparse", "data.crosses", "data.hash_seed", "data.cache_gib"),
    *("data.standardize", "data.csv"),
    *("data.csv.header", "data.csv.quotes"),
    *(
        "model.loss_params",
        "model.scale_target",
        "model.classes",
        "model.bias",
        "model.certificate",
        "model.params",
    ),
    *("train.parts", "train.rounds_per_epoch", "train.merge", "train.exact_epochs"),
    *("train.batch_rows", "train.prefetch", "train.threads", "train.detail"),
    *(
        "checkpoint.every_seconds",
        "checkpoint.every_rows",
        "checkpoint.keep",
        "checkpoint.keep_updates",
        "checkpoint.aside",
    ),
    "data.arrival",
    *(f"update.{name}" for name in Update.model_fields if name != "fail_on_alert"),
    *(f"alert.{name}" for name in Alert.model_fields),
    *("cluster.window", "cluster.decode", "cluster.learner", "cluster.workers"),
    "cluster.resources",
}
"""Keys that only --set sets. A new key is in this list or has a flag."""


@pytest.mark.parametrize("table, name, field", KEYS, ids=lambda one: one if str(one) == one else "")
def test_every_key_declares_its_flag_and_says_what_it_sets(
    table: str, name: str, field: Any
) -> None:
    """A key's declaration names a flag or none; its text is a sentence."""
    extra = field.json_schema_extra
    assert (extra["flag"] is None) == (f"{table}.{name}" in WITHOUT_A_FLAG)
    assert re.fullmatch(r"[A-Z].{12,}[.]", field.description)
    if extra["flag"]:
        assert all_flags()[extra["flag"]].key == f"{table}.{name}"


@pytest.mark.parametrize("table, name, field", KEYS, ids=lambda one: one if str(one) == one else "")
def test_a_value_of_another_type_says_what_was_expected(table: str, name: str, field: Any) -> None:
    """Of every key that takes no text: never in the words of the library that checks it."""
    if field.annotation in (str, str | None):
        return
    with pytest.raises(UsageError) as refused:
        tables: dict[str, Any] = {}
        wrong = {"a": 1} if "tuple" in str(field.annotation) else "wrong!"
        assign(tables, f"{table}.{name}", wrong)
        Spec.parse(tables)
    message = str(refused.value)
    assert name in message
    assert re.search("expected |unknown |no certificate", message), message
    assert not re.search("input should|valid (integer|number|dict)|pydantic", message), message


def test_frequent_keys_have_flags() -> None:
    """Each of them is an option of train, sweep, plan and submit."""
    names = {name for option in job_options() for name in option.opts}
    assert {f"--{name}" for name in FREQUENT} <= names
    for command in ("train", "sweep", "plan", "submit"):
        found = main.commands[command]
        assert isinstance(found, JobCommand)
        with click.Context(found, **main.context_settings) as ctx:
            given = {name for param in found.get_params(ctx) for name in param.opts}
        assert names <= given


@pytest.mark.parametrize("flag", all_flags().values(), ids=lambda flag: flag.name)
def test_a_flag_sets_its_key(flag: Flag) -> None:
    """In Python, by ``--set NAME`` and by the dotted key: the same place in the tables."""
    by_flag: dict[str, Any] = {}
    assign_flags(by_flag, {flag.name: "x"})
    by_key: dict[str, Any] = {}
    assign(by_key, flag.key, "x")
    assert by_flag == by_key
    assert dotted(flag.name) == flag.key
    for other in flag.others:
        assert dotted(other) == flag.key


@pytest.mark.parametrize(
    "flag", [flag for flag in all_flags().values() if flag.option], ids=lambda flag: flag.name
)
def test_the_help_names_the_key_and_its_default(flag: Flag) -> None:
    """Each option's help ends with the key of the job file that it sets."""
    (option,) = [one for one in job_options() if one.name == flag.name]
    assert str(option.help).startswith(flag.help)
    assert f"[{flag.key}" in str(option.help)
    assert {f"--{name.replace('_', '-')}" for name in (flag.name, *flag.others)} == set(option.opts)


def test_flags_without_a_value_set_nothing() -> None:
    """None and empty lists leave the job's own values."""
    tables = {"data": {"hashed": ["h"]}}
    assign_flags(tables, {"hashed": None, "numeric": [], "text": (), "bits": None})
    assert tables == {"data": {"hashed": ["h"]}}


@pytest.mark.parametrize("flag", all_flags().values(), ids=lambda flag: flag.name)
def test_an_unknown_flag_gets_the_nearest(flag: Flag) -> None:
    """A letter too many in any flag of Python: the message names the flag."""
    with pytest.raises(UsageError, match=f"unknown flag '{flag.name}x'; did you mean '{flag.name}"):
        assign_flags({}, {f"{flag.name}x": 1})


def test_the_job_file_page_lists_every_flag_and_other_name() -> None:
    """Its tables have a line for each flag, with its other names, and each alias."""
    page = (Path(__file__).parents[2] / "docs" / "job-file.md").read_text("utf-8")
    for flag in all_flags().values():
        if flag.option:
            others = ", ".join(f"`--{name.replace('_', '-')}`" for name in flag.others)
            line = f"| `--{flag.name.replace('_', '-')}` | {others} | `{flag.key}` |"
            assert line in page, line
    aliases = [*ALIASES, *(name for loss in all_losses().values() for name in loss.aliases)]
    aliases += [name for others in VALUES.values() for name in others]
    accepted = {name for line in re.findall(r"^\|.*\|$", page, re.M) for name in CODE.findall(line)}
    assert set(aliases) <= accepted
