"""Remote stores through fsspec: whole objects only; listing caches are invalidated.

S3 compares the body with the SHA-256 of the request and returns that; compatible stores that do not
know it return the MD5 as ETag, and Google returns the MD5. Answers of other stores prove nothing,
nor do those to uploads in pieces.

``fs.open(…, "wb")`` is never used: an error inside it publishes an incomplete object.
"""

from __future__ import annotations

import base64
import hashlib
import logging
import random
import time
import uuid
from collections.abc import Callable, Collection, Mapping
from functools import cached_property
from typing import Any, Self, TypeVar

import fsspec
from fsspec.asyn import sync

from streamomd.core.errors import StorageError, UsageError
from streamomd.core.machine_errors import store_error
from streamomd.core.run_events import count_request, emit
from streamomd.core.urls import protocol, redact, scrub, shown
from streamomd.core.wording import extra_hint

T = TypeVar("T")

ATTEMPTS = 4
FIRST_PAUSE = 0.2
"""Seconds before the second attempt; doubled before each further one."""
MAX_SECONDS = 120.0
"""No attempt starts later than this: a store's own client may wait minutes in each."""


def retry_request(action: Callable[[], T], failure: str) -> T:
    """The result of ``action`` in at most four attempts, none started after two minutes.

    ``failure`` is the start of the message if all fail.
    FileNotFoundError and FileExistsError are answers and pass; other errors become StorageError.
    """
    last = time.monotonic() + MAX_SECONDS
    for attempt in range(1, ATTEMPTS + 1):
        if attempt > 1:
            emit("store_retry", f"{failure}: attempt {attempt}", "info", attempt=attempt)
        try:
            return action()
        except (FileNotFoundError, FileExistsError):
            raise
        except Exception as error:
            if attempt == ATTEMPTS or time.monotonic() > last:
                # Not chained: the requests of the original may hold credentials.
                text = store_error(error)
                raise StorageError(f"{failure} after {attempt} attempts: {text}") from None
        time.sleep(FIRST_PAUSE * 2 ** (attempt - 1) * random.uniform(0.5, 1.5))  # noqa: S311 (no secret)
    raise AssertionError("unreachable")


def put_options(fs: fsspec.AbstractFileSystem, sha256: str) -> dict[str, str]:
    """Options of ``pipe_file`` that make the store compare the body with its SHA-256, in hex.

    {} if the client is configured for a store that refuses checksums
    (``request_checksum_calculation = "when_required"``), or for another checksum.
    """
    client = getattr(fs, "_s3", None)  # connected by an earlier request
    config = getattr(getattr(client, "meta", None), "config", None)
    if not sha256 or getattr(config, "request_checksum_calculation", "") != "when_supported":
        return {}
    if any(key.startswith("Checksum") for key in getattr(fs, "s3_additional_kwargs", {})):
        return {}
    return {"ChecksumSHA256": _base64(sha256)}


def proves(answer: Any, data: bytes, sha256: str) -> bool:
    """Whether the answer to a PUT of this data proves that the store has all of it.

    sha256: of the data, in hex; "": no proof is needed. Raises OSError if the answer proves that
    the store has other data.
    """
    if not sha256 or not isinstance(answer, Mapping):
        return False
    if checksum := answer.get("ChecksumSHA256"):
        if checksum != _base64(sha256):
            raise OSError("the store received other bytes than were sent")
        return True
    etag, md5 = str(answer.get("ETag", "")).strip('"'), answer.get("md5Hash")
    if len(etag) != 32 and not md5:
        return False
    own = hashlib.md5(data, usedforsecurity=False).hexdigest()
    # An encrypted object's ETag is no MD5.
    return own == etag or _base64(own) == md5


def _base64(digest: str) -> str:
    return base64.b64encode(bytes.fromhex(digest)).decode()


DEADLINE = 300.0
"""Seconds for one request and its client's own retries; enough for 128 MiB in flight at 0.5 MiB/s.

aiohttp has no timeout while it sends: without a deadline, a store that stops reading during an
upload would block the run forever.
"""
OPERATIONS = {
    "cat_file": "read",
    "info": "stat",
    "ls": "list",
    "pipe_file": "write",
    "rm_file": "delete",
}
"""What requests are called in metrics, by method of fsspec."""
IN_FLIGHT = 16
PAGE, MOST_LISTED = 1000, 10_000
"""Names of one request, and of a checkpoint that is listed as a whole; larger ones by folder."""
PART_BYTES = 16 << 20
"""At 1 GiB/s, 30 ms of latency are as long as two such parts."""
_log = logging.getLogger(__name__)


