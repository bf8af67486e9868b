"""Errors as data: what is wrong and where, and one text for each reader."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from streamomd import errors
from streamomd.config.spec import Spec
from streamomd.core.errors import (
    BadRowError,
    SchemaError,
    StreamomdError,
    UnsupportedError,
    UsageError,
)
from streamomd.core.message import Key, Message, PerReader, Reader, joined
from streamomd.features import make_plan
from streamomd.sources.memory.encoded_frames import batch_of_memory

pytestmark = pytest.mark.smoke

FRAME = pd.DataFrame({"a": [1.0, 2.0], "h": ["u", "v"], "y": [0, 1]})
CALLER = Reader("estimator", lambda key: key.rpartition(".")[2])


def plan(frame: pd.DataFrame = FRAME, **data: Any) -> Any:
    """The plan of a job about these columns."""
    spec = Spec.parse({"data": {"label": "y", **data}, "model": {"classes": [0, 1]}})
    return make_plan(spec.data, spec.model, pa.Schema.from_pandas(frame), list)


def job(**tables: Any) -> Callable[[], Any]:
    return lambda: Spec.parse(tables)


CASES: list[tuple[Callable[[], Any], type[StreamomdError], dict[str, Any]]] = [
    (job(data={"bits": 99}), UsageError,
     {"code": "invalid_value", "key": "data.bits", "found": "99"}),
    (job(data={"nulls": 5}), UsageError, {"code": "invalid_value", "key": "data.nulls"}),
    (job(data={"partitions": "dat"}), UsageError,
     {"code": "invalid_value", "key": "data.partitions", "found": "'dat'"}),
    (job(model={"class_weight": "balance"}), UsageError,
     {"code": "invalid_value", "key": "model.class_weight"}),
    (job(train={"patience": 2}), UsageError,
     {"code": "invalid_value", "key": "train.patience", "found": "2"}),
    (job(data={"lable": "y"}), UsageError, {"code": "unknown_key", "key": "data.lable"}),
    (job(model={"rule": "nag", "params": {"eta": -1}}), UsageError,
     {"code": "invalid_value", "key": "model.params.eta", "found": "-1"}),
    (job(model={"loss": "pinball", "loss_params": {"tau": 2}}), UsageError,
     {"code": "invalid_value", "key": "model.loss_params.tau"}),
    (job(model={"params": {"eta": 1.0}}), UsageError, {"code": "no_rule", "key": "model.params"}),
    (job(model={"rule": "auto", "bias": False}), UnsupportedError,
     {"code": "needs_bias", "key": "model.bias"}),
    (job(model={"rule": "adagrad_da", "loss": "square"}), UsageError,
     {"code": "missing_value", "key": "model.params.L"}),
    (lambda: plan(ignore=["zz"]), SchemaError, {"code": "missing_column", "column": "zz"}),
    (lambda: plan(text=["a"]), SchemaError, {"code": "refused_column", "column": "a"}),
    (lambda: plan(ignore=["a", "h"]), SchemaError, {"code": "no_features"}),
    (lambda: plan(text=["h"], dates=["h"]), UsageError, {"code": "two_roles", "column": "h"}),
    (lambda: plan(nulls={"zz": "mean"}), UsageError,
     {"code": "wrong_column", "key": "data.nulls", "column": "zz"}),
    (lambda: batch_of_memory(plan(), FRAME[["a"]]), SchemaError,
     {"code": "missing_column", "column": "h"}),
    (lambda: batch_of_memory(plan(), FRAME.assign(a="x")), SchemaError,
     {"code": "wrong_type", "column": "a", "shard": "rows"}),
    (lambda: batch_of_memory(plan(), FRAME.assign(a=[1.0, np.nan])), BadRowError,
     {"code": "null", "shard": "rows", "row": 1, "column": "a", "found": "null"}),
]  # fmt: skip


@pytest.mark.parametrize(("call", "kind", "fields"), CASES)
def test_errors_are_data(
    call: Callable[[], Any], kind: type[StreamomdError], fields: dict[str, Any]
) -> None:
    """A code, and where: key, or shard, row and column; the same after a pickle."""
    with pytest.raises(kind) as raised:
        call()
    message = raised.value.message
    assert {**message.fields(), **fields} == message.fields()
    assert str(raised.value) == message.text()
    again = pickle.loads(pickle.dumps(raised.value))
    assert (type(again), again.message, str(again)) == (kind, message, str(raised.value))


def test_each_reader_has_a_text() -> None:
    """A key's spelling, a text of its own, a message inside another; braces of values stay."""
    key, way = Key("data.bits"), PerReader("pass --bits", "pass bits=…")
    inner = Message("inner", "{key} is {found}", key=key, found="{x}")
    message = Message("outer", "{found}: {remedy}", found=inner, remedy=joined([way, "or"], ", "))
    assert str(message) == "data.bits is {x}: pass --bits, or"
    assert str(message.read_by(CALLER)) == "bits is {x}: pass bits=…, or"
    assert message.read_by(CALLER) == message  # the same error


def test_an_error_of_a_text_has_a_message() -> None:
    """Its class is the code; another reader gets the same text."""
    error = UsageError("an {odd} text")
    assert (error.message.fields(), str(error.message)) == ({"code": "usage"}, "an {odd} text")
    assert str(error.message.read_by(CALLER)) == "an {odd} text"
    assert str(UsageError().message) == ""


def test_each_public_error_has_a_code_of_its_own() -> None:
    """Programs can distinguish errors of texts alone."""
    public = [getattr(errors, name) for name in errors.__all__]
    made = [kind("", signal=2) if kind is errors.StoppedError else kind("") for kind in public]
    codes = {type(one).__name__: one.message.code for one in made}
    assert len({*codes.values()}) == len(codes)
    assert codes["TooManyBadRowsError"] == "too_many_bad_rows"
