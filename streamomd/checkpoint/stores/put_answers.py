"""What a store's answer to a PUT proves: then no further request asks for the object's size.

S3 compares the body with the SHA-256 of the request and returns that; compatible stores that do not
know it return the MD5 as ETag, and Google returns the MD5. Answers of other stores prove nothing,
nor do those to uploads in pieces.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping
from typing import Any

import fsspec


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
