"""Files, directories and globs as a source; directories that are tables are listed as such."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from streamomd.core.errors import UnsupportedError
from streamomd.core.urls import location, shown
from streamomd.sources.contract import Request, Source, SourceFiles
from streamomd.sources.delta.delta_source import describe_version


class FileSource(Source):
    """Names on a disk, in a store or behind http: what no other source takes."""

    name = "file"

    def takes(self, url: str) -> bool:
        """See ``Source``."""
        return True

    def list_files(self, fs: Any, urls: Sequence[str], request: Request) -> Sequence[SourceFiles]:
        """See ``Source``."""
        from streamomd.sources.files.list_names import list_names

        return list_names(fs, urls, request)

    def watched(self, url: str) -> str:
        """See ``Source``."""
        return location(url)

    def refuse_update(self, urls: Sequence[str]) -> None:
        """Text is converted as a whole."""
        from streamomd.sources.text.text_cache import is_text

        if any(map(is_text, urls)):
            raise UnsupportedError(
                f"this run learned text, {shown(urls[0])}, which is converted as a whole, "
                "so its rows would be learned again. Convert it once (`streamomd convert FILES -o "
                "shards/`), train on shards/, add each new file (`streamomd convert NEW.csv -o "
                "shards/ --append`) and update that run; or learn a new file in a run of its own: "
                "`streamomd train NEW.csv --start URL`"
            )

    def place_of(self, url: str, path: str, row: int) -> str:
        """The file and line, where the shard was made of text."""
        from streamomd.sources.text.text_cache import place_in_text

        return place_in_text(path, row)

    def origin(self, path: str) -> str:
        """The text that a shard was made of."""
        from streamomd.sources.text.text_cache import text_of

        return text_of(path)

    def describe(self, url: str, position: int) -> str:
        """The version of a directory that is a table: files have none."""
        return describe_version(url, position)
