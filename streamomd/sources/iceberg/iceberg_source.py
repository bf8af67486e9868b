"""Iceberg tables as a source: snapshots list the shards; a run records the snapshot."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from streamomd.core.urls import protocol, shown
from streamomd.sources.contract import OF_CSV, OF_FILES, SCHEMA, Request, Source, SourceFiles


class IcebergSource(Source):
    """``iceberg://catalog/namespace.table``, or the URL of a metadata file.

    What reads tables is imported when it is used.

    >>> source = IcebergSource()
    >>> source.takes("iceberg://prod/web.clicks"), source.takes("s3://b/t/metadata/v3.metadata.json")
    (True, True)
    """

    name = "iceberg"
    title = "an Iceberg table"
    reason = "its snapshots list Parquet files that never change"
    without_effect = (*OF_FILES, "update.retry_skipped", *OF_CSV, "data.csv.types")

    def takes(self, url: str) -> bool:
        """See ``Source``."""
        url = url.removesuffix(SCHEMA)
        is_metadata = url.endswith((".metadata.json", ".metadata.json.gz"))
        return is_metadata or protocol(url) == self.name

    def locate(self, url: str) -> str:
        """The metadata file, of which a catalog knows where it is now."""
        from streamomd.sources.iceberg.metadata import metadata_location

        return metadata_location(url)

    def list_files(self, fs: Any, urls: Sequence[str], request: Request) -> Sequence[SourceFiles]:
        """See ``Source``."""
        return [self._list(fs, url, request) for url in urls]

    def _list(self, fs: Any, given: str, request: Request) -> SourceFiles:
        from streamomd.sources.files.paths import PathPattern
        from streamomd.sources.iceberg.iceberg_table import list_table

        place = PathPattern(request.located[given], fs)
        root = place.url(place.path).rstrip("/")
        # A run records the catalog's name: its table has another metadata file after each commit.
        source = given if protocol(given) == self.name else root
        return list_table(fs, place.path.rstrip("/"), root, source, request)

    def describe(self, url: str, position: int) -> str:
        """See ``Source``."""
        return "" if url.endswith(SCHEMA) else f"Iceberg table {shown(url)}: snapshot {position}"
