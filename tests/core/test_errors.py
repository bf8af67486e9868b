"""Errors are the same on the other side of a process."""

from __future__ import annotations

import pytest

from streamomd.checkpoint.stores import remote
from streamomd.core.errors import StorageError, StreamomdError
from streamomd.shards.filesystem import store_errors

pytestmark = pytest.mark.smoke


def test_every_error_crosses_processes() -> None:
    """Message, class and attributes, of each class there is; also once Dask has its own way."""
    import pickle

    from tblib import pickling_support

    from streamomd.core import errors

    pickling_support.install()  # which Dask does when a task first fails

    kinds = [one for one in vars(errors).values() if isinstance(one, type)]
    for kind in (one for one in kinds if issubclass(one, StreamomdError)):
        more = {"StoppedError": {"signal": 15}}
        error = kind("shard a, row 1", **more.get(kind.__name__, {}))
        again = pickle.loads(pickle.dumps(error))
        assert (type(again), str(again), again.__dict__) == (kind, str(error), error.__dict__)
        assert again.exit_code == error.exit_code


@pytest.mark.parametrize("name", ["NoCredentialsError", "DefaultCredentialsError"])
def test_missing_credentials_come_with_advice(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a checkpoint as of shards; no other error gets it."""
    monkeypatch.setattr(remote, "FIRST_PAUSE", 0.0)
    for kind, advised in ((type(name, (Exception,), {}), True), (TimeoutError, False)):

        def fail(kind: type[Exception] = kind) -> None:
            raise kind("no answer")

        with pytest.raises(StorageError, match="no answer") as of_checkpoint:
            remote.retry_request(fail, "s3://b/run/FORMAT.json cannot be checked")
        with (
            pytest.raises(StorageError, match="no answer") as of_shards,
            store_errors("s3://b/rows"),
        ):
            fail()
        for error in (of_checkpoint, of_shards):
            assert ("--checkpoint-storage-options FILE" in str(error.value)) == advised


def test_the_public_module_has_every_error() -> None:
    """``streamomd.errors`` has each class of ``core.errors``, and nothing else."""
    import streamomd.errors as public
    from streamomd.core import errors

    kinds = [one for one in vars(errors).values() if isinstance(one, type)]
    own = {one.__name__ for one in kinds if one.__module__ == errors.__name__}
    assert {*public.__all__} == own
    assert all(getattr(public, name) is getattr(errors, name) for name in own)
