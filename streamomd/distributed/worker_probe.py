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
SOURCE = """
def probe(wanted):
    import re
    from importlib import import_module, metadata

    try:
        found = metadata.version("streamomd")
    except metadata.PackageNotFoundError:
        return "it does not have streamomd"
    if found != wanted:
        return f"it has streamomd {found}, this process {wanted}"
    try:
        for line in metadata.requires("streamomd") or ():
            if ";" not in line:
                metadata.version(re.match("[A-Za-z0-9._-]+", line)[0])
        import_module("streamomd")
    except metadata.PackageNotFoundError as error:
        return f"it does not have {error.name}, which streamomd needs"
    except BaseException as error:  # of a package that others wrote: it may even exit
        return f"it cannot import streamomd: {type(error).__name__}: {error}"
    return ""
"""
"""Quick even where nothing is imported yet: streamomd itself imports its parts when first used."""
ASK = "(lambda names: exec(source, names) or names['probe'](wanted))({})"
CALL = "__import__('pickle').loads(task.getvalue())(*held)"


def send_probe(client: Client, address: str) -> Future[Any]:
    """A task on that worker alone. Its result: why the worker is unusable, or an empty string."""
    return client.submit(
        eval,
        ASK,
        {"source": SOURCE, "wanted": VERSION},
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
