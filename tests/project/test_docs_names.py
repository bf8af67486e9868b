"""What docs name exists: keys of a job, public names, bad input."""

from __future__ import annotations

import inspect
import pkgutil
import re
import tomllib
from typing import Any

import pytest
import test_accepted_table
import test_bad_input_table
from documented import ROOT, blocks
from pydantic import BaseModel

import streamomd
from streamomd.config.data_table import Sparse
from streamomd.config.spec import Spec
from streamomd.core.batch import REASONS

DOCS = ROOT / "docs"


def read(page: str) -> str:
    return (DOCS / page).read_text("utf-8")


def keys(table: type[BaseModel]) -> dict[str, set[str]]:
    """Of each table of a job, the keys it may have."""
    return {
        name: set(field.annotation.model_fields)
        for name, field in table.model_fields.items()
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel)
    }


def test_the_job_file_names_every_key() -> None:
    """Every key of a job stands in the page's job, and it is a legal one."""
    (block,) = [block for block in blocks(DOCS / "job-file.md") if block.language == "toml"]
    told = tomllib.loads(block.text)
    Spec.parse(told)
    for table, known in keys(Spec).items():
        options = {"storage_options"}  # on a page of their own: docs/cloud.md
        said = set(told[table]) | set(re.findall(r"^# (\w+) = ", block.text, re.M))
        assert known - options <= said, table
    assert set(Sparse.model_fields) == set(told["data"]["sparse"])


def test_the_api_has_every_public_name() -> None:
    """Each public name has its place in the API."""
    assert {f"streamomd.{name}" for name in streamomd.__all__} <= set(
        re.findall(r"^::: (\S+)$", read("api.md"), re.M)
    )


@pytest.mark.parametrize("table", [test_bad_input_table.REFUSED, test_accepted_table.ACCEPTED])
def test_bad_input_names_every_case(table: dict[str, Any]) -> None:
    """Every case of the tables that are tested stands on the page."""
    text = " ".join(read("bad-input.md").split()).lower()
    assert [line for line in table if line.lower() not in text] == []


def test_bad_input_names_every_reason() -> None:
    """So does every reason for which rows are counted."""
    assert [reason for reason in REASONS if f"`{reason}`" not in read("bad-input.md")] == []


def signature(told: Any) -> str:
    """Parameters with their defaults, without types."""
    whole = inspect.signature(told)
    given = [one.replace(annotation=one.empty) for one in whole.parameters.values()]
    given = [one for one in given if one.name != "self"]
    return str(whole.replace(parameters=given, return_annotation=whole.empty))


def sentence(told: Any) -> str:
    """The first one of a docstring."""
    return " ".join((inspect.getdoc(told) or "").split("\n\n")[0].split())


def described(name: str, members: list[str]) -> list[str]:
    """Lines of the API: how it is called, and what it is; a class's members under it."""
    thing, short = pkgutil.resolve_name(name), name.removeprefix("streamomd.")
    if not members:
        return [f"`{short}{signature(thing)}`: {sentence(thing)}"]
    lines = [f"`{short}`: {sentence(thing)}"]
    for member in members:
        there = getattr(thing, member)
        call = "" if isinstance(there, property) else signature(there)
        lines.append(f"- `{member}{call}`: {sentence(there)}")
    return lines


def test_the_api_can_be_read_as_it_is() -> None:
    """Where the page is not built too: each name's signature and first sentence."""
    page = re.sub(r"\s+", " ", read("api.md"))
    for name, found in re.findall(
        r"^::: (\S+)\n(?:    options:\n      members: \[(.*)\])?", read("api.md"), re.M
    ):
        if inspect.ismodule(there := pkgutil.resolve_name(name)):
            lines = [f"- `{one.__name__}`: {sentence(one)}" for one in kinds(there)]
        else:
            lines = described(name, found.split(", ") if found else [])
        for line in lines:
            assert line in page, line


def kinds(module: Any) -> list[type]:
    """The classes of a module, as they stand in it."""
    found = [one for one in vars(module).values() if isinstance(one, type)]
    return [one for one in found if one.__module__ == module.__name__]


def test_completion_offers_the_public_names() -> None:
    """dir(streamomd) is __all__: no helper of the module, and every name that is loaded late."""
    assert dir(streamomd) == sorted(streamomd.__all__)
    assert all(getattr(streamomd, name) is not None for name in streamomd.__all__)


def test_a_model_shows_what_the_api_lists() -> None:
    """Completion after a model offers the members of the page, and nothing of its inside."""
    page = re.search(
        r"^::: streamomd.Model\n    options:\n      members: \[(.*)\]", read("api.md"), re.M
    )
    assert page is not None
    model = streamomd.Model.__new__(streamomd.Model)
    assert dir(model) == sorted(page[1].split(", "))