class RemoteStore:
    """Objects below a root path of an fsspec file system."""

    def __init__(self, fs: fsspec.AbstractFileSystem, root: str, url: str) -> None:
        self._fs, self._root, self.url = fs, root.rstrip("/"), redact(url).rstrip("/")

    @classmethod
    def open(cls, url: str, options: Mapping[str, Any]) -> Self:
        """Connect. Raises UsageError if fsspec has no file system for the URL and options."""
        try:
            kind = fsspec.get_filesystem_class(protocol(url))
            options = {**kind._get_kwargs_from_urls(url), **options}
            return cls(fsspec.filesystem(protocol(url), **options), kind._strip_protocol(url), url)
        except (ImportError, ValueError, TypeError) as error:
            hint = extra_hint(protocol(url)) if isinstance(error, ImportError) else ""
            if hint:
                raise UsageError(hint) from None
            text = scrub(str(error))
            raise UsageError(f"{shown(url)}: unsupported URL or storage options: {text}") from None
        except Exception as error:
            text = store_error(error)
            raise StorageError(f"{shown(url)} cannot be reached: {text}") from None

    @cached_property
    def exclusive(self) -> bool:
        """See ``Store``. fsspec's fallback checks first and writes afterwards: not exclusive."""
        kind = type(self._fs)
        native = kind.async_impl or kind.pipe_file is not fsspec.AbstractFileSystem.pipe_file
        refuses = bool(native) and self._probe()
        if not refuses:
            _log.warning(
                "%s does not support exclusive creation: two concurrent runs on this checkpoint "
                "are detected but not prevented; start only one",
                shown(self.url),
            )
        return refuses

    @property
    def in_flight(self) -> int:
        """See ``Store``. A file system without asyncio need not support several threads."""
        return IN_FLIGHT if self._fs.async_impl else 1

    part_bytes = PART_BYTES

    @property
    def consistent(self) -> bool:
        """See ``Store``. S3 shows objects in listings from when they are written on."""
        protocols = self._fs.protocol
        protocols = (protocols,) if isinstance(protocols, str) else protocols
        return "s3" in protocols and hasattr(self._fs, "_iterdir") and "/" in self._root

    def tree(self) -> Mapping[str, int] | None:
        """See ``Store``."""
        try:
            return retry_request(self._tree, f"{shown(self.url)} cannot be listed")
        except FileNotFoundError:  # no bucket
            return {}

    def read(self, name: str, most: int | None = None) -> bytes:
        """See ``Store``."""
        return retry_request(lambda: self._cat(name, most), self._failure(name, "read"))

    def size(self, name: str) -> int | None:
        """See ``Store``."""
        try:
            info = retry_request(lambda: self._info(name), self._failure(name, "checked"))
        except FileNotFoundError:
            return None
        if info["type"] != "file":
            return None
        if info.get("size") is None:
            raise StorageError(f"{self._failure(name, 'used')}: the store does not report its size")
        return int(info["size"])

    def put(self, name: str, data: bytes, sha256: str = "") -> bool:
        """See ``Store``."""
        return self._write(name, data, "overwrite", sha256)

    def create(self, name: str, data: bytes) -> bool:
        """See ``Store``."""
        if self.exclusive:
            return self._write(name, data, "create", hashlib.sha256(data).hexdigest())
        if self.size(name) is not None:
            raise FileExistsError(name)
        self._write(name, data, "overwrite")
        return False

    def probe(self, name: str, data: bytes) -> None:
        """Find out whether the store is ``exclusive`` by creating an object that exists, and that
        may be overwritten with this data."""
        try:
            self._write(name, data, "create")
        except FileExistsError:
            self.__dict__["exclusive"] = True

    def names(self, folder: str) -> list[str]:
        """See ``Store``."""
        return [folder + leaf for leaf, _ in self._listed(folder)]

    def sizes(self, folder: str) -> dict[str, int]:
        """See ``Store``."""
        return {folder + leaf: size for leaf, size in self._listed(folder) if size is not None}

    def delete(self, name: str) -> None:
        """See ``Store``."""
        try:
            path, failure = self._path(name), self._failure(name, "deleted")
            retry_request(lambda: self._call("rm_file", path), failure)
        except FileNotFoundError:
            return

    def delete_all(self, names: Collection[str]) -> None:
        """See ``Store``."""
        left = [*names]
        while len(left) > 1:
            page, left = left[:PAGE], left[PAGE:]
            try:
                self._delete_page(page)
            except Exception as error:  # a store that imitates S3 may not have this request
                _log.debug("%s objects were not deleted: %s", len(page), type(error).__name__)
                for name in page:
                    self.delete(name)
        for name in left:
            self.delete(name)

    def _delete_page(self, names: Collection[str]) -> None:
        count_request("delete")
        paths = [self._fs.split_path(self._path(name)) for name in names]
        objects = {"Objects": [{"Key": key} for _, key, _ in paths], "Quiet": True}
        coroutine, bucket = self._fs._call_s3, paths[0][0]
        answer = sync(
            *(self._fs.loop, coroutine, "delete_objects"),
            Bucket=bucket, Delete=objects, timeout=DEADLINE,
        )  # fmt: skip
        if answer.get("Errors"):
            raise OSError(f"{len(answer['Errors'])} objects were not deleted")

    def _tree(self) -> dict[str, int] | None:
        self._fs.invalidate_cache()
        bucket, key, _ = self._fs.split_path(self._root)
        listed = sync(self._fs.loop, self._all_below, bucket, f"{key}/", timeout=DEADLINE)
        return (
            None if listed is None else {name[len(self._root) + 1 :]: size for name, size in listed}
        )

    async def _all_below(self, bucket: str, prefix: str) -> list[tuple[str, int]] | None:
        from s3fs.errors import translate_boto_error

        found: list[tuple[str, int]] = []
        count_request("list")
        try:
            async for info in self._fs._iterdir(bucket, delimiter="", prefix=prefix):
                if len(found) == MOST_LISTED:
                    return None
                found.append((str(info["name"]), int(info["size"])))
                if len(found) % PAGE == 0:
                    count_request("list")
        except Exception as error:
            raise translate_boto_error(error) from error
        return found

    def _call(self, method: str, *given: Any, **options: Any) -> Any:
        """Call a method of the file system; with a deadline if it is asynchronous."""
        count_request(OPERATIONS[method])
        if not self._fs.async_impl:
            return getattr(self._fs, method)(*given, **options)
        coroutine = getattr(self._fs, f"_{method}")
        return sync(self._fs.loop, coroutine, *given, timeout=DEADLINE, **options)

    def _path(self, name: str) -> str:
        return f"{self._root}/{name}"

    def _failure(self, name: str, participle: str) -> str:
        return f"{shown(self.url)}/{name} cannot be {participle}"

    def _cat(self, name: str, most: int | None) -> bytes:
        if most is None:
            return bytes(self._call("cat_file", self._path(name)))
        try:
            # A range: s3fs asks for the size before it reads a whole object.
            return bytes(self._call("cat_file", self._path(name), start=0, end=most))
        except FileNotFoundError:
            raise
        except Exception:
            # An empty object has no range.
            if self._info(name).get("size") == 0:
                return b""
            raise

    def _write(self, name: str, data: bytes, mode: str, sha256: str = "") -> bool:
        path, failure = self._path(name), self._failure(name, "written")
        return retry_request(lambda: self._pipe(path, data, mode, sha256), failure)

    def _pipe(self, path: str, data: bytes, mode: str, sha256: str = "") -> bool:
        """Whether the answer proves that the store has these bytes."""
        options = put_options(self._fs, sha256)
        try:
            answer = self._call("pipe_file", path, data, mode=mode, **options)
        except FileNotFoundError as error:
            # No bucket; S3 also reports this for an upload that succeeded but whose reply was lost.
            raise OSError(f"no such bucket or path: {scrub(str(error))}") from None
        except OSError as error:
            # Only AWS reports which condition failed, and s3fs maps no other to FileExistsError.
            if mode == "create" and _code(error) == "PreconditionFailed":
                raise FileExistsError(path) from None
            raise
        return proves(answer, data, sha256)

    def _info(self, name: str) -> Mapping[str, Any]:
        self._fs.invalidate_cache()
        try:
            found: Mapping[str, Any] = self._call("info", self._path(name))
        except FileNotFoundError as error:
            _refuse_unreachable(error)
            raise
        return found

    def _listed(self, folder: str) -> list[tuple[str, int | None]]:
        """Name without the folder, and size, of each object directly in a folder."""
        path = self._path(folder.rstrip("/"))
        try:
            return retry_request(lambda: self._list(path), self._failure(folder, "listed"))
        except FileNotFoundError:
            return []

    def _list(self, path: str) -> list[tuple[str, int | None]]:
        self._fs.invalidate_cache()
        listed = self._call("ls", path, detail=True)
        return [
            (str(one["name"]).rsplit("/", 1)[-1], one.get("size"))
            for one in listed
            if one["type"] == "file"
        ]

    def _probe(self) -> bool:
        """Whether creating the same object a second time fails."""
        path = self._path(f"probe/{uuid.uuid4().hex}")
        failure = self._failure("probe", "written")
        try:
            for _ in range(2):
                retry_request(lambda: self._pipe(path, b"probe", "create"), failure)
        except FileExistsError:
            return True
        finally:
            self._delete_probe(path)
        return False

    def _delete_probe(self, path: str) -> None:
        try:
            self._call("rm_file", path)
        except Exception as error:
            _log.debug("a probe object was not deleted: %s", type(error).__name__)


def _code(error: OSError) -> str:
    """The S3 error code of an error."""
    response = getattr(error.__cause__, "response", None) or {}
    return str(response.get("Error", {}).get("Code", ""))


def _refuse_unreachable(error: FileNotFoundError) -> None:
    """fsspec's http:// reports "not found" for a refused connection or a forbidden page, too."""
    cause = error.__cause__
    if isinstance(cause, OSError) and not isinstance(cause, FileNotFoundError):
        raise cause
    if getattr(cause, "status", 404) not in (404, 410):
        raise OSError(f"status {getattr(cause, 'status', None)}") from None
