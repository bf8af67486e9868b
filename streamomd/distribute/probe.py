"""The probe of a worker: does it have this streamomd? Any worker can unpickle the question.

A worker that unpickles a task whose function it cannot import closes, and the results it holds are
lost, those of other clients too. So a probe and every later task consist of builtins and of text.
"""

from __future__ import annotations

import io
import uuid
from collections.abc import Callable, Sequence
from functools import partial
from importlib.metadata import version
from typing import Any

from distributed import Client, Future
from distributed.protocol.pickle import dumps

VERSION = version("streamomd")
PRIORITY = 100
NEEDED = (
    "streamomd.away",
    "streamomd.distribute.collections_part",
    "streamomd.distribute.doctor",
    "streamomd.distribute.owner",
    "streamomd.distribute.part",
)
"""Modules whose functions are sent to workers; those they import come with them."""

SOURCE = """
def probe(wanted, needed):
    from importlib import import_module, metadata

    try:
        found = metadata.version("streamomd")
    except metadata.PackageNotFoundError:
        return "it does not have streamomd"
    if found != wanted:
        return f"it has streamomd {found}, this process {wanted}"
    try:
        for name in needed:
            import_module(name)
    except BaseException as error:  # of a package that others wrote: it may even exit
        return f"it cannot import streamomd: {type(error).__name__}: {error}"
    return ""
"""
ASK = "(lambda names: exec(source, names) or names['probe'](wanted, needed))({})"
CALL = "__import__('pickle').loads(task.getvalue())(*held)"


def send_probe(client: Client, address: str) -> Future[Any]:
    """A task on that worker alone. Its result: why the worker is unusable, or an empty string."""
    names = {"source": SOURCE, "wanted": VERSION, "needed": list(NEEDED)}
    return client.submit(
        eval,
        ASK,
        names,
        key=f"omd-probe-{uuid.uuid4().hex}",
        workers=[address],
        allow_other_workers=False,
        pure=False,
        priority=PRIORITY,
    )


def packed(
    function: Callable[..., Any], given: Sequence[Any], held: Sequence[Future[Any]]
) -> tuple[Any, ...]:
    """A call as something that the scheduler and every worker can unpickle: streamomd is imported
    when the task runs, and a worker without it fails that task and nothing else.

    The bytes are in a BytesIO because workers log a failed task's arguments: it shows no content,
    and storage options may be in there.
    """
    call = io.BytesIO(dumps(partial(function, *given)))
    return eval, CALL, {"task": call, "held": [*held]}
