"""Errors are the same on the other side of a process."""

from __future__ import annotations

import pytest

from streamomd.core.errors import StreamomdError

pytestmark = pytest.mark.smoke


def test_every_error_crosses_processes() -> None:
    """Message, class and attributes, of each class there is; also once Dask has its own way."""
    import pickle

    from tblib import pickling_support

    from streamomd.core import errors

    pickling_support.install()  # which Dask does when a task first fails

    kinds = [one for one in vars(errors).values() if isinstance(one, type)]
    for kind in (one for one in kinds if issubclass(one, StreamomdError)):
        more = {"BadRowError": {"reason": "nan"}, "StoppedError": {"signal": 15}}
        error = kind("shard a, row 1", **more.get(kind.__name__, {}))
        again = pickle.loads(pickle.dumps(error))
        assert (type(again), str(again), again.__dict__) == (kind, str(error), error.__dict__)
        assert again.exit_code == error.exit_code
