"""Sources: where the shards of a job come from, and which of them are new to a run.

A package's own source uses what is imported here; see docs/write-your-own-source.md.
"""

from streamomd.shards.shard import Listed
from streamomd.sources.contract import Request, Source, SourceFiles

__all__ = ["Listed", "Request", "Source", "SourceFiles"]
