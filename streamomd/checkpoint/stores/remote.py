"""Any other store, through fsspec: whole objects only, and no cache believed.

``fs.open(…, "wb")`` is never used: an error inside it publishes what was written so far.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Mapping
from functools import cached_property
from typing import Any, Self

import fsspec
from fsspec.asyn import sync

from streamomd.checkpoint.stores.retry import retried
from streamomd.core.errors import StorageError, UsageError
from streamomd.core.urls import protocol, redact, scrub, shown

DEADLINE = 300.0
"""Seconds for one request and its client's own retries; a part of 64 MiB has time at 0.25 MiB/s.

aiohttp counts no time while it sends: without a deadline a store that stops listening in the midst
of an upload is waited for for ever.
"""
_log = logging.getLogger(__name__)


class RemoteStore:
    """Objects below a root path of an fsspec file system."""

    def __init__(self, fs: fsspec.AbstractFileSystem, root: str, url: str) -> None:
        self._fs, self._root, self.url = fs, root.rstrip("/"), redact(url).rstrip("/")

    @classmethod
    def open(cls, url: str, options: Mapping[str, Any]) -> Self:
        """Connect. Raises UsageError if no file system can be made of the URL and options."""
        try:
            kind = fsspec.get_filesystem_class(protocol(url))
            options = {**kind._get_kwargs_from_urls(url), **options}
            return cls(fsspec.filesystem(protocol(url), **options), kind._strip_protocol(url), url)
        except (ImportError, ValueError, TypeError) as error:
            text = scrub(str(error))
            raise UsageError(f"{shown(url)}: no file system can be made of it: {text}") from None
        except Exception as error:
            text = f"{type(error).__name__}: {scrub(str(error))}"
            raise StorageError(f"{shown(url)} cannot be reached: {text}") from None

    @cached_property
    def exclusive(self) -> bool:
        """See ``Store``. fsspec's own fallback looks first and writes then: no exclusion at all."""
        kind = type(self._fs)
        honest = kind.async_impl or kind.pipe_file is not fsspec.AbstractFileSystem.pipe_file
        proven = bool(honest) and self._probe()
        if not proven:
            _log.warning(
                "%s cannot refuse to overwrite: two runs at once on this checkpoint are noticed, "
                "but not prevented; start only one",
                shown(self.url),
            )
        return proven

    def read(self, name: str) -> bytes:
        """See ``Store``."""
        path, told = self._path(name), self._told(name, "read")
        return retried(lambda: bytes(self._ask("cat_file", path)), told)

    def size(self, name: str) -> int | None:
        """See ``Store``."""
        try:
            info = retried(lambda: self._info(name), self._told(name, "looked at"))
        except FileNotFoundError:
            return None
        if info["type"] != "file":
            return None
        if info.get("size") is None:
            raise StorageError(f"{self._told(name, 'used')}: the store does not tell its size")
        return int(info["size"])

    def put(self, name: str, data: bytes) -> None:
        """See ``Store``."""
        self._write(name, data, "overwrite")

    def create(self, name: str, data: bytes) -> None:
        """See ``Store``."""
        if self.exclusive:
            self._write(name, data, "create")
        elif self.size(name) is None:
            self._write(name, data, "overwrite")
        else:
            raise FileExistsError(name)

    def names(self, folder: str) -> list[str]:
        """See ``Store``."""
        path = self._path(folder.rstrip("/"))
        try:
            found = retried(lambda: self._list(path), self._told(folder, "listed"))
        except FileNotFoundError:
            return []
        return [folder + name.rsplit("/", 1)[-1] for name in found]

    def delete(self, name: str) -> None:
        """See ``Store``."""
        try:
            path, told = self._path(name), self._told(name, "deleted")
            retried(lambda: self._ask("rm_file", path), told)
        except FileNotFoundError:
            return

    def _ask(self, deed: str, *given: Any, **options: Any) -> Any:
        """What a method of the file system gives, within the deadline where it can be stopped."""
        if not self._fs.async_impl:
            return getattr(self._fs, deed)(*given, **options)
        begun = getattr(self._fs, f"_{deed}")
        return sync(self._fs.loop, begun, *given, timeout=DEADLINE, **options)

    def _path(self, name: str) -> str:
        return f"{self._root}/{name}"

    def _told(self, name: str, deed: str) -> str:
        return f"{shown(self.url)}/{name} cannot be {deed}"

    def _write(self, name: str, data: bytes, mode: str) -> None:
        path = self._path(name)
        retried(lambda: self._pipe(path, data, mode), self._told(name, "written"))

    def _pipe(self, path: str, data: bytes, mode: str) -> None:
        try:
            self._ask("pipe_file", path, data, mode=mode)
        except FileNotFoundError as error:
            # No bucket; but also S3's word for an upload whose end was heard, and the reply lost.
            raise OSError(f"no such place: {scrub(str(error))}") from None
        except OSError as error:
            # Only AWS says which condition failed, and s3fs knows no other FileExistsError.
            if mode == "create" and _code(error) == "PreconditionFailed":
                raise FileExistsError(path) from None
            raise

    def _info(self, name: str) -> Mapping[str, Any]:
        self._fs.invalidate_cache()
        try:
            found: Mapping[str, Any] = self._ask("info", self._path(name))
        except FileNotFoundError as error:
            _refuse_unreachable(error)
            raise
        return found

    def _list(self, path: str) -> list[str]:
        self._fs.invalidate_cache()
        listed = self._ask("ls", path, detail=True)
        return [str(one["name"]) for one in listed if one["type"] == "file"]

    def _probe(self) -> bool:
        """Whether making the same object twice fails the second time."""
        path = self._path(f"probe/{uuid.uuid4().hex}")
        told = self._told("probe", "written")
        try:
            for _ in range(2):
                retried(lambda: self._pipe(path, b"probe", "create"), told)
        except FileExistsError:
            return True
        finally:
            self._forget(path)
        return False

    def _forget(self, path: str) -> None:
        try:
            self._ask("rm_file", path)
        except Exception as error:
            _log.debug("a probe was left behind: %s", type(error).__name__)


def _code(error: OSError) -> str:
    """S3's own code of an error."""
    said = getattr(error.__cause__, "response", None) or {}
    return str(said.get("Error", {}).get("Code", ""))


def _refuse_unreachable(error: FileNotFoundError) -> None:
    """http:// says "not found" of a refused connection or a forbidden page, too."""
    cause = error.__cause__
    if isinstance(cause, OSError) and not isinstance(cause, FileNotFoundError):
        raise cause
    if getattr(cause, "status", 404) not in (404, 410):
        raise OSError(f"status {getattr(cause, 'status', None)}") from None
