"""What docs name exists: keys of a job, public names, bad input."""

from __future__ import annotations

import ast
import doctest
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
import streamomd.errors
import streamomd.testing
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


def documented_names() -> set[str]:
    """The names that the API describes."""
    return set(re.findall(r"^::: (\S+)$", read("api.md"), re.M)) - {"streamomd.core.errors"}


def public_modules() -> set[str]:
    """What a user or a plug-in may import: the modules of the API's names, and of its table."""
    table = re.findall(r"^\| `(streamomd\.[\w.]+)` \|", read("api.md"), re.M)
    own = {name.rpartition(".")[0] for name in documented_names()}
    return {"streamomd.errors", *own, *table}


def test_the_api_has_every_public_name() -> None:
    """Each public name has its place in the API, and the API has no names of private modules."""
    for module in (streamomd, streamomd.testing):
        assert {f"{module.__name__}.{name}" for name in module.__all__} <= documented_names()
    page = read("api.md")
    assert [name for name in streamomd.errors.__all__ if f"- `{name}`: " not in page] == []
    top = {"streamomd", "streamomd.errors", "streamomd.testing"}
    others = {name for name in public_modules() - top if ".integrations." not in name}
    assert all(f"| `{name}` |" in page for name in others)
    for name in public_modules():
        assert inspect.ismodule(pkgutil.resolve_name(name)), name


def imported(code: str) -> set[str]:
    """The modules of this package that a script imports names of."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module)
        elif isinstance(node, ast.Import):
            found |= {one.name for one in node.names}
    return {name for name in found if name.split(".")[0] == "streamomd"}


def test_examples_import_public_modules_only() -> None:
    """Examples of README, docs and pipelines; pipelines/papers measures the engine's parts."""
    codes = {
        f"{page.relative_to(ROOT)}:{block.line}": block.text
        for page in (ROOT / "README.md", *sorted(DOCS.rglob("*.md")))
        for block in blocks(page)
        if block.language == "python"
    }
    for place, text in codes.items():
        if ">>>" in text:
            examples = doctest.DocTestParser().get_examples(text)
            codes[place] = "\n".join(example.source for example in examples)
    for script in sorted((ROOT / "pipelines").rglob("*.py")):
        if "papers" not in script.parts:
            codes[str(script.relative_to(ROOT))] = script.read_text("utf-8")
    used = {(place, name) for place, code in codes.items() for name in imported(code)}
    assert len({place for place, _ in used}) > 50
    assert [one for one in sorted(used) if one[1] not in public_modules()] == []


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
