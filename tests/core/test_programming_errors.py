"""Programming errors are raised as they are; they are never reported as errors of data."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import pytest

from streamomd.core.errors import CorruptionError, DataError
from streamomd.core.machine_errors import is_mistake
from streamomd.shards import file_schema
from streamomd.sources.delta import actions
from streamomd.sources.iceberg.metadata import damaged
from streamomd.sources.kafka import file_system


def caught(call: Any) -> BaseException:
    try:
        call()
    except Exception as error:
        return error
    raise AssertionError("it raised nothing")


def test_errors_of_a_parser_are_of_its_data() -> None:
    """ast stands for a library: what it raises of the values in it is no mistake; an attribute that
    it lacks, a name, or a call that does not fit is one."""
    of_data = caught(lambda: ast.unparse([None, 7]))  # type: ignore[arg-type]
    assert isinstance(of_data, (AttributeError, TypeError))
    assert is_mistake(of_data, "ast") is False
    assert is_mistake(of_data, "pyiceberg")
    assert is_mistake(caught(lambda: ast.literal_eval("1", strict=True)), "ast")  # type: ignore[call-arg]
    assert is_mistake(caught(lambda: ast.absent))  # type: ignore[attr-defined]
    assert is_mistake(caught(lambda: absent))  # type: ignore[name-defined]  # noqa: F821
    assert not is_mistake(ValueError("data"))


def fail(*_: Any, **__: Any) -> Any:
    raise TypeError("a mistake")


@pytest.mark.parametrize("kind", [TypeError, AttributeError, NameError])
def test_readers_of_logs_raise_mistakes(kind: type[Exception], monkeypatch: Any) -> None:
    """Of Delta logs, Iceberg metadata, projections in ledgers, and Kafka messages."""

    def mistaken(*_: Any, **__: Any) -> Any:
        raise kind("a mistake")

    line = b'{"remove": {"path": "a", "dataChange": true}}'
    with monkeypatch.context() as patch, pytest.raises(kind, match="a mistake"):
        patch.setattr(actions, "Remove", mistaken)
        actions.parse_lines(line, "t")
    text = '{"renamed": [], "hidden": [], "nulls": ""}'
    with monkeypatch.context() as patch, pytest.raises(kind, match="a mistake"):
        patch.setattr(file_schema, "Projection", mistaken)
        file_schema.parse_projection(text)
    schema = file_system.schema_of({"x": "int64"})
    with monkeypatch.context() as patch, pytest.raises(kind, match="a mistake"):
        patch.setattr(file_system, "_integer", mistaken)
        file_system._of_json([b'{"x": 1}'], schema)
    with pytest.raises(kind, match="a mistake"):
        raise damaged("t", caught(mistaken))


@pytest.mark.parametrize("key", ["add", "remove", "protocol", "metaData", "sidecar", "commitInfo"])
@pytest.mark.parametrize("value", ["7", '"x"', "[1]", "true", '{"path": 7}', "[[]]"])
def test_a_hostile_log_is_damaged(key: str, value: str) -> None:
    """Values of every other kind in the place of an action: DataError with the line."""
    if key == "commitInfo" and value.startswith("{"):
        return
    with pytest.raises(DataError, match="line 1: "):
        actions.parse_lines(f'{{"{key}": {value}}}'.encode(), "t")


@pytest.mark.parametrize(
    "more",
    [
        '"partitionValues": [1]',
        '"partitionValues": {"a": 1}',
        '"partitionValues": "ab"',
        '"deletionVector": 7',
        '"deletionVector": {"storageType": "u"}',
        '"size": "7"',
    ],
)
def test_hostile_values_of_an_action_are_damaged(more: str) -> None:
    values = f'"path": "a", "size": 1, "modificationTime": 1, "dataChange": true, {more}'
    with pytest.raises(DataError, match="line 1: "):
        actions.parse_lines(f'{{"add": {{{values}}}}}'.encode(), "t")


@pytest.mark.parametrize(
    "schema", ["7", "[]", '{"fields": 7}', '{"fields": [7]}', '{"fields": [{"name": "a"}]}']
)
def test_a_hostile_schema_is_damaged(schema: str) -> None:
    """Also with columns, partitions and a configuration of other kinds."""
    text = schema.replace('"', '\\"')
    for more in ("", ', "partitionColumns": 7', ', "configuration": [7]'):
        line = f'{{"metaData": {{"id": "a", "schemaString": "{text}"{more}}}}}'
        with pytest.raises(DataError, match="line 1: "):
            actions.parse_lines(line.encode(), "t")
    right = '{\\"fields\\": []}'
    for more in (
        ', "partitionColumns": 7',
        ', "configuration": [7]',
        ', "configuration": {"a": 1}',
    ):
        line = f'{{"metaData": {{"id": "a", "schemaString": "{right}"{more}}}}}'
        with pytest.raises(DataError, match="line 1: "):
            actions.parse_lines(line.encode(), "t")


@pytest.mark.parametrize(
    "text",
    [
        "7",
        "[]",
        "{}",
        "null",
        '{"renamed": 7, "hidden": [], "nulls": ""}',
        '{"renamed": [7], "hidden": [], "nulls": ""}',
        '{"renamed": [["a"]], "hidden": [], "nulls": ""}',
        '{"renamed": [["a", 1]], "hidden": [], "nulls": ""}',
        '{"renamed": [], "hidden": 7, "nulls": ""}',
        '{"renamed": [], "hidden": [7], "nulls": ""}',
        '{"renamed": [], "hidden": [], "nulls": 7}',
        '{"renamed": [], "hidden": [], "nulls": "x"}',
    ],
)
def test_a_hostile_projection_is_corrupt(text: str) -> None:
    with pytest.raises(CorruptionError, match="projection"):
        file_schema.parse_projection(text)


def test_only_named_places_catch_every_exception() -> None:
    """In the readers of tables and topics, each is followed by a check for mistakes."""
    import streamomd

    package = Path(streamomd.__file__).parent
    readers = [file for name in ("delta", "iceberg", "kafka")
               for file in (package / "sources" / name).glob("*.py")]  # fmt: skip
    assert len(readers) > 10
    for path in [*readers, package / "shards" / "file_schema.py"]:
        text = path.read_text()
        for place in text.split("except Exception")[1:]:
            assert "is_mistake(" in place[:120] or "raise damaged(" in place[:120], path
